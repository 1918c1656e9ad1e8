package api

import (
	"context"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/queue"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Queue has the groups of round-robin checks, as the members that give their turns see them. missing are the backends that
// did not answer: the figures of groups whose turns they give are those of another one.
type Queue interface {
	// Groups returns the groups of a namespace, "" for all.
	Groups(ctx context.Context, namespace string) (groups []queue.GroupStatus, missing []string)
	// GroupsOf returns the groups of a check with their turns.
	GroupsOf(ctx context.Context, namespace, check string) (groups []queue.GroupDetail, missing []string)
}

// serveQueue adds the groups of round-robin checks. Who may see a check may see its groups.
func (c *checks) serveQueue() {
	const collection = ours + "namespaces/{namespace}/queue"
	c.api.route(collection, access{resource: c.String(), labels: true}, methods{http.MethodGet: c.listGroups})
	c.api.route(collection+"/{name}", access{resource: c.String(), name: namePath, labels: true},
		methods{http.MethodGet: c.listGroupsOf})
}

// listGroups lists the groups of the selected checks.
func (c *checks) listGroups(w *response, r *request) error {
	p := pageOf(r, (*resource.CheckConfig)(nil))
	if p.err != nil {
		return p.err
	}
	var groups []queue.GroupStatus
	if q := c.api.opts.Queue; q != nil {
		var missing []string
		groups, missing = q.Groups(r.Context(), inNamespace(r))
		w.missing(missing)
	}
	list := newArray(w, "")
	for i := range groups {
		check, ok := config.Get(c.api.opts.Config.Snapshot(), c.Kind, groups[i].Namespace, groups[i].Check)
		if !ok || p.selector != nil && !p.selector.Match(fieldsOf(check, c.shown(r.user))) {
			continue
		}
		if err := list.add(&groups[i]); err != nil {
			return err
		}
	}
	return list.finish()
}

// listGroupsOf lists the groups of one check with their turns; none if it had no tick yet.
func (c *checks) listGroupsOf(w *response, r *request) error {
	if _, err := c.find(r.act); err != nil {
		return err
	}
	var groups []queue.GroupDetail
	if q := c.api.opts.Queue; q != nil {
		var missing []string
		groups, missing = q.GroupsOf(r.Context(), r.act.namespace, r.act.name)
		w.missing(missing)
	}
	list := newArray(w, "")
	for i := range groups {
		if err := list.add(&groups[i]); err != nil {
			return err
		}
	}
	return list.finish()
}

// missing warns that backends did not answer.
func (w *response) missing(members []string) {
	for _, member := range members {
		w.advise("the backend " + member + " did not answer: some figures may be too small")
	}
}
