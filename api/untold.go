package api

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/explain"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/view"
)

const (
	// untoldLooked bounds the incidents whose traces are read for an answer, and untoldListed the incidents that it names.
	untoldLooked, untoldListed = 1000, 200
	// untoldFor is how long an answer counts for users with the same rights. All pages ask about the same moment.
	untoldFor = 5 * time.Second
	// openIncidents selects incidents that are neither silenced nor acknowledged.
	openIncidents = "event.is_incident == true && event.is_silenced == false"
)

// untoldAnswer says of how many open incidents no one was told. The newest incidents are looked at, so each number but Open is
// a lower bound if Looked is less than Open.
type untoldAnswer struct {
	Open    int `json:"open"`    // incidents that are neither silenced nor acknowledged
	Looked  int `json:"looked"`  // of how many the traces were read
	Untold  int `json:"untold"`  // no one was told, and nothing is on its way
	Waiting int `json:"waiting"` // no one was told yet
	Unknown int `json:"unknown"` // the traces do not say
	// Events are the newest ones that no one was told about, 200 at most.
	Events []explained `json:"events"`
	// missing has the members whose traces are missing: what they know counts as unknown.
	missing []string
}

// untoldAnswers keeps the newest answer for users who may see all events of a namespace.
type untoldAnswers struct {
	mu  sync.Mutex
	all map[string]*keptUntold // by namespace; "" is all of them
}

type keptUntold struct {
	mu     sync.Mutex // held while the answer is made, so that it is made once
	at     time.Time
	answer *untoldAnswer
}

// of returns the place of a namespace's answer.
func (u *untoldAnswers) of(namespace string) *keptUntold {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil || len(u.all) > maxKeptUntold {
		u.all = map[string]*keptUntold{}
	}
	one := u.all[namespace]
	if one == nil {
		one = &keptUntold{}
		u.all[namespace] = one
	}
	return one
}

// maxKeptUntold bounds the namespaces with a kept answer. Beyond it all are forgotten: they last for seconds anyway.
const maxKeptUntold = 100

func (a *API) serveUntold() {
	if a.opts.Views == nil {
		return
	}
	a.route("/api/lapwing/v1/namespaces/{namespace}/events/untold", streamAccess, methods{http.MethodGet: a.untold})
}

// untold answers of how many open incidents no one was told, and of which.
func (a *API) untold(w *response, r *request) error {
	namespace := streamAccess.attributes(r).Namespace
	mayGet := a.opts.Auth.Permit(r.user, auth.Attributes{Verb: "get", Resource: "events", Namespace: namespace}).Whole()
	if !r.permit.Whole() || !mayGet {
		answer, err := a.findUntold(r, namespace)
		if err != nil {
			return err
		}
		w.lackTraces(answer.missing)
		return w.object(answer)
	}
	kept := a.untolds.of(namespace)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if now := a.opts.Now(); kept.answer == nil || now.Sub(kept.at) > untoldFor || now.Before(kept.at) {
		answer, err := a.findUntold(r, namespace)
		if err != nil {
			return err
		}
		kept.at, kept.answer = now, answer
	}
	w.lackTraces(kept.answer.missing)
	return w.object(kept.answer)
}

// findUntold looks at the newest open incidents that the user may see.
func (a *API) findUntold(r *request, namespace string) (*untoldAnswer, error) {
	keys, open, err := a.openIncidents(r.Context(), r, namespace)
	if err != nil {
		return nil, err
	}
	answer := &untoldAnswer{Open: open, Events: []explained{}}
	for len(keys) > 0 {
		n := min(len(keys), explainedKeys)
		if err := a.addUntold(r, answer, keys[:n]); err != nil {
			return nil, err
		}
		keys = keys[n:]
	}
	return answer, nil
}

// openIncidents returns the keys of the newest open incidents that the user may see, and the number of all of them.
func (a *API) openIncidents(ctx context.Context, r *request, namespace string) (keys []state.Key, open int, err error) {
	sel, err := selector.ParseAll(r.permit.Labels(), []string{openIncidents})
	if err != nil {
		return nil, 0, err
	}
	text, err := encode([]any{openIncidents, r.permit.Labels()})
	if err != nil {
		return nil, 0, err
	}
	order, err := view.ParseOrder("since")
	if err != nil {
		return nil, 0, err
	}
	reader, err := a.openView(&viewRequest{query: view.Query{Namespace: namespace, Selector: sel, Text: string(text), Order: order}})
	if err != nil {
		return nil, 0, err
	}
	defer reader.Close()
	if err := reader.Ready(ctx); err != nil {
		return nil, 0, viewError(err)
	}
	window := reader.Window(view.Range{Limit: untoldLooked}, nil)
	for _, row := range window.Rows {
		keys = append(keys, row.Key)
	}
	return keys, window.Counts.Total(), nil
}

// addUntold adds some incidents to an answer.
func (a *API) addUntold(r *request, answer *untoldAnswer, keys []state.Key) error {
	var seen []state.Key
	var events []*resource.Event
	for _, key := range keys {
		ev, err := a.explainable(r, key)
		if err != nil {
			return err
		}
		if ev != nil {
			seen, events = append(seen, key), append(events, ev)
		}
	}
	briefs, missing, err := a.briefs(r, seen, events)
	if err != nil {
		return err
	}
	for _, member := range missing {
		if !slices.Contains(answer.missing, member) {
			answer.missing = append(answer.missing, member)
		}
	}
	answer.Looked += len(seen)
	for i, key := range seen {
		told := briefs[i].Told
		if told == explain.No && len(missing) > 0 {
			told = explain.Unknown
		}
		switch told {
		case explain.Waiting:
			answer.Waiting++
		case explain.Unknown:
			answer.Unknown++
		case explain.No:
			if answer.Untold++; len(answer.Events) < untoldListed {
				answer.Events = append(answer.Events, explained{eventNames{key.Namespace, key.Entity, key.Check}, briefs[i]})
			}
		}
	}
	return nil
}
