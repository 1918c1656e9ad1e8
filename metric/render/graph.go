package render

import (
	"fmt"
	"time"
)

func graphFunctions() []function {
	only := []param{seriesParam}
	value := param{name: "value", kind: kindFloat, required: true}
	label := []param{{name: "label", kind: kindString}, {name: "color", kind: kindString}}
	marked := func(name string, mark func(d *Draw)) func(c *call) ([]*Series, error) {
		return func(c *call) ([]*Series, error) {
			for _, s := range c.series(0) {
				mark(&s.Draw)
				s.Name = name + "(" + s.Name + ")"
				setTag(s, name, "1")
			}
			return c.series(0), nil
		}
	}
	return []function{
		{name: "alpha", group: groupGraph, params: []param{seriesParam,
			{name: "alpha", kind: kindFloat, required: true}},
			run:         drawn(func(c *call, d *Draw) { d.Alpha = c.float(1) }),
			description: "Sets how opaque the series are in images, from 0 to 1."},
		{name: "color", group: groupGraph, params: []param{seriesParam,
			{name: "theColor", kind: kindString, required: true}},
			run:         drawn(func(c *call, d *Draw) { d.Color = c.text(1) }),
			description: "Sets the colour of the series in images: a name, or hexadecimal RGB or RGBA."},
		{name: "lineWidth", group: groupGraph, params: []param{seriesParam,
			{name: "width", kind: kindFloat, required: true}},
			run:         drawn(func(c *call, d *Draw) { d.LineWidth = c.float(1) }),
			description: "Sets the width of the lines in images."},
		{name: "dashed", group: groupGraph, run: dashed, params: []param{seriesParam,
			{name: "dashLength", kind: kindInteger, def: 5, fraction: true}},
			description: "Draws the series with dashes in images."},
		{name: "drawAsInfinite", group: groupGraph, params: only,
			run:         marked("drawAsInfinite", func(d *Draw) { d.DrawAsInfinite = true }),
			description: "Draws each point above 0 as a vertical line, for events."},
		{name: "secondYAxis", group: groupGraph, params: only,
			run:         marked("secondYAxis", func(d *Draw) { d.SecondYAxis = true }),
			description: "Draws the series against the axis on the right."},
		{name: "stacked", group: groupGraph, run: stacked, params: []param{{name: "seriesLists", kind: kindSeries,
			required: true}, {name: "stackName", kind: kindString, def: defaultStack}},
			description: "Stacks the series: each is drawn on top of those before it of the same stack."},
		{name: "areaBetween", group: groupGraph, params: only, run: areaBetween,
			description: "Fills the area between two series."},
		{name: "threshold", group: groupGraph, run: threshold, params: append([]param{value}, label...),
			description: "A horizontal line with a label and a colour."},
		{name: "verticalLine", group: groupGraph, run: verticalLine, params: append([]param{
			{name: "ts", kind: kindDate, required: true}}, label...),
			description: "A vertical line at a time, with a label and a colour."},
		{name: "constantLine", group: groupSpecial, params: []param{value},
			run: func(c *call) ([]*Series, error) {
				return []*Series{c.constantLine(c.float(0))}, nil
			},
			description: "A horizontal line at a value."},
	}
}

const defaultStack = "__DEFAULT__"

func drawn(set func(c *call, d *Draw)) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		for _, s := range c.series(0) {
			set(c, &s.Draw)
		}
		return c.series(0), nil
	}
}

func dashed(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		s.Draw.Dashed = c.float(1)
		s.Name = fmt.Sprintf("dashed(%s, %s)", s.Name, formatG(c.float(1)))
		setTag(s, "dashed", c.args[1].String())
	}
	return c.series(0), nil
}

func stacked(c *call) ([]*Series, error) {
	stack := c.text(1)
	sums := c.ev.shared.stacks[stack]
	for _, s := range c.series(0) {
		for len(sums) < len(s.Values) {
			sums = append(sums, 0)
		}
		i := -1
		err := c.mapValues(s, func(v float64) float64 {
			i++
			if v == v {
				sums[i] += v
				return sums[i]
			}
			return v
		})
		if err != nil {
			return nil, err
		}
		s.Draw.Stacked, s.Draw.StackName, s.PathExpression = true, stack, s.Name
		if stack == defaultStack {
			rename(s, "stacked("+s.Name+")")
			setTag(s, "stacked", stack)
		}
	}
	c.ev.shared.stacks[stack] = sums
	return c.series(0), nil
}

func areaBetween(c *call) ([]*Series, error) {
	list := c.series(0)
	if len(list) != 2 {
		return nil, c.fail("seriesList", "it must be exactly two series, not %d", len(list))
	}
	name := "areaBetween(" + list[1].PathExpression + ")"
	for i, s := range list {
		s.Name = name
		s.Draw.Stacked, s.Draw.StackName, s.Draw.Invisible = true, name, i == 0
		setTag(s, "areaBetween", "1")
	}
	return list, nil
}

// constant is a line of three points over the request's range.
func (c *call) constant(v float64, name string) *Series {
	r := c.request()
	return &Series{Name: name, PathExpression: name, Tags: map[string]string{"name": name}, Start: r.From, End: r.Until,
		Step: max(1, (r.Until-r.From)/2), Values: repeated(v, 3), Consolidation: "average", ValuesPerPoint: 1,
		XFilesFactor: r.XFilesFactor}
}

func (c *call) constantLine(v float64) *Series {
	s := c.constant(v, formatFloat(v))
	s.PathExpression = "constantLine(" + s.Name + ")"
	return s
}

func threshold(c *call) ([]*Series, error) {
	s := c.constantLine(c.float(0))
	if label := c.text(1); label != "" {
		s.Name = label
	}
	s.Draw.Color = c.text(2)
	return []*Series{s}, nil
}

func verticalLine(c *call) ([]*Series, error) {
	t, err := c.time(c.text(0))
	if err != nil {
		return nil, c.fail("ts", "%v", err)
	}
	r, at := c.request(), t.Unix()
	switch {
	case at < r.From:
		return nil, c.fail("ts", "%s is before the range", time.Unix(at, 0).In(r.Location).Format(time.DateTime))
	case at > r.Until:
		return nil, c.fail("ts", "%s is after the range", time.Unix(at, 0).In(r.Location).Format(time.DateTime))
	}
	name := c.text(1)
	if name == "" {
		name = "None"
	}
	return []*Series{{Name: name, PathExpression: name, Tags: map[string]string{"name": name}, Start: at, End: at + 1,
		Step: 1, Values: []float64{1}, Consolidation: "average", ValuesPerPoint: 1,
		Draw: Draw{Color: c.text(2), DrawAsInfinite: true}}}, nil
}
