package api

import (
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveOnCall serves contacts, rotas, who is on call, and the escalations that are going on. They are lapwing's own, and so
// are their paths.
func (a *API) serveOnCall() {
	contacts := &kind[resource.Contact]{api: a, Kind: config.Contacts, base: ours, reason: resourceInvalid}
	contacts.serve()
	rotas := &kind[resource.Rota]{api: a, Kind: config.Rotas, base: ours, reason: resourceInvalid}
	rotas.serve()
	a.route(rotas.collection()+"/{name}/oncall", access{resource: rotas.String(), name: namePath, labels: true},
		methods{http.MethodGet: func(w *response, r *request) error {
			def, err := rotas.find(r.act)
			if err != nil {
				return err
			}
			from, to, err := a.onCallTimes(r)
			if err != nil {
				return err
			}
			return w.object(a.opts.OnCall.OnCall(def, from, to, maxShifts))
		}})
	a.route(ours+"namespaces/{namespace}/oncall", access{resource: rotas.String(), list: true}, methods{http.MethodGet: a.listOnCall})
	if a.opts.Escalations != nil {
		a.route(ours+"namespaces/{namespace}/escalations", access{resource: "events", list: true}, methods{http.MethodGet: a.listEscalations})
	}
}

const (
	// onCallTime is the time that answers about rotas cover if the request does not say, and mostOnCall the longest.
	onCallTime, mostOnCall = 7 * 24 * time.Hour, 400 * 24 * time.Hour
	// maxShifts bounds the shifts of one rota in an answer, and maxEscalations the list of escalations.
	maxShifts, maxEscalations = 500, 1000
)

// onCallTimes returns the time that a request is about: now and the next week, or since and until.
func (a *API) onCallTimes(r *request) (from, to time.Time, err error) {
	now, q := a.opts.Now(), r.URL.Query()
	if from, err = instant(q.Get("since"), now); err != nil {
		return from, to, err
	}
	if from.IsZero() {
		from = now
	}
	if to, err = instant(q.Get("until"), now); err != nil {
		return from, to, err
	}
	if to.IsZero() {
		to = from.Add(onCallTime)
	}
	if !from.Before(to) || to.Sub(from) > mostOnCall {
		return from, to, invalid("since must be before until, by 400 days at most")
	}
	return from, to, nil
}

func (a *API) listOnCall(w *response, r *request) error {
	from, to, err := a.onCallTimes(r)
	if err != nil {
		return err
	}
	list, namespace := []resource.OnCall{}, r.PathValue("namespace")
	if namespace == allNamespaces {
		namespace = ""
	}
	for def := range config.List(a.opts.Config.Snapshot(), config.Rotas, namespace) {
		list = append(list, a.opts.OnCall.OnCall(def, from, to, maxShifts))
	}
	return w.object(list)
}

func (a *API) listEscalations(w *response, r *request) error {
	namespace := r.PathValue("namespace")
	if namespace == allNamespaces {
		namespace = ""
	}
	q := r.URL.Query()
	list, more, err := a.opts.Escalations(namespace, q.Get("entity"), q.Get("check"), maxEscalations)
	if err != nil {
		return err
	}
	if list == nil {
		list = []resource.Escalation{}
	}
	return w.object(&resource.EscalationList{Escalations: list, More: more})
}
