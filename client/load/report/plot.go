package report

import (
	"cmp"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxPoints bounds the points of a line; screens have fewer pixels.
const maxPoints = 600

// side is the side of a plot's drawing, a square that the page stretches. Text and marks are outside the drawing, so
// that they are not stretched.
const side = 1000.0

// plot is one picture with a line per measured thing.
type plot struct {
	title  string
	about  string // what the reader should know, one line
	format func(float64) string
	lines  []line
	// base is the unit of the axis, for example MiB for bytes; 0 means 1.
	base float64
	// logFrom is the ratio of the highest to the lowest value from which on the axis is logarithmic; 0 for never.
	logFrom float64
}

// line is one thing measured over time.
type line struct {
	name   string
	values []float64 // one per sample; NaN where there is none
	// reduce makes one point of several: the mean, or the highest where the worst matters.
	reduce func([]float64) float64
}

// measured reports whether a line has any value.
func (l *line) measured() bool {
	return slices.ContainsFunc(l.values, func(v float64) bool { return !math.IsNaN(v) })
}

// zero reports whether all of a line's values are 0.
func (l *line) zero() bool {
	return !slices.ContainsFunc(l.values, func(v float64) bool { return !math.IsNaN(v) && v != 0 })
}

func mean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if !math.IsNaN(v) {
			sum += v
			n++
		}
	}
	return sum / float64(n) // NaN if there is none
}

func highest(values []float64) float64 {
	most := math.NaN()
	for _, v := range values {
		if math.IsNaN(most) || v > most {
			most = v
		}
	}
	return most
}

// tick is a labelled place on an axis, in percent of it from the left or the top.
type tick struct {
	At   float64
	Text string
}

// axis turns values into places from 0 to 1.
type axis struct {
	low, high float64
	log       bool
}

func (a axis) place(v float64) float64 {
	if a.log {
		v = max(v, a.low)
		return (math.Log(v) - math.Log(a.low)) / (math.Log(a.high) - math.Log(a.low))
	}
	return (v - a.low) / (a.high - a.low)
}

// stepAbove returns the least of 1, 2 and 5 times a power of ten that is not below v.
func stepAbove(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func stepBelow(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*power <= v*(1+1e-9) {
			return m * power
		}
	}
	return power
}

// linear returns an axis from 0 to above most, and its round values.
func linear(most float64) (axis, []float64) {
	if !(most > 0) {
		most = 1
	}
	step := stepAbove(most / 4)
	n := math.Ceil(most/step - 1e-9)
	var at []float64
	for i := 0.0; i <= n; i++ {
		at = append(at, i*step)
	}
	return axis{high: n * step}, at
}

// logarithmic returns an axis around the values from least to most, which are above 0, and its round values.
func logarithmic(least, most float64) (axis, []float64) {
	a := axis{low: stepBelow(least), high: stepAbove(most), log: true}
	if a.low == a.high {
		a.high = stepAbove(a.high * 1.5)
	}
	wide := a.high/a.low > 500 // only powers of ten then, or the labels overlap
	var at []float64
	for v := a.low; v <= a.high*(1+1e-9); v = stepAbove(v * 1.5) {
		if power := math.Pow(10, math.Round(math.Log10(v))); !wide || math.Abs(v/power-1) < 1e-6 {
			at = append(at, v)
		}
	}
	return a, at
}

func (p *plot) axis() (axis, []float64) {
	least, most := math.Inf(1), 0.0
	for _, l := range p.lines {
		for _, v := range l.values {
			if math.IsNaN(v) {
				continue
			}
			most = max(most, v)
			if v > 0 {
				least = min(least, v)
			}
		}
	}
	if p.logFrom > 0 && most/least >= p.logFrom {
		return logarithmic(least, most)
	}
	base := cmp.Or(p.base, 1)
	a, at := linear(most / base)
	a.high *= base
	for i := range at {
		at[i] *= base
	}
	return a, at
}

// plotView is a plot in the form for the page's template.
type plotView struct {
	Title, About string
	Text         string // the plot in words
	YTicks       []tick
	Lines        []lineView
	Data         plotData
}

type lineView struct {
	Class string // which colour
	Name  string
	Stat  string // the text while the pointer is elsewhere
	Path  template.HTMLAttr
	Area  template.HTMLAttr
}

// plotData is what the page needs to read values from a plot.
type plotData struct {
	Lines []lineData `json:"lines"`
}

type lineData struct {
	Y    []*float64 `json:"y"`    // places in percent from the top; null where there is no value
	Text []string   `json:"text"` // the values in words
}

// timeAxis is the common axis of a page's plots.
type timeAxis struct {
	times    []float64 // of the samples
	group    int       // samples per point
	measured [2]int    // the measured part, from the first sample to before the second
	axis     axis
}

func newTimeAxis(r *Report) *timeAxis {
	t := &timeAxis{}
	for _, s := range r.Series {
		t.times = append(t.times, s.At)
	}
	if len(t.times) == 0 {
		return t
	}
	t.group = (len(t.times) + maxPoints - 1) / maxPoints
	t.axis = axis{low: t.times[0], high: t.times[len(t.times)-1]}
	if t.axis.high <= t.axis.low {
		t.axis.high = t.axis.low + 1
	}
	from, _ := slices.BinarySearch(t.times, 0)
	to, found := slices.BinarySearch(t.times, r.Seconds)
	if found {
		to++
	}
	t.measured = [2]int{from, max(from, to)}
	if r.Seconds <= 0 {
		t.measured[1] = len(t.times)
	}
	return t
}

// points are the times of the points, one per group of samples.
func (t *timeAxis) points() []float64 {
	return reduced(t.times, t.group, mean)
}

func reduced(values []float64, group int, reduce func([]float64) float64) []float64 {
	var out []float64
	for part := range slices.Chunk(values, max(group, 1)) {
		out = append(out, reduce(part))
	}
	return out
}

// during returns the values of the measured part.
func (t *timeAxis) during(values []float64) []float64 {
	return values[min(t.measured[0], len(values)):min(t.measured[1], len(values))]
}

// ticks are round times.
func (t *timeAxis) ticks() []tick {
	length := t.axis.high - t.axis.low
	step := 86400.0
	for _, s := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400} {
		if length/s <= 6 {
			step = s
			break
		}
	}
	var out []tick
	for at := math.Ceil(t.axis.low/step) * step; at <= t.axis.high; at += step {
		out = append(out, tick{At: percent(t.axis.place(at)), Text: clock(at)})
	}
	return out
}

// shade is a part of the time outside the measurement, in percent.
type shade struct{ Left, Width float64 }

func (t *timeAxis) shades(r *Report) []shade {
	var out []shade
	if t.axis.low < 0 {
		out = append(out, shade{0, percent(min(1, t.axis.place(0)))})
	}
	if r.Seconds > 0 && t.axis.high > r.Seconds+1 {
		left := percent(max(0, t.axis.place(r.Seconds)))
		out = append(out, shade{left, 100 - left})
	}
	return out
}

func percent(v float64) float64 { return math.Round(v*1e4) / 100 }

func (p *plot) view(t *timeAxis) plotView {
	a, values := p.axis()
	v := plotView{Title: p.title, About: p.about}
	if a.log {
		v.About = strings.TrimPrefix(v.About+"; logarithmic", "; ")
	}
	for _, at := range values {
		v.YTicks = append(v.YTicks, tick{At: percent(1 - a.place(at)), Text: p.format(at)})
	}
	var text []string
	times := t.points()
	for i, l := range p.lines {
		points := reduced(l.values, t.group, l.reduce)
		view := lineView{Class: "c" + strconv.Itoa(i%colours), Name: l.name, Stat: p.stat(l, t)}
		data := lineData{}
		for _, y := range points {
			if math.IsNaN(y) {
				data.Y, data.Text = append(data.Y, nil), append(data.Text, absent)
				continue
			}
			at := percent(1 - a.place(y))
			data.Y, data.Text = append(data.Y, &at), append(data.Text, p.format(y))
		}
		path := trace(times, data.Y, t.axis)
		view.Path = attr("d", path)
		if len(p.lines) == 1 {
			view.Area = attr("d", area(path))
		}
		v.Lines = append(v.Lines, view)
		v.Data.Lines = append(v.Data.Lines, data)
		text = append(text, l.name+": "+view.Stat)
	}
	v.Text = p.title + " over time. " + strings.Join(text, "; ") + "."
	return v
}

// stat sums up a line over the measured part, or over the rest if it has no value there.
func (p *plot) stat(l line, t *timeAxis) string {
	values, when := t.during(l.values), ""
	if math.IsNaN(highest(values)) {
		values, when = l.values, " before"
	}
	if l.zero() {
		return "always 0"
	}
	return "mean " + p.format(mean(values)) + ", max " + p.format(highest(values)) + when
}

const colours = 7 // in the page's style

// trace draws a line through the points that have a value.
func trace(times []float64, ys []*float64, x axis) string {
	var b strings.Builder
	pen := false
	for i, y := range ys {
		if y == nil {
			pen = false
			continue
		}
		at := coordinate(x.place(times[i])*side) + " " + coordinate(*y/100*side)
		switch {
		case pen:
			b.WriteString("L" + at)
		default:
			b.WriteString("M" + at + "h0") // shows a single point too
		}
		pen = true
	}
	return b.String()
}

// area closes each piece of a line at the bottom.
func area(path string) string {
	var b strings.Builder
	for piece := range strings.SplitSeq(path, "M") {
		if piece == "" {
			continue
		}
		first, _, _ := strings.Cut(piece, " ")
		last := first
		if i := strings.LastIndexByte(piece, 'L'); i >= 0 {
			last, _, _ = strings.Cut(piece[i+1:], " ")
		}
		ground := coordinate(side)
		b.WriteString("M" + piece + "L" + last + " " + ground + "L" + first + " " + ground + "Z")
	}
	return b.String()
}

func coordinate(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// attr is an attribute whose value needs no escaping: paths are digits, letters and blanks.
func attr(name, value string) template.HTMLAttr { return template.HTMLAttr(name + `="` + value + `"`) }
