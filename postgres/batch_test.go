package postgres

import "testing"

// TestPairIDs: without the secret nothing can be said about ids, so no names can be found that share one.
func TestPairIDs(t *testing.T) {
	id := func(secret, namespace, entity, check string) int64 {
		ids := pairIDs{secret: []byte(secret)}
		return ids.id([]byte(namespace), []byte(entity), []byte(check))
	}
	one := id("s", "default", "web1", "disk")
	if again := id("s", "default", "web1", "disk"); again != one {
		t.Errorf("%d and then %d", one, again)
	}
	for name, other := range map[string]int64{
		"another secret":    id("t", "default", "web1", "disk"),
		"no secret":         id("", "default", "web1", "disk"),
		"another namespace": id("s", "default2", "web1", "disk"),
		"other borders":     id("s", "default", "web1d", "isk"),
		"NUL in a name":     id("s", "default\x00web1", "", "disk"),
	} {
		if other == one {
			t.Errorf("%s has the same id", name)
		}
	}
}
