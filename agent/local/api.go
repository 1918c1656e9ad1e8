package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxEvent bounds an event, in bytes.
const maxEvent = 4 << 20

func (s *Server) serveAPI(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", s.postEvent)
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"version": s.opts.Version})
	})
	if s.opts.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.opts.Gatherer, promhttp.HandlerOpts{}))
	}
	srv := &http.Server{
		Handler: s.guard(mux), ReadTimeout: 15 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.closers = append(s.closers, srv.Close)
	s.running.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the agent's API failed", "err", err)
		}
	})
}

func (s *Server) postEvent(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, err error) {
		s.metrics.refused.WithLabelValues("api").Inc()
		http.Error(w, err.Error(), status)
	}
	if !s.limit.Allow() {
		w.Header().Set("Retry-After", strconv.Itoa(1))
		refuse(http.StatusTooManyRequests, errors.New("too many events in a second"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	if err != nil {
		status := http.StatusBadRequest
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(status, fmt.Errorf("read event: %w", err))
		return
	}
	var ev resource.Event
	if err := json.Unmarshal(body, &ev); err != nil {
		refuse(http.StatusBadRequest, fmt.Errorf("decode event: %w", err))
		return
	}
	if err := s.prepare(&ev); err != nil {
		refuse(http.StatusBadRequest, err)
		return
	}
	s.opts.Send(&ev)
	s.metrics.events.WithLabelValues("api").Inc()
	w.WriteHeader(http.StatusAccepted)
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if !s.opts.Connected() {
		http.Error(w, "sensu backend unavailable", http.StatusServiceUnavailable) // the text that scripts look for
		return
	}
	_, _ = io.WriteString(w, "ok")
}
