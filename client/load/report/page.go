package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// latencies are the measured latencies in the order of display.
var latencies = []struct{ key, name, about string }{
	{LatencyAck, "Acknowledged", "event sent → acknowledgement received"},
	{LatencyVisible, "Visible in the API", "event sent → in the answer of the API"},
	{LatencyHandler, "Handler started", "event sent → its handler's start"},
	{LatencyRequest, "Check request", "tick of a check → request at the agent"},
	{LatencyAPI, "Answer of the API", "a request for an event to its answer"},
	{LatencyInterval, "Interval kept", "deviation of the time between two requests of a check from its interval"},
	{LatencyTurnArrival, "Turn received", "tick of a turn → request at the agent"},
	{LatencyTurnAnswer, "Turn answered", "tick of a turn → answer acknowledged, or written if it is a receipt"},
	{LatencyConnect, "Connected", "start of dialing → first message of the backend"},
}

// page is the data for the template of one run's page.
type page struct {
	*Report
	Subtitle string
	Verdict  verdict
	Tiles    []tile
	Rows     []latencyRow
	Bins     []binRow // of the turns per agent
	Spread   string
	Facts    []fact
	Plots    []plotView
	XTicks   []tick
	Shades   []shade
	Grouping string
	Quiet    []string // queues in which nothing waited
	Counters []counterRow
	Table    *table
	Data     pageData
}

type verdict struct{ Class, Text string }

// tile is one figure of the head.
type tile struct{ Name, Value, Unit, About, Class string }

type fact struct{ Name, Value string }

type latencyRow struct {
	Name, About, Count             string
	P50, P90, P99, P999, Max       string
	BarLeft, BarWidth, BarP99Width float64 // percent of a logarithmic scale: the median to the maximum, and to the 99th percentile
}

type counterRow struct{ Name, Mean, Max string }

// table is the plots' content as text.
type table struct {
	Head []string
	Rows [][]string
}

type pageData struct {
	Unit  string     `json:"unit"`
	At    []string   `json:"at"` // the times of the points in words
	X     []float64  `json:"x"`  // their places in percent
	Plots []plotData `json:"plots"`
}

func newPage(r *Report) *page {
	t := newTimeAxis(r)
	p := &page{
		Report: r, Subtitle: subtitle(r), Verdict: judge(r), Tiles: tiles(r), Rows: latencyRows(r), Facts: facts(r),
		Counters: counters(r, t),
	}
	if r.Turns != nil {
		p.Bins, p.Spread = r.Turns.PerAgent.rows(), r.Turns.PerAgent.summary()
	}
	if len(t.times) < 2 {
		return p
	}
	p.XTicks, p.Shades = t.ticks(), t.shades(r)
	if t.group > 1 {
		p.Grouping = fmt.Sprintf("Each point stands for %d samples: their mean, or the highest where the worst matters.", t.group)
	}
	plots, quiet := plotsOf(r)
	p.Quiet = quiet
	for _, plot := range plots {
		v := plot.view(t)
		p.Plots = append(p.Plots, v)
		p.Data.Plots = append(p.Data.Plots, v.Data)
	}
	for _, at := range t.points() {
		p.Data.At = append(p.Data.At, clock(at))
		p.Data.X = append(p.Data.X, percent(t.axis.place(at)))
	}
	p.Table = tableOf(plots, t)
	return p
}

func subtitle(r *Report) string {
	parts := []string{strings.TrimSpace(r.Target.Kind + " " + r.Target.Version), r.Protocol + " protocol", count(r.Summary.Agents) + " agents", span(r.Seconds)}
	if !r.Started.IsZero() {
		parts = append(parts, r.Started.Format("2006-01-02 15:04 MST"))
	}
	return strings.Join(parts, " · ")
}

// judge says in a sentence whether the run was good.
func judge(r *Report) verdict {
	missed := 0
	for _, e := range r.Expectations {
		if !e.Met {
			missed++
		}
	}
	s := r.Summary
	switch {
	case missed > 0:
		return verdict{"bad", fmt.Sprintf("%d of %d expectations missed", missed, len(r.Expectations))}
	case s.Lost+s.Duplicates+s.OrderViolations > 0:
		return verdict{"bad", "What the backend stored differs from what was sent"}
	case len(r.Expectations) > 0:
		return verdict{"good", "All expectations met"}
	case s.PairsVerified == 0 && s.EventsSent > 0:
		return verdict{"unsure", "What the backend stored was not compared with what was sent"}
	case s.Connected < s.Agents:
		return verdict{"unsure", "Not all agents were connected"}
	}
	return verdict{"good", "What the backend stored is what was sent"}
}

func tiles(r *Report) []tile {
	s := r.Summary
	verified := fmt.Sprintf("%s of %s pairs of entity and check verified", count(s.PairsVerified), count(s.Pairs))
	lost, duplicates, order := found(r, s.Lost), found(r, s.Duplicates), found(r, s.OrderViolations)
	out := []tile{
		{Name: "Throughput", Value: number(math.Round(s.EventsPerSecond)), Unit: "events/s", About: count(s.EventsSent) + " events sent in the whole run", Class: "wide"},
		{Name: "Lost", Value: lost.Text, Unit: "events", About: verified, Class: lost.Class},
		{Name: "Duplicates", Value: duplicates.Text, Unit: "events", About: "counted twice", Class: duplicates.Class},
		{Name: "Order violations", Value: order.Text, Unit: "pairs", About: "whose history is not in the order of sending", Class: order.Class},
	}
	if s.EventsSent == 0 {
		out = out[:0] // a run of idle agents
	}
	if r.Turns != nil {
		out = append(r.Turns.tiles(), out...)
	}
	connected := tile{Name: "Agents", Value: count(s.Connected), Unit: "connected", About: "all in " + span(s.ConnectSeconds), Class: "good"}
	if s.Killed > 0 {
		connected.About += "; " + count(s.Killed) + " killed during the run"
	}
	if s.Connected < s.Agents {
		connected.About, connected.Class = fmt.Sprintf("of %s, in %s", count(s.Agents), span(s.ConnectSeconds)), "bad"
	}
	cpu := tile{Name: "Backend CPU", Value: maybe(s.BackendCPUMicros, number), Unit: "µs per " + r.unit()}
	rate := s.EventsPerSecond
	if r.unit() == "turn" {
		rate = r.Turns.PerSecond
	}
	if s.BackendCPUMicros != nil && rate > 0 {
		cpu.About = cores(*s.BackendCPUMicros * rate / 1e6)
	}
	if s.LoadCPUMicros != nil {
		cpu.About = strings.TrimPrefix(cpu.About+"; load tool "+micros(*s.LoadCPUMicros), "; ")
	}
	if s.EventsSent > 0 || r.unit() == "turn" {
		out = append(out, cpu)
	}
	rss := tile{Name: "Backend memory", Value: absent, Unit: ""}
	if s.BackendRSSBytes != nil {
		rss.Value, rss.Unit, _ = strings.Cut(size(*s.BackendRSSBytes), " ")
		rss.About = "resident at the end"
		if s.Connected > 0 {
			rss.About += "; " + size(*s.BackendRSSBytes/float64(s.Connected)) + " per agent, all included"
		}
	}
	out = append(out, rss, connected)
	if s.LogBytesPerEvent != nil || s.DiskBytes != nil {
		value, about := s.LogBytesPerEvent, "in the log"
		if value == nil {
			value, about = s.DiskBytes, "written"
		} else if s.DiskBytes != nil {
			about += "; " + size(*s.DiskBytes) + " written by the process"
		}
		v, u, _ := strings.Cut(size(*value), " ")
		out = append(out, tile{Name: "Disk", Value: v, Unit: u + " per " + r.unit(), About: about})
	}
	troubles := tile{Name: "Errors", Value: count(s.Errors), About: "of connections and of frames; " + count(s.Disconnects) + " unwanted disconnects", Class: "good"}
	if s.Errors+s.Disconnects > 0 {
		troubles.Class = "unsure"
	}
	return append(out, troubles)
}

// Latencies are drawn from a tenth of a millisecond to a hundred seconds.
const barLow, barHigh = 1e-4, 1e2

func latencyRows(r *Report) []latencyRow {
	var out []latencyRow
	scale := axis{low: barLow, high: barHigh, log: true}
	place := func(v float64) float64 { return percent(min(1, max(0, scale.place(v)))) }
	add := func(key, name, about string) {
		q, ok := r.Latencies[key]
		if !ok || q.Count == 0 {
			return
		}
		row := latencyRow{
			Name: name, About: about, Count: count(q.Count),
			P50: latency(q.P50), P90: latency(q.P90), P99: latency(q.P99), P999: latency(q.P999), Max: latency(q.Max),
		}
		row.BarLeft = place(q.P50)
		row.BarWidth = max(0.5, place(q.Max)-row.BarLeft)
		row.BarP99Width = max(0.5, place(q.P99)-row.BarLeft)
		out = append(out, row)
	}
	known := map[string]bool{}
	for _, l := range latencies {
		known[l.key] = true
		add(l.key, l.name, l.about)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Latencies)) {
		if !known[key] {
			add(key, key, "")
		}
	}
	return out
}

func facts(r *Report) []fact {
	m := r.Machine
	out := []fact{
		{"Target", strings.Join(append([]string{strings.TrimSpace(r.Target.Kind + " " + r.Target.Version)}, r.Target.URLs...), " ")},
		{"Protocol", r.Protocol},
		{"Load tool", fmt.Sprintf("lapwing %s, %s, seed %d", r.Version, processes(r.Processes), r.Seed)},
		{"Machine", fmt.Sprintf("%s × %s, %s memory", count(m.CPUs), m.CPUModel, size(float64(m.MemoryBytes)))},
		{"System", strings.Trim(m.Kernel+", "+m.GoVersion, ", ")},
		{"Measured", span(r.Seconds)},
		{"Keepalives sent", count(r.Summary.KeepalivesSent)},
	}
	for _, b := range r.Summary.Backends {
		out = append(out, fact{"Backend", b.text(r.unit())})
	}
	return slices.DeleteFunc(out, func(f fact) bool { return f.Value == "" })
}

// plotsOf makes the plots of a run, and names the queues that were always empty.
func plotsOf(r *Report) (plots []plot, quiet []string) {
	of := func(name string, reduce func([]float64) float64, value func(*Sample) float64) line {
		l := line{name: name, reduce: reduce}
		for i := range r.Series {
			l.values = append(l.values, value(&r.Series[i]))
		}
		return l
	}
	pick := func(v *float64) float64 {
		if v == nil {
			return math.NaN()
		}
		return *v
	}
	add := func(p plot) {
		p.lines = slices.DeleteFunc(p.lines, func(l line) bool { return !l.measured() })
		if len(p.lines) > 0 {
			plots = append(plots, p)
		}
	}
	add(plot{title: "Throughput", about: "events sent per second", format: number, lines: []line{
		of("events/s", mean, func(s *Sample) float64 { return float64(s.Events) }),
	}})
	add(plot{title: "Agents", about: "connected", format: number, lines: []line{
		of("agents", mean, func(s *Sample) float64 { return float64(s.Agents) }),
	}})
	if r.Turns != nil {
		add(plot{title: "Turns", about: "answered per second", format: number, lines: []line{
			of("turns/s", mean, func(s *Sample) float64 { return float64(s.Turns) }),
		}})
	}
	for _, key := range latencyKeys(r) {
		name, about := key, ""
		for _, l := range latencies {
			if l.key == key {
				name, about = l.name, l.about
			}
		}
		quantile := func(get func(Quantiles) float64) func(*Sample) float64 {
			return func(s *Sample) float64 {
				q, ok := s.Latencies[key]
				if !ok || q.Count == 0 {
					return math.NaN()
				}
				return get(q)
			}
		}
		add(plot{title: "Latency: " + lowerFirst(name), about: about, format: latency, logFrom: 50, lines: []line{
			of("p50", highest, quantile(func(q Quantiles) float64 { return q.P50 })),
			of("p99", highest, quantile(func(q Quantiles) float64 { return q.P99 })),
			of("max", highest, quantile(func(q Quantiles) float64 { return q.Max })),
		}})
	}
	add(plot{title: "CPU", about: fmt.Sprintf("cores in use, of %d", r.Machine.CPUs), format: number, lines: []line{
		of("backend", mean, func(s *Sample) float64 { return pick(s.BackendCPU) }),
		of("load tool", mean, func(s *Sample) float64 { return pick(s.LoadCPU) }),
	}})
	add(plot{title: "CPU per event", about: fmt.Sprintf("µs, over %d s each", 2*window+1), format: number, lines: []line{
		perEvent("backend", r.Series, func(s *Sample) *float64 { return s.BackendCPU }),
		perEvent("load tool", r.Series, func(s *Sample) *float64 { return s.LoadCPU }),
	}})
	add(plot{title: "Memory", about: "resident, of the backend", format: size, base: sizeBase(highestRSS(r)), lines: []line{
		of("backend", highest, func(s *Sample) float64 { return pick(s.BackendRSS) }),
	}})
	queues, quiet := queueLines(r)
	add(plot{title: "Queues", about: "how much waits where", format: number, logFrom: 50, lines: queues})
	errors := of("errors/s", highest, func(s *Sample) float64 { return float64(s.Errors) })
	if !errors.zero() {
		add(plot{title: "Errors", about: "per second", format: number, lines: []line{errors}})
	}
	return plots, quiet
}

func highestRSS(r *Report) float64 {
	most := 0.0
	for _, s := range r.Series {
		if s.BackendRSS != nil {
			most = max(most, *s.BackendRSS)
		}
	}
	return most
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// latencyKeys are the latencies that at least one sample has, in the order of display.
func latencyKeys(r *Report) []string {
	there := map[string]bool{}
	for i := range r.Series {
		for key := range r.Series[i].Latencies {
			there[key] = true
		}
	}
	rank := map[string]int{}
	for i, l := range latencies {
		rank[l.key] = i - len(latencies)
	}
	keys := slices.Sorted(maps.Keys(there))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	return keys
}

// window is how many samples before and after one the CPU per event is computed over: one second alone is too noisy.
const window = 2

// perEvent divides the processor time by the events. Where there are few events it has no value: all other work would
// be charged to them.
func perEvent(name string, series []Sample, cpu func(*Sample) *float64) line {
	l := line{name: name, reduce: mean}
	var used []float64
	var events []uint64
	for i := range series {
		u, e := 0.0, uint64(0)
		for j := max(0, i-window); j <= min(len(series)-1, i+window); j++ {
			if c := cpu(&series[j]); c != nil {
				u += *c
				e += series[j].Events
			}
		}
		used, events = append(used, u), append(events, e)
	}
	most := slices.Max(events)
	for i, e := range events {
		v := math.NaN()
		if e >= 100 && e >= most/10 {
			v = used[i] / float64(e) * 1e6
		}
		l.values = append(l.values, v)
	}
	return l
}

// queueLines are the queues in which anything waited, the fullest first, at most as many as there are colours.
func queueLines(r *Report) (lines []line, quiet []string) {
	names := map[string]bool{}
	for i := range r.Series {
		for name := range r.Series[i].Queues {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		l := line{name: name, reduce: highest}
		for i := range r.Series {
			v, ok := r.Series[i].Queues[name]
			if !ok {
				v = math.NaN()
			}
			l.values = append(l.values, v)
		}
		if l.zero() {
			quiet = append(quiet, name)
		} else {
			lines = append(lines, l)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(highest(b.values), highest(a.values)) })
	return lines[:min(len(lines), colours)], quiet
}

// counters sums up the backend's counters over the measured part.
func counters(r *Report, t *timeAxis) []counterRow {
	names := map[string]bool{}
	for i := range r.Series {
		for name := range r.Series[i].Counters {
			names[name] = true
		}
	}
	var out []counterRow
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var values []float64
		for i := range r.Series {
			v, ok := r.Series[i].Counters[name]
			if !ok {
				v = math.NaN()
			}
			values = append(values, v)
		}
		values = t.during(values)
		if most := highest(values); !math.IsNaN(most) && most != 0 {
			out = append(out, counterRow{name, number(mean(values)), number(most)})
		}
	}
	return out
}

// tableRows is the number of rows in the table of a plot.
const tableRows = 30

func tableOf(plots []plot, t *timeAxis) *table {
	out := &table{Head: []string{"Time"}}
	var columns [][]string
	group := (len(t.times) + tableRows - 1) / tableRows
	var times []string
	for part := range slices.Chunk(t.times, group) {
		times = append(times, clock(part[0]))
	}
	for _, p := range plots {
		for _, l := range p.lines {
			name := p.title
			if len(p.lines) > 1 {
				name += ", " + l.name
			}
			out.Head = append(out.Head, name)
			var column []string
			for _, v := range reduced(l.values, group, l.reduce) {
				if math.IsNaN(v) {
					column = append(column, absent)
				} else {
					column = append(column, p.format(v))
				}
			}
			columns = append(columns, column)
		}
	}
	for i, at := range times {
		row := []string{at}
		for _, c := range columns {
			row = append(row, c[i])
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return count(n) + " processes"
}
