package render

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

func timeFunctions() []function {
	shifts := []any{"1h", "6h", "12h", "1d", "2d", "7d", "14d", "30d"}
	interval := param{name: "intervalString", kind: kindInterval, required: true, suggestions: []any{"10min", "1h", "1d"}}
	name := param{name: "name", kind: kindString, required: true}
	step := param{name: "step", kind: kindInteger, def: 60}
	sum := param{name: "func", kind: kindAggregation, def: "sum"}
	return []function{
		{name: "summarize", group: groupTransform, run: summarize, params: []param{seriesParam, interval, sum,
			{name: "alignToFrom", kind: kindBool, def: false}},
			description: "Makes one point of all in an interval. Intervals begin at multiples of their length, or at the " +
				"beginning of the range with alignToFrom."},
		{name: "smartSummarize", group: groupTransform, run: smartSummarize, lazy: true, params: []param{seriesParam,
			interval, sum, {name: "alignTo", kind: kindAny, shown: kindString,
				suggestions: []any{"seconds", "minutes", "hours", "days", "weeks", "months", "years"}}},
			description: "As summarize, with intervals that begin at the beginning of the range, which may be moved back " +
				"to that of a minute, hour, day, week (weeks3: Wednesday), month or year."},
		{name: "hitcount", group: groupTransform, run: hitcount, lazy: true, params: []param{seriesParam, interval,
			{name: "alignToInterval", kind: kindBool, def: false}},
			description: "Estimates how many hits each interval had from a series of hits per second."},
		{name: "timeShift", group: groupTransform, run: timeShift, lazy: true, params: []param{seriesParam,
			{name: "timeShift", kind: kindInterval, required: true, suggestions: shifts},
			{name: "resetEnd", kind: kindBool, def: true}, {name: "alignDST", kind: kindBool, def: false}},
			description: "Shows a series as it was some time ago."},
		{name: "timeStack", group: groupTransform, run: timeStack, lazy: true, params: []param{seriesParam,
			{name: "timeShiftUnit", kind: kindInterval, def: "1d", suggestions: shifts},
			{name: "timeShiftStart", kind: kindInteger, def: 0}, {name: "timeShiftEnd", kind: kindInteger, def: 7}},
			description: "Shows a series several times, each time shifted by one more interval."},
		{name: "timeSlice", group: groupTransform, run: timeSlice, params: []param{seriesParam,
			{name: "startSliceAt", kind: kindDate, required: true}, {name: "endSliceAt", kind: kindDate, def: "now"}},
			description: "Makes all points unknown that are not between two times."},
		{name: "timeFunction", aliases: []string{"time"}, group: groupTransform, params: []param{name, step},
			run:         func(c *call) ([]*Series, error) { return c.generate(int64(c.integer(1)), nil) },
			description: "A line whose value is the time, in Unix seconds."},
		{name: "identity", group: groupCalculate, params: []param{name},
			run: func(c *call) ([]*Series, error) {
				list, err := c.generate(60, nil)
				if err == nil {
					list[0].PathExpression = "identity(\"" + c.text(0) + "\")"
				}
				return list, err
			},
			description: "A line whose value is the time, with a point each minute."},
		{name: "sinFunction", aliases: []string{"sin"}, group: groupTransform, params: []param{name,
			{name: "amplitude", kind: kindInteger, def: 1, fraction: true}, step},
			run: func(c *call) ([]*Series, error) {
				size := c.float(1)
				return c.generate(int64(c.integer(2)), func(t int64) float64 { return math.Sin(float64(t)) * size })
			},
			description: "The sine of the time in seconds, for tests."},
		{name: "randomWalkFunction", aliases: []string{"randomWalk"}, group: groupSpecial, params: []param{name, step},
			run:         randomWalk,
			description: "A random walk from 0, for tests. The same name and time give the same steps."},
	}
}

// generate makes a series of a function of time; nil is the time itself.
func (c *call) generate(step int64, f func(t int64) float64) ([]*Series, error) {
	if step < 1 || step > maxStep {
		return nil, c.fail("step", "it must be at least 1 second and at most a century")
	}
	r := c.request()
	n := (r.Until - r.From + step - 1) / step
	if err := c.compute(n); err != nil {
		return nil, err
	}
	values := make([]float64, n)
	for i := range values {
		t := r.From + int64(i)*step
		if f == nil {
			values[i] = float64(t)
		} else {
			values[i] = f(t)
		}
	}
	name := c.text(0)
	return []*Series{{Name: name, PathExpression: name, Tags: tagsOf(name), Start: r.From, End: r.From + n*step,
		Step: step, Values: values, Consolidation: "average", ValuesPerPoint: 1, XFilesFactor: r.XFilesFactor}}, nil
}

func randomWalk(c *call) ([]*Series, error) {
	seed := uint64(14695981039346656037)
	for _, b := range []byte(c.text(0)) {
		seed = (seed ^ uint64(b)) * 1099511628211
	}
	at := 0.0
	first := true
	return c.generate(int64(c.integer(1)), func(t int64) float64 {
		if first {
			first = false
			return at
		}
		// The finaliser of SplitMix64: neighbouring times give unrelated numbers.
		x := seed + uint64(t)*0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		at += float64((x^x>>31)>>11)/(1<<53) - 0.5
		return at
	})
}

// bucketed makes a value of each interval from start to end.
func (c *call) bucketed(s *Series, start, end, interval int64, f aggregation,
	known func(have, all int) bool) ([]float64, error) {
	n := (end - start + interval - 1) / interval
	if err := c.compute(n + int64(len(s.Values))); err != nil {
		return nil, err
	}
	out := repeated(nan, int(n))
	for i := 0; i < len(s.Values); {
		bucket := (s.Start + int64(i)*s.Step - start) / interval
		j := i
		for j < len(s.Values) && (s.Start+int64(j)*s.Step-start)/interval == bucket {
			j++
		}
		if bucket >= 0 && bucket < n {
			group := s.Values[i:j]
			if have := int(countKnown(group)); have > 0 && known(have, len(group)) {
				out[bucket] = f(group)
			}
		}
		i = j
	}
	return out, nil
}

func summarize(c *call) ([]*Series, error) {
	interval, err := c.seconds(1)
	if err != nil {
		return nil, err
	}
	f, name := c.aggregation(2), c.text(2)
	for _, s := range c.series(0) {
		start, end := s.Start, s.End
		if !c.truth(3) {
			start, end = series.Floor(s.Start, interval), series.Floor(s.End, interval)+interval
		}
		full := float64(interval) / float64(s.Step)
		factor := s.XFilesFactor
		values, err := c.bucketed(s, start, end, interval, f,
			func(have, _ int) bool { return float64(have)/full >= factor })
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("summarize(%s, \"%s\", \"%s\"", s.Name, c.text(1), name)
		if c.truth(3) {
			text += ", true"
		}
		c.summarized(s, text+")", start, interval, values)
		setTag(s, "summarize", c.text(1))
		setTag(s, "summarizeFunction", name)
	}
	return c.series(0), nil
}

func (c *call) summarized(s *Series, name string, start, interval int64, values []float64) {
	rename(s, name)
	s.Start, s.Step, s.Values = start, interval, values
	s.End = start + int64(len(values))*interval
}

func smartSummarize(c *call) ([]*Series, error) {
	interval, err := c.seconds(1)
	if err != nil {
		return nil, err
	}
	f, name := c.aggregation(2), c.text(2)
	from := c.request().From
	if c.args[3].kind == stringValue {
		if from, err = c.alignTo(c.text(3), from); err != nil {
			return nil, err
		}
	}
	list, err := c.ev.over(from, c.request().Until).target(c.first)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		factor := s.XFilesFactor
		values, err := c.bucketed(s, s.Start, s.End, interval, f,
			func(have, all int) bool { return float64(have)/float64(all) >= factor })
		if err != nil {
			return nil, err
		}
		c.summarized(s, fmt.Sprintf("smartSummarize(%s, \"%s\", \"%s\")", s.Name, c.text(1), name), s.Start, interval,
			values)
		setTag(s, "smartSummarize", c.text(1))
		setTag(s, "smartSummarizeFunction", name)
	}
	return list, nil
}

// alignTo returns the beginning of the minute, hour, day, week, month or year of a time.
func (c *call) alignTo(unit string, from int64) (int64, error) {
	t := time.Unix(from, 0).In(c.request().Location)
	lower := strings.ToLower(strings.TrimSpace(unit))
	weekday := 1
	if rest, ok := strings.CutPrefix(lower, "weeks"); ok && len(rest) == 1 && rest[0] >= '1' && rest[0] <= '7' {
		weekday, lower = int(rest[0]-'0'), "weeks"
	}
	switch lower {
	case "none", "":
		return from, nil
	}
	length, ok := intervalUnit(lower)
	if !ok {
		return 0, c.fail("alignTo", "%q is no unit: use seconds, minutes, hours, days, weeks, weeks1 to weeks7, months "+
			"or years", shorten(unit))
	}
	y, m, d := t.Date()
	hour, minute, second := t.Clock()
	switch length {
	case time.Second:
	case time.Minute:
		second = 0
	case time.Hour:
		minute, second = 0, 0
	default:
		hour, minute, second = 0, 0, 0
		switch length {
		case 7 * 24 * time.Hour:
			d -= (int(t.Weekday()) + 7 - weekday) % 7
		case 30 * 24 * time.Hour:
			d = 1
		case 365 * 24 * time.Hour:
			m, d = 1, 1
		}
	}
	return time.Date(y, m, d, hour, minute, second, 0, t.Location()).Unix(), nil
}

func hitcount(c *call) ([]*Series, error) {
	interval, err := c.seconds(1)
	if err != nil {
		return nil, err
	}
	from := c.request().From
	if c.truth(2) {
		unit := ""
		switch {
		case interval >= 86400:
			unit = "days"
		case interval >= 3600:
			unit = "hours"
		case interval >= 60:
			unit = "minutes"
		}
		if from, err = c.alignTo(unit, from); err != nil {
			return nil, err
		}
	}
	list, err := c.ev.over(from, c.request().Until).target(c.first)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		var start, n int64
		if c.truth(2) {
			n = (s.End-s.Start)/interval + 1
			start = s.Start
		} else {
			n = (s.End - s.Start + interval - 1) / interval
			start = s.End - n*interval
		}
		values, err := c.hits(s, start, interval, n)
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("hitcount(%s, \"%s\"", s.Name, c.text(1))
		if c.truth(2) {
			text += ", true"
		}
		c.summarized(s, text+")", start, interval, values)
		setTag(s, "hitcount", c.text(1))
	}
	return list, nil
}

// hits adds value × seconds of each point to the intervals over which the point's step goes.
func (c *call) hits(s *Series, start, interval, n int64) ([]float64, error) {
	if err := c.compute(n + int64(len(s.Values)) + n*max(0, s.Step/interval)); err != nil {
		return nil, err
	}
	out := repeated(nan, int(n))
	for i, v := range s.Values {
		if v != v {
			continue
		}
		from := s.Start + int64(i)*s.Step - start
		to := from + s.Step
		for from < to {
			bucket := from / interval
			next := min(to, (bucket+1)*interval)
			if bucket >= 0 && bucket < n {
				if out[bucket] != out[bucket] {
					out[bucket] = 0
				}
				out[bucket] += v * float64(next-from)
			}
			from = next
		}
	}
	return out, nil
}

// shift reads an interval that goes back unless it has a sign, and its text with the sign.
func (c *call) shift(i int) (int64, string, error) {
	text := c.text(i)
	if text == "" || text[0] != '-' && text[0] != '+' {
		text = "-" + text
	}
	d, err := ParseInterval(text)
	if err != nil {
		return 0, "", c.fail(c.paramName(i), "%v", err)
	}
	return int64(d / time.Second), text, nil
}

// shifted evaluates the first argument at another time.
func (c *call) shifted(by int64) ([]*Series, error) {
	r := c.request()
	const most = int64(1) << 41
	if r.From+by < -most || r.Until+by > most {
		return nil, c.fail("", "the time is out of range")
	}
	return c.ev.over(r.From+by, r.Until+by).target(c.first)
}

func timeShift(c *call) ([]*Series, error) {
	by, text, err := c.shift(1)
	if err != nil {
		return nil, err
	}
	here, err := c.ev.target(c.first)
	if err != nil || len(here) == 0 {
		return nil, err
	}
	if c.truth(3) {
		by += c.summerTime(by)
	}
	list, err := c.shifted(by)
	if err != nil {
		return nil, err
	}
	start, end := here[0].Start, here[0].End
	for _, s := range list {
		s.Name = fmt.Sprintf("timeShift(%s, \"%s\")", s.Name, text)
		length := s.End - s.Start
		s.Start, s.End = start, start+length
		if c.truth(2) {
			s.End = end
		}
		setTag(s, "timeShift", text)
	}
	return list, nil
}

// summerTime is what to add to a shift so that it keeps the hour of the day, if the whole range and the whole shifted
// range are on different sides of a change of the clock.
func (c *call) summerTime(by int64) int64 {
	r := c.request()
	in := func(t int64) bool { return time.Unix(t, 0).In(r.Location).IsDST() }
	switch {
	case in(r.From) && in(r.Until) && !in(r.From+by) && !in(r.Until+by):
		return 3600
	case !in(r.From) && !in(r.Until) && in(r.From+by) && in(r.Until+by):
		return -3600
	}
	return 0
}

func timeStack(c *call) ([]*Series, error) {
	by, text, err := c.shift(1)
	if err != nil {
		return nil, err
	}
	from, to := c.integer(2), c.integer(3)
	const most = 1000
	if from < -most || to > most {
		return nil, c.fail("timeShiftEnd", "shifts go from -%d to %d", most, most)
	}
	here, err := c.ev.target(c.first)
	if err != nil || len(here) == 0 {
		return nil, err
	}
	var out []*Series
	for i := from; i < to; i++ {
		list, err := c.shifted(by * int64(i))
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			rename(s, fmt.Sprintf("timeShift(%s, %s, %d)", s.Name, text, i))
			s.Start, s.End = here[0].Start, here[0].End
			setTag(s, "timeShiftUnit", text)
			setTag(s, "timeShift", strconv.Itoa(i))
			out = append(out, s)
		}
	}
	return out, nil
}

func timeSlice(c *call) ([]*Series, error) {
	from, err := c.time(c.text(1))
	if err != nil {
		return nil, c.fail("startSliceAt", "%v", err)
	}
	to, err := c.time(c.text(2))
	if err != nil {
		return nil, c.fail("endSliceAt", "%v", err)
	}
	for _, s := range c.series(0) {
		t := s.Start
		err := c.mapValues(s, func(v float64) float64 {
			at := t
			t += s.Step
			if at < from.Unix() || at > to.Unix() {
				return nan
			}
			return v
		})
		if err != nil {
			return nil, err
		}
		s.Name = fmt.Sprintf("timeSlice(%s, %d, %d)", s.Name, from.Unix(), to.Unix())
		setTag(s, "timeSliceStart", strconv.FormatInt(from.Unix(), 10))
		setTag(s, "timeSliceEnd", strconv.FormatInt(to.Unix(), 10))
	}
	return c.series(0), nil
}

// preview evaluates the first argument over a range that begins some seconds before the request's, and cuts the
// result: it returns the series with the number of points that are before the request's range.
func (c *call) preview(seconds int64) ([]*Series, []int, error) {
	r := c.request()
	list, err := c.ev.over(r.From-seconds, r.Until).target(c.first)
	if err != nil {
		return nil, nil, err
	}
	kept := list[:0:0]
	var skips []int
	for _, s := range list {
		skip := seconds / s.Step
		if s.Start > r.From-seconds+s.Step || seconds%s.Step != 0 {
			// The store does not reach back so far, or the window is no multiple of the step: the result begins where the
			// range or the series does.
			skip = 0
			if s.Start <= r.From {
				skip = (r.From-s.Start)/s.Step + 1
			}
		}
		if skip < int64(len(s.Values)) {
			kept = append(kept, s)
			skips = append(skips, int(skip))
		}
	}
	return slices.Clip(kept), skips, nil
}
