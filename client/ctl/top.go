package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
)

// incidentField selects the events that top lists.
const incidentField = `event.check.status != "0"`

// topIncidents is how many incidents are fetched. If there are more, the counts say so.
const topIncidents = 1000

func topCommand() *cobra.Command {
	var (
		all, once bool
		every     time.Duration
		opts      client.ListOptions
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "watch the fleet, its rates and its incidents on one screen",
		Long: `Watch the fleet, its rates and its incidents on one screen: backends and agents, events and deliveries per second, and
below them the checks that are not OK, the worst first. Key q quits; key s hides or shows silenced incidents.

The column For is how long a check has failed, with any failing status. An event holds 21 results. If all of them failed,
For counts from the last OK result. With > the check has never passed since the backend knows it, and may have failed for
longer.

Deliveries are those that have not gone out: they wait in memory or on disk for their turn, or are parked until a time.
Retrying ones, of which an attempt has failed, are counted in memory or parked, too. Dead ones were given up and are kept
as dead letters, shed ones were dropped because too many waited.

Rates and deliveries are those of the backend at --api-url alone, from its /metrics; - means that a figure is missing. With --once, or when
the output is not a terminal, one view is printed after one interval.`,
		Example: `  lapwing top --all-namespaces
  lapwing top --label-selector 'region == eu' --interval 5s
  lapwing top --once`,
		Args: args(),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		if every <= 0 {
			return errors.New("--interval must be more than 0")
		}
		opts.ChunkSize = topIncidents
		if opts.FieldSelector != "" {
			opts.FieldSelector += " && "
		}
		opts.FieldSelector += incidentField
		t := &top{invocation: s, opts: opts, namespace: s.namespace, every: every}
		if all {
			t.namespace = ""
		}
		t.limited = s.labelLimits(ctx, "list", client.Events.Plural, t.namespace) != nil
		if once || !s.drawable() {
			return t.once(ctx)
		}
		return t.run(ctx)
	})
	f := cmd.Flags()
	f.BoolVar(&all, "all-namespaces", false, "show incidents of all namespaces")
	f.BoolVar(&once, "once", false, "print one view and exit")
	f.Var(duration.New(2*time.Second, &every), "interval", "time between two updates")
	f.StringVar(&opts.FieldSelector, "field-selector", "", "only incidents whose fields match, for example 'event.check.name == disk'")
	f.StringVar(&opts.LabelSelector, "label-selector", "", "only incidents whose labels match, for example 'region == eu'")
	return cmd
}

// top polls a backend.
type top struct {
	*invocation
	opts         client.ListOptions
	namespace    string // empty for all
	every        time.Duration
	limited      bool // the user sees only incidents with some labels
	hideSilenced bool
	last         look
}

// look is the state of the backend at one moment.
type look struct {
	at        time.Time
	metrics   map[string]float64 // summed over labels; nil if not readable
	health    *client.Health
	incidents []*event
	err       error
}

// see returns the state of the backend. Without metrics or health, the list of incidents still works.
func (t *top) see(ctx context.Context) look {
	l := look{}
	var text []byte
	if err := t.client.GetPublic(ctx, "/metrics", &text); err == nil {
		l.metrics = sumMetrics(text)
	}
	l.at = time.Now()
	if h, err := t.client.Health(ctx); err == nil {
		l.health = h
	}
	for ev, err := range client.All(ctx, t.client, client.Events, t.namespace, t.opts) {
		if err != nil {
			l.err = err
			break
		}
		if ev.IsIncident() { // Sensu Go ignores the selector and sends all
			l.incidents = append(l.incidents, ev)
		}
		if len(l.incidents) >= topIncidents {
			break
		}
	}
	slices.SortStableFunc(l.incidents, worstFirst)
	return l
}

// worstFirst orders by critical, unknown, warning, and within a status by the newest beginning.
func worstFirst(a, b *event) int {
	return cmp.Or(
		cmp.Compare(severity(a.Check.Status), severity(b.Check.Status)),
		cmp.Compare(failingOf(b).begun, failingOf(a).begun),
		cmp.Compare(eventEntity(a).Metadata.Name, eventEntity(b).Metadata.Name),
		cmp.Compare(a.Check.Metadata.Name, b.Check.Metadata.Name),
	)
}

// severity orders by critical, unknown, warning, OK.
func severity(status uint32) int {
	switch status {
	case 0:
		return 3
	case 1:
		return 2
	case 2:
		return 0
	}
	return 1
}

// fullHistory is the most results that an event's history has.
const fullHistory = 21

// failing is how long a check has failed, by its newest event.
type failing struct {
	begun   int64 // Unix seconds
	atLeast bool  // it began at this time or earlier
}

// failingOf returns when a check began to fail. If the history has the last OK result, the check began with the result
// after it. If not, there are more failures than the history holds: they began with the result after the event's last
// OK time. A check that never passed has failed at least as long as its failures of the same status in a row took.
// Their pace is its interval or, if faster, that of its history.
func failingOf(e *event) failing {
	c := e.Check
	begun := c.Executed
	for i := len(c.History) - 1; i >= 0; i-- {
		if c.History[i].Status == 0 {
			return failing{begun: begun}
		}
		begun = c.History[i].Executed
	}
	switch interval := int64(c.Interval); {
	case c.LastOK > 0 && c.LastOK < begun:
		return failing{begun: min(begun, c.LastOK+interval)}
	case len(c.History) < fullHistory:
		return failing{begun: begun} // it began with its first result
	default:
		pace := (c.Executed - begun) / int64(len(c.History)-1)
		if interval > 0 {
			pace = min(pace, interval)
		}
		return failing{begun: min(begun, c.Executed-(c.Occurrences-1)*max(0, pace)), atLeast: true}
	}
}

// text returns how long the check has failed.
func (f failing) text(now time.Time) string {
	if f.atLeast {
		return ">" + f.span(now)
	}
	return f.span(now)
}

func (f failing) span(now time.Time) string {
	if f.begun <= 0 {
		return ""
	}
	return span(now.Sub(time.Unix(f.begun, 0)))
}

func (t *top) once(ctx context.Context) error {
	t.last = t.see(ctx)
	if t.last.err != nil {
		return t.last.err
	}
	select {
	case <-time.After(t.every):
	case <-ctx.Done():
		return nil
	}
	now := t.see(ctx)
	if now.err != nil {
		return now.err
	}
	w := bufio.NewWriter(t.out)
	for _, line := range t.view(now, t.width, 1<<20) {
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// run redraws the screen until the key q or a signal.
func (t *top) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	scr := t.openScreen()
	defer scr.close()
	looks := make(chan look)
	go func() {
		defer close(looks)
		for {
			l := t.see(ctx)
			select {
			case looks <- l:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(t.every):
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range looks {
		}
	}()
	var now look
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-looks:
			t.last, now = now, l
		case key := <-scr.keys:
			if quits(key) {
				return nil
			}
			if key == 's' || key == 'S' {
				t.hideSilenced = !t.hideSilenced
			}
		}
		if now.at.IsZero() {
			continue
		}
		if now.err != nil && t.last.at.IsZero() {
			return now.err
		}
		width, height := scr.size()
		scr.draw(t.view(now, width, height))
	}
}

// view returns the screen's lines. Width 0 means any width.
func (t *top) view(now look, width, height int) []string {
	where := "namespace " + t.namespace
	if t.namespace == "" {
		where = "all namespaces"
	}
	lines := []string{
		paint(t.color, bold, cut(fmt.Sprintf("lapwing top   %s   %s   %s", t.url, where, now.at.Format("15:04:05")), width)),
	}
	lines = append(lines, wrapValues(t.fleet(now), width)...)
	lines = append(lines, wrapValues(t.rates(now), width)...)
	lines = append(lines, wrapValues(t.deliveries(now), width)...)
	lines = append(lines, wrapValues(t.counts(now), width)...)
	lines = append(lines, "")
	if now.err != nil {
		lines = append(lines, paint(t.color, red, cut("Error: "+printable(now.err.Error()), width)))
	}
	tab := &table{
		columns: []column{{title: "State", color: wordColor}, {title: "For", right: true, keep: true}, {title: "Entity", keep: true},
			{title: "Check", keep: true}, {title: "Silenced", dims: true}, {title: "Output", text: true}},
		color: t.color,
	}
	if t.namespace == "" {
		tab.columns = append(tab.columns, column{title: "Namespace"})
	}
	hidden := 0
	room := height - len(lines) - 3
	for _, ev := range now.incidents {
		if t.hideSilenced && ev.Check.IsSilenced {
			continue
		}
		if len(tab.rows) >= room {
			hidden++
			continue
		}
		output, _, _ := strings.Cut(strings.TrimSpace(ev.Check.Output), "\n")
		row := []string{
			stateWord(ev.Check.Status), failingOf(ev).text(now.at), eventEntity(ev).Metadata.Name, ev.Check.Metadata.Name,
			yesNo(ev.Check.IsSilenced), printable(output),
		}
		if t.namespace == "" {
			row = append(row, eventEntity(ev).Metadata.Namespace)
		}
		tab.rows = append(tab.rows, row)
	}
	var text strings.Builder
	w := bufio.NewWriter(&text)
	tab.cut = width
	tab.write(w)
	w.Flush()
	lines = append(lines, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("  … and %d more", hidden))
	}
	return lines
}

// between separates the values in the lines above the incidents.
const between = "   "

// wrapValues returns a line of values as lines of at most width cells; 0 means any width. Further lines are indented under
// the first value.
func wrapValues(line string, width int) []string {
	if width == 0 || displayWidth(line) <= width {
		return []string{line}
	}
	const label = 11 // cells before the first value
	var lines []string
	now := ""
	for i, value := range strings.Split(line, between) {
		switch {
		case i == 0:
			now = value
		case displayWidth(now)+len(between)+displayWidth(value) <= width:
			now += between + value
		default:
			lines = append(lines, cut(now, width))
			now = strings.Repeat(" ", label) + value
		}
	}
	return append(lines, cut(now, width))
}

// fleet returns the line about agents, entities and events.
func (t *top) fleet(now look) string {
	backends := "-"
	if now.health != nil {
		healthy := 0
		for _, m := range now.health.ClusterHealth {
			if m.Healthy {
				healthy++
			}
		}
		backends = fmt.Sprintf("%d of %d healthy", healthy, len(now.health.ClusterHealth))
	}
	return fmt.Sprintf("Fleet      backends %s   agents %s   checks of entities %s   definitions %s",
		backends, now.gauge("lapwing_agent_sessions"), now.gauge("lapwing_state_pairs"), now.gauge("lapwing_config_objects"))
}

// rates returns the line about events per second and the like.
func (t *top) rates(now look) string {
	return fmt.Sprintf("Per second events %s   rejected %s   check requests %s   deliveries %s   retries %s   lag %s s",
		now.rate(t.last, "lapwing_events_received_total"), now.rate(t.last, "lapwing_events_rejected_total"),
		now.rate(t.last, "lapwing_check_requests_total"), now.rate(t.last, "lapwing_handler_runs_total"),
		now.rate(t.last, "lapwing_handler_retries_total"), now.gauge("lapwing_state_lag_seconds"))
}

// deliveries returns the line about deliveries that have not gone out.
func (t *top) deliveries(now look) string {
	return fmt.Sprintf("Deliveries memory %s   disk %s   parked %s   retrying %s   dead %s   shed %s",
		now.gauge("lapwing_handler_queue_depth"), now.gauge("lapwing_handler_queue_spilled"), now.gauge("lapwing_handler_parked"),
		now.gauge("lapwing_handler_retrying"), now.gauge("lapwing_handler_dead_letters"), now.gauge("lapwing_handler_shed_total"))
}

// counts returns the line about incidents.
func (t *top) counts(now look) string {
	var critical, warning, other, silenced int
	for _, ev := range now.incidents {
		switch ev.Check.Status {
		case 1:
			warning++
		case 2:
			critical++
		default:
			other++
		}
		if ev.Check.IsSilenced {
			silenced++
		}
	}
	text := fmt.Sprintf("Incidents  critical %d   warning %d   unknown %d   silenced %d", critical, warning, other, silenced)
	if len(now.incidents) >= topIncidents {
		text += fmt.Sprintf("   (of the first %d)", topIncidents)
	}
	if t.hideSilenced {
		text += "   (silenced ones hidden)"
	}
	if t.limited {
		text += "   of those that you may see: " + byLabels
	}
	return text
}

// gauge returns a metric's value, in few digits.
func (l look) gauge(name string) string {
	v, ok := l.metrics[name]
	if !ok {
		return "-"
	}
	return strconv.FormatFloat(float64(int64(v*10+0.5))/10, 'f', -1, 64)
}

// rate returns how fast a counter has grown since an earlier look.
func (l look) rate(before look, name string) string {
	v, ok := l.metrics[name]
	old, had := before.metrics[name]
	seconds := l.at.Sub(before.at).Seconds()
	if !ok || !had || seconds <= 0 {
		return "-"
	}
	// A restarted backend counts from zero.
	return strconv.FormatFloat(float64(int64(max(0, v-old)/seconds*10+0.5))/10, 'f', -1, 64)
}

// sumMetrics returns the sum of each metric's samples in Prometheus' text format, over all labels.
func sumMetrics(text []byte) map[string]float64 {
	out := map[string]float64{}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		name, rest := line, []byte(nil)
		if i := bytes.IndexAny(line, "{ "); i > 0 {
			name, rest = line[:i], line[i:]
		}
		if i := bytes.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(string(fields[0]), 64); err == nil {
			out[string(name)] += v
		}
	}
	return out
}
