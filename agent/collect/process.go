package collect

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// processCollector counts processes by a pattern.
type processCollector struct {
	pattern, user, label string
	fewest, most         thresholds
	memory, cpu          thresholds
}

func (c *processCollector) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.pattern, "pattern", "", "regular expression that the command line must match; default every process")
	fs.StringVar(&c.user, "user", "", "user whose processes count; default all users")
	fs.StringVar(&c.label, "label", "", "name in the metrics; default from the pattern")
	c.fewest.register(fs, "-min", "", "", "below so many processes")
	c.fewest.lower()
	c.most.register(fs, "", "", "", "above so many processes")
	c.memory.register(fs, "-memory", "", "", "above so many MiB resident together")
	c.cpu.register(fs, "-cpu", "", "", "above so many percent of a processor together")
}

var notLabel = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

func (c *processCollector) collect(ctx context.Context, r *run) error {
	pattern, err := regexp.Compile(c.pattern)
	if err != nil {
		return fmt.Errorf("--pattern: %w", err)
	}
	all, err := process.ProcessesWithContext(ctx)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	count, resident := 0, uint64(0)
	used := map[int32]float64{} // seconds
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		// A process that ends in the meantime is not counted.
		line, err := p.CmdlineWithContext(ctx)
		if err != nil {
			continue
		}
		if line == "" { // the kernel's own
			if line, err = p.NameWithContext(ctx); err != nil {
				continue
			}
		}
		if !pattern.MatchString(line) {
			continue
		}
		if c.user != "" {
			if user, err := p.UsernameWithContext(ctx); err != nil || user != c.user {
				continue
			}
		}
		count++
		if m, err := p.MemoryInfoWithContext(ctx); err == nil && m != nil {
			resident += m.RSS
		}
		if t, err := p.TimesWithContext(ctx); err == nil && t != nil {
			used[p.Pid] = t.User + t.System
		}
	}
	label := c.label
	if label == "" {
		if label = strings.Trim(notLabel.ReplaceAllString(c.pattern, "_"), "_"); label == "" {
			label = "all"
		}
	}
	r.metric("process."+label+".count", float64(count))
	r.metric("process."+label+".rss", float64(resident))
	r.perf = append(r.perf, fmt.Sprintf("count=%d;%s;%s", count, c.most.warning.String(), c.most.critical.String()))
	c.judge(r, float64(count))
	r.judge("rss", float64(resident)/(1<<20), "MB", &c.memory, size(resident)+" resident")
	if old, elapsed, ok := before(r, used); ok {
		percent := 0.0
		for pid, now := range used {
			if was, known := old[pid]; known {
				percent += 100 * rate(was, now, elapsed)
			}
		}
		r.metric("process."+label+".cpu_percent", percent)
		r.judge("cpu", percent, "%", &c.cpu, number(percent)+"% of a processor")
	}
	return nil
}

// judge reports the number of processes once, for whichever bound it breaks.
func (c *processCollector) judge(r *run, count float64) {
	text := number(count) + " processes"
	for _, b := range []struct {
		*bound
		status int
	}{{&c.fewest.critical, Critical}, {&c.most.critical, Critical}, {&c.fewest.warning, Warning}, {&c.most.warning, Warning}} {
		if b.broken(count) {
			r.fail(b.status, "%s (%s %s)", text, [...]string{Warning: "warning", Critical: "critical"}[b.status], b.String())
			return
		}
	}
	r.say("%s", text)
}

// systemdCollector checks the states of systemd units.
type systemdCollector struct {
	units list
	not   list
}

func (c *systemdCollector) flags(fs *flag.FlagSet) {
	fs.Var(&c.units, "unit", "units that must be active, or patterns such as app-*.service; default: no unit may have failed")
	fs.Var(&c.not, "exclude", "units that may fail, or patterns")
}

func (c *systemdCollector) collect(ctx context.Context, r *run) error {
	args := []string{"list-units", "--all", "--plain", "--no-legend", "--no-pager", "--full"}
	if len(c.units) == 0 {
		args = append(args, "--state=failed")
	}
	cmd := exec.CommandContext(ctx, "systemctl", append(append(args, "--"), c.units...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			return fmt.Errorf("systemctl: %s", strings.TrimSpace(string(exit.Stderr)))
		}
		return fmt.Errorf("systemctl: %w", err)
	}
	counts := map[string]int{"active": 0, "inactive": 0, "failed": 0}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		// unit, load, active, sub, description
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		unit, load, active, sub := fields[0], fields[1], fields[2], fields[3]
		if c.not.matches(unit) {
			continue
		}
		seen[unit] = true
		counts[active]++
		switch {
		case active == "failed":
			r.fail(Critical, "%s has failed", unit)
		case len(c.units) > 0 && load == "not-found":
			r.fail(Critical, "%s is not there", unit)
		case len(c.units) > 0 && active != "active" && active != "reloading":
			r.fail(Critical, "%s is %s (%s)", unit, active, sub)
		case len(c.units) > 0:
			r.say("%s is %s", unit, sub)
		}
	}
	for _, unit := range c.units {
		if !strings.ContainsAny(unit, "*?[") && !seen[unit] && !seen[unit+".service"] {
			r.fail(Critical, "%s is not loaded", unit)
		}
	}
	for _, state := range sortedKeys(counts) {
		r.metric("systemd."+state, float64(counts[state]))
	}
	if len(r.bad) == 0 && len(r.good) == 0 {
		r.say("no unit has failed")
	}
	return nil
}
