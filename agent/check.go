package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/extract"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestCommand is the command of checks for load tests: no agent runs it, and its result is always OK with an output of
// 799 bytes. Sensu's agents do the same.
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

func (s *sequences) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.counts)
}

// accept takes a check request from the transport and runs it on a goroutine of its own.
func (a *Agent) accept(ctx context.Context, req *resource.CheckRequest) {
	if req.Config == nil {
		a.log.Warn("check request without a check ignored")
		return
	}
	key := checkKey(req.Config.Metadata.Name, req.Config.ProxyEntityName)
	v := a.requests.take(key, req.Issued)
	a.checkMetrics.requests.WithLabelValues(string(v)).Inc()
	if v != accepted {
		a.log.Debug("check request ignored", "check", req.Config.Metadata.Name, "reason", string(v))
		return
	}
	a.start(ctx, key, req)
}

// acceptTick is accept for a tick of the schedule.
func (a *Agent) acceptTick(ctx context.Context, req *resource.CheckRequest) verdict {
	key := checkKey(req.Config.Metadata.Name, req.Config.ProxyEntityName)
	v := a.requests.tick(key, req.Issued)
	if v == accepted {
		a.start(ctx, key, req)
	}
	return v
}

// start runs an accepted request and sends its result.
func (a *Agent) start(ctx context.Context, key string, req *resource.CheckRequest) {
	a.running.Go(func() {
		ev := a.executeInTurn(ctx, req)
		a.requests.done(key) // before the result is out: the next request may be an answer to it
		if ev != nil {
			a.transport.Send(ev)
		}
	})
}

// executeInTurn runs a requested check once fewer than as many as allowed are running.
func (a *Agent) executeInTurn(ctx context.Context, req *resource.CheckRequest) *resource.Event {
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
	if len(req.Assets) > 0 || len(req.Config.RuntimeAssets) > 0 {
		return fail(fmt.Errorf("the check needs runtime assets (%s), which this agent does not install: "+
			"put the commands on the host and remove runtime_assets from the check", assetNames(req)))
	}
	if err := req.Config.Validate(); err != nil {
		return fail(fmt.Errorf("given check is invalid: %w", err))
	}
	config := req.Config
	if command != TestCommand {
		var err error
		if config, err = substitute(req.Config, a.self.entity()); err != nil {
			return fail(fmt.Errorf("error while substituting check tokens: %w", err))
		}
		config.Scheduler = req.Config.Scheduler // not in the JSON that tokens are replaced in
	}

	ev := a.newEvent(config, command, req.Issued)
	result, err := a.run(ctx, config, req.Secrets, ev)
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

	a.addMetrics(ev)
	if ev.Check.Hooks = a.runHooks(ctx, req, config, ev); ctx.Err() != nil {
		return nil
	}
	if ev.Check.DiscardOutput {
		ev.Check.Output = ""
	}
	return ev
}

// run executes the check's command. The error is about preparing it, or ctx's.
func (a *Agent) run(ctx context.Context, config *resource.CheckConfig, secrets []string, ev *resource.Event) (outcome, error) {
	if config.Command == TestCommand {
		return outcome{output: testOutput}, nil
	}
	p := process{
		command:   config.Command,
		env:       environment(os.Environ(), secrets, config.EnvVars),
		timeout:   time.Duration(config.Timeout) * time.Second,
		maxOutput: a.opts.MaxOutput,
	}
	if config.Stdin {
		var err error
		if p.stdin, err = json.Marshal(ev); err != nil {
			return outcome{}, fmt.Errorf("encode event for stdin: %w", err)
		}
	}
	return p.run(ctx)
}

// failure makes ev report that its check could not be run.
func failure(ev *resource.Event, err error) *resource.Event {
	ev.Timestamp = time.Now().Unix()
	ev.Check.Output = err.Error()
	ev.Check.Status = statusUnknown
	if s, err := strconv.ParseUint(ev.Check.Metadata.Annotations[denyStatusAnnotation], 10, 32); err == nil {
		ev.Check.Status = uint32(s)
	}
	return ev
}

func assetNames(req *resource.CheckRequest) string {
	names := req.Config.RuntimeAssets
	if len(names) == 0 {
		for i := range req.Assets {
			names = append(names, req.Assets[i].Metadata.Name)
		}
	}
	return strings.Join(names, ", ")
}

// addMetrics reads the metrics in the check's output, if it has any, and lets its thresholds set the status.
func (a *Agent) addMetrics(ev *resource.Event) {
	c := ev.Check
	if c.OutputMetricFormat == "" && len(c.OutputMetricHandlers) == 0 {
		return
	}
	ev.Metrics = &resource.Metrics{Handlers: c.OutputMetricHandlers}
	if c.OutputMetricFormat == "" {
		return
	}
	log := a.log.With("check", c.Metadata.Name)
	ev.Metrics.Points = extract.Points(c.OutputMetricFormat, c.Output, c.Executed, time.Now, c.OutputMetricTags, log)
	if c.Status == statusOK && len(ev.Metrics.Points) > 0 && len(c.OutputMetricThresholds) > 0 {
		c.Status, ev.Metadata.Annotations = evaluateThresholds(ev.Metrics.Points, c.OutputMetricThresholds)
	}
}
