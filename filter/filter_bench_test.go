//go:build unix

package filter_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
)

// processor reports the CPU time per operation, in this process and in the workers. Other programs on the machine do
// not affect it.
func processor(b *testing.B) func() {
	used := func() (here, workers time.Duration) {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), pool().WorkerTime()
	}
	here, workers := used()
	return func() {
		hereNow, workersNow := used()
		b.ReportMetric(float64(hereNow-here)/float64(b.N), "cpu-ns/op")
		if workersNow > workers {
			b.ReportMetric(float64(workersNow-workers)/float64(b.N), "worker-cpu-ns/op")
		}
	}
}

// BenchmarkBuiltinPath measures all built-in filters for one event.
func BenchmarkBuiltinPath(b *testing.B) {
	ev := incident()
	ev.Check.Metadata.Annotations = map[string]string{"fatigue_check/occurrences": "3", "fatigue_check/interval": "900", "allow_list/handlers": "mail,slack"}
	facts := filter.Facts{Incident: true}
	b.ReportAllocs()
	defer processor(b)()
	for b.Loop() {
		for _, name := range [...]string{"is_incident", "not_silenced", "fatigue_check", "allow_list"} {
			if pass, ok := filter.Builtin(name); ok {
				if !pass(facts) {
					b.Fatal(name)
				}
			} else if native, ok := filter.NativeFilter(name); !ok || !native.Passes(ev, "slack") {
				b.Fatal(name)
			}
		}
	}
}

// BenchmarkAsk measures a user's filter with the values for the trace, asked by one goroutine and by many at once,
// whose questions are sent in batches.
//
//	go test ./filter -run '^$' -bench Ask -benchtime 50000x
func BenchmarkAsk(b *testing.B) {
	e := filter.New(filter.Options{Pool: pool()})
	ev := incident()
	for i := range 20 {
		ev.Entity.Metadata.Labels[fmt.Sprint("label", i)] = "value"
	}
	for _, expression := range []string{
		`event.check.occurrences == 3`,
		`event.check.occurrences == 1 || event.check.occurrences % (3600 / event.check.interval) == 3`,
		`event.entity.labels.region == "eu" && hour(event.timestamp) >= 9 && hour(event.timestamp) < 17`,
	} {
		def := definition("allow", expression)
		e.Ask(b.Context(), def, ev) // the first is asked alone
		b.Run(expression, func(b *testing.B) {
			b.ReportAllocs()
			defer processor(b)()
			for b.Loop() {
				if a := e.Ask(b.Context(), def, ev); !a.Passes {
					b.Fatal(a)
				}
			}
		})
		b.Run("32 at once "+expression, func(b *testing.B) {
			b.ReportAllocs()
			defer processor(b)()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a := e.Ask(b.Context(), def, ev); !a.Passes {
						b.Error(a)
					}
				}
			})
		})
	}
}

// BenchmarkNewRuntime measures a filter that changes its runtime, so that each question needs a new one.
func BenchmarkNewRuntime(b *testing.B) {
	e := filter.New(filter.Options{Pool: pool()})
	ev, def := incident(), definition("allow", `Math.x = event.check.status; Math.x == 2`)
	e.Ask(b.Context(), def, ev) // the first is asked alone
	b.ReportAllocs()
	defer processor(b)()
	for b.Loop() {
		if a := e.Ask(b.Context(), def, ev); !a.Passes {
			b.Fatal(a)
		}
	}
}
