// Package load drives a backend with thousands of simulated agents over the real protocol, Sensu's or lapwing's, and
// measures what becomes of their events. The load command in cmd/lapwing calls Run.
//
// A Fleet is the agents of one process. Run plays a scenario: it creates the scenario's objects through the API,
// connects fleets in this and other processes, follows a few marked events to the API and to a handler, reads the
// backend's metrics, and at the end compares what the backend stores of every check with what was sent. Package
// scenario reads the scenarios and judges the results, package report writes them.
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
)

// Options describes a run.
type Options struct {
	Scenario *scenario.Scenario
	API      APIOptions
	// Backends are websocket URLs where the agents connect, in turn.
	Backends []string
	// Metrics are URLs of the backends' metrics. Default: /metrics of the API.
	Metrics []string
	// AgentUser and AgentPassword are the agents' credentials.
	AgentUser, AgentPassword string
	RetryMin, RetryMax       time.Duration
	// Child is the command line of a process that calls ServeWorker; needed for more than one process.
	Child []string
	// Burner is the command line of a process that keeps a processor busy; needed for a scenario with an overload.
	Burner []string
	// TurnLog is a file for a line per answered turn of a round-robin check, in columns; "" for none. With several
	// processes each has a file of its own, with a dot and its number after the name.
	TurnLog string
	// NoVerify skips the comparison at the end.
	NoVerify bool
	// Keep leaves what the run has created, for a backend that is thrown away: to delete 40,000 entities takes minutes.
	Keep bool
	// Command, Settings and Version go into the report.
	Command  string
	Settings map[string]string
	Version  string
	// Progress gets a line every second.
	Progress io.Writer
	Logger   *slog.Logger
}

const (
	connectPatience = 3 * time.Minute // beyond the time that the connect rate takes
	cleanupPatience = 2 * time.Minute
	registerPause   = 2 * time.Second // from the last agent's connection until the checks' creation has taken effect
)

// run is a running run.
type run struct {
	opts    Options
	api     *client.Client
	watch   *watcher
	probes  *probes
	workers []worker
	report  *report.Report

	begin     time.Time // of the measured part
	last      Snapshot
	lastAt    time.Time
	lastSeen  *scrape
	answers   answerBook
	overload  overload
	latencies map[string]*hdrhistogram.Histogram // of the measured part
	start     Snapshot                           // at the beginning of the measured part
}

// Run plays a scenario. When ctx ends, the run ends early and still reports. Once agents were connected, there is a
// report even with an error.
func Run(ctx context.Context, opts Options) (_ *report.Report, err error) {
	s := opts.Scenario
	if s.AgentCount() == 0 {
		return nil, errors.New("load: no agents")
	}
	if s.Load.KillAgents > 0 && s.Load.Duration == 0 {
		return nil, errors.New("load: agents can be killed over a run only if its duration is given")
	}
	if len(opts.Metrics) == 0 {
		opts.Metrics = []string{strings.TrimRight(opts.API.URL, "/") + "/metrics"}
	}
	r := &run{opts: opts, watch: newWatcher(opts.Metrics), latencies: map[string]*hdrhistogram.Histogram{}}
	for _, g := range s.Agents {
		if g.Count == 0 {
			continue // parts leaves it out, too
		}
		fleet := r.fleet(g)
		if err := fleet.validate(); err != nil {
			return nil, err
		}
	}
	if r.api, err = opts.API.client(); err != nil {
		return nil, err
	}
	defer r.api.Close()

	// The run's objects are removed, even if ctx has ended.
	clean := context.WithoutCancel(ctx)
	defer func() {
		ctx, cancel := context.WithTimeout(clean, cleanupPatience)
		defer cancel()
		err = errors.Join(err, r.cleanup(ctx))
	}()
	s.Logger = opts.Logger
	if err := s.Setup(ctx, r.api); err != nil {
		return nil, err
	}
	if err := r.startAgents(ctx); err != nil {
		return nil, err
	}
	r.report = r.newReport()
	if err := r.connect(ctx); err != nil {
		return r.report, err
	}
	if s.Load.ChecksLast {
		fmt.Fprintln(opts.Progress, "creating the checks")
	}
	if err := s.SetupLate(ctx, r.api); err != nil {
		return r.report, err
	}
	if err := r.measure(ctx); err != nil {
		return r.report, err
	}
	return r.report, r.finish(clean)
}

// parts divides the agents among the processes: every process has a part of each group.
func (r *run) parts() []Part {
	s := r.opts.Scenario
	parts := make([]Part, max(1, s.Load.Processes))
	for _, g := range s.Agents {
		o := r.fleet(g)
		for i := range parts {
			o.First = g.Count*i/len(parts) + 1
			o.Count = g.Count*(i+1)/len(parts) + 1 - o.First
			if o.Count > 0 {
				parts[i].Fleets = append(parts[i].Fleets, o)
			}
		}
	}
	for i := range parts {
		if parts[i].TurnLog = r.opts.TurnLog; parts[i].TurnLog != "" && len(parts) > 1 {
			parts[i].TurnLog += "." + strconv.Itoa(i+1)
		}
	}
	return parts
}

func (r *run) fleet(g scenario.Agents) FleetOptions {
	s := r.opts.Scenario
	o := FleetOptions{
		Run: s.Run, Backends: r.opts.Backends, Namespace: s.Namespace, User: r.opts.AgentUser, Password: r.opts.AgentPassword,
		BaseName: g.Name, Count: g.Count, Subscriptions: g.Subscriptions, SubscriptionsPerAgent: g.SubscriptionsPerAgent,
		Protocol: g.Protocol, Sources: s.Load.Sources,
		KeepaliveInterval: g.Keepalive.Interval, KeepaliveTimeout: g.Keepalive.Warning,
		ConnectRate: s.Load.ConnectRate * float64(g.Count) / float64(s.AgentCount()) / float64(max(1, s.Load.Processes)),
		RetryMin:    r.opts.RetryMin, RetryMax: r.opts.RetryMax,
		BatchDelay: s.Load.BatchDelay, FlapRate: s.Load.FlapRate,
		EventBytes: s.Load.EventBytes, HugeEvents: s.Load.HugeEvents, HugeBytes: s.Load.HugeBytes,
		MetricsPerEvent: s.Load.MetricsPerEvent, Churn: s.Load.Churn * float64(g.Count) / float64(s.AgentCount()) / float64(max(1, s.Load.Processes)),
		AckDelay: s.Load.AckDelay, Receipts: s.Load.Receipts, KillAgents: s.Load.KillAgents,
		Seed: s.Load.Seed, Version: r.opts.Version,
	}
	for status, weight := range s.Load.Statuses {
		o.Mix = append(o.Mix, Share{status, weight})
	}
	slices.SortFunc(o.Mix, func(a, b Share) int { return int(a.Status) - int(b.Status) })
	return o
}

func (r *run) startAgents(ctx context.Context) error {
	s := r.opts.Scenario
	if s.Load.Probes > 0 {
		host, err := hostOf(r.opts.API.URL)
		if err != nil {
			return err
		}
		if r.probes, err = newProbes(ctx, r.api, r.fleet(s.Agents[0]), s.Load.Probes, host, r.opts.Logger); err != nil {
			return err
		}
		if err := r.probes.start(ctx); err != nil {
			return err
		}
	}
	parts := r.parts()
	for i, part := range parts {
		var w worker = &local{log: r.opts.Logger}
		if len(parts) > 1 {
			var err error
			if w, err = startRemote(r.opts.Child); err != nil {
				return err
			}
		}
		r.workers = append(r.workers, w)
		if err := w.start(ctx, part); err != nil {
			return fmt.Errorf("start load process %d: %w", i+1, err)
		}
	}
	return nil
}

// hostOf returns the address at which the probes' handler can reach this process: loopback, if the backend is on this
// machine.
func hostOf(api string) (string, error) {
	u, err := url.Parse(api)
	if err != nil {
		return "", fmt.Errorf("parse API URL: %w", err)
	}
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
		return "127.0.0.1", nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this machine, for the probes' handler: %w", err)
	}
	return host, nil
}

// connect waits until all agents are connected.
func (r *run) connect(ctx context.Context) error {
	want, patience := r.opts.Scenario.AgentCount(), connectPatience
	if rate := r.opts.Scenario.Load.ConnectRate; rate > 0 {
		patience += time.Duration(float64(want) / rate * float64(time.Second))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	r.begin = begin // until the measured part begins
	for {
		sample, err := r.sample(ctx)
		if err != nil {
			return err
		}
		r.progress("connecting", sample)
		r.report.Summary.Connected = sample.Agents
		r.report.Summary.ConnectSeconds = time.Since(begin).Seconds()
		// With churn there may be no moment at which all are connected: each must have been connected once.
		if sample.Agents >= want || r.opts.Scenario.Load.Churn > 0 && int(r.last.Arrived) >= want {
			r.report.Summary.Connected = want
			return r.pause(ctx, registerPause)
		}
		if err := r.pause(ctx, time.Second); err != nil {
			return fmt.Errorf("connect agents: %d of %d: %w; last error: %s", sample.Agents, want, err, r.last.LastError)
		}
	}
}

func (r *run) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// measure runs the agents, after the warm-up, for the time of the scenario.
func (r *run) measure(ctx context.Context) error {
	s := r.opts.Scenario
	for until := time.Now().Add(s.Load.WarmUp); time.Now().Before(until) && ctx.Err() == nil; {
		sample, err := r.sample(ctx)
		if err != nil {
			return err
		}
		r.progress("warming up", sample)
		_ = r.pause(ctx, time.Second)
	}
	first, err := r.sample(context.WithoutCancel(ctx)) // ends the earlier phase
	if err != nil {
		return err
	}
	r.progress("measuring", first)
	r.latencies = map[string]*hdrhistogram.Histogram{}
	r.begin = r.lastAt
	r.report.Started = r.begin
	startSeen := r.lastSeen
	r.start = r.last
	for i, w := range r.workers {
		if err := w.begin(s.Load.Duration); err != nil {
			return fmt.Errorf("begin to measure in load process %d: %w", i+1, err)
		}
	}
	if err := r.beginOverload(); err != nil {
		return err
	}
	defer r.endOverload()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil && (s.Load.Duration == 0 || time.Since(r.begin) < s.Load.Duration) {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		sample, err := r.sample(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		r.report.Series = append(r.report.Series, sample)
		r.progress(r.phase(), sample)
		r.overloadSample(sample)
	}
	r.summarize(startSeen)
	return nil
}

// sample returns what happened since the last sample.
func (r *run) sample(ctx context.Context) (report.Sample, error) {
	var s Snapshot
	for i, w := range r.workers {
		one, err := w.snapshot()
		if err != nil {
			return report.Sample{}, fmt.Errorf("ask load process %d: %w", i+1, err)
		}
		s.add(one)
	}
	if r.probes != nil {
		one := r.probes.fleet.Snapshot()
		// Probes are not counted as agents; their measurements are.
		s.add(Snapshot{Errors: one.Errors, Latencies: map[string]*hdrhistogram.Snapshot{
			report.LatencyAPI:     one.Latencies[report.LatencyAPI],
			report.LatencyVisible: one.Latencies[report.LatencyVisible], report.LatencyHandler: one.Latencies[report.LatencyHandler],
		}, LastError: one.LastError})
		if len(r.workers) > 1 {
			s.CPU += ProcessCPU()
		}
	}
	now := s.Last
	if now.IsZero() {
		now = time.Now()
	}
	r.answers.note(s.Answers, now)
	s.Answers, s.Turns.Different, s.Turns.Twice = nil, r.answers.different, r.answers.twice
	sample := report.Sample{
		At: now.Sub(r.begin).Seconds(), Agents: int(s.Connected), Events: s.Events - r.last.Events, Errors: s.Errors - r.last.Errors,
		Turns: s.Turns.Answered - r.last.Turns.Answered, Latencies: map[string]report.Quantiles{},
	}
	for name, exported := range s.Latencies {
		if exported == nil {
			continue
		}
		h := hdrhistogram.Import(exported)
		sample.Latencies[name] = quantiles(h)
		if r.latencies[name] == nil {
			r.latencies[name] = newHistogram()
		}
		r.latencies[name].Merge(h)
	}
	seconds := now.Sub(r.lastAt).Seconds()
	if !r.lastAt.IsZero() && seconds > 0 {
		sample.LoadCPU = pointer((s.CPU - r.last.CPU).Seconds() / seconds)
	}
	seen, err := r.watch.read(ctx)
	if err != nil {
		// A backend that is busy or restarts leaves a gap in the plots but does not end the run.
		r.opts.Logger.Debug("metrics could not be read", "err", err)
	} else {
		r.describe(&sample, seen)
		r.lastSeen = seen
	}
	r.last, r.lastAt = s, now
	r.overload.look(sample.At, s, r.lastSeen)
	return sample, nil
}

// describe adds the backend's metrics.
func (r *run) describe(sample *report.Sample, seen *scrape) {
	if rss, ok := seen.gauges[metricRSS]; ok {
		sample.BackendRSS = &rss
	}
	sample.Queues, sample.Counters = map[string]float64{}, map[string]float64{}
	for metric, name := range queues {
		if v, ok := seen.gauges[metric]; ok {
			sample.Queues[name] = v
		}
	}
	if r.lastSeen == nil {
		return
	}
	seconds := seen.done.Sub(r.lastSeen.at).Seconds()
	if seconds <= 0 {
		return
	}
	if n, seconds, ok := seen.results(r.lastSeen); ok {
		sample.Events = uint64(n/seconds + 0.5)
	}
	if cpu, ok := seen.since(r.lastSeen, metricCPU); ok {
		sample.BackendCPU = pointer(cpu / seconds)
	}
	for name := range seen.counters {
		if d, ok := seen.since(r.lastSeen, name); ok && d > 0 {
			sample.Counters[name] = d / seconds
		}
	}
}

func pointer(v float64) *float64 { return &v }

// summarize computes the figures of the measured part.
func (r *run) summarize(startSeen *scrape) {
	rep, sum, start := r.report, &r.report.Summary, &r.start
	rep.Seconds = r.lastAt.Sub(r.begin).Seconds()
	sent, seconds := float64(r.last.Events-start.Events), r.last.Last.Sub(start.First).Seconds()
	if seconds > 0 {
		sum.SentPerSecond = sent / seconds
	}
	events, seconds, folded := r.lastSeen.results(startSeen)
	if !folded {
		events, seconds = sent, r.last.Last.Sub(start.First).Seconds()
	}
	if seconds > 0 {
		sum.EventsPerSecond = events / seconds
	}
	rep.Latencies = map[string]report.Quantiles{}
	for name, h := range r.latencies {
		rep.Latencies[name] = quantiles(h)
	}
	rep.Notes = append(rep.Notes, r.overload.notes()...)
	if skipped, ok := r.lastSeen.since(startSeen, metricSkipped); ok {
		sum.Skipped = uint64(skipped)
	}
	if late, ok := r.lastSeen.since(startSeen, received("deadline")); ok && rep.Overload != nil {
		rep.Overload.FalseDeadlines = &late
	}
	r.summarizeTurns()
	if t := rep.Turns; t != nil && t.Receipts { // the few events are those of the probes
		seconds = r.last.Last.Sub(start.First).Seconds()
		events, folded = t.PerSecond*seconds, false
	}
	if events > 0 {
		r.summarizeCosts(startSeen, events, seconds, folded)
	}
}

// summarizeCosts computes what an event, or a turn, has cost: so many of them were folded by the backend in so many
// seconds, or counted by the load tool.
func (r *run) summarizeCosts(startSeen *scrape, events, seconds float64, folded bool) {
	sum, start := &r.report.Summary, &r.start
	if tool := r.last.Last.Sub(start.First).Seconds(); tool > 0 {
		sum.LoadCPUMicros = pointer((r.last.CPU - start.CPU).Seconds() / tool * seconds * 1e6 / events)
	}
	if cpu, ok := r.lastSeen.since(startSeen, metricCPU); ok {
		sum.BackendCPUMicros = pointer(cpu * 1e6 / events)
		if !folded { // the metrics are read a moment after the counts; the share of time corrects that
			sum.BackendCPUMicros = pointer(cpu / r.lastSeen.at.Sub(startSeen.at).Seconds() * seconds * 1e6 / events)
		}
	}
	sum.Backends = r.backends(startSeen, events)
	if bytes, ok := r.lastSeen.since(startSeen, metricLogBytes); ok {
		sum.LogBytesPerEvent = pointer(bytes / events)
	}
	if bytes, ok := r.lastSeen.since(startSeen, metricDiskBytes); ok {
		sum.DiskBytes = pointer(bytes / events)
	}
	if r.lastSeen != nil {
		if rss, ok := r.lastSeen.gauges[metricRSS]; ok {
			sum.BackendRSSBytes = &rss
		}
	}
}

// backends are the figures of each of several backends.
func (r *run) backends(start *scrape, events float64) (all []report.Backend) {
	if r.lastSeen == nil || start == nil {
		return nil
	}
	for i, one := range r.lastSeen.each {
		b := report.Backend{Metrics: r.opts.Metrics[i]}
		if cpu, ok := one.since(start.each[i], metricCPU); ok {
			b.CPUMicros = pointer(cpu * 1e6 / events)
		}
		if rss, ok := one.gauges[metricRSS]; ok {
			b.RSSBytes = &rss
		}
		all = append(all, b)
	}
	return all
}

// finish stops the results, waits for events on their way, and compares.
func (r *run) finish(ctx context.Context) error {
	var errs []error
	for _, w := range r.workers {
		errs = append(errs, w.quiet())
	}
	if r.probes != nil {
		r.probes.fleet.Quiet()
	}
	sum := &r.report.Summary
	if err := r.drained(ctx); err != nil {
		errs = append(errs, err)
	}
	if !r.opts.NoVerify {
		fmt.Fprintln(r.opts.Progress, "comparing what the backend knows with what was sent")
		var total Verdict
		for _, w := range r.workers {
			v, err := w.verify(ctx, r.opts.API)
			total.add(v)
			errs = append(errs, err)
		}
		sum.Pairs, sum.PairsVerified = total.Pairs, total.Verified
		sum.Lost, sum.Duplicates, sum.OrderViolations = total.Lost, total.Duplicates, total.OrderViolations
		r.report.Notes = append(r.report.Notes, total.Problems...)
	}
	if _, err := r.sample(ctx); err != nil {
		errs = append(errs, err)
	}
	r.countTurns()
	sum.EventsSent, sum.KeepalivesSent, sum.Killed = r.last.Created, r.last.Keepalives, int(r.last.Killed)
	sum.Errors, sum.Disconnects, sum.Moves = r.last.Errors, r.last.Disconnects, r.last.Moves
	if r.last.LastError != "" {
		r.report.Notes = append(r.report.Notes, "last error: "+r.last.LastError)
	}
	if r.last.Unacked > 0 {
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("%d events were not acknowledged within %s", r.last.Unacked, ackLate))
	}
	r.report.Expectations = r.opts.Scenario.Judge(r.report)
	return errors.Join(errs...)
}

// cleanup disconnects the agents and removes the run's objects, unless they are kept.
func (r *run) cleanup(ctx context.Context) error {
	var errs []error
	for _, w := range r.workers {
		errs = append(errs, w.stop())
	}
	if r.probes != nil {
		errs = append(errs, r.probes.stop())
		if r.probes.cancel != nil && !r.opts.Keep {
			errs = append(errs, r.probes.cleanup(ctx))
		}
	}
	if r.opts.Keep {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, r.opts.Scenario.Cleanup(ctx, r.api))...)
}

func (r *run) progress(phase string, s report.Sample) {
	line := fmt.Sprintf("%-10s %6d agents %8d events/s", phase, s.Agents, s.Events)
	if r.last.Turns.Answered > 0 {
		line += fmt.Sprintf(" %8d turns/s", s.Turns)
	}
	for _, name := range []string{report.LatencyAck, report.LatencyVisible, report.LatencyHandler, report.LatencyTurnArrival} {
		if q, ok := s.Latencies[name]; ok {
			line += fmt.Sprintf("  %s p99 %.0f ms", name, q.P99*1000)
		}
	}
	if s.BackendCPU != nil {
		line += fmt.Sprintf("  backend %.2f cores", *s.BackendCPU)
		switch {
		case r.opts.Scenario.Load.Receipts && s.Turns > 0:
			line += fmt.Sprintf(" (%.1f µs/turn)", *s.BackendCPU*1e6/float64(s.Turns))
		case s.Events > 0:
			line += fmt.Sprintf(" (%.1f µs/event)", *s.BackendCPU*1e6/float64(s.Events))
		}
	}
	if s.LoadCPU != nil {
		line += fmt.Sprintf("  load %.2f cores", *s.LoadCPU)
	}
	if r.last.Errors > 0 {
		line += fmt.Sprintf("  errors %d (%s)", r.last.Errors, r.last.LastError)
	}
	if text := r.overload.text(); text != "" {
		line += "  " + text
	}
	fmt.Fprintln(r.opts.Progress, line)
}

func (r *run) newReport() *report.Report {
	s := r.opts.Scenario
	rep := &report.Report{
		Title: s.Name, Started: time.Now(), Command: r.opts.Command, Version: r.opts.Version, Machine: machine(), Seed: s.Load.Seed,
		Protocol: s.Agents[0].Protocol, Processes: max(1, s.Load.Processes), Settings: r.opts.Settings,
		Target: report.Target{Kind: "sensu", URLs: r.opts.Backends}, Summary: report.Summary{Agents: s.AgentCount()},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if seen, err := r.watch.read(ctx); err == nil {
		if _, ok := seen.gauges["lapwing_build_info"]; ok {
			rep.Target.Kind = "lapwing"
		}
		rep.Target.Version = seen.version
	}
	return rep
}

// machine describes this machine, as far as the system reports it.
func machine() report.Machine {
	m := report.Machine{CPUs: runtime.NumCPU(), GoVersion: runtime.Version()}
	m.CPUModel = firstField("/proc/cpuinfo", "model name")
	if kb, _, ok := strings.Cut(firstField("/proc/meminfo", "MemTotal"), " "); ok {
		if n, err := strconv.ParseUint(kb, 10, 64); err == nil {
			m.MemoryBytes = n << 10
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	return m
}

// firstField returns the value of the first line "name: value" of a file.
func firstField(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// events reads events through the API.
type events struct{ c *client.Client }

// EntityEvents implements EventReader.
func (e events) EntityEvents(ctx context.Context, namespace, entity string, out any) error {
	path := "/api/core/v2/namespaces/" + url.PathEscape(namespace) + "/events/" + url.PathEscape(entity)
	return e.c.Do(ctx, "GET", path, nil, out)
}
