package render

import (
	"fmt"
	"slices"
	"strings"
)

func specialFunctions() []function {
	only := []param{seriesParam}
	factor := []param{seriesParam, {name: "xFilesFactor", kind: kindFloat, required: true}}
	return []function{
		{name: "seriesByTag", group: groupSpecial, run: seriesByTag, params: []param{
			{name: "tagExpressions", kind: kindString, required: true, multiple: true}},
			description: "The series that match all tag expressions, as 'name=~disk.*' or 'dc!=ams'."},
		{name: "consolidateBy", group: groupSpecial, params: []param{seriesParam,
			{name: "consolidationFunc", kind: kindString, required: true, options: consolidations()}},
			run:         func(c *call) ([]*Series, error) { return c.consolidateBy(c.text(1)), nil },
			description: "Sets how several points become one where a graph or another series has a larger step."},
		{name: "cumulative", group: groupSpecial, params: only,
			run:         func(c *call) ([]*Series, error) { return c.consolidateBy("sum"), nil },
			description: "The same as consolidateBy(…, 'sum')."},
		{name: "setXFilesFactor", aliases: []string{"xFilesFactor"}, group: groupSpecial, params: factor,
			run: func(c *call) ([]*Series, error) {
				f := c.float(1)
				if f < 0 || f > 1 {
					return nil, c.fail("xFilesFactor", "it must be from 0 to 1")
				}
				for _, s := range c.series(0) {
					s.XFilesFactor, s.outer = f, &f
					setTag(s, "xFilesFactor", formatFloat(f))
				}
				return c.series(0), nil
			},
			description: "Sets the share of points that must be known where several become one, from 0 to 1."},
		{name: "changed", group: groupSpecial, params: only, run: changed,
			description: "1 where a point differs from the known point before it, else 0."},
		{name: "fallbackSeries", group: groupSpecial, params: []param{seriesParam,
			{name: "fallback", kind: kindSeries, required: true}},
			run: func(c *call) ([]*Series, error) {
				if len(c.series(0)) > 0 {
					return c.series(0), nil
				}
				return c.series(1), nil
			},
			description: "The fallback if there are no series."},
		{name: "events", group: groupSpecial, run: events, params: []param{
			{name: "tags", kind: kindString, required: true, multiple: true}},
			description: "The number of events with all these tags in each second. '*' is all events."},
	}
}

func consolidations() []string { return append(aggregationNames(), "first") }

func seriesByTag(c *call) ([]*Series, error) {
	expressions := make([]string, len(c.rest))
	for i, v := range c.rest {
		expressions[i] = v.text
	}
	return c.ev.fetchTagged(expressions, c.expr.String())
}

func (c *call) consolidateBy(function string) []*Series {
	for _, s := range c.series(0) {
		s.Consolidation = function
		rename(s, fmt.Sprintf("consolidateBy(%s,\"%s\")", s.Name, function))
		setTag(s, "consolidateBy", function)
	}
	return c.series(0)
}

func changed(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		previous := nan
		err := c.mapValues(s, func(v float64) float64 {
			last := previous
			if v == v {
				previous = v
				if last == last && last != v {
					return 1
				}
			}
			return 0
		})
		if err != nil {
			return nil, err
		}
		rename(s, "changed("+s.Name+")")
	}
	return c.series(0), nil
}

func events(c *call) ([]*Series, error) {
	tags := make([]string, len(c.rest))
	quoted := make([]string, len(c.rest))
	for i, v := range c.rest {
		tags[i] = v.text
		quoted[i] = "\"" + v.text + "\""
	}
	name := "events(" + strings.Join(quoted, ", ") + ")"
	if slices.Equal(tags, []string{"*"}) {
		tags = nil
	}
	r := c.request()
	n := r.Until - r.From
	if err := c.compute(n); err != nil {
		return nil, err
	}
	values := repeated(nan, int(n))
	if find := c.ev.engine.options.Events; find != nil {
		times, err := find(c.ev.ctx, tags, r.From, r.Until)
		if err != nil {
			return nil, fmt.Errorf("find events: %w", err)
		}
		for _, t := range times {
			if i := t - r.From; i >= 0 && i < n {
				if values[i] != values[i] {
					values[i] = 0
				}
				values[i]++
			}
		}
	}
	return []*Series{{Name: name, PathExpression: name, Tags: map[string]string{"name": name}, Start: r.From,
		End: r.Until, Step: 1, Values: values, Consolidation: "sum", ValuesPerPoint: 1,
		XFilesFactor: r.XFilesFactor}}, nil
}
