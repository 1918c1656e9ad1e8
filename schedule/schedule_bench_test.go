package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// BenchmarkSecond measures one second of 1,000 checks with an interval of 1 s, without any agents.
func BenchmarkSecond(b *testing.B) {
	now := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	defs := &memory{defs: map[resource.Name]*resource.CheckConfig{}}
	for n := range 1000 {
		c := newCheck(fmt.Sprintf("check-%d", n), 1)
		defs.defs[resource.Name{Namespace: "default", Name: c.Metadata.Name}] = c
	}
	requests := 0
	s, err := newScheduler(Options{Publish: func(Request) { requests++ }, Now: func() time.Time { return now }}, defs)
	if err != nil {
		b.Fatal(err)
	}
	s.last = now.UnixNano()
	for k := range defs.defs {
		s.mark(k)
	}
	s.applyChanges()
	b.ReportAllocs()
	for b.Loop() {
		for end := now.Add(time.Second).UnixNano(); s.queue[0].due <= end; {
			now = time.Unix(0, s.queue[0].due)
			s.handle()
		}
	}
	if requests != 1000*b.N {
		b.Errorf("%d requests in %d seconds", requests, b.N)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(requests), "ns/request")
}
