package conformance

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sequences returns the sequences to play. LAPWING_CONFORMANCE_ONLY is a regular expression for their names. -short
// leaves out slow ones.
func sequences(t *testing.T) []*Sequence {
	t.Helper()
	all, err := Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	only, err := regexp.Compile(os.Getenv("LAPWING_CONFORMANCE_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(s *Sequence) bool { return testing.Short() && s.Slow > 0 || !only.MatchString(s.Name) })
}

func accepted(t *testing.T) []*Accepted {
	t.Helper()
	list, err := LoadAccepted("accepted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func playLapwing(t *testing.T, list []*Sequence) []*Result {
	t.Helper()
	// These two behave as in Sensu only if the operator says so (docs/compatibility.md).
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Intake.AnyEntity, o.Intake.ProxyLabels = true, true })
	return playTo(t, list, &Target{
		API: "http://" + b.APIAddr().String(), Agent: b.URL(),
		User: testbackend.User, Password: testbackend.Password, AgentUser: testbackend.AgentUser, AgentPassword: testbackend.AgentPassword,
	})
}

func playTo(t *testing.T, list []*Sequence, target *Target) []*Result {
	t.Helper()
	t.Cleanup(target.Close)
	results, err := Run(t.Context(), target, list, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// judge reports the results of one side, a subtest for each sequence.
func judge(t *testing.T, side string, results []*Result, known []*Accepted) {
	t.Helper()
	steps, checked, excused, failed := 0, 0, 0, 0
	for _, r := range results {
		steps += r.Steps
		checked += r.Checked
		t.Run(r.Sequence.Name, func(t *testing.T) {
			for _, p := range r.Problems {
				if reason, ok := Accept(known, side, p); ok {
					excused++
					t.Logf("accepted: %v: %s", p, reason)
					continue
				}
				failed++
				t.Errorf("section %s: %v", r.Sequence.Spec, p)
			}
		})
	}
	t.Logf("%s: %d sequences, %d steps, %d fields compared with the specification: %d as it says, %d accepted differences, %d others",
		side, len(results), steps, checked, checked-excused-failed, excused, failed)
	var played []*Sequence
	for _, r := range results {
		played = append(played, r.Sequence)
	}
	for _, a := range Unused(known, side, played) {
		t.Errorf("accepted difference of %s does not occur any more: sequence %q step %q field %q", side, a.Sequence, a.Step, a.Field)
	}
	slowest := slices.SortedFunc(slices.Values(results), func(a, b *Result) int { return cmp.Compare(b.Took, a.Took) })
	for _, r := range slowest[:min(3, len(slowest))] {
		t.Logf("%s took %v", r.Sequence.Name, r.Took.Round(time.Millisecond))
	}
}

// TestSpecification plays the sequences to a lapwing backend.
func TestSpecification(t *testing.T) {
	judge(t, SideLapwing, playLapwing(t, sequences(t)), accepted(t))
}

// TestOther plays the sequences to a lapwing backend and to the backend of LAPWING_CONFORMANCE_API and
// LAPWING_CONFORMANCE_AGENT (http://host:port and ws://host:port), which may be Sensu's, and compares all answers.
func TestOther(t *testing.T) {
	api, agent := os.Getenv("LAPWING_CONFORMANCE_API"), os.Getenv("LAPWING_CONFORMANCE_AGENT")
	if api == "" || agent == "" {
		t.Skip("LAPWING_CONFORMANCE_API and LAPWING_CONFORMANCE_AGENT name no backend")
	}
	list, known := sequences(t), accepted(t)
	theirs := playTo(t, list, &Target{
		API: api, Agent: agent,
		User:          cmp.Or(os.Getenv("LAPWING_CONFORMANCE_USER"), testbackend.User),
		Password:      cmp.Or(os.Getenv("LAPWING_CONFORMANCE_PASSWORD"), testbackend.Password),
		AgentUser:     testbackend.AgentUser,
		AgentPassword: testbackend.AgentPassword,
		// Sensu polls for namespaces and silences every five seconds.
		NamespaceDelay: 6 * time.Second, SilenceDelay: 6 * time.Second, Patience: 4,
	})
	judge(t, SideSensu, theirs, known)
	ours := playLapwing(t, list)
	compared, excused, failed := 0, 0, 0
	for i := range ours {
		n, differ := Compare(ours[i], theirs[i])
		compared += n
		for _, p := range differ {
			if _, ok := Accept(known, SideBoth, p); ok {
				excused++
				continue
			}
			failed++
			t.Errorf("answers differ: %v", p)
		}
	}
	t.Logf("answers of both: %d members compared, %d equal, %d accepted differences, %d others", compared,
		compared-excused-failed, excused, failed)
}

// TestRunnerNotices plays sequences with wrong expectations: it must find exactly those problems.
func TestRunnerNotices(t *testing.T) {
	wrong := []*Sequence{
		{Name: "field", Spec: "4", Steps: []Step{{Event: map[string]any{"status": 2},
			Expect: map[string]any{"occurrences": 2, "state": "failing"}}}},
		{Name: "column", Spec: "4", Steps: []Step{{Table: &Table{With: map[string]string{"status": "2 2"},
			Rows: map[string]string{"occurrences": "1 1"}}}}},
		{Name: "status", Spec: "8", Steps: []Step{{Get: "events/e/c", Within: 0.1, Expect: map[string]any{"status": 0}}}},
		{Name: "invalid", Spec: "2", Steps: []Step{{Event: map[string]any{"status": 0, "check": "a b"},
			Expect: map[string]any{"status": 0}}}},
		{Name: "missing-delivery", Spec: "10", Steps: []Step{
			{Handler: map[string]any{"name": "h", "filters": []any{"is_incident"}}},
			{Event: map[string]any{"status": 0, "handlers": []any{"h"}}, Within: 0.1,
				Deliver: map[string][]any{"h": {map[string]any{"status": 0}}}},
		}},
		{Name: "extra-delivery", Spec: "10", Steps: []Step{
			{Handler: map[string]any{"name": "h"}},
			{Event: map[string]any{"status": 1, "handlers": []any{"h"}}, Expect: map[string]any{"status": 1}},
		}},
		{Name: "other-delivery", Spec: "10", Steps: []Step{
			{Handler: map[string]any{"name": "h"}},
			{Event: map[string]any{"status": 1, "handlers": []any{"h"}}, Deliver: map[string][]any{"h": {map[string]any{"status": 2}}}},
		}},
		{Name: "frame", Spec: "3", Steps: []Step{
			{Agent: &Agent{Name: "a"}},
			{Frame: &Frame{Agent: "a", Type: "check_request"}, Within: 0.1},
		}},
		{Name: "refused", Spec: "1", Steps: []Step{{Agent: &Agent{Name: "a", Refused: 401}}}},
	}
	want := []string{
		"field step 1: occurrences is 1, want 2",
		"column step 1.2: occurrences is 2, want 1",
		"status step 1: status is 404, want 200",
		"invalid step 1: step is post event: status 400,",
		"missing-delivery step 2: deliveries to h is 0 , want 1",
		"extra-delivery step end: deliveries to h is c=1, want no more",
		"other-delivery step 2: h[0].status is 1, want 2",
		"frame step 2: check_request is not sent, want sent",
		"refused step 1: step is handshake of a: <nil>, want it refused with 401, want done",
	}
	for i, r := range playLapwing(t, wrong) {
		var got []string
		for _, p := range r.Problems {
			got = append(got, p.String())
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], want[i]) {
			t.Errorf("found %q, want just %q", got, want[i])
		}
	}
}

// TestMatch checks expectations that must match and expectations that must not.
func TestMatch(t *testing.T) {
	doc := map[string]any{
		"check": map[string]any{"status": "1",
			"history":  []any{map[string]any{"status": "0"}, map[string]any{"status": "1", "executed": "t2"}},
			"handlers": []any{}, "silenced": nil},
		"entity":    map[string]any{"metadata": map[string]any{"name": "e", "labels": map[string]any{"a": "1", "b": "2"}}},
		"timestamp": "now",
	}
	for _, tc := range []struct {
		field string
		want  any
		holds bool
	}{
		{"status", 1, true},
		{"status", 2, false},
		{"status", "(absent)", false},
		{"status", "/^[01]$/", true},
		{"status", "/^[23]$/", false},
		{"history", "0 1", true},
		{"history", "1", false},
		{"history", []any{map[string]any{"status": 0}, map[string]any{"executed": "t2"}}, true},
		{"history", []any{map[string]any{"status": 0}}, false},
		{"handlers", []any{}, true},
		{"handlers", []any{"h"}, false},
		{"silenced", "(absent)", true},
		{"silenced", []any{"x"}, false},
		{"ttl", 0, true},
		{"ttl", 5, false},
		{"timestamp", "now", true},
		{"timestamp", "(present)", true},
		{"id", "(present)", false},
		{"entity", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": 1}}}, true},
		{"entity", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": 1, "c": "(absent)"}}}, true},
		{"entity", map[string]any{"metadata": map[string]any{"labels": map[string]any{"b": 1}}}, false},
		{"entity", map[string]any{"system": map[string]any{"os": "linux"}}, false},
		{"metrics", "(absent)", true},
	} {
		var m matcher
		m.event(map[string]any{tc.field: tc.want}, doc)
		if (len(m.problems) == 0) != tc.holds {
			t.Errorf("%s: %v: holds is %v: %v", tc.field, tc.want, !tc.holds, m.problems)
		}
	}
}

// TestAccepted checks the rules of the file: an accepted difference matches only what it names, and is reported when it
// no longer occurs.
func TestAccepted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accepted.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{
		`[{side: lapwing, sequence: a, got: x}]`,
		`[{side: nobody, reason: r}]`,
		`[{side: lapwing, sequence: a, reason: r}]`,
		`[{side: sensu, field: "(", reason: r}]`,
		`[{side: sensu, unknown: x, reason: r}]`,
	} {
		write(text)
		if _, err := LoadAccepted(path); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
	write(`[{side: lapwing, sequence: a.*, step: "1", field: state, got: failing, reason: r}, {side: lapwing, sequence: b, got: x, reason: r}]`)
	list, err := LoadAccepted(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		side string
		p    Problem
		ok   bool
	}{
		{SideLapwing, Problem{"ab", "1", "state", "passing", "failing"}, true},
		{SideSensu, Problem{"ab", "1", "state", "passing", "failing"}, false},
		{SideLapwing, Problem{"ba", "1", "state", "passing", "failing"}, false},
		{SideLapwing, Problem{"ab", "12", "state", "passing", "failing"}, false},
		{SideLapwing, Problem{"ab", "1", "states", "passing", "failing"}, false},
		{SideLapwing, Problem{"ab", "1", "state", "passing", "flapping"}, false},
	} {
		if _, ok := Accept(list, tc.side, tc.p); ok != tc.ok {
			t.Errorf("%s %v: accepted is %v", tc.side, tc.p, ok)
		}
	}
	if unused := Unused(list, SideLapwing, []*Sequence{{Name: "ab"}, {Name: "b"}}); len(unused) != 1 || unused[0].Sequence != "b" {
		t.Errorf("unused are %v, want the one of b", unused)
	}
	if unused := Unused(list, SideLapwing, []*Sequence{{Name: "ab"}}); len(unused) != 0 {
		t.Errorf("what was not played is said to be unused: %v", unused)
	}
}
