//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	pager = "pager" // the handler of alerts
	// alertTakes is how long the receiver takes for a delivery, so that some are always unfinished.
	alertTakes = 50 * time.Millisecond
	// parkedPrefix is that of the outputs of events whose deliveries are refused until release.
	parkedPrefix = "parked"
)

// receiver is the web server that the handlers post to.
type receiver struct {
	server *http.Server
	url    string

	mu       sync.Mutex // guards the fields below
	refuses  bool
	refused  map[string]bool            // outputs
	came     map[string]time.Time       // by output: when the first delivery came
	times    map[string]int             // by output
	keys     map[string]map[string]bool // by output: idempotency keys
	deadline map[string]time.Time       // by entity: when its missing results were first reported
	alarms   []string                   // about agents
}

func newReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{
		url: "http://" + l.Addr().String(), refused: map[string]bool{}, came: map[string]time.Time{}, times: map[string]int{},
		keys: map[string]map[string]bool{}, deadline: map[string]time.Time{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{handler}", r.take)
	r.server = &http.Server{Handler: mux}
	go func() { _ = r.server.Serve(l) }() // its error is that it was closed
	return r, nil
}

func (r *receiver) take(w http.ResponseWriter, request *http.Request) {
	at := time.Now()
	var ev resource.Event
	if err := json.NewDecoder(request.Body).Decode(&ev); err != nil || ev.Entity == nil || ev.Check == nil {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}
	entity, output := ev.Entity.Metadata.Name, ev.Check.Output
	switch {
	case request.PathValue("handler") != pager:
		r.alarm(fmt.Sprintf("%s %s: %s", at.Format("15:04:05.000"), entity, output))
	case ev.Check.TTL > 0:
		r.missing(entity, at)
	case !r.takes(output):
		http.Error(w, "not yet", http.StatusServiceUnavailable)
		return
	default:
		time.Sleep(alertTakes) // the work of a receiver
		r.note(output, request.Header.Get("Idempotency-Key"), at)
	}
	w.WriteHeader(http.StatusNoContent)
}

// alarm notes an alarm about an agent. It is said at once, beside the loss that may have caused it.
func (r *receiver) alarm(text string) {
	fmt.Fprintln(os.Stderr, "alarm:", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarms = append(r.alarms, text)
}

// alarmed returns how many alarms about agents have come.
func (r *receiver) alarmed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.alarms)
}

func (r *receiver) missing(entity string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline[entity].IsZero() {
		r.deadline[entity] = at
	}
}

// takes reports whether an alert is taken now.
func (r *receiver) takes(output string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses && strings.HasPrefix(output, parkedPrefix) {
		r.refused[output] = true
		return false
	}
	return true
}

func (r *receiver) note(output, key string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.came[output].IsZero() {
		r.came[output], r.keys[output] = at, map[string]bool{}
	}
	r.times[output]++
	r.keys[output][key] = true
}

// refuse begins or ends the refusal of deliveries that are to wait.
func (r *receiver) refuse(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = yes
}

// waiting reports how many deliveries have been refused at least once.
func (r *receiver) waiting(outputs []string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, output := range outputs {
		if r.refused[output] {
			n++
		}
	}
	return n
}

// since returns when the last of several first deliveries came; false if one has not come.
func since(came map[string]time.Time, names []string) (last time.Time, all bool) {
	for _, name := range names {
		at := came[name]
		if at.IsZero() {
			return last, false
		}
		if at.After(last) {
			last = at
		}
	}
	return last, true
}

// allCame is since for alerts, by output.
func (r *receiver) allCame(outputs []string) (last time.Time, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return since(r.came, outputs)
}

// allMissing is since for missing results, by entity.
func (r *receiver) allMissing(entities []string) (last time.Time, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return since(r.deadline, entities)
}

// delivered returns how often the alert of an output came, and under how many keys.
func (r *receiver) delivered(output string) (times, keys int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times[output], len(r.keys[output])
}
