package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/explain"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Traces has what happened to events, on all backends.
type Traces interface {
	// Of returns the outcomes of a check's events, the newest first, and the backends whose traces are missing in it,
	// each with the reason in words.
	Of(ctx context.Context, q trace.Query) (events []trace.Outcome, missing []string, err error)
	// Newest is Of for many checks at a time, in their order. It reads a bounded number of records of each.
	Newest(ctx context.Context, list []trace.Query) (found []trace.Newest, missing []string, err error)
}

// Draft has definitions that a simulation adds to the existing ones. They replace those of the same names.
type Draft struct {
	Handlers  []*resource.Handler     `json:"handlers"`
	Filters   []*resource.EventFilter `json:"filters"`
	Mutators  []*resource.Mutator     `json:"mutators"`
	Pipelines []*resource.Pipeline    `json:"pipelines"`
}

// empty reports whether there is no draft.
func (d *Draft) empty() bool {
	return len(d.Handlers)+len(d.Filters)+len(d.Mutators)+len(d.Pipelines) == 0
}

const (
	tracePage    = 20 // default number of events
	tracePageMax = 1000
	// simulations is how many run at a time.
	simulations = 2
	// simulationTime is the time limit of one.
	simulationTime = 10 * time.Second
	// simulationReach is how far from now a simulation may be, in seconds: calendars go through all times up to there.
	simulationReach = 2 * 366 * 24 * 3600
)

func (a *API) serveTrace() {
	item := func(r *request) string { return r.PathValue("entity") + "/" + r.PathValue("check") }
	a.route(ours+"namespaces/{namespace}/events/{entity}/{check}/trace", access{resource: "events", name: item, labels: true},
		methods{http.MethodGet: a.listTrace})
	a.route(ours+"namespaces/{namespace}/events/{entity}/{check}/explain", access{resource: "events", name: item, labels: true},
		methods{http.MethodGet: a.explain})
	// The rights depend on the keys.
	a.route(ours+"namespaces/{namespace}/events/explain", access{open: true, reads: true}, methods{http.MethodPost: a.explainMany})
	// The rights to simulate depend on the request: on the event, and on each draft.
	a.route(ours+"namespaces/{namespace}/pipelines/simulate", access{open: true, reads: true}, methods{http.MethodPost: a.simulate})
}

// listTrace lists the newest traced events of a check, with what happened to them; ?until= leaves out those that came later.
// Like a history it outlives the event, and a role that is limited by labels reaches it only through the event.
func (a *API) listTrace(w *response, r *request) error {
	if r.permit.Selector() != nil {
		if _, err := a.findEvent(r.act, pathKey(r)); err != nil {
			return err
		}
	}
	q := trace.Query{Namespace: r.PathValue("namespace"), Entity: r.PathValue("entity"), Check: r.PathValue("check"), Limit: tracePage}
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && n > 0 {
		q.Limit = min(n, tracePageMax)
	}
	if text := r.URL.Query().Get("until"); text != "" {
		until, err := instant(text, a.opts.Now())
		if err != nil {
			return err
		}
		q.Until = max(1, until.UnixMilli()) // 0 is no bound
	}
	events, err := a.outcomes(w, r, q)
	if err != nil {
		return err
	}
	list := newArray(w, "")
	for i := range events {
		if err := list.add(&events[i]); err != nil {
			return err
		}
	}
	return list.finish()
}

// outcomes returns what happened to the events of a check, as the user may see it.
func (a *API) outcomes(w *response, r *request, q trace.Query) ([]trace.Outcome, error) {
	if a.opts.Trace == nil {
		return nil, nil
	}
	events, missing, err := a.opts.Trace.Of(r.Context(), q)
	if err != nil {
		return nil, err
	}
	w.lackTraces(missing)
	a.complete(r, q.Namespace, events)
	return events, nil
}

// lackTraces says which members did not tell what they know.
func (w *response) lackTraces(missing []string) {
	for _, member := range missing {
		w.advise("traces are missing: " + member)
	}
}

// complete adds to traces what belongs to them, and removes what the user may not see.
func (a *API) complete(r *request, namespace string, events []trace.Outcome) {
	for i := range events {
		trace.Escalated(events[i].Deliveries)
		a.hideOthers(r, namespace, events[i].Deliveries)
	}
}

// simulation is a request for a dry run.
type simulation struct {
	// Event is simulated. If it is null, the newest event of Check on Entity is.
	Event  *resource.Event `json:"event"`
	Entity string          `json:"entity"`
	Check  string          `json:"check"`
	Draft
	// RunCommands also runs mutators that are commands. Otherwise they are skipped, and their output is unknown.
	RunCommands bool `json:"run_commands"`
	// At is when the event comes, Unix seconds, within two years of now: the event gets this timestamp, filters and escalations
	// see this time, and silences that end before it do not apply. Mutators see the present time. 0 is now, and leaves the
	// event as it is.
	At int64 `json:"at"`
}

// SimulateOptions say what is simulated.
type SimulateOptions struct {
	Namespace string
	Event     *resource.Event
	Draft     *Draft
	// RunCommands also runs mutators that are commands.
	RunCommands bool
	// At is when the event comes; zero is now.
	At time.Time
}

// simulated is what would happen to an event.
type simulated struct {
	// At is that of the request. A backend that does not know it leaves it out.
	At         int64            `json:"at,omitempty"`
	Deliveries []trace.Delivery `json:"deliveries"`
	// Answer says to whom it would be sent, or why to no one. Its times are in UTC and RFC 3339.
	Answer []explain.Part `json:"answer"`
}

// simulate answers what would happen to an event. Nothing is sent to handlers.
func (a *API) simulate(w *response, r *request) error {
	namespace := r.PathValue("namespace")
	var req simulation
	if err := a.decode(w, r, &req); err != nil {
		return err
	}
	if err := a.maySimulate(r, namespace, &req); err != nil {
		return err
	}
	if now := a.opts.Now().Unix(); req.At != 0 && (req.At < now-simulationReach || req.At > now+simulationReach) {
		return invalid("at must be within two years of now, in Unix seconds, and is %d", req.At)
	}
	ev, err := a.simulatedEvent(r, namespace, &req)
	if err != nil {
		return err
	}
	o := SimulateOptions{Namespace: namespace, Event: ev, Draft: &req.Draft, RunCommands: req.RunCommands}
	if req.At != 0 {
		o.At = time.Unix(req.At, 0)
	}
	out := simulated{At: req.At}
	if out.Deliveries, err = a.wouldBecome(r, &o); err != nil {
		return err
	}
	would := explain.Account{Simulated: out.Deliveries, Now: a.opts.Now()}
	if req.Event == nil && req.Draft.empty() { // drafts may define what is missing
		would.Undefined = a.undefined(r, namespace, ev)
	}
	out.Answer = would.Would()
	return w.object(&out)
}

// wouldBecome simulates an event, and returns what the user may see.
func (a *API) wouldBecome(r *request, o *SimulateOptions) ([]trace.Delivery, error) {
	if a.opts.Simulate == nil {
		return nil, &apiError{status: http.StatusNotImplemented, code: codeInternal, message: "this backend does not simulate"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), simulationTime)
	defer cancel()
	select {
	case a.simulating <- struct{}{}:
		defer func() { <-a.simulating }()
	case <-ctx.Done():
		return nil, &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "too many simulations are under way"}
	}
	list := a.opts.Simulate(ctx, o)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a.hideOthers(r, o.Namespace, list)
	if o.At.IsZero() {
		if err := a.noteEscalations(o.Namespace, o.Event, list); err != nil {
			return nil, err
		}
	}
	if list == nil {
		list = []trace.Delivery{}
	}
	return list, nil
}

// noteEscalations says of simulated deliveries that would begin an escalation if one goes on: an incident becomes part of that.
// The steps of a new escalation are left out then.
func (a *API) noteEscalations(namespace string, ev *resource.Event, list []trace.Delivery) error {
	begins := func(d *trace.Delivery) bool {
		return d.Verdict == trace.Held && len(d.Steps) > 0 && d.Steps[len(d.Steps)-1].Kind == trace.StepEscalate
	}
	one := slices.ContainsFunc(list, func(d trace.Delivery) bool { return begins(&d) })
	if a.opts.Escalations == nil || ev.Entity == nil || ev.Check == nil || !one {
		return nil
	}
	running, _, err := a.opts.Escalations(namespace, ev.Entity.Metadata.Name, ev.Check.Metadata.Name, maxEscalations)
	if err != nil {
		return err
	}
	for i := range list {
		at := slices.IndexFunc(running, func(e resource.Escalation) bool { return e.Handler == list[i].Handler })
		if at >= 0 && begins(&list[i]) {
			list[i].Reason = escalationText(&running[at], ev.Check.Status, a.opts.Now())
			list[i].Steps = slices.DeleteFunc(list[i].Steps, func(s trace.Step) bool { return s.Kind == trace.StepEscalate })
		}
	}
	return nil
}

// escalationText says in words when the next step of an escalation is taken and whom that notifies, or that all are taken.
func escalationText(e *resource.Escalation, status uint32, now time.Time) string {
	ago := now.Sub(time.UnixMilli(e.Began)).Round(time.Second)
	if e.Held == "" && e.Next == 0 {
		return fmt.Sprintf("its escalation began %s ago, and all its steps are taken", max(0, ago))
	}
	text := fmt.Sprintf("its escalation began %s ago and goes on: ", max(0, ago))
	if e.Held != "" {
		return text + "no step is taken now, " + e.Held
	}
	text += fmt.Sprintf("step %d", e.Steps+1)
	switch {
	case len(e.NextNotifies) > 0:
		text += " notifies " + strings.Join(e.NextNotifies, ", ")
	case e.NextProblem != "":
		text += " notifies no one (" + e.NextProblem + ")"
	default:
		text += " is taken"
	}
	due := time.UnixMilli(e.Next).Sub(now).Round(time.Second)
	switch {
	case e.Quiet != "":
		var until time.Time
		if e.QuietUntil > 0 {
			until = time.UnixMilli(e.QuietUntil)
		}
		return text + " when the quiet time is over: " + oncall.QuietText(status, e.Quiet, until)
	case due > 0:
		return text + " in " + due.String()
	}
	return text + " now"
}

// simulatedEvent returns the event to simulate.
func (a *API) simulatedEvent(r *request, namespace string, req *simulation) (*resource.Event, error) {
	name := req.Entity + "/" + req.Check
	if req.Event != nil {
		if err := address(req.Event, namespace, "", ""); err != nil {
			return nil, err
		}
		name = "/"
		if req.Event.Entity != nil {
			name = req.Event.Entity.Metadata.Name + name
		}
		if req.Event.Check != nil {
			name += req.Event.Check.Metadata.Name
		}
	} else if req.Entity == "" || req.Check == "" {
		return nil, invalid("an event is required, or an entity and a check")
	}
	permit := a.opts.Auth.Permit(r.user, auth.Attributes{Verb: "get", Resource: "events", Namespace: namespace, Name: name})
	if permit.Denied() {
		return nil, lacks("get", "events")
	}
	ev := req.Event
	if ev == nil {
		var err error
		if ev, err = a.opts.State.Event(namespace, req.Entity, req.Check); err != nil {
			return nil, err
		}
	} else if ev.Timestamp == 0 {
		ev.Timestamp = a.opts.Now().Unix()
	}
	if !permit.Selector().Match(selector.Event(ev)) {
		return nil, errNotFound
	}
	if err := ev.Validate(); err != nil {
		return nil, invalid("%v", err)
	}
	return ev, nil
}

// maySimulate refuses drafts of users who may not store them: a script reads events, and a command runs with the
// backend's rights.
func (a *API) maySimulate(r *request, namespace string, req *simulation) error {
	may := func(plural, name string) error {
		for _, verb := range [...]string{"create", "update"} {
			if !a.opts.Auth.Permit(r.user, auth.Attributes{Verb: verb, Resource: plural, Namespace: namespace, Name: name}).Whole() {
				return lacks(verb, plural)
			}
		}
		return nil
	}
	var errs []error
	one := func(plural string, meta *resource.ObjectMeta, validate func() error) {
		if meta.Namespace == "" {
			meta.Namespace = namespace
		}
		if meta.Namespace != namespace {
			errs = append(errs, namespaceMismatch(meta.Namespace, namespace))
		} else if err := may(plural, meta.Name); err != nil {
			errs = append(errs, err)
		} else if err := validate(); err != nil {
			errs = append(errs, invalid("%s %s: %v", plural, meta.Name, err))
		}
	}
	for _, h := range req.Handlers {
		if h == nil {
			return invalid("one of the handlers is null")
		}
		one("handlers", &h.Metadata, h.Validate)
	}
	for _, f := range req.Filters {
		if f == nil {
			return invalid("one of the filters is null")
		}
		f.Author = r.user.Author()
		one("filters", &f.Metadata, f.Validate)
	}
	for _, m := range req.Mutators {
		if m == nil {
			return invalid("one of the mutators is null")
		}
		m.Author = r.user.Author()
		one("mutators", &m.Metadata, m.Validate)
	}
	for _, p := range req.Pipelines {
		if p == nil {
			return invalid("one of the pipelines is null")
		}
		one("pipelines", &p.Metadata, p.Validate)
	}
	if req.RunCommands {
		if err := may("mutators", ""); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		// Only the first denial is answered. The order does not change whether there is one.
		for _, err := range errs {
			if errors.Is(err, errDenied) {
				return err
			}
		}
		return errs[0]
	}
	return nil
}
