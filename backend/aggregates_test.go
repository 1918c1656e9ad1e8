package backend

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestReadLimit has an author of a directory whose groups are all that the author's rights come from.
func TestReadLimit(t *testing.T) {
	store := testconfig.Store(t)
	now := time.Now()
	users, err := auth.New(auth.Options{Config: store, HashCost: bcrypt.MinCost, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, config.AuthProviders, &resource.AuthProvider{Type: resource.LDAPType, Metadata: resource.ObjectMeta{Name: "corp"}})
	meta := resource.ObjectMeta{Namespace: "default", Name: "red"}
	put(t, store, config.Roles, &resource.Role{Metadata: meta, Rules: []resource.Rule{
		{Verbs: []string{"list"}, Resources: []string{"events"}, LabelSelector: "team == red"},
	}})
	put(t, store, config.RoleBindings, &resource.RoleBinding{
		Metadata: meta, RoleRef: resource.RoleRef{Type: "Role", Name: "red"}, Subjects: []resource.Subject{{Type: "Group", Name: "corp:red"}},
	})
	by := &resource.Author{User: "ann", Provider: "corp", ProviderType: resource.LDAPType}
	limited := func(by *resource.Author, want string) {
		t.Helper()
		limit, err := readLimit(users, false, by, "default")
		switch {
		case want == "" && (err != nil || (limit == nil) != (by == nil)):
			t.Errorf("the limit is %v, %v", limit, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	const unknown = `its author "ann" has not signed in with provider "corp" for 720h0m0s, so the groups are unknown`
	limited(nil, "")
	limited(by, unknown)
	id := &auth.Identity{User: by.User, Groups: []string{"corp:red"}, Origin: auth.Origin{Provider: by.Provider, Type: by.ProviderType}}
	if _, err := users.Issue(t.Context(), id, "http://localhost"); err != nil {
		t.Fatal(err)
	}
	limited(by, "")
	now = now.Add(31 * 24 * time.Hour)
	limited(by, unknown)
	limited(&resource.Author{User: "nobody"}, "may not sign in any more")
}

func put[T any](t *testing.T, store *config.Store, kind config.Kind[T], obj *T) {
	t.Helper()
	if err := config.Put(t.Context(), store, kind, obj); err != nil {
		t.Fatal(err)
	}
}
