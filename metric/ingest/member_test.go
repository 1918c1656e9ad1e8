package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/aggregator"
	"github.com/lapwing-monitoring/lapwing/metric/member"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// other is another member, which notes what it gets.
type other struct{ got []string }

func (o *other) Add(name string, use member.Use, unixMilli int64, value float64) {
	o.got = append(o.got, fmt.Sprint(name, " ", use, " ", value))
}

// TestMembers: points go to the members that own the series, and inputs of aggregates to the member that computes them.
func TestMembers(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.conf")
	if err := os.WriteFile(rules, []byte("sum.here.<m> (60) = sum *.<<m>>\nsum.there.<m> (60) = sum *.<<m>>\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	sums := map[string]float64{}
	agg, err := aggregator.New(aggregator.Options{RulesFile: rules, Logger: slog.New(slog.DiscardHandler), Emit: func(name string, _ int64, v float64) {
		mu.Lock()
		defer mu.Unlock()
		sums[name] = v
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, store.Options{})
	var b, c other
	settled := 0
	table, err := New(Options{
		Store: s, Aggregator: agg, Post: func(name string) string { return name + ".x" },
		Place: func(name string) (bool, []Member) {
			switch {
			case strings.HasPrefix(name, "b."):
				return false, []Member{&b, &c}
			case strings.HasPrefix(name, "both."):
				return true, []Member{&c}
			}
			return true, nil
		},
		Computes: func(output string) Member {
			if strings.HasPrefix(output, "sum.there") {
				return &b
			}
			return nil
		},
		Settle: func(context.Context) error { settled++; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	begin := (time.Now().Unix()/60 - 1) * 60
	w := table.Writer(t.Context())
	defer w.Close()
	for i, name := range []string{"a.cpu", "b.cpu", "both.cpu", "a.cpu"} {
		if err := w.Add([]byte(name), begin*1000, float64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	in := table.Received(t.Context())
	for i, use := range []member.Use{member.Store, member.Aggregate, member.Store | member.Aggregate} {
		if err := in.Add([]byte("r.cpu"), use, (begin+int64(i))*1000, 10); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []func() error{w.Flush, w.Finish, w.Finish, in.Flush, in.Close} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(b.got, ", "), "a.cpu 2 1, b.cpu 2 2, b.cpu.x 1 2, both.cpu 2 3, a.cpu 2 4"; got != want {
		t.Errorf("b got %s, want %s", got, want)
	}
	if got, want := strings.Join(c.got, ", "), "b.cpu.x 1 2, both.cpu.x 1 3"; got != want {
		t.Errorf("c got %s, want %s", got, want)
	}
	for name, want := range map[string]string{"a.cpu.x": "4 ", "both.cpu.x": "3 ", "b.cpu.x": "none",
		"r.cpu": "10 _ 10 "} {
		if got := values(t, s, name, begin, max(1, strings.Count(want, " "))); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if settled != 1 {
		t.Errorf("settled %d times", settled)
	}
	agg.Start()
	if err := agg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(sums) != "map[sum.here.cpu:19]" { // 2 + 3 + 4 + 10
		t.Errorf("sums: %v", sums)
	}
	for range 3 {
		table.Sweep(time.Hour)
	}
	if table.Len() != 0 {
		t.Errorf("%d names are left", table.Len())
	}
}
