package auth

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const testKey = "6f8b6e3a-2f0a-4c3b-9d61-0a5f3d1c7e42"

func TestAPIKey(t *testing.T) {
	a, _ := seeded(t)
	key, stored := a.NewAPIKey("admin")
	if id, err := uuid.Parse(key); err != nil || id.Version() != 4 {
		t.Errorf("key %q is not a random UUID", key)
	}
	if text, err := json.Marshal(stored); err != nil || strings.Contains(string(text), key) {
		t.Errorf("the key is stored: %s, %v", text, err)
	}
	name := stored.Metadata.Name
	if id, err := uuid.Parse(name); err != nil || id.Version() != publicVersion || id.Variant() != uuid.RFC4122 {
		t.Errorf("public name %q is not a UUID of version %d", name, publicVersion)
	}
	if _, err := a.APIKey(key); !errors.Is(err, ErrToken) {
		t.Errorf("before it is stored: %v", err)
	}
	put(t, a, config.APIKeys, stored)
	for what, tc := range map[string]struct {
		key  string
		want error
	}{
		"the key": {key, nil}, "in capitals": {strings.ToUpper(key), nil}, "its public name": {name, ErrToken}, "its hash": {stored.Hash, ErrToken},
		"another": {uuid.NewString(), ErrToken}, "none": {"", ErrToken}, "no UUID": {"not-a-key", ErrToken},
	} {
		id, err := a.APIKey(tc.key)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
		}
		if err == nil && (id.User != "admin" || !slices.Equal(id.Groups, []string{clusterAdmins})) {
			t.Errorf("%s: %+v", what, id)
		}
	}
	for _, either := range []string{key, name} {
		if got := APIKeyName(either); got != name {
			t.Errorf("the name of %s is %s, want %s", either, got, name)
		}
	}

	change := func(do func(*resource.User)) {
		t.Helper()
		_, err := config.Update(t.Context(), a.opts.Config, config.Users, "", "admin", func(u *resource.User) (*resource.User, error) {
			do(u)
			return u, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	kept, err := a.APIKey(key)
	if err != nil || !a.Active(kept) {
		t.Fatalf("%+v is not active, %v", kept, err)
	}
	change(func(u *resource.User) { u.Groups = []string{"ops"} })
	if id, err := a.APIKey(key); err != nil || !slices.Equal(id.Groups, []string{"ops"}) {
		t.Errorf("with other groups: %+v, %v", id, err)
	}
	change(func(u *resource.User) { u.Disabled = true })
	if _, err := a.APIKey(key); !errors.Is(err, ErrToken) {
		t.Errorf("a disabled user's: %v", err)
	}
	if a.Active(kept) {
		t.Error("a disabled user's is active")
	}
	change(func(u *resource.User) { u.Disabled = false })
	if !a.Active(kept) {
		t.Error("it is not active again")
	}
	if err := config.Delete(t.Context(), a.opts.Config, config.APIKeys, "", name); err != nil {
		t.Fatal(err)
	}
	if a.Active(kept) {
		t.Error("who came with a key that is gone is still active")
	}
}

func TestImportAPIKey(t *testing.T) {
	a, _ := seeded(t)
	stored, err := a.ImportAPIKey(testKey, "agent")
	if err != nil {
		t.Fatal(err)
	}
	put(t, a, config.APIKeys, stored)
	if id, err := a.APIKey(testKey); err != nil || id.User != "agent" {
		t.Errorf("imported key: %+v, %v", id, err)
	}
	for _, no := range []string{"", "short", stored.Metadata.Name} {
		if _, err := a.ImportAPIKey(no, "agent"); err == nil {
			t.Errorf("%q was taken for a key", no)
		}
	}
}

func TestSeedWithAPIKey(t *testing.T) {
	a := newAuth(t, testconfig.Store(t), new(clock))
	if err := a.Seed(t.Context(), SeedOptions{Username: "root", Password: agentPassword, APIKey: testKey}); err != nil {
		t.Fatal(err)
	}
	if id, err := a.APIKey(testKey); err != nil || id.User != "root" {
		t.Errorf("%+v, %v", id, err)
	}
}
