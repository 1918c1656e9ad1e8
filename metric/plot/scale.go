package plot

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// tick is a labelled place on an axis.
type tick struct {
	at    float64
	label string
}

// scale is a vertical axis: values from low to high.
type scale struct {
	low, high float64
	log       float64 // base, or 0
	ticks     []tick
}

// place returns where v is, from 0 at the bottom to 1 at the top. It is outside of that for values off the axis, and
// NaN for a value that has no place on a logarithmic axis.
func (s *scale) place(v float64) float64 {
	low, high := s.low, s.high
	if s.log > 1 {
		if v <= 0 {
			return math.NaN()
		}
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	// Halves, so that the ends of the range of floats do not overflow.
	return (v/2 - low/2) / (high/2 - low/2)
}

// newScale makes an axis for values from low to high, which are NaN if there are none. fixedLow and fixedHigh are the
// ends that the request wants, or NaN. Up to n ticks fit.
func newScale(low, high, fixedLow, fixedHigh float64, n int, o *Options) scale {
	if math.IsNaN(low) {
		low, high = 0, 1
	}
	if !math.IsNaN(fixedLow) {
		low = fixedLow
	}
	if !math.IsNaN(fixedHigh) {
		high = fixedHigh
	}
	n = max(n, 2)
	if o.LogBase > 1 && high > 0 {
		return logScale(low, high, n, o)
	}
	if low == high && math.IsNaN(fixedLow) && math.IsNaN(fixedHigh) && low != 0 {
		around := math.Abs(low) * 0.1
		low, high = low-around, high+around
	}
	if !(low < high) {
		if math.IsNaN(fixedHigh) || !math.IsNaN(fixedLow) {
			high = low + max(1, math.Abs(low)*0.1)
		} else {
			low = high - max(1, math.Abs(high)*0.1)
		}
	}
	step := niceStep(high/float64(n)-low/float64(n), o.Binary && !o.PlainUnits)
	if math.IsInf(step, 0) || step <= 0 {
		return scale{low: low, high: high}
	}
	s := scale{low: low, high: high}
	if math.IsNaN(fixedLow) {
		s.low = math.Floor(low/step) * step
	}
	if math.IsNaN(fixedHigh) {
		s.high = math.Ceil(high/step) * step
	}
	if math.IsInf(s.low, 0) || math.IsInf(s.high, 0) {
		s.low, s.high = low, high
	}
	for i, at := 0.0, math.Ceil(s.low/step-1e-9); i <= 2*float64(n)+2; i++ {
		v := (at + i) * step
		if v > s.high+step*1e-9 {
			break
		}
		s.ticks = append(s.ticks, tick{v, formatValue(v, step, o)})
	}
	return s
}

// logScale makes a logarithmic axis with ticks at powers of the base.
func logScale(low, high float64, n int, o *Options) scale {
	if low <= 0 {
		low = min(high/o.LogBase, 1)
	}
	bottom := math.Floor(math.Log(low)/math.Log(o.LogBase) + 1e-9)
	top := math.Ceil(math.Log(high)/math.Log(o.LogBase) - 1e-9)
	if top <= bottom {
		top = bottom + 1
	}
	s := scale{low: math.Pow(o.LogBase, bottom), high: math.Pow(o.LogBase, top), log: o.LogBase}
	if s.low == 0 || math.IsInf(s.high, 0) {
		return scale{low: low, high: high}
	}
	every := math.Ceil((top - bottom) / float64(n))
	for e := bottom; e <= top; e += max(every, 1) {
		v := math.Pow(o.LogBase, e)
		s.ticks = append(s.ticks, tick{v, formatPower(v, o)})
	}
	return s
}

// formatPower writes a value of a logarithmic axis.
func formatPower(v float64, o *Options) string {
	plain := *o
	plain.Binary = o.Binary && math.Log2(o.LogBase) == math.Trunc(math.Log2(o.LogBase))
	if o.LogBase != math.Trunc(o.LogBase) {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return formatValue(v, v, &plain)
}

// niceStep returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below least. With binary it is a
// power of 2.
func niceStep(least float64, binary bool) float64 {
	if !(least > 0) {
		return 1
	}
	if binary && least >= 1 {
		return math.Pow(2, math.Ceil(math.Log2(least)))
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// formatValue writes a value of an axis whose ticks are step apart.
func formatValue(v, step float64, o *Options) string {
	if math.Abs(v) < step*1e-6 {
		return "0"
	}
	base, units := 1000.0, []string{"", "k", "M", "G", "T", "P", "E"}
	if o.Binary {
		base, units = 1024, []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	}
	size := math.Max(math.Abs(v), step)
	if size >= math.Pow(base, float64(len(units))) || size < 1e-4 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	unit := 0
	for !o.PlainUnits && unit+1 < len(units) && size >= base {
		size, v, step, unit = size/base, v/base, step/base, unit+1
	}
	digits := 0
	for rest := step; step < 1e9 && digits < 6 && math.Abs(rest-math.Round(rest)) > 1e-6; rest *= 10 {
		digits++
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if units[unit] != "" {
		text += " " + units[unit]
	}
	return text
}

// timeStep is a distance of ticks on the axis of time: seconds, or else days, or else months.
type timeStep struct {
	seconds, days, months int
	format                string
}

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
)

var timeSteps = []timeStep{
	{seconds: 1, format: "15:04:05"}, {seconds: 2, format: "15:04:05"}, {seconds: 5, format: "15:04:05"},
	{seconds: 10, format: "15:04:05"}, {seconds: 15, format: "15:04:05"}, {seconds: 30, format: "15:04:05"},
	{seconds: minute, format: "15:04"}, {seconds: 2 * minute, format: "15:04"}, {seconds: 5 * minute, format: "15:04"},
	{seconds: 10 * minute, format: "15:04"}, {seconds: 15 * minute, format: "15:04"},
	{seconds: 30 * minute, format: "15:04"},
	{seconds: hour, format: "15:04"}, {seconds: 2 * hour, format: "15:04"}, {seconds: 3 * hour, format: "15:04"},
	{seconds: 6 * hour, format: "Mon 15:04"}, {seconds: 12 * hour, format: "Mon 15:04"},
	{days: 1, format: "Jan 2"}, {days: 2, format: "Jan 2"}, {days: 7, format: "Jan 2"}, {days: 14, format: "Jan 2"},
	{months: 1, format: "Jan 2006"}, {months: 2, format: "Jan 2006"}, {months: 3, format: "Jan 2006"},
	{months: 6, format: "Jan 2006"}, {months: 12, format: "2006"}, {months: 24, format: "2006"},
	{months: 60, format: "2006"},
	{months: 120, format: "2006"}, {months: 600, format: "2006"}, {months: 1200, format: "2006"},
}

func (s *timeStep) length() float64 { return float64(s.seconds + day*s.days + 30*day*s.months) }

// timeTicks returns ticks at round local times in [from, until]. width returns the width of a label; room is that of
// the axis.
func timeTicks(from, until int64, loc *time.Location, room float64, width func(string) float64) []tick {
	if until <= from {
		return nil
	}
	for i := range timeSteps {
		s := &timeSteps[i]
		count := float64(until-from) / s.length()
		if count > room { // cannot fit; the product below must stay small
			continue
		}
		sample := width(time.Unix(from, 0).In(loc).Format(s.format)) + 14
		if count*sample <= room || i == len(timeSteps)-1 {
			return s.ticks(from, until, loc)
		}
	}
	return nil
}

// maxTicks bounds the ticks of an axis of time.
const maxTicks = 500

func (s *timeStep) ticks(from, until int64, loc *time.Location) []tick {
	start := time.Unix(from, 0).In(loc)
	y, m, d := start.Date()
	var list []tick
	for i := 0; len(list) < maxTicks; i++ {
		var at time.Time
		switch {
		case s.months > 0:
			first := (y*12+int(m)-1)/s.months*s.months + i*s.months
			at = time.Date(0, time.Month(first+1), 1, 0, 0, 0, 0, loc)
		case s.days > 0:
			// Days are counted from a Monday, so that weeks begin on one.
			number := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()/day) + 3
			at = time.Date(y, m, d-number%s.days+i*s.days, 0, 0, 0, 0, loc)
		default:
			_, offset := start.Zone()
			local := (from+int64(offset))/int64(s.seconds)*int64(s.seconds) + int64(i*s.seconds)
			at = time.Unix(local-int64(offset), 0).In(loc)
			if _, now := at.Zone(); now != offset && s.seconds >= hour { // the clocks have changed
				at = at.Add(time.Duration(offset-now) * time.Second)
			}
		}
		if at.Unix() > until {
			break
		}
		if at.Unix() < from {
			continue
		}
		format := s.format
		if s.seconds > 0 && s.seconds < 6*hour && s.seconds >= minute && at.Hour() == 0 && at.Minute() == 0 {
			format = "Jan 2"
		}
		list = append(list, tick{float64(at.Unix()), at.Format(format)})
	}
	return list
}
