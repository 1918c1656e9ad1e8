package auth

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestGroupsOfProvidersAge has a provider's user leave a group and then not sign in again.
func TestGroupsOfProvidersAge(t *testing.T) {
	a, c, _ := withOIDC(t, nil)
	by := &resource.Author{User: "sso:alice", Provider: "sso", ProviderType: resource.OIDCType}
	signIn := func(groups ...string) {
		t.Helper()
		id := &Identity{User: by.User, Groups: groups, Origin: Origin{Provider: by.Provider, Type: by.ProviderType}}
		if _, err := a.Issue(t.Context(), id, testIssuer); err != nil {
			t.Fatal(err)
		}
	}
	stands := func(known bool, groups ...string) {
		t.Helper()
		id, ok := a.Standing(by)
		if want := append(groups, usersGroup); !ok || !slices.Equal(id.Groups, want) || a.GroupsKnown(by) != known {
			t.Errorf("the author is %+v, %v, known: %v; want the groups %v", id, ok, a.GroupsKnown(by), want)
		}
	}
	stands(false)
	signIn("sso:ops", "sso:dev")
	stands(true, "sso:ops", "sso:dev")
	signIn("sso:dev")
	stands(true, "sso:dev")
	c.advance(29 * 24 * time.Hour)
	stands(true, "sso:dev")
	signIn("sso:dev")
	c.advance(29 * 24 * time.Hour)
	stands(true, "sso:dev")
	c.advance(24 * time.Hour)
	stands(false)

	// The next sign-in of another user deletes groups that are too old.
	other := &Identity{User: "sso:bob", Origin: Origin{Provider: by.Provider, Type: by.ProviderType}}
	if _, err := a.Issue(t.Context(), other, testIssuer); err != nil {
		t.Fatal(err)
	}
	if n := config.Len(a.opts.Config.Snapshot(), config.Standings); n != 1 {
		t.Errorf("%d users are remembered", n)
	}
	signIn("sso:ops")
	stands(true, "sso:ops")
}

// TestLearningIsRare has a user refresh for a day: not each refresh may write.
func TestLearningIsRare(t *testing.T) {
	a, c, _ := withOIDC(t, nil)
	id := &Identity{User: "sso:alice", Groups: []string{"sso:ops"}, Origin: Origin{Provider: "sso", Type: resource.OIDCType}}
	writes := 0
	defer a.opts.Config.OnChange(func(ch config.Change) {
		if ch.Kind == config.Standings.String() {
			writes++
		}
	})()
	for range 23 * 12 {
		if _, err := a.Issue(t.Context(), id, testIssuer); err != nil {
			t.Fatal(err)
		}
		c.advance(5 * time.Minute)
	}
	if writes != 1 {
		t.Errorf("%d writes in a day", writes)
	}
}

// TestLearningOutlivesItsRequest has a client disconnect while its groups are written.
func TestLearningOutlivesItsRequest(t *testing.T) {
	a, c, _ := withOIDC(t, nil)
	id := &Identity{User: "sso:alice", Groups: []string{"sso:ops"}, Origin: Origin{Provider: "sso", Type: resource.OIDCType}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.learn(ctx, id)
	if groups, _ := a.learned(id.User, id.Origin); !slices.Equal(groups, id.Groups) {
		t.Errorf("the groups are %v", groups)
	}
	if !a.standings.due(c.now()) {
		t.Error("nothing is learned of other users for a while")
	}
}
