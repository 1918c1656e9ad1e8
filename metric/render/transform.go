package render

import (
	"fmt"
	"math"
	"strconv"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// mostDecimals bounds the precision of round; a float has no more.
const mostDecimals = 308

func transformFunctions() []function {
	constant := func(name string) []param {
		return []param{seriesParam, {name: name, kind: kindFloat, required: true}}
	}
	only := []param{seriesParam}
	limits := []param{seriesParam, {name: "maxValue", kind: kindFloat}, {name: "minValue", kind: kindFloat}}
	limit := []param{seriesParam, {name: "limit", kind: kindIntOrInf, def: math.Inf(1)}}
	return []function{
		{name: "scale", group: groupTransform, params: constant("factor"),
			run:         arithmetic("scale", formatG, func(v, k float64) float64 { return v * k }),
			description: "Multiplies each point by a number."},
		{name: "offset", group: groupTransform, params: constant("factor"),
			run:         arithmetic("offset", formatG, func(v, k float64) float64 { return v + k }),
			description: "Adds a number to each point."},
		{name: "add", group: groupTransform, params: constant("constant"),
			run:         arithmetic("add", formatWhole, func(v, k float64) float64 { return v + k }),
			description: "Adds a number to each point. Names show its whole part."},
		{name: "pow", group: groupTransform, params: constant("factor"), run: arithmetic("pow", formatG, power),
			description: "Raises each point to a power. A result that is no real number is unknown."},
		{name: "scaleToSeconds", group: groupTransform, params: constant("seconds"), run: scaleToSeconds,
			description: "Turns a value per step into a value per some number of seconds."},
		{name: "absolute", group: groupTransform, params: only, run: pointwise("absolute", "1", math.Abs),
			description: "The absolute value of each point."},
		{name: "exp", group: groupTransform, params: only, run: pointwise("exp", "e", finite(math.Exp)),
			description: "The base of the natural logarithm raised to the power of each point."},
		{name: "squareRoot", group: groupTransform, params: only, run: pointwise("squareRoot", "1", math.Sqrt),
			description: "The square root of each point. That of a negative point is unknown."},
		{name: "invert", group: groupTransform, params: only, run: pointwise("invert", "1", invert),
			description: "One divided by each point. That of zero is unknown."},
		{name: "logit", group: groupTransform, params: only, run: pointwise("logit", "logit", logit),
			description: "The logarithm of x/(1-x) for each point x between 0 and 1."},
		{name: "sigmoid", group: groupTransform, params: only, run: pointwise("sigmoid", "sigmoid", sigmoid),
			description: "1/(1+exp(-x)) for each point x."},
		{name: "isNonNull", group: groupTransform, params: only, run: pointwise("isNonNull", "1", isKnown),
			description: "1 where a point is known and 0 where it is not. Its sum counts the series that have data."},
		{name: "log", group: groupTransform, run: logarithm, params: []param{seriesParam,
			{name: "base", kind: kindInteger, def: 10, fraction: true}},
			description: "The logarithm of each point. That of zero or less is unknown."},
		{name: "round", group: groupTransform, run: roundTo, params: []param{seriesParam,
			{name: "precision", kind: kindInteger}},
			description: "Rounds each point to some decimals; a half goes to the even neighbour."},
		{name: "minMax", group: groupTransform, params: only, run: minMax,
			description: "Moves and scales each series so that it goes from 0 to 1."},
		{name: "offsetToZero", group: groupTransform, params: only, run: offsetToZero,
			description: "Subtracts from each series its smallest point."},
		{name: "transformNull", group: groupTransform, run: transformNull, params: []param{seriesParam,
			{name: "default", kind: kindFloat, def: 0}, {name: "referenceSeries", kind: kindSeries}},
			description: "Puts a number where points are unknown. With a reference, only where one of its series is known."},
		{name: "keepLastValue", group: groupTransform, params: limit, run: keepLastValue,
			description: "Fills gaps of at most limit points with the point before them."},
		{name: "interpolate", group: groupTransform, params: limit, run: interpolate,
			description: "Fills gaps of at most limit points with a line from the point before to the point behind."},
		{name: "derivative", group: groupTransform, params: only, run: derivative,
			description: "The difference from each point to the next."},
		{name: "nonNegativeDerivative", group: groupTransform, params: limits, run: nonNegativeDerivative,
			description: "The difference from each point to the next for a counter: where it falls, the point is unknown, " +
				"or the counter is taken to have wrapped at maxValue."},
		{name: "perSecond", group: groupTransform, params: limits, run: perSecond,
			description: "The rate per second of a counter; a fall is handled as nonNegativeDerivative does."},
		{name: "integral", group: groupTransform, params: only, run: integral,
			description: "The running sum of a series."},
		{name: "integralByInterval", group: groupTransform, run: integralByInterval, params: []param{seriesParam,
			{name: "intervalUnit", kind: kindInterval, required: true, suggestions: []any{"1h", "1d"}}},
			description: "The running sum of a series, which begins again at zero after each interval."},
		{name: "delay", group: groupTransform, run: delay, params: []param{seriesParam,
			{name: "steps", kind: kindInteger, required: true}},
			description: "Moves the points of a series some steps to the right."},
		{name: "compressPeriodicGaps", group: groupTransform, params: only, run: compressPeriodicGaps,
			description: "Finds the real step of a series whose points are only in every n-th place, and leaves the rest out."},
	}
}

func formatWhole(f float64) string {
	return strconv.FormatFloat(math.Trunc(f)+0, 'f', 0, 64)
}

// arithmetic is a function of each point and a number.
func arithmetic(name string, format func(float64) string, f func(v, k float64) float64) func(*call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		k := c.float(1)
		for _, s := range c.series(0) {
			if err := c.mapValues(s, func(v float64) float64 { return f(v, k) }); err != nil {
				return nil, err
			}
			rename(s, name+"("+s.Name+","+format(k)+")")
			setTag(s, name, formatFloat(k))
		}
		return c.series(0), nil
	}
}

func pointwise(name, tag string, f func(float64) float64) func(*call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		for _, s := range c.series(0) {
			if err := c.mapValues(s, f); err != nil {
				return nil, err
			}
			rename(s, name+"("+s.Name+")")
			setTag(s, name, tag)
		}
		return c.series(0), nil
	}
}

// finite makes a result that is too large for a float unknown.
func finite(f func(float64) float64) func(float64) float64 {
	return func(v float64) float64 {
		if r := f(v); !math.IsInf(r, 0) {
			return r
		}
		return nan
	}
}

func invert(v float64) float64 {
	if v == 0 {
		return nan
	}
	return 1 / v
}

func logit(v float64) float64 {
	if v > 0 && v < 1 {
		return math.Log(v / (1 - v))
	}
	return nan
}

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

func isKnown(v float64) float64 {
	if v == v {
		return 1
	}
	return 0
}

func scaleToSeconds(c *call) ([]*Series, error) {
	seconds := c.float(1)
	for _, s := range c.series(0) {
		factor := seconds / float64(s.Step)
		if err := c.mapValues(s, func(v float64) float64 { return roundHalfEven(v*factor, 6) }); err != nil {
			return nil, err
		}
		rename(s, "scaleToSeconds("+s.Name+","+formatWhole(seconds)+")")
		setTag(s, "scaleToSeconds", formatFloat(seconds))
	}
	return c.series(0), nil
}

func logarithm(c *call) ([]*Series, error) {
	base := c.float(1)
	if base <= 0 || base == 1 {
		return nil, c.fail("base", "it must be above 0 and not 1")
	}
	scale := math.Log(base)
	text := c.args[1].String()
	for _, s := range c.series(0) {
		err := c.mapValues(s, func(v float64) float64 {
			switch {
			case !(v > 0):
				return nan
			case base == 10:
				return math.Log10(v)
			case base == 2:
				return math.Log2(v)
			}
			return math.Log(v) / scale
		})
		if err != nil {
			return nil, err
		}
		rename(s, "log("+s.Name+", "+text+")")
		setTag(s, "log", text)
	}
	return c.series(0), nil
}

// roundHalfEven rounds the decimal text of v, so that the half of 2.675 is what its digits say.
func roundHalfEven(v float64, decimals int) float64 {
	if v != v || math.IsInf(v, 0) {
		return v
	}
	if decimals >= 0 {
		if a := math.Abs(v); a < 1e9 && decimals <= 6 {
			// The common case, without text: right unless the scaled value is so near a half that it needs all digits.
			p := math.Pow10(decimals)
			scaled := v * p
			if f := math.Abs(scaled - math.Trunc(scaled)); math.Abs(f-0.5) > 1e-6 {
				return math.RoundToEven(scaled) / p
			}
		}
		r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', min(decimals, mostDecimals), 64), 64)
		if err != nil {
			return v
		}
		return r
	}
	p := math.Pow10(min(-decimals, mostDecimals))
	return math.RoundToEven(v/p) * p
}

func roundTo(c *call) ([]*Series, error) {
	decimals := c.integer(1)
	for _, s := range c.series(0) {
		if err := c.mapValues(s, func(v float64) float64 { return roundHalfEven(v, decimals) }); err != nil {
			return nil, err
		}
		if c.present(1) {
			rename(s, fmt.Sprintf("round(%s,%d)", s.Name, decimals))
		} else {
			rename(s, "round("+s.Name+")")
		}
		setTag(s, "round", strconv.Itoa(decimals))
	}
	return c.series(0), nil
}

func minMax(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		low, high := minimum(s.Values), maximum(s.Values)
		err := c.mapValues(s, func(v float64) float64 {
			if v == v && high == low {
				return 0
			}
			return (v - low) / (high - low)
		})
		if err != nil {
			return nil, err
		}
		rename(s, "minMax("+s.Name+")")
	}
	return c.series(0), nil
}

func offsetToZero(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		low := minimum(s.Values)
		if err := c.mapValues(s, func(v float64) float64 { return v - low }); err != nil {
			return nil, err
		}
		rename(s, "offsetToZero("+s.Name+")")
		setTag(s, "offsetToZero", formatKnown(low))
	}
	return c.series(0), nil
}

// formatKnown is formatFloat, or None for an unknown value.
func formatKnown(v float64) string {
	if v != v {
		return "None"
	}
	return formatFloat(v)
}

func transformNull(c *call) ([]*Series, error) {
	def, reference := c.float(1), c.series(2)
	var known []bool
	if len(reference) > 0 {
		n, err := c.normalise(reference)
		if err != nil {
			return nil, err
		}
		known = make([]bool, n.rows)
		err = n.each(c, func(i int, row []float64) { known[i] = countKnown(row) > 0 })
		if err != nil {
			return nil, err
		}
	}
	tag := "0"
	if c.given(1) {
		tag = formatFloat(def)
	}
	for _, s := range c.series(0) {
		i := -1
		err := c.mapValues(s, func(v float64) float64 {
			i++
			if v != v && (known == nil || i < len(known) && known[i]) {
				return def
			}
			return v
		})
		if err != nil {
			return nil, err
		}
		if known != nil {
			rename(s, "transformNull("+s.Name+","+formatG(def)+",referenceSeries)")
			setTag(s, "referenceSeries", "1")
		} else {
			rename(s, "transformNull("+s.Name+","+formatG(def)+")")
		}
		setTag(s, "transformNull", tag)
	}
	return c.series(0), nil
}

func keepLastValue(c *call) ([]*Series, error) {
	limit := c.float(1)
	return c.fillGaps("keepLastValue", func(values []float64, from, to int) {
		if from == 0 || float64(to-from) > limit {
			return
		}
		for i := from; i < to; i++ {
			values[i] = values[from-1]
		}
	})
}

func interpolate(c *call) ([]*Series, error) {
	limit := c.float(1)
	return c.fillGaps("interpolate", func(values []float64, from, to int) {
		if from == 0 || to == len(values) || float64(to-from) > limit {
			return
		}
		first, last, n := values[from-1], values[to], float64(to-from+1)
		for i := from; i < to; i++ {
			values[i] = first + float64(i-from+1)*(last-first)/n
		}
	})
}

// fillGaps calls fill for each run of unknown values.
func (c *call) fillGaps(name string, fill func(values []float64, from, to int)) ([]*Series, error) {
	for _, s := range c.series(0) {
		if err := c.mapValues(s, func(v float64) float64 { return v }); err != nil {
			return nil, err
		}
		for from := 0; from < len(s.Values); from++ {
			to := from
			for to < len(s.Values) && s.Values[to] != s.Values[to] {
				to++
			}
			if to > from {
				fill(s.Values, from, to)
				from = to
			}
		}
		rename(s, name+"("+s.Name+")")
	}
	return c.series(0), nil
}

func derivative(c *call) ([]*Series, error) {
	return c.withPrevious("derivative", func(*Series) func(v float64) float64 {
		previous := nan
		return func(v float64) float64 {
			d := v - previous
			previous = v
			return d
		}
	})
}

// withPrevious renames each series and maps its values by a function that step makes for it.
func (c *call) withPrevious(name string, step func(s *Series) func(v float64) float64) ([]*Series, error) {
	for _, s := range c.series(0) {
		if err := c.mapValues(s, step(s)); err != nil {
			return nil, err
		}
		rename(s, name+"("+s.Name+")")
		setTag(s, name, "1")
	}
	return c.series(0), nil
}

// counter returns a function that gives the increase of a counter from call to call.
func (c *call) counter() (func(v float64) float64, error) {
	high, low := nan, nan
	if c.present(1) {
		high = c.float(1)
	}
	if c.present(2) {
		low = c.float(2)
	}
	if high <= low {
		return nil, c.fail("minValue", "it must be below maxValue")
	}
	previous := nan
	return func(v float64) float64 {
		if v > high || v < low {
			v = nan
		}
		last := previous
		previous = v
		switch {
		case v != v || last != last:
			return nan
		case v >= last:
			return v - last
		case high == high:
			if low == low {
				return high + 1 + v - last - low
			}
			return high + 1 + v - last
		case low == low:
			return v - low
		}
		return nan
	}, nil
}

func nonNegativeDerivative(c *call) ([]*Series, error) {
	if _, err := c.counter(); err != nil {
		return nil, err
	}
	return c.withPrevious("nonNegativeDerivative", func(*Series) func(v float64) float64 {
		f, _ := c.counter()
		return f
	})
}

func perSecond(c *call) ([]*Series, error) {
	if _, err := c.counter(); err != nil {
		return nil, err
	}
	return c.withPrevious("perSecond", func(s *Series) func(v float64) float64 {
		f, _ := c.counter()
		step := float64(s.Step)
		return func(v float64) float64 { return roundHalfEven(f(v)/step, 6) }
	})
}

func integral(c *call) ([]*Series, error) {
	return c.withPrevious("integral", func(*Series) func(v float64) float64 {
		sum := 0.0
		return func(v float64) float64 {
			if v != v {
				return v
			}
			sum += v
			return sum
		}
	})
}

func integralByInterval(c *call) ([]*Series, error) {
	d, err := ParseInterval(c.text(1))
	if err != nil {
		return nil, c.fail("intervalUnit", "%v", err)
	}
	interval := int64(math.Abs(d.Seconds()))
	if interval == 0 {
		return nil, c.fail("intervalUnit", "interval %q: it must not be zero", shorten(c.text(1)))
	}
	for _, s := range c.series(0) {
		sum, t := 0.0, s.Start-c.request().From
		step := s.Step
		err := c.mapValues(s, func(v float64) float64 {
			if series.Floor(t, interval) != series.Floor(t-step, interval) {
				sum = 0
			}
			t += step
			if v == v {
				sum += v
			}
			return sum
		})
		if err != nil {
			return nil, err
		}
		rename(s, "integralByInterval("+s.Name+",'"+c.text(1)+"')")
		setTag(s, "integralByInterval", c.text(1))
	}
	return c.series(0), nil
}

func delay(c *call) ([]*Series, error) {
	steps := c.integer(1)
	for _, s := range c.series(0) {
		if err := c.compute(int64(len(s.Values))); err != nil {
			return nil, err
		}
		moved := repeated(nan, len(s.Values))
		for i := range moved {
			if j := i - steps; j >= 0 && j < len(moved) {
				moved[i] = s.Values[j]
			}
		}
		s.Values = moved
		rename(s, fmt.Sprintf("delay(%s,%d)", s.Name, steps))
		setTag(s, "delay", strconv.Itoa(steps))
	}
	return c.series(0), nil
}

func compressPeriodicGaps(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		first, every := periodOf(s.Values)
		if every > 1 {
			kept := make([]float64, 0, len(s.Values)/every+1)
			for i := first; i < len(s.Values); i += every {
				kept = append(kept, s.Values[i])
			}
			s.Values = kept
			s.Start += int64(first) * s.Step
			s.Step *= int64(every)
			s.End = s.Start + int64(len(kept))*s.Step
		}
		rename(s, "compressPeriodicGaps("+s.Name+")")
	}
	return c.series(0), nil
}

// periodOf returns the first known value and how many places there are from one known value to the next, if all known
// values are in such places; else 0 and 1.
func periodOf(values []float64) (first, every int) {
	first, last, n := -1, -1, 0
	for i, v := range values {
		if v != v {
			continue
		}
		if first < 0 {
			first = i
		} else {
			n = gcd(n, i-last)
		}
		last = i
	}
	if n < 2 {
		return 0, 1
	}
	return first, n
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
