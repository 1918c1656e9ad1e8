package api

import (
	"context"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
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
	// Redrive queues dead letters for their handlers once more. Unknown ids are skipped.
	Redrive(ctx context.Context, choice delivery.Redrive) (delivery.Redriven, error)
	// DeleteDeadLetters deletes the named ones, or all of the handler if ids is nil, and returns how many. Unknown ids are
	// skipped.
	DeleteDeadLetters(ctx context.Context, namespace string, ids []string, handler string) (int, error)
	// CountDeadLetters returns how many DeleteDeadLetters would delete, and the first of them without their events.
	CountDeadLetters(ctx context.Context, namespace string, ids []string, handler string) (int, []delivery.DeadLetter, error)
}

const (
	deadLetterPage    = 100
	deadLetterPageMax = 1000
)

// chosen selects dead letters: one of ids, handler and all must be set.
type chosen struct {
	IDs     []string `json:"ids"`
	Handler string   `json:"handler"`
	All     bool     `json:"all"`
	// FailingOnly, of a redrive, leaves out what passed counts.
	FailingOnly bool `json:"failing_only"`
	// Newest, of a redrive, leaves out older letters of the same entity, check and handler.
	Newest bool `json:"newest"`
}

// deadLetterCount is how many dead letters a request changed, or would in a dry run.
type deadLetterCount struct {
	Count int `json:"count"`
	// Letters has the first of those that a dry run counts, without their events.
	Letters []delivery.DeadLetter `json:"letters,omitempty"`
}

func (a *API) serveDeadLetters() {
	const collection = ours + "namespaces/{namespace}/deadletters"
	who := access{resource: "deadletters", long: true, dryDelete: true} // a long outage leaves many
	id := func(r *request) string { return r.PathValue("id") }
	a.route(collection, who, methods{http.MethodGet: a.listDeadLetters, http.MethodDelete: a.deleteDeadLetters})
	a.route(collection+"/redrive", access{resource: "deadletters", long: true, dryRun: true}, methods{http.MethodPost: a.redriveDeadLetters})
	a.route(collection+"/{id}", access{resource: "deadletters", name: id, dryDelete: true},
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
	done, err := a.dropDeadLetters(r.Context(), r, []string{r.PathValue("id")}, "", r.PathValue("id"))
	if err != nil {
		return err
	}
	if done.Count == 0 {
		return errNotFound
	}
	return w.empty(http.StatusNoContent)
}

// dropDeadLetters deletes dead letters, or counts them in a dry run. The audit log names them.
func (a *API) dropDeadLetters(ctx context.Context, r *request, ids []string, handler, name string) (done deadLetterCount, err error) {
	if config.IsDryRun(ctx) {
		done.Count, done.Letters, err = a.opts.DeadLetters.CountDeadLetters(ctx, inNamespace(r), ids, handler)
		done.Letters = a.shownLetters(r, done.Letters)
		return done, err
	}
	done.Count, err = a.opts.DeadLetters.DeleteDeadLetters(ctx, inNamespace(r), ids, handler)
	if done.Count > 0 { // even if others failed
		a.audited(ctx, r.act, "delete", "deadletters", inNamespace(r), name)
	}
	return done, err
}

// shownLetters returns the letters of a dry run if the user may list them: other users may delete or send them, and only
// get their number.
func (a *API) shownLetters(r *request, letters []delivery.DeadLetter) []delivery.DeadLetter {
	if !a.mayList(r.user, "deadletters", inNamespace(r)) {
		return nil
	}
	return letters
}

// deleteDeadLetters deletes the dead letters of ?handler=, or all of the namespace with ?all=true. A dry run tells what that
// would do.
func (a *API) deleteDeadLetters(w *response, r *request) error {
	q := r.URL.Query()
	which := chosen{IDs: q["id"], Handler: q.Get("handler"), All: q.Get("all") == "true"}
	if err := which.check(); err != nil {
		return err
	}
	var out deadLetterCount
	if a.opts.DeadLetters != nil {
		w.patient()
		ctx, cancel := patiently(r.Context())
		defer cancel()
		var err error
		if out, err = a.dropDeadLetters(ctx, r, which.IDs, which.Handler, which.Handler); err != nil {
			return err
		}
	}
	return w.object(&out)
}

// redriveDeadLetters queues dead letters for their handlers once more. A dry run tells what that would do.
func (a *API) redriveDeadLetters(w *response, r *request) error {
	var req chosen
	if err := a.decodeAction(w, r, &req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	var out delivery.Redriven
	if a.opts.DeadLetters != nil {
		w.patient()
		ctx, cancel := patiently(r.Context())
		defer cancel()
		choice := delivery.Redrive{
			Namespace: inNamespace(r), IDs: req.IDs, Handler: req.Handler, FailingOnly: req.FailingOnly, Newest: req.Newest,
			DryRun: config.IsDryRun(ctx),
		}
		var err error
		out, err = a.opts.DeadLetters.Redrive(ctx, choice)
		if out.Count > 0 && !choice.DryRun { // even if others failed
			a.audited(ctx, r.act, "execute", "deadletters", inNamespace(r), req.Handler)
		}
		if err != nil {
			return err
		}
		out.Letters = a.shownLetters(r, out.Letters)
	}
	return w.object(&out)
}

// check returns an error unless one selection is made.
func (c *chosen) check() error {
	given := 0
	for _, is := range [...]bool{len(c.IDs) > 0, c.Handler != "", c.All} {
		if is {
			given++
		}
	}
	if given != 1 {
		return invalid("one of ids, handler and all is required")
	}
	if len(c.IDs) == 0 {
		c.IDs = nil
	}
	return nil
}
