package backend

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// memberLimit selects the events that an aggregate's author may list now. Aggregates from before there were authors have all. agents has
// rights as an agent count, as in the API.
func memberLimit(users *auth.Auth, agents bool) func(*resource.Aggregate) (*selector.Selector, error) {
	return func(def *resource.Aggregate) (*selector.Selector, error) {
		by := def.Author
		if by == nil {
			return nil, nil
		}
		id, ok := users.Standing(by.User, auth.Origin{Provider: by.Provider, Type: by.ProviderType}, by.Groups)
		if !ok {
			return nil, fmt.Errorf("its author %q may not sign in any more: write the aggregate again as another user", by.User)
		}
		if !agents {
			id = id.WithoutAgents()
		}
		permit := users.Permit(id, auth.Attributes{Verb: "list", Resource: "events", Namespace: def.Metadata.Namespace})
		if permit.Denied() {
			return nil, fmt.Errorf("its author %q may not list events in the namespace: write the aggregate again as another user", by.User)
		}
		return permit.Selector(), nil
	}
}
