package aggregate

import (
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestStoredSelectors has selectors that the API refuses, and with which a stored aggregate still runs.
func TestStoredSelectors(t *testing.T) {
	for _, tc := range []struct{ members, failing, want string }{
		{"event.check.nam == disk", "", `did you mean "event.check.name"?`},
		{"event.check.name == disk", "event.check.state == failng", `failing: field "event.check.state"`},
	} {
		def := &resource.Aggregate{FieldSelector: tc.members, Failing: tc.failing}
		if err := Parse(def); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc, err, tc.want)
		}
		if _, err := newQuery(def); err != nil {
			t.Errorf("%+v does not load: %v", tc, err)
		}
	}
}
