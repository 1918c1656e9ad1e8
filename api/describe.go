package api

import (
	"net/http"

	"github.com/lapwing-monitoring/lapwing/api/openapi"
)

// serveDocument adds the description of all these paths, for every user who has signed in.
func (a *API) serveDocument() {
	a.route(ours+"openapi.json", access{open: true}, methods{http.MethodGet: func(w *response, _ *request) error {
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write(openapi.Document)
		return nil
	}})
}
