package aggregator

import (
	"fmt"
	"math"
	"slices"
)

// method is how the values of an interval become one.
type method uint8

const (
	sum method = iota
	avg
	least
	most
	count
	p50
	p75
	p80
	p90
	p95
	p99
	p999
)

var methods = [...]struct {
	name     string
	quantile float64
}{sum: {"sum", 0}, avg: {"avg", 0}, least: {"min", 0}, most: {"max", 0}, count: {"count", 0}, p50: {"p50", 0.50},
	p75: {"p75", 0.75}, p80: {"p80", 0.80}, p90: {"p90", 0.90}, p95: {"p95", 0.95}, p99: {"p99", 0.99},
	p999: {"p999", 0.999}}

func parseMethod(name string) (method, error) {
	for m := range methods {
		if methods[m].name == name {
			return method(m), nil
		}
	}
	return 0, fmt.Errorf("%q is no method: use sum, avg, min, max, count, p50, p75, p80, p90, p95, p99 or p999",
		short(name))
}

// of returns the value of values, of which there is at least one. It may sort them.
func (m method) of(values []float64) float64 {
	switch m {
	case count:
		return float64(len(values))
	case sum, avg:
		total := 0.0
		for _, v := range values {
			total += v
		}
		if m == avg {
			total /= float64(len(values))
		}
		return total
	case least:
		return slices.Min(values)
	case most:
		return slices.Max(values)
	}
	slices.Sort(values)
	rank := methods[m].quantile * float64(len(values)-1)
	left, right := math.Floor(rank), math.Ceil(rank)
	if left == right {
		return values[int(left)]
	}
	return values[int(left)]*(right-rank) + values[int(right)]*(rank-left)
}
