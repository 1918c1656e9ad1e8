package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// metricsResource is the resource in roles for the backend's own metrics and for stored ones.
const metricsResource = "metrics"

// StoredMetrics is the store of metrics with its query APIs. The paths of the requests have no prefix: /render is
// Graphite's, /api/v1/query is Prometheus'.
type StoredMetrics interface {
	Graphite(w http.ResponseWriter, r *http.Request, view series.View)
	Prometheus(w http.ResponseWriter, r *http.Request, view series.View)
	// SeriesOf returns the series of a check's points, as Graphite targets.
	SeriesOf(ctx context.Context, namespace, entity, check string) ([]EventSeries, error)
}

// EventSeries is a series of a check's points.
type EventSeries struct {
	Name   string            `json:"name"`
	Tags   map[string]string `json:"tags"`
	Target string            `json:"target"` // for Graphite's render
}

var errNoMetrics = &apiError{status: http.StatusNotFound, code: codeNotFound,
	message: "this backend stores no metrics: start it with --carbon-listen-address, or with --event-metrics"}

// serveStoredMetrics adds the query APIs of stored metrics, as Graphite and Prometheus have them. Users who may get
// metrics see all series, and others the series of events of those namespaces whose events they may list.
func (a *API) serveStoredMetrics() {
	a.route(ours+"graphite/{path...}", access{open: true, reads: true}, methods{
		http.MethodGet:  a.stored("graphite", StoredMetrics.Graphite),
		http.MethodPost: a.stored("graphite", StoredMetrics.Graphite),
	})
	a.route(ours+"prometheus/{path...}", access{open: true, reads: true}, methods{
		http.MethodGet:  a.stored("prometheus", StoredMetrics.Prometheus),
		http.MethodPost: a.stored("prometheus", StoredMetrics.Prometheus),
	})
	item := func(r *request) string { return r.PathValue("entity") + "/" + r.PathValue("check") }
	a.route(ours+"namespaces/{namespace}/events/{entity}/{check}/series", access{resource: "events", name: item, labels: true},
		methods{http.MethodGet: a.seriesOfEvent})
}

// metricWrites are the paths that write: only users who may create metrics use them.
var metricWrites = []string{"api/v1/write", "tags/tagSeries", "tags/tagMultiSeries", "tags/delSeries", "events"}

func (a *API) stored(name string, serve func(StoredMetrics, http.ResponseWriter, *http.Request, series.View)) func(*response, *request) error {
	prefix := strings.TrimSuffix(ours, "/") + "/" + name
	return func(w *response, r *request) error {
		if a.opts.Metrics == nil {
			return errNoMetrics
		}
		path := strings.Trim(r.PathValue("path"), "/")
		view := MetricViewOf(a.opts.Auth, a.opts.Config.Snapshot(), r.user)
		if !view.All && name == "graphite" && (path == "events" || strings.HasPrefix(path, "events/")) {
			return lacks("get", metricsResource) // notes belong to no namespace
		}
		if r.Method == http.MethodPost && slices.Contains(metricWrites, path) && !view.Write {
			return lacks("create", metricsResource)
		}
		http.StripPrefix(prefix, http.HandlerFunc(func(hw http.ResponseWriter, hr *http.Request) {
			serve(a.opts.Metrics, hw, hr, view)
		})).ServeHTTP(w, r.Request)
		return nil
	}
}

// MetricViewOf returns what a user may see of stored metrics: all with the right to get metrics, and otherwise the series of
// events in those namespaces where the user may list all events.
func MetricViewOf(users *auth.Auth, sn *config.Snapshot, id *auth.Identity) series.View {
	view := series.View{
		All:   users.Authorize(id, auth.Attributes{Verb: "get", Resource: metricsResource}),
		Write: users.Authorize(id, auth.Attributes{Verb: "create", Resource: metricsResource}),
	}
	if view.All {
		return view
	}
	for ns := range config.List(sn, config.Namespaces, "") {
		if users.Authorize(id, auth.Attributes{Verb: "list", Resource: "events", Namespace: ns.Name}) {
			view.Namespaces = append(view.Namespaces, ns.Name)
		}
	}
	return view
}

// seriesOfEvent lists the series of an event's check.
func (a *API) seriesOfEvent(w *response, r *request) error {
	key := pathKey(r)
	if _, err := a.findEvent(r.act, key); err != nil {
		return err
	}
	if a.opts.Metrics == nil {
		return errNoMetrics
	}
	found, err := a.opts.Metrics.SeriesOf(r.Context(), key.Namespace, key.Entity, key.Check)
	if err != nil {
		return err
	}
	list := newArray(w, "")
	for i := range found {
		if err := list.add(&found[i]); err != nil {
			return err
		}
	}
	return list.finish()
}
