package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/lapwing-monitoring/lapwing/computed"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/metric/rulefile"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// RuleAnnotation is the annotation of an event that names the rule that made it.
const RuleAnnotation = "lapwing.io/prometheus-rule"

// RulesOptions configures Rules. All but Acts and Registerer are required.
type RulesOptions struct {
	// Patterns are files of Prometheus' rules.
	Patterns []string
	// Snapshot is the file that keeps the states of alerts over a restart.
	Snapshot string
	// Namespace is that of the events.
	Namespace string
	Engine    promql.QueryEngine
	Queryable storage.Queryable
	Writer    rulefile.Writer
	Intake    computed.Intake
	// Acts reports whether this backend evaluates the rules. Default: it does.
	Acts       func() bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Rules evaluates files of Prometheus' rules: recording rules write series, and alerting rules make events.
//
// The event of an alert is about the entity that its label entity, host or instance names (without a port), and its check
// has the name of the alert. If several alerts of a name are about one entity, the event has the worst of them. The label
// severity says how bad it is: critical or page is status 2, warning is 1, info is 0, and without it the status is 2.
type Rules struct {
	opts RulesOptions
	log  *slog.Logger
	rare *rarelog.Log
	done chan struct{}
	stop context.CancelFunc

	mu     sync.Mutex // guards the fields below
	alerts map[eventKey]map[string]rulefile.AlertState
	unsent map[eventKey]*resource.Event // events that the log did not take
}

// eventKey is what the event of an alert is about.
type eventKey struct{ entity, check string }

// NewRules reads the files. An error in one of them is returned.
func NewRules(o RulesOptions) (*Rules, error) {
	files, err := rulefile.ReadFiles(o.Patterns...)
	if err != nil {
		return nil, err
	}
	if err := rulefile.Check(files); err != nil {
		return nil, err
	}
	if o.Acts == nil {
		o.Acts = func() bool { return true }
	}
	log := o.Logger.With("component", "prometheus rules")
	return &Rules{opts: o, log: log, rare: rarelog.New(log), alerts: map[eventKey]map[string]rulefile.AlertState{}, unsent: map[eventKey]*resource.Event{}}, nil
}

const (
	actsInterval = 2 * time.Second
	// filesInterval is the time between two looks at the files.
	filesInterval = 30 * time.Second
	// snapshotInterval is the time between two writes of the states.
	snapshotInterval = 15 * time.Second
)

// Start evaluates the rules while this backend acts, until Stop.
func (r *Rules) Start(ctx context.Context) error {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.done = make(chan struct{})
	go r.run(ctx)
	return nil
}

// Stop ends the evaluation, and keeps the states.
func (r *Rules) Stop() error {
	if r.stop != nil {
		r.stop()
		<-r.done
		r.stop = nil
	}
	return nil
}

func (r *Rules) run(ctx context.Context) {
	defer close(r.done)
	tick := time.NewTicker(actsInterval)
	defer tick.Stop()
	for {
		if r.opts.Acts() {
			if err := r.act(ctx, tick.C); err != nil {
				r.rare.Error("the rules are not evaluated", "act", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// act evaluates the rules until this backend no longer acts.
func (r *Rules) act(ctx context.Context, tick <-chan time.Time) error {
	snapshot, err := os.ReadFile(r.opts.Snapshot)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("read the states of alerts: %w", err)
	}
	o := rulefile.Options{
		Engine: r.opts.Engine, Queryable: r.opts.Queryable, Writer: r.opts.Writer, Alert: func(a rulefile.AlertState) { r.alert(ctx, a) },
		Snapshot: snapshot, Log: r.log,
	}
	if r.opts.Registerer != nil {
		scope := &scope{Registerer: r.opts.Registerer}
		defer scope.end()
		o.Registerer = scope
	}
	e, err := rulefile.New(o)
	if err != nil && len(snapshot) > 0 {
		r.log.Error("the states of alerts cannot be read: all alerts begin anew", "file", r.opts.Snapshot, "err", err)
		o.Snapshot = nil
		e, err = rulefile.New(o)
	}
	if err != nil {
		return err
	}
	files, err := rulefile.ReadFiles(r.opts.Patterns...)
	if err != nil {
		return err
	}
	if err := e.Update(files); err != nil {
		return err
	}
	if err := e.Start(); err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := e.Stop(end); err != nil {
			r.log.Error("the evaluation of rules did not stop in time", "err", err)
		}
		r.keep(e)
	}()
	looked, kept := time.Now(), time.Now()
	for r.opts.Acts() {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick:
			r.sendAgain(ctx)
			if now.Sub(looked) >= filesInterval {
				looked = now
				files = r.reread(e, files)
			}
			if now.Sub(kept) >= snapshotInterval {
				kept = now
				r.keep(e)
			}
		}
	}
	return nil
}

// reread applies changed files. Rules with errors are not applied.
func (r *Rules) reread(e *rulefile.Evaluator, before []rulefile.File) []rulefile.File {
	files, err := rulefile.ReadFiles(r.opts.Patterns...)
	same := func(a, b rulefile.File) bool { return a.Name == b.Name && string(a.Data) == string(b.Data) }
	if err == nil && slices.EqualFunc(files, before, same) {
		return before
	}
	if err == nil {
		err = e.Update(files)
	}
	if err != nil {
		r.rare.Error("the changed rules cannot be used: the earlier ones stay", "files", "err", err)
		return before
	}
	r.log.Info("the rules have changed", "files", len(files))
	return files
}

// keep writes the states of the alerts, for the next start.
func (r *Rules) keep(e *rulefile.Evaluator) {
	data, err := e.Snapshot()
	if err == nil {
		tmp := r.opts.Snapshot + ".tmp"
		if err = os.MkdirAll(filepath.Dir(tmp), 0o700); err == nil {
			if err = os.WriteFile(tmp, data, 0o600); err == nil {
				err = os.Rename(tmp, r.opts.Snapshot)
			}
		}
	}
	if err != nil {
		r.rare.Error("cannot keep the states of alerts: after a restart pending alerts begin anew", "keep", "err", err)
	}
}

// keyOfAlert returns what the event of an alert is about.
func keyOfAlert(labels map[string]string) eventKey {
	entity := ""
	for _, label := range []string{"entity", "host", "instance"} {
		if entity = labels[label]; entity != "" {
			break
		}
	}
	if host, _, err := net.SplitHostPort(entity); err == nil {
		entity = host
	}
	if entity = validName(entity); entity == "" {
		entity = "prometheus-rules"
	}
	return eventKey{entity, validName(labels["alertname"])}
}

// statusOfAlert returns the status of a firing alert.
func statusOfAlert(labels map[string]string) uint32 {
	switch strings.ToLower(labels["severity"]) {
	case "info", "none":
		return 0
	case "warning", "warn", "minor":
		return 1
	}
	return 2
}

// alert makes the event of an alert's new state, or repeats the one of its present state.
func (r *Rules) alert(ctx context.Context, a rulefile.AlertState) {
	key := keyOfAlert(a.Labels)
	of := labelText(a.Labels)
	r.mu.Lock()
	before := len(r.alerts[key]) > 0
	if a.State == rulefile.Firing {
		if r.alerts[key] == nil {
			r.alerts[key] = map[string]rulefile.AlertState{}
		}
		r.alerts[key][of] = a
	} else {
		delete(r.alerts[key], of)
		if len(r.alerts[key]) == 0 {
			delete(r.alerts, key)
		}
	}
	firing := maps.Clone(r.alerts[key])
	r.mu.Unlock()
	resolved := a.State == rulefile.Inactive && a.Previous == rulefile.Firing
	if len(firing) == 0 && !before && !resolved {
		return // pending, or it ended without having fired
	}
	r.send(ctx, key, r.event(key, a, firing))
}

// send submits an event. One that the log does not take is kept, and tried again every few seconds.
func (r *Rules) send(ctx context.Context, key eventKey, ev *resource.Event) {
	stored, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // the last events come while the rules stop
	defer cancel()
	err := r.opts.Intake.Submit(stored, ev)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.unsent, key)
		return
	}
	r.unsent[key] = ev
	if err != nil {
		r.rare.Error("the event of an alert is not stored: it is tried again", key.entity+"/"+key.check, "entity", key.entity, "check", key.check, "err", err)
	}
}

// sendAgain submits the events that the log did not take.
func (r *Rules) sendAgain(ctx context.Context) {
	r.mu.Lock()
	unsent := maps.Clone(r.unsent)
	r.mu.Unlock()
	for key, ev := range unsent {
		r.send(ctx, key, ev)
	}
}

func labelText(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k != "alertname" {
			parts = append(parts, k+"="+labels[k])
		}
	}
	return strings.Join(parts, " ")
}

// event makes the event: the worst of the alerts that fire, and a line for each of them.
func (r *Rules) event(key eventKey, last rulefile.AlertState, firing map[string]rulefile.AlertState) *resource.Event {
	now := last.At.Unix()
	status, output, annotations := uint32(0), "resolved: "+labelText(last.Labels), last.Annotations
	if len(firing) > 0 {
		var lines []string
		for _, of := range slices.Sorted(maps.Keys(firing)) {
			a := firing[of]
			if s := statusOfAlert(a.Labels); s > status || annotations == nil {
				status, annotations = s, a.Annotations
			}
			line := of
			for _, k := range []string{"summary", "description", "message"} {
				if text := a.Annotations[k]; text != "" {
					line = text + " (" + of + ")"
					break
				}
			}
			lines = append(lines, line)
		}
		output = strings.Join(lines, "\n")
	}
	rule, _ := json.Marshal(map[string]string{"file": last.File, "group": last.Group, "rule": last.Rule}) // texts cannot fail
	labels := maps.Clone(last.Labels)
	delete(labels, "alertname")
	return &resource.Event{
		Timestamp: now, ID: resource.NewEventID(),
		Metadata: resource.ObjectMeta{Namespace: r.opts.Namespace, Annotations: map[string]string{RuleAnnotation: string(rule)}},
		Entity: &resource.Entity{
			EntityClass: resource.EntityProxyClass, Subscriptions: []string{resource.EntitySubscription(key.entity)},
			Metadata: resource.ObjectMeta{Namespace: r.opts.Namespace, Name: key.entity},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: r.opts.Namespace, Name: key.check, Labels: labels, Annotations: annotations},
			Interval: 60, Status: status, Output: output, Executed: now, Issued: now,
		},
	}
}

// scope registers metrics of an evaluator, and unregisters them at its end: the next one registers its own.
type scope struct {
	prometheus.Registerer
	all []prometheus.Collector
}

func (s *scope) Register(c prometheus.Collector) error {
	err := s.Registerer.Register(c)
	if err == nil {
		s.all = append(s.all, c)
	}
	return err
}

func (s *scope) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := s.Register(c); err != nil {
			panic(err) // as the registry does: two parts with one name are a mistake in the code
		}
	}
}

func (s *scope) end() {
	for _, c := range s.all {
		s.Unregister(c)
	}
}
