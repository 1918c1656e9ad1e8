package agent

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// limitsAnnotation on a check limits its commands, as in "cpu=0.5 memory=256M processes=50".
	limitsAnnotation = "lapwing.io/limits"
	// Annotations of events with a command's usage.
	cpuAnnotation    = "lapwing.io/cpu-milliseconds"
	memoryAnnotation = "lapwing.io/memory-bytes"
)

// ParseLimits reads limits of a command: words like cpu=0.5 (processors), memory=256M (bytes, or K, M, G of 1024) and
// processes=50. An absent word sets no limit.
func ParseLimits(text string) (proc.Limits, error) {
	var l proc.Limits
	for _, word := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "cpu":
			if l.CPU, err = strconv.ParseFloat(value, 64); err == nil && !(l.CPU >= 0.01 && l.CPU <= 10_000) {
				err = strconv.ErrRange
			}
		case "memory":
			l.Memory, err = parseSize(value)
		case "processes":
			if l.Processes, err = strconv.Atoi(value); err == nil && l.Processes < 1 {
				err = strconv.ErrRange
			}
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			return proc.Limits{}, fmt.Errorf("limit %q is not like cpu=0.5, memory=256M or processes=50", word)
		}
	}
	return l, nil
}

func parseSize(s string) (int64, error) {
	shift := 0
	if s != "" {
		if i := strings.IndexByte("KMG", s[len(s)-1]); i >= 0 {
			s, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil && shift == 0 {
		n, err = strconv.ParseInt(s, 10, 64)
	}
	if err == nil && n < 1 {
		err = strconv.ErrRange
	}
	return n << shift, err
}

// openCgroups opens the control groups for commands. If that fails, commands run without limits.
func (a *Agent) openCgroups() {
	if !a.opts.Cgroups {
		return
	}
	groups, err := proc.OpenCgroups("lapwing-checks")
	if err != nil {
		a.log.Error("checks run without control groups", "err", err)
		return
	}
	a.cgroups = groups
	if !groups.CanLimit() {
		a.log.Warn("control groups of checks can be ended and counted, but not limited here: the controllers cpu, memory and pids are not all there")
	}
}

// limitsOf returns the limits of a check's commands: from the check's annotation, or else the options.
func (a *Agent) limitsOf(c *resource.CheckConfig) (proc.Limits, error) {
	text, ok := c.Metadata.Annotations[limitsAnnotation]
	if !ok {
		if a.cgroups == nil || !a.cgroups.CanLimit() {
			return proc.Limits{}, nil // logged at the start
		}
		return a.opts.CheckLimits, nil
	}
	limits, err := ParseLimits(text)
	if err == nil && a.cgroups == nil && limits != (proc.Limits{}) {
		err = fmt.Errorf("annotation %s: this agent gives checks no control groups", limitsAnnotation)
	}
	return limits, err
}

// noteUsage adds a command's usage to its event.
func (a *Agent) noteUsage(ev *resource.Event, u proc.Usage) {
	a.checkMetrics.cpu.Add(u.CPU.Seconds())
	if !a.opts.RecordUsage || u == (proc.Usage{}) {
		return
	}
	// Thresholds may have set annotations already.
	if ev.Metadata.Annotations == nil {
		ev.Metadata.Annotations = map[string]string{}
	}
	ev.Metadata.Annotations[cpuAnnotation] = strconv.FormatInt(u.CPU.Round(time.Millisecond).Milliseconds(), 10)
	if u.Memory > 0 {
		ev.Metadata.Annotations[memoryAnnotation] = strconv.FormatInt(u.Memory, 10)
	}
}
