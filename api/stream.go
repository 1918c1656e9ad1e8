package api

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	streamType = "text/event-stream"
	// tailBuffer is how many updates may wait for the goroutine that sorts them into the backlog, which never waits for
	// the client.
	tailBuffer = 4096
	// streamTimeout is how long a client may let the connection be stuck.
	streamTimeout = 10 * time.Second
)

// streamAccess is the right to list events.
var streamAccess = access{resource: "events"}

func (a *API) serveStream() {
	a.route("/api/lapwing/v1/namespaces/{namespace}/events/stream", streamAccess, methods{http.MethodGet: a.streamEvents})
}

// streamEvents sends every current event, then "synced", then every change, as server-sent events. A check that changes
// several times while the client is busy is sent once, as it then is. With a comment every 15 s the client sees that the
// connection lives, and we see that the client may still listen.
func (a *API) streamEvents(w *response, r *request) error {
	if !a.openStream() {
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "the backend is stopping"}
	}
	defer a.streams.Done()
	a.metrics.streams.Inc()
	defer a.metrics.streams.Dec()

	attributes := streamAccess.attributes(r)
	// The tail is open before the current events are read, so that no change falls between the two.
	tail := a.opts.State.Tail(tailBuffer)
	backlog := newBacklog(a.backlog)
	defer a.trackBacklog(backlog, tail)()
	var sorting sync.WaitGroup
	sorting.Go(func() { backlog.fill(tail, attributes.Namespace) })
	defer sorting.Wait()
	defer tail.Close()

	s := &eventStream{api: a, w: w, control: http.NewResponseController(w), gone: r.Context().Done()}
	w.Header().Set("Content-Type", streamType)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	err := s.current(attributes.Namespace)
	beat := time.NewTicker(a.heartbeat)
	defer beat.Stop()
	for err == nil {
		select {
		case <-backlog.ready:
			err = s.changes(backlog)
		case <-beat.C:
			if !a.opts.Auth.Active(r.user) || !a.opts.Auth.Authorize(r.user, attributes) {
				return nil
			}
			s.buf.WriteString(": \n\n")
			err = s.flush()
		case <-s.gone:
			err = errStreamOver
		case <-a.stopping:
			err = errStreamOver
		}
	}
	if errors.Is(err, errStreamOver) {
		return nil
	}
	return err
}

// errStreamOver ends a stream that nobody wants any more.
var errStreamOver = errors.New("live stream is over")

// openStream says whether one more stream may start.
func (a *API) openStream() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	a.streams.Add(1)
	return true
}

// eventStream writes server-sent events.
type eventStream struct {
	api     *API
	w       *response
	control *http.ResponseController
	gone    <-chan struct{}
	buf     bytes.Buffer
}

// current sends all events there are.
func (s *eventStream) current(namespace string) error {
	if err := s.flush(); err != nil { // the header, in case there are none
		return err
	}
	for after := ""; ; {
		events, next, err := s.api.opts.State.Events(namespace, "", after, eventChunk)
		if err != nil {
			return err
		}
		for _, ev := range events {
			if err := s.event(ev); err != nil {
				return err
			}
		}
		if next == "" {
			s.message("synced", []byte("{}"))
			return s.flush()
		}
		if err := s.flush(); err != nil {
			return err
		}
		after = next
	}
}

// changes sends what is in the backlog.
func (s *eventStream) changes(b *backlog) error {
	keys, ended, overflow := b.take()
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
	err := s.flush()
	b.sent()
	if err != nil || !ended {
		return err
	}
	return errStreamOver
}

// change sends what has become of an event.
func (s *eventStream) change(k eventKey) error {
	ev, err := s.api.opts.State.Event(k.namespace, k.entity, k.check)
	if errors.Is(err, state.ErrNotFound) {
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
	if err != nil {
		return err
	}
	return s.event(ev)
}

func (s *eventStream) event(ev *resource.Event) error {
	data, err := encode(ev)
	if err != nil {
		return err
	}
	s.message("event", data)
	return s.flushFull()
}

// message adds one event. JSON has no line breaks, so its data is one line.
func (s *eventStream) message(name string, data []byte) {
	s.buf.WriteString("event: ")
	s.buf.WriteString(name)
	s.buf.WriteString("\ndata: ")
	s.buf.Write(data)
	s.buf.WriteString("\n\n")
}

// flushFull sends what has gathered when it is much.
func (s *eventStream) flushFull() error {
	if s.buf.Len() < sendAt {
		return nil
	}
	return s.flush()
}

// flush sends what has gathered, unless the stream is over.
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
		return errStreamOver // whoever cannot be written to is gone, or as good as
	}
	return nil
}

// eventKey names an event.
type eventKey struct{ namespace, entity, check string }

// backlog is the events that have changed and that a stream has not yet sent, each once.
type backlog struct {
	limit int
	ready chan struct{} // capacity 1: there is something to take

	mu         sync.Mutex // guards the fields below
	keys       []eventKey
	waiting    map[eventKey]struct{} // the same
	since      time.Time             // when the oldest of them came
	taken      int                   // how many were taken last and are not all sent
	takenSince time.Time             // when the oldest of those came
	overflow   bool
	ended      bool
}

func newBacklog(limit int) *backlog {
	return &backlog{limit: limit, ready: make(chan struct{}, 1), waiting: map[eventKey]struct{}{}}
}

// fill adds the updates of a namespace, or of all for "", until the tail ends or the backlog is full.
func (b *backlog) fill(tail *state.Tail, namespace string) {
	for u := range tail.C {
		if namespace != "" && u.Namespace != namespace {
			continue
		}
		if !b.add(eventKey{u.Namespace, u.Entity, u.Check}) {
			return
		}
	}
	b.end(tail.Overflowed())
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
func (b *backlog) take() (keys []eventKey, ended, overflow bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys = b.keys
	b.taken, b.takenSince = len(keys), b.since
	b.keys = nil
	clear(b.waiting)
	return keys, b.ended, b.overflow
}

// sent notes that what was taken is on its way to the client.
func (b *backlog) sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = 0
}

// depth is how many events are not sent, and since when the oldest of them has waited.
func (b *backlog) depth() (n int, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since = b.since
	if b.taken > 0 {
		since = b.takenSince
	}
	return len(b.keys) + b.taken, since
}
