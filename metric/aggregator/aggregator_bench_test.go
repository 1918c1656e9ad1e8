package aggregator

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Run them with: go test -run xxx -bench . -benchmem ./metric/aggregator

func benchmarked(b *testing.B, rules string) *Aggregator {
	b.Helper()
	a, err := New(Options{Emit: func(string, int64, float64) {}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	parsed, _, err := Parse("rules", strings.NewReader(rules))
	if err != nil {
		b.Fatal(err)
	}
	a.SetRules(parsed)
	return a
}

// BenchmarkMatch answers what 100 rules cost for a new series that none of them matches, by the shape of their inputs.
func BenchmarkMatch(b *testing.B) {
	for _, shape := range []struct{ name, rule string }{
		{"prefix", "all.%d.<m> (60) = sum prod.app%[1]d.*.<<m>>"},
		{"inner", "<env>.app%d.<m> (60) = sum <env>.app%[1]d.*.<<m>>"},
		{"suffix", "<env>.%d (60) = sum <env>.<<x>>.requests%[1]d"},
		{"nodes", "<env>.%d (60) = sum <env>.*.<m>"},
		{"regex", "<env>.%d (60) = sum <env>.<<x>>.[a-c]*"},
	} {
		b.Run(shape.name, func(b *testing.B) {
			var rules strings.Builder
			for i := range 100 {
				fmt.Fprintf(&rules, shape.rule+"\n", i)
			}
			a := benchmarked(b, rules.String())
			b.ReportAllocs()
			for b.Loop() {
				if a.Match("servers.web0123.cpu.total.idle") != nil {
					b.Fatal("it matches")
				}
			}
		})
	}
}

// BenchmarkAdd answers what a point costs for each output that it belongs to: alone, and while all processors add to
// the same output.
func BenchmarkAdd(b *testing.B) {
	setup := func(b *testing.B) []*Input {
		a := benchmarked(b, "all (5) = sum servers.*.cpu")
		inputs := make([]*Input, 1000)
		now := time.Now().Unix()
		for i := range inputs {
			inputs[i] = a.Match(fmt.Sprintf("servers.%d.cpu", i))[0]
			inputs[i].Add(now, 1)
		}
		b.ReportAllocs()
		return inputs
	}
	b.Run("alone", func(b *testing.B) {
		inputs := setup(b)
		now := time.Now().Unix()
		i := 0
		for b.Loop() {
			inputs[i%1000].Add(now, float64(i))
			i++
		}
	})
	b.Run("parallel", func(b *testing.B) {
		inputs := setup(b)
		now := time.Now().Unix()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				inputs[i%1000].Add(now, float64(i))
			}
		})
	})
}

// BenchmarkCompute answers what the results of 5 outputs of 1,000 inputs each cost.
func BenchmarkCompute(b *testing.B) {
	var rules strings.Builder
	for _, m := range []string{"sum", "avg", "max", "p95", "count"} {
		fmt.Fprintf(&rules, "o.%s (5) = %s s.*\n", m, m)
	}
	a := benchmarked(b, rules.String())
	var inputs []*Input
	for i := range 1000 {
		inputs = append(inputs, a.Match(fmt.Sprintf("s.%d", i))...)
	}
	now := time.Now()
	var c computation
	round := 0.0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		round++
		for i, in := range inputs {
			in.Add(now.Unix(), round+float64(i*7919%1000))
		}
		b.StartTimer()
		for _, o := range a.outputs {
			a.compute(o, now.Add(10*time.Second), false, &c)
		}
	}
}
