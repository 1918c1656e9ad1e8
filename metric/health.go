package metric

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// problems returns what the server cannot do at present, in words.
func (s *Server) problems() []string {
	found := []string{}
	if s.store != nil && s.store.Full() {
		found = append(found, "the disk is almost full: points are dropped until there is room again")
	}
	if s.waiting.Load() {
		found = append(found, "no other member is known yet: senders wait")
	}
	if s.loading.Load() {
		found = append(found, "names are being loaded: queries by a pattern find only some series")
	}
	return found
}

// serveHealth answers /health and /ready of the port of queries. Like the backend's, /health is 200 as long as the
// server answers at all, with its state in the body: a restart frees no disk. /ready is 503 if load balancers should
// prefer another server.
func (s *Server) serveHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		problems := s.problems()
		body, err := json.Marshal(struct {
			Healthy  bool     `json:"healthy"`
			Problems []string `json:"problems"`
			Version  string   `json:"version"`
		}{len(problems) == 0, problems, s.opts.Version})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if problems := s.problems(); len(problems) > 0 {
			http.Error(w, "not ready: "+strings.Join(problems, "; "), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
}
