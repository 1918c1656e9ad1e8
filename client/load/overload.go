package load

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

// overload notes when the run was over a limit, in seconds of the run, and whose limit it was.
type overload struct {
	tool    *float64 // the load tool is behind its own schedule
	held    *float64 // TCP blocks agents: the backend reads less than they send
	backend *float64 // the backend reports overload
	behind  time.Duration
	agents  int64
	skipped float64
	first   *scrape
	past    []string // conditions that have ended

	burners []burner  // processes that use up CPU on purpose
	end     time.Time // of that
	start   *scrape
	quick   int // consecutive samples in which marked events were visible soon
}

const (
	lateTool    = time.Second // this late, the load tool measures its own lack of CPU
	soonVisible = 1.0         // seconds, as without overload
	quickTimes  = 3
)

// look checks a sample.
func (o *overload) look(at float64, s Snapshot, seen *scrape) {
	mark := func(since **float64, is bool, what string) {
		switch {
		case is && *since == nil:
			*since = &at
		case !is && *since != nil:
			o.past = append(o.past, fmt.Sprintf("%s from second %.0f to second %.0f", what, **since, at))
			*since = nil
		}
	}
	o.behind, o.agents = s.Lag, s.HeldUp
	mark(&o.tool, s.Lag > lateTool, toolLate)
	mark(&o.held, s.HeldUp > 0, agentsHeld)
	if seen == nil {
		return
	}
	if o.first == nil {
		o.first = seen
	}
	o.skipped, _ = seen.since(o.first, metricSkipped)
	mark(&o.backend, seen.gauges[metricOverloaded] > 0, backendOver)
}

const (
	toolLate    = "the load tool was behind its own schedule (short of CPU: what it measures then is its own)"
	agentsHeld  = "TCP held agents up"
	backendOver = "the backend was overloaded and asked for fewer runs"
)

// text describes the present conditions; empty if there are none.
func (o *overload) text() string {
	var parts []string
	if o.backend != nil {
		parts = append(parts, fmt.Sprintf("backend overloaded since %.0f s, %.0f runs skipped", *o.backend, o.skipped))
	}
	if o.held != nil {
		parts = append(parts, fmt.Sprintf("TCP holds up %d agents since %.0f s", o.agents, *o.held))
	}
	if o.tool != nil {
		parts = append(parts, fmt.Sprintf("load tool %v late since %.0f s", o.behind.Round(100*time.Millisecond), *o.tool))
	}
	return strings.Join(parts, "; ")
}

// notes are remarks for readers of the report.
func (o *overload) notes() []string {
	const most = 10
	notes := append([]string(nil), o.past[:min(len(o.past), most)]...)
	if n := len(o.past) - len(notes); n > 0 {
		notes = append(notes, fmt.Sprintf("and %d more such times", n))
	}
	if text := o.text(); text != "" {
		notes = append(notes, "at the end: "+text)
	}
	return notes
}

// burner is a process that keeps a processor busy, see Burn.
type burner struct {
	cmd *exec.Cmd
	in  io.Closer
}

// Burn keeps a processor busy until in ends.
func Burn(in io.Reader) {
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		ended.Store(true)
	}()
	for n := uint64(0); !ended.Load(); {
		for range 1 << 20 {
			n = mix64(n)
		}
	}
}

// beginOverload starts processes that use up CPU, if the scenario has an overload.
func (r *run) beginOverload() error {
	want := r.opts.Scenario.Load.Overload
	if want.Duration == 0 {
		return nil
	}
	o := &r.overload
	o.end, o.start = time.Now().Add(want.Duration), r.lastSeen
	for range want.BusyCores {
		cmd := exec.Command(r.opts.Burner[0], r.opts.Burner[1:]...)
		detach(cmd)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			r.endOverload()
			return fmt.Errorf("start a process that keeps a processor busy: %w", err)
		}
		o.burners = append(o.burners, burner{cmd, in})
	}
	r.report.Overload = &report.Overload{}
	return nil
}

// endOverload ends those processes.
func (r *run) endOverload() {
	for _, b := range r.overload.burners {
		_ = b.in.Close()
		_ = b.cmd.Wait()
	}
	r.overload.burners = nil
}

// phase names the running phase.
func (r *run) phase() string {
	switch {
	case r.report.Overload == nil:
		return "measuring"
	case r.report.Overload.Seconds == 0:
		return "overload"
	case r.report.Overload.CaughtUpSeconds == nil:
		return "catching up"
	}
	return "afterwards"
}

// overloadSample ends the overload when it is time, and detects when the backend has caught up.
func (r *run) overloadSample(s report.Sample) {
	rep, o := r.report.Overload, &r.overload
	switch {
	case rep == nil || rep.CaughtUpSeconds != nil:
	case rep.Seconds == 0:
		if time.Now().Before(o.end) {
			return
		}
		r.endOverload()
		rep.Seconds = time.Since(r.begin).Seconds()
		o.end = time.Now()
		rep.Latencies = map[string]report.Quantiles{}
		for name, h := range r.latencies {
			rep.Latencies[name] = quantiles(h)
		}
		if n, seconds, ok := r.lastSeen.results(o.start); ok && seconds > 0 {
			rep.EventsPerSecond = n / seconds
		}
	default:
		if q, ok := s.Latencies[report.LatencyVisible]; !ok || q.P99 > soonVisible {
			o.quick = 0
			return
		}
		if o.quick++; o.quick == quickTimes {
			rep.CaughtUpSeconds = pointer(time.Since(o.end).Seconds())
		}
	}
}

const (
	drainPatience = 3 * time.Minute
	drainedStill  = 3 // consecutive samples without another result: none is on its way
	// turnPatience is how long a backend may take to give a turn of an agent that is gone to another agent.
	turnPatience = 15 * time.Second
)

// drained waits, after the agents have stopped their results, until the backend folds no more: events on their way are
// not lost. Turns of a run are given to other agents for some more time.
func (r *run) drained(ctx context.Context) error {
	turns := time.Now()
	if r.report.Turns != nil {
		turns = turns.Add(turnPatience)
	}
	still, slack := 0, 0.0
	if len(r.opts.Metrics) > 1 { // the members of a cluster are read one after the other
		slack = r.report.Summary.EventsPerSecond / 100
	}
	for until := time.Now().Add(drainPatience); time.Now().Before(until) && (still < drainedStill || time.Now().Before(turns)); {
		before := r.lastSeen
		sample, err := r.sample(ctx)
		if err != nil {
			return err
		}
		r.progress("settling", sample)
		n, _, ok := r.lastSeen.results(before)
		switch {
		case r.lastSeen == before || n > slack || r.last.HeldUp > 0:
			still = 0
		case !ok:
			return nil // the backend does not report it; the comparison waits for some time
		default:
			still++
		}
		if err := r.pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}
