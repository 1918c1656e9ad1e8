package render

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

func filterFunctions() []function {
	threshold := []param{seriesParam, {name: "n", kind: kindFloat, required: true}}
	count := []param{seriesParam, {name: "n", kind: kindInteger, required: true}}
	top := []param{seriesParam, {name: "n", kind: kindInteger, def: 1}, {name: "func", kind: kindAggregation,
		def: "average"}}
	pattern := []param{seriesParam, {name: "pattern", kind: kindString, required: true}}
	by := func(name, aggregation, operator, description string) function {
		return function{name: name, group: groupFilterSeries, params: threshold, description: description,
			run: func(c *call) ([]*Series, error) { return c.filter(aggregation, operator, c.float(1)) }}
	}
	best := func(name, aggregation string, high bool, description string) function {
		return function{name: name, group: groupFilterSeries, params: count, description: description,
			run: func(c *call) ([]*Series, error) {
				return c.best(aggregationByName(aggregation), c.integer(1), high), nil
			}}
	}
	return []function{
		by("averageAbove", "average", ">", "Keeps the series whose mean is above n."),
		by("averageBelow", "average", "<=", "Keeps the series whose mean is at most n."),
		by("currentAbove", "last", ">", "Keeps the series whose last known point is above n."),
		by("currentBelow", "last", "<=", "Keeps the series whose last known point is at most n."),
		by("maximumAbove", "max", ">", "Keeps the series whose largest point is above n."),
		by("maximumBelow", "max", "<=", "Keeps the series whose largest point is at most n."),
		by("minimumAbove", "min", ">", "Keeps the series whose smallest point is above n."),
		by("minimumBelow", "min", "<=", "Keeps the series whose smallest point is at most n."),
		{name: "filterSeries", group: groupFilterSeries, params: []param{seriesParam,
			{name: "func", kind: kindAggregation, required: true},
			{name: "operator", kind: kindString, required: true, options: []string{"!=", "<", "<=", "=", ">", ">="}},
			{name: "threshold", kind: kindFloat, required: true}},
			run: func(c *call) ([]*Series, error) {
				return c.filter(c.text(1), c.text(2), c.float(3))
			},
			description: "Keeps the series whose aggregate is above, below or equal to a threshold."},
		best("highestAverage", "average", true, "The n series with the highest mean."),
		best("highestCurrent", "current", true, "The n series with the highest last known point."),
		best("highestMax", "max", true, "The n series with the highest point."),
		best("lowestAverage", "average", false, "The n series with the lowest mean."),
		best("lowestCurrent", "current", false, "The n series with the lowest last known point."),
		{name: "highest", group: groupFilterSeries, params: top, run: bestOf(true),
			description: "The n series with the highest aggregate."},
		{name: "lowest", group: groupFilterSeries, params: top, run: bestOf(false),
			description: "The n series with the lowest aggregate."},
		{name: "mostDeviant", group: groupFilterSeries, params: count, run: mostDeviant,
			description: "The n series with the highest standard deviation."},
		{name: "limit", group: groupFilterSeries, params: count, run: limitSeries,
			description: "The first n series."},
		{name: "exclude", group: groupFilterSeries, params: pattern, run: matching(false),
			description: "Drops the series whose name matches a regular expression."},
		{name: "grep", group: groupFilterSeries, params: pattern, run: matching(true),
			description: "Keeps the series whose name matches a regular expression."},
		{name: "unique", group: groupFilterSeries, params: seriesLists, run: unique,
			description: "The first series of each name."},
		{name: "removeEmptySeries", group: groupFilterSeries, run: removeEmpty, params: []param{seriesParam,
			{name: "xFilesFactor", kind: kindFloat}},
			description: "Drops the series of which no point, or less than a share of the points, is known."},
		{name: "averageOutsidePercentile", group: groupFilterSeries, params: threshold, run: averageOutside,
			description: "Keeps the series whose mean is outside the middle n percent of all means."},
		{name: "removeBetweenPercentile", group: groupFilterSeries, params: threshold, run: removeBetween,
			description: "Keeps the series that have a point outside the middle n percent of the points of the same time."},
		{name: "useSeriesAbove", group: groupFilterSeries, run: useSeriesAbove, params: []param{seriesParam,
			{name: "value", kind: kindFloat, required: true}, {name: "search", kind: kindString, required: true},
			{name: "replace", kind: kindString, required: true}},
			description: "For each series with a point above a value, the series whose name is made from its name by a " +
				"regular expression."},
		{name: "removeAboveValue", group: groupFilterData, params: threshold, run: removeValues("removeAboveValue",
			func(v, n float64) bool { return v > n }), description: "Makes the points above n unknown."},
		{name: "removeBelowValue", group: groupFilterData, params: threshold, run: removeValues("removeBelowValue",
			func(v, n float64) bool { return v < n }), description: "Makes the points below n unknown."},
		{name: "removeAbovePercentile", group: groupFilterData, params: threshold,
			run:         removePercentile("removeAbovePercentile", func(v, n float64) bool { return v > n }),
			description: "Makes the points above the n-th percentile of each series unknown."},
		{name: "removeBelowPercentile", group: groupFilterData, params: threshold,
			run:         removePercentile("removeBelowPercentile", func(v, n float64) bool { return v < n }),
			description: "Makes the points below the n-th percentile of each series unknown."},
	}
}

// known is the aggregate of a series, or NaN if no value is known.
func aggregateOf(f aggregation, s *Series) float64 {
	if countKnown(s.Values) == 0 {
		return nan
	}
	return f(s.Values)
}

// filter keeps the series whose aggregate passes. That of a series without values is below all numbers.
func (c *call) filter(function, operator string, n float64) ([]*Series, error) {
	f := aggregationByName(function)
	out := make([]*Series, 0, len(c.series(0)))
	for _, s := range c.series(0) {
		if err := c.compute(int64(len(s.Values))); err != nil {
			return nil, err
		}
		v := aggregateOf(f, s)
		if v != v {
			v = math.Inf(-1)
		}
		pass := false
		switch operator {
		case "=":
			pass = v == n
		case "!=":
			pass = v != n
		case ">":
			pass = v > n
		case ">=":
			pass = v >= n
		case "<":
			pass = v < n
		case "<=":
			pass = v <= n
		}
		if pass {
			out = append(out, s)
		}
	}
	return out, nil
}

// ordered sorts a list by a key, in a new list; unknown keys are the lowest.
func ordered(list []*Series, key func(s *Series) float64, descending bool) []*Series {
	type keyed struct {
		s *Series
		k float64
	}
	keys := make([]keyed, len(list))
	for i, s := range list {
		keys[i] = keyed{s, key(s)}
	}
	less := func(a, b float64) bool { return a < b || a != a && b == b }
	sort.SliceStable(keys, func(i, j int) bool {
		if descending {
			return less(keys[j].k, keys[i].k)
		}
		return less(keys[i].k, keys[j].k)
	})
	out := make([]*Series, len(list))
	for i, k := range keys {
		out[i] = k.s
	}
	return out
}

// first returns the first n of a list; a negative n counts from the end.
func first(list []*Series, n int) []*Series {
	if n < 0 {
		n = max(0, len(list)+n)
	}
	return list[:min(n, len(list))]
}

func (c *call) best(f aggregation, n int, high bool) []*Series {
	return first(ordered(c.series(0), func(s *Series) float64 { return aggregateOf(f, s) }, high), n)
}

func bestOf(high bool) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		f := c.aggregation(2)
		return c.best(f, c.integer(1), high), nil
	}
}

func mostDeviant(c *call) ([]*Series, error) {
	var list []*Series
	for _, s := range c.series(0) {
		if v := variance(s.Values); v == v {
			list = append(list, s)
		}
	}
	return first(ordered(list, func(s *Series) float64 { return variance(s.Values) }, true), c.integer(1)), nil
}

func limitSeries(c *call) ([]*Series, error) { return first(c.series(0), c.integer(1)), nil }

func matching(keep bool) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		re, err := c.regex(1)
		if err != nil {
			return nil, err
		}
		var out []*Series
		for _, s := range c.series(0) {
			if err := c.compute(1); err != nil {
				return nil, err
			}
			ok, err := re.match(s.Name)
			if err != nil {
				return nil, c.fail("pattern", "%v", err)
			}
			if ok == keep {
				out = append(out, s)
			}
		}
		return out, nil
	}
}

func unique(c *call) ([]*Series, error) {
	seen := map[string]bool{}
	var out []*Series
	for _, s := range c.all() {
		if !seen[s.Name] {
			seen[s.Name] = true
			out = append(out, s)
		}
	}
	return out, nil
}

func removeEmpty(c *call) ([]*Series, error) {
	factor := 0.0
	if c.present(1) {
		factor = c.float(1)
	}
	var out []*Series
	for _, s := range c.series(0) {
		if known := countKnown(s.Values); known > 0 && known/float64(len(s.Values)) >= factor {
			out = append(out, s)
		}
	}
	return out, nil
}

// outside returns the two percentiles between which the middle n percent are. It keeps the order of values; scratch is
// as long.
func outside(values, scratch []float64, n float64) (low, high float64) {
	copy(scratch, values)
	known := sortKnown(scratch)
	return percentileOfSorted(known, 100-n, false), percentileOfSorted(known, n, false)
}

// middle reads a percentage; 30 means the same as 70.
func (c *call) middle() (float64, error) {
	n := c.float(1)
	if n < 50 {
		n = 100 - n
	}
	if n >= 100 {
		return 0, c.fail("n", "the percentile must be above 0 and below 100")
	}
	return n, nil
}

func averageOutside(c *call) ([]*Series, error) {
	n, err := c.middle()
	if err != nil {
		return nil, err
	}
	means := make([]float64, len(c.series(0)))
	for i, s := range c.series(0) {
		means[i] = mean(s.Values)
	}
	low, high := outside(means, make([]float64, len(means)), n)
	var out []*Series
	for i, s := range c.series(0) {
		if means[i] <= low || means[i] >= high {
			out = append(out, s)
		}
	}
	return out, nil
}

func removeBetween(c *call) ([]*Series, error) {
	n, err := c.middle()
	if err != nil {
		return nil, err
	}
	list := c.series(0)
	if len(list) == 0 {
		return nil, nil
	}
	norm, err := c.normalise(list)
	if err != nil {
		return nil, err
	}
	keep, scratch := make([]bool, len(list)), make([]float64, len(list))
	err = norm.each(c, func(_ int, row []float64) {
		low, high := outside(row, scratch, n)
		for i, v := range row {
			if v <= low || v >= high {
				keep[i] = true
			}
		}
	})
	if err != nil {
		return nil, err
	}
	var out []*Series
	for i, s := range list {
		if keep[i] {
			out = append(out, s)
		}
	}
	return out, nil
}

func useSeriesAbove(c *call) ([]*Series, error) {
	re, err := c.regex(2)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range c.series(0) {
		if maximum(s.Values) > c.float(1) {
			name, err := re.replace(s.Name, c.text(3))
			if err != nil {
				return nil, c.fail("replace", "%v", err)
			}
			names = append(names, name)
		}
	}
	var out []*Series
	for _, n := range slices.Compact(names) {
		list, err := c.ev.text(n)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func removeValues(name string, remove func(v, n float64) bool) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		for _, s := range c.series(0) {
			if err := c.without(s, name, c.float(1), c.float(1), remove); err != nil {
				return nil, err
			}
		}
		return c.series(0), nil
	}
}

func removePercentile(name string, remove func(v, n float64) bool) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		n := c.float(1)
		if n <= 0 || n > 100 {
			return nil, c.fail("n", "the percentile must be above 0 and at most 100")
		}
		for _, s := range c.series(0) {
			p := percentile(s.Values, n, false)
			if err := c.without(s, name, n, p, remove); err != nil {
				return nil, err
			}
			if p == p {
				setTag(s, "nPercentile", formatFloat(n))
			}
		}
		return c.series(0), nil
	}
}

func (c *call) without(s *Series, name string, shown, n float64, remove func(v, n float64) bool) error {
	rename(s, fmt.Sprintf("%s(%s, %s)", name, s.Name, formatG(shown)))
	return c.mapValues(s, func(v float64) float64 {
		if remove(v, n) {
			return nan
		}
		return v
	})
}
