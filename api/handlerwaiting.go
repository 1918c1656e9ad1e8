package api

import (
	"net/http"
	"strconv"

	"github.com/lapwing-monitoring/lapwing/config"
)

const (
	parkedPage    = 20
	parkedPageMax = 200
)

// serveWaiting adds what waits for handlers. Its rights are those of dead letters.
func (a *API) serveWaiting() {
	a.route(ours+"namespaces/{namespace}/waiting", access{resource: "deadletters"}, methods{http.MethodGet: a.listWaiting})
	a.route(ours+"namespaces/{namespace}/waiting/retry", access{resource: "deadletters"},
		methods{http.MethodPost: a.retryWaiting})
}

// toRetry names a handler whose deliveries are to be tried now.
type toRetry struct {
	Handler string `json:"handler"`
}

// retried is how many deliveries a request has made due.
type retried struct {
	Count int `json:"count"`
}

// retryWaiting makes the deliveries of a handler due that wait for their next attempt. A handler that is not defined has
// none: its deliveries would be dropped at their turn.
func (a *API) retryWaiting(w *response, r *request) error {
	var req toRetry
	if err := a.decodeAction(w, r, &req); err != nil {
		return err
	}
	if req.Handler == "" {
		return invalid("handler is required")
	}
	namespace := r.PathValue("namespace")
	if _, ok := config.Get(a.opts.Config.Snapshot(), config.Handlers, namespace, req.Handler); !ok {
		return errNotFound
	}
	var out retried
	if a.opts.RetryWaiting != nil {
		var missing []string
		var err error
		if out.Count, missing, err = a.opts.RetryWaiting(r.Context(), namespace, req.Handler); err != nil {
			return err
		}
		for _, member := range missing {
			w.advise("the backend " + member + " did not answer: what waits there keeps its time")
		}
		if out.Count > 0 {
			a.audited(r.Context(), r.act, "execute", "deadletters", namespace, req.Handler)
		}
	}
	return w.object(&out)
}

// listWaiting lists the handlers for which deliveries wait, with their numbers by class. With ?handler= it lists that
// handler, with its first parked deliveries: ?limit=, 200 at most.
func (a *API) listWaiting(w *response, r *request) error {
	q := r.URL.Query()
	handler, limit := q.Get("handler"), 0
	if handler != "" {
		limit = parkedPage
		if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > 0 {
			limit = min(n, parkedPageMax)
		}
	}
	list := newArray(w, "")
	if a.opts.Waiting == nil {
		return list.finish()
	}
	all, missing, err := a.opts.Waiting(r.Context(), inNamespace(r), handler, limit)
	if err != nil {
		return err
	}
	w.missing(missing)
	for i := range all {
		if err := list.add(&all[i]); err != nil {
			return err
		}
	}
	return list.finish()
}
