package render

import (
	"context"
	"testing"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// cached answers from memory, so that the store's time is not measured.
type cached struct {
	flatSource
	ranges map[int64][]series.Range
}

func (c *cached) Fetch(ctx context.Context, names []string, from, until, now int64) ([]series.Range, error) {
	if c.ranges == nil {
		c.ranges = map[int64][]series.Range{}
	}
	key := from + int64(len(names))<<40
	if c.ranges[key] == nil {
		r, err := c.flatSource.Fetch(ctx, names, from, until, now)
		if err != nil {
			return nil, err
		}
		c.ranges[key] = r
	}
	return c.ranges[key], nil
}

// BenchmarkAggregate aggregates 1,000 series of 1,000 points:
//
//	go test -bench Aggregate -benchmem ./metric/render
func BenchmarkAggregate(b *testing.B) {
	req := Request{From: 1700000000, Until: 1700010000, Now: 1700010000}
	for _, target := range []string{"a", "sumSeries(a)", "averageSeries(a)", "maxSeries(a)", "groupByNode(a,0,'sum')",
		"percentileOfSeries(a,95)", "movingAverage(a,60)", "movingMedian(a,10)", "scale(a,2)", "perSecond(a)",
		"summarize(a,'1min','max')", "aliasSub(a,'(^.*$)','\\1 A')", "aliasByNode(scale(a,2),1)"} {
		b.Run(target, func(b *testing.B) {
			e := newEngine(b, Options{Source: &cached{flatSource: flatSource{n: 1000, step: 10}}, MaxPoints: 1 << 40})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Evaluate(b.Context(), []string{target}, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
