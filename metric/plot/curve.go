package plot

import (
	"image/color"
	"math"

	"github.com/lapwing-monitoring/lapwing/metric/render"
)

// curve is a series as it is drawn.
type curve struct {
	name   string
	color  color.NRGBA
	width  float64
	dash   float64
	right  bool // on the second axis
	start  int64
	end    int64
	step   int64
	values []float64 // NaN is a gap
	// area is how opaque the area below the curve is, or 0. It reaches down to base, or to zero if base is nil.
	area     float64
	base     []float64
	infinite bool // vertical lines where there is a value
	hidden   bool
	unnamed  bool // without an entry in the legend
	empty    bool // without a value
}

// curves prepares the series of an image that has room for width points in a row.
func curves(list []*render.Series, width int, o *Options) []curve {
	all := make([]curve, 0, min(len(list), MaxSeries))
	for _, s := range list {
		if len(all) == MaxSeries {
			break
		}
		if s.Step <= 0 {
			continue
		}
		c := curve{name: s.Name, color: o.Colors[len(all)%len(o.Colors)], width: o.LineWidth, dash: s.Draw.Dashed,
			right: s.Draw.SecondYAxis, infinite: s.Draw.DrawAsInfinite, hidden: s.Draw.Invisible, unnamed: s.Draw.Invisible}
		if named, ok := parseColor(s.Draw.Color); ok {
			c.color = named
		}
		if s.Draw.LineWidth > 0 {
			c.width = min(s.Draw.LineWidth, 100)
		}
		if s.Draw.Alpha > 0 {
			c.color = faded(c.color, s.Draw.Alpha)
		}
		c.start, c.step, c.values = consolidated(s, width)
		// constantLine() and others end long before a whole step behind their last value.
		if c.end = s.End; c.end < s.Start+int64(len(s.Values)-1)*s.Step {
			c.end = s.Start + int64(len(s.Values))*s.Step
		}
		c.clean(o.DrawNullAsZero && !c.infinite)
		all = append(all, c)
	}
	fillAreas(all, list, o)
	return all
}

// clean removes values that cannot be drawn.
func (c *curve) clean(nullAsZero bool) {
	c.empty = true
	for i, v := range c.values {
		if math.IsInf(v, 0) {
			v = math.NaN()
		}
		if !math.IsNaN(v) {
			c.empty = false
		} else if nullAsZero {
			v = 0
		}
		c.values[i] = v
	}
}

// consolidated returns a copy of the values of s, at most about one for each of width pixels.
func consolidated(s *render.Series, width int) (start, step int64, values []float64) {
	per := (len(s.Values) + width - 1) / max(width, 1)
	if per <= 1 {
		return s.Start, s.Step, append([]float64(nil), s.Values...)
	}
	values = make([]float64, 0, len(s.Values)/per+1)
	for i := 0; i < len(s.Values); i += per {
		values = append(values, consolidate(s.Consolidation, s.Values[i:min(i+per, len(s.Values))]))
	}
	return s.Start, s.Step * int64(per), values
}

func consolidate(function string, values []float64) float64 {
	known := 0
	var sum, least, most, first, last float64
	for _, v := range values {
		if math.IsNaN(v) {
			continue
		}
		if known == 0 {
			least, most, first = v, v, v
		}
		least, most, last = min(least, v), max(most, v), v
		sum += v
		known++
	}
	if known == 0 {
		return math.NaN()
	}
	switch function {
	case "sum":
		return sum
	case "max":
		return most
	case "min":
		return least
	case "first":
		return first
	case "last":
		return last
	case "avg_zero":
		return sum / float64(len(values))
	}
	return sum / float64(known)
}

// The opacity of areas, unless the request sets it.
const (
	plainArea   = 0.3
	stackedArea = 0.75
)

// fillAreas decides which curves have areas below them. The values of a series of stacked() or areaBetween() are totals
// already, and its area reaches down to the series before it in the same stack. areaMode=stacked makes the totals here.
func fillAreas(all []curve, list []*render.Series, o *Options) {
	alpha := func(otherwise float64) float64 {
		if math.IsNaN(o.AreaAlpha) {
			return otherwise
		}
		return o.AreaAlpha
	}
	stacks := map[string]int{} // the index of the curve that is on top
	var total *curve
	i := -1
	for _, s := range list {
		if s.Step <= 0 {
			continue
		}
		if i++; i == len(all) {
			break
		}
		c := &all[i]
		switch {
		case c.infinite:
		case s.Draw.Stacked:
			c.area = alpha(stackedArea)
			if below, ok := stacks[s.Draw.StackName]; ok {
				c.base = all[below].on(c)
			}
			stacks[s.Draw.StackName] = i
		case o.AreaMode == StackedArea && !c.right:
			c.area = alpha(stackedArea)
			if total != nil {
				c.base = total.on(c)
				for k, v := range c.values {
					switch below := c.base[k]; {
					case math.IsNaN(v):
						c.values[k] = below
					case !math.IsNaN(below):
						c.values[k] = v + below
					}
				}
			}
			total = c
		case o.AreaMode == AllAreas, o.AreaMode == FirstArea && i == 0:
			c.area = alpha(plainArea)
		}
		if c.hidden {
			c.area = 0
		}
	}
}

// on returns the values of c at the times of another curve.
func (c *curve) on(other *curve) []float64 {
	values := make([]float64, len(other.values))
	for i := range values {
		values[i] = math.NaN()
		at := other.start + int64(i)*other.step - c.start
		if k := at / c.step; at >= 0 && k < int64(len(c.values)) {
			values[i] = c.values[k]
		}
	}
	return values
}

// extent returns the least and the largest value on one of the axes, or NaN if there is none.
func extent(all []curve, right bool, logarithmic bool) (low, high float64) {
	low, high = math.NaN(), math.NaN()
	include := func(v float64) {
		if math.IsNaN(v) || logarithmic && v <= 0 {
			return
		}
		if math.IsNaN(low) {
			low, high = v, v
		}
		low, high = min(low, v), max(high, v)
	}
	for i := range all {
		c := &all[i]
		if c.right != right || c.infinite || c.hidden {
			continue
		}
		for _, v := range c.values {
			include(v)
		}
		for _, v := range c.base {
			include(v)
		}
		if c.area > 0 && c.base == nil && !c.empty {
			include(0)
		}
	}
	return low, high
}
