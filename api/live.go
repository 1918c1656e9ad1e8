package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// livePath carries many live streams over one websocket. A browser opens six HTTP/1.1 connections to a host at most, all its
// tabs together, and a page with several lists would take them all.
//
// The client asks with {"open":7,"path":"/api/lapwing/v1/…/stream?…"}, and gets "7:" and a part of the answer in each message;
// after the last one {"id":7,"status":200}. A refusal has its message there. {"close":7} ends a stream. Each path is
// authorised as if it were asked for alone, with the credentials of the handshake: once these have expired, new streams
// are refused with 401, and the client connects anew.
const livePath = "/api/lapwing/v1/live"

const (
	// maxLiveStreams bounds the streams of a connection.
	maxLiveStreams = 64
	// maxLiveAsk bounds a message of a client, in bytes: the path of a window may name 500 events.
	maxLiveAsk = 128 << 10
	// maxRefusal bounds what is kept of an answer that is no stream, in bytes.
	maxRefusal = 4 << 10
)

func (a *API) serveLive() {
	a.route(livePath, access{open: true}, methods{http.MethodGet: a.live})
}

// liveAsk is a message of a client: it opens a stream or closes one.
type liveAsk struct {
	Open  uint64 `json:"open"`
	Path  string `json:"path"`
	Close uint64 `json:"close"`
}

// liveEnd tells a client that a stream is over.
type liveEnd struct {
	ID      uint64 `json:"id"`
	Status  int    `json:"status"`
	Message string `json:"message,omitempty"`
}

// sameOrigin reports whether a page of this backend made a request, and no other site, as far as its browser says. Scripts
// cannot set these headers.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && origin.Host == r.Host
}

// live serves a connection until its client or the backend ends it.
func (a *API) live(w *response, r *request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return invalid("this path is a websocket: the header Upgrade must be websocket")
	}
	if !a.openStream() {
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "the backend is stopping"}
	}
	defer a.streams.Done()
	conn, ahead, err := wire.Accept(w.ResponseWriter, r.Request, nil)
	w.status = http.StatusSwitchingProtocols // a refused handshake has been answered, too
	if err != nil {
		return nil
	}
	l := &liveConn{api: a, request: r.Request, streams: map[uint64]context.CancelFunc{}}
	l.conn = wire.NewServerConn(conn, ahead, maxLiveAsk)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	l.serve(ctx)
	cancel()
	l.running.Wait()
	return nil
}

// liveConn is a websocket with its streams.
type liveConn struct {
	api     *API
	request *http.Request // the handshake
	conn    *wire.Conn
	running sync.WaitGroup

	mu      sync.Mutex
	streams map[uint64]context.CancelFunc
}

// serve opens and closes streams as the client asks, until the connection or the backend ends.
func (l *liveConn) serve(ctx context.Context) {
	over := make(chan struct{})
	defer close(over)
	l.running.Go(func() {
		beat := time.NewTicker(l.api.heartbeat)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				if l.conn.WriteText([]byte("{}")) != nil { // shows the client that the backend lives
					l.conn.Close(wire.CloseGoingAway, "bye")
					return
				}
			case <-l.api.stopping:
				l.conn.Close(wire.CloseGoingAway, "bye")
				return
			case <-over:
				return
			}
		}
	})
	for {
		message, err := l.conn.Read()
		if err != nil {
			l.conn.Close(wire.CloseGoingAway, "bye")
			return
		}
		var ask liveAsk
		if err := json.Unmarshal(message, &ask); err != nil {
			l.conn.Close(wire.CloseProtocol, "a message must be JSON with open and path, or close")
			return
		}
		switch {
		case ask.Close != 0:
			l.close(ask.Close)
		case ask.Open != 0:
			l.open(ctx, &ask)
		}
	}
}

func (l *liveConn) close(id uint64) {
	l.mu.Lock()
	cancel := l.streams[id]
	l.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// open begins a stream, or tells the client why not.
func (l *liveConn) open(ctx context.Context, ask *liveAsk) {
	at, err := url.Parse(ask.Path)
	if err != nil || at.Host != "" || !strings.HasPrefix(at.Path, "/api/lapwing/v1/namespaces/") || !strings.HasSuffix(at.Path, "/stream") {
		l.end(&liveEnd{ask.Open, http.StatusBadRequest, fmt.Sprintf("%.200q is no path of a stream", ask.Path)})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	_, double := l.streams[ask.Open]
	full := len(l.streams) >= maxLiveStreams
	if !double && !full {
		l.streams[ask.Open] = cancel
	}
	l.mu.Unlock()
	switch {
	case double:
		cancel()
		l.conn.Close(wire.CloseProtocol, "a stream has the number of one that is open")
		return
	case full:
		cancel()
		l.end(&liveEnd{ask.Open, http.StatusServiceUnavailable, fmt.Sprintf("a connection may have %d streams", maxLiveStreams)})
		return
	}
	r := l.request.Clone(ctx)
	r.URL, r.RequestURI, r.Header = at, ask.Path, maps.Clone(l.request.Header)
	if fromPage(l.request) {
		r.Header.Set(pageHeader, "1") // the page cannot set it for a websocket
	}
	l.running.Go(func() {
		w := &liveWriter{conn: l.conn, prefix: fmt.Appendf(nil, "%d:", ask.Open), header: http.Header{}}
		l.answer(w, r)
		cancel()
		l.mu.Lock()
		delete(l.streams, ask.Open)
		l.mu.Unlock()
		l.end(&liveEnd{ask.Open, w.status, w.refusal()})
	})
}

// answer runs a stream. A handler that cannot go on after a part of its answer panics with http.ErrAbortHandler, as net/http has it;
// the client then asks again.
func (l *liveConn) answer(w *liveWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			panic(v)
		}
	}()
	l.api.ServeHTTP(w, r)
}

func (l *liveConn) end(end *liveEnd) {
	data, err := json.Marshal(end)
	if err == nil {
		err = l.conn.WriteText(data)
	}
	if err != nil {
		l.conn.Close(wire.CloseGoingAway, "bye")
	}
}

// liveWriter sends the answer of a stream in messages, one for each write. An answer that is no stream is kept for the end.
type liveWriter struct {
	conn   *wire.Conn
	prefix []byte
	header http.Header
	status int
	kept   []byte
}

func (w *liveWriter) Header() http.Header { return w.header }

func (w *liveWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *liveWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.status != http.StatusOK {
		w.kept = append(w.kept, b[:min(len(b), maxRefusal-len(w.kept))]...)
		return len(b), nil
	}
	if len(b) == 0 {
		return 0, nil
	}
	if err := w.conn.WriteText(append(w.prefix[:len(w.prefix):len(w.prefix)], b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// FlushError and SetWriteDeadline are for http.ResponseController: each write is sent at once, and wire.Conn bounds its time.
func (w *liveWriter) FlushError() error { return nil }

func (w *liveWriter) SetWriteDeadline(time.Time) error { return nil }

// refusal is the message of an answer that is no stream.
func (w *liveWriter) refusal() string {
	var refused struct {
		Message string `json:"message"`
	}
	if w.status == http.StatusOK || json.Unmarshal(w.kept, &refused) != nil {
		return ""
	}
	return refused.Message
}
