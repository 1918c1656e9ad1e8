package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent/collect"
	"github.com/lapwing-monitoring/lapwing/agent/extract"
	"github.com/lapwing-monitoring/lapwing/internal/proc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestCommand is the command of checks for load tests: no agent runs it, and its result is always OK with an output of
// 799 bytes. Sensu's agents have the same command.
const TestCommand = "!sensu_test_check!"

var testOutput = "\n" + strings.Repeat("lapwing load test ", 45)[:798]

// denyStatusAnnotation on a check sets the status of its failures.
const denyStatusAnnotation = "allow_list_on_deny_status"

// sequences counts the events of each check since the agent connected.
type sequences struct {
	mu     sync.Mutex // guards counts
	counts map[string]int64
}

func (s *sequences) next(check string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[check]++
	return s.counts[check]
}

// forget starts the count of a check from 1 again.
func (s *sequences) forget(check string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, check)
}

func (s *sequences) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.counts)
}

// accept takes a check request from the transport and runs it on a goroutine of its own.
func (a *Agent) accept(ctx context.Context, req *resource.CheckRequest) {
	if req.Config == nil {
		a.transport.rare.Warn("check request without a check ignored", "")
		return
	}
	key := checkKey(req.Config.Metadata.Name, req.Config.ProxyEntityName)
	t := turnOf(req.Config)
	v := a.requests.take(key, req.Issued, t)
	a.checkMetrics.requests.WithLabelValues(string(v)).Inc()
	a.answer(t, v)
	if v != accepted {
		a.log.Debug("check request ignored", "check", req.Config.Metadata.Name, "reason", string(v))
		return
	}
	a.start(ctx, key, req, t)
}

// acceptTick is accept for a tick of the schedule.
func (a *Agent) acceptTick(ctx context.Context, req *resource.CheckRequest) verdict {
	key := checkKey(req.Config.Metadata.Name, req.Config.ProxyEntityName)
	v := a.requests.tick(key, req.Issued)
	if v == accepted {
		a.start(ctx, key, req, turn{}) // a tick is no turn, even if its check has the annotation
	}
	return v
}

// start runs an accepted request and sends its result.
func (a *Agent) start(ctx context.Context, key string, req *resource.CheckRequest, t turn) {
	a.running.Go(func() {
		stop := a.announce(ctx, t)
		ev := a.executeInSlot(ctx, req)
		stop()
		a.requests.done(key) // done comes before the send: the next request may be a reply to the result
		if ev != nil {
			a.transport.Send(ev)
		}
	})
}

// executeInSlot runs a requested check when fewer checks run than allowed.
func (a *Agent) executeInSlot(ctx context.Context, req *resource.CheckRequest) *resource.Event {
	a.checkMetrics.waiting.Inc()
	select {
	case a.slots <- struct{}{}:
		a.checkMetrics.waiting.Dec()
	case <-ctx.Done():
		a.checkMetrics.waiting.Dec()
		return nil
	}
	a.checkMetrics.running.Inc()
	defer func() {
		a.checkMetrics.running.Dec()
		<-a.slots
	}()
	return a.execute(ctx, req)
}

// execute runs a requested check and returns its result; nil if ctx ended before there was one.
func (a *Agent) execute(ctx context.Context, req *resource.CheckRequest) *resource.Event {
	command := req.Config.Command
	fail := func(err error) *resource.Event { return failure(a.newEvent(req.Config, command, req.Issued), err) }
	if err := req.Config.Validate(); err != nil {
		return fail(fmt.Errorf("given check is invalid: %w", err))
	}
	config := req.Config
	if command != TestCommand {
		var err error
		if config, err = replaceTokens(req.Config, a.self.entity()); err != nil {
			return fail(fmt.Errorf("error while substituting check tokens: %w", err))
		}
		config.Scheduler = req.Config.Scheduler // the JSON in which tokens are replaced lacks it
		keepTurn(config, req.Config)
	}

	ev := a.newEvent(config, command, req.Issued)
	if missing := missingSecrets(config.Secrets, req.Secrets); len(missing) > 0 {
		return failure(ev, fmt.Errorf("the check was not run: its backend sent no value for the secrets %s (it needs a secrets provider)",
			strings.Join(missing, ", ")))
	}
	found, err := a.install(ctx, req.Assets)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fail(fmt.Errorf("error getting assets for check: %w", err))
	}
	result, err := a.run(ctx, config, found, req.Secrets, ev)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return failure(ev, err)
	}
	ev.Timestamp = time.Now().Unix()
	ev.ID = resource.NewEventID()
	ev.Check.Output = result.output
	ev.Check.Status = uint32(result.status)
	ev.Check.Duration = result.duration.Seconds()
	ev.Check.ProcessedBy = a.opts.Name

	a.addMetrics(ev, result.points)
	a.noteUsage(ev, result.usage)
	if ev.Check.Hooks = a.runHooks(ctx, req, config, ev); ctx.Err() != nil {
		return nil
	}
	if ev.Check.DiscardOutput {
		ev.Check.Output = ""
	}
	return ev
}

// missingSecrets returns the variables of a check's secrets for which the request has no value (NAME=value). Without
// its password a command may do harm or report that all is well.
func missingSecrets(wanted []resource.Secret, values []string) (missing []string) {
	for _, s := range wanted {
		if !slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, s.Name+"=") }) {
			missing = append(missing, s.Name)
		}
	}
	return missing
}

// run executes the check's command with its assets. The error is about the preparation, or ctx's.
func (a *Agent) run(ctx context.Context, config *resource.CheckConfig, found, secrets []string, ev *resource.Event) (outcome, error) {
	if config.Command == TestCommand {
		return outcome{output: testOutput}, nil
	}
	env := proc.Environ(os.Environ(), found, secrets)
	variables := config.EnvVars
	if list := a.settings.Load().allow; len(list) > 0 {
		entry, ok := list.find(config.Command, searchPath(proc.Environ(env, variables)))
		if !ok {
			return outcome{}, errDenied
		}
		if !entry.EnableEnv {
			variables = nil
		}
	}
	if strings.HasPrefix(config.Command, collect.Prefix) {
		return a.measure(ctx, config)
	}
	var stdin []byte
	if config.Stdin {
		var err error
		if stdin, err = json.Marshal(ev); err != nil {
			return outcome{}, fmt.Errorf("encode event for stdin: %w", err)
		}
	}
	limits, err := a.limitsOf(config)
	if err != nil {
		return outcome{}, err
	}
	return a.runCommand(ctx, config.Command, proc.Environ(env, variables), stdin, config.Timeout, limits)
}

// measure runs a collector, with the timeout of a command.
func (a *Agent) measure(ctx context.Context, config *resource.CheckConfig) (outcome, error) {
	begin := time.Now()
	limited := ctx
	if config.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, time.Duration(config.Timeout)*time.Second)
		defer cancel()
	}
	result := a.collectors.Run(limited, checkKey(config.Metadata.Name, config.ProxyEntityName), config.Command)
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	out := outcome{output: result.Output, status: result.Status, duration: time.Since(begin)}
	if limited.Err() != nil {
		out.output, out.status = "Execution timed out\n"+out.output, statusCritical
	}
	for _, m := range result.Metrics {
		out.points = append(out.points, resource.MetricPoint{Name: m.Path, Value: m.Value, Timestamp: result.At.Unix(), Tags: slices.Concat([]resource.MetricTag{}, config.OutputMetricTags)})
	}
	return out, nil
}

// failure turns ev into the report that its check could not run.
func failure(ev *resource.Event, err error) *resource.Event {
	ev.Timestamp = time.Now().Unix()
	ev.Check.Output = err.Error()
	ev.Check.Status = statusUnknown
	if s, err := strconv.ParseUint(ev.Check.Metadata.Annotations[denyStatusAnnotation], 10, 32); err == nil {
		ev.Check.Status = uint32(s)
	}
	return ev
}

// addMetrics adds a collector's points, or else the metrics in the check's output if the check wants any, and lets its
// thresholds set the status.
func (a *Agent) addMetrics(ev *resource.Event, measured []resource.MetricPoint) {
	c := ev.Check
	if c.OutputMetricFormat == "" && len(c.OutputMetricHandlers) == 0 {
		return
	}
	ev.Metrics = &resource.Metrics{Handlers: c.OutputMetricHandlers}
	switch {
	case measured != nil:
		ev.Metrics.Points = measured
	case c.OutputMetricFormat == "":
		return
	default:
		log := a.log.With("check", c.Metadata.Name)
		ev.Metrics.Points = extract.Points(c.OutputMetricFormat, c.Output, c.Executed, time.Now, c.OutputMetricTags, log)
	}
	if c.Status == statusOK && len(ev.Metrics.Points) > 0 && len(c.OutputMetricThresholds) > 0 {
		c.Status, ev.Metadata.Annotations = evaluateThresholds(ev.Metrics.Points, c.OutputMetricThresholds)
	}
}
