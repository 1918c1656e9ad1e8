// Package promapi serves the Prometheus HTTP API for the metrics in the store, and receives Prometheus remote write.
//
// Queries run on Prometheus' own engine and on the handlers of its API package, so answers have exactly Prometheus'
// form. The package adds what a shared server needs: only the paths that read series are there, each request sees the
// store through the view that the caller makes for it, the number of requests at a time is bounded, and so are their
// time, texts, samples and listed names.
//
// Remote write (see write.go) is decoded in place and given to the caller's Writer, sample by sample, under the names
// of package promname.
package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Options of an API. Zero values are the defaults.
type Options struct {
	// Queryable returns the series that a request may see. It is required.
	Queryable func(*http.Request) (storage.Queryable, error)
	// Rules returns the rules that a request may see. Without it there are none.
	Rules func(*http.Request) (v1.RulesRetriever, error)
	// Writer returns what takes the samples of a remote write request. Without it, remote write is not there.
	Writer func(*http.Request) (Writer, error)
	// Ready reports whether the store can be asked. Without it, it always can.
	Ready func() error
	// Version is what status/buildinfo tells. The default is "unknown".
	Version string

	// MaxSamples bounds the samples that one query has in memory. The default is 10 million.
	MaxSamples int
	// Timeout bounds a query. The default is 30 s.
	Timeout time.Duration
	// LookbackDelta is how long a sample counts as the newest one of its series. The default is 5 min.
	LookbackDelta time.Duration
	// MaxConcurrent bounds the requests that read at the same time. The default is 10.
	MaxConcurrent int
	// MaxWaiting bounds the requests that wait for others to end. The default is 100.
	MaxWaiting int
	// MaxWait bounds how long a request waits for others to end. The default is 5 s.
	MaxWait time.Duration
	// MaxListed bounds the names, values or series in an answer, also if the request asks for no limit or a higher
	// one. The default is 100,000.
	MaxListed int
	// MaxQueryBytes bounds the text of a query or selector. The default is 64 KiB.
	MaxQueryBytes int
	// MaxFormBytes bounds the body of a request other than remote write. The default is 1 MiB.
	MaxFormBytes int64
	// MaxWriteBytes bounds the body of a remote write request, compressed and not. The default is 32 MiB.
	MaxWriteBytes int64
	// MaxConcurrentWrites bounds the remote write requests at the same time. The default is 8.
	MaxConcurrentWrites int
	// MaxNameBytes bounds the stored name of a series from remote write. The default is 8 KiB.
	MaxNameBytes int
	// RetryAfter is when a sender should try again if the server is busy. The default is 5 s.
	RetryAfter time.Duration

	// Log is required.
	Log *slog.Logger
	// Registerer takes the metrics; nil takes none.
	Registerer prometheus.Registerer
}

func or[T int | int64 | time.Duration](value *T, standard T) {
	if *value == 0 {
		*value = standard
	}
}

func (o *Options) fill() error {
	or(&o.MaxSamples, 10_000_000)
	or(&o.Timeout, 30*time.Second)
	or(&o.LookbackDelta, 5*time.Minute)
	or(&o.MaxConcurrent, 10)
	or(&o.MaxWaiting, 100)
	or(&o.MaxWait, 5*time.Second)
	or(&o.MaxListed, 100_000)
	or(&o.MaxQueryBytes, 64<<10)
	or(&o.MaxFormBytes, 1<<20)
	or(&o.MaxWriteBytes, 32<<20)
	or(&o.MaxConcurrentWrites, 8)
	or(&o.MaxNameBytes, 8<<10)
	or(&o.RetryAfter, 5*time.Second)
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Queryable == nil {
		return errors.New("metric promapi: no Queryable")
	}
	if o.Log == nil {
		return errors.New("metric promapi: no Log")
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MaxSamples", int64(o.MaxSamples)}, {"Timeout", int64(o.Timeout)}, {"LookbackDelta", int64(o.LookbackDelta)},
		{"MaxConcurrent", int64(o.MaxConcurrent)}, {"MaxWaiting", int64(o.MaxWaiting)}, {"MaxWait", int64(o.MaxWait)},
		{"MaxListed", int64(o.MaxListed)}, {"MaxQueryBytes", int64(o.MaxQueryBytes)},
		{"MaxFormBytes", o.MaxFormBytes}, {"MaxWriteBytes", o.MaxWriteBytes},
		{"MaxConcurrentWrites", int64(o.MaxConcurrentWrites)}, {"MaxNameBytes", int64(o.MaxNameBytes)},
		{"RetryAfter", int64(o.RetryAfter)},
	} {
		if n.value < 0 {
			return fmt.Errorf("metric promapi: %s is negative: %d", n.name, n.value)
		}
	}
	return nil
}

// API is an http.Handler. It has no goroutines of its own and needs no Stop.
type API struct {
	o       Options
	engine  *promql.Engine
	slots   chan *slot
	waiting chan struct{}
	writes  chan *writeSlot
	// writeWaiting is as waiting, for remote write.
	writeWaiting chan struct{}
	metrics      metrics
	log          *rarelog.Log
}

// New returns an API.
func New(o Options) (*API, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	a := &API{o: o, metrics: newMetrics(o.Registerer), log: rarelog.New(o.Log),
		slots:   make(chan *slot, o.MaxConcurrent),
		waiting: make(chan struct{}, o.MaxWaiting),
		writes:  make(chan *writeSlot, o.MaxConcurrentWrites), writeWaiting: make(chan struct{}, o.MaxWaiting)}
	for range o.MaxConcurrentWrites {
		a.writes <- &writeSlot{decoder: decoder{maxName: o.MaxNameBytes}}
	}
	a.engine = promql.NewEngine(promql.EngineOpts{
		Logger: o.Log, MaxSamples: o.MaxSamples, Timeout: o.Timeout, LookbackDelta: o.LookbackDelta,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableAtModifier:         true, EnableNegativeOffset: true, EnablePerStepStats: true,
	})
	build := &v1.PrometheusVersion{Version: o.Version, GoVersion: runtime.Version()}
	for range o.MaxConcurrent {
		a.slots <- newSlot(a.engine, build, o.Log, o.LookbackDelta)
	}
	return a, nil
}

// Engine returns the engine of the queries, for rules that run on the same store.
func (a *API) Engine() promql.QueryEngine { return a.engine }

const prefix = "/api/v1/"

// endpoint is a path behind prefix.
type endpoint struct {
	name string
	// form is true if POST with a form is the same as GET.
	form bool
	// query is true if the engine bounds the time of the request.
	query bool
	// listed is true if the answer is a list that the parameter limit bounds.
	listed bool
}

// find returns the endpoint of a path without prefix. Everything else of Prometheus' API is not there: it would change
// the store, read files, or tell about targets that a store of pushed samples does not have.
func find(path string) (endpoint, bool) {
	switch path {
	case "query", "query_range":
		return endpoint{name: path, form: true, query: true}, true
	case "query_exemplars", "format_query", "parse_query":
		return endpoint{name: path, form: true}, true
	case "labels", "series":
		return endpoint{name: path, form: true, listed: true}, true
	case "metadata", "rules", "alerts":
		return endpoint{name: path}, true
	case "status/buildinfo":
		return endpoint{name: "buildinfo"}, true
	}
	if name, ok := strings.CutPrefix(path, "label/"); ok {
		if name, ok = strings.CutSuffix(name, "/values"); ok && name != "" && !strings.Contains(name, "/") {
			return endpoint{name: "label_values", listed: true}, true
		}
	}
	return endpoint{}, false
}

// ServeHTTP serves the paths below /api/v1/ and /-/ready.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/-/ready" {
		a.ready(w)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, prefix)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if path == "write" && a.o.Writer != nil {
		a.write(w, r)
		return
	}
	e, ok := find(path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && (!e.form || r.Method != http.MethodPost) {
		w.Header().Set("Allow", map[bool]string{false: "GET", true: "GET, POST"}[e.form])
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	begin := time.Now()
	sw := &statusWriter{ResponseWriter: w}
	a.read(sw, r, e)
	a.metrics.requests.WithLabelValues(e.name, sw.class()).Inc()
	a.metrics.duration.WithLabelValues(e.name).Observe(time.Since(begin).Seconds())
}

func (a *API) ready(w http.ResponseWriter) {
	if a.o.Ready != nil {
		if err := a.o.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	_, _ = io.WriteString(w, "ready\n")
}

func (a *API) read(w http.ResponseWriter, r *http.Request, e endpoint) {
	if err := a.parse(w, r, e); err != nil {
		status := http.StatusBadRequest
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		respondError(w, status, "bad_data", err)
		return
	}
	s, err := wait(r.Context(), a.slots, a.waiting, a.o.MaxWait)
	if err != nil {
		a.metrics.busy.Inc()
		a.setRetryAfter(w)
		respondError(w, http.StatusServiceUnavailable, "unavailable", err)
		return
	}
	defer func() {
		s.view, s.rules = nil, nil
		a.slots <- s
	}()
	if s.view, err = a.o.Queryable(r); err != nil {
		a.log.Warn("cannot open the store for a request", e.name, "endpoint", e.name, "err", err)
		respondError(w, http.StatusInternalServerError, "internal", err)
		return
	}
	if a.o.Rules != nil && (e.name == "rules" || e.name == "alerts") {
		if s.rules, err = a.o.Rules(r); err != nil {
			a.log.Warn("cannot read the rules for a request", e.name, "endpoint", e.name, "err", err)
			respondError(w, http.StatusInternalServerError, "internal", err)
			return
		}
	}
	if !e.query {
		ctx, cancel := context.WithTimeout(r.Context(), a.o.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	s.handler.ServeHTTP(w, r)
}

// parse reads the form and checks its bounds. After it, the handlers of Prometheus do not read the body any more.
func (a *API) parse(w http.ResponseWriter, r *http.Request, e endpoint) error {
	r.Body = http.MaxBytesReader(w, r.Body, a.o.MaxFormBytes)
	if err := r.ParseForm(); err != nil {
		return fmt.Errorf("read the form: %w", err)
	}
	for _, name := range [...]string{"query", "match[]", "match"} {
		for _, text := range r.Form[name] {
			if len(text) > a.o.MaxQueryBytes {
				return fmt.Errorf("the parameter %q has %d bytes; the server takes %d", name, len(text), a.o.MaxQueryBytes)
			}
		}
	}
	if e.listed {
		limit, err := strconv.Atoi(r.Form.Get("limit"))
		none := r.Form.Get("limit") == "" || err == nil && limit == 0
		if none || err == nil && limit > a.o.MaxListed {
			r.Form.Set("limit", strconv.Itoa(a.o.MaxListed))
		}
	}
	return nil
}

var (
	errBusy = errors.New("too many requests at the same time: try again later")
	errGone = errors.New("the client has gone")
)

// wait takes a free slot. If there is none it waits up to limit, if waiting has room for it.
func wait[S any](ctx context.Context, slots <-chan S, waiting chan struct{}, limit time.Duration) (S, error) {
	var none S
	select {
	case s := <-slots:
		return s, nil
	default:
	}
	select {
	case waiting <- struct{}{}:
		defer func() { <-waiting }()
	default:
		return none, errBusy
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case s := <-slots:
		return s, nil
	case <-timer.C:
		return none, errBusy
	case <-ctx.Done():
		return none, errGone
	}
}

func (a *API) setRetryAfter(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(a.o.RetryAfter.Seconds()))))
}

// respondError writes an error in Prometheus' form.
func respondError(w http.ResponseWriter, status int, kind string, err error) {
	text, _ := json.Marshal(v1Error{"error", kind, err.Error()})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

type v1Error struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
}

// statusWriter remembers the status for the metrics.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) class() string {
	switch {
	case w.status == 0 || w.status < 400:
		return "ok"
	case w.status == http.StatusServiceUnavailable:
		return "busy"
	case w.status < 500:
		return "client_error"
	}
	return "server_error"
}
