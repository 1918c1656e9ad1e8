package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	streamType = "text/event-stream"
	// tailBuffer is how many updates may wait for the goroutine that adds them to the backlog, which never waits for
	// the client.
	tailBuffer = 4096
	// streamTimeout is how long a write to a client may block.
	streamTimeout = 10 * time.Second
	// cursorEvery is how often a stream's position is noted. A client that resumes gets later changes again.
	cursorEvery = time.Second
)

// streamAccess is the right to list events.
var streamAccess = access{resource: "events", labels: true}

func (a *API) serveStream() {
	a.route("/api/lapwing/v1/namespaces/{namespace}/events/stream", streamAccess, methods{http.MethodGet: a.streamEvents})
}

// streamEvents sends every current event, then "synced", then every change, as server-sent events. A check that changes
// several times while the client is busy is sent once, in its newest state. A comment every 5 s shows the client that
// the backend lives, and shows us that the client still reads.
//
// A client that reconnects with its last id as Last-Event-ID gets the changes since then, and then "synced". If that id
// is no longer known it gets "reset", and all current events. The id means the same on all backends; one that is behind
// it waits for a moment.
//
// With selectors, or a role that is limited by labels, an event that no longer matches is sent as a deletion.
func (a *API) streamEvents(w *response, r *request) error {
	p := pageOf(r, (*resource.Event)(nil))
	if p.err != nil {
		return p.err
	}
	end, err := a.beginStream(r)
	if err != nil {
		return err
	}
	defer end()

	attributes := streamAccess.attributes(r)
	// Open the tail before reading the current events, so that no change falls between the two.
	tail := a.opts.State.Tail(tailBuffer)
	backlog := newBacklog(a.backlog)
	defer a.trackBacklog(backlog, tail)()
	cursor := a.opts.State.Cursor()
	var sorting sync.WaitGroup
	sorting.Go(func() { backlog.fill(tail, attributes.Namespace, a.opts.State.Cursor) })
	defer sorting.Wait()
	defer tail.Close()

	s := newEventStream(a, w, r)
	s.selector = p.selector
	if s.selector != nil {
		s.shown = map[eventKey]bool{}
	}
	err = s.begin(r.Context(), attributes.Namespace, lastEventID(r), cursor)
	beat := time.NewTicker(a.heartbeat)
	defer beat.Stop()
	for err == nil {
		select {
		case <-backlog.ready:
			err = s.changes(backlog)
		case <-beat.C:
			if !a.stillMay(r, attributes) {
				s.buf.WriteString("id:\n\n") // the client forgets its position, and begins anew
				return over(s.flush())
			}
			s.buf.WriteString(": \n\n")
			err = s.flush()
		case <-s.gone:
			err = errStreamOver
		case <-a.stopping:
			err = errStreamOver
		}
	}
	if errors.Is(err, errStreamOver) || r.Context().Err() != nil {
		return nil
	}
	return err
}

// stillMay reports whether a stream may go on: its user still exists, the sign-in goes on, and the roles give the same permission as at the
// start. If they have changed, the client must reconnect, and gets what it may see then.
func (a *API) stillMay(r *request, at auth.Attributes) bool {
	if !a.signedIn(r) {
		return false
	}
	now := a.opts.Auth.Permit(r.user, at)
	return now.Whole() == r.permit.Whole() && slices.Equal(now.Labels(), r.permit.Labels()) && !now.Denied()
}

// signedIn reports whether the sender of a stream's request is still signed in. The page opens its streams again with each new access
// token, so that they have the user's present groups; other clients keep theirs.
func (a *API) signedIn(r *request) bool {
	in := a.opts.Auth
	return in.Active(r.user) && !in.SignedOut(r.user) && !(fromPage(r.Request) && in.Lapsed(r.user))
}

// lastEventID returns the position of a client that reconnects, or "" for a new one.
func lastEventID(r *request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("last_event_id")
}

// errStreamOver ends a stream whose client has disconnected.
var errStreamOver = errors.New("live stream is over")

// waiting returns a context for the wait until this backend has caught up with a client's position. It ends after
// positionWait, and when the API stops.
func (a *API) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, a.positionWait)
	go func() {
		select {
		case <-a.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// openStream reports whether one more stream may start.
func (a *API) openStream() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	a.streams.Add(1)
	return true
}

// maxUserStreams bounds the live streams of a user, those of all connections together. A tab of the page has six at most.
const maxUserStreams = 300

// beginStream counts one more live stream of the user, until end is called.
func (a *API) beginStream(r *request) (end func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	user := r.user.User
	switch {
	case a.stopped:
		return nil, &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "the backend is stopping"}
	case a.userStreams[user] >= maxUserStreams:
		return nil, &apiError{
			status: http.StatusTooManyRequests, code: codeInternal,
			message: fmt.Sprintf("a user may have %d live streams at once: close other pages", maxUserStreams),
		}
	}
	a.streams.Add(1)
	a.userStreams[user]++
	a.metrics.streams.Inc()
	return func() {
		a.metrics.streams.Dec()
		a.mu.Lock()
		if a.userStreams[user]--; a.userStreams[user] == 0 {
			delete(a.userStreams, user)
		}
		a.mu.Unlock()
		a.streams.Done()
	}, nil
}

// eventStream writes server-sent events.
type eventStream struct {
	api      *API
	w        *response
	control  *http.ResponseController
	gone     <-chan struct{}
	buf      bytes.Buffer
	id       string             // of the last message; the next message carries it
	selector *selector.Selector // nil for all
	shown    map[eventKey]bool  // with a selector: the events that the client has now
	unknown  bool               // with a selector: the client may have more
}

// newEventStream sends the header of the answer.
func newEventStream(a *API, w *response, r *request) *eventStream {
	w.Header().Set("Content-Type", streamType)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx holds events back
	w.WriteHeader(http.StatusOK)
	return &eventStream{api: a, w: w, control: http.NewResponseController(w), gone: r.Context().Done()}
}

// begin brings the client up to date: from its last position, if known, or from the start. now is a position before
// everything in the backlog.
func (s *eventStream) begin(ctx context.Context, namespace, last string, now state.Cursor) error {
	if err := s.flush(); err != nil { // the header, in case there are no events
		return err
	}
	resumed := false
	if last != "" {
		since, err := state.ParseCursor(last)
		if err == nil {
			s.await(ctx, since, now)
			if resumed, err = s.resume(namespace, since); err != nil {
				return err
			}
			if resumed {
				now = now.Latest(since)
			}
		}
		if !resumed {
			s.message("reset", []byte("{}"))
		}
	}
	if !resumed {
		if err := s.current(ctx, namespace); err != nil {
			return err
		}
	}
	s.id = now.String()
	s.message("synced", []byte("{}"))
	return s.flush()
}

// await waits until this backend has folded the log up to a position, but not for long.
func (s *eventStream) await(ctx context.Context, since, now state.Cursor) {
	if len(since) != len(now) {
		return
	}
	ctx, cancel := s.api.waiting(ctx)
	defer cancel()
	for i, seq := range since {
		if err := s.api.opts.State.WaitFolded(ctx, i, seq); err != nil {
			return
		}
	}
}

// resume sends the changes since a client's last position, and reports whether that is known.
func (s *eventStream) resume(namespace string, since state.Cursor) (bool, error) {
	changed, ok := s.api.opts.State.ChangedSince(namespace, since)
	if !ok {
		return false, nil
	}
	s.unknown = true
	for _, u := range changed {
		if err := s.change(eventKey{u.Namespace, u.Entity, u.Check}); err != nil {
			return false, err
		}
	}
	return true, nil
}

// current sends all current events.
func (s *eventStream) current(ctx context.Context, namespace string) error {
	query := state.Query{Namespace: namespace, Selector: s.selector, Limit: eventChunk}
	for {
		page, err := s.api.opts.State.Select(ctx, query)
		if err != nil {
			return err
		}
		for ev, err := range page.Events() {
			if err != nil {
				return err
			}
			if err := s.event(ev); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		if err := s.flush(); err != nil {
			return err
		}
		query.After = page.Next
	}
}

// changes sends the events in the backlog.
func (s *eventStream) changes(b *backlog) error {
	keys, cursor, ended, overflow := b.take()
	if overflow {
		s.api.metrics.overflows.Inc()
		s.message("overflow", []byte("{}"))
		return cmp.Or(s.flush(), errStreamOver)
	}
	for _, k := range keys {
		if err := s.change(k); err != nil {
			return err
		}
	}
	if cursor != nil { // an event without data: clients keep only its id
		s.buf.WriteString("id: " + cursor.String() + "\n\n")
	}
	err := s.flush()
	b.sent()
	if err != nil || !ended {
		return err
	}
	return errStreamOver
}

// change sends the present state of an event.
func (s *eventStream) change(k eventKey) error {
	ev, err := s.api.opts.State.Event(k.namespace, k.entity, k.check)
	if errors.Is(err, state.ErrNotFound) {
		return s.deleted(k)
	}
	if err != nil {
		return err
	}
	if !s.selector.Match(selector.Event(ev)) {
		return s.deleted(k)
	}
	return s.event(ev)
}

// deleted sends the deletion of an event, unless the client has never had it.
func (s *eventStream) deleted(k eventKey) error {
	if s.selector != nil {
		if !s.shown[k] && !s.unknown {
			return nil
		}
		delete(s.shown, k)
	}
	data, err := encode(struct {
		Namespace string `json:"namespace"`
		Entity    string `json:"entity"`
		Check     string `json:"check"`
	}{k.namespace, k.entity, k.check})
	if err != nil {
		return err
	}
	s.message("delete", data)
	return s.flushFull()
}

func (s *eventStream) event(ev *resource.Event) error {
	data, err := encode(ev)
	if err != nil {
		return err
	}
	if s.selector != nil && ev.Entity != nil && ev.Check != nil {
		s.shown[eventKey{ev.Entity.Metadata.Namespace, ev.Entity.Metadata.Name, ev.Check.Metadata.Name}] = true
	}
	s.message("event", data)
	return s.flushFull()
}

// message adds one event. JSON has no line breaks, so its data is one line.
func (s *eventStream) message(name string, data []byte) {
	s.buf.WriteString("event: ")
	s.buf.WriteString(name)
	if s.id != "" {
		s.buf.WriteString("\nid: ")
		s.buf.WriteString(s.id)
		s.id = ""
	}
	s.buf.WriteString("\ndata: ")
	s.buf.Write(data)
	s.buf.WriteString("\n\n")
}

// flushFull sends the buffer when it is large.
func (s *eventStream) flushFull() error {
	if s.buf.Len() < sendAt {
		return nil
	}
	return s.flush()
}

// flush sends the buffer, unless the stream is over.
func (s *eventStream) flush() error {
	select {
	case <-s.gone:
		return errStreamOver
	case <-s.api.stopping:
		return errStreamOver
	default:
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(streamTimeout))
	_, err := s.w.Write(s.buf.Bytes())
	s.buf.Reset()
	if err == nil {
		err = s.control.Flush()
	}
	if err != nil {
		return errStreamOver // treat a client that cannot be written to as disconnected
	}
	return nil
}

// eventKey names an event.
type eventKey struct{ namespace, entity, check string }

// backlog has the events that have changed and that a stream has not yet sent, each once.
type backlog struct {
	limit int
	ready chan struct{} // capacity 1: signals that there is something to take

	mu         sync.Mutex // guards the fields below
	keys       []eventKey
	waiting    map[eventKey]struct{} // the same as a set
	cursor     state.Cursor          // all changes until here are in keys or taken; nil if sent
	told       string                // the last cursor that was taken
	since      time.Time             // when the oldest of keys came
	taken      int                   // number of events that were taken last and are not all sent
	takenSince time.Time             // when the oldest of those came
	overflow   bool
	ended      bool
}

func newBacklog(limit int) *backlog {
	return &backlog{limit: limit, ready: make(chan struct{}, 1), waiting: map[eventKey]struct{}{}}
}

// fill adds the updates of a namespace, or of all for "", until the tail ends or the backlog is full. Regularly it
// notes the position until which the backlog has them all.
func (b *backlog) fill(tail *state.Tail, namespace string, now func() state.Cursor) {
	tick := time.NewTicker(cursorEvery)
	defer tick.Stop()
	for {
		select {
		case u, ok := <-tail.C:
			if !ok {
				b.end(tail.Overflowed())
				return
			}
			if !b.addUpdate(u, namespace) {
				return
			}
		case <-tick.C:
			// Everything folded before this is in the tail by now.
			cursor := now()
			for range len(tail.C) {
				if u, ok := <-tail.C; ok && !b.addUpdate(u, namespace) {
					return
				}
			}
			b.note(cursor)
		}
	}
}

func (b *backlog) addUpdate(u state.Update, namespace string) (room bool) {
	if namespace != "" && u.Namespace != namespace {
		return true
	}
	return b.add(eventKey{u.Namespace, u.Entity, u.Check})
}

// note makes the stream send a position to the client, if it is new.
func (b *backlog) note(c state.Cursor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if text := c.String(); text != b.told {
		b.told, b.cursor = text, c
		b.signal()
	}
}

func (b *backlog) add(k eventKey) (room bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.waiting[k]; ok {
		return true
	}
	if len(b.keys) >= b.limit {
		b.overflow = true
	} else {
		if len(b.keys) == 0 {
			b.since = time.Now()
		}
		b.waiting[k] = struct{}{}
		b.keys = append(b.keys, k)
	}
	b.signal()
	return !b.overflow
}

func (b *backlog) end(overflow bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.overflow = b.overflow || overflow
	b.signal()
}

func (b *backlog) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take empties the backlog.
func (b *backlog) take() (keys []eventKey, cursor state.Cursor, ended, overflow bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys, cursor = b.keys, b.cursor
	b.cursor = nil
	b.taken, b.takenSince = len(keys), b.since
	b.keys = nil
	clear(b.waiting)
	return keys, cursor, b.ended, b.overflow
}

// sent notes that the taken events are on their way to the client.
func (b *backlog) sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = 0
}

// depth returns how many events are not sent, and since when the oldest of them has waited.
func (b *backlog) depth() (n int, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since = b.since
	if b.taken > 0 {
		since = b.takenSince
	}
	return len(b.keys) + b.taken, since
}
