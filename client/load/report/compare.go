package report

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Compare writes a page about several runs into a directory, which it creates if needed: plots of the cost of an event
// against events and agents, with a line for each kind of backend and protocol, and a table of all runs.
func Compare(dir, title string, reports []*Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return writePage(filepath.Join(dir, ComparisonFile), "comparison", newComparison(title, reports))
}

type comparison struct {
	Title, Subtitle string
	Plots           []comparisonPlot
	Head            []string
	Rows            [][]cell
	Notes           []string
	Facts           []fact
}

type comparisonPlot struct {
	Title, About, Text string
	XTicks, YTicks     []tick
	Lines              []lineView
	Marks              []mark
}

// mark is one run in a plot, in percent from the left and the top.
type mark struct {
	X, Y        float64
	Class, Text string
}

type cell struct{ Text, About, Class string }

// sideOf names a run's line in a comparison.
func sideOf(r *Report) string {
	return r.Target.Kind + " (" + r.Protocol + " protocol)"
}

func runText(r *Report) string {
	return fmt.Sprintf("%s: %s agents, %s events/s", sideOf(r), count(r.Summary.Agents), number(math.Round(r.Summary.EventsPerSecond)))
}

func newComparison(title string, reports []*Report) *comparison {
	c := &comparison{Title: title}
	sides := sidesOf(reports)
	c.Subtitle = fmt.Sprintf("%s of %s", unit(float64(len(reports)), "runs"), strings.Join(sides, ", "))
	events := func(r *Report) float64 { return r.Summary.EventsPerSecond }
	agents := func(r *Report) float64 { return float64(r.Summary.Connected) }
	cpu := func(r *Report) *float64 { return r.Summary.BackendCPUMicros }
	rss := func(r *Report) *float64 { return r.Summary.BackendRSSBytes }
	for _, s := range []scatter{
		{title: "CPU per event against events/s", about: "µs of the backend", x: events, y: cpu, fixed: agents, fixedName: "agents", format: micros},
		{title: "CPU per event against agents", about: "µs of the backend", x: agents, y: cpu, fixed: events, fixedName: "events/s", format: micros},
		{title: "Memory against agents", about: "resident, of the backend", x: agents, y: rss, fixed: events, fixedName: "events/s", format: size, base: memoryBase(reports)},
		{title: "Handler started, p99, against events/s", about: "event sent → its handler's start", x: events, y: p99(LatencyHandler), fixed: agents, fixedName: "agents", format: latency},
	} {
		if p, ok := s.view(reports, sides); ok {
			c.Plots = append(c.Plots, p)
		}
	}
	c.table(reports)
	c.notes(reports)
	for _, r := range reports {
		for _, f := range facts(r) {
			if f.Name != "Machine" && f.Name != "System" && f.Name != "Target" || slices.Contains(c.Facts, f) {
				continue
			}
			c.Facts = append(c.Facts, f)
		}
	}
	return c
}

// notes collects the runs' notes, each once.
func (c *comparison) notes(reports []*Report) {
	var all []string
	by := map[string][]string{}
	for _, r := range reports {
		for _, n := range r.Notes {
			if by[n] == nil {
				all = append(all, n)
			}
			by[n] = append(by[n], runText(r))
		}
	}
	for _, n := range all {
		switch runs := by[n]; {
		case len(runs) == len(reports):
			c.Notes = append(c.Notes, n)
		case len(runs) == 1:
			c.Notes = append(c.Notes, runs[0]+": "+n)
		default:
			c.Notes = append(c.Notes, fmt.Sprintf("%d runs: %s", len(runs), n))
		}
	}
}

// memoryBase is the unit that suits the memory of all runs.
func memoryBase(reports []*Report) float64 {
	most := 0.0
	for _, r := range reports {
		if r.Summary.BackendRSSBytes != nil {
			most = max(most, *r.Summary.BackendRSSBytes)
		}
	}
	return sizeBase(most)
}

func p99(key string) func(*Report) *float64 {
	return func(r *Report) *float64 {
		if q, ok := r.Latencies[key]; ok && q.Count > 0 {
			return &q.P99
		}
		return nil
	}
}

// sidesOf lists the sides in the order in which they first come.
func sidesOf(reports []*Report) (sides []string) {
	for _, r := range reports {
		if s := sideOf(r); !slices.Contains(sides, s) {
			sides = append(sides, s)
		}
	}
	return sides
}

// scatter is a plot with a mark per run.
type scatter struct {
	title, about string
	x            func(*Report) float64
	y            func(*Report) *float64
	// fixed is what must be about the same in runs on one line.
	fixed     func(*Report) float64
	fixedName string
	format    func(float64) string
	base      float64
}

func (s *scatter) view(reports []*Report, sides []string) (comparisonPlot, bool) {
	var runs []*Report
	least, most := math.Inf(1), 0.0
	var ys line
	for _, r := range reports {
		y := s.y(r)
		x := s.x(r)
		if y == nil || !(x > 0) {
			continue
		}
		least, most = min(least, x), max(most, x)
		runs = append(runs, r)
		ys.values = append(ys.values, *y)
	}
	if len(runs) == 0 || most < least*1.05 {
		return comparisonPlot{}, false // runs with the same x show nothing here
	}
	v := comparisonPlot{Title: s.title, About: s.about}
	xPlot := plot{lines: []line{{values: []float64{least, most}}}, logFrom: 4}
	x, xs := xPlot.axis()
	yPlot := plot{lines: []line{ys}, base: s.base, logFrom: 10}
	yAxis, yTicks := yPlot.axis()
	switch {
	case x.log && yAxis.log:
		v.About += "; both axes logarithmic"
	case x.log:
		v.About += "; to the right logarithmic"
	case yAxis.log:
		v.About += "; upwards logarithmic"
	}
	for _, at := range xs {
		v.XTicks = append(v.XTicks, tick{percent(x.place(at)), number(at)})
	}
	for _, at := range yTicks {
		v.YTicks = append(v.YTicks, tick{percent(1 - yAxis.place(at)), s.format(at)})
	}
	var text []string
	for i, name := range sides {
		class := "c" + strconv.Itoa(i%colours)
		mine := slices.DeleteFunc(slices.Clone(runs), func(r *Report) bool { return sideOf(r) != name })
		if len(mine) == 0 {
			continue
		}
		slices.SortStableFunc(mine, func(a, b *Report) int { return cmp.Compare(s.x(a), s.x(b)) })
		place := func(r *Report) (float64, float64) {
			return percent(x.place(s.x(r))), percent(1 - yAxis.place(*s.y(r)))
		}
		for _, r := range mine {
			px, py := place(r)
			v.Marks = append(v.Marks, mark{px, py, class, runText(r) + ": " + s.format(*s.y(r))})
		}
		var path strings.Builder
		joined, also := s.joined(mine)
		for j, r := range joined {
			px, py := place(r)
			path.WriteString([]string{"M", "L"}[min(j, 1)] + coordinate(px/100*side) + " " + coordinate(py/100*side))
		}
		stat := s.rangeOf(mine)
		if also != "" {
			stat += "; line: " + also
		}
		v.Lines = append(v.Lines, lineView{Class: class, Name: name, Stat: stat, Path: attr("d", path.String())})
		text = append(text, name+": "+stat)
	}
	v.Text = s.title + ". " + strings.Join(text, "; ") + "."
	return v, true
}

// joined selects the runs on a line: all, if fixed is the same for them; else the largest set for which it is, so that
// the line does not jump between two sweeps.
func (s *scatter) joined(runs []*Report) (best []*Report, about string) {
	same := func(a, b float64) bool { return math.Abs(a-b) <= 0.1*max(a, b) }
	for _, r := range runs {
		var group []*Report
		for _, o := range runs {
			if same(s.fixed(r), s.fixed(o)) {
				group = append(group, o)
			}
		}
		if len(group) > len(best) {
			best = group
		}
	}
	if len(best) == len(runs) || len(best) < 2 {
		return runs, ""
	}
	return best, "about " + number(math.Round(s.fixed(best[0]))) + " " + s.fixedName
}

// rangeOf describes the range of the runs' figures.
func (s *scatter) rangeOf(runs []*Report) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range runs {
		low, high = min(low, *s.y(r)), max(high, *s.y(r))
	}
	if low == high {
		return s.format(low)
	}
	text := s.format(low) + " to " + s.format(high)
	if low > 0 {
		text += " (× " + number(high/low) + ")"
	}
	return text
}

func (c *comparison) table(reports []*Report) {
	columns := []struct {
		head string
		get  func(*Report) cell
	}{
		{"Run", func(r *Report) cell {
			return cell{Text: strings.TrimSpace(r.Target.Kind+" "+r.Target.Version) + ", " + r.Protocol + " protocol", About: r.Title}
		}},
		{"Agents", func(r *Report) cell {
			if r.Summary.Connected < r.Summary.Agents {
				return cell{Text: count(r.Summary.Connected) + " of " + count(r.Summary.Agents), Class: "bad"}
			}
			return cell{Text: count(r.Summary.Agents)}
		}},
		{"Events/s", func(r *Report) cell { return cell{Text: number(math.Round(r.Summary.EventsPerSecond))} }},
		{"µs/event", func(r *Report) cell { return cell{Text: maybe(r.Summary.BackendCPUMicros, number)} }},
		{"Cores", func(r *Report) cell {
			if r.Summary.BackendCPUMicros == nil {
				return cell{Text: absent}
			}
			return cell{Text: number(*r.Summary.BackendCPUMicros * r.Summary.EventsPerSecond / 1e6)}
		}},
		{"Memory", func(r *Report) cell { return cell{Text: maybe(r.Summary.BackendRSSBytes, size)} }},
		{"Lost", func(r *Report) cell { return found(r, r.Summary.Lost) }},
		{"Twice", func(r *Report) cell { return found(r, r.Summary.Duplicates) }},
		{"Order", func(r *Report) cell { return found(r, r.Summary.OrderViolations) }},
		{"Visible p99", func(r *Report) cell { return cell{Text: maybe(p99(LatencyVisible)(r), latency)} }},
		{"Handler p99", func(r *Report) cell { return cell{Text: maybe(p99(LatencyHandler)(r), latency)} }},
		{"Request p99", func(r *Report) cell { return cell{Text: maybe(p99(LatencyRequest)(r), latency)} }},
		{"Errors", func(r *Report) cell { return cell{Text: count(r.Summary.Errors)} }},
		{"Measured", func(r *Report) cell { return cell{Text: span(r.Seconds)} }},
	}
	for _, col := range columns {
		c.Head = append(c.Head, col.head)
	}
	for _, r := range reports {
		var row []cell
		for _, col := range columns {
			row = append(row, col.get(r))
		}
		c.Rows = append(c.Rows, row)
	}
}

// found is a number of wrong events or pairs; 0 means nothing if they were not compared.
func found(r *Report, n uint64) cell {
	switch {
	case n > 0:
		return cell{Text: count(n), Class: "bad"}
	case r.Summary.PairsVerified == 0:
		return cell{Text: absent, Class: "unsure"}
	}
	return cell{Text: "0", Class: "good"}
}
