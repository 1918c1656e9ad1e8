package filter_test

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestLookUpsArePermitted has the same look-up in definitions of two authors, and in one without an author.
func TestLookUpsArePermitted(t *testing.T) {
	t.Parallel()
	all := stored{"default/db1/cpu": incident(), "default/web1/disk": incident()}
	e := engine(func(o *filter.Options) {
		o.Events = all
		o.Permit = func(author *resource.Author, events filter.Events) filter.Events {
			if author != nil && author.User == "red" {
				return stored{"default/web1/disk": incident()}
			}
			return events
		}
	})
	for _, tt := range []struct {
		author *resource.Author
		sees   string
	}{{nil, "2"}, {&resource.Author{User: "admin"}, "2"}, {&resource.Author{User: "red"}, "1"}} {
		def := definition("allow", "sensu.ListEvents().length == "+tt.sees)
		def.Author = tt.author
		if !e.Passes(def, incident()) {
			t.Errorf("a filter of %+v does not see %s events", tt.author, tt.sees)
		}
		script := &resource.Mutator{
			Metadata: resource.ObjectMeta{Name: "m", Namespace: "default"}, Type: "javascript", Eval: "return '' + sensu.ListEvents().length",
			Author: tt.author,
		}
		if text, _, err := e.Mutate(t.Context(), script, incident(), []byte(`{}`)); err != nil || string(text) != tt.sees {
			t.Errorf("a mutator of %+v sees %s events, %v", tt.author, text, err)
		}
	}
}
