package api

import (
	"net/http"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestKindsAreServed fails for a row of resource.Kinds that the API does not serve.
func TestKindsAreServed(t *testing.T) {
	s := newServer(t, nil)
	served := map[string]route{}
	for _, r := range s.routes {
		served[r.pattern] = r
	}
	for _, k := range resource.Kinds {
		if k.Internal() {
			continue
		}
		collection, item := k.Prefix()+k.Plural, k.Prefix()+k.Plural
		if k.Namespaced {
			item = k.Prefix() + "namespaces/{namespace}/" + k.Plural
		}
		switch {
		case k.Singleton:
		case k.Paired:
			item += "/{entity}/{check}"
		default:
			item += "/{name}"
		}
		if served[collection].methods[http.MethodGet] == nil {
			t.Errorf("%s cannot be listed at %s", k.FullName(), collection)
		}
		if served[item].methods[http.MethodPut] == nil {
			t.Errorf("%s cannot be put at %s", k.FullName(), item)
		}
		if role := served[item].resource; role != k.Role && !served[item].open {
			t.Errorf("%s asks the roles for %q, want %q", item, role, k.Role)
		}
		if k.Prune == 0 {
			continue
		}
		// Prune and bulk check the same roles as the object's path, and support the same acts.
		def, ok := s.definitions[k.Role]
		if !ok || def.erase == nil {
			t.Errorf("%s has a place in Prune, but no definition", k.FullName())
		}
		if patch := served[item].methods[http.MethodPatch] != nil; patch != (def.amend != nil) {
			t.Errorf("%s has a PATCH: %t; its definition can be amended: %t", item, patch, def.amend != nil)
		}
		if who := served[item].access; !who.labels || who.name == nil || who.self || who.open || who.public || who.long {
			t.Errorf("%s asks the roles otherwise than prune and bulk do", item)
		}
	}
}
