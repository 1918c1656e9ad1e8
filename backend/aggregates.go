package backend

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// memberLimit selects the events that an aggregate's author may list now.
func memberLimit(users *auth.Auth, agents bool) func(*resource.Aggregate) (*selector.Selector, error) {
	return func(def *resource.Aggregate) (*selector.Selector, error) {
		return readLimit(users, agents, def.Author, def.Metadata.Namespace)
	}
}

// readLimit selects the events of a namespace that the author of a definition may list now, nil for all. A definition without an author,
// from before authors were kept, reads all. agents says that rights as an agent count, as in the API.
func readLimit(users *auth.Auth, agents bool, by *resource.Author, namespace string) (*selector.Selector, error) {
	if by == nil {
		return nil, nil
	}
	id, ok := users.Standing(by)
	if !ok {
		return nil, fmt.Errorf("its author %q may not sign in any more: write it again as another user", by.User)
	}
	if !agents {
		id = id.WithoutAgents()
	}
	permit := users.Permit(id, auth.Attributes{Verb: "list", Resource: "events", Namespace: namespace})
	switch {
	case !permit.Denied():
		return permit.Selector(), nil
	case !users.GroupsKnown(by):
		return nil, fmt.Errorf("its author %q has not signed in with provider %q for %s, so the groups are unknown, and without them the author "+
			"may not list events: sign in as the author, or write it again as another user", by.User, by.Provider, users.GroupsAge())
	}
	return nil, fmt.Errorf("its author %q may not list events in the namespace: write it again as another user", by.User)
}
