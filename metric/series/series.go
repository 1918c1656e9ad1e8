// Package series has the types that the parts of metric share: a series' archives, how its values are aggregated, its
// values over a range of time, and what a request may see of it.
//
// All times are Unix seconds and all steps are seconds, unless a name says otherwise. A value that is not there is NaN;
// NaN itself is never stored.
package series

import (
	"fmt"
	"math"
	"strings"
)

// Archive is one retention of a series: a value every Step seconds, Points of them.
type Archive struct {
	Step, Points int64
}

// Retention returns the seconds that a covers.
func (a Archive) Retention() int64 { return a.Step * a.Points }

// Method is how the values of a finer archive, or of several points on a screen, become one.
type Method uint8

// The methods of whisper, in the order of their numbers in its files (which begin at 1).
const (
	Average Method = iota + 1
	Sum
	Last
	Max
	Min
	AvgZero
	AbsMax
	AbsMin
)

var methodNames = [...]string{Average: "average", Sum: "sum", Last: "last", Max: "max", Min: "min", AvgZero: "avg_zero",
	AbsMax: "absmax", AbsMin: "absmin"}

// String returns the name as storage-aggregation.conf has it.
func (m Method) String() string {
	if int(m) < len(methodNames) && methodNames[m] != "" {
		return methodNames[m]
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// ParseMethod reads a name of storage-aggregation.conf, in any case; avg is average.
func ParseMethod(name string) (Method, error) {
	lower := strings.ToLower(name)
	if lower == "avg" {
		return Average, nil
	}
	for m, n := range methodNames {
		if n != "" && n == lower {
			return Method(m), nil
		}
	}
	return 0, fmt.Errorf("%q is no aggregation method: use average, sum, last, max, min, avg_zero, absmax or absmin", name)
}

// Aggregate makes one value of values, which are in the order of time; NaN are unknown. It returns NaN if none is
// known, or if fewer than xFilesFactor of them are.
func (m Method) Aggregate(values []float64, xFilesFactor float64) float64 {
	var known int
	var sum, most, least, last, absMost, absLeast float64
	for _, v := range values {
		if math.IsNaN(v) {
			continue
		}
		if known == 0 {
			most, least, absMost, absLeast = v, v, v, v
		} else {
			most, least = max(most, v), min(least, v)
			if math.Abs(v) > math.Abs(absMost) {
				absMost = v
			}
			if math.Abs(v) < math.Abs(absLeast) {
				absLeast = v
			}
		}
		sum += v
		last = v
		known++
	}
	if known == 0 || float64(known)/float64(len(values)) < xFilesFactor {
		return math.NaN()
	}
	switch m {
	case Sum:
		return sum
	case Last:
		return last
	case Max:
		return most
	case Min:
		return least
	case AvgZero:
		return sum / float64(len(values))
	case AbsMax:
		return absMost
	case AbsMin:
		return absLeast
	}
	return sum / float64(known)
}

// Range is a series' values over a range of time.
type Range struct {
	Name string
	// Start is the time of Values[0], a multiple of Step; Values[i] is of Start + i*Step.
	Start, Step int64
	// Values are NaN where there is none.
	Values []float64
	// Aggregation and XFilesFactor are the series' own, from storage-aggregation.conf.
	Aggregation  Method
	XFilesFactor float64
}

// End returns the time behind the last value.
func (r *Range) End() int64 { return r.Start + int64(len(r.Values))*r.Step }

// View is what a request may see of stored series, and whether it may change them.
type View struct {
	// All is all series. Otherwise the request sees those of events of Namespaces: they have the tag namespace.
	All        bool
	Namespaces []string
	// Write lets the request change series and notes, and send points.
	Write bool
}

// FloorMod returns a modulo b with the sign of b, as Python has it. b must be positive.
func FloorMod(a, b int64) int64 {
	if m := a % b; m >= 0 {
		return m
	} else {
		return m + b
	}
}

// Floor returns the largest multiple of step that is not above t.
func Floor(t, step int64) int64 { return t - FloorMod(t, step) }
