package api

import (
	"context"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
)

// dryRunPath stands before the path of a write that is to be checked and not done. It is a path and not a parameter, so
// that a server that does not know it refuses, and does not write.
const dryRunPath = ours + "dry-run"

// serveDryRun adds the path. Rights, validation and preconditions are those of the write itself, and so is the answer.
func (a *API) serveDryRun() {
	a.mux.Handle(dryRunPath+"/", http.StripPrefix(dryRunPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mux.ServeHTTP(w, r.WithContext(config.WithDryRun(r.Context())))
	})))
}

// dryRunnable returns an error if a dry run of the request is asked for and cannot be had.
func dryRunnable(ctx context.Context, method string, who *access) error {
	if !config.IsDryRun(ctx) {
		return nil
	}
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		if who.dryRun {
			return nil
		}
	case http.MethodDelete:
		if who.dryDelete {
			return nil
		}
	}
	return invalid("there is no dry run of this request: there is one for POST, PUT and PATCH of definitions, for most deletions of one, " +
		"for events with their entity and check in the path, and for redriving and deleting dead letters")
}
