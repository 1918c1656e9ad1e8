package alert

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// seriesOf reads a series of values a minute apart from minute 1 on: a number, or _ for none.
func seriesOf(name, values string) Series {
	s := Series{Name: name, Start: 60, Step: 60}
	for _, word := range strings.Fields(values) {
		v := math.NaN()
		if word != "_" {
			if _, err := fmt.Sscan(word, &v); err != nil {
				panic(err)
			}
		}
		s.Values = append(s.Values, v)
	}
	return s
}

func above(v float64) *resource.MetricCheckThreshold {
	return &resource.MetricCheckThreshold{Above: &v}
}

// TestTimeline plays values a minute apart, and compares the levels at each minute: . fine, w warning, c critical, ?
// unknown.
func TestTimeline(t *testing.T) {
	for _, tc := range []struct {
		story        string
		hold, keep   uint32
		window       uint32
		reduce       string
		values, want string
	}{
		{"a value beyond a threshold counts at once", 0, 0, 60, "", "1 6 11 6 1", ".wcw."},
		{"for: it must be so for two minutes", 120, 0, 60, "", "1 6 6 6 6 1", "...ww."},
		{"for: a dip begins anew", 120, 0, 60, "", "1 6 6 1 6 6 6 6", "......ww"},
		{"for: the lower level of the time counts", 120, 0, 60, "", "1 6 6 6 11 11 11", "...wwwc"},
		{"for: values before the first are not beyond it", 120, 0, 60, "", "6 6 6", "..w"},
		{"keep firing: it is held for two minutes", 0, 120, 60, "", "6 1 1 1 1", "www.."},
		{"keep firing: flapping is one incident", 0, 120, 60, "", "6 1 6 1 6 1 1 1", "wwwwwww."},
		{"both", 60, 60, 60, "", "6 6 1 1 6 6 1 1", ".ww..ww."},
		{"no value is unknown at once, and for begins anew", 60, 0, 60, "", "6 6 _ 6 6", ".w?.w"},
		{"a value counts for the window", 0, 0, 180, "", "6 _ _ _ 1", "www?."},
		{"mean", 0, 0, 120, "average", "1 6 6 20 1", "..wcc"},
		{"largest", 0, 0, 120, "max", "1 6 1 1", ".ww."},
		{"sum", 0, 0, 120, "sum", "1 4 2 1", "..w."},
		{"smallest", 0, 0, 120, "min", "6 6 1 6 6", "ww..w"},
	} {
		def := &resource.MetricCheck{
			Interval: 60, Window: tc.window, For: tc.hold, KeepFiringFor: tc.keep, Reduce: tc.reduce, Warning: above(5),
			Critical: above(10),
		}
		s := seriesOf("a", tc.values)
		var moments []int64
		for i := range s.Values {
			moments = append(moments, 60*int64(i+1))
		}
		got := ""
		for _, l := range timeline(def, &s, moments).levels {
			got += string(".?wc"[l])
		}
		if got != tc.want {
			t.Errorf("%s: %s\n got %s\nwant %s", tc.story, tc.values, got, tc.want)
		}
	}
}

// TestTimelineDependsOnLookbackOnly: what a moment's level is does not depend on values before its lookback, so a
// restart or another member computes the same.
func TestTimelineDependsOnLookbackOnly(t *testing.T) {
	def := &resource.MetricCheck{Interval: 60, Window: 120, For: 180, KeepFiringFor: 120, Warning: above(5),
		Critical: above(10)}
	s := Series{Name: "a", Start: 0, Step: 60}
	for i := range 500 {
		v := float64((i*7919 + i*i*31) % 14)
		if i%23 == 0 {
			v = math.NaN()
		}
		s.Values = append(s.Values, v)
	}
	whole := momentsOf(def, 0, 499*60)
	long := timeline(def, &s, whole).levels
	for i, at := range whole {
		if at < 3600 {
			continue
		}
		short := momentsOf(def, at, at)
		line := timeline(def, &s, short).levels
		if got := line[len(line)-1]; got != long[i] {
			t.Fatalf("at %d: level %d from its lookback, %d from all values", at, got, long[i])
		}
	}
}

func TestEvaluateByEntity(t *testing.T) {
	node := 1
	def := &resource.MetricCheck{
		Metadata: resource.ObjectMeta{Name: "load", Namespace: "default"}, Expr: "servers.*.load", Interval: 60, Window: 60,
		Warning: above(5), Critical: above(10), EntityNode: &node,
	}
	got, err := evaluate(t.Context(), def, []Series{
		seriesOf("servers.web1.load", "1 1 6"), seriesOf("servers.db 1.load", "1 12 12"),
		seriesOf("servers.web2.load", "1 1 _"),
		seriesOf("servers.web1.load.peak", "1 1 7"), seriesOf("short", "1 1 1"),
	}, 120, 180)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range got {
		lines = append(lines, fmt.Sprintf("%s/%s %d %s %v", f.Entity, f.Check, f.Status, f.Output, f.Changes))
	}
	want := `db_1/load 2 servers.db 1.load is 12, critical above 10 [{120 2}]
load/load 0 short is 1 []
web1/load 1 servers.web1.load is 6, warning above 5 (2 of 2 series) [{180 1}]
web2/load 3 servers.web2.load has no value for 1m0s [{180 3}]`
	if s := strings.Join(lines, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
}

// TestPendingAndKept looks at series that wait for a higher level, or whose level is only kept. Minute n is at 00:0n.
func TestPendingAndKept(t *testing.T) {
	for _, tc := range []struct {
		values []string // of a, b, c
		want   string
	}{
		{[]string{"1 1 6 6"}, "0 a is 6, warning above 5 pending since 00:03 [a pending 00:03]"},
		{[]string{"6 6 6 12"}, "1 a is 12, warning above 5, critical above 10 pending since 00:04 [a pending 00:04]"},
		{[]string{"1 6 12 12"}, "1 a is 12, warning above 5, critical above 10 pending since 00:03 [a pending 00:03]"},
		{[]string{"6 6 6 1"}, "1 a is 1, warning above 5, kept until 00:06 [a kept 00:06]"},
		{[]string{"12 12 12 6"}, "2 a is 6, critical above 10, kept until 00:06 [a kept 00:06]"},
		{[]string{"6 6 6 1 12"}, "1 a is 12, warning above 5, kept until 00:06, critical above 10 pending since 00:05 [a pending 00:05 kept 00:06]"},
		{[]string{"1 1 1 1", "1 1 6 6", "1 1 1 12"}, "0 c is 12 (3 of 3 series), critical above 10 pending since 00:04 (2 series are pending) " +
			"[c pending 00:04, b pending 00:03, a]"},
		{[]string{"6 6 6 1", "6 6 6 6", "1 1 1 6"}, "1 b is 6, warning above 5 (2 of 3 series); c is 6, warning above 5 pending since 00:04 " +
			"[b, a kept 00:06]"},
		{[]string{"6 6 6 6 6"}, "1 a is 6, warning above 5 [a]"},
		{[]string{"1 1 6 _"}, "3 a has no value for 1m0s [a]"},
	} {
		def := &resource.MetricCheck{
			Metadata: resource.ObjectMeta{Name: "x", Namespace: "default"}, Interval: 60, Window: 60, For: 120, KeepFiringFor: 180,
			Warning: above(5), Critical: above(10),
		}
		var all []Series
		for i, values := range tc.values {
			all = append(all, seriesOf(string(rune('a'+i)), values))
		}
		until := 60 * int64(len(all[0].Values))
		findings, err := evaluate(t.Context(), def, all, until, until)
		if err != nil || len(findings) != 1 {
			t.Fatalf("%v: %+v, %v", tc.values, findings, err)
		}
		f := findings[0]
		var series []string
		for _, s := range f.Series {
			text := s.Name
			if s.PendingSince > 0 {
				text += " pending " + clock(s.PendingSince)
			}
			if s.KeptUntil > 0 {
				text += " kept " + clock(s.KeptUntil)
			}
			series = append(series, text)
		}
		got := fmt.Sprintf("%d %s [%s]", f.Status, f.Output, strings.Join(series, ", "))
		got = strings.NewReplacer("1970-01-01T", "", ":00Z", "").Replace(got)
		if got != tc.want {
			t.Errorf("%v\n got %s\nwant %s", tc.values, got, tc.want)
		}
	}
}
