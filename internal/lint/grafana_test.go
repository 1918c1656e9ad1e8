package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// TestDashboard checks that docs/grafana/lapwing.json uses existing metrics: lapwing's are in docs/metrics.md, Go's and
// the process's in every registry.
func TestDashboard(t *testing.T) {
	families, err := telemetry.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	for _, m := range metricRef.FindAllStringSubmatch(document(t, "docs/metrics.md"), -1) {
		known[m[1]] = true
	}
	for _, problem := range dashboardProblems(document(t, "docs/grafana/lapwing.json"), known) {
		t.Error(problem)
	}
}

// dashboard is the part of a dashboard that the rules check.
type dashboard struct {
	Annotations struct{ List []query }
	Templating  struct{ List []variable }
	Panels      []panel
}

type query struct {
	Expr       string
	Datasource datasource
}

type datasource struct{ Type, UID string }

type variable struct {
	Name, Type, Definition string
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource datasource
	GridPos    struct{ X, Y, W, H int }
	Targets    []query
}

// ourSource is the only data source in a dashboard: the one that its user selects.
const ourSource = "${datasource}"

var metricInExpr = regexp.MustCompile(`\b(?:lapwing|go|process)_[a-z0-9_]+`)

// dashboardProblems finds panels that would be empty or broken.
func dashboardProblems(text string, known map[string]bool) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var d dashboard
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return []string{"not JSON: " + err.Error()}
	}
	if !slices.ContainsFunc(d.Templating.List, func(v variable) bool { return v.Name == "datasource" && v.Type == "datasource" }) {
		problem("there is no variable for the data source")
	}
	unknown := map[string]bool{}
	check := func(expr string) {
		for _, name := range metricInExpr.FindAllString(expr, -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !known[name] && !known[base] {
				unknown[name] = true
			}
		}
	}
	for _, v := range d.Templating.List {
		check(v.Definition)
	}
	for _, q := range d.Annotations.List {
		check(q.Expr)
	}
	ids := map[int]string{}
	for i, p := range d.Panels {
		if other, twice := ids[p.ID]; twice {
			problem("panels %q and %q have the same id", other, p.Title)
		}
		ids[p.ID] = p.Title
		for _, other := range d.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				problem("panels %q and %q overlap", other.Title, p.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != ourSource {
			problem("panel %q has no target, or not the variable's data source", p.Title)
		}
		for _, q := range p.Targets {
			if len(metricInExpr.FindAllString(q.Expr, -1)) == 0 || q.Datasource.UID != ourSource {
				problem("panel %q has a target without a metric, or not of the variable's data source", p.Title)
			}
			check(q.Expr)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		problem("metric %s does not exist", name)
	}
	return problems
}

func TestDashboardRule(t *testing.T) {
	const source = `"datasource": {"uid": "${datasource}"}`
	const variables = `"templating": {"list": [{"name": "datasource", "type": "datasource"}, {"name": "i", "definition": "label_values(go_b, i)"}]}`
	known := map[string]bool{"lapwing_a_seconds": true, "go_b": true}
	target := func(expr string) string { return `{"expr": "` + expr + `", ` + source + `}` }
	same(t, dashboardProblems(`{`+variables+`, "panels": [
		{"id": 1, "title": "one", "type": "stat", "gridPos": {"w": 12, "h": 8}, `+source+`, "targets": [`+target("rate(lapwing_a_seconds_bucket[1m]) / go_b")+`]},
		{"id": 2, "title": "row", "type": "row", "gridPos": {"y": 8, "w": 24, "h": 1}}
	]}`, known))
	same(t, dashboardProblems(`{"annotations": {"list": [{"expr": "process_x"}]}, "panels": [
		{"id": 1, "title": "one", "gridPos": {"w": 12, "h": 8}, `+source+`, "targets": [`+target("lapwing_a + lapwing_a_seconds_sum")+`]},
		{"id": 1, "title": "two", "gridPos": {"x": 11, "w": 12, "h": 8}, "targets": [`+target("1")+`]}
	]}`, known),
		"there is no variable", `panels "one" and "two" have the same id`, `panels "one" and "two" overlap`, `panel "two" has no target`,
		`panel "two" has a target without a metric`, "metric lapwing_a does not exist", "metric process_x does not exist")
	same(t, dashboardProblems(`{`, known), "not JSON")
}
