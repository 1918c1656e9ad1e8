package api

import (
	"context"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// DeadLetter is a delivery that its handler never took.
type DeadLetter struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Handler   string `json:"handler"`
	Pipeline  string `json:"pipeline,omitempty"`
	Workflow  string `json:"workflow,omitempty"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	Status    uint32 `json:"status"`
	// Reason is why it was given up, and Output what the last attempt said.
	Reason   string `json:"reason"`
	Output   string `json:"output,omitempty"`
	Attempts int    `json:"attempts"`
	First    int64  `json:"first"` // when the first attempt was, Unix milliseconds
	Last     int64  `json:"last"`  // and the last
	// Event is what was to be handled. Lists do not have it.
	Event *resource.Event `json:"event,omitempty"`
}

// DeadLetters has what handlers never took. An empty namespace stands for all of them, and so does an empty handler.
type DeadLetters interface {
	List(namespace, handler, after string, limit int) (letters []DeadLetter, next string, err error)
	// Get gets one with its event; false if there is none.
	Get(namespace, id string) (*DeadLetter, bool, error)
	// Redrive hands the named ones over once more, or if ids is nil all of the handler, and says how many. Those that are
	// not there are passed over.
	Redrive(ctx context.Context, namespace string, ids []string, handler string) (int, error)
	// Delete forgets them.
	Delete(ctx context.Context, namespace string, ids []string, handler string) (int, error)
}

const (
	deadLetterPage    = 100
	deadLetterPageMax = 1000
)

// chosen says which dead letters are meant: one of its fields must be set.
type chosen struct {
	IDs     []string `json:"ids"`
	Handler string   `json:"handler"`
	All     bool     `json:"all"`
}

// deadLetterCount is how many dead letters a request was about.
type deadLetterCount struct {
	Count int `json:"count"`
}

func (a *API) serveDeadLetters() {
	const collection = ours + "namespaces/{namespace}/deadletters"
	who := access{resource: "deadletters"}
	id := func(r *request) string { return r.PathValue("id") }
	a.route(collection, who, methods{http.MethodGet: a.listDeadLetters, http.MethodDelete: a.deleteDeadLetters})
	a.route(collection+"/redrive", who, methods{http.MethodPost: a.redriveDeadLetters})
	a.route(collection+"/{id}", access{resource: "deadletters", name: id}, methods{http.MethodGet: a.getDeadLetter, http.MethodDelete: a.deleteDeadLetter})
}

// inNamespace is the namespace of a path, "" for all.
func inNamespace(r *request) string {
	if namespace := r.PathValue("namespace"); namespace != allNamespaces {
		return namespace
	}
	return ""
}

// listDeadLetters lists them without their events, of one handler if that is given in ?handler=.
func (a *API) listDeadLetters(w *response, r *request) error {
	p := pageOf(r)
	limit := deadLetterPage
	if p.limit > 0 {
		limit = min(p.limit, deadLetterPageMax)
	}
	var letters []DeadLetter
	var next string
	if a.opts.DeadLetters != nil {
		var err error
		if letters, next, err = a.opts.DeadLetters.List(inNamespace(r), r.URL.Query().Get("handler"), p.after, limit); err != nil {
			return err
		}
	}
	list := newArray(w, next)
	for i := range letters {
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
	letter, ok, err := a.opts.DeadLetters.Get(inNamespace(r), r.PathValue("id"))
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
	n, err := a.opts.DeadLetters.Delete(r.Context(), inNamespace(r), []string{r.PathValue("id")}, "")
	if err != nil {
		return err
	}
	if n == 0 {
		return errNotFound
	}
	a.audited(r, "delete", "deadletters", inNamespace(r), r.PathValue("id"))
	return w.empty(http.StatusNoContent)
}

// deleteDeadLetters forgets those of ?handler=, or with ?all=true all of the namespace.
func (a *API) deleteDeadLetters(w *response, r *request) error {
	q := r.URL.Query()
	return a.withDeadLetters(w, r, "delete", chosen{IDs: q["id"], Handler: q.Get("handler"), All: q.Get("all") == "true"}, DeadLetters.Delete)
}

// redriveDeadLetters hands them over to their handlers once more.
func (a *API) redriveDeadLetters(w *response, r *request) error {
	var req chosen
	if err := a.decode(w, r, &req); err != nil {
		return err
	}
	return a.withDeadLetters(w, r, "execute", req, DeadLetters.Redrive)
}

func (a *API) withDeadLetters(w *response, r *request, action string, req chosen, do func(DeadLetters, context.Context, string, []string, string) (int, error)) error {
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
		var err error
		if out.Count, err = do(a.opts.DeadLetters, r.Context(), inNamespace(r), req.IDs, req.Handler); err != nil {
			return err
		}
	}
	if out.Count > 0 {
		a.audited(r, action, "deadletters", inNamespace(r), req.Handler)
	}
	return w.object(&out)
}
