package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	statusOK       = 0
	statusCritical = 2
	statusUnknown  = 3
)

// outcome is the result of a check's or hook's command.
type outcome struct {
	output   string // stdout and stderr, in the order they were written, and remarks about them
	status   int
	duration time.Duration
	points   []resource.MetricPoint // points of a collector
	usage    proc.Usage
}

// runCommand runs the command of a check or hook the way Sensu's agents do: with a timeout (in seconds) it lasts until
// its output is closed, which children in the background may delay. The error is ctx's; a failure of the command is an
// outcome.
func (a *Agent) runCommand(ctx context.Context, command string, env []string, stdin []byte, timeout uint32, limits proc.Limits) (outcome, error) {
	begin := time.Now()
	res, err := proc.Run(ctx, proc.Options{
		Command:    command,
		Env:        env,
		Stdin:      stdin,
		Timeout:    time.Duration(timeout) * time.Second,
		WaitOutput: true,
		MaxOutput:  a.opts.MaxOutput,
		Cgroups:    a.cgroups,
		Limits:     limits,

		WatchMemory: a.opts.RecordUsage,
	})
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	if err != nil {
		return outcome{output: err.Error(), status: statusUnknown, duration: time.Since(begin)}, nil
	}
	out := outcome{output: string(res.Output), status: res.Status, duration: res.Duration, usage: res.Usage}
	if res.Dropped > 0 {
		out.output += fmt.Sprintf("\n[output cut here, %d more bytes]\n", res.Dropped)
	}
	if res.TimedOut {
		note := "Execution timed out\n"
		if res.KillErr != nil {
			note += res.KillErr.Error() + "\n"
		}
		out.output = note + out.output
	}
	return out, nil
}
