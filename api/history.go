package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/report"
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
	p := pageOf(r, nil)
	limit := historyPage
	if p.limit > 0 {
		limit = min(p.limit, historyPageMax)
	}
	list := a.history
	if a.inLongHistory(r, p.after, since, until) {
		list = a.postgresHistory
	}
	changes, token, err := list(r, since, until, p.after, limit)
	if err != nil {
		return err
	}
	array := newArray(w, token)
	for _, c := range changes {
		if err := array.add(viewChange(c)); err != nil {
			return err
		}
	}
	return array.finish()
}

// postgresToken begins the tokens of pages from PostgreSQL.
const postgresToken = "p"

// inLongHistory reports whether a list comes from PostgreSQL: it does if the embedded history begins after since and
// PostgreSQL reaches back further. Further pages come from where the first one came from.
func (a *API) inLongHistory(r *request, token string, since, until time.Time) bool {
	if token != "" {
		return strings.HasPrefix(token, postgresToken)
	}
	if since.IsZero() || a.opts.Reports == nil || a.opts.LongHistory == nil || !a.opts.LongHistory.Configured() {
		return false
	}
	begin, err := a.opts.Reports.Begin(r.Context(), r.PathValue("namespace"))
	if err != nil || !since.Before(begin) {
		return false
	}
	if until.IsZero() {
		until = a.opts.Now()
	}
	c := a.opts.LongHistory.Covers(r.Context(), since, until)
	return c.Reason == "" && c.Begin.Before(begin)
}

// postgresHistory reads a page from PostgreSQL.
func (a *API) postgresHistory(
	r *request, since, until time.Time, token string, limit int,
) (page []state.StateChange, next string, err error) {
	before := strings.TrimPrefix(token, postgresToken)
	if a.opts.LongHistory == nil || token == postgresToken {
		return nil, "", invalid("continue: not a token of this list")
	}
	if until.IsZero() {
		until = a.opts.Now().Add(24 * time.Hour)
	}
	page, next, err = a.opts.LongHistory.History(r.Context(), r.PathValue("namespace"), r.PathValue("entity"), r.PathValue("check"),
		since, until, before, limit)
	switch {
	case errors.Is(err, report.ErrPlace):
		return nil, "", invalid("continue: not a token of this list")
	case err != nil:
		return nil, "", fmt.Errorf("read the history of a check: %w", err)
	case next != "":
		next = postgresToken + next
	}
	return page, next, nil
}

// history reads until a page is full of changes between two times.
func (a *API) history(
	r *request, since, until time.Time, token string, limit int,
) (page []state.StateChange, next string, err error) {
	var before uint64
	if token != "" {
		if before, err = strconv.ParseUint(token, 10, 64); err != nil {
			return nil, "", invalid("continue: not a token of this list")
		}
	}
	for {
		changes, more, err := a.opts.State.History(r.PathValue("namespace"), r.PathValue("entity"),
			r.PathValue("check"), before, limit-len(page))
		if err != nil {
			return nil, "", err
		}
		for _, c := range changes {
			if !since.IsZero() && c.Time.Before(since) {
				return page, "", nil
			}
			if until.IsZero() || !c.Time.After(until) {
				page = append(page, c)
			}
		}
		switch {
		case more == 0:
			return page, "", nil
		case len(page) == limit:
			return page, strconv.FormatUint(more, 10), nil
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
