package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

const (
	// maxShaped is how many bytes a mutator's command may write.
	maxShaped = 16 << 20
	// maxComplaint is how many bytes of a failed command's output an error quotes.
	maxComplaint = 1024
)

// Shape runs the mutator of a delivery's route and returns the handler's input. It returns steps unless the mutator is
// json, the default. An error is final: the same event would fail again.
func (w *Workflows) Shape(ctx context.Context, dl *delivery.Delivery, ev *resource.Event) ([]byte, []trace.Step, error) {
	defs := definitions{Snapshot: w.opts.Config()}
	rt, err := w.routeOf(defs, dl)
	if err != nil {
		return nil, nil, err
	}
	return w.shape(ctx, defs, rt, ev)
}

func (w *Workflows) shape(ctx context.Context, defs definitions, rt *Route, ev *resource.Event) ([]byte, []trace.Step, error) {
	if rt.mutator == "" || rt.mutator == "json" {
		data, err := encode(ev)
		if err != nil {
			w.failed(defs, rt, "mutate", err)
		}
		return data, nil, err
	}
	begin := time.Now()
	data, err := w.mutate(ctx, defs, rt, ev)
	step := trace.Step{Kind: trace.StepMutator, Name: rt.mutator, Verdict: trace.Pass, Micros: time.Since(begin).Microseconds()}
	if err != nil {
		err = fmt.Errorf("mutate with %s: %w", rt.mutator, err)
		step.Verdict, step.Error = trace.Error, err.Error()
		if ctx.Err() == nil { // the process did not end it
			w.failed(defs, rt, "mutate", err)
		}
	}
	w.metrics.mutate.Observe(time.Since(begin).Seconds())
	return data, []trace.Step{step}, err
}

func (w *Workflows) mutate(ctx context.Context, defs definitions, rt *Route, ev *resource.Event) ([]byte, error) {
	if rt.mutator == "only_check_output" {
		if ev.Check == nil {
			return nil, errors.New("the event has no check")
		}
		return []byte(ev.Check.Output), nil
	}
	def, ok := defs.mutator(rt.namespace, rt.mutator)
	if !ok {
		return nil, errors.New("there is no such mutator")
	}
	data, err := encode(ev)
	if err != nil {
		return nil, err
	}
	if def.Type == "javascript" {
		text, changed, err := w.filters.Mutate(ctx, def, ev, data)
		if err != nil {
			return nil, resource.ConcealError(err, def.SecretTexts())
		}
		if changed == nil {
			return text, nil
		}
		return encode(changed)
	}
	if defs.drafts != nil && !defs.drafts.RunCommands {
		return nil, errNotRun
	}
	return w.runMutator(ctx, def, data)
}

// errNotRun is the error of a simulation that runs no commands.
var errNotRun = errors.New("its command was not run")

// runMutator runs a mutator's command with the event on its stdin. Its stdout and stderr together are the result:
// mutators for Sensu rely on that.
func (w *Workflows) runMutator(ctx context.Context, def *resource.Mutator, data []byte) ([]byte, error) {
	if w.opts.NoCommands != nil {
		return nil, w.opts.NoCommands
	}
	if len(def.Secrets) > 0 {
		return nil, errors.New("it wants secrets, and there is no provider of them")
	}
	limit := time.Duration(def.Timeout) * time.Second
	if limit == 0 {
		limit = w.opts.MaxMutation
	}
	select {
	case w.processes <- struct{}{}:
		defer func() { <-w.processes }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	res, err := proc.Run(ctx, proc.Options{
		Command: def.Command, Env: proc.Environ(w.env, w.assets(ctx, def), def.EnvVars), Stdin: data, Timeout: limit, MaxOutput: maxShaped + 1,
	})
	switch {
	case err != nil:
		return nil, err
	case res.TimedOut:
		return nil, fmt.Errorf("its command was killed after %s%s", limit, complaint(def, res.Output))
	case res.Status != 0:
		return nil, fmt.Errorf("its command ended with status %d%s", res.Status, complaint(def, res.Output))
	case len(res.Output) > maxShaped:
		return nil, fmt.Errorf("its command wrote more than %d bytes", maxShaped)
	}
	return res.Output, nil
}

// complaint returns the start of a failed command's output without the mutator's secrets. It reads more than it
// quotes, because secrets may be longer than their placeholders.
func complaint(def *resource.Mutator, output []byte) string {
	conceal := resource.Conceal
	if len(output) > 8*maxComplaint {
		output, conceal = output[:8*maxComplaint], resource.ConcealCut
	}
	text := conceal(string(output), def.SecretTexts())
	text = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxComplaint)], ""))
	if text == "" {
		return ""
	}
	return ": " + text
}

// assets returns the environment variables that a mutator's assets add. If they cannot be fetched the mutator runs
// without them.
func (w *Workflows) assets(ctx context.Context, def *resource.Mutator) []string {
	if len(def.RuntimeAssets) == 0 {
		return nil
	}
	err := errors.New("there are no assets here")
	if w.opts.Assets != nil {
		var set *AssetSet
		if set, err = w.opts.Assets(ctx, def.Metadata.Namespace, def.RuntimeAssets); err == nil {
			return set.Env
		}
	}
	w.rare.Warn("mutator runs without its assets", def.Metadata.Namespace+"/"+def.Metadata.Name,
		"namespace", def.Metadata.Namespace, "mutator", def.Metadata.Name, "err", err)
	return nil
}

// environment returns what commands get of this process's environment: what programs need to find their way on this
// host, and the variables that the operator names.
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
