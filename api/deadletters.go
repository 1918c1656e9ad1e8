package api

import (
	"context"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// DeadLetters has the deliveries that failed for good; *handler.Dispatcher implements it. An empty namespace or handler
// means all of them.
type DeadLetters interface {
	// DeadLetters returns up to limit dead letters after the one with id after. If there are more, next is for the next
	// call.
	DeadLetters(namespace, handler, after string, limit int) (letters []delivery.DeadLetter, next string, err error)
	// DeadLetter returns one with its event, or false if there is none.
	DeadLetter(namespace, id string) (*delivery.DeadLetter, bool, error)
	// Redrive delivers the named ones once more, or all of the handler if ids is nil, and returns how many. Unknown ids
	// are skipped.
	Redrive(ctx context.Context, namespace string, ids []string, handler string) (int, error)
	// DeleteDeadLetters deletes dead letters, selected like in Redrive.
	DeleteDeadLetters(ctx context.Context, namespace string, ids []string, handler string) (int, error)
}

const (
	deadLetterPage    = 100
	deadLetterPageMax = 1000
)

// chosen selects dead letters: one of its fields must be set.
type chosen struct {
	IDs     []string `json:"ids"`
	Handler string   `json:"handler"`
	All     bool     `json:"all"`
}

// deadLetterCount is how many dead letters a request changed.
type deadLetterCount struct {
	Count int `json:"count"`
}

func (a *API) serveDeadLetters() {
	const collection = ours + "namespaces/{namespace}/deadletters"
	who := access{resource: "deadletters", long: true} // a long outage leaves many
	id := func(r *request) string { return r.PathValue("id") }
	a.route(collection, who, methods{http.MethodGet: a.listDeadLetters, http.MethodDelete: a.deleteDeadLetters})
	a.route(collection+"/redrive", who, methods{http.MethodPost: a.redriveDeadLetters})
	a.route(collection+"/{id}", access{resource: "deadletters", name: id},
		methods{http.MethodGet: a.getDeadLetter, http.MethodDelete: a.deleteDeadLetter})
}

// inNamespace returns the namespace of a path, "" for all.
func inNamespace(r *request) string {
	if namespace := r.PathValue("namespace"); namespace != allNamespaces {
		return namespace
	}
	return ""
}

// listDeadLetters lists dead letters without their events, of one handler with ?handler=, selected by ?fieldSelector=. With
// a selector, a page may have less than its limit, even nothing.
func (a *API) listDeadLetters(w *response, r *request) error {
	asked, err := fieldsAsked(r, delivery.DeadLetter{})
	if err != nil {
		return err
	}
	now, p := a.opts.Now(), pageOf(r, nil)
	limit := deadLetterPage
	if p.limit > 0 {
		limit = min(p.limit, deadLetterPageMax)
	}
	var letters []delivery.DeadLetter
	var next string
	if a.opts.DeadLetters != nil {
		handler := r.URL.Query().Get("handler")
		if letters, next, err = a.opts.DeadLetters.DeadLetters(inNamespace(r), handler, p.after, limit); err != nil {
			return err
		}
	}
	list := newArray(w, next)
	for i := range letters {
		if !asked.MatchAt(selector.Resource(&letters[i]), now) {
			continue
		}
		if err := list.add(&letters[i]); err != nil {
			return err
		}
	}
	return list.finish()
}

func (a *API) getDeadLetter(w *response, r *request) error {
	if a.opts.DeadLetters == nil {
		return errNotFound
	}
	letter, ok, err := a.opts.DeadLetters.DeadLetter(inNamespace(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	if !ok {
		return errNotFound
	}
	return w.object(letter)
}

func (a *API) deleteDeadLetter(w *response, r *request) error {
	if a.opts.DeadLetters == nil {
		return errNotFound
	}
	n, err := a.opts.DeadLetters.DeleteDeadLetters(r.Context(), inNamespace(r), []string{r.PathValue("id")}, "")
	if err != nil {
		return err
	}
	if n == 0 {
		return errNotFound
	}
	a.audited(r.Context(), r.act, "delete", "deadletters", inNamespace(r), r.PathValue("id"))
	return w.empty(http.StatusNoContent)
}

// deleteDeadLetters deletes the dead letters of ?handler=, or all of the namespace with ?all=true.
func (a *API) deleteDeadLetters(w *response, r *request) error {
	q := r.URL.Query()
	which := chosen{IDs: q["id"], Handler: q.Get("handler"), All: q.Get("all") == "true"}
	return a.withDeadLetters(w, r, "delete", which, DeadLetters.DeleteDeadLetters)
}

// redriveDeadLetters delivers dead letters to their handlers once more.
func (a *API) redriveDeadLetters(w *response, r *request) error {
	var req chosen
	if err := a.decode(w, r, &req); err != nil {
		return err
	}
	return a.withDeadLetters(w, r, "execute", req, DeadLetters.Redrive)
}

func (a *API) withDeadLetters(w *response, r *request, action string, req chosen,
	do func(DeadLetters, context.Context, string, []string, string) (int, error)) error {
	given := 0
	for _, is := range [...]bool{len(req.IDs) > 0, req.Handler != "", req.All} {
		if is {
			given++
		}
	}
	if given != 1 {
		return invalid("one of ids, handler and all is required")
	}
	if len(req.IDs) == 0 {
		req.IDs = nil
	}
	var out deadLetterCount
	if a.opts.DeadLetters != nil {
		w.patient()
		ctx, cancel := patiently(r.Context())
		defer cancel()
		var err error
		out.Count, err = do(a.opts.DeadLetters, ctx, inNamespace(r), req.IDs, req.Handler)
		if out.Count > 0 { // even if others failed
			a.audited(ctx, r.act, action, "deadletters", inNamespace(r), req.Handler)
		}
		if err != nil {
			return err
		}
	}
	return w.object(&out)
}
