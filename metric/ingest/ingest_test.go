package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/metric/aggregator"
	"github.com/lapwing-monitoring/lapwing/metric/allow"
	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/store"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newStore starts a store in a directory of the test.
func newStore(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	o.Dir = t.TempDir()
	o.Policy = func(string) store.Policy {
		return store.Policy{Archives: []series.Archive{{Step: 1, Points: 7200}}, Method: series.Average, XFilesFactor: 0.5}
	}
	s, err := store.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// values returns what the store has of a series from a time on, second by second, as text.
func values(t *testing.T, s *store.Store, name string, from int64, n int) string {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, ok, err := s.Fetch(t.Context(), name, from-1, from+int64(n)-1, from+int64(n)+10)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return "none"
	}
	text := ""
	for _, v := range r.Values {
		if math.IsNaN(v) {
			text += "_ "
		} else {
			text += fmt.Sprintf("%g ", v)
		}
	}
	return text
}

// TestRulesApplyInOrder: a name is first looked up in the lists, then rewritten, then aggregated, then rewritten again.
func TestRulesApplyInOrder(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "aggregation-rules.conf")
	if err := os.WriteFile(rules, []byte("all.<m> (60) = sum one.*.<<m>>\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	sums := map[string]float64{}
	agg, err := aggregator.New(aggregator.Options{RulesFile: rules, Logger: slog.New(slog.DiscardHandler), Emit: func(name string, at int64, v float64) {
		mu.Lock()
		defer mu.Unlock()
		sums[fmt.Sprint(name, "@", at)] = v
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, store.Options{})
	table, err := New(Options{
		Store: s, Aggregator: agg,
		Allow: func(name string) allow.Verdict {
			if name == "bad" {
				return allow.Blacklisted
			}
			return allow.Allowed
		},
		Pre:  func(name string) string { return "one." + name },
		Post: func(name string) string { return name + ".end" },
	})
	if err != nil {
		t.Fatal(err)
	}
	begin := (time.Now().Unix()/60 - 1) * 60 // a minute that has ended
	w := table.Writer(t.Context())
	defer w.Close()
	for i, name := range []string{"h1.cpu", "h2.cpu", "bad", "..", "h1.cpu"} {
		if err := w.Add([]byte(name), (begin+int64(i/4))*1000, float64(i+1)); err != nil && !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := values(t, s, "one.h1.cpu.end", begin, 2); got != "1 5 " {
		t.Errorf("h1: %s", got)
	}
	if got := values(t, s, "one.h2.cpu.end", begin, 2); got != "2 _ " {
		t.Errorf("h2: %s", got)
	}
	agg.Start()
	if err := agg.Stop(t.Context()); err != nil { // it emits the intervals that have ended
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := sums[fmt.Sprint("all.cpu@", begin)]; got != 5+2 { // the last value of each source
		t.Errorf("sums: %v", sums)
	}
	if n := table.Len(); n != 4 {
		t.Errorf("the table has %d names, want 4", n)
	}
}

// TestAnotherOrderOfNames: a route that came after another one may come at any place the next time.
func TestAnotherOrderOfNames(t *testing.T) {
	s := newStore(t, store.Options{})
	table, err := New(Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	w := table.Writer(t.Context())
	defer w.Close()
	orders := [][]string{{"a", "b", "c"}, {"a", "b", "c"}, {"c", "b", "a"}, {"b", "b", "a"}, {"a", "c", "b"}}
	last := map[string]string{}
	for i, order := range orders {
		for k, name := range order {
			v := float64(10*i + k)
			if err := w.Add([]byte(name), (now-10+int64(i))*1000, v); err != nil {
				t.Fatal(err)
			}
			last[fmt.Sprint(name, i)] = fmt.Sprintf("%g ", v)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		want := ""
		for i := range orders {
			if v, ok := last[fmt.Sprint(name, i)]; ok {
				want += v
			} else {
				want += "_ "
			}
		}
		if got := values(t, s, name, now-10, len(orders)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestForgottenSeriesComeBack: a name that the table has forgotten is found again, also through the route before it.
func TestForgottenSeriesComeBack(t *testing.T) {
	now := time.Now()
	s := newStore(t, store.Options{Now: func() time.Time { return now }})
	table, err := New(Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	w := table.Writer(t.Context())
	defer w.Close()
	add := func(at int64, v float64) {
		t.Helper()
		for _, name := range []string{"a", "b", "c"} {
			if err := w.Add([]byte(name), at*1000, v); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	begin := now.Unix()
	add(begin, 1)
	now = now.Add(2 * time.Hour / 2)
	n := 0
	for range 3 {
		n += table.Sweep(30 * time.Minute)
	}
	if n != 3 {
		t.Errorf("%d names were forgotten, want 3", n)
	}
	if n := table.Len(); n != 0 {
		t.Errorf("%d names are left", n)
	}
	add(begin+3600, 2)
	for _, name := range []string{"a", "b", "c"} {
		if got := values(t, s, name, begin+3600, 1); got != "2 " {
			t.Errorf("%s: %s, want 2", name, got)
		}
	}
}

// TestFloodOfNames: names beyond the bound cost no place in the table, and are counted.
func TestFloodOfNames(t *testing.T) {
	s := newStore(t, store.Options{MaxSeries: 10})
	table, err := New(Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	w := table.Writer(t.Context())
	defer w.Close()
	for i := range 1000 {
		if err := w.Add(fmt.Appendf(nil, "flood.n%d", i), time.Now().UnixMilli(), 1); err != nil &&
			!errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	}
	if table.Len() != 10 {
		t.Errorf("the table has %d names, want 10", table.Len())
	}
	if w.refused[tooMany] != 990 {
		t.Errorf("%d points refused, want 990", w.refused[tooMany])
	}
}

// TestEventNames: the series of an event's points have its namespace, entity and check, whatever tags the point has.
func TestEventNames(t *testing.T) {
	s := newStore(t, store.Options{})
	var known []string
	table, err := New(Options{Store: s, Known: func(name string) { known = append(known, name) }})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	e := NewEvents(table, func() time.Time { return now })
	e.Put("default", "web1", "disk", []resource.MetricPoint{
		{Name: "used", Value: 1.5, Timestamp: now.Unix(), Tags: []resource.MetricTag{{Name: "mount", Value: "/"}, {Name: "namespace", Value: "secret"}}},
		{Name: "a b;c=d", Value: 2, Timestamp: now.UnixMilli()},
		{Name: "~x", Value: 3, Tags: []resource.MetricTag{{Name: "a;namespace", Value: "~y;namespace=secret"}}},
		{Name: "nan", Value: math.NaN()},
	})
	e.flush()
	want := []string{
		"used;check=disk;entity=web1;mount=/;namespace=default",
		"a_b_c=d;check=disk;entity=web1;namespace=default",
		"x;a_namespace=_y_namespace=secret;check=disk;entity=web1;namespace=default",
	}
	if fmt.Sprint(known) != fmt.Sprint(want) {
		t.Errorf("series\n%q, want\n%q", known, want)
	}
	if got := values(t, s, want[0], now.Unix(), 1); got != "1.5 " {
		t.Errorf("value %s", got)
	}
}

// BenchmarkAdd measures a point of a sender that sends the same 250 names again and again, with 1,000 senders.
func BenchmarkAdd(b *testing.B) {
	s := newStore(b, store.Options{})
	table, err := New(Options{Store: s})
	if err != nil {
		b.Fatal(err)
	}
	const hosts, metrics = 1000, 250
	names := make([][]byte, 0, hosts*metrics)
	for h := range hosts {
		for m := range metrics {
			names = append(names, fmt.Appendf(nil, "load.host%04d.g%02d.m%03d", h, m/10, m))
		}
	}
	w := table.Writer(b.Context())
	begin := time.Now().Unix() - 3600
	at := int64(0)
	round := func() {
		for h := range hosts {
			for m := range metrics {
				if err := w.Add(names[h*metrics+m], (begin+at)*1000, float64((h+m)%100)); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		at++
	}
	round()
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += hosts * metrics {
		round()
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}
