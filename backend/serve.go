package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// listen binds a port until Stop. The error names the address and its flags.
func (b *Backend) listen(flags, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, optionerr.Listen(flags, address, err)
	}
	b.push("port of "+flags, ignoreClosed(l.Close))
	return l, nil
}

// healthOnly answers agents' load balancers at the agents' port; the rest of the API is at the API's port only. It is one of
// the two cycles between parts: the sessions' server hands it requests, and the API, which answers them, is made of the
// sessions. The API is set before the sessions start.
type healthOnly struct{ api http.Handler }

func (h *healthOnly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" || r.URL.Path == "/ready" {
		h.api.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// serveAPI has the API answer at its port.
func (b *Backend) serveAPI(a *api.API) {
	o := b.opts.APIConns
	o.Name, o.Shared, o.Logger, o.Registerer = "api", b.proxies.Trusts, b.log, b.opts.Registry
	answer := b.proxies.Handler(notForAgents(a))
	b.push("api server", b.serve("api", connlimit.New(b.ports.api, o), b.tls.api, answer, b.opts.APIWriteTimeout))
	b.push("live streams", func() error { a.Stop(); return nil })
}

// maxHeaderBytes bounds the header of a request.
const maxHeaderBytes = 64 << 10

// serve runs an HTTP server until stop, which may be called more than once. If it ends by itself, so does the backend.
func (b *Backend) serve(name string, l net.Listener, tlsConfig *tls.Config, h http.Handler,
	writeTimeout time.Duration) (stop func() error) {
	srv := &http.Server{
		Handler: h, ReadTimeout: 15 * time.Second, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeaderBytes, ConnContext: connlimit.Context,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	if tlsConfig != nil {
		l = tls.NewListener(l, tlsConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			b.fail(name+" listener", err)
		}
	}()
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			_ = srv.Close()
		}
		<-done
		return nil
	}
}

func ignoreClosed(f func() error) func() error {
	return func() error {
		if err := f(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// hostname is what agents are told of this backend, as Sensu does.
func hostname(fallback string) string {
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return fallback
}

func trimBrackets(host string) string {
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		return host[1 : n-1]
	}
	return host
}
