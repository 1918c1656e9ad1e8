package collect

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

// cpuCollector measures how processors spend their time.
type cpuCollector struct {
	used, iowait, steal thresholds
	sample              time.Duration
	simple              bool
}

func (c *cpuCollector) flags(fs *flag.FlagSet) {
	c.used.register(fs, "", "", "", "above so many percent of the time that processors are not idle")
	c.iowait.register(fs, "-iowait", "", "", "above so many percent of the time waiting for I/O")
	c.steal.register(fs, "-steal", "", "", "above so many percent of the time taken by other virtual machines")
	fs.DurationVar(&c.sample, "sample", time.Second, "how long to measure when there is no run to compare with")
	fs.BoolVar(&c.simple, "percent", false, "metrics in percent of all processors instead of a hundredth of a second per second, as Diamond has them")
}

func (c *cpuCollector) collect(ctx context.Context, r *run) error {
	old, now, elapsed, err := sampled(ctx, r, c.sample, func() ([]cpu.TimesStat, error) {
		each, err := cpu.TimesWithContext(ctx, true)
		if err != nil {
			return nil, fmt.Errorf("read times of processors: %w", err)
		}
		return each, nil
	})
	if err != nil {
		return err
	}
	earlier := map[string]cpu.TimesStat{}
	for _, t := range old {
		earlier[t.CPU] = t
	}
	var total times
	for _, t := range now {
		was, ok := earlier[t.CPU]
		if !ok {
			continue // it was switched on just now
		}
		one := spent(was, t, elapsed)
		total.add(one)
		if !c.simple {
			one.metrics(r, t.CPU, 100)
		}
	}
	total.count = float64(len(now))
	scale := 100.0
	if c.simple {
		scale = 100 / total.count
	}
	total.metrics(r, "total", scale)
	r.metric("cpu.cpu_count", total.count)
	percent := func(v float64) float64 { return 100 * v / total.count }
	busy := percent(total.busy())
	r.judge("used", busy, "%", &c.used, number(busy)+"% used")
	r.judge("iowait", percent(total.iowait), "%", &c.iowait, number(percent(total.iowait))+"% waiting for I/O")
	r.judge("steal", percent(total.steal), "%", &c.steal, number(percent(total.steal))+"% stolen")
	return nil
}

// times is seconds per second.
type times struct {
	count                                                                   float64
	user, nice, system, idle, iowait, irq, softirq, steal, guest, guestNice float64
}

func spent(old, now cpu.TimesStat, elapsed time.Duration) times {
	return times{
		count: 1, user: rate(old.User, now.User, elapsed), nice: rate(old.Nice, now.Nice, elapsed), system: rate(old.System, now.System, elapsed),
		idle: rate(old.Idle, now.Idle, elapsed), iowait: rate(old.Iowait, now.Iowait, elapsed), irq: rate(old.Irq, now.Irq, elapsed),
		softirq: rate(old.Softirq, now.Softirq, elapsed), steal: rate(old.Steal, now.Steal, elapsed),
		guest: rate(old.Guest, now.Guest, elapsed), guestNice: rate(old.GuestNice, now.GuestNice, elapsed),
	}
}

func (t *times) add(o times) {
	t.user += o.user
	t.nice += o.nice
	t.system += o.system
	t.idle += o.idle
	t.iowait += o.iowait
	t.irq += o.irq
	t.softirq += o.softirq
	t.steal += o.steal
	t.guest += o.guest
	t.guestNice += o.guestNice
}

// busy is all time except idle and iowait. The kernel counts the time of guests in user and nice already.
func (t *times) busy() float64 { return t.user + t.nice + t.system + t.irq + t.softirq + t.steal }

func (t *times) metrics(r *run, name string, scale float64) {
	for _, m := range []struct {
		name  string
		value float64
	}{
		{"user", t.user}, {"nice", t.nice}, {"system", t.system}, {"idle", t.idle}, {"iowait", t.iowait}, {"irq", t.irq},
		{"softirq", t.softirq}, {"steal", t.steal}, {"guest", t.guest}, {"guest_nice", t.guestNice},
	} {
		r.metric("cpu."+name+"."+m.name, m.value*scale)
	}
}

// loadCollector measures the load average.
type loadCollector struct {
	one, five, fifteen thresholds
	perCPU             bool
}

func (c *loadCollector) flags(fs *flag.FlagSet) {
	c.one.register(fs, "-1", "", "", "above this load over one minute")
	c.five.register(fs, "-5", "", "", "above this load over five minutes")
	c.fifteen.register(fs, "-15", "", "", "above this load over fifteen minutes")
	fs.BoolVar(&c.perCPU, "per-cpu", false, "compare the load divided by the number of processors")
}

func (c *loadCollector) collect(ctx context.Context, r *run) error {
	avg, err := load.AvgWithContext(ctx)
	if err != nil {
		return fmt.Errorf("read load average: %w", err)
	}
	count, err := cpu.CountsWithContext(ctx, true)
	if err != nil || count < 1 {
		count = runtime.NumCPU()
	}
	for _, l := range []struct {
		path string
		v    float64
		t    *thresholds
		name string
	}{{"01", avg.Load1, &c.one, "load1"}, {"05", avg.Load5, &c.five, "load5"}, {"15", avg.Load15, &c.fifteen, "load15"}} {
		r.metric("loadavg."+l.path, l.v)
		r.metric("loadavg."+l.path+"_normalized", l.v/float64(count))
		v := l.v
		if c.perCPU {
			v /= float64(count)
		}
		r.judge(l.name, v, "", l.t, l.name+" "+number(v))
	}
	if misc, err := load.MiscWithContext(ctx); err == nil { // not every system has it
		r.metric("loadavg.processes_running", float64(misc.ProcsRunning))
		r.metric("loadavg.processes_total", float64(misc.ProcsTotal))
	}
	return nil
}

// memoryCollector measures memory.
type memoryCollector struct{ used thresholds }

func (c *memoryCollector) flags(fs *flag.FlagSet) {
	c.used.register(fs, "", "", "", "above so many percent of the memory that programs cannot have any more")
}

// memoryNames are the lines of /proc/meminfo that become metrics.
var memoryNames = []string{
	"MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "Active", "Inactive", "Dirty", "Shmem", "SwapTotal", "SwapFree", "SwapCached",
	"VmallocTotal", "VmallocUsed", "VmallocChunk", "Committed_AS",
}

func (c *memoryCollector) collect(ctx context.Context, r *run) error {
	v, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return fmt.Errorf("read memory: %w", err)
	}
	if v.Total == 0 {
		return fmt.Errorf("read memory: there is none")
	}
	if runtime.GOOS == "linux" {
		info, err := r.meminfo()
		if err != nil {
			return err
		}
		for _, name := range memoryNames {
			if bytes, ok := info[name]; ok {
				r.metric("memory."+name, bytes)
			}
		}
	} else {
		for name, bytes := range map[string]uint64{
			"MemTotal": v.Total, "MemFree": v.Free, "MemAvailable": v.Available, "Buffers": v.Buffers, "Cached": v.Cached, "Active": v.Active, "Inactive": v.Inactive,
		} {
			r.metric("memory."+name, float64(bytes))
		}
	}
	used := 100 * float64(v.Total-v.Available) / float64(v.Total)
	r.metric("memory.MemUsedPercentage", used)
	r.judge("used", used, "%", &c.used, fmt.Sprintf("%s%% used, %s of %s available", number(used), size(v.Available), size(v.Total)))
	return nil
}

// swapCollector measures swap space and swap traffic.
type swapCollector struct{ used, out thresholds }

func (c *swapCollector) flags(fs *flag.FlagSet) {
	c.used.register(fs, "", "", "", "above so many percent of the swap space in use")
	c.out.register(fs, "-out", "", "", "above so many pages swapped out in a second")
}

// vmstatNames are the counters of /proc/vmstat that become rates.
var vmstatNames = []string{"pgfault", "pgmajfault", "pgpgin", "pgpgout", "pswpin", "pswpout"}

func (c *swapCollector) collect(ctx context.Context, r *run) error {
	total, free, err := r.swap(ctx)
	if err != nil {
		return err
	}
	used := 0.0
	if total > 0 {
		used = 100 * float64(total-free) / float64(total)
	}
	r.metric("memory.SwapTotal", float64(total))
	r.metric("memory.SwapFree", float64(free))
	r.judge("used", used, "%", &c.used, fmt.Sprintf("%s%% used, %s of %s free", number(used), size(free), size(total)))
	if runtime.GOOS != "linux" {
		return nil
	}
	now, err := r.vmstat()
	if err != nil {
		return err
	}
	out := 0.0
	if old, elapsed, ok := before(r, now); ok {
		for _, name := range vmstatNames {
			v := rate(old[name], now[name], elapsed)
			r.metric("vmstat."+name, v)
			if name == "pswpout" {
				out = v
			}
		}
	}
	r.judge("pswpout", out, "", &c.out, number(out)+" pages out per second")
	return nil
}

func (r *run) swap(ctx context.Context) (total, free uint64, err error) {
	if runtime.GOOS == "linux" {
		info, err := r.meminfo()
		return uint64(info["SwapTotal"]), uint64(info["SwapFree"]), err
	}
	v, err := mem.SwapMemoryWithContext(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read swap space: %w", err)
	}
	return v.Total, v.Free, nil
}

// size formats a number of bytes for people.
func size(n uint64) string {
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[0]
}
