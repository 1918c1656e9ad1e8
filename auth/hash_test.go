package auth

import (
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestHashes(t *testing.T) {
	s := testconfig.Store(t)
	for algorithm, prefix := range map[string]string{Bcrypt: "$2a$04$", Argon2id: "$argon2id$v=19$m=32768,t=3,p=2$", "": "$2a$04$"} {
		a, err := New(Options{Config: s, Hash: algorithm, HashCost: bcrypt.MinCost})
		if err != nil {
			t.Fatal(err)
		}
		hash, err := a.HashPassword(t.Context(), "correct horse")
		if err != nil || !strings.HasPrefix(hash, prefix) {
			t.Fatalf("%q makes %s, %v; want %s", algorithm, hash, err, prefix)
		}
		if again, _ := a.HashPassword(t.Context(), "correct horse"); again == hash {
			t.Errorf("%q makes the same hash twice: it has no salt", algorithm)
		}
		for password, want := range map[string]bool{"correct horse": true, "correct hors": false, "": false} {
			if got, err := a.Matches(t.Context(), hash, password); err != nil || got != want {
				t.Errorf("%q with %q: %v, %v", algorithm, password, got, err)
			}
		}
		// Hashes of either algorithm are accepted.
		put(t, a, config.Users, &resource.User{Username: "u", PasswordHash: hash})
		other := newAuth(t, s, new(clock))
		if id, err := other.Password(t.Context(), "u", "correct horse"); err != nil || id.User != "u" {
			t.Errorf("sign in with a hash of %q: %v", algorithm, err)
		}
	}
	if _, err := New(Options{Config: s, Hash: "md5"}); err == nil {
		t.Error("md5 was taken")
	}
}

func TestBadArgonHashes(t *testing.T) {
	a, err := New(Options{Config: testconfig.Store(t), Hash: Argon2id})
	if err != nil {
		t.Fatal(err)
	}
	good, err := a.hashPassword("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, "$")
	with := func(i int, part string) string {
		changed := append([]string(nil), parts...)
		changed[i] = part
		return strings.Join(changed, "$")
	}
	if err := compareHash([]byte(good), []byte("correct horse")); err != nil {
		t.Fatal(err)
	}
	for _, hash := range []string{
		"$argon2id$", with(2, "v=16"), with(2, ""), with(3, "m=32768"), with(3, "m=1048576,t=1,p=1"), with(3, "m=8,t=0,p=1"), with(3, "m=8,t=1,p=0"),
		with(3, "m=8,t=100,p=1"), with(3, "m=99999999999,t=1,p=1"), with(3, "m=32768,t=3,p=3"), with(4, "!"), with(5, ""), with(5, "AAAA"),
		strings.Replace(good, "argon2id", "argon2i", 1), good + "$",
	} {
		if err := compareHash([]byte(hash), []byte("correct horse")); err == nil {
			t.Errorf("%s was taken", hash)
		}
	}
}
