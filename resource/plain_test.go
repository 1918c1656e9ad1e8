package resource

import (
	"encoding/json"
	"testing"
)

func TestDropEmptyLists(t *testing.T) {
	var h Handler
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"h"},"filters":[],"handlers":["a"],"env_vars":null}`), &h); err != nil {
		t.Fatal(err)
	}
	DropEmptyLists(&h)
	if h.Filters != nil || h.EnvVars != nil || len(h.Handlers) != 1 {
		t.Errorf("got %+v", h)
	}
	role := Role{Rules: []Rule{{Verbs: []string{"get"}, ResourceNames: []string{}}}}
	DropEmptyLists(&role)
	if role.Rules[0].ResourceNames != nil || len(role.Rules[0].Verbs) != 1 {
		t.Errorf("got %+v", role)
	}
}
