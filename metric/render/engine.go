package render

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Estimator is optional for a Source: it says how many values a Fetch would return. With it, a request that is too
// large is refused before it is fetched; without it, values are fetched and counted in parts.
type Estimator interface {
	EstimatePoints(ctx context.Context, names []string, from, until, now int64) (int64, error)
}

// Options are an engine's parts and limits.
type Options struct {
	// Source has the series. Required.
	Source Source
	// Events returns the times of the events in [from, until) that have all tags, for events(). Without it there are none.
	Events func(ctx context.Context, tags []string, from, until int64) ([]int64, error)
	// MaxSeries is how many series one request may fetch. Default 20,000.
	MaxSeries int
	// MaxPoints is how many values one request may fetch. Default 20 million.
	MaxPoints int64
	// MaxComputed is how many values the functions of one request may make. Default 3 times MaxPoints.
	MaxComputed int64
	// MaxCalls is how many functions one request may call; a moving function calls those inside it twice. Default 10,000.
	MaxCalls int
}

func (o Options) withDefaults() (Options, error) {
	if o.Source == nil {
		return o, errors.New("render: Source is required")
	}
	if o.MaxSeries < 0 || o.MaxPoints < 0 || o.MaxComputed < 0 || o.MaxCalls < 0 {
		return o, errors.New("render: MaxSeries, MaxPoints, MaxComputed and MaxCalls must not be negative")
	}
	if o.MaxSeries == 0 {
		o.MaxSeries = 20_000
	}
	if o.MaxPoints == 0 {
		o.MaxPoints = 20_000_000
	}
	if o.MaxComputed == 0 {
		o.MaxComputed = 3 * o.MaxPoints
	}
	if o.MaxCalls == 0 {
		o.MaxCalls = 10_000
	}
	return o, nil
}

// ArgumentError says which argument of which function is wrong.
type ArgumentError struct {
	Function, Argument, Message string
}

func (e *ArgumentError) Error() string {
	if e.Argument == "" {
		return fmt.Sprintf("function %s: %s", e.Function, e.Message)
	}
	return fmt.Sprintf("function %s, argument %s: %s", e.Function, e.Argument, e.Message)
}

// LimitError says which limit a request is above.
type LimitError struct {
	// Limit is what is limited: series, points, computed points or function calls.
	Limit string
	Max   int64
	// Asked is how many were needed; at least that many when not all was counted.
	Asked int64
	Hint  string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the request needs at least %d %s, the limit is %d: %s", e.Asked, e.Limit, e.Max, e.Hint)
}

// Engine evaluates targets. It is safe for concurrent use.
type Engine struct {
	options   Options
	functions *table
}

// New returns an engine.
func New(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Engine{options: o, functions: newTable()}, nil
}

// Evaluate returns the series of the targets, in their order. Callers must not change the values of the series.
func (e *Engine) Evaluate(ctx context.Context, targets []string, req Request) ([]*Series, error) {
	if req.Location == nil {
		req.Location = time.UTC
	}
	const most = int64(1) << 40
	if req.From < -most || req.Until > most || req.Now < -most || req.Now > most {
		return nil, &ArgumentError{Function: "render", Argument: "from", Message: "the times are out of range"}
	}
	if req.From >= req.Until {
		return nil, &ArgumentError{Function: "render", Argument: "from", Message: "it must be before until"}
	}
	exprs := make([]*Expr, len(targets))
	for i, t := range targets {
		x, err := Parse(t)
		if err != nil {
			return nil, err
		}
		exprs[i] = expand(x, req.Templates)
	}
	ev := &evaluation{ctx: ctx, engine: e, req: req, shared: &shared{
		fetched: map[fetchKey][]fetched{}, stacks: map[string][]float64{}}}
	var out []*Series
	for i, x := range exprs {
		list, err := ev.target(x)
		if err != nil {
			return nil, fmt.Errorf("evaluate target %q: %w", shorten(targets[i]), err)
		}
		out = append(out, list...)
	}
	return out, nil
}

// evaluation is a request over one range of time; functions that look elsewhere in time make another with the same
// shared part.
type evaluation struct {
	ctx    context.Context
	engine *Engine
	req    Request
	depth  int
	shared *shared
}

// shared is what the ranges of a request have in common.
type shared struct {
	fetched map[fetchKey][]fetched
	// stacks are the running totals of stacked().
	stacks                map[string][]float64
	series, copies, calls int
	points, computed      int64
}

// fetchKey is a path or a list of tag expressions, and a range.
type fetchKey struct {
	query       string
	tagged      bool
	from, until int64
}

type fetched struct {
	series.Range
	tags map[string]string
}

// over returns the evaluation of another range.
func (ev *evaluation) over(from, until int64) *evaluation {
	c := *ev
	c.req.From, c.req.Until = from, until
	return &c
}

// target evaluates an expression that must give series.
func (ev *evaluation) target(e *Expr) ([]*Series, error) {
	v, err := ev.value(e)
	if err != nil {
		return nil, err
	}
	switch v.kind {
	case seriesValue:
		return v.series, nil
	case listsValue:
		var out []*Series
		for _, l := range v.lists {
			out = append(out, l...)
		}
		return out, nil
	}
	return nil, &ArgumentError{Function: e.Text, Message: "the target gives no series"}
}

func (ev *evaluation) value(e *Expr) (value, error) {
	switch e.Kind {
	case PathExpr:
		list, err := ev.fetch(e.Text)
		return value{kind: seriesValue, series: list}, err
	case NumberExpr:
		return value{kind: numberValue, number: e.Number, integer: e.Integer, text: e.Text}, nil
	case StringExpr:
		return value{kind: stringValue, text: e.Text}, nil
	case BoolExpr:
		return value{kind: boolValue, truth: e.Bool}, nil
	case NoneExpr:
		return value{kind: noneValue}, nil
	case CallExpr:
		return ev.call(e)
	}
	return value{}, fmt.Errorf("expression %q cannot be evaluated", shorten(e.String()))
}

// call evaluates the arguments of a function and then the function.
func (ev *evaluation) call(e *Expr) (value, error) {
	f := ev.engine.functions.find(e.Text)
	if f == nil {
		return value{}, &ArgumentError{Function: e.Text, Message: "there is no such function"}
	}
	if err := ev.count(); err != nil {
		return value{}, err
	}
	inner := *ev
	if inner.depth++; inner.depth > 2*maxTargetDepth {
		return value{}, &LimitError{Limit: "nested functions", Max: 2 * maxTargetDepth, Asked: int64(inner.depth),
			Hint: "nest fewer functions"}
	}
	c := &call{ev: &inner, fn: f, expr: e, name: e.Text}
	if err := c.bind(); err != nil {
		return value{}, err
	}
	return c.run()
}

// apply calls a function with series that are there already, as groupByNode does with its callback. It does not count:
// there are at most as many groups as series.
func (ev *evaluation) apply(f *function, name string, lists ...[]*Series) ([]*Series, error) {
	if err := ev.ctx.Err(); err != nil {
		return nil, err
	}
	given := make([]value, len(lists))
	for i, l := range lists {
		given[i] = value{kind: seriesValue, series: l}
	}
	c := &call{ev: ev, fn: f, name: name, expr: &Expr{Kind: CallExpr, Text: name}}
	if f.lazy {
		return nil, c.fail("", "it cannot be applied to groups, because it looks at another range of time")
	}
	if err := c.bindValues(given, nil); err != nil {
		return nil, err
	}
	v, err := c.run()
	return v.series, err
}

// text evaluates a target that a function made.
func (ev *evaluation) text(target string) ([]*Series, error) {
	e, err := Parse(target)
	if err != nil {
		return nil, err
	}
	return ev.target(expand(e, ev.req.Templates))
}

func (ev *evaluation) count() error {
	ev.shared.calls++
	if most := ev.engine.options.MaxCalls; ev.shared.calls > most {
		return &LimitError{Limit: "function calls", Max: int64(most), Asked: int64(ev.shared.calls),
			Hint: "use fewer functions, or nest fewer moving functions"}
	}
	return ev.ctx.Err()
}

// compute counts values that a function is about to make.
func (ev *evaluation) compute(n int64) error {
	if n < 0 || n > math.MaxInt32*16 {
		n = math.MaxInt32 * 16
	}
	ev.shared.computed += n
	if most := ev.engine.options.MaxComputed; ev.shared.computed > most {
		return &LimitError{Limit: "computed points", Max: most, Asked: ev.shared.computed,
			Hint: "ask for a shorter range, a larger step or fewer series"}
	}
	return ev.ctx.Err()
}

// fetchPart is how many series are fetched at once when their size is not known before.
const fetchPart = 256

func (ev *evaluation) fetch(path string) ([]*Series, error) {
	return ev.load(path, false, func() ([]string, error) {
		names, err := ev.engine.options.Source.Find(ev.ctx, path)
		if err != nil {
			return nil, fmt.Errorf("find %q: %w", shorten(path), err)
		}
		return names, nil
	}, path)
}

func (ev *evaluation) fetchTagged(expressions []string, text string) ([]*Series, error) {
	return ev.load(strings.Join(expressions, "\x00"), true, func() ([]string, error) {
		names, err := ev.engine.options.Source.FindTagged(ev.ctx, expressions)
		if err != nil {
			return nil, fmt.Errorf("find series by tags: %w", err)
		}
		return names, nil
	}, text)
}

// load returns the series of a query, from the request's memory if the same query and range was there before. Points
// are consolidated by average and the request's factor, however the store aggregates: a target has to say otherwise.
func (ev *evaluation) load(query string, tagged bool, find func() ([]string, error), text string) ([]*Series, error) {
	key := fetchKey{query: query, tagged: tagged, from: ev.req.From, until: ev.req.Until}
	ranges, ok := ev.shared.fetched[key]
	if !ok {
		names, err := find()
		if err != nil {
			return nil, err
		}
		if ranges, err = ev.fetchNames(names); err != nil {
			return nil, err
		}
		ev.shared.fetched[key] = ranges
	}
	// Series that are in several targets are fetched once, but each target has its own copy.
	if ev.shared.copies += len(ranges); ev.shared.copies > 2*ev.engine.options.MaxSeries {
		return nil, &LimitError{Limit: "series of all targets", Max: int64(2 * ev.engine.options.MaxSeries), Asked: int64(ev.shared.copies),
			Hint: "use fewer targets or narrower patterns"}
	}
	out := make([]*Series, len(ranges))
	for i, r := range ranges {
		out[i] = &Series{Name: r.Name, PathExpression: text, Tags: maps.Clone(r.tags), Start: r.Start, End: r.End(),
			Step: r.Step, Values: r.Values, Consolidation: "average", ValuesPerPoint: 1, XFilesFactor: ev.req.XFilesFactor}
	}
	return out, nil
}

func (ev *evaluation) fetchNames(names []string) ([]fetched, error) {
	o := ev.engine.options
	if ev.shared.series += len(names); ev.shared.series > o.MaxSeries {
		return nil, &LimitError{Limit: "series", Max: int64(o.MaxSeries), Asked: int64(ev.shared.series),
			Hint: "use a narrower pattern"}
	}
	tooMany := func(asked int64) error {
		return &LimitError{Limit: "points", Max: o.MaxPoints, Asked: asked,
			Hint: "ask for a shorter range or fewer series"}
	}
	part := fetchPart
	if s, ok := o.Source.(Estimator); ok && len(names) > 0 {
		n, err := s.EstimatePoints(ev.ctx, names, ev.req.From, ev.req.Until, ev.req.Now)
		if err != nil {
			return nil, fmt.Errorf("estimate the points of %d series: %w", len(names), err)
		}
		if ev.shared.points+n > o.MaxPoints {
			return nil, tooMany(ev.shared.points + n)
		}
		part = len(names)
	}
	out := make([]fetched, 0, len(names))
	for len(names) > 0 {
		if err := ev.ctx.Err(); err != nil {
			return nil, err
		}
		n := min(part, len(names))
		ranges, err := o.Source.Fetch(ev.ctx, names[:n], ev.req.From, ev.req.Until, ev.req.Now)
		if err != nil {
			return nil, fmt.Errorf("fetch %d series: %w", n, err)
		}
		names = names[n:]
		for _, r := range ranges {
			if r.Step <= 0 {
				return nil, fmt.Errorf("fetch %q: the source gave the step %d", shorten(r.Name), r.Step)
			}
			ev.shared.points += int64(len(r.Values))
			out = append(out, fetched{Range: r, tags: tagsOf(r.Name)})
		}
		if ev.shared.points > o.MaxPoints {
			return nil, tooMany(ev.shared.points)
		}
	}
	return out, nil
}

// tagsOf returns the tags in a name, and the name itself as the tag name.
func tagsOf(name string) map[string]string {
	parts := strings.Split(name, ";")
	tags := map[string]string{"name": parts[0]}
	for _, p := range parts[1:] {
		if k, v, ok := strings.Cut(p, "="); ok && k != "" {
			tags[k] = v
		}
	}
	return tags
}

// Consolidate makes at most maxDataPoints values of each series, or leaves it as it is; 0 leaves all. It returns copies
// of the series that it changes.
func Consolidate(list []*Series, maxDataPoints int) []*Series {
	if maxDataPoints <= 0 || len(list) == 0 {
		return list
	}
	start, end := list[0].Start, list[0].End
	for _, s := range list {
		start, end = min(start, s.Start), max(end, s.End)
	}
	out := make([]*Series, len(list))
	for i, s := range list {
		out[i] = consolidatePoints(s, end-start, int64(maxDataPoints))
	}
	return out
}

func consolidatePoints(s *Series, span, most int64) *Series {
	if s.Step <= 0 || len(s.Values) == 0 {
		return s
	}
	if most == 1 {
		c := *s
		c.Values = consolidateValues(s.Values, len(s.Values), s.Consolidation, s.XFilesFactor)
		c.ValuesPerPoint = int64(len(s.Values))
		c.Step = s.Step * c.ValuesPerPoint
		c.End = c.Start + c.Step
		return &c
	}
	points := float64(span) / float64(s.Step)
	if float64(most) >= points {
		return s
	}
	per := int64(math.Ceil(points / float64(most)))
	width := per * s.Step
	nudge := width + series.FloorMod(s.Start, s.Step) - series.FloorMod(s.Start, width)
	drop := min(max(nudge/s.Step-1, 0), int64(len(s.Values)))
	c := *s
	c.Start += nudge
	c.Values = consolidateValues(s.Values[drop:], int(per), s.Consolidation, s.XFilesFactor)
	if most := max(0, s.End-c.Start)/width + 1; int64(len(c.Values)) > most {
		// A series may have a value more than fits before its end.
		c.Values = c.Values[:most]
	}
	c.ValuesPerPoint = per
	c.Step = width
	c.End = c.Start + int64(len(c.Values))*width
	return &c
}

// consolidateValues makes one value of each n.
func consolidateValues(values []float64, n int, function string, xFilesFactor float64) []float64 {
	if n <= 1 {
		return values
	}
	f := consolidationFunction(function)
	out := make([]float64, 0, (len(values)+n-1)/n)
	for group := range slices.Chunk(values, n) {
		out = append(out, withFactor(f, group, n, xFilesFactor))
	}
	return out
}

// withFactor returns f of values, or NaN if too few of n are known. At the end of a series values are fewer than n.
func withFactor(f aggregation, values []float64, n int, xFilesFactor float64) float64 {
	known := 0
	for _, v := range values {
		if v == v {
			known++
		}
	}
	if known == 0 || float64(known)/float64(n) < xFilesFactor {
		return math.NaN()
	}
	return f(values)
}

// setTag changes a tag of a series that this evaluation owns.
func setTag(s *Series, name, value string) {
	if s.Tags == nil {
		s.Tags = map[string]string{}
	}
	s.Tags[name] = value
}

// formatG writes a number as %g does in C.
func formatG(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// formatFloat writes a float as short as it can be read back, always with a dot or an exponent.
func formatFloat(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return formatG(f)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
