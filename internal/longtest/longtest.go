// Package longtest tells tests whether they run at full length. `make test` leaves the longest ones out and gives some others a
// smaller world; CI runs all of them whole, with the build tag long.
package longtest

import "testing"

// Only skips a test that belongs to CI, unless the tag long is set.
func Only(t testing.TB) {
	t.Helper()
	if !Run {
		t.Skip("long: run it with -tags long")
	}
}

// Size is the size of a test's world: whole with the tag long, small without it.
func Size(whole, small int) int {
	if Run {
		return whole
	}
	return small
}
