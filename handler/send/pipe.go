package send

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// exitTemporary is the status with which mail delivery programs have always said "later" (sysexits.h: EX_TEMPFAIL).
const exitTemporary = 75

// environment returns what commands get of this process's environment: what programs need to find their way on this
// host, and the variables that the operator names. Sensu's backend passes on all of its own, with the secrets in it.
func environment(pass []string) []string {
	var env []string
	for _, name := range append([]string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SYSTEMROOT"}, pass...) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "LC_") {
			env = append(env, entry)
		}
	}
	return env
}

// runPipe runs the handler's command with the data on its stdin.
//
// Like Sensu, it treats a command that failed as one that has run: a command that is not idempotent must not run twice
// unless its definition allows it. With retry in the definition a timeout is temporary.
func (s *Sender) runPipe(ctx context.Context, h *resource.Handler, job Job) Result {
	if len(h.Secrets) > 0 {
		return permanent(errors.New("the handler wants secrets, and there is no provider of them"))
	}
	data, err := job.data()
	if err != nil {
		return permanent(err)
	}
	assets, err := s.assets(ctx, h)
	if err != nil {
		return temporary(err)
	}
	limit := time.Duration(h.Timeout) * time.Second
	if limit == 0 {
		limit = s.opts.MaxRun
	}
	if err := s.enter(ctx); err != nil {
		return temporary(err)
	}
	if s.opts.MayRun != nil && !s.opts.MayRun() { // to wait for a process took time
		<-s.processes
		return temporary(ErrMayNotRun)
	}
	res, err := proc.Run(ctx, proc.Options{
		Command: h.Command,
		Env: proc.Environ(s.env, assets, h.EnvVars, []string{
			"LAPWING_DELIVERY_ID=" + job.ID, "LAPWING_DELIVERY_ATTEMPT=" + strconv.Itoa(max(1, job.Attempt)),
		}),
		Stdin:     data,
		Timeout:   limit,
		MaxOutput: readOutput,
	})
	<-s.processes
	switch {
	case err != nil:
		return temporary(err) // no process could be started, or it was killed because this one ends
	case res.TimedOut:
		return Result{
			Output: res.Output, Temporary: h.Retry != nil, // it has no exit status
			Err: fmt.Errorf("killed after %s: %w", limit, context.DeadlineExceeded),
		}
	case res.Status != 0:
		// Statuses in the definition replace the usual one.
		usual := h.Retry == nil || len(h.Retry.Statuses) == 0
		return Result{Status: res.Status, Output: res.Output, Err: &statusError{res.Status}, Temporary: usual && res.Status == exitTemporary}
	}
	return Result{Output: res.Output}
}

// enter waits until one more command may run. Waiting commands run in order.
func (s *Sender) enter(ctx context.Context) error {
	select {
	case s.processes <- struct{}{}:
		return nil
	default:
	}
	s.metrics.waits.Inc()
	select {
	case s.processes <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a free process: %w", ctx.Err())
	}
}

// assets returns what the handler's assets add to its environment.
func (s *Sender) assets(ctx context.Context, h *resource.Handler) ([]string, error) {
	if len(h.RuntimeAssets) == 0 {
		return nil, nil
	}
	if s.opts.Assets == nil {
		return nil, errors.New("the handler wants assets, and there are none here")
	}
	env, err := s.opts.Assets(ctx, h.Metadata.Namespace, h.RuntimeAssets)
	if err != nil {
		return nil, fmt.Errorf("get assets: %w", err)
	}
	return env, nil
}
