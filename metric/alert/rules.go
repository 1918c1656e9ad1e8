package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
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
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/lapwing-monitoring/lapwing/computed"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/metric/rulefile"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
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
	State     computed.Reader
	Intake    computed.Intake
	// Acts reports whether this backend evaluates the rules. Default: it does.
	Acts       func() bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Rules evaluates files of Prometheus' rules: recording rules write series, and alerting rules make events.
//
// The event of an alert is about the entity that its label entity, host or instance names (without a port), and its
// check has the name of the alert. If several alerts of a name are about one entity, the event has the worst of them.
// The label severity says how bad it is: critical or page is status 2, warning is 1, info is 0, and without it the
// status is 2.
type Rules struct {
	opts      RulesOptions
	source    computed.Source
	incidents *selector.Selector
	log       *slog.Logger
	rare      *rarelog.Log
	done      chan struct{}
	stop      context.CancelFunc

	// sending has a lock for the events of a few keys: they are made and submitted one after the other. A lock is held
	// while its channel has an element; the fake time of tests would stand still for a mutex that is waited for. Under it
	// mu may be locked, never the other way round.
	sending [64]chan struct{}
	seed    maphash.Seed

	mu     sync.Mutex // guards the fields below
	alerts map[eventKey]map[string]rulefile.AlertState
	unsent map[eventKey]*resource.Event // events that the log did not take
	acting *rulefile.Evaluator          // nil while another member evaluates
	groups []*rules.Group               // of the files, while another member evaluates
}

// eventKey is what the event of an alert is about.
type eventKey struct{ entity, check string }

// NewRules reads the files. An error in one of them is returned.
func NewRules(o RulesOptions) (*Rules, error) {
	if o.Engine == nil || o.Queryable == nil || o.Writer == nil || o.State == nil || o.Intake == nil || o.Logger == nil {
		return nil, errors.New("prometheus rules: Engine, Queryable, Writer, State, Intake and Logger are required")
	}
	return newRules(o, computed.State{Reader: o.State})
}

func newRules(o RulesOptions, from computed.Source) (*Rules, error) {
	files, err := rulefile.ReadFiles(o.Patterns...)
	if err != nil {
		return nil, err
	}
	groups, err := rulefile.Groups(files)
	if err != nil {
		return nil, err
	}
	incidents, err := selector.Parse("", "event.is_incident == true")
	if err != nil {
		return nil, err
	}
	if o.Acts == nil {
		o.Acts = func() bool { return true }
	}
	log := o.Logger.With("component", "prometheus rules")
	r := &Rules{
		opts: o, source: from, incidents: incidents, log: log, rare: rarelog.New(log), seed: maphash.MakeSeed(),
		groups: groups,
	}
	for i := range r.sending {
		r.sending[i] = make(chan struct{}, 1)
	}
	return r, nil
}

const (
	actsInterval = 2 * time.Second
	// filesInterval is the time between two looks at the files.
	filesInterval = 30 * time.Second
	// snapshotInterval is the time between two writes of the states.
	snapshotInterval = 15 * time.Second
	// settleInterval is the time between two looks for events of alerts that have ended elsewhere.
	settleInterval = 10 * time.Second
	// submitTime bounds the submission of one event.
	submitTime = 10 * time.Second
	// stopTime is how long all evaluations that run at the end may go on together, with the events that they make.
	stopTime = 3 * time.Second
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
	looked := time.Now()
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
			if time.Since(looked) >= filesInterval {
				looked = time.Now()
				r.show()
			}
		}
	}
}

// show reads the groups again, for the API, while another member evaluates them.
func (r *Rules) show() {
	files, err := rulefile.ReadFiles(r.opts.Patterns...)
	var groups []*rules.Group
	if err == nil {
		groups, err = rulefile.Groups(files)
	}
	if err != nil {
		r.rare.Error("the changed rules cannot be used: the earlier ones stay", "files", "err", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups = groups
}

// RuleGroups returns the groups for Prometheus' API. On a member that does not evaluate them they have no results.
func (r *Rules) RuleGroups() []*rules.Group {
	r.mu.Lock()
	acting, groups := r.acting, r.groups
	r.mu.Unlock()
	if acting != nil {
		return acting.RuleGroups() // without mu: it waits for evaluations while rules change, and they wait for mu
	}
	return groups
}

// AlertingRules returns the alerting rules for Prometheus' API.
func (r *Rules) AlertingRules() []*rules.AlertingRule {
	var out []*rules.AlertingRule
	for _, g := range r.RuleGroups() {
		out = append(out, g.AlertingRules()...)
	}
	return out
}

// act evaluates the rules until this backend no longer acts.
func (r *Rules) act(ctx context.Context, tick <-chan time.Time) error {
	snapshot, err := os.ReadFile(r.opts.Snapshot)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("read the states of alerts: %w", err)
	}
	acting, over := context.WithCancel(ctx)
	defer over()
	evaluating, cut := outlive(acting, stopTime)
	defer cut()
	o := rulefile.Options{
		Engine: r.opts.Engine, Queryable: r.opts.Queryable, Writer: r.opts.Writer,
		Alert: func(a rulefile.AlertState) { r.alert(evaluating, a) }, Snapshot: snapshot, Log: r.log,
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
	r.begin(e)
	defer r.show()
	defer r.begin(nil)
	if err := e.Start(); err != nil {
		return err
	}
	defer func() {
		over()
		if err := e.Stop(evaluating); err != nil {
			r.log.Error("the evaluation of rules did not stop in time", "err", err)
		}
		r.keep(e)
	}()
	looked, kept := time.Now(), time.Now()
	settled, settling := false, time.Time{}
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
			if !settled && now.Sub(settling) >= settleInterval {
				settling = now
				if settled, err = r.settle(ctx, e); err != nil && ctx.Err() == nil {
					r.rare.Error("cannot look for events of alerts that have ended", "settle", "err", err)
				}
			}
		}
	}
	return nil
}

// outlive returns a context that ends a while after ctx.
func outlive(ctx context.Context, d time.Duration) (longer context.Context, cancel context.CancelFunc) {
	longer, cancel = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		select {
		case <-time.After(d):
			cancel()
		case <-longer.Done():
		}
	})
	return longer, cancel
}

// begin forgets what was known while this backend acted before, and takes the alerts that the snapshot has. Without an
// evaluator it ends that.
func (r *Rules) begin(e *rulefile.Evaluator) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acting = e
	r.alerts, r.unsent = map[eventKey]map[string]rulefile.AlertState{}, map[eventKey]*resource.Event{}
	if e == nil {
		return
	}
	for _, a := range e.Alerts() {
		if a.State == rulefile.Firing {
			r.note(keyOfAlert(a.Labels), a)
		}
	}
}

// note keeps a firing alert. The caller holds mu.
func (r *Rules) note(key eventKey, a rulefile.AlertState) {
	if r.alerts[key] == nil {
		r.alerts[key] = map[string]rulefile.AlertState{}
	}
	r.alerts[key][labelText(a.Labels)] = a
}

// settle resolves the events of alerts that have ended while another member evaluated the rules, or none did: the
// states here do not know them. It is settled when all failing events of alerts belong to one that fires here.
func (r *Rules) settle(ctx context.Context, e *rulefile.Evaluator) (settled bool, err error) {
	unseen := map[string]bool{} // before the alerts are read: a rule that is not in it has its alerts there
	for name := range e.Unseen() {
		unseen[validName(name)] = true
	}
	found, err := r.source.Find(ctx, r.opts.Namespace, r.incidents)
	if err != nil {
		return false, err
	}
	settled = true
	for _, k := range found {
		ev, err := r.source.Event(k)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read event %s/%s: %w", k.Entity, k.Check, err)
		}
		if ev.Check == nil || ev.Metadata.Annotations[RuleAnnotation] == "" {
			continue
		}
		if unseen[k.Check] {
			settled = false
			continue
		}
		over, err := r.resolve(ctx, e, eventKey{k.Entity, k.Check})
		if err != nil {
			return false, fmt.Errorf("resolve event %s/%s: %w", k.Entity, k.Check, err)
		}
		settled = settled && over
	}
	return settled, nil
}

// resolve resolves an event if none of its alerts is active. over is false if one is pending, so that it may end
// without having fired here.
func (r *Rules) resolve(ctx context.Context, e *rulefile.Evaluator, key eventKey) (over bool, err error) {
	defer r.lock(key)()
	pending := false
	for _, a := range e.Alerts() {
		if keyOfAlert(a.Labels) != key {
			continue
		}
		if a.State == rulefile.Firing {
			return true, nil
		}
		pending = true
	}
	if pending {
		return false, nil
	}
	ev, err := r.source.Event(state.Key{Namespace: r.opts.Namespace, Entity: key.entity, Check: key.check})
	if errors.Is(err, state.ErrNotFound) || err == nil && !ev.IsIncident() {
		return true, nil // it is gone, or resolved in the meantime
	}
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, submitTime)
	defer cancel()
	return true, r.opts.Intake.Submit(ctx,
		computed.Follow(ev, 0, "resolved: the alert has ended while this member did not evaluate it"))
}

// lock locks the events of a key.
func (r *Rules) lock(key eventKey) (unlock func()) {
	held := r.sending[maphash.Comparable(r.seed, key)%uint64(len(r.sending))]
	held <- struct{}{}
	return func() { <-held }
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
	defer r.lock(key)()
	r.mu.Lock()
	if a.State == rulefile.Firing {
		r.note(key, a)
	} else {
		delete(r.alerts[key], labelText(a.Labels))
		if len(r.alerts[key]) == 0 {
			delete(r.alerts, key)
		}
	}
	firing := maps.Clone(r.alerts[key])
	r.mu.Unlock()
	resolved := a.State == rulefile.Inactive && a.Previous == rulefile.Firing
	if len(firing) == 0 && !resolved {
		return // pending, or it ended without having fired
	}
	r.send(ctx, key, r.event(key, a, firing))
}

// send submits an event. One that the log does not take is kept, and tried again every few seconds. When ctx has ended
// it is not tried again here: where the rules are evaluated next, the event is repeated, or settle resolves it. The
// caller holds the lock of the key.
func (r *Rules) send(ctx context.Context, key eventKey, ev *resource.Event) (stored bool) {
	submitting, cancel := context.WithTimeout(ctx, submitTime)
	defer cancel()
	err := r.opts.Intake.Submit(submitting, ev)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.unsent, key)
		return true
	}
	r.unsent[key] = ev
	if ctx.Err() != nil {
		r.rare.Error("the events of alerts are not stored before the rules stop: the next evaluation makes them", "stop",
			"entity", key.entity, "check", key.check, "err", err)
		return false
	}
	r.rare.Error("the event of an alert is not stored: it is tried again", key.entity+"/"+key.check, "entity", key.entity,
		"check", key.check, "err", err)
	return false
}

// sendAgain submits the events that the log did not take. It ends with the first one that the log does not take again:
// each may take seconds, and run has other work.
func (r *Rules) sendAgain(ctx context.Context) {
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.unsent))
	r.mu.Unlock()
	for _, key := range keys {
		if ctx.Err() != nil || !r.sendOneAgain(ctx, key) {
			return
		}
	}
}

func (r *Rules) sendOneAgain(ctx context.Context, key eventKey) (stored bool) {
	defer r.lock(key)()
	r.mu.Lock()
	ev := r.unsent[key]
	r.mu.Unlock()
	return ev == nil || r.send(ctx, key, ev) // without one, a later one was stored
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
		Metadata: resource.ObjectMeta{Namespace: r.opts.Namespace,
			Annotations: map[string]string{RuleAnnotation: string(rule)}},
		Entity: &resource.Entity{
			EntityClass: resource.EntityProxyClass, Subscriptions: []string{resource.EntitySubscription(key.entity)},
			Metadata: resource.ObjectMeta{Namespace: r.opts.Namespace, Name: key.entity},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: r.opts.Namespace, Name: key.check, Labels: labels,
				Annotations: annotations},
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
