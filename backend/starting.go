package backend

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ports are the listeners of a backend. All are bound before anything is read or made: an address in use is known at once,
// and before a first start has made the administrator.
type ports struct {
	api, agents, pprof net.Listener // pprof is nil without
}

func (b *Backend) bind() (err error) {
	agents := net.JoinHostPort(trimBrackets(b.opts.AgentHost), strconv.Itoa(b.opts.AgentPort))
	if b.ports.api, err = b.listen("--api-listen-address", b.opts.APIListenAddress); err != nil {
		return err
	}
	if b.ports.agents, err = b.listen("--agent-host, --agent-port", agents); err != nil {
		return err
	}
	if b.opts.Pprof != "" {
		b.ports.pprof, err = b.listen("--pprof-listen-address", b.opts.Pprof)
	}
	return err
}

// borrowed is a listener for a server that must not close it: Close only ends Accept.
type borrowed struct{ *net.TCPListener }

func (l borrowed) Close() error { return l.SetDeadline(time.Unix(1, 0)) }

// answerStarting has a handler answer at a port until the port is taken over.
func (b *Backend) answerStarting(port net.Listener, config *tls.Config, answer http.Handler) (takeOver func()) {
	tcp := port.(*net.TCPListener) // listen makes no others
	srv := &http.Server{
		Handler: answer, ReadTimeout: 15 * time.Second, WriteTimeout: 15 * time.Second, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	srv.SetKeepAlivesEnabled(false)
	l := net.Listener(borrowed{tcp})
	if config != nil {
		l = tls.NewListener(l, config)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // a port that fails now fails again for the server that takes over
	}()
	takeOver = sync.OnceFunc(func() {
		_ = srv.Close()
		<-done
		_ = tcp.SetDeadline(time.Time{})
	})
	b.push("answers while starting", func() error { takeOver(); return nil })
	return takeOver
}

// agentsWhileStarting tells agents in one line why they cannot connect yet.
func (b *Backend) agentsWhileStarting(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, b.Starting().Error(), http.StatusServiceUnavailable)
}

// say sets what the start is at, and waitsFor what it waits for.
func (b *Backend) say(what string)       { b.waitsFor(errors.New("the backend is starting: " + what)) }
func (b *Backend) waitsFor(reason error) { b.starting.Store(&reason) }

// Starting is what the start of the backend is at or waits for, or was at last.
func (b *Backend) Starting() error { return *b.starting.Load() }

// notForAgents tells agents that come to the API's port where they should go, instead of giving them the web page.
func notForAgents(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			http.Error(w, "this is the API's port of a lapwing backend; agents connect to --agent-port, 8081 if it is not set",
				http.StatusBadRequest)
			return
		}
		api.ServeHTTP(w, r)
	})
}
