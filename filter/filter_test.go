package filter_test

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/filter"
)

func TestBuiltin(t *testing.T) {
	f := func(name string, facts filter.Facts, want bool) {
		t.Helper()
		pass, ok := filter.Builtin(name)
		if !ok {
			t.Fatalf("no filter %q", name)
		}
		if got := pass(facts); got != want {
			t.Errorf("%s of %+v: got %v, want %v", name, facts, got, want)
		}
	}
	f("is_incident", filter.Facts{}, false)
	f("is_incident", filter.Facts{Incident: true}, true)
	f("is_incident", filter.Facts{Resolution: true}, true)
	f("is_incident", filter.Facts{HasMetrics: true, Silenced: true}, false)
	f("not_silenced", filter.Facts{}, true)
	f("not_silenced", filter.Facts{Incident: true}, true)
	f("not_silenced", filter.Facts{Incident: true, Silenced: true}, false)
	f("has_metrics", filter.Facts{}, false)
	f("has_metrics", filter.Facts{HasMetrics: true}, true)
	for _, name := range []string{"", "Is_Incident", "is_resolution", "custom"} {
		if _, ok := filter.Builtin(name); ok {
			t.Errorf("there is a filter %q", name)
		}
	}
}

func TestFactsCostNothing(t *testing.T) {
	facts := filter.Facts{Incident: true}
	if n := testing.AllocsPerRun(100, func() {
		if pass, _ := filter.Builtin("is_incident"); !pass(facts) {
			t.Error("denied")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNames: each of the names is that of a filter.
func TestNames(t *testing.T) {
	for _, name := range filter.Names {
		_, simple := filter.Builtin(name)
		_, native := filter.NativeFilter(name)
		if !simple && !native {
			t.Errorf("%s is no built-in filter", name)
		}
	}
}
