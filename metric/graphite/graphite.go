// Package graphite serves the HTTP API of graphite-web 1.1: finding series, rendering them, tags, functions and events.
// Grafana's data source, graphite-web's own clusters and scripts call it.
//
// An API reads through the Source that its options make for each request, so that the caller decides which series a
// user may see. It promises the shapes, formats and status codes of graphite-web; where graphite-web crashes, the
// answer is 400 with the reason. It limits how many queries run at once and for how long. It serves no pages for
// people, and it checks no passwords.
package graphite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/metric/render"
)

// Node is a node in the tree of names. One that is both a leaf and a branch is listed as both.
type Node struct {
	// Path is the full name, with dots.
	Path string
	// Leaf is set if Path is a series, Branch if longer names begin with Path and a dot.
	Leaf, Branch bool
	// Start and End are the range of a leaf's values, in Unix seconds. 0 is unknown.
	Start, End int64
}

// TagValue is a value of a tag, and the number of series that have it.
type TagValue struct {
	Value string
	Count int
}

// Source is the store as a request may see it. An error that has a method BadRequest() bool that returns true is
// answered with 400 and its text, a StatusError with its own status, and all others with 500.
type Source interface {
	render.Source
	// Nodes returns the nodes that match a glob pattern, sorted by path.
	Nodes(ctx context.Context, pattern string) ([]Node, error)
	// All calls f with the name of each series, sorted, until f returns false.
	All(ctx context.Context, f func(name string) bool) error
	// Tags returns the tags that match a regular expression at their start, sorted. A limit of 0 is none.
	Tags(ctx context.Context, filter string, limit int) ([]string, error)
	// TagValues returns the values of a tag that match a regular expression at their start, sorted. A limit of 0 is none.
	TagValues(ctx context.Context, tag, filter string, limit int) ([]TagValue, error)
	// AutoCompleteTags returns the tags with a prefix of the series that match exprs, without the tags in exprs, sorted.
	AutoCompleteTags(ctx context.Context, exprs []string, prefix string, limit int) ([]string, error)
	// AutoCompleteValues returns the values with a prefix of a tag of the series that match exprs, sorted.
	AutoCompleteValues(ctx context.Context, exprs []string, tag, prefix string, limit int) ([]string, error)
	// TagSeries makes a tagged series known and returns its canonical name.
	TagSeries(ctx context.Context, path string) (string, error)
	// DeleteSeries forgets series.
	DeleteSeries(ctx context.Context, paths []string) error
}

// MetadataSource is a Source that knows facts about series. Without it /metrics/get-metadata is not found.
type MetadataSource interface {
	// Metadata returns a fact about a series: a text, a number or a boolean. graphite-web knows the key aggregationMethod.
	Metadata(ctx context.Context, metric, key string) (any, error)
}

// StatusError is an error with the HTTP status and the text of its answer.
type StatusError struct {
	Status  int
	Message string
}

func (e *StatusError) Error() string { return e.Message }

func badRequest(format string, args ...any) error {
	return &StatusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

var (
	errTooSlow  = errors.New("the query took too long")
	errNotFound = &StatusError{http.StatusNotFound, "not found"}
)

// Options configure an API.
type Options struct {
	// Source makes the view of a request. Required.
	Source func(*http.Request) (Source, error)
	// MayWrite says why a request must not change anything; nil says that it may. It is asked before a series is tagged or
	// deleted and before an event is added. Default: all requests may.
	MayWrite func(*http.Request) error
	// Events keeps events. Without it /events is not found.
	Events EventStore
	// SeesEvents reports whether a request may read the events: they are not part of a Source. Others find none. Default:
	// all requests may.
	SeesEvents func(*http.Request) bool
	// QueryTimeout bounds one query. Default: 30 s.
	QueryTimeout time.Duration
	// MaxConcurrent bounds the queries that run at once, with the writing of their answers. Default: 2 for each CPU.
	MaxConcurrent int
	// QueueTimeout is how long a query waits for one of those places. Default: 2 s.
	QueueTimeout time.Duration
	// MaxSeries and MaxPoints bound what one render request may fetch. Default: those of metric/render.
	MaxSeries int
	MaxPoints int64
	// MaxRequestBytes bounds the body of a request. Default: 1 MiB.
	MaxRequestBytes int64
	// DisableJSONP refuses the parameter jsonp. Set it where browsers sign in with cookies: pages of other sites can read
	// such answers.
	DisableJSONP bool
	// Location is the time zone of requests without tz. Default: UTC.
	Location *time.Location
	// Version is the version of graphite-web that clients see. Grafana offers tags and functions from 1.1 on.
	// Default: 1.1.10.
	Version string
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger. Default: none.
	Logger *slog.Logger
	// Registerer for the metrics. Default: none. Two APIs with one registerer share their metrics.
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() error {
	if o.Source == nil {
		return errors.New("metric/graphite: Source is missing")
	}
	if o.QueryTimeout < 0 || o.QueueTimeout < 0 || o.MaxConcurrent < 0 || o.MaxRequestBytes < 0 ||
		o.MaxSeries < 0 || o.MaxPoints < 0 {
		return errors.New("metric/graphite: the timeouts and limits must not be negative")
	}
	if o.QueryTimeout == 0 {
		o.QueryTimeout = 30 * time.Second
	}
	if o.QueueTimeout == 0 {
		o.QueueTimeout = 2 * time.Second
	}
	if o.MaxConcurrent == 0 {
		o.MaxConcurrent = 2 * runtime.GOMAXPROCS(0)
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = 1 << 20
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	if o.Version == "" {
		o.Version = "1.1.10"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// API is an http.Handler. It starts no goroutine that outlives a request.
type API struct {
	opts    Options
	log     *rarelog.Log
	metrics *metrics
	// places has a token for each query that runs.
	places chan struct{}
}

// New returns an API. It serves paths below the root, so a caller that mounts it elsewhere strips the prefix.
func New(opts Options) (*API, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	a := &API{opts: opts, log: rarelog.New(opts.Logger), places: make(chan struct{}, opts.MaxConcurrent)}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, err
	}
	a.metrics = m
	return a, nil
}

// endpoint is a row of the routing table.
type endpoint struct {
	name string
	run  func(*call) error
	// query is set if the endpoint reads the store: it takes a place among the queries that run at once.
	query bool
	// write is set if the endpoint changes something. Only POST may.
	write bool
	// get is set if only GET is allowed, as graphite-web has it.
	get bool
	// ownBody is set if the body is no form, whatever its Content-Type says.
	ownBody bool
	// jsonErrors is set if errors are answered as {"error": …} instead of as text.
	jsonErrors bool
}

// route returns the endpoint of a path without a slash at its end, and the last part of the path if it is a parameter.
func (a *API) route(path, method string) (endpoint, string) {
	switch path {
	case "":
		return endpoint{name: "root", run: a.root}, ""
	case "/metrics/find", "/metrics":
		return endpoint{name: "find", run: a.find, query: true}, ""
	case "/metrics/expand":
		return endpoint{name: "expand", run: a.expand, query: true}, ""
	case "/metrics/index.json":
		return endpoint{name: "index", run: a.index, query: true}, ""
	case "/metrics/get-metadata":
		return endpoint{name: "metadata", run: a.metadata, query: true}, ""
	case "/render":
		return endpoint{name: "render", run: a.render, query: true}, ""
	case "/version":
		return endpoint{name: "version", run: a.version}, ""
	case "/functions":
		return endpoint{name: "functions", run: a.functions, get: true, jsonErrors: true}, ""
	case "/tags":
		return endpoint{name: "tags", run: a.tags, query: true, get: true, jsonErrors: true}, ""
	case "/tags/tagSeries":
		return endpoint{name: "tag_series", run: a.tagSeries, write: true, jsonErrors: true}, ""
	case "/tags/tagMultiSeries":
		return endpoint{name: "tag_series", run: a.tagMultiSeries, write: true, jsonErrors: true}, ""
	case "/tags/delSeries":
		return endpoint{name: "delete_series", run: a.delSeries, write: true, jsonErrors: true}, ""
	case "/tags/findSeries":
		return endpoint{name: "find_series", run: a.findSeries, query: true, jsonErrors: true}, ""
	case "/tags/autoComplete/tags":
		return endpoint{name: "complete", run: a.completeTags, query: true, jsonErrors: true}, ""
	case "/tags/autoComplete/values":
		return endpoint{name: "complete", run: a.completeValues, query: true, jsonErrors: true}, ""
	case "/events":
		if method == http.MethodPost {
			return endpoint{name: "add_event", run: a.addEvent, write: true, ownBody: true, jsonErrors: true}, ""
		}
		return endpoint{name: "events", run: a.eventData, jsonErrors: true}, ""
	case "/events/get_data":
		return endpoint{name: "events", run: a.eventData, jsonErrors: true}, ""
	}
	if tag, ok := strings.CutPrefix(path, "/tags/"); ok {
		return endpoint{name: "tag", run: a.tagDetails, query: true, get: true, jsonErrors: true}, tag
	}
	if name, ok := strings.CutPrefix(path, "/functions/"); ok {
		return endpoint{name: "functions", run: a.function, get: true, jsonErrors: true}, name
	}
	if id, ok := strings.CutPrefix(path, "/events/"); ok {
		return endpoint{name: "event", run: a.event, get: true, jsonErrors: true}, id
	}
	return endpoint{name: "other", run: func(*call) error { return errNotFound }}, ""
}

// call is a request while it is answered.
type call struct {
	ctx context.Context
	w   *answer
	r   *http.Request
	params
	// name is the last part of the path, of the endpoints that have a parameter there.
	name string
	// src is nil for endpoints that neither read nor change the store.
	src Source
}

func (a *API) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	start := time.Now()
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path != "" && path[0] != '/' {
		path = "/" + path
	}
	e, name := a.route(path, r.Method)
	w := newAnswer(rw, r)
	err := a.serve(w, r, e, name)
	if err != nil {
		a.fail(w, r, e, err)
	}
	w.finish()
	a.metrics.requests.WithLabelValues(e.name, resultOf(w.status)).Inc()
	a.metrics.seconds.WithLabelValues(e.name).Observe(time.Since(start).Seconds())
}

func (a *API) serve(w *answer, r *http.Request, e endpoint, name string) error {
	if err := checkMethod(w, r.Method, e); err != nil {
		return err
	}
	p := params{}
	if err := p.parse(r.URL.RawQuery); err != nil {
		return err
	}
	if !e.ownBody {
		if err := p.readForm(w.to, r, a.opts.MaxRequestBytes); err != nil {
			return err
		}
	}
	if err := a.checkJSONP(p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), a.opts.QueryTimeout, errTooSlow)
	defer cancel()
	c := &call{ctx: ctx, w: w, r: r, params: p, name: name}
	if e.write && a.opts.MayWrite != nil {
		if err := a.opts.MayWrite(r); err != nil {
			return err
		}
	}
	if !e.query && !e.write {
		return e.run(c)
	}
	var err error
	if c.src, err = a.opts.Source(r); err != nil {
		return err
	}
	if e.query {
		leave, err := a.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	// A client that reads slowly must not hold its place forever. Writers without deadlines, as in tests, refuse this.
	_ = http.NewResponseController(w.to).SetWriteDeadline(time.Now().Add(2 * a.opts.QueryTimeout))
	return e.run(c)
}

func checkMethod(w *answer, method string, e endpoint) error {
	allowed := "GET, HEAD, POST"
	ok := method == http.MethodGet || method == http.MethodHead || method == http.MethodPost
	if e.write {
		allowed, ok = "POST", method == http.MethodPost
	} else if e.get {
		allowed, ok = "GET, HEAD", ok && method != http.MethodPost
	}
	if ok {
		return nil
	}
	w.Header().Set("Allow", allowed)
	return &StatusError{http.StatusMethodNotAllowed, "this address takes " + allowed}
}

// maxCallback bounds the name in the parameter jsonp.
const maxCallback = 128

// checkJSONP refuses a callback that is no name: the answer begins with it, and a browser runs the answer.
func (a *API) checkJSONP(p params) error {
	name := p.get("jsonp")
	if name == "" {
		return nil
	}
	if a.opts.DisableJSONP {
		return badRequest("parameter jsonp: not allowed here")
	}
	if len(name) > maxCallback {
		return badRequest("parameter jsonp: the name is longer than %d bytes", maxCallback)
	}
	for i := range len(name) {
		if c := name[i]; !isHex(c) && !(c >= 'g' && c <= 'z' || c >= 'G' && c <= 'Z') &&
			!strings.ContainsRune("_$.[]", rune(c)) {
			return badRequest("parameter jsonp: %q is no name of a function", name)
		}
	}
	return nil
}

// enter takes a place among the queries that run at once, and returns the function that gives it back.
func (a *API) enter(ctx context.Context) (func(), error) {
	select {
	case a.places <- struct{}{}:
	default:
		wait := time.NewTimer(a.opts.QueueTimeout)
		defer wait.Stop()
		select {
		case a.places <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wait.C:
			a.metrics.refused.Inc()
			return nil, &StatusError{http.StatusServiceUnavailable,
				fmt.Sprintf("%d queries run already: try again", a.opts.MaxConcurrent)}
		}
	}
	a.metrics.running.Inc()
	return func() {
		<-a.places
		a.metrics.running.Dec()
	}, nil
}

// statusClientGone is nginx's code for a client that left before the answer. Only metrics show it.
const statusClientGone = 499

// fail answers an error, unless a part of the answer is already written.
func (a *API) fail(w *answer, r *http.Request, e endpoint, err error) {
	var status *StatusError
	var bad interface{ BadRequest() bool }
	var argument *render.ArgumentError
	var parse *render.ParseError
	var limit *render.LimitError
	code, text := http.StatusInternalServerError, "the query failed; the server's log says why"
	switch {
	case r.Context().Err() != nil:
		w.status = statusClientGone
		return
	case errors.As(err, &status):
		code, text = status.Status, status.Message
	case errors.As(err, &argument), errors.As(err, &parse), errors.As(err, &limit), errors.As(err, &bad) &&
		bad.BadRequest():
		code, text = http.StatusBadRequest, err.Error()
	case errors.Is(err, errTooSlow) || errors.Is(err, context.DeadlineExceeded):
		a.metrics.timedOut.Inc()
		code = http.StatusGatewayTimeout
		text = fmt.Sprintf("the query took longer than %v: narrow the pattern or the range", a.opts.QueryTimeout)
	default:
		a.log.Error("a Graphite query failed", e.name, "endpoint", e.name, "err", err)
	}
	if w.started {
		// The answer is cut off. Closing the connection is the only way to say so.
		panic(http.ErrAbortHandler)
	}
	w.reset()
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	if code == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	if e.jsonErrors && code != http.StatusMethodNotAllowed {
		h.Set("Content-Type", "application/json")
		w.WriteHeader(code)
		j := &jsonWriter{w: w, ascii: true}
		j.open('{')
		j.textField("error", text)
		j.close('}')
		j.flush()
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text)
}

func (a *API) root(c *call) error {
	return c.plain("This is the Graphite API: /render, /metrics/find, /metrics/expand, /metrics/index.json, /tags, " +
		"/functions, /events, /version.\n")
}

func (a *API) version(c *call) error { return c.plain(a.opts.Version + "\n") }

func (c *call) plain(text string) error {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := c.w.Write([]byte(text))
	return err
}

// json answers with the JSON that write makes, in the callback of the parameter jsonp if there is one. With ascii all
// other characters are escaped.
func (c *call) json(ascii bool, write func(*jsonWriter) error) error {
	kind := "application/json"
	callback := c.get("jsonp")
	if callback != "" {
		kind = "text/javascript"
	}
	if !ascii {
		kind += ";charset=utf-8"
	}
	c.w.Header().Set("Content-Type", kind)
	j := &jsonWriter{w: c.w, ascii: ascii, pretty: c.get("pretty") != ""}
	if callback != "" {
		j.buf = append(append(j.buf, callback...), '(')
	}
	if err := write(j); err != nil {
		return err
	}
	if callback != "" {
		j.buf = append(j.buf, ')')
	}
	j.flush()
	return j.err
}

// names answers with a list of texts.
func (c *call) names(ascii bool, list []string) error {
	return c.json(ascii, func(j *jsonWriter) error {
		j.texts(list)
		return nil
	})
}

func (j *jsonWriter) texts(list []string) {
	j.open('[')
	for _, s := range list {
		j.text(s)
	}
	j.close(']')
}

// ascii tells whether find, expand and index escape other than ASCII characters: if Accept is missing or exactly
// application/json.
func (c *call) ascii() bool {
	accept := c.r.Header.Get("Accept")
	return accept == "" || accept == "application/json"
}

func (c *call) noCache() {
	c.w.Header().Set("Cache-Control", "no-cache")
	c.w.Header().Set("Pragma", "no-cache")
}
