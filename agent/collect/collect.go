// Package collect measures the host of an agent and probes what it can reach, without plugins. The agent passes the
// commands that begin with Prefix, such as "builtin:disk --warning 80", to Set.Run instead of the shell.
//
// A collector measures, compares the values with the thresholds of the command and returns what a plugin would: a line
// of text, performance data and an exit status. It also returns metrics, named as Diamond names them, so that
// dashboards with years of Graphite data keep working. Counters become rates, for which a Set remembers the last run of
// each check. When a check runs is up to the agent.
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

// Prefix begins the commands for a Set.
const Prefix = "builtin:"

// The exit statuses of plugins.
const (
	OK = iota
	Warning
	Critical
	Unknown
)

// forgetAfter bounds the age of a run to compare with: rates over hours are meaningless.
const forgetAfter = 15 * time.Minute

// Options are the settings of a Set.
type Options struct {
	// Host follows "servers." in the names of metrics; its dots become underscores. Default "localhost".
	Host string
	// StateDir keeps what must survive a restart: how far log files were read. Default none: a restart begins anew.
	StateDir string
	// Proc and Sys are the mount points of the kernel's file systems. Default /proc and /sys.
	Proc, Sys string
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Set runs collectors. It is safe for concurrent use.
type Set struct {
	opts Options

	mu     sync.Mutex // guards the fields below
	last   map[string]memory
	mounts map[string]bool             // file systems that do not answer
	places map[string]map[string]place // how far log files are read, by check
}

// memory holds the counters of a run.
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

// Result is the result of a run.
type Result struct {
	Status  int
	Output  string
	Metrics []Metric
	At      time.Time // when it was measured
}

// Graphite returns the metrics as lines of Graphite's plaintext protocol.
func (r *Result) Graphite() string {
	var b strings.Builder
	for _, m := range r.Metrics {
		fmt.Fprintf(&b, "%s %s %d\n", m.Path, strconv.FormatFloat(m.Value, 'f', -1, 64), r.At.Unix())
	}
	return b.String()
}

// collector is one kind of measurement, created for each run.
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

// Names returns the names of the collectors.
func Names() []string { return slices.Sorted(maps.Keys(kinds)) }

// About returns what a collector measures.
func About(name string) string { return kinds[name].about }

// Usage returns the flags of a collector.
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

// commonFlags are the flags of all collectors.
type commonFlags struct{ prefix string }

func flagSet(name string, c collector) (*flag.FlagSet, *commonFlags) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var f commonFlags
	fs.StringVar(&f.prefix, "prefix", "", "what the names of metrics begin with (default servers.HOST)")
	c.flags(fs)
	return fs, &f
}

// Run runs a command such as "builtin:cpu --warning 90". The key distinguishes checks with the same command. An invalid
// command and a failed measurement have the status Unknown.
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
	bad     []string // values beyond a threshold
	good    []string
	perf    []string
	metrics []Metric
}

// metric adds a value under a path, unless it is not a number.
func (r *run) metric(path string, value float64) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		r.metrics = append(r.metrics, Metric{r.prefix + "." + path, value})
	}
}

// say adds to the text.
func (r *run) say(format string, args ...any) { r.good = append(r.good, fmt.Sprintf(format, args...)) }

// fail is say for a value that is not good.
func (r *run) fail(status int, format string, args ...any) {
	r.status = worse(r.status, status)
	r.bad = append(r.bad, fmt.Sprintf(format, args...))
}

// worse returns the more severe status, in the order of plugins: critical, unknown, warning, OK.
func worse(a, b int) int {
	rank := [...]int{OK: 0, Warning: 1, Unknown: 2, Critical: 3}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// judge compares a value with thresholds and adds it to text and performance data.
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

// number formats a value with a useful number of digits.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// maxGood bounds how many good values the text lists.
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

// before returns the values of the check's last run and how long ago it was, and keeps this run's values. ok is false
// if there is nothing to compare with.
func before[T any](r *run, value T) (old T, elapsed time.Duration, ok bool) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	was := r.set.last[r.key]
	r.set.last[r.key] = memory{r.now, value}
	for key, m := range r.set.last { // checks that no longer run
		if r.now.Sub(m.at) > forgetAfter {
			delete(r.set.last, key)
		}
	}
	old, ok = was.value.(T)
	elapsed = r.now.Sub(was.at)
	return old, elapsed, ok && elapsed > 0 && elapsed <= forgetAfter
}

// sampled measures twice, a moment apart, if there is no earlier run to compare with.
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

// rate is the growth of a counter per second. A counter that went backwards was reset.
func rate(old, now float64, elapsed time.Duration) float64 {
	if now < old {
		return 0
	}
	return (now - old) / elapsed.Seconds()
}

// bound is an optional threshold. A value beyond it is bad: above it, or below it for a lower bound.
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

// Set implements flag.Value.
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

// thresholds are the flags of a value with thresholds.
type thresholds struct{ warning, critical bound }

// register defines --warning and --critical, or the same with a suffix. The defaults may be "".
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

// lower turns them into lower bounds.
func (t *thresholds) lower() { t.warning.below, t.critical.below = true, true }

var errLinuxOnly = errors.New("this can be measured on Linux only, not on " + runtime.GOOS)

// list is a flag that may be given several times, or as a list with commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(s string) error {
	for v := range strings.SplitSeq(s, ",") {
		if v = strings.TrimSpace(v); v != "" {
			*l = append(*l, v)
		}
	}
	return nil
}

// matches reports whether a name equals or matches an element of the list.
func (l *list) matches(name string) bool {
	return slices.ContainsFunc(*l, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok || err != nil && pattern == name
	})
}
