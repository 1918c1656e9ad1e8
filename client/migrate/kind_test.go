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
		"tessen calendars contacts rotas assets hooks filters mutators entities silenced events silenced " +
		"handlers sumo-logic-metrics-handlers tcp-stream-handlers pipelines fallbackPipeline checks aggregates metricchecks " +
		"rule-templates service-components searches config clusters etcd-replicators provider"
	if strings.Join(got, " ") != want {
		t.Errorf("the order is\n%s, want\n%s", strings.Join(got, " "), want)
	}
}

// TestPostgresStays: a PostgresConfig is not copied, and the report says why.
func TestPostgresStays(t *testing.T) {
	to := start(t)
	const dump = `{"type":"PostgresConfig","api_version":"store/v1","metadata":{"name":"db"},"spec":{"dsn":"postgres://u:s3cret@db/x"}}`
	r := copyTo(t, to.options(fromFile(t, dump)))
	if got := r.of(t, "provider"); got.Source != 1 || got.Left != 1 || got.Created != 0 {
		t.Errorf("%+v", got)
	}
	if m := r.remark(Left, "PostgresConfig"); m == nil || !strings.Contains(m.Reason, "belongs to the source") {
		t.Errorf("the remark is %+v", m)
	}
	if text := printed(t, r); strings.Contains(text, "s3cret") {
		t.Errorf("the report shows the password: %s", text)
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
