// Package collect measures the host that an agent runs on and probes what it can reach, without plugins: a check whose command is
// "builtin:disk --warning 80" is run by the agent itself.
//
// A collector measures, judges what it found by the thresholds of the command, and says so as a plugin would: a line of text, a
// bar and performance data, and an exit status. What it measured is also metrics, named as Diamond names them, so that
// dashboards over years of Graphite data go on. Counters become rates, for which a Set remembers the last run of each check.
package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/shlex"
	"github.com/shirou/gopsutil/v4/common"
)

// Prefix begins the commands that are for a Set.
const Prefix = "builtin:"

// The exit statuses of plugins.
const (
	OK = iota
	Warning
	Critical
	Unknown
)

// forgetAfter is how old a run may be to be compared with: rates over hours say nothing.
const forgetAfter = 15 * time.Minute

// Options are the settings of a Set.
type Options struct {
	// Host is what the names of metrics have after "servers."; its dots become underscores. Default "localhost".
	Host string
	// StateDir is where collectors keep what must outlast the process: how far a log file is read. Default none: it does not.
	StateDir string
	// Proc and Sys are where the kernel's files are. Default /proc and /sys.
	Proc, Sys string
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Set runs collectors. It may be used by several goroutines at the same time.
type Set struct {
	opts Options

	mu     sync.Mutex // guards the fields below
	last   map[string]memory
	mounts map[string]bool             // file systems that do not answer
	places map[string]map[string]place // how far log files are read, by check
}

// memory is what a collector remembers of a run.
type memory struct {
	at    time.Time
	value any
}

// New returns a Set.
func New(opts Options) *Set {
	opts.Host = strings.ReplaceAll(cmp.Or(opts.Host, "localhost"), ".", "_")
	opts.Proc, opts.Sys = cmp.Or(opts.Proc, "/proc"), cmp.Or(opts.Sys, "/sys")
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Set{opts: opts, last: map[string]memory{}, mounts: map[string]bool{}, places: map[string]map[string]place{}}
}

// Metric is one value. Its path begins with "servers." and the host unless the command says otherwise.
type Metric struct {
	Path  string
	Value float64
}

// Result is what came of a run.
type Result struct {
	Status  int
	Output  string
	Metrics []Metric
	At      time.Time // when it was measured
}

// Graphite is the metrics as lines of Graphite's plaintext protocol.
func (r *Result) Graphite() string {
	var b strings.Builder
	for _, m := range r.Metrics {
		fmt.Fprintf(&b, "%s %s %d\n", m.Path, strconv.FormatFloat(m.Value, 'f', -1, 64), r.At.Unix())
	}
	return b.String()
}

// collector is one kind of measurement, made anew for each run.
type collector interface {
	flags(*flag.FlagSet)
	collect(ctx context.Context, r *run) error
}

// kind describes a collector.
type kind struct {
	about string
	make  func() collector
}

// kinds are the collectors by name.
var kinds = map[string]kind{
	"cpu":       {"time spent by processors", func() collector { return new(cpuCollector) }},
	"load":      {"load average", func() collector { return new(loadCollector) }},
	"memory":    {"memory", func() collector { return new(memoryCollector) }},
	"swap":      {"swap space, and pages that go in and out", func() collector { return new(swapCollector) }},
	"disk":      {"space and inodes of file systems", func() collector { return new(diskCollector) }},
	"diskio":    {"what disks do", func() collector { return new(diskioCollector) }},
	"network":   {"traffic and errors of network interfaces", func() collector { return new(networkCollector) }},
	"tcp":       {"the kernel's TCP counters", func() collector { return new(tcpCollector) }},
	"netstat":   {"TCP connections by state", func() collector { return new(netstatCollector) }},
	"sockets":   {"sockets in use", func() collector { return new(socketsCollector) }},
	"files":     {"open files of the whole system", func() collector { return new(filesCollector) }},
	"processes": {"processes by pattern: how many there are and what they use", func() collector { return new(processCollector) }},
	"systemd":   {"states of systemd units", func() collector { return new(systemdCollector) }},
	"log":       {"new lines of log files that match a pattern", func() collector { return new(logCollector) }},
	"cert":      {"days until certificates expire", func() collector { return new(certCollector) }},
	"http":      {"an HTTP request", func() collector { return new(httpCollector) }},
	"port":      {"a TCP connection", func() collector { return new(portCollector) }},
	"dns":       {"a look-up of a name", func() collector { return new(dnsCollector) }},
	"ping":      {"ICMP echo requests", func() collector { return new(pingCollector) }},
}

// Names are the collectors.
func Names() []string { return slices.Sorted(maps.Keys(kinds)) }

// About is what a collector measures.
func About(name string) string { return kinds[name].about }

// Usage is the flags of a collector.
func Usage(name string) string {
	k, ok := kinds[name]
	if !ok {
		return ""
	}
	var b bytes.Buffer
	fs, _ := flagSet(name, k.make())
	fs.SetOutput(&b)
	fs.PrintDefaults()
	return b.String()
}

// common are the flags that all collectors have.
type commonFlags struct{ prefix string }

func flagSet(name string, c collector) (*flag.FlagSet, *commonFlags) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var f commonFlags
	fs.StringVar(&f.prefix, "prefix", "", "what the names of metrics begin with (default servers.HOST)")
	c.flags(fs)
	return fs, &f
}

// Run runs a command such as "builtin:cpu --warning 90". The key tells checks apart that have the same command. A command that
// cannot be understood, and a measurement that fails, have the status Unknown.
func (s *Set) Run(ctx context.Context, key, command string) Result {
	unknown := func(format string, args ...any) Result {
		return Result{Status: Unknown, Output: fmt.Sprintf(format, args...) + "\n", At: s.opts.Now()}
	}
	words, err := shlex.Split(strings.TrimPrefix(strings.TrimSpace(command), Prefix))
	if err != nil || len(words) == 0 {
		return unknown("UNKNOWN: command %q cannot be understood", command)
	}
	name := words[0]
	k, ok := kinds[name]
	if !ok {
		return unknown("UNKNOWN: there is no collector %q; there are %s", name, strings.Join(Names(), ", "))
	}
	c := k.make()
	fs, f := flagSet(name, c)
	err = fs.Parse(words[1:])
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected %q", fs.Arg(0))
	}
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return unknown("%s: %s\n%s", name, k.about, Usage(name))
		}
		return unknown("%s UNKNOWN: %v", label(name), err)
	}
	r := run{set: s, key: name + "\x00" + key + "\x00" + command, now: s.opts.Now(), prefix: cmp.Or(f.prefix, "servers."+s.opts.Host)}
	if s.opts.Proc != "/proc" || s.opts.Sys != "/sys" {
		ctx = context.WithValue(ctx, common.EnvKey, common.EnvMap{common.HostProcEnvKey: s.opts.Proc, common.HostSysEnvKey: s.opts.Sys})
	}
	if err := c.collect(ctx, &r); err != nil {
		return unknown("%s UNKNOWN: %v", label(name), err)
	}
	return r.result(name)
}

func label(name string) string { return strings.ToUpper(name) }

// run is one run of a collector.
type run struct {
	set    *Set
	key    string
	now    time.Time
	prefix string

	status  int
	bad     []string // what is beyond a threshold
	good    []string
	perf    []string
	metrics []Metric
}

// metric notes a value under a path; a value that is no number is left out.
func (r *run) metric(path string, value float64) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		r.metrics = append(r.metrics, Metric{r.prefix + "." + path, value})
	}
}

// say puts something into the text.
func (r *run) say(format string, args ...any) { r.good = append(r.good, fmt.Sprintf(format, args...)) }

// fail is say of something that is not as it should be.
func (r *run) fail(status int, format string, args ...any) {
	r.status = worse(r.status, status)
	r.bad = append(r.bad, fmt.Sprintf(format, args...))
}

// worse orders statuses as plugins do: critical, unknown, warning, OK.
func worse(a, b int) int {
	rank := [...]int{OK: 0, Warning: 1, Unknown: 2, Critical: 3}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// judge compares a value with thresholds, and puts it into text and performance data.
func (r *run) judge(name string, value float64, unit string, t *thresholds, text string) {
	r.perf = append(r.perf, fmt.Sprintf("%s=%s%s;%s;%s", name, number(value), unit, t.warning.String(), t.critical.String()))
	switch {
	case t.critical.broken(value):
		r.fail(Critical, "%s (critical %s)", text, t.critical.String())
	case t.warning.broken(value):
		r.fail(Warning, "%s (warning %s)", text, t.warning.String())
	default:
		r.good = append(r.good, text)
	}
}

// number is a value with as many digits as help.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// maxGood is how much of what is as it should be is said.
const maxGood = 5

func (r *run) result(name string) Result {
	if len(r.good) > maxGood {
		r.good = append(r.good[:maxGood], fmt.Sprintf("and %d more", len(r.good)-maxGood))
	}
	text := label(name) + " " + [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[r.status] + ": " + strings.Join(append(r.bad, r.good...), ", ")
	if len(r.perf) > 0 {
		text += " | " + strings.Join(r.perf, " ")
	}
	return Result{Status: r.status, Output: text + "\n", Metrics: r.metrics, At: r.now}
}

// before returns what the last run of the check kept and how long ago that was, and keeps what this one found. ok is false if
// there is nothing to compare with.
func before[T any](r *run, value T) (old T, elapsed time.Duration, ok bool) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	was := r.set.last[r.key]
	r.set.last[r.key] = memory{r.now, value}
	for key, m := range r.set.last { // checks that are no more
		if r.now.Sub(m.at) > forgetAfter {
			delete(r.set.last, key)
		}
	}
	old, ok = was.value.(T)
	elapsed = r.now.Sub(was.at)
	return old, elapsed, ok && elapsed > 0 && elapsed <= forgetAfter
}

// sampled measures twice if there is no run to compare with: now, and a moment later.
func sampled[T any](ctx context.Context, r *run, moment time.Duration, measure func() (T, error)) (old, now T, elapsed time.Duration, err error) {
	if now, err = measure(); err != nil {
		return old, now, 0, err
	}
	old, elapsed, ok := before(r, now)
	if ok {
		return old, now, elapsed, nil
	}
	old = now
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return old, now, 0, ctx.Err()
	}
	r.now = r.set.opts.Now()
	if now, err = measure(); err != nil {
		return old, now, 0, err
	}
	_, elapsed, _ = before(r, now)
	if elapsed <= 0 {
		elapsed = moment
	}
	return old, now, elapsed, nil
}

// rate is how fast a counter grew, per second. One that went backwards began anew.
func rate(old, now float64, elapsed time.Duration) float64 {
	if now < old {
		return 0
	}
	return (now - old) / elapsed.Seconds()
}

// bound is a threshold. A value beyond it is bad: above it, or below if it is a lower bound. It may be left out.
type bound struct {
	set   bool
	value float64
	below bool
}

func (b *bound) String() string {
	if !b.set {
		return ""
	}
	return number(b.value)
}

// Set is for package flag.
func (b *bound) Set(s string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || math.IsNaN(v) {
		return errors.New("it is not a number")
	}
	b.set, b.value = true, v
	return nil
}

func (b *bound) broken(v float64) bool {
	return b.set && (b.below && v < b.value || !b.below && v > b.value)
}

// thresholds are the flags of a value that is judged.
type thresholds struct{ warning, critical bound }

// register makes flags of them: --warning and --critical, or with a suffix. The defaults may be "".
func (t *thresholds) register(fs *flag.FlagSet, suffix, warning, critical, about string) {
	t.defaults(warning, critical)
	fs.Var(&t.warning, "warning"+suffix, "warning "+about)
	fs.Var(&t.critical, "critical"+suffix, "critical "+about)
}

func (t *thresholds) defaults(warning, critical string) {
	if warning != "" {
		_ = t.warning.Set(warning)
	}
	if critical != "" {
		_ = t.critical.Set(critical)
	}
}

// lower makes them lower bounds.
func (t *thresholds) lower() { t.warning.below, t.critical.below = true, true }

var errLinuxOnly = errors.New("this can be measured on Linux only, not on " + runtime.GOOS)

// list is a flag that may be given several times, or as a list with commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set is for package flag.
func (l *list) Set(s string) error {
	for v := range strings.SplitSeq(s, ",") {
		if v = strings.TrimSpace(v); v != "" {
			*l = append(*l, v)
		}
	}
	return nil
}

// matches says whether a name is one of the list, or fits one that is a pattern.
func (l *list) matches(name string) bool {
	return slices.ContainsFunc(*l, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok || err != nil && pattern == name
	})
}
