// Package render evaluates Graphite targets: it parses them, asks a Source for the series, and applies the functions.
// The HTTP API of metric/graphite calls it, and so do checks on metrics.
package render

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Source is the store as an evaluation sees it. A caller restricts what is visible by its own Source.
type Source interface {
	// Find returns the names of the leaves that match a glob pattern, sorted.
	Find(ctx context.Context, pattern string) ([]string, error)
	// FindTagged returns the canonical names of the series that match all tag expressions, sorted.
	FindTagged(ctx context.Context, expressions []string) ([]string, error)
	// Fetch returns the values in (from, until] of the named series, in their order; names without values are left out.
	Fetch(ctx context.Context, names []string, from, until, now int64) ([]series.Range, error)
}

// Series is a series during and after the evaluation of a target.
type Series struct {
	Name string
	// PathExpression is the text that produced the series: names of aggregates are made of it.
	PathExpression string
	Tags           map[string]string
	// Values[i] is of Start + i*Step; NaN is null. End is the time behind the last value.
	Start, End, Step int64
	Values           []float64
	// Consolidation is the function (average, sum, max…) by which several values become one, with XFilesFactor.
	Consolidation string
	XFilesFactor  float64
	// ValuesPerPoint is above 1 after Consolidate.
	ValuesPerPoint int64
	Draw           Draw

	// outer is the factor that setXFilesFactor set: functions around it use it too. It is nil if none was set.
	outer *float64
}

// Draw is how a series is drawn in an image.
type Draw struct {
	Color          string
	Alpha          float64 // 0 is not set
	LineWidth      float64 // 0 is not set
	Dashed         float64 // length of a dash; 0 is a full line
	SecondYAxis    bool
	Stacked        bool
	Invisible      bool
	DrawAsInfinite bool
	// StackName joins the series of one stacked or areaBetween call; they are filled down to the one before.
	StackName string
}

// Request is what the targets of one render request share.
type Request struct {
	// From and Until are Unix seconds: values are in (From, Until]. Now is the time of the request.
	From, Until, Now int64
	// Location is for times in arguments. Default: UTC.
	Location *time.Location
	// MaxDataPoints is what the answer will be consolidated to, or 0. Functions that keep it in mind may use it.
	MaxDataPoints int
	XFilesFactor  float64
	// Templates are the request's template[NAME]=value.
	Templates map[string]string
}
