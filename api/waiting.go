package api

import (
	"net/http"
	"os"

	"github.com/cespare/xxhash/v2"
)

// Waiting serves in place of the API while the backend starts or cannot start: it answers 503 with the reason at once.
// /health has its usual table, but with 503 too, because programs take a 200 for a backend that serves.
func Waiting(reason func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := &response{ResponseWriter: w}, reason()
		if r.URL.Path != "/health" {
			unavailableAtStart(out, err)
			return
		}
		name, _ := os.Hostname()
		m := Member{ID: xxhash.Sum64String(name), Name: name, Err: err.Error()}
		if err := answerHealth(out, http.StatusServiceUnavailable,
			Health{ClusterID: m.ID, MemberID: m.ID, Members: []Member{m}}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

func unavailableAtStart(w *response, reason error) {
	w.Header().Set("Retry-After", "1")
	w.text(http.StatusServiceUnavailable, "API unavailable during startup.\n"+reason.Error()+"\n")
}
