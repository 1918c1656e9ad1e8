package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layer is one row of the table of imports.
type layer struct {
	// pkg is the package's path in the module, or "x/..." for all below x. The longest matching row counts.
	pkg string
	// may lists the packages of ours that it imports; "x/..." is x and all below, "..." everything. Packages below
	// internal/ and forAll need no mention.
	may string
	// why says what the row protects.
	why string
}

// forAll may be imported by every part.
const forAll = "resource"

// layers is the table of imports. A new package needs a row. Before you widen a row, check whether the importer could
// take a function or a small interface of its own instead.
var layers = []layer{
	// The event path, left to right. Each step knows the packages that it calls or whose types it gets; none knows
	// backend.
	{"wire", "", "the frames of the connection between agent and session; knows neither end"},
	{"session", "wire intake eventlog config auth ownevent state schedule schedule/timetable",
		"agents' connections: events go in through intake, schedule.Request comes out; nothing behind the fold"},
	{"intake", "calendar eventlog config state silence", "the way into the log; knows no connections and nothing behind the fold"},
	{"eventlog", "broker broker/blocks", "records in, records out; does not know what is in them"},
	{"state", "eventlog report selector",
		"a fold of the log and of nothing else, so that all backends agree; searched with selectors, and a source of reports"},
	{"cluster", "eventlog", "who is a member and who acts; asked by fold, intake, handler and others, knows none of them"},
	{"fold", "eventlog state pipeline handler silence cluster", "the loop from the log to the router; nothing imports it but backend"},
	{"pipeline", "state delivery handler pipeline/workflow config filter trace", "hands folded events to handlers"},
	{"pipeline/workflow", "state delivery config filter oncall selector trace", "decides and shapes; knows no queue and no sender"},
	{"handler", "eventlog config delivery notification oncall pipeline/workflow handler/send trace",
		"runs deliveries, and reports to the log what became of them"},
	{"handler/send", "", "one attempt: knows protocols and receivers, not queues or definitions"},

	{"delivery", "", "the types of an event on its way to a handler; pipeline, handler, trace and api share them"},
	{"eventfile", "state delivery", "events as lines for other programs; follows the fold, and is asked by none"},
	{"trace", "delivery", "what became of events; told by pipeline and handler, asked by api"},
	{"explain", "trace", "whether people were told, and why not; gets all that it knows from api, and knows no HTTP"},
	{"notification", "delivery", "whom handlers told what; recorded by handler, asked by api"},

	// What the path reads.
	{"resource", "", "the nouns: any package may import them, so they import none"},
	{"config", "broker broker/blocks", "the snapshot of definitions"},
	{"selector", "", "a condition on labels and fields; asked by api, auth and state"},
	{"calendar", "config", "named times; asked by schedule, silence, intake, lateness, filters and api, knows none of them"},
	{"references", "config filter handler/send", "which names in definitions name nothing; asked by api"},
	{"oncall", "calendar config", "who is on call, and whom a step notifies; sends and stores nothing"},
	{"silence", "calendar config selector", "which events are silenced, and the end of silences"},
	{"inhibit", "config selector state", "which incidents are only consequences; asked by pipeline and api"},
	{"filter", "config", "an expression and an event to yes or no"},

	// What makes events.
	{"agent", "wire agent/... asset filter schedule/timetable substitute", "a program of its own: nothing of the backend's"},
	{"agent/local", "", "events from programs of the host; the agent forwards them"},
	{"asset", "filter", "archives of plugins, for the agent and the backend alike"},
	{"agent/collect", "", "what an agent measures by itself; knows neither checks nor events"},
	{"agent/extract", "", "a check's output to metric points"},
	{"schedule", "calendar config filter schedule/timetable substitute", "due checks; the session finds the agents for a request"},
	{"queue", "wire eventlog schedule/timetable state",
		"what round-robin checks owe, and who gets it; told by schedule, session and fold, and knows only the log's results"},
	{"schedule/timetable", "", "due times, the same in backend and agent"},
	{"substitute", "", "tokens in definitions, the same in backend and agent"},
	{"view", "state selector", "live lists of events, ordered, counted and grouped; asked by api"},
	{"fleet", "config selector state view", "live lists of entities, ordered, counted and grouped; asked by api"},
	{"ownevent", "config state", "events of the backend about itself; lateness, session and backend say what is wrong"},
	{"lateness", "calendar config ownevent schedule/timetable state", "which checks are late; asks about agents, and makes events, through functions"},
	{"computed", "selector state", "definitions in their intervals, and the events that they make; knows no kind of them"},
	{"aggregate", "computed config selector state", "checks of other checks' results; events go in through an interface"},

	// Metrics, beside the path of events: listener, parse, intern, rules, append; and queries.
	{"metric", "metric/...", "the wiring of the metrics half: backend and the command carbon use nothing else of it, but for alert"},
	{"metric/series", "", "the types that the parts of metric share"},
	{"metric/name", "", "names of series and their tags; knows no store"},
	{"metric/promname", "", "labels of Prometheus as names of series, and back"},
	{"metric/carbon", "", "carbon's protocols, read; points go to a writer of the caller's"},
	{"metric/frame", "", "carbon's protocols, written"},
	{"metric/schema", "metric/series", "how a series is stored, by carbon's files"},
	{"metric/rewrite", "", "names by carbon's rewrite rules"},
	{"metric/allow", "", "which names are taken"},
	{"metric/aggregator", "metric/series", "series made of other series as points arrive"},
	{"metric/ring", "", "where other carbon servers expect a series"},
	{"metric/spill", "", "a queue of records on disk"},
	{"metric/relay", "metric/frame metric/ring metric/spill", "points for other carbon servers"},
	{"metric/remote", "metric/promname", "samples for other stores by remote write"},
	{"metric/store", "metric/series", "series in tiers; the only package that writes to the TSDB"},
	{"metric/index", "", "names by pattern and by tag; knows no values"},
	{"metric/member", "metric/spill", "series on the members of a cluster; asks and answers through functions"},
	{"metric/ingest", "metric/aggregator metric/allow metric/carbon metric/member metric/name metric/relay metric/remote metric/store",
		"the way of a point; knows its listeners as writers only"},
	{"metric/render", "metric/series", "Graphite's targets and functions; asks a source of the caller's"},
	{"metric/plot", "metric/render", "series as images"},
	{"metric/pickle", "", "values as Python pickles"},
	{"metric/graphite", "metric/render metric/plot metric/pickle", "Graphite's HTTP API; asks a source of the caller's"},
	{"metric/promapi", "metric/promname", "Prometheus' HTTP API and remote write"},
	{"metric/rulefile", "metric/promname", "Prometheus' rule files"},
	{"metric/whisper", "metric/series metric/name", "Graphite's files, in and out"},
	{"metric/alert", "computed config selector state metric/rulefile", "checks on metrics; events go in through an interface"},

	// What people use.
	{"api", "aggregate api/openapi audit auth backup calendar config delivery explain filter fleet inhibit metric/series notification oncall postgres queue references report " +
		"report/page selector silence state substitute trace view wire",
		"HTTP in front of snapshot and state; events go in through an interface"},
	{"postgres", "config notification postgres/journal report resource state",
		"a copy in SQL; follows the fold through its journal, and is asked by none on the path"},
	{"postgres/journal", "eventlog state", "the fold's changes on disk until PostgreSQL has them"},
	{"report", "", "figures from changes of state; asks a source of the caller's"},
	{"report/page", "report", "a report as CSV or a page"},
	{"report/reporttest", "report", "what every source of reports must do, for tests"},
	{"api/openapi", "", "the document and how it is made; knows no route of its own"},
	{"audit", "broker broker/blocks config", "told by config and api who changed what; asked by api"},
	{"auth", "config selector", "asked by api and session"},
	{"web", "", "the built pages"},
	{"client", "", "shared by ctl, load, migrate and tests; knows the API's paths and shapes, not the server"},
	{"client/ctl", "asset client client/lacking filter selector substitute", "talks to a server over HTTP only; a watch applies selectors to what it is sent; runs plugins from assets"},
	{"client/load/...", "wire client client/load/...", "agents and users as the server sees them from outside"},
	{"client/load/report", "", "figures and pages; knows nothing of how they were found"},
	{"client/load/scenario", "client client/load/report", "the description of a run; load has the agents"},
	{"client/lacking", "", "what of Sensu is not there, and what to use instead; shared by ctl and migrate"},
	{"client/migrate", "client client/lacking", "copies over HTTP only: both sides are other programs"},
	{"client/doctor", "", "reads metrics over HTTP only, and PostgreSQL's statistics, so that it can look at any backend"},

	// The process.
	{"broker", "broker/blocks", "the only package that knows the broker's server"},
	{"broker/blocks", "", "the broker's files while no broker has them open"},
	{"backup", "", "the file of a backup: written and restored by backend, checked by the commands; knows no store"},
	{"telemetry", "", "injected, so only the process imports it"},
	{"backend", "...", "the wiring: the one place that knows all parts"},
	{"cmd/...", "...", "flags onto Options"},

	// Helpers and tools. Any package may import those below internal/, except for testbackend.
	{"internal/...", "", "useful to any Go program"},
	{"internal/manpage", "internal/flaggroup", "the commands as man pages"},
	{"internal/testbroker", "broker", "the brokers of a cluster for tests"},
	{"internal/testconfig", "broker config", "a store of definitions for tests"},
	{"internal/testcomputed", "selector state", "definitions and events in memory, for tests of computed and its callers"},
	{"internal/testpool", "filter", "processes that run expressions, for tests"},
	{"internal/testbackend", "...", "a real backend on :0 and what tests say to it"},
	{"test/...", "...", "whole programs"},
	{"bench/...", "...", "whole programs, measured"},
}

// importsBackend are the packages that may import backend, whatever their row says. Tests of other packages get a
// running one from internal/testbackend.
var importsBackend = []string{"cmd/...", "test/...", "bench/...", "internal/testbackend"}

// foreign restricts imports of other modules. The first row that matches an import counts; other imports are free.
var foreign = []layer{
	{"github.com/nats-io/nats-server/...", "broker", "the broker's engine can be replaced, or run elsewhere"},
	{"github.com/nats-io/...", "audit broker eventlog config", "nothing above these names the broker's types"},
	{"github.com/gobwas/ws/...", "wire", "wire has one type for both ends, and answers the upgrade"},
	{"github.com/dop251/goja/...", "filter", "scripts of users run in the processes of filter.Pool, and nowhere else"},
	{"github.com/anishathalye/porcupine/...", "test/chaos", "a checker of histories, for tests only"},
	{"github.com/spf13/...", "cmd/... client/ctl internal/flaggroup internal/manpage", "flags are mapped onto Options once; nothing deeper reads one"},
}

func TestImports(t *testing.T) {
	for _, problem := range importProblems(packages(t)) {
		t.Error(problem)
	}
}

// TestTestImports checks one rule for tests: they import backend only through internal/testbackend.
func TestTestImports(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(p.TestImports, "backend") && p.path != "backend" && !listed(importsBackend, p.path) {
			t.Errorf("a test of %s imports backend: use internal/testbackend", p.path)
		}
	}
}

// TestRowsExist fails when a package of the table has moved.
func TestRowsExist(t *testing.T) {
	for _, row := range layers {
		if row.pkg != "bench/..." && !slices.ContainsFunc(packages(t), func(p pkg) bool { return listed([]string{row.pkg}, p.path) }) {
			t.Errorf("there is no package %s", row.pkg)
		}
	}
}

// TestTable tries the rules on imports that must and must not pass.
func TestTable(t *testing.T) {
	for _, tc := range []struct {
		pkg, imports, want string
	}{
		{"session", "eventlog", ""},
		{"session", "resource", ""},
		{"session", "internal/backoff", ""},
		{"session", "net/http", ""},
		{"session", "pipeline", "session imports pipeline"},
		{"session", "internal/testbackend", "session imports internal/testbackend"},
		{"state", "session", "state imports session"},
		{"eventlog", "wire", "eventlog imports wire"},
		{"resource", "internal/backoff", "resource imports internal/backoff"},
		{"resource", "config", "resource imports config"},
		{"internal/wheel", "state", "internal/wheel imports state"},
		{"agent", "agent/extract", ""},
		{"agent/extract", "state", "agent/extract imports state"},
		{"client/ctl", "api", "client/ctl imports api"},
		{"client", "api", "client imports api"},
		{"api", "backend", "api imports backend"},
		{"backend", "web", ""},
		{"cmd/lapwing", "backend", ""},
		{"internal/testbackend", "backend", ""},
		{"internal/backoff", "backend", "internal/backoff imports backend"},
		{"client/doctor", "state", "client/doctor imports state"},
		{"nowhere", "resource", "package nowhere has no row"},
		{"broker", "github.com/nats-io/nats-server/v2/server", ""},
		{"eventlog", "github.com/nats-io/nats-server/v2/server", "eventlog imports github.com/nats-io/nats-server/v2/server"},
		{"config", "github.com/nats-io/nats.go/jetstream", ""},
		{"state", "github.com/nats-io/nats.go", "state imports github.com/nats-io/nats.go"},
		{"cmd/lapwing", "github.com/spf13/cobra", ""},
		{"session", "github.com/spf13/pflag", "session imports github.com/spf13/pflag"},
	} {
		problems := importProblems([]pkg{{path: tc.pkg, Imports: []string{tc.imports}}})
		got := strings.Join(problems, "\n")
		if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s imports %s: problem %q, want %q", tc.pkg, tc.imports, got, tc.want)
		}
	}
}

func importProblems(pkgs []pkg) (problems []string) {
	for _, p := range pkgs {
		row, ok := rowOf(p.path)
		if !ok {
			problems = append(problems, fmt.Sprintf("package %s has no row in the table of imports: add one to layers in internal/lint, with the parts it may import and why", p.path))
			continue
		}
		for _, imported := range p.Imports {
			if problem := importProblem(row, p.path, imported); problem != "" {
				problems = append(problems, problem)
			}
		}
	}
	return problems
}

func importProblem(row layer, path, imported string) string {
	for _, f := range foreign {
		if fits(f.pkg, imported) {
			if may := strings.Fields(f.may); !listed(may, path) {
				return fmt.Sprintf("%s imports %s; only %s may: %s", path, imported, strings.Join(may, ", "), f.why)
			}
			return ""
		}
	}
	_, ours := rowOf(imported)
	if !ours {
		return "" // the standard library or another module
	}
	may := strings.Fields(row.may)
	switch {
	case imported == "backend" && !listed(importsBackend, path):
		return fmt.Sprintf("%s imports backend; only %s may", path, strings.Join(importsBackend, ", "))
	case listed(may, imported):
		return ""
	case path == forAll:
		return fmt.Sprintf("%s imports %s: %s", path, imported, row.why)
	case imported == forAll, strings.HasPrefix(imported, "internal/") && imported != "internal/testbackend":
		return ""
	}
	return fmt.Sprintf("%s imports %s; its row in internal/lint allows %q beside %s (%s)", path, imported, row.may, forAll, row.why)
}

// rowOf returns the longest row that matches a path of ours.
func rowOf(path string) (best layer, ok bool) {
	for _, l := range layers {
		if fits(l.pkg, path) && len(l.pkg) > len(best.pkg) {
			best, ok = l, true
		}
	}
	return best, ok
}

func listed(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, path) })
}

// fits reports whether a path matches a pattern, or is below it if it ends in "/...".
func fits(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	prefix, tree := strings.CutSuffix(pattern, "/...")
	return path == prefix || tree && strings.HasPrefix(path, prefix+"/")
}
