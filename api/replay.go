package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Replay is a run of stored events through a pipeline.
type Replay struct {
	// ID is in the ids of the deliveries.
	ID string
	// Namespace, Entity and Check select events, "" all, and so do Since, Until and Select.
	Namespace, Entity, Check string
	Since, Until             time.Time
	Select                   func(*resource.Event) bool
	// Limit is how many selected events are taken, 0 for all.
	Limit int
	// Pipeline is the one that they go through, "" for the drafts.
	Pipeline string
	Draft    *Draft
	// RunCommands also runs mutators that are commands. Send implies it: what comes out goes to the handlers, at most Rate a
	// second.
	RunCommands, Send bool
	Rate              float64
}

// ReplayedEvent is what became of one event.
type ReplayedEvent struct {
	ID       string `json:"id"`
	Entity   string `json:"entity"`
	Check    string `json:"check"`
	Status   uint32 `json:"status"`
	Received int64  `json:"received"` // Unix milliseconds
	// Deliveries is what each workflow made of it.
	Deliveries []trace.Delivery `json:"deliveries"`
	// Error is why it cannot be read.
	Error string `json:"error,omitempty"`
	// Selected is set if it was taken through the pipeline. Without an ID there is no event: all events up to Received were
	// read.
	Selected bool `json:"-"`
}

// ErrNoPostgres is the error of Options.Replay without a database.
var ErrNoPostgres = errors.New("replay needs PostgreSQL, which has the events of the past: set --postgres-dsn, or define a PostgresConfig")

const (
	replayType = "application/jsonl"
	// replayRate is how many deliveries a second a replay sends unless the request says so.
	replayRate = 50
	// replayMaxRate bounds what a request may say.
	replayMaxRate = 10_000
	// replayBeat is how often a replay reports its progress.
	replayBeat = time.Second
)

// replayRequest selects events, and says what they go through.
type replayRequest struct {
	// Since and Until are when the backend received the events: RFC 3339, Unix seconds, or how long ago. Default of Until: now.
	Since         string `json:"since"`
	Until         string `json:"until"`
	Entity        string `json:"entity"`
	Check         string `json:"check"`
	LabelSelector string `json:"label_selector"`
	FieldSelector string `json:"field_selector"`
	// Limit is how many selected events are taken, 0 for all.
	Limit int `json:"limit"`
	// Pipeline names the pipeline, defined or a draft. Default: all drafts of pipelines, and of handlers that they do not name.
	Pipeline string `json:"pipeline"`
	Draft
	RunCommands bool `json:"run_commands"`
	// Send hands over what comes out to the handlers, at most Rate a second, 50 by default.
	Send bool    `json:"send"`
	Rate float64 `json:"rate"`
	// Details is how many of the first events the answer has, -1 for all. Events whose delivery failed are always in it.
	Details int `json:"details"`
}

// replayLine is a line of the answer. It has one of its fields.
type replayLine struct {
	Event    *ReplayedEvent  `json:"event,omitempty"`
	Progress *replayProgress `json:"progress,omitempty"`
	// Summary is the last line of a replay that came to its end.
	Summary *replaySummary `json:"summary,omitempty"`
	// Error is the last line of one that did not.
	Error string `json:"error,omitempty"`
}

// replayProgress is how far a replay is.
type replayProgress struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// At is when the newest event was received that was read.
	At time.Time `json:"at"`
	// Read, Selected and Unreadable count events. Delivered counts deliveries: those that were sent, or would be; Failed
	// those that could not be made or that the receiver did not take.
	Read       int `json:"read"`
	Selected   int `json:"selected"`
	Unreadable int `json:"unreadable"`
	Delivered  int `json:"delivered"`
	Failed     int `json:"failed"`
}

// replaySummary is the result of a replay.
type replaySummary struct {
	replayProgress
	// First is when the oldest event was received that was read; null without events. It is much later than Since if the
	// stored events begin later.
	First *time.Time `json:"first"`
	ID    string     `json:"id"`
	Sent  bool       `json:"sent"`
	// Verdicts counts the selected events: an event is delivered if one of its deliveries is; else the first one counts.
	Verdicts map[trace.Verdict]int `json:"verdicts"`
	// Routes counts the deliveries of each workflow and handler.
	Routes []replayRoute `json:"routes"`
}

// replayRoute is a way to a handler.
type replayRoute struct {
	Pipeline string                `json:"pipeline"`
	Workflow string                `json:"workflow"`
	Handler  string                `json:"handler"`
	Verdicts map[trace.Verdict]int `json:"verdicts"`
}

func (a *API) serveReplay() {
	// The rights depend on the request: on the events, and on each draft, pipeline and handler.
	a.route(ours+"namespaces/{namespace}/pipeline/replay", access{open: true, long: true}, methods{http.MethodPost: a.replay})
}

// replay takes stored events through a pipeline, and answers with lines until it is done or the client is gone.
func (a *API) replay(w *response, r *request) error {
	namespace := r.PathValue("namespace")
	var req replayRequest
	if err := a.decode(w, r, &req); err != nil {
		return err
	}
	if err := a.needNamespace(namespace); err != nil {
		return err
	}
	order, err := a.replayOrder(namespace, &req)
	if err != nil {
		return err
	}
	needs, err := a.mayReplay(r, namespace, &req)
	if err != nil {
		return err
	}
	if a.opts.Replay == nil {
		return noPostgres()
	}
	asked, err := selector.NamesOf((*resource.Event)(nil)).ParseAll(list(req.LabelSelector), list(req.FieldSelector))
	if err != nil {
		return invalid("%v", err)
	}
	reach := r.permit.Selector()
	order.Select = func(ev *resource.Event) bool {
		fields := selector.Event(ev)
		return asked.Match(fields) && reach.Match(fields)
	}
	if !a.openStream() {
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "the backend is stopping"}
	}
	defer a.streams.Done()
	if !a.beginReplay(namespace) {
		return &apiError{status: http.StatusConflict, code: codeExists, message: "a replay is under way in namespace " + namespace +
			": wait for its end"}
	}
	release := sync.OnceFunc(func() { a.endReplay(namespace) })
	defer release()
	if req.Send {
		name := cmp.Or(req.Pipeline, strings.Join(replayedNames(&req), ","))
		a.audited(r.Context(), r.act, "execute", "pipelines", namespace, name)
	}
	p := newReplayWriter(a, w, r, &req, order, needs)
	p.release = release
	return p.run()
}

// list returns a text as a list, "" as an empty one.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func noPostgres() error {
	return &apiError{status: http.StatusNotImplemented, code: codeInternal, message: ErrNoPostgres.Error()}
}

// replayOrder checks a request, but no rights.
func (a *API) replayOrder(namespace string, req *replayRequest) (*Replay, error) {
	now := a.opts.Now()
	o := &Replay{
		ID: strings.ToLower(rand.Text()[:8]), Namespace: namespace, Entity: req.Entity, Check: req.Check, Limit: req.Limit,
		Pipeline: req.Pipeline, Draft: &req.Draft, RunCommands: req.RunCommands, Send: req.Send, Rate: cmp.Or(req.Rate, replayRate),
	}
	var err error
	if o.Since, err = instant(req.Since, now); err != nil {
		return nil, err
	}
	if o.Until, err = instant(cmp.Or(req.Until, now.Format(time.RFC3339Nano)), now); err != nil {
		return nil, err
	}
	switch {
	case req.Since == "":
		return nil, invalid("since is required: when the first of the events was received")
	case !o.Since.Before(o.Until):
		return nil, invalid("since must be before until")
	case req.Limit < 0:
		return nil, invalid("limit must not be negative")
	case !(o.Rate > 0 && o.Rate <= replayMaxRate):
		return nil, invalid("rate must be more than 0 and at most %d", replayMaxRate)
	case req.Pipeline == "" && len(req.Pipelines)+len(req.Handlers) == 0:
		return nil, invalid("a pipeline is required: the name of one, or a draft of one or of a handler")
	}
	return o, nil
}

// replayedNames returns the names of the pipelines that events go through.
func replayedNames(req *replayRequest) (names []string) {
	if req.Pipeline != "" {
		return []string{req.Pipeline}
	}
	for _, p := range req.Pipelines {
		names = append(names, p.Metadata.Name)
	}
	return names
}

// mayReplay checks the rights: to read events, and to store the drafts. To send, users also need the right to update each
// pipeline and handler, which it returns. It completes the drafts.
func (a *API) mayReplay(r *request, namespace string, req *replayRequest) (needs []auth.Attributes, err error) {
	if r.permit = a.opts.Auth.Permit(r.user, readEvents(namespace)); r.permit.Denied() {
		return nil, lacks("list", "events")
	}
	if err := a.maySimulate(r, namespace, &simulation{Draft: req.Draft, RunCommands: req.RunCommands}); err != nil {
		return nil, err
	}
	sn := a.opts.Config.Snapshot()
	update := func(plural, name string) {
		needs = append(needs, auth.Attributes{Verb: "update", Resource: plural, Namespace: namespace, Name: name})
	}
	for i, h := range req.Handlers {
		old, _ := config.Get(sn, config.Handlers, namespace, h.Metadata.Name)
		complete, err := h.WithSecrets(old)
		if err == nil {
			err = a.opts.HandlerAllowed(complete)
		}
		if err != nil {
			return nil, invalid("handlers %s: %v", h.Metadata.Name, err)
		}
		req.Handlers[i] = complete
		update("handlers", h.Metadata.Name)
	}
	for _, m := range req.Mutators {
		if err := a.opts.MutatorAllowed(m); err != nil {
			return nil, invalid("mutators %s: %v", m.Metadata.Name, err)
		}
	}
	for _, name := range replayedNames(req) {
		p, ok := config.Get(sn, config.Pipelines, namespace, name)
		if i := slices.IndexFunc(req.Pipelines, func(p *resource.Pipeline) bool { return p.Metadata.Name == name }); i >= 0 {
			p, ok = req.Pipelines[i], true
		}
		if !ok {
			return nil, invalid("there is no pipeline %s in namespace %s", name, namespace)
		}
		update("pipelines", name)
		for _, w := range p.Workflows {
			if w.Handler != nil {
				update("handlers", w.Handler.Name)
			}
		}
	}
	if !req.Send {
		return nil, nil
	}
	if err := a.mayAll(r, needs); err != nil {
		return nil, err
	}
	return needs, nil
}

// mayAll refuses users who lack rights for the whole of some things.
func (a *API) mayAll(r *request, needs []auth.Attributes) error {
	for _, at := range needs {
		if !a.opts.Auth.Permit(r.user, at).Whole() {
			return lacks(at.Verb, at.Resource)
		}
	}
	return nil
}

func readEvents(namespace string) auth.Attributes {
	return auth.Attributes{Verb: "list", Resource: "events", Namespace: namespace}
}

// beginReplay reports whether no other replay is under way in a namespace.
func (a *API) beginReplay(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.replays[namespace] {
		return false
	}
	a.replays[namespace] = true
	return true
}

func (a *API) endReplay(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.replays, namespace)
}

// replayWriter writes the answer of a replay.
type replayWriter struct {
	a       *API
	w       *response
	r       *request
	req     *replayRequest
	order   *Replay
	needs   []auth.Attributes
	control *http.ResponseController
	buf     bytes.Buffer
	sum     replaySummary
	routes  map[[3]string]int // index into sum.Routes
	shown   int
	release func() // lets the next replay of the namespace begin
}

func newReplayWriter(a *API, w *response, r *request, req *replayRequest, order *Replay, needs []auth.Attributes) *replayWriter {
	return &replayWriter{
		a: a, w: w, r: r, req: req, order: order, needs: needs, control: http.NewResponseController(w), routes: map[[3]string]int{},
		sum: replaySummary{
			replayProgress: replayProgress{Since: order.Since.UTC(), Until: order.Until.UTC(), At: order.Since.UTC()},
			ID:             order.ID, Sent: order.Send, Verdicts: map[trace.Verdict]int{}, Routes: []replayRoute{},
		},
	}
}

// run runs the replay. It ends when the client is gone, the backend stops, or the user loses the rights.
func (p *replayWriter) run() error {
	ctx, cancel := p.a.untilStop(p.r.Context())
	events, done := make(chan ReplayedEvent), make(chan error, 1)
	go func() {
		done <- p.a.opts.Replay(ctx, p.order, func(e ReplayedEvent) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		close(done)
	}()
	defer func() {
		cancel()
		for range done { // until the replay has ended
		}
	}()
	beat := time.NewTicker(replayBeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case e := <-events:
			err = p.event(&e)
		case <-beat.C:
			if !p.a.stillMay(p.r, readEvents(p.order.Namespace)) || p.a.mayAll(p.r, p.needs) != nil {
				return p.end(errors.New("the rights of the user have changed"))
			}
			progress := p.sum.replayProgress
			p.line(&replayLine{Progress: &progress})
			err = p.flush()
		case err := <-done:
			p.release() // before the last line: its reader may ask for another replay at once
			return p.end(err)
		}
		if err != nil {
			return nil // the client is gone
		}
	}
}

// end writes the last line. A replay that failed before its first line is answered like other requests.
func (p *replayWriter) end(err error) error {
	switch {
	case err != nil && p.r.Context().Err() != nil:
		return nil
	case errors.Is(err, ErrNoPostgres):
		return noPostgres()
	case err != nil:
		p.a.rare.Warn("a replay failed", p.order.Namespace, "namespace", p.order.Namespace, "replay", p.order.ID, "err", err)
		if p.w.status == 0 {
			return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: err.Error()}
		}
		p.line(&replayLine{Error: err.Error()})
	default:
		p.line(&replayLine{Summary: &p.sum})
	}
	_ = p.flush()
	return nil
}

// event counts what became of an event, and writes it if it is wanted.
func (p *replayWriter) event(e *ReplayedEvent) error {
	if at := time.UnixMilli(e.Received).UTC(); at.After(p.sum.At) {
		p.sum.At = at
	}
	if e.ID == "" {
		return nil
	}
	if p.sum.Read++; p.sum.First == nil {
		at := time.UnixMilli(e.Received).UTC()
		p.sum.First = &at
	}
	if e.Error != "" {
		p.sum.Unreadable++
		return nil
	}
	if !e.Selected {
		return nil
	}
	p.sum.Selected++
	verdict, failed := trace.NoHandler, false
	for i := range e.Deliveries {
		d := &e.Deliveries[i]
		if i == 0 || d.Verdict == trace.Delivered {
			verdict = d.Verdict
		}
		switch d.Verdict {
		case trace.Delivered:
			p.sum.Delivered++
		case trace.Dropped, trace.Failed:
			p.sum.Failed++
			failed = true
		}
		p.route(d).Verdicts[d.Verdict]++
	}
	p.sum.Verdicts[verdict]++
	if p.req.Details >= 0 && p.shown >= p.req.Details && !failed {
		return nil
	}
	p.shown++
	p.a.hideOthers(p.r, p.order.Namespace, e.Deliveries)
	p.line(&replayLine{Event: e})
	if p.buf.Len() < sendAt {
		return nil
	}
	return p.flush()
}

func (p *replayWriter) route(d *trace.Delivery) *replayRoute {
	key := [3]string{d.Pipeline, d.Workflow, d.Handler}
	i, ok := p.routes[key]
	if !ok {
		i = len(p.sum.Routes)
		p.routes[key] = i
		p.sum.Routes = append(p.sum.Routes, replayRoute{d.Pipeline, d.Workflow, d.Handler, map[trace.Verdict]int{}})
	}
	return &p.sum.Routes[i]
}

// line adds a line to the buffer.
func (p *replayWriter) line(l *replayLine) {
	if err := json.NewEncoder(&p.buf).Encode(l); err != nil {
		p.a.log.Error("a line of a replay cannot be encoded", "namespace", p.order.Namespace, "err", err)
	}
}

// flush sends the buffer.
func (p *replayWriter) flush() error {
	if p.w.status == 0 {
		p.w.Header().Set("Content-Type", replayType)
		p.w.Header().Set("Cache-Control", "no-store")
		p.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx holds lines back
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(streamTimeout))
	_, err := p.w.Write(p.buf.Bytes())
	p.buf.Reset()
	if err == nil {
		err = p.control.Flush()
	}
	return err
}
