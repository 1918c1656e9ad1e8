package render

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

var seriesParam = param{name: "seriesList", kind: kindSeries, required: true}

var seriesLists = []param{{name: "seriesLists", kind: kindSeries, required: true, multiple: true}}

func combineFunctions() []function {
	positions := param{name: "position", kind: kindNode, multiple: true}
	pair := func(a, b string) []param {
		return []param{{name: a, kind: kindSeries, required: true}, {name: b, kind: kindSeries, required: true}}
	}
	factor := param{name: "xFilesFactor", kind: kindFloat}
	return []function{
		{name: "sumSeries", aliases: []string{"sum"}, group: groupCombine, params: seriesLists, run: aggregateAll("sum"),
			description: "Adds the series up, point by point. Unknown points are left out of the sum."},
		{name: "averageSeries", aliases: []string{"avg"}, group: groupCombine, params: seriesLists,
			run: aggregateAll("average"), description: "The mean of the known points of all series, point by point."},
		{name: "maxSeries", group: groupCombine, params: seriesLists, run: aggregateAll("max"),
			description: "The largest of the points of all series, point by point."},
		{name: "minSeries", group: groupCombine, params: seriesLists, run: aggregateAll("min"),
			description: "The smallest of the points of all series, point by point."},
		{name: "diffSeries", group: groupCombine, params: seriesLists, run: aggregateAll("diff"),
			description: "The first series minus all others. Use offset to subtract a number."},
		{name: "multiplySeries", group: groupCombine, params: seriesLists, run: multiplyAll,
			description: "The product of all series. A point is unknown if one of its factors is."},
		{name: "stddevSeries", group: groupCombine, params: seriesLists, run: aggregateAll("stddev"),
			description: "The standard deviation across the series, point by point."},
		{name: "rangeOfSeries", group: groupCombine, params: seriesLists, run: aggregateAll("rangeOf"),
			description: "The largest minus the smallest of the points of all series, point by point."},
		{name: "countSeries", group: groupCombine, params: []param{{name: "seriesLists", kind: kindSeries, multiple: true}},
			run: countAll, description: "A line at the number of series."},
		{name: "powSeries", group: groupCombine, params: seriesLists, run: powAll,
			description: "Raises the first series to the power of the second, the result to that of the third, and so on."},
		{name: "percentileOfSeries", group: groupCombine, run: percentileAll, params: []param{seriesParam,
			{name: "n", kind: kindFloat, required: true}, {name: "interpolate", kind: kindBool, def: false}},
			description: "The n-th percentile across the series, point by point."},
		{name: "aggregate", group: groupCombine, run: aggregateBy, params: []param{seriesParam,
			{name: "func", kind: kindString, shown: kindAggregation, required: true}, factor},
			description: "Makes one series of all by an aggregation that is named: aggregate(x, 'sum') is sumSeries(x)."},
		{name: "aggregateSeriesLists", group: groupCombine, run: pairwise(""),
			params: append(pair("seriesListFirstPos", "seriesListSecondPos"),
				param{name: "func", kind: kindString, shown: kindAggregation, required: true}, factor),
			description: "Aggregates the first series of one list with the first of the other, the second with the second."},
		{name: "sumSeriesLists", group: groupCombine, run: pairwise("sum"),
			params:      pair("seriesListFirstPos", "seriesListSecondPos"),
			description: "Adds two lists of equal length, series by series."},
		{name: "diffSeriesLists", group: groupCombine, run: pairwise("diff"),
			params:      pair("seriesListFirstPos", "seriesListSecondPos"),
			description: "Subtracts a list from another of equal length, series by series."},
		{name: "multiplySeriesLists", group: groupCombine, run: pairwise("multiply"),
			params:      pair("seriesListFirstPos", "seriesListSecondPos"),
			description: "Multiplies two lists of equal length, series by series."},
		{name: "divideSeriesLists", group: groupCombine, run: divideLists,
			params:      pair("dividendSeriesList", "divisorSeriesList"),
			description: "Divides a list by another of equal length, series by series."},
		{name: "divideSeries", group: groupCombine, run: divide, params: pair("dividendSeriesList", "divisorSeries"),
			description: "Divides each series by one series. A division by zero is unknown."},
		{name: "aggregateWithWildcards", group: groupCombine, run: withWildcards(""), params: []param{seriesParam,
			{name: "func", kind: kindString, shown: kindAggregation, required: true},
			{name: "positions", kind: kindNode, multiple: true}},
			description: "Takes the nodes at some positions out of the names, and aggregates the series that then have " +
				"the same name."},
		{name: "sumSeriesWithWildcards", group: groupCombine, run: withWildcards("sum"),
			params:      []param{seriesParam, positions},
			description: "Takes nodes out of the names, and adds the series that then have the same name."},
		{name: "averageSeriesWithWildcards", group: groupCombine, run: withWildcards("average"),
			params:      []param{seriesParam, positions},
			description: "Takes nodes out of the names, and averages the series that then have the same name."},
		{name: "multiplySeriesWithWildcards", group: groupCombine, run: withWildcards("multiply"),
			params:      []param{seriesParam, positions},
			description: "Takes nodes out of the names, and multiplies the series that then have the same name."},
		{name: "groupByNode", group: groupCombine, run: groupByNode, params: []param{seriesParam,
			{name: "nodeNum", kind: kindNodeOrTag, required: true},
			{name: "callback", kind: kindCallback, def: "average"}},
			description: "Groups the series by a node of their names or by a tag, and makes one series of each group."},
		{name: "groupByNodes", group: groupCombine, run: groupByNodes, params: []param{seriesParam,
			{name: "callback", kind: kindCallback, required: true},
			{name: "nodes", kind: kindNodeOrTag, multiple: true}},
			description: "Groups the series by several nodes of their names or tags, and makes one series of each group."},
		{name: "groupByTags", group: groupCombine, run: groupByTags, params: []param{seriesParam,
			{name: "callback", kind: kindCallback, required: true},
			{name: "tags", kind: kindTag, required: true, multiple: true}},
			description: "Groups the series by tags, and makes one series of each group, named by these tags."},
		{name: "group", group: groupCombine, params: []param{{name: "seriesLists", kind: kindSeries, multiple: true}},
			run:         func(c *call) ([]*Series, error) { return c.all(), nil },
			description: "Makes one list of several."},
		{name: "map", aliases: []string{"mapSeries"}, group: groupCombine, lists: mapSeries, params: []param{seriesParam,
			{name: "mapNodes", kind: kindNodeOrTag, required: true, multiple: true}},
			description: "Splits a list into lists of the series with the same nodes, for reduce."},
		{name: "reduce", aliases: []string{"reduceSeries"}, group: groupCombine, run: reduceSeries, params: []param{
			{name: "seriesLists", kind: kindSeriesLists, required: true},
			{name: "reduceFunction", kind: kindString, required: true},
			{name: "reduceNode", kind: kindNode, required: true},
			{name: "reduceMatchers", kind: kindString, required: true, multiple: true}},
			description: "Calls a function for each list that map made, with the series whose node is each of the matchers."},
		{name: "applyByNode", group: groupCombine, run: applyByNode, params: []param{seriesParam,
			{name: "nodeNum", kind: kindNode, required: true},
			{name: "templateFunction", kind: kindString, required: true}, {name: "newName", kind: kindString}},
			description: "Evaluates a target for each different beginning of the names, which stands for % in it."},
		{name: "asPercent", aliases: []string{"pct"}, group: groupCombine, run: asPercent, params: []param{seriesParam,
			{name: "total", kind: kindAny}, {name: "nodes", kind: kindNodeOrTag, multiple: true}},
			description: "Each series as a percentage: of all of them together, of a number, of one series, of the " +
				"series at the same place in another list, or of the total of its group of nodes."},
		{name: "weightedAverage", group: groupCombine, run: weightedAverage, params: append(
			pair("seriesListAvg", "seriesListWeight"), param{name: "nodes", kind: kindNodeOrTag, multiple: true}),
			description: "The mean of a list, weighted by a second one. The series are paired by nodes of their names."},
	}
}

func one(s *Series, err error) ([]*Series, error) {
	if err != nil {
		return nil, err
	}
	return []*Series{s}, nil
}

func aggregateAll(function string) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		list := c.all()
		if len(list) == 0 {
			return nil, nil
		}
		return one(c.aggregate(list, function, c.factorOf(list)))
	}
}

func multiplyAll(c *call) ([]*Series, error) {
	list := c.all()
	if len(list) < 2 {
		return list, nil
	}
	return one(c.aggregate(list, "multiply", c.factorOf(list)))
}

func countAll(c *call) ([]*Series, error) {
	list := c.all()
	if len(list) == 0 {
		if len(c.rest) > 0 {
			return nil, nil
		}
		s := c.constant(0, "0")
		s.PathExpression = "countSeries()"
		return []*Series{s}, nil
	}
	n := float64(len(list))
	return one(c.combine(list, "countSeries("+pathExpressions(list)+")", func([]float64) float64 { return n }))
}

func powAll(c *call) ([]*Series, error) {
	list := c.all()
	if len(list) == 0 {
		return nil, nil
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return one(c.combine(list, "powSeries("+strings.Join(names, ",")+")", func(row []float64) float64 {
		result := row[0]
		for _, v := range row[1:] {
			if result = power(result, v); result != result {
				break
			}
		}
		return result
	}))
}

// power is x to the power of y, or NaN where this is not a real, finite number.
func power(x, y float64) float64 {
	if x != x || y != y {
		return nan
	}
	p := math.Pow(x, y)
	if math.IsInf(p, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nan
	}
	return p
}

func percentileAll(c *call) ([]*Series, error) {
	n := c.float(1)
	if n <= 0 {
		return nil, c.fail("n", "the percentile must be above 0")
	}
	list := c.series(0)
	if len(list) == 0 {
		return nil, nil
	}
	name := fmt.Sprintf("percentileOfSeries(%s,%s)", list[0].PathExpression, formatG(n))
	interpolate := c.truth(2)
	return one(c.combine(list, name, func(row []float64) float64 { return percentileInPlace(row, n, interpolate) }))
}

func aggregateBy(c *call) ([]*Series, error) {
	list := c.series(0)
	if len(list) == 0 {
		return nil, nil
	}
	factor := c.factorOf(list)
	if c.present(2) {
		factor = c.float(2)
	}
	return one(c.aggregate(list, c.text(1), factor))
}

// pairwise aggregates two lists of equal length by position.
func pairwise(function string) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		first, second := c.series(0), c.series(1)
		if len(first) != len(second) {
			return nil, c.fail(c.paramName(1), "it must have as many series as %s: %d, not %d", c.paramName(0), len(first),
				len(second))
		}
		name := function
		if name == "" {
			name = c.text(2)
		}
		out := make([]*Series, 0, len(first))
		for i := range first {
			list := []*Series{first[i], second[i]}
			factor := c.factorOf(list)
			if function == "" && c.present(3) {
				factor = c.float(3)
			}
			s, err := c.aggregate(list, name, factor)
			if err != nil {
				return nil, err
			}
			s.Name = s.Tags["aggregatedBy"] + "Series(" + first[i].Name + "," + second[i].Name + ")"
			out = append(out, s)
		}
		return out, nil
	}
}

func quotient(row []float64) float64 {
	if row[1] == 0 {
		return nan
	}
	return row[0] / row[1]
}

// over makes a series of two, by rows.
func (c *call) over(a, b *Series, name string, f func(row []float64) float64) (*Series, error) {
	return c.combine([]*Series{a, b}, name, f)
}

func divideLists(c *call) ([]*Series, error) {
	first, second := c.series(0), c.series(1)
	if len(first) != len(second) {
		return nil, c.fail(c.paramName(1), "it must have as many series as %s: %d, not %d", c.paramName(0), len(first),
			len(second))
	}
	out := make([]*Series, 0, len(first))
	for i, a := range first {
		s, err := c.over(a, second[i], "divideSeries("+a.Name+","+second[i].Name+")", quotient)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func divide(c *call) ([]*Series, error) {
	divisors := c.series(1)
	if len(divisors) > 1 {
		return nil, c.fail("divisorSeries", "it must be one series, not %d", len(divisors))
	}
	out := make([]*Series, 0, len(c.series(0)))
	for _, a := range c.series(0) {
		if len(divisors) == 0 {
			name := "divideSeries(" + a.Name + ",MISSING)"
			if err := c.compute(int64(len(a.Values))); err != nil {
				return nil, err
			}
			rename(a, name)
			a.Values = repeated(nan, len(a.Values))
			out = append(out, a)
			continue
		}
		s, err := c.over(a, divisors[0], "divideSeries("+a.Name+","+divisors[0].Name+")", quotient)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// grouped is a list by keys, in the order in which the keys came.
type grouped struct {
	keys   []string
	groups map[string][]*Series
}

func groupBy(list []*Series, key func(s *Series) string) grouped {
	g := grouped{groups: map[string][]*Series{}}
	for _, s := range list {
		k := key(s)
		if _, ok := g.groups[k]; !ok {
			g.keys = append(g.keys, k)
		}
		g.groups[k] = append(g.groups[k], s)
	}
	return g
}

func withWildcards(function string) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		name := function
		if name == "" {
			name = c.text(1)
		}
		g := groupBy(c.series(0), func(s *Series) string {
			parts := strings.Split(s.Name, ".")
			kept := make([]string, 0, len(parts))
			for i, p := range parts {
				if !slices.ContainsFunc(c.rest, func(v value) bool { return int(v.number) == i }) {
					kept = append(kept, p)
				}
			}
			return strings.Join(kept, ".")
		})
		out := make([]*Series, 0, len(g.keys))
		for _, k := range g.keys {
			s, err := c.aggregate(g.groups[k], name, c.factorOf(g.groups[k]))
			if err != nil {
				return nil, err
			}
			s.Name = k
			out = append(out, s)
		}
		return out, nil
	}
}

// reduceGroup makes one series of a group by a function of the table or an aggregation.
func (c *call) reduceGroup(callback string, list []*Series) (*Series, error) {
	if f := c.ev.engine.functions.find(callback); f != nil && f.run != nil {
		made, err := c.ev.apply(f, callback, list)
		if err != nil {
			return nil, err
		}
		if len(made) == 0 {
			return nil, nil
		}
		return made[0], nil
	}
	if aggregationByName(strings.TrimSuffix(callback, "Series")) == nil {
		return nil, c.fail("callback", "%q is no function and no aggregation", shorten(callback))
	}
	return c.aggregate(list, callback, c.factorOf(list))
}

func (c *call) groupedBy(list []*Series, callback string, selectors []value) ([]*Series, error) {
	g := groupBy(list, func(s *Series) string { return nodes(s, selectors) })
	out := make([]*Series, 0, len(g.keys))
	for _, k := range g.keys {
		s, err := c.reduceGroup(callback, g.groups[k])
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.Name = k
			out = append(out, s)
		}
	}
	return out, nil
}

func groupByNode(c *call) ([]*Series, error) {
	return c.groupedBy(c.series(0), c.text(2), []value{c.args[1]})
}

func groupByNodes(c *call) ([]*Series, error) { return c.groupedBy(c.series(0), c.text(1), c.rest) }

func groupByTags(c *call) ([]*Series, error) {
	tags := make([]string, 0, len(c.rest))
	byName := false
	for _, v := range c.rest {
		if v.text == "name" {
			byName = true
			continue
		}
		tags = append(tags, v.text)
	}
	sort.Strings(tags)
	tags = slices.Compact(tags)
	list := c.series(0)
	name := c.text(1)
	if !byName && len(list) > 0 {
		if common := commonTags(list)["name"]; common != "" {
			name = common
		}
	}
	g := groupBy(list, func(s *Series) string {
		var b strings.Builder
		if byName {
			b.WriteString(s.Tags["name"])
		} else {
			b.WriteString(name)
		}
		for _, t := range tags {
			if v := s.Tags[t]; v != "" {
				b.WriteString(";" + t + "=" + v)
			}
		}
		return b.String()
	})
	out := make([]*Series, 0, len(g.keys))
	for _, k := range g.keys {
		s, err := c.reduceGroup(c.text(1), g.groups[k])
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.Name, s.PathExpression = k, k
			s.Tags = tagsOf(k)
			out = append(out, s)
		}
	}
	return out, nil
}

func mapSeries(c *call) ([][]*Series, error) {
	g := groupBy(c.series(0), func(s *Series) string { return nodes(s, c.rest) })
	out := make([][]*Series, 0, len(g.keys))
	for _, k := range g.keys {
		out = append(out, g.groups[k])
	}
	return out, nil
}

func reduceSeries(c *call) ([]*Series, error) {
	f := c.ev.engine.functions.find(c.text(1))
	if f == nil || f.run == nil {
		return nil, c.fail("reduceFunction", "there is no function %q", shorten(c.text(1)))
	}
	node := int(c.float(2))
	type entry struct {
		prefix string
		found  [][]*Series
	}
	var order []*entry
	byPrefix := map[string]*entry{}
	for _, list := range c.args[0].lists {
		for _, s := range list {
			parts := strings.Split(s.Name, ".")
			i := node
			if i < 0 {
				i += len(parts)
			}
			if i < 0 || i >= len(parts) {
				return nil, c.fail("reduceNode", "series %q has no node %d", shorten(s.Name), node)
			}
			prefix := strings.Join(parts[:i], ".") + ".reduce." + c.text(1)
			e := byPrefix[prefix]
			if e == nil {
				e = &entry{prefix: prefix, found: make([][]*Series, len(c.rest))}
				byPrefix[prefix] = e
				order = append(order, e)
			}
			for k, m := range c.rest {
				if m.text == parts[i] {
					e.found[k] = []*Series{s}
				}
			}
		}
	}
	var out []*Series
	for _, e := range order {
		for k, l := range e.found {
			if len(l) == 0 {
				return nil, c.fail("reduceMatchers", "%q has no series for %q", shorten(e.prefix), shorten(c.rest[k].text))
			}
		}
		made, err := c.ev.apply(f, c.text(1), e.found...)
		if err != nil {
			return nil, err
		}
		if len(made) == 1 {
			made[0].Name = e.prefix
			out = append(out, made[0])
		} else {
			out = append(out, made...)
		}
	}
	return out, nil
}

func applyByNode(c *call) ([]*Series, error) {
	node := int(c.float(1))
	var prefixes []string
	seen := map[string]bool{}
	for _, s := range c.series(0) {
		parts := strings.Split(pathOf(s.Name), ".")
		n := node + 1
		if n <= 0 {
			n += len(parts)
		}
		p := strings.Join(parts[:max(0, min(n, len(parts)))], ".")
		if !seen[p] {
			seen[p] = true
			prefixes = append(prefixes, p)
		}
	}
	sort.Strings(prefixes)
	var out []*Series
	for _, p := range prefixes {
		list, err := c.ev.text(strings.ReplaceAll(c.text(2), "%", p))
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if c.given(3) && c.present(3) {
				s.Name = strings.ReplaceAll(c.text(3), "%", p)
			}
			s.PathExpression = p
			out = append(out, s)
		}
	}
	return out, nil
}

func percentOf(row []float64) float64 {
	if row[1] == 0 {
		return nan
	}
	return 100 * row[0] / row[1]
}

// percent is a as a percentage of b; a nil b or a is missing.
func (c *call) percent(a, b *Series) (*Series, error) {
	switch {
	case b == nil, a == nil:
		s, name := a, ""
		if a == nil {
			s = b
			name = "asPercent(MISSING," + b.Name + ")"
		} else {
			name = "asPercent(" + a.Name + ",MISSING)"
		}
		if err := c.compute(int64(len(s.Values))); err != nil {
			return nil, err
		}
		made := *s
		rename(&made, name)
		made.Tags = map[string]string{"name": name}
		made.Values = repeated(nan, len(s.Values))
		return &made, nil
	}
	return c.over(a, b, "asPercent("+a.Name+","+b.Name+")", percentOf)
}

func asPercent(c *call) ([]*Series, error) {
	list, against := c.series(0), c.args[1]
	if len(c.rest) > 0 {
		return asPercentByNodes(c)
	}
	if len(list) == 0 {
		return nil, nil
	}
	switch against.kind {
	case noneValue:
		sum, err := c.aggregate(list, "sum", c.request().XFilesFactor)
		if err != nil {
			return nil, err
		}
		return c.percentOfEach(list, true, func(int) *Series { return sum })
	case numberValue, stringValue, boolValue:
		n, ok := against.toNumber()
		if !ok {
			return nil, c.fail("total", "it must be a number or series, not %s", against.describe())
		}
		for _, s := range list {
			if err := c.mapValues(s, func(v float64) float64 { return percentOf([]float64{v, n.number}) }); err != nil {
				return nil, err
			}
			rename(s, "asPercent("+s.Name+","+n.String()+")")
			s.Tags, s.Consolidation = map[string]string{"name": s.Name}, "average"
		}
		return list, nil
	case listsValue:
		return nil, c.fail("total", "it must be a number or series, not lists of series")
	}
	switch len(against.series) {
	case 1:
		return c.percentOfEach(list, len(list) > 1, func(int) *Series { return against.series[0] })
	case len(list):
		totals := slices.Clone(against.series)
		list = slices.Clone(list)
		byName := func(a, b *Series) int { return strings.Compare(a.Name, b.Name) }
		slices.SortStableFunc(totals, byName)
		slices.SortStableFunc(list, byName)
		return c.percentOfEach(list, false, func(i int) *Series { return totals[i] })
	}
	return nil, c.fail("total", "it must be one series or as many as seriesList has: %d, not %d", len(list),
		len(against.series))
}

// percentOfEach keeps the start of each series, or takes the earlier one of it and its total.
func (c *call) percentOfEach(list []*Series, keepStart bool, totalOf func(i int) *Series) ([]*Series, error) {
	out := make([]*Series, 0, len(list))
	for i, s := range list {
		p, err := c.percent(s, totalOf(i))
		if err != nil {
			return nil, err
		}
		if keepStart {
			p.Start, p.End = s.Start, s.Start+int64(len(p.Values))*p.Step
		}
		out = append(out, p)
	}
	return out, nil
}

func asPercentByNodes(c *call) ([]*Series, error) {
	key := func(s *Series) string { return nodes(s, c.rest) }
	g := groupBy(c.series(0), key)
	totals := map[string]*Series{}
	var totalKeys []string
	switch c.args[1].kind {
	case noneValue:
		for _, k := range g.keys {
			s, err := c.aggregate(g.groups[k], "sum", c.factorOf(g.groups[k]))
			if err != nil {
				return nil, err
			}
			totals[k] = s
		}
	case seriesValue:
		t := groupBy(c.args[1].series, key)
		totalKeys = t.keys
		for _, k := range t.keys {
			totals[k] = t.groups[k][0]
			if len(t.groups[k]) > 1 {
				s, err := c.aggregate(t.groups[k], "sum", c.factorOf(t.groups[k]))
				if err != nil {
					return nil, err
				}
				totals[k] = s
			}
		}
	default:
		return nil, c.fail("total", "with nodes it must be None or series")
	}
	var out []*Series
	for _, k := range g.keys {
		for _, s := range g.groups[k] {
			p, err := c.percent(s, totals[k])
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	for _, k := range totalKeys {
		if _, ok := g.groups[k]; !ok {
			p, err := c.percent(nil, totals[k])
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func weightedAverage(c *call) ([]*Series, error) {
	averages, weights := c.series(0), c.series(1)
	if len(averages) != len(weights) {
		return nil, c.fail("seriesListWeight", "it must have as many series as seriesListAvg: %d, not %d", len(averages),
			len(weights))
	}
	if len(averages) == 0 {
		return nil, nil
	}
	key := func(s *Series) string { return nodes(s, c.rest) }
	byKey := map[string]*Series{}
	for _, w := range weights {
		byKey[key(w)] = w
	}
	var list []*Series
	for _, a := range averages {
		if w := byKey[key(a)]; w != nil {
			list = append(list, a, w)
		}
	}
	names := make([]string, len(c.rest))
	for i, v := range c.rest {
		names[i] = v.String()
	}
	name := fmt.Sprintf("weightedAverage(%s, %s, %s)", pathExpressions(averages), pathExpressions(weights),
		strings.Join(names, ","))
	if len(list) == 0 {
		return nil, nil
	}
	factor := c.factorOf(list)
	return one(c.combine(list, name, func(row []float64) float64 {
		sum, weight, known := 0.0, 0.0, 0
		for i := 0; i < len(row); i += 2 {
			if v, w := row[i], row[i+1]; v == v && w == w {
				sum += v * w
				weight += w
				known++
			}
		}
		if weight == 0 || float64(2*known)/float64(len(row)) < factor {
			return nan
		}
		return sum / weight
	}))
}
