package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	// bulkWorkers is how many objects are processed at a time. The write of an event waits for a commit of the log,
	// which it shares with others.
	bulkWorkers = 64
	// bulkListed is the limit of objects listed in a report.
	bulkListed = 1000
	// bulkBeat is the interval of progress reports.
	bulkBeat = time.Second
	// bulkChunk is how many events one search returns.
	bulkChunk  = 1000
	linesType  = "application/x-ndjson"
	resolvedBy = "Resolved manually by "
)

// bulkRequest says what to do to which objects.
type bulkRequest struct {
	Resource      string `json:"resource"` // plural
	Action        string `json:"action"`   // delete, label; events: resolve, silence, acknowledge, unacknowledge
	LabelSelector string `json:"label_selector"`
	FieldSelector string `json:"field_selector"`
	// All must be set to act on all objects, without a selector.
	All    bool `json:"all"`
	DryRun bool `json:"dry_run"`
	// AtMost, unless 0, refuses to start if more objects are selected.
	AtMost int `json:"at_most"`
	// Labels are the labels for the action label; null removes one.
	Labels map[string]*string `json:"labels"`
	// Expire and the fields up to Reason are for the action silence; acknowledge uses Expire and Reason.
	Expire          int64  `json:"expire"`
	ExpireOnResolve bool   `json:"expire_on_resolve"`
	Reason          string `json:"reason"`
}

// bulkReport is the result of a bulk action.
type bulkReport struct {
	Resource string `json:"resource"`
	Action   string `json:"action"`
	DryRun   bool   `json:"dry_run"`
	Matched  int    `json:"matched"` // objects selected so far
	Done     int    `json:"done"`    // in a dry run, the number that would be done
	Denied   int    `json:"denied"`  // denied by roles
	Failed   int    `json:"failed"`
	Finished bool   `json:"finished"`
	// Connected is how many of the entities that are or would be deleted have a connected agent, which registers them again.
	Connected int `json:"connected,omitempty"`
	// Objects lists the first objects that were denied or failed, and in a dry run also those that the action would
	// change.
	Objects []bulkObject `json:"objects"`
}

// bulkObject is one of the selected objects of a bulk request.
type bulkObject struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Result    string `json:"result"` // would, denied or failed
	Error     string `json:"error,omitempty"`
}

// serveBulk adds an action on all objects of a kind that a selector selects. Its path is open: the roles are checked
// for each object.
func (a *API) serveBulk() {
	a.route(ours+"namespaces/{namespace}/bulk", access{open: true, long: true}, methods{http.MethodPost: a.bulk})
}

// bulk does the action and answers with a report. A client that accepts lines of JSON gets progress reports first. The
// action goes on after an object fails; it ends when the client disconnects.
func (a *API) bulk(w *response, r *request) error {
	var req bulkRequest
	if err := a.decodeAction(w, r, &req); err != nil {
		return err
	}
	b := &bulkRun{api: a, r: r, bulkRequest: req, namespace: r.PathValue("namespace")}
	if b.namespace == allNamespaces {
		b.namespace = ""
	}
	if err := b.check(); err != nil {
		return err
	}
	if req.AtMost > 0 {
		n, err := b.count()
		if err != nil {
			return err
		}
		if n > req.AtMost {
			return &apiError{status: http.StatusConflict, code: codePrecondition,
				message: fmt.Sprintf("%d objects are selected, more than at_most (%d)", n, req.AtMost)}
		}
	}
	b.report = bulkReport{Resource: req.Resource, Action: req.Action, DryRun: req.DryRun, Objects: []bulkObject{}}
	control := http.NewResponseController(w)
	if !strings.Contains(r.Header.Get("Accept"), linesType) {
		_ = control.SetWriteDeadline(time.Time{}) // the answer comes when everything is done
		if err := b.run(nil); err != nil {
			return err
		}
		_ = control.SetWriteDeadline(time.Now().Add(sendTimeout))
		return w.object(&b.report)
	}
	w.Header().Set("Content-Type", linesType)
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(v any) error {
		line, err := encode(v)
		if err != nil {
			return err
		}
		_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return control.Flush()
	}
	if err := b.run(send); err != nil {
		return err
	}
	return send(&b.report)
}

// bulkRun is one running bulk action.
type bulkRun struct {
	bulkRequest
	api       *API
	r         *request
	namespace string // "" for all
	kind      *resource.Kind
	selector  *selector.Selector
	verb      string

	mu     sync.Mutex // guards report
	report bulkReport
}

// target is an object to act on. Its fields are computed when needed.
type target struct {
	namespace, name string
	key             state.Key // of an event
	fields          func() (selector.Fields, error)
}

// check returns an error if the request is invalid, or if its sender may not list such objects at all.
func (b *bulkRun) check() error {
	actions := []string{"delete", "label"}
	if b.Resource == "events" {
		actions = []string{"delete", "resolve", "silence", "acknowledge", "unacknowledge"}
	} else if kinds := kindsNamed(b.Resource); len(kinds) == 1 && kinds[0].Namespaced && kinds[0].Role == b.Resource {
		b.kind = kinds[0]
	} else {
		return invalid("resource must be events or the plural of a kind that lives in namespaces and has labels, not %q", b.Resource)
	}
	if !slices.Contains(actions, b.Action) {
		return invalid("action on %s must be one of %s, not %q", b.Resource, strings.Join(actions, ", "), b.Action)
	}
	b.verb = map[string]string{
		"delete": "delete", "label": "update", "resolve": "update", "silence": "create", "acknowledge": "create", "unacknowledge": "delete",
	}[b.Action]
	if b.Action == "acknowledge" && b.Reason == "" {
		return invalid("acknowledge needs a comment in reason")
	}
	if b.Action == "label" && len(b.Labels) == 0 {
		return invalid("labels must not be empty")
	}
	if b.LabelSelector == "" && b.FieldSelector == "" && !b.All {
		return invalid("a label_selector or field_selector is required, or all must be set")
	}
	if b.All && (b.LabelSelector != "" || b.FieldSelector != "") {
		return invalid("all and a selector exclude each other")
	}
	like := any((*resource.Event)(nil))
	if b.kind != nil {
		like = b.api.definitions[b.kind.Role].like
	}
	asked, err := selector.NamesOf(like).Parse(b.LabelSelector, b.FieldSelector)
	if err != nil {
		return invalid("%v", err)
	}
	permit := b.api.opts.Auth.Permit(b.r.user, auth.Attributes{Verb: "list", Resource: b.Resource, Namespace: b.namespace})
	if permit.Denied() {
		return lacks("list", b.Resource)
	}
	b.selector = selector.All(asked, permit.Selector())
	return nil
}

// targets yields the selected objects.
func (b *bulkRun) targets() iter.Seq2[*target, error] {
	if b.kind == nil {
		return b.events
	}
	return func(yield func(*target, error) bool) {
		now := time.Now()
		for obj := range config.ListAny(b.api.opts.Config.Snapshot(), b.kind, b.namespace) {
			fields := selector.Resource(b.api.seen(b.r.user, obj))
			if !b.selector.MatchAt(fields, now) {
				continue
			}
			meta := resource.MetaOf(obj)
			t := &target{namespace: meta.Namespace, name: meta.Name, fields: func() (selector.Fields, error) { return fields, nil }}
			if !yield(t, nil) {
				return
			}
		}
	}
}

// events yields the selected events in successive chunks. Events may be deleted in between.
func (b *bulkRun) events(yield func(*target, error) bool) {
	query := state.Query{Namespace: b.namespace, Selector: b.selector, Limit: bulkChunk}
	for {
		page, err := b.api.opts.State.Select(b.r.Context(), query)
		if err != nil {
			yield(nil, err)
			return
		}
		for key := range page.Keys() {
			t := &target{namespace: key.Namespace, name: key.Entity + "/" + key.Check, key: key, fields: func() (selector.Fields, error) {
				ev, err := b.api.opts.State.Event(key.Namespace, key.Entity, key.Check)
				if err != nil {
					return nil, err
				}
				return selector.Event(ev), nil
			}}
			if !yield(t, nil) {
				return
			}
		}
		if page.Next == "" {
			return
		}
		query.After = page.Next
	}
}

// count returns the number of selected objects, up to one above AtMost.
func (b *bulkRun) count() (n int, err error) {
	for _, err := range b.targets() {
		if err != nil {
			return 0, err
		}
		if n++; n > b.AtMost {
			break
		}
	}
	return n, nil
}

// run acts on all targets. It calls progress, if not nil, with the report so far, once per bulkBeat.
func (b *bulkRun) run(progress func(any) error) (err error) {
	ctx, cancel := context.WithCancel(b.r.Context())
	defer cancel()
	todo := make(chan *target)
	var working sync.WaitGroup
	for range bulkWorkers {
		working.Go(func() {
			for t := range todo {
				b.act(ctx, t)
			}
		})
	}
	var lookErr error
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		defer working.Wait()
		defer close(todo)
		for t, err := range b.targets() {
			if lookErr = err; err != nil {
				return
			}
			select {
			case todo <- t:
			case <-ctx.Done():
				return
			}
		}
	}()
	beat := time.NewTicker(bulkBeat)
	defer beat.Stop()
	for {
		select {
		case <-looked:
			b.report.Finished = lookErr == nil && ctx.Err() == nil
			return cmp.Or(lookErr, err, ctx.Err())
		case <-beat.C:
			if progress != nil && err == nil {
				if err = progress(b.soFar()); err != nil {
					cancel()
				}
			}
		}
	}
}

// soFar returns the report without the objects.
func (b *bulkRun) soFar() bulkReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.report
	out.Objects = []bulkObject{}
	return out
}

// act acts on one object, or in a dry run finds out whether it would.
func (b *bulkRun) act(ctx context.Context, t *target) {
	var err error
	connected := b.comesBack(t)
	if b.DryRun {
		err = b.would(t)
	} else {
		err = b.do(ctx, t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report.Matched++
	out := bulkObject{Namespace: t.namespace, Name: t.name}
	var refused *apiError
	switch {
	case err == nil:
		b.report.Done++
		if connected {
			b.report.Connected++
		}
		if out.Result = "would"; !b.DryRun {
			return
		}
	case errors.As(err, &refused) && refused.status == http.StatusForbidden:
		b.report.Denied++
		out.Result, out.Error = "denied", err.Error()
	default:
		b.report.Failed++
		out.Result, out.Error = "failed", err.Error()
	}
	if len(b.report.Objects) < bulkListed {
		b.report.Objects = append(b.report.Objects, out)
	}
}

// comesBack reports whether the target is an entity whose agent is connected, so that deleting it does not last.
func (b *bulkRun) comesBack(t *target) bool {
	agents := b.api.opts.Agents
	return b.Action == "delete" && b.Resource == config.Entities.String() && agents != nil &&
		agents.IsConnected(resource.Name{Namespace: t.namespace, Name: t.name})
}

// would makes the same permission checks as do.
func (b *bulkRun) would(t *target) error {
	at := auth.Attributes{Verb: b.verb, Resource: b.Resource, Namespace: t.namespace, Name: t.name}
	switch b.Action {
	case "silence":
		at.Resource, at.Name = "silenced", ""
	case "acknowledge", "unacknowledge":
		at.Resource, at.Name = "silenced", ackName(t.key)
		if b.api.opts.Auth.Permit(b.r.user, at).Denied() { // the acknowledgement has other labels
			return errDenied
		}
		return nil
	}
	permit := b.api.opts.Auth.Permit(b.r.user, at)
	if permit.Whole() {
		return nil
	}
	if permit.Denied() {
		return errDenied
	}
	fields, err := t.fields()
	if err != nil {
		return err
	}
	if !permit.Allows(fields) {
		return errDenied
	}
	return nil
}

// do acts on one object.
func (b *bulkRun) do(ctx context.Context, t *target) (err error) {
	defer func() {
		if v := recover(); v != nil { // ServeHTTP recovers no panic of this goroutine
			b.api.metrics.panics.Inc()
			b.api.rare.Error("request handler panicked", b.Action, "resource", b.Resource, "name", t.name, "panic", v, "stack", stack())
			err = errors.New("internal error occurred")
		}
	}()
	d, err := b.deed(t)
	if d == nil || err != nil {
		return err
	}
	if !b.api.opts.Auth.Active(b.r.user) {
		return errInvalidCredentials
	}
	err = b.api.actAs(ctx, b.r.act, d)
	var refused *apiError
	if b.Action == "unacknowledge" && errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return nil // nothing to do
	}
	return err
}

// deed returns the act on one object, or nil if there is nothing to do.
func (b *bulkRun) deed(t *target) (*deed, error) {
	a, silences := b.api, b.api.silences
	switch b.Action {
	case "delete":
		if b.kind != nil {
			return a.erasing(b.kind, t.namespace, t.name), nil
		}
		return eventDeed(http.MethodDelete, t.key, func(ctx context.Context, as *act) error {
			return a.eraseEvent(ctx, as, t.key)
		}), nil
	case "label":
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": b.Labels}})
		if err != nil {
			return nil, fmt.Errorf("encode labels: %w", err)
		}
		return a.amending(b.kind, t.namespace, t.name, patch), nil
	case "silence":
		one := &resource.Silenced{Expire: b.Expire, ExpireOnResolve: b.ExpireOnResolve, Reason: b.Reason}
		return silences.silencing(t.key, one), nil
	case "unacknowledge":
		return ackDeed(http.MethodDelete, t.key, func(ctx context.Context, as *act) error {
			return silences.unack(ctx, as, t.key)
		}), nil
	}
	ev, err := a.opts.State.Event(t.key.Namespace, t.key.Entity, t.key.Check)
	if err != nil || ev.Check == nil || ev.Check.Status == 0 {
		return nil, err
	}
	if b.Action == "acknowledge" {
		return ackDeed(http.MethodPost, t.key, func(ctx context.Context, as *act) error {
			return silences.ack(ctx, as, t.key, &acknowledgement{Comment: b.Reason, Expire: b.Expire})
		}), nil
	}
	now := a.opts.Now().Unix()
	ev.ID, ev.Timestamp = nil, now
	ev.Check.Status, ev.Check.Output, ev.Check.Executed = 0, resolvedBy+b.r.user.User, now
	if ev, err = asSent(ev); err != nil {
		return nil, err
	}
	return eventDeed(http.MethodPut, t.key, func(ctx context.Context, as *act) error {
		return a.submit(ctx, as, t.key, ev)
	}), nil
}

// asSent returns an event without the fields that JSON leaves out: clients cannot send those, and the fold sets them.
func asSent(ev *resource.Event) (*resource.Event, error) {
	text, err := json.Marshal(resource.Plain(ev))
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	out := new(resource.Event)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	return out, nil
}
