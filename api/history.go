package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	historyPage    = 100
	historyPageMax = 10_000
)

// stateChange is a change of a check's state. The changes of a check are its history over days; the history in an event
// has the last 21 results.
type stateChange struct {
	Time     time.Time `json:"time"`     // when the backend received the event
	Executed int64     `json:"executed"` // Unix seconds
	Status   uint32    `json:"status"`
	State    string    `json:"state"` // passing, failing, flapping or deleted
	Silenced bool      `json:"silenced"`
	// Missing says that no result came in time.
	Missing bool   `json:"missing"`
	Output  string `json:"output"` // its beginning
}

func (a *API) serveHistory() {
	item := func(r *request) string { return r.PathValue("entity") + "/" + r.PathValue("check") }
	a.route(ours+"namespaces/{namespace}/events/{entity}/{check}/history", access{resource: "events", name: item, labels: true},
		methods{http.MethodGet: a.listHistory})
}

// listHistory lists the changes of state of a check, newest first, selected by ?since= and until=. It outlives the
// event. A role that is limited by labels reaches it only through the event.
func (a *API) listHistory(w *response, r *request) error {
	if r.permit.Selector() != nil {
		if _, err := a.findEvent(r.act, pathKey(r)); err != nil {
			return err
		}
	}
	q := r.URL.Query()
	since, err := instant(q.Get("since"), a.opts.Now())
	if err != nil {
		return err
	}
	until, err := instant(q.Get("until"), a.opts.Now())
	if err != nil {
		return err
	}
	p := pageOf(r)
	limit := historyPage
	if p.limit > 0 {
		limit = min(p.limit, historyPageMax)
	}
	var before uint64
	if p.after != "" {
		if before, err = strconv.ParseUint(p.after, 10, 64); err != nil {
			return invalid("continue: not a token of this list")
		}
	}
	changes, next, err := a.history(r, since, until, before, limit)
	if err != nil {
		return err
	}
	token := ""
	if next > 0 {
		token = strconv.FormatUint(next, 10)
	}
	list := newArray(w, token)
	for _, c := range changes {
		if err := list.add(viewChange(c)); err != nil {
			return err
		}
	}
	return list.finish()
}

// history reads until a page is full of changes between two times.
func (a *API) history(r *request, since, until time.Time, before uint64, limit int) (page []state.StateChange, next uint64, err error) {
	for {
		changes, more, err := a.opts.State.History(r.PathValue("namespace"), r.PathValue("entity"),
			r.PathValue("check"), before, limit-len(page))
		if err != nil {
			return nil, 0, err
		}
		for _, c := range changes {
			if !since.IsZero() && c.Time.Before(since) {
				return page, 0, nil
			}
			if until.IsZero() || !c.Time.After(until) {
				page = append(page, c)
			}
		}
		if more == 0 || len(page) == limit {
			return page, more, nil
		}
		before = more
	}
}

func viewChange(c state.StateChange) stateChange {
	out := stateChange{
		Time: c.Time.UTC(), Executed: c.Executed, Status: c.Status, State: "failing",
		Silenced: c.Silenced, Missing: c.Missing, Output: c.Output,
	}
	switch {
	case c.Deleted:
		out.State = "deleted"
	case c.Flapping:
		out.State = "flapping"
	case c.Status == 0:
		out.State = "passing"
	}
	return out
}
