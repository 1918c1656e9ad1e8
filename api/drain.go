package api

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	drainTime    = 30 * time.Second // default time for all agents to leave
	maxDrainTime = time.Hour
)

// Drainer sends the agents of this backend to others. *session.Server implements it.
type Drainer interface {
	// Drain disconnects all agents, spread over a time, and refuses new ones.
	Drain(over time.Duration)
	Undrain()
	// Draining returns when the drain began, zero if there is none, its duration, and how many sessions are left.
	Draining() (since time.Time, over time.Duration, sessions int)
}

// noDrainer is the Drainer of an API without agents.
type noDrainer struct{}

func (noDrainer) Drain(time.Duration)                             {}
func (noDrainer) Undrain()                                        {}
func (noDrainer) Draining() (s time.Time, o time.Duration, n int) { return }

// DrainAction is what to do with a drain.
type DrainAction string

// The actions.
const (
	DrainLook  DrainAction = "look"
	DrainBegin DrainAction = "begin"
	DrainEnd   DrainAction = "end"
)

// ActOnDrain does an action with a drain, and returns what the drain is then.
func ActOnDrain(d Drainer, action DrainAction, over time.Duration) resource.Drain {
	switch action {
	case DrainBegin:
		d.Drain(over)
	case DrainEnd:
		d.Undrain()
	}
	since, over, sessions := d.Draining()
	st := resource.Drain{Sessions: sessions}
	if !since.IsZero() {
		st.Draining, st.Since, st.OverSeconds = true, since.Unix(), int64(over/time.Second)
	}
	return st
}

// drainRequest says how to drain.
type drainRequest struct {
	OverSeconds *int64 `json:"over_seconds,omitempty"` // seconds for all agents to leave; default 30
}

// serveDrain adds the path that drains this backend, or the one that ?member= names, for as long as its process lives.
func (a *API) serveDrain() {
	a.route(ours+"drain", access{resource: "cluster", name: func(*request) string { return "drain" }}, methods{
		http.MethodGet: a.drainState, http.MethodPost: a.drain, http.MethodDelete: a.undrain,
	})
}

// actOnDrain does an action with the drain of the backend that a request names.
func (a *API) actOnDrain(r *request, action DrainAction, over time.Duration) (resource.Drain, error) {
	if member := r.URL.Query().Get("member"); member != "" {
		return a.opts.Cluster.Drain(r.Context(), member, action, over)
	}
	return ActOnDrain(a.opts.Drain, action, over), nil
}

func (a *API) drainState(w *response, r *request) error {
	st, err := a.actOnDrain(r, DrainLook, 0)
	if err != nil {
		return err
	}
	return w.object(st)
}

func (a *API) drain(w *response, r *request) error {
	over := drainTime
	var asked drainRequest
	if err := strictly(a.body(w, r), &asked); err != nil && !errors.Is(err, io.EOF) {
		return invalid("%v", err)
	}
	if s := asked.OverSeconds; s != nil {
		if *s < 0 || *s > int64(maxDrainTime/time.Second) {
			return invalid("over_seconds must be from 0 to %d, not %d", int64(maxDrainTime/time.Second), *s)
		}
		over = time.Duration(*s) * time.Second
	}
	st, err := a.actOnDrain(r, DrainBegin, over)
	if err != nil {
		return err
	}
	a.audited(r.Context(), r.act, "create", "cluster", "", drainName(r))
	return w.object(st)
}

func (a *API) undrain(w *response, r *request) error {
	if _, err := a.actOnDrain(r, DrainEnd, 0); err != nil {
		return err
	}
	a.audited(r.Context(), r.act, "delete", "cluster", "", drainName(r))
	return w.empty(http.StatusNoContent)
}

// drainName is a drain's name in the audit log.
func drainName(r *request) string {
	if member := r.URL.Query().Get("member"); member != "" {
		return "drain/" + member
	}
	return "drain"
}
