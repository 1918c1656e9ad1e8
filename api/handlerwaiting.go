package api

import (
	"net/http"
	"strconv"
)

const (
	parkedPage    = 20
	parkedPageMax = 200
)

// serveWaiting adds what waits for handlers. It is for those who may see what handlers never took.
func (a *API) serveWaiting() {
	a.route(ours+"namespaces/{namespace}/waiting", access{resource: "deadletters"}, methods{http.MethodGet: a.listWaiting})
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
