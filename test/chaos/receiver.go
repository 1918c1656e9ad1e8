//go:build linux

package main

import (
	"encoding/json"
	"hash/fnv"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// alert is one delivery that the receiver has taken.
type alert struct {
	Handler       string
	Entity, Check string
	N             int64  // the event's number, in the series of its pair
	ID            string // the same for all attempts of one delivery
	At            time.Time
}

func (a *alert) name() string { return a.Entity + "/" + a.Check }

// receiver is the pager of the run: a web server that handlers post to. It refuses some deliveries at first and is slow
// with others, so that some are always unfinished when a fault comes.
type receiver struct {
	server *http.Server
	url    string

	mu      sync.Mutex // guards the fields below
	refused map[string]bool
	alerts  []alert
}

const (
	refuseOneOf = 4
	slowOneOf   = 10
	slowAnswer  = 2 * time.Second
)

func newReceiver(addr string) (*receiver, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String(), refused: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{handler}", r.take)
	r.server = &http.Server{Handler: mux}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

func (r *receiver) take(w http.ResponseWriter, request *http.Request) {
	var ev resource.Event
	if err := json.NewDecoder(request.Body).Decode(&ev); err != nil || ev.Entity == nil || ev.Check == nil {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}
	a := alert{
		Handler: request.PathValue("handler"), Entity: ev.Entity.Metadata.Name, Check: ev.Check.Metadata.Name,
		N: ev.Check.Executed, ID: request.Header.Get("Idempotency-Key"),
	}
	draw := fnv.New32a()
	_, _ = draw.Write([]byte(a.name()))
	switch key := a.name() + a.ID; {
	case draw.Sum32()%refuseOneOf == 0 && r.first(key):
		http.Error(w, "not yet", http.StatusServiceUnavailable)
		return
	case draw.Sum32()%slowOneOf == 1:
		pause(request.Context().Done(), slowAnswer)
	}
	if request.Context().Err() != nil {
		return // the backend has given up: it must come again
	}
	a.At = time.Now()
	r.mu.Lock()
	r.alerts = append(r.alerts, a)
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// first reports whether a delivery comes for the first time.
func (r *receiver) first(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.refused[key]
	r.refused[key] = true
	return first
}

// taken are the deliveries so far.
func (r *receiver) taken() []alert {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.alerts)
}
