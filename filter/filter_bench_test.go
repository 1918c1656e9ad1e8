//go:build unix

package filter_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
)

// processor adds the CPU time of one operation, which does not grow when other programs share the machine.
func processor(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkBuiltinPath is all that the filters of ours cost an event that goes through each of them.
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

// BenchmarkAsk is a filter of a user's with all that the trace wants to know of it.
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
		b.Run(expression, func(b *testing.B) {
			def := definition("allow", expression)
			b.ReportAllocs()
			defer processor(b)()
			for b.Loop() {
				if a := e.Ask(b.Context(), def, ev); !a.Passes {
					b.Fatal(a)
				}
			}
		})
	}
}
