package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// go test ./metric/index -run '^$' -bench . -benchmem

func BenchmarkAdd(b *testing.B) {
	for _, kind := range []struct {
		name  string
		names func(n int) []string
	}{{"hosts", hostNames}, {"containers", func(n int) []string { return containerNames(n, 9) }}, {"tags", taggedNames}} {
		b.Run(kind.name, func(b *testing.B) {
			x := newIndex(b)
			if kind.name != "tags" {
				x.AddMany(hostNames(250_000))
			}
			names := kind.names(b.N + 250_000)[250_000:]
			b.ReportAllocs()
			b.ResetTimer()
			for _, n := range names {
				x.Add(n)
			}
		})
	}
}

func BenchmarkAddMany(b *testing.B) {
	names := hostNames(1_000_000)
	b.Run("1,000,000 sorted by host", func(b *testing.B) {
		for range b.N {
			newIndex(b, names...)
		}
	})
	containers := containerNames(1_000_000, 1)
	b.Run("1,000,000 of containers", func(b *testing.B) {
		for range b.N {
			newIndex(b, containers...)
		}
	})
	tags := taggedNames(250_000)
	b.Run("250,000 with tags", func(b *testing.B) {
		for range b.N {
			newIndex(b, tags...)
		}
	})
}

func BenchmarkRemoveAdd(b *testing.B) {
	names := hostNames(250_000)
	x := newIndex(b, names...)
	for i := range b.N {
		n := names[i*7919%len(names)]
		x.Remove(n)
		x.Add(n)
	}
}

func BenchmarkFind(b *testing.B) {
	x := newIndex(b, hostNames(250_000)...)
	for _, p := range []struct {
		pattern string
		want    int
	}{
		{"servers.host0500.cpu.total.idle", 1},
		{"servers.host0500.*", 12},
		{"servers.*.cpu.total.idle", 1000},
		{"servers.host05*.cpu.total.idle", 100},
		{"servers.host{0001,0500,0999}.cpu.total.idle", 3},
		{"servers.*.cpu.cpu[0-3].{user,system}", 8000},
		{"servers.*", 1000},
		{"servers.*0.**.idle", 2500},
		{"servers.*[05].*.*.idle", 3400},
	} {
		b.Run(p.pattern, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				nodes, err := x.Find(b.Context(), p.pattern, Budget{})
				if err != nil {
					b.Fatal(err)
				}
				if p.want > 0 && len(nodes) != p.want {
					b.Fatalf("%d nodes, want %d", len(nodes), p.want)
				}
			}
		})
	}
}

// BenchmarkStopped times a query that a budget stops.
func BenchmarkStopped(b *testing.B) {
	x := newIndex(b, containerNames(1_000_000, 1)...)
	for _, budget := range []Budget{{Results: 1_000}, {Results: 10_000}, {Nodes: 10_000}, {}} {
		b.Run(fmt.Sprintf("%+v", budget), func(b *testing.B) {
			for range b.N {
				_, err := x.Find(b.Context(), "*.*.*.*", budget)
				if _, ok := errors.AsType[*BudgetError](err); !ok {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFindTagged(b *testing.B) {
	x := newIndex(b, taggedNames(250_000)...)
	for _, exprs := range [][]string{
		{"namespace=team01"},
		{"node=node0001", "name=container_cpu_user"},
		{"name=container_cpu_user", "namespace=team01"},
		{"namespace=~team0[12]", "name=~container_cpu"},
		{"pod=~web-00"},
	} {
		b.Run(fmt.Sprint(exprs), func(b *testing.B) {
			n := 0
			for range b.N {
				names, err := x.FindTagged(b.Context(), exprs, Budget{})
				if err != nil {
					b.Fatal(err)
				}
				n = len(names)
			}
			b.ReportMetric(float64(n), "series")
		})
	}
	b.Run("values of namespace", func(b *testing.B) {
		for range b.N {
			if _, err := x.TagValues(b.Context(), "namespace", "", 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAddWhileFinding times Add while two queries walk over a million names all the time.
func BenchmarkAddWhileFinding(b *testing.B) {
	x := newIndex(b, containerNames(1_000_000, 1)...)
	names := containerNames(b.N, 2)
	ctx, cancel := context.WithCancel(b.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_, _ = x.Find(ctx, "*.*.*.*", Budget{}) // a budget stops it, and so does the end
			}
		})
	}
	took := make([]time.Duration, len(names))
	b.ResetTimer()
	for i, n := range names {
		began := time.Now()
		x.Add(n)
		took[i] = time.Since(began)
	}
	b.StopTimer()
	cancel()
	readers.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
}
