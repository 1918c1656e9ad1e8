// Package reporttest has the tests that every report.Source must pass. Tests of the embedded history and of other
// stores call Suite. Half of its cases are computed by hand; in the other half random histories are compared with a
// naive computation that looks at each millisecond.
package reporttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/report"
)

// Fixture is a check with all its changes, in the order of the log.
type Fixture = report.History

// Start is the time that the suite's cases count from. All changes are within weeks of it.
var Start = time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC)

// Suite tests a source. newSource returns one that has the fixtures, whose history is complete from before 2026 on.
func Suite(t *testing.T, newSource func(t *testing.T, fixtures []Fixture) report.Source) {
	t.Run("cases", func(t *testing.T) { testCases(t, newSource) })
	t.Run("months", func(t *testing.T) { testMonths(t, newSource) })
	t.Run("rows", func(t *testing.T) { testRows(t, newSource) })
	t.Run("random", func(t *testing.T) { testRandom(t, newSource) })
}

type newSource = func(t *testing.T, fixtures []Fixture) report.Source

// Changes parses changes: seconds since Start, a status with the flags f (flapping), s (silenced) and m (missing), or del.
func Changes(text string) (out []report.Change) {
	for word := range strings.FieldsSeq(text) {
		at, what, _ := strings.Cut(word, ":")
		seconds, err := strconv.Atoi(at)
		if err != nil {
			panic(err)
		}
		c := report.Change{Time: Start.Add(time.Duration(seconds) * time.Second)}
		if c.Deleted = what == "del"; !c.Deleted {
			c.Status = uint32(what[0] - '0')
			c.Flapping, c.Silenced, c.Missing = strings.Contains(what, "f"), strings.Contains(what, "s"), strings.Contains(what, "m")
		}
		out = append(out, c)
	}
	return out
}

// figures returns what is not 0 in a row, in seconds.
func figures(r *report.Row) string {
	var out []string
	add := func(name string, n int64) {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s=%d", name, n))
		}
	}
	optional := func(name string, n *int64, unit int64) {
		if n != nil {
			out = append(out, fmt.Sprintf("%s=%d", name, *n/unit))
		}
	}
	add("ok", r.OK/1000)
	add("warning", r.Warning/1000)
	add("critical", r.Critical/1000)
	add("unknown", r.Unknown/1000)
	add("missing", r.Missing/1000)
	add("nodata", r.NoData/1000)
	add("silenced", r.Silenced/1000)
	add("silencedok", r.SilencedOK/1000)
	add("flapping", r.Flapping/1000)
	optional("ppm", r.UptimePPM, 1)
	add("changes", r.Changes)
	add("incidents", r.Incidents)
	add("carried", r.Carried)
	add("open", r.Open)
	add("acked", r.Acknowledged)
	add("resolved", r.Resolved)
	optional("mtta", r.MTTA, 1000)
	optional("mttr", r.MTTR, 1000)
	add("longest", r.Longest/1000)
	add("episodes", r.Episodes)
	return strings.Join(out, " ")
}

// testCases reports on the 1000 seconds from 1000 on.
func testCases(t *testing.T, newSource newSource) {
	cases := []struct {
		name, changes, want string
		skipSilenced        bool
	}{
		{name: "always up", changes: "500:0", want: "ok=1000 ppm=1000000"},
		{name: "an incident", changes: "500:0 1200:2 1450:0",
			want: "ok=750 critical=250 ppm=750000 changes=2 incidents=1 resolved=1 mttr=250 longest=250"},
		{name: "all states", changes: "500:0 1100:1 1200:2 1300:3 1400:1m 1500:0",
			want: "ok=600 warning=100 critical=100 unknown=100 missing=100 ppm=600000 changes=5 incidents=1 resolved=1 mttr=400 longest=400"},
		{name: "over the begin", changes: "700:0 900:2 1300:0",
			want: "ok=700 critical=300 ppm=700000 changes=1 carried=1 longest=300"},
		{name: "over the end", changes: "500:0 1900:2 2100:0",
			want: "ok=900 critical=100 ppm=900000 changes=1 incidents=1 open=1 longest=100"},
		{name: "over both edges", changes: "500:2 2500:0", want: "critical=1000 ppm=0 carried=1 open=1 longest=1000"},
		{name: "changes on the edges", changes: "500:0 1000:2 2000:0",
			want: "critical=1000 ppm=0 changes=1 incidents=1 open=1 longest=1000"},
		{name: "only the newest state before the begin", changes: "300:0 400:2 500:1 600:0", want: "ok=1000 ppm=1000000"},
		{name: "acknowledged", changes: "500:0 1100:2 1160:2s 1300:0",
			want: "ok=800 critical=200 silenced=140 ppm=800000 changes=2 incidents=1 acked=1 resolved=1 mtta=60 mttr=200 longest=200"},
		{name: "acknowledged twice", changes: "500:0 1100:2 1160:2s 1200:2 1220:2s 1300:0",
			want: "ok=800 critical=200 silenced=120 ppm=800000 changes=2 incidents=1 acked=1 resolved=1 mtta=60 mttr=200 longest=200"},
		{name: "acknowledged while it gets worse", changes: "500:0 1100:1 1150:2s 1200:0",
			want: "ok=900 warning=50 critical=50 silenced=50 ppm=900000 changes=3 incidents=1 acked=1 resolved=1 mtta=50 mttr=100 longest=100"},
		{name: "carried incidents have no mean", changes: "500:2 1100:2s 1200:0",
			want: "ok=800 critical=200 silenced=100 ppm=800000 changes=1 carried=1 longest=200"},
		{name: "silenced before it began", changes: "500:0s 1100:2s 1200:0s 1500:0",
			want: "ok=900 critical=100 silenced=500 silencedok=400 ppm=900000 changes=2 incidents=1 resolved=1 mttr=100 longest=100"},
		{name: "without silenced time", changes: "500:0s 1100:2s 1200:0s 1500:0 1900:2", skipSilenced: true,
			want: "ok=800 critical=200 silenced=500 silencedok=400 ppm=800000 changes=3 incidents=2 open=1 resolved=1 mttr=100 longest=100"},
		{name: "all silenced", changes: "500:0s", skipSilenced: true, want: "ok=1000 silenced=1000 silencedok=1000"},
		{name: "means are rounded down", changes: "500:0 1100:2 1101:0 1200:2 1202:0",
			want: "ok=997 critical=3 ppm=997000 changes=4 incidents=2 resolved=2 mttr=1 longest=2"},
		{name: "flapping", changes: "500:0 1100:2f 1200:0f 1400:0 1500:2f 1600:2",
			want: "ok=400 critical=600 flapping=400 ppm=400000 changes=3 incidents=2 open=1 resolved=1 mttr=100 longest=500 episodes=2"},
		{name: "flapping over the begin", changes: "500:0f 1100:0", want: "ok=1000 flapping=100 ppm=1000000"},
		{name: "missing again", changes: "500:0 1100:1m 1200:0 1300:1m", want: "ok=200 missing=800 ppm=200000 changes=3 " +
			"incidents=2 open=1 resolved=1 mttr=100 longest=700"},
		{name: "no data before the first change", changes: "1250:0", want: "ok=750 nodata=250 ppm=1000000"},
		{name: "the first state fails", changes: "1400:2 1500:0",
			want: "ok=500 critical=100 nodata=400 ppm=833333 changes=1 incidents=1 resolved=1 mttr=100 longest=100"},
		{name: "deleted", changes: "500:0 1600:del", want: "ok=600 nodata=400 ppm=1000000"},
		{name: "deleted while it fails", changes: "500:0 1500:2 1600:del",
			want: "ok=500 critical=100 nodata=400 ppm=833333 changes=1 incidents=1 longest=100"},
		{name: "deleted and back", changes: "500:0 1200:del 1700:2 1800:0",
			want: "ok=400 critical=100 nodata=500 ppm=800000 changes=1 incidents=1 resolved=1 mttr=100 longest=100"},
		{name: "deleted before", changes: "500:0 600:del", want: ""},
		{name: "back after a deletion before", changes: "500:0 600:del 1500:0", want: "ok=500 nodata=500 ppm=1000000"},
		{name: "begins after the end", changes: "2000:0 2100:2", want: ""},
		{name: "two changes at once", changes: "500:0 1100:2 1100:0",
			want: "ok=1000 ppm=1000000 changes=2 incidents=1 resolved=1 mttr=0"},
		{name: "the clock goes back", changes: "500:0 1110:2 1105:0 1200:1",
			want: "ok=200 warning=800 ppm=200000 changes=3 incidents=2 open=1 resolved=1 mttr=0 longest=800"},
		{name: "the clock goes back over the begin", changes: "500:0 1001:2 999:0",
			want: "ok=999 nodata=1 ppm=1000000 changes=1 incidents=1 resolved=1 mttr=0"},
	}
	var fixtures []Fixture
	for i, tc := range cases {
		// Some names begin like others.
		entity, check := "web"+strings.Repeat("1", i/3), "disk"+strings.Repeat("2", i%3)
		fixtures = append(fixtures, Fixture{Namespace: "default", Entity: entity, Check: check, Changes: Changes(tc.changes)},
			Fixture{Namespace: "default2", Entity: entity, Check: check, Changes: Changes("900:2")})
	}
	src := newSource(t, fixtures)
	for i, tc := range cases {
		f := fixtures[2*i]
		rep, err := report.Run(t.Context(), src, report.Query{
			Kind: report.Availability, SkipSilenced: tc.skipSilenced, Range: seconds(1000, 2000),
			Keep: func(namespace, entity, check string) bool {
				return namespace == "default" && entity == f.Entity && check == f.Check
			},
		})
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		got := ""
		if len(rep.Rows) == 1 && rep.Rows[0].Entity == f.Entity && rep.Rows[0].Check == f.Check {
			got = figures(&rep.Rows[0])
		} else if len(rep.Rows) > 0 {
			t.Errorf("%s: rows %+v", tc.name, rep.Rows)
		}
		if got != tc.want {
			t.Errorf("%s: %s\n got %s\nwant %s", tc.name, tc.changes, got, tc.want)
		}
	}
}

func seconds(since, until int) report.Range {
	return report.Range{Namespace: "default", Since: Start.Add(time.Duration(since) * time.Second),
		Until: Start.Add(time.Duration(until) * time.Second)}
}

// testMonths reports on months in Berlin: March loses an hour, October has one more.
func testMonths(t *testing.T, newSource newSource) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Time {
		at, err := time.ParseInLocation("2006-01-02 15:04", text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	src := newSource(t, []Fixture{{Namespace: "default", Entity: "web1", Check: "disk", Changes: []report.Change{
		{Time: at("2026-02-01 00:00")},
		{Time: at("2026-03-31 23:00"), Status: 2},
		{Time: at("2026-04-01 02:00")},
		// Two o'clock comes twice in this night: the incident lasts two hours.
		{Time: at("2026-10-25 01:30"), Status: 1},
		{Time: at("2026-10-25 03:30").Add(-time.Hour)},
	}}})
	for _, tc := range []struct{ month, want string }{
		{"2026-02", "ok=2419200 ppm=1000000"},                                                        // 28 days
		{"2026-03", "ok=2671200 critical=3600 ppm=998654 changes=1 incidents=1 open=1 longest=3600"}, // 743 h
		{"2026-04", "ok=2584800 critical=7200 ppm=997222 changes=1 carried=1 longest=7200"},
		{"2026-10", "ok=2674800 warning=7200 ppm=997315 changes=2 incidents=1 resolved=1 mttr=7200 longest=7200"}, // 745 h
	} {
		since, until, err := report.Month(tc.month, berlin, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		rep, err := report.Run(t.Context(), src, report.Query{
			Kind: report.Availability, Range: report.Range{Namespace: "default", Since: since, Until: until},
		})
		if err != nil || len(rep.Rows) != 1 {
			t.Fatalf("%s: %+v, %v", tc.month, rep, err)
		}
		if got := figures(&rep.Rows[0]); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.month, got, tc.want)
		}
	}
}

// testRows tests rows of several checks, their order and their bands.
func testRows(t *testing.T, newSource newSource) {
	src := newSource(t, []Fixture{
		{Namespace: "default", Entity: "web1", Check: "disk", Changes: Changes("900:0 1100:2 1130:0")},
		{Namespace: "default", Entity: "web1", Check: "mem", Changes: Changes("1300:1f 1599:1m")},
		{Namespace: "default", Entity: "db1", Check: "disk", Changes: Changes("900:0 1100:3 1110:0 1115:3 1120:0s")},
		{Namespace: "other", Entity: "db1", Check: "disk", Changes: Changes("900:2")},
	})
	label := func(entity, _ string) string { return strings.TrimSuffix(entity, "1") }
	for _, tc := range []struct {
		kind  report.Kind
		by    string
		limit int
		want  []string
	}{
		{report.Availability, report.ByPair, 0, []string{
			"/web1/mem ------------------------------wwwwwwwwwwwwwwwwwwwwwwwwwwwwwm",
			"/web1/disk ooooooooooccc" + strings.Repeat("o", 47),
			"/db1/disk oooooooooouu" + strings.Repeat("o", 48),
		}},
		{report.Availability, report.ByEntity, 0, []string{
			"/web1/ ooooooooooccc" + strings.Repeat("o", 17) + strings.Repeat("w", 29) + "m",
			"/db1/ oooooooooouu" + strings.Repeat("o", 48),
		}},
		{report.Availability, report.ByEntity, 1, []string{"/web1/ ooooooooooccc" + strings.Repeat("o", 17) + strings.Repeat("w", 29) + "m"}},
		{report.Noisiest, report.ByCheck, 0, []string{
			"//disk ooooooooooccc" + strings.Repeat("o", 47),
			"//mem " + strings.Repeat("-", 30) + strings.Repeat("w", 29) + "m",
		}},
		{report.Response, report.ByLabel + "role", 0, []string{
			"web// ooooooooooccc" + strings.Repeat("o", 17) + strings.Repeat("w", 29) + "m",
			"db// oooooooooouu" + strings.Repeat("o", 48),
		}},
		{report.Flapping, report.ByPair, 0, []string{"/web1/mem " + strings.Repeat("-", 30) + strings.Repeat("w", 29) + "m"}},
	} {
		rep, err := report.Run(t.Context(), src, report.Query{
			Kind: tc.kind, By: tc.by, Range: seconds(1000, 1600), Label: label, Limit: tc.limit,
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rep.Rows {
			got = append(got, r.Label+"/"+r.Entity+"/"+r.Check+" "+r.Band)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s by %s:\n%s\nwant\n%s", tc.kind, tc.by, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
		if got, want := figures(&rep.Total), "ok=1155 warning=299 critical=30 unknown=15 missing=1 nodata=300"; !strings.HasPrefix(got, want) {
			t.Errorf("total %s, want %s", got, want)
		}
		if want := Start.Add(1000 * time.Second); rep.FirstData == nil || !rep.FirstData.Equal(want) || !rep.Begin.Equal(want) {
			t.Errorf("first data %v, begin %v, want both %v", rep.FirstData, rep.Begin, want)
		}
	}
}

// testRandom compares reports on random histories with a naive computation.
func testRandom(t *testing.T, newSource newSource) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	random := rand.New(rand.NewPCG(seed, 0))
	const before, length, after = 200, 601, 100
	var fixtures []Fixture
	for i := range 120 {
		f := Fixture{Namespace: "default", Entity: fmt.Sprint("e", i%7), Check: fmt.Sprint("c", i/7)}
		for at := random.IntN(before + length); at < before+length+after; at += 1 + random.IntN(1+random.IntN(200)) {
			c := report.Change{Time: Start.Add(time.Duration(at-before) * time.Millisecond)}
			if c.Deleted = random.IntN(8) == 0; !c.Deleted {
				c.Status = uint32(random.IntN(6)) * uint32(random.IntN(2))
				c.Flapping, c.Silenced, c.Missing = random.IntN(3) == 0, random.IntN(3) == 0, random.IntN(6) == 0
			}
			f.Changes = append(f.Changes, c)
		}
		fixtures = append(fixtures, f)
	}
	stored := slices.Clone(fixtures)
	random.Shuffle(len(stored), func(i, j int) { stored[i], stored[j] = stored[j], stored[i] })
	src := newSource(t, stored)
	for i := range 8 {
		q := report.Query{
			Kind: report.Availability, By: []string{report.ByPair, report.ByEntity, report.ByCheck, report.ByLabel + "x"}[i%4],
			Range: report.Range{Namespace: "default", Since: Start, Until: Start.Add(length * time.Millisecond)},
			Label: func(entity, check string) string { return check[len(check)-1:] }, SkipSilenced: i >= 4,
		}
		rep, err := report.Run(t.Context(), src, q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Limit = 3; i%4 == 0 {
			some, err := report.Run(t.Context(), src, q)
			if err != nil || some.More != len(rep.Rows)-3 || !reflect.DeepEqual(some.Rows, rep.Rows[:3]) {
				t.Fatalf("with a limit: %+v, %v", some, err)
			}
		}
		want, got := naive(fixtures, &q, length), map[string]string{}
		for j := range rep.Rows {
			r := &rep.Rows[j]
			got[cmp.Or(r.Label, r.Entity+"/"+r.Check)] = public(r)
		}
		if !maps.Equal(got, want) {
			for _, k := range slices.Sorted(maps.Keys(want)) {
				if got[k] != want[k] {
					t.Errorf("by %s, %s:\n got %s\nwant %s", q.By, k, got[k], want[k])
				}
			}
			t.Fatalf("by %s: %d rows, want %d", q.By, len(got), len(want))
		}
	}
}

// public returns the figures of a row, without its names.
func public(r *report.Row) string {
	c := *r
	c.Entity, c.Check, c.Label = "", "", ""
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// naive computes rows of length milliseconds from Start on. It looks at each millisecond; a fixture's changes must have
// different times in ascending order.
func naive(fixtures []Fixture, q *report.Query, length int) map[string]string {
	type sums struct {
		report.Row
		acknowledging, resolving int64
	}
	rows := map[string]*sums{}
	for _, f := range fixtures {
		at := func(ms int) *report.Change { // the state in force
			var found *report.Change
			for i := range f.Changes {
				if f.Changes[i].Time.After(Start.Add(time.Duration(ms) * time.Millisecond)) {
					break
				}
				found = &f.Changes[i]
			}
			if found != nil && found.Deleted {
				return nil
			}
			return found
		}
		failing := func(c *report.Change) bool { return c != nil && (c.Status > 0 || c.Missing) }
		exists := false
		for ms := range length {
			exists = exists || at(ms) != nil
		}
		if !exists {
			continue
		}
		key := map[string]string{report.ByPair: f.Entity + "/" + f.Check, report.ByEntity: f.Entity + "/", report.ByCheck: "/" + f.Check}[q.By]
		if key == "" {
			key = q.Label(f.Entity, f.Check)
		}
		r := rows[key]
		if r == nil {
			r = &sums{Row: report.Row{Band: strings.Repeat("-", report.BandLength)}}
			rows[key] = r
		}
		r.Pairs++
		began, acked := -1, false // of the present incident; -1 for before the time
		for ms := range length {
			c, last := at(ms), at(ms-1)
			letter := "-"
			switch {
			case c == nil:
				r.NoData++
			case c.Missing:
				letter = "m"
				r.Missing++
			case c.Status == 0:
				letter = "o"
				r.OK++
				if c.Silenced {
					r.SilencedOK++
				}
			case c.Status == 1:
				letter = "w"
				r.Warning++
			case c.Status == 2:
				letter = "c"
				r.Critical++
			default:
				letter = "u"
				r.Unknown++
			}
			if part := ms * report.BandLength / length; strings.Index("-owumc", letter) > strings.IndexByte("-owumc", r.Band[part]) {
				r.Band = r.Band[:part] + letter + r.Band[part+1:]
			}
			if c != nil && c.Silenced {
				r.Silenced++
			}
			if c != nil && c.Flapping {
				r.Flapping++
				if last == nil || !last.Flapping {
					r.Episodes++
				}
			}
			if ms == 0 && failing(last) {
				r.Carried++
			}
			if c != nil && last != nil && (c.Status != last.Status || c.Missing != last.Missing) {
				r.Changes++
			}
			if failing(c) && !failing(last) {
				r.Incidents++
				began, acked = ms, false
			} else if failing(c) && c.Silenced && !last.Silenced && !acked && began >= 0 {
				r.Acknowledged++
				r.acknowledging += int64(ms - began)
				acked = true
			}
			if !failing(c) && failing(last) {
				r.Longest = max(r.Longest, int64(ms-max(began, 0)))
				if c != nil && began >= 0 {
					r.Resolved++
					r.resolving += int64(ms - began)
				}
				began = -1
			}
			if ms == length-1 && failing(c) {
				r.Open++
				r.Longest = max(r.Longest, int64(length-max(began, 0)))
			}
		}
	}
	out := map[string]string{}
	for key, r := range rows {
		up, known := r.OK, r.OK+r.Warning+r.Critical+r.Unknown+r.Missing
		if q.SkipSilenced {
			up, known = up-r.SilencedOK, known-r.Silenced
		}
		if known > 0 {
			ppm := up * 1_000_000 / known
			r.UptimePPM = &ppm
		}
		if r.Acknowledged > 0 {
			n := r.acknowledging / r.Acknowledged
			r.MTTA = &n
		}
		if r.Resolved > 0 {
			n := r.resolving / r.Resolved
			r.MTTR = &n
		}
		out[key] = public(&r.Row)
	}
	return out
}
