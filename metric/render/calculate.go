package render

import (
	"fmt"
	"math"
	"strings"
	"time"
)

func calculateFunctions() []function {
	window := param{name: "windowSize", kind: kindIntOrInterval, required: true}
	factor := param{name: "xFilesFactor", kind: kindFloat}
	delta := param{name: "delta", kind: kindInteger, def: 3, fraction: true}
	bootstrap := param{name: "bootstrapInterval", kind: kindInterval, def: "7d", suggestions: []any{"7d", "30d"}}
	season := param{name: "seasonality", kind: kindInterval, def: "1d", suggestions: []any{"1d", "7d"}}
	moving := func(name, aggregated, what string) function {
		return function{name: name, group: groupCalculate, lazy: true, params: []param{seriesParam, window, factor},
			run:         func(c *call) ([]*Series, error) { return c.moving(aggregated, 2) },
			description: "The " + what + " of the points in a window that ends at each point."}
	}
	return []function{
		moving("movingAverage", "average", "mean"),
		moving("movingMedian", "median", "median"),
		moving("movingSum", "sum", "sum"),
		moving("movingMin", "min", "smallest"),
		moving("movingMax", "max", "largest"),
		{name: "movingWindow", group: groupCalculate, lazy: true, params: []param{seriesParam, window,
			{name: "func", kind: kindAggregation, def: "average"}, factor},
			run:         func(c *call) ([]*Series, error) { return c.moving(c.text(2), 3) },
			description: "An aggregation of the points in a window that ends at each point."},
		{name: "exponentialMovingAverage", group: groupCalculate, lazy: true, params: []param{seriesParam, window},
			run:         exponentialMovingAverage,
			description: "A moving average in which newer points weigh more: 2/(window+1) of the newest."},
		{name: "stdev", group: groupCalculate, run: movingDeviation, params: []param{seriesParam,
			{name: "points", kind: kindInteger, required: true},
			{name: "windowTolerance", kind: kindFloat, def: 0.1}},
			description: "The standard deviation of the last points at each point, where enough of them are known."},
		{name: "linearRegression", group: groupCalculate, lazy: true, run: linearRegression, params: []param{seriesParam,
			{name: "startSourceAt", kind: kindDate}, {name: "endSourceAt", kind: kindDate}},
			description: "The line that fits the points of a range of time best."},
		{name: "nPercentile", group: groupCalculate, run: nPercentile, params: []param{seriesParam,
			{name: "n", kind: kindFloat, required: true}},
			description: "A line at the n-th percentile of each series."},
		{name: "aggregateLine", group: groupCalculate, run: aggregateLine, params: []param{seriesParam,
			{name: "func", kind: kindAggregation, def: "average"}, {name: "keepStep", kind: kindBool, def: false}},
			description: "A line at an aggregate of each series."},
		{name: "holtWintersForecast", group: groupCalculate, lazy: true, run: holtWintersForecast,
			params:      []param{seriesParam, bootstrap, season},
			description: "A forecast from the earlier points of a series and its season, by triple exponential smoothing."},
		{name: "holtWintersConfidenceBands", group: groupCalculate, lazy: true, run: holtWintersBands,
			params:      []param{seriesParam, delta, bootstrap, season},
			description: "A band around the forecast, of delta times the usual deviation from it."},
		{name: "holtWintersConfidenceArea", group: groupCalculate, lazy: true, run: holtWintersArea,
			params:      []param{seriesParam, delta, bootstrap, season},
			description: "The band around the forecast as an area."},
		{name: "holtWintersAberration", group: groupCalculate, lazy: true, run: holtWintersAberration,
			params:      []param{seriesParam, delta, bootstrap, season},
			description: "How far a series is outside the band around its forecast; 0 inside."},
	}
}

// window is the size of a moving window.
type window struct {
	// points is set for a window of points; else seconds is.
	points, seconds int64
	text            string
}

// mostWindow bounds a window in points.
const mostWindow = 10_000_000

func (c *call) window(i int) (window, error) {
	v := c.args[i]
	if v.kind == numberValue {
		n := math.Trunc(math.Abs(v.number))
		if n > mostWindow {
			return window{}, c.fail(c.paramName(i), "a window has at most %d points", mostWindow)
		}
		return window{points: int64(n), seconds: -1, text: v.String()}, nil
	}
	d, err := ParseInterval(v.text)
	if err != nil {
		return window{}, c.fail(c.paramName(i), "%v", err)
	}
	return window{seconds: int64(d.Abs() / time.Second), text: "\"" + v.text + "\""}, nil
}

// windowed evaluates the first argument so that each point has a full window before it.
func (c *call) windowed(w window) (list []*Series, skips []int, preview int64, err error) {
	preview = w.seconds
	if preview < 0 {
		here, err := c.ev.target(c.first)
		if err != nil || len(here) == 0 {
			return nil, nil, 0, err
		}
		step := int64(0)
		for _, s := range here {
			step = max(step, s.Step)
		}
		if w.points > maxStep/step {
			return nil, nil, 0, c.fail("windowSize", "the window is longer than a century")
		}
		preview = step * w.points
	}
	list, skips, err = c.preview(preview)
	return list, skips, preview, err
}

func (w window) of(s *Series) int {
	if w.seconds < 0 {
		return int(w.points)
	}
	return int(w.seconds / s.Step)
}

func (c *call) moving(function string, factorAt int) ([]*Series, error) {
	w, err := c.window(1)
	if err != nil {
		return nil, err
	}
	f := forScratch(function)
	name := "moving" + strings.ToUpper(function[:1]) + strings.ToLower(function[1:])
	list, skips, _, err := c.windowed(w)
	if err != nil {
		return nil, err
	}
	for i, s := range list {
		factor := s.XFilesFactor
		if c.present(factorAt) {
			factor = c.float(factorAt)
		}
		n, skip := w.of(s), skips[i]
		out := repeated(nan, len(s.Values)-skip)
		switch {
		case n == 0:
		case function == "average" || function == "sum":
			err = c.movingSum(s.Values, out, skip, n, factor, function == "average")
		default:
			if err = c.compute(int64(len(out)) * int64(min(n, len(s.Values)))); err == nil {
				known := make([]float64, 0, min(n, len(s.Values)))
				for j := range out {
					end := skip + j + 1
					known = known[:0]
					for _, v := range s.Values[max(0, end-n):end] {
						if v == v {
							known = append(known, v)
						}
					}
					if len(known) > 0 && float64(len(known))/float64(n) >= factor {
						out[j] = f(known)
					}
				}
			}
		}
		if err != nil {
			return nil, err
		}
		c.cut(s, skip, out)
		setTag(s, name, strings.Trim(w.text, "\""))
		rename(s, name+"("+s.Name+","+w.text+")")
	}
	return list, nil
}

// cut replaces the values of s by those from skip on.
func (c *call) cut(s *Series, skip int, values []float64) {
	s.Start += int64(skip) * s.Step
	s.Values = values
	s.End = s.Start + int64(len(values))*s.Step
}

// movingSum is the sum or mean of windows. It begins each block of rows with a new sum, so that rounding errors and
// infinities do not spread.
func (c *call) movingSum(values, out []float64, skip, n int, factor float64, average bool) error {
	if err := c.compute(int64(len(values)) * 2); err != nil {
		return err
	}
	// Short windows are added up anew each time: it costs as little, and small differences do not vanish.
	const short, block = 16, 64
	sum, known := 0.0, 0
	for j := range out {
		end := skip + j + 1
		begin := max(0, end-n)
		if n <= short || j%max(block, n) == 0 || math.IsInf(sum, 0) || sum != sum {
			sum, known = sumKnown(values[begin:end])
		} else {
			if v := values[end-1]; v == v {
				sum += v
				known++
			}
			if end-1-n >= 0 {
				if v := values[end-1-n]; v == v {
					sum -= v
					known--
				}
			}
		}
		if known > 0 && float64(known)/float64(n) >= factor {
			out[j] = sum
			if average {
				out[j] = sum / float64(known)
			}
		}
	}
	return nil
}

func exponentialMovingAverage(c *call) ([]*Series, error) {
	w, err := c.window(1)
	if err != nil {
		return nil, err
	}
	list, skips, _, err := c.windowed(w)
	if err != nil {
		return nil, err
	}
	span := float64(w.seconds)
	if w.seconds < 0 {
		span = float64(w.points)
	}
	weight := 2 / (span + 1)
	for i, s := range list {
		skip := skips[i]
		if err := c.compute(int64(len(s.Values))); err != nil {
			return nil, err
		}
		sum, known := sumKnown(s.Values[max(0, skip-w.of(s)):skip])
		average := 0.0
		if known > 0 {
			average = sum / float64(known)
		}
		out := make([]float64, 0, len(s.Values)-skip+1)
		out = append(out, roundHalfEven(average, 6))
		for _, v := range s.Values[skip:] {
			if v == v {
				average = weight*v + (1-weight)*average
				out = append(out, roundHalfEven(average, 6))
			} else {
				out = append(out, nan)
			}
		}
		end := s.End
		c.cut(s, skip, out)
		s.End = end
		setTag(s, "exponentialMovingAverage", strings.Trim(w.text, "\""))
		rename(s, "exponentialMovingAverage("+s.Name+","+w.text+")")
	}
	return list, nil
}

func movingDeviation(c *call) ([]*Series, error) {
	points, tolerance := c.integer(1), c.float(2)
	if points < 1 || points > mostWindow {
		return nil, c.fail("points", "it must be from 1 to %d", mostWindow)
	}
	for _, s := range c.series(0) {
		if err := c.compute(int64(len(s.Values)) * int64(min(points, len(s.Values)))); err != nil {
			return nil, err
		}
		out := make([]float64, len(s.Values))
		for i := range out {
			group := s.Values[max(0, i+1-points) : i+1]
			known := countKnown(group)
			if known == 0 || known/float64(points) < tolerance {
				out[i] = nan
				continue
			}
			out[i] = deviation(group)
		}
		s.Values = out
		rename(s, fmt.Sprintf("stdev(%s,%d)", s.Name, points))
		setTag(s, "stdev", c.args[1].String())
	}
	return c.series(0), nil
}

func linearRegression(c *call) ([]*Series, error) {
	r := c.request()
	from, until := r.From, r.Until
	for i, to := range []*int64{&from, &until} {
		if c.present(i + 1) {
			t, err := c.time(c.text(i + 1))
			if err != nil {
				return nil, c.fail(c.paramName(i+1), "%v", err)
			}
			*to = t.Unix()
		}
	}
	if from >= until {
		return nil, c.fail("startSourceAt", "it must be before endSourceAt")
	}
	list, err := c.ev.target(c.first)
	if err != nil {
		return nil, err
	}
	source := list
	if from != r.From || until != r.Until {
		if source, err = c.ev.over(from, until).target(c.first); err != nil {
			return nil, err
		}
	}
	var out []*Series
	for i, s := range list {
		if i >= len(source) {
			break
		}
		slope, base, ok := fitLine(source[i])
		if !ok {
			continue
		}
		if err := c.compute(int64(len(s.Values))); err != nil {
			return nil, err
		}
		values := make([]float64, len(s.Values))
		for j := range values {
			values[j] = base + slope*float64(s.Start+int64(j)*s.Step-source[i].Start)
		}
		s.Values = values
		s.Consolidation, s.XFilesFactor = "average", c.factorOf([]*Series{s})
		rename(s, fmt.Sprintf("linearRegression(%s, %d, %d)", s.Name, from, until))
		setTag(s, "linearRegressions", fmt.Sprintf("%d, %d", from, until))
		out = append(out, s)
	}
	return out, nil
}

// fitLine returns the line of least squares, with times relative to the start of s.
func fitLine(s *Series) (slope, base float64, ok bool) {
	var n, sumT, sumV, meanT float64
	for i, v := range s.Values {
		if v == v {
			n++
			sumT += float64(int64(i) * s.Step)
			sumV += v
		}
	}
	if n == 0 {
		return 0, 0, false
	}
	meanT = sumT / n
	meanV := sumV / n
	var squares, products float64
	for i, v := range s.Values {
		if v == v {
			d := float64(int64(i)*s.Step) - meanT
			squares += d * d
			products += d * (v - meanV)
		}
	}
	if squares == 0 {
		return 0, 0, false
	}
	slope = products / squares
	return slope, meanV - slope*meanT, true
}

func nPercentile(c *call) ([]*Series, error) {
	n := c.float(1)
	if n <= 0 || n > 100 {
		return nil, c.fail("n", "the percentile must be above 0 and at most 100")
	}
	var out []*Series
	for _, s := range c.series(0) {
		if err := c.compute(int64(len(s.Values))); err != nil {
			return nil, err
		}
		p := percentile(s.Values, n, false)
		if p != p {
			continue
		}
		s.Values = repeated(p, len(s.Values))
		rename(s, fmt.Sprintf("nPercentile(%s, %s)", s.Name, formatG(n)))
		setTag(s, "nPercentile", formatFloat(n))
		out = append(out, s)
	}
	return out, nil
}

func aggregateLine(c *call) ([]*Series, error) {
	f := c.aggregation(1)
	var out []*Series
	for _, s := range c.series(0) {
		v := nan
		if countKnown(s.Values) > 0 {
			v = f(s.Values)
		}
		text := "None"
		if v == v {
			text = formatG(v)
		}
		name := "aggregateLine(" + s.Name + ", " + text + ")"
		line := s
		if c.truth(2) {
			if err := c.compute(int64(len(s.Values))); err != nil {
				return nil, err
			}
			s.Values = repeated(v, len(s.Values))
		} else {
			line = c.constant(v, formatKnown(v))
			if c.text(1) == "count" {
				line = c.constant(v, formatWhole(v))
			}
			line.XFilesFactor, line.outer = s.XFilesFactor, s.outer
		}
		rename(line, name)
		out = append(out, line)
	}
	return out, nil
}

// The constants of the smoothing: how fast level, slope and season follow.
const (
	smoothLevel  = 0.1
	smoothSlope  = 0.0035
	smoothSeason = 0.1
)

// forecast is what holtWinters makes of a series.
type forecast struct {
	expected, deviations []float64
}

// holtWinters predicts each value from those before it: level and slope follow the series, and so do the season's
// values and the deviations from the prediction, each of the same place in the season before.
func holtWinters(values []float64, season int) forecast {
	n := len(values)
	f := forecast{expected: make([]float64, n), deviations: make([]float64, n)}
	seasonal := make([]float64, n)
	before := func(list []float64, i int) float64 {
		if j := i - season; j >= 0 && j < n && season > 0 {
			return list[j]
		}
		return 0
	}
	level, slope, next := nan, 0.0, nan
	for i, v := range values {
		f.expected[i] = next
		if v != v {
			// An unknown value breaks the chain; the next known one begins a new level.
			level, slope, next = nan, 0, nan
			continue
		}
		lastLevel := level
		if i == 0 {
			f.expected[i] = v
		}
		if level != level {
			lastLevel = v
		}
		expected := f.expected[i]
		if expected != expected {
			expected = 0
		}
		lastSeason := before(seasonal, i)
		level = smoothLevel*(v-lastSeason) + (1-smoothLevel)*(lastLevel+slope)
		slope = smoothSlope*(level-lastLevel) + (1-smoothSlope)*slope
		seasonal[i] = smoothSeason*(v-level) + (1-smoothSeason)*lastSeason
		f.deviations[i] = smoothSeason*math.Abs(v-expected) + (1-smoothSeason)*before(f.deviations, i)
		next = level + slope + before(seasonal, i+1)
	}
	return f
}

// holtWintersAll returns the series with their forecasts and deviations over the request's range. The parameters begin
// at the given index.
func (c *call) holtWintersAll(at int) (list []*Series, forecasts []forecast, err error) {
	bootstrap, err := c.seconds(at)
	if err != nil {
		return nil, nil, err
	}
	season, err := c.seconds(at + 1)
	if err != nil {
		return nil, nil, err
	}
	list, skips, err := c.preview(bootstrap)
	if err != nil {
		return nil, nil, err
	}
	for i, s := range list {
		if err := c.compute(4 * int64(len(s.Values))); err != nil {
			return nil, nil, err
		}
		f := holtWinters(s.Values, int(season/s.Step))
		skip := skips[i]
		forecasts = append(forecasts, forecast{expected: f.expected[skip:], deviations: f.deviations[skip:]})
		c.cut(s, skip, s.Values[skip:])
		s.Consolidation = "average"
	}
	return list, forecasts, nil
}

func holtWintersForecast(c *call) ([]*Series, error) {
	list, forecasts, err := c.holtWintersAll(1)
	if err != nil {
		return nil, err
	}
	for i, s := range list {
		s.Values = forecasts[i].expected
		rename(s, "holtWintersForecast("+s.Name+")")
		setTag(s, "holtWintersForecast", "1")
		setTag(s, "holtWintersDeviation", "1")
	}
	return list, nil
}

// band returns the lower or upper edge of the confidence band.
func (f forecast) band(delta float64) []float64 {
	out := make([]float64, len(f.expected))
	for i, v := range f.expected {
		out[i] = v + delta*f.deviations[i]
	}
	return out
}

func holtWintersBands(c *call) ([]*Series, error) {
	list, forecasts, err := c.holtWintersAll(2)
	if err != nil {
		return nil, err
	}
	var out []*Series
	for i, s := range list {
		for _, edge := range [...]struct {
			name string
			sign float64
		}{{"Lower", -1}, {"Upper", 1}} {
			made := *s
			made.Tags = map[string]string{}
			for k, v := range s.Tags {
				made.Tags[k] = v
			}
			made.Name = "holtWintersConfidence" + edge.name + "(" + s.Name + ")"
			made.Values = forecasts[i].band(edge.sign * c.float(1))
			for _, t := range [...]string{"Forecast", "Deviation", "ConfidenceUpper", "ConfidenceLower"} {
				setTag(&made, "holtWinters"+t, "1")
			}
			out = append(out, &made)
		}
	}
	return out, nil
}

func holtWintersArea(c *call) ([]*Series, error) {
	bands, err := holtWintersBands(c)
	if err != nil {
		return nil, err
	}
	for i, s := range bands {
		inner := strings.TrimSuffix(s.Name[strings.IndexByte(s.Name, '(')+1:], ")")
		rename(s, "holtWintersConfidenceArea("+inner+")")
		s.Draw.Stacked = true
		s.Draw.StackName = fmt.Sprintf("holtWintersConfidenceArea %d", i/2)
		s.Draw.Invisible = i%2 == 0
		setTag(s, "holtWintersConfidenceArea", "1")
	}
	return bands, nil
}

func holtWintersAberration(c *call) ([]*Series, error) {
	list, forecasts, err := c.holtWintersAll(2)
	if err != nil {
		return nil, err
	}
	for i, s := range list {
		low, high := forecasts[i].band(-c.float(1)), forecasts[i].band(c.float(1))
		out := make([]float64, len(s.Values))
		for j, v := range s.Values {
			switch {
			case v > high[j]:
				out[j] = v - high[j]
			case v < low[j]:
				out[j] = v - low[j]
			}
		}
		s.Values = out
		rename(s, "holtWintersAberration("+s.Name+")")
		setTag(s, "holtWintersAberration", "1")
	}
	return list, nil
}
