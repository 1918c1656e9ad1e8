//go:build !long

package longtest

// Run reports whether long tests run.
const Run = false
