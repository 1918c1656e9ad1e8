package migrate

import (
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestKindsAreMigrated fails for a row of resource.Kinds without a step, and for a row with both a step and a reason
// for having none.
func TestKindsAreMigrated(t *testing.T) {
	for _, row := range resource.Kinds {
		step := slices.ContainsFunc(steps, func(s step) bool { return s.kind.Kind.Kind == row })
		if step != (row.Unmigrated == "") {
			t.Errorf("%s has a step: %t; it is not migrated because %q", row.FullName(), step, row.Unmigrated)
		}
	}
}

// TestOrder checks the order in which all kinds are sent.
func TestOrder(t *testing.T) {
	var got []string
	for _, s := range steps {
		got = append(got, s.kind.Plural)
	}
	const want = "namespaces users clusterroles roles clusterrolebindings rolebindings apikeys authproviders providers secrets " +
		"tessen assets hooks filters mutators entities silenced events silenced " +
		"handlers sumo-logic-metrics-handlers tcp-stream-handlers pipelines fallbackPipeline checks aggregates metricchecks " +
		"rule-templates service-components searches config clusters etcd-replicators"
	if strings.Join(got, " ") != want {
		t.Errorf("the order is\n%s, want\n%s", strings.Join(got, " "), want)
	}
}

// TestAggregatesAreCopied copies an aggregate from the output of "lapwing dump".
func TestAggregatesAreCopied(t *testing.T) {
	to := start(t)
	const dump = `{"type":"Aggregate","api_version":"lapwing/v1","metadata":{"name":"web","namespace":"default"},
		"spec":{"interval":60,"field_selector":"event.check.name == 'http'","critical":{"count":2},"author":{"user":"ada"}}}`
	r := copyTo(t, to.options(fromFile(t, dump)))
	if got := r.of(t, "aggregates"); got.Created != 1 {
		t.Errorf("aggregates: %+v\n%s", got, printed(t, r))
	}
	if a := to.get(t, client.Aggregates.Path("default", "web")); integer(sub(a, "critical"), "count") != 2 {
		t.Errorf("the aggregate: %v", a)
	}
	if got := copyTo(t, to.options(fromFile(t, dump))).of(t, "aggregates"); got.Unchanged != 1 {
		t.Errorf("once more: %+v", got)
	}
}
