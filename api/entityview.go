package api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/lapwing-monitoring/lapwing/fleet"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/view"
)

const (
	// entityViewEvery is the shortest time between two messages of a live window of entities.
	entityViewEvery = time.Second
	// facetValues is how many values of a facet are shown, and maxFacets how many facets.
	facetValues, maxFacets = 50, 10
	// rowLabels is how many labels of an entity a list shows, and rowLabelBytes how much of each value.
	rowLabels, rowLabelBytes = 50, 200
)

// EntityViews keeps the live lists of entities.
type EntityViews interface {
	Open(fleet.Query) (*fleet.Reader, error)
}

// entityCounts has the number of entities of a list: in all, by the states of their agents, and by the worst class of their
// events. Without the right to list all events of the namespace the classes are left out.
type entityCounts struct {
	Total     int           `json:"total"`
	Connected int           `json:"connected"`
	Late      int           `json:"late"`
	Gone      int           `json:"gone"`
	Proxy     int           `json:"proxy"` // without an agent
	Worst     *worstClasses `json:"worst,omitempty"`
}

// worstClasses has the number of entities by the worst class of their events.
type worstClasses struct {
	Critical int `json:"critical"`
	Warning  int `json:"warning"`
	Unknown  int `json:"unknown"`
	Silenced int `json:"silenced"`
	OK       int `json:"ok"`
	None     int `json:"none"` // without events
}

// entityRow is an entity as a list shows it.
type entityRow struct {
	Namespace     string            `json:"namespace"`
	Name          string            `json:"name"`
	Class         string            `json:"class"`
	OS            string            `json:"os"`
	Platform      string            `json:"platform"`
	Version       string            `json:"version"`       // of the agent
	Subscriptions []string          `json:"subscriptions"` // at most 50
	Labels        map[string]string `json:"labels"`        // at most 50, and 200 bytes of each value
	LastSeen      int64             `json:"last_seen"`     // Unix seconds; 0 if never
	Agent         string            `json:"agent"`         // connected, late or gone; "" without an agent
	Backend       string            `json:"backend,omitempty"`
	// Worst and Events are there for users who may list all events of the namespace. Worst is critical, warning, unknown,
	// silenced, ok, or none without events.
	Worst  string       `json:"worst,omitempty"`
	Events *eventCounts `json:"events,omitempty"`
}

// entityGroup has the number of entities in a group.
type entityGroup struct {
	Value  string       `json:"value"`
	Counts entityCounts `json:"counts"`
}

// entityFacet has the most frequent values of a key.
type entityFacet struct {
	Key    string        `json:"key"`
	Total  int           `json:"total"` // how many values there are
	Values []entityGroup `json:"values"`
}

// entityWindow is a part of a list of entities. In a stream, each message has what differs from the one before.
type entityWindow struct {
	Counts entityCounts `json:"counts"` // of all entities of the list
	Offset int          `json:"offset"`
	// Order has the keys of the rows from the offset on: namespace/name. In a stream it is there if it has changed.
	Order []string `json:"order,omitzero"`
	// Rows has the entities of the window; in a stream those that have changed.
	Rows []entityRow `json:"rows,omitempty"`
	// Groups and Group are there for a list with groups: how many there are, and those of the window, the worst first.
	Groups int           `json:"groups,omitempty"`
	Group  []entityGroup `json:"group,omitzero"`
	// Facets are there if they are asked for; in a stream if they have changed.
	Facets []entityFacet `json:"facets,omitempty"`
	// Place is the place of the entity in find in the order, from 0; -1 if the list does not have it.
	Place *int `json:"place,omitempty"`
}

// entityMap has all entities of a list, for a picture of them.
type entityMap struct {
	Total  int              `json:"total"`
	Groups []entityMapGroup `json:"groups"`
}

// entityMapGroup has the entities of a group and a namespace, by name.
type entityMapGroup struct {
	Value     string   `json:"value"`
	Namespace string   `json:"namespace"`
	Names     []string `json:"names"`
	// Worst has a digit for each name: 0 critical, 1 warning, 2 unknown, 3 silenced, 4 ok, 5 without events. It is left out
	// without the right to list all events of the namespace.
	Worst string `json:"worst,omitempty"`
}

// entityViewAccess is the right to list entities.
var entityViewAccess = access{resource: "entities", labels: true}

func (a *API) serveEntityView() {
	if a.opts.EntityViews == nil {
		return
	}
	const path = "/api/lapwing/v1/namespaces/{namespace}/entities"
	a.route(path+"/view", entityViewAccess, methods{http.MethodGet: a.viewEntities})
	a.route(path+"/view/stream", entityViewAccess, methods{http.MethodGet: a.streamEntityView})
	a.route(path+"/map", entityViewAccess, methods{http.MethodGet: a.mapEntities})
}

// entityViewRequest is what a request asks of a list of entities.
type entityViewRequest struct {
	query  fleet.Query
	group  fleet.Group
	facets []fleet.Group
	rows   view.Range
	find   *resource.Name
}

func (a *API) entityViewRequestOf(r *request) (*entityViewRequest, error) {
	p := pageOf(r, (*resource.Entity)(nil))
	if p.err != nil {
		return nil, p.err
	}
	q := r.URL.Query()
	namespace := entityViewAccess.attributes(r).Namespace
	text, err := selectorText(r)
	if err != nil {
		return nil, err
	}
	v := &entityViewRequest{query: fleet.Query{
		Namespace: namespace, Selector: p.selector, Text: text, Owner: r.user.User, Blind: !a.mayList(r.user, "events", namespace),
	}}
	if v.query.State, err = fleet.ParseState(q.Get("agent"), q.Get("worst"), q.Get("backend")); err != nil {
		return nil, invalid("%v", err)
	}
	if v.query.Order, err = fleet.ParseOrder(cmp.Or(q.Get("sort"), "state")); err != nil {
		return nil, invalid("sort: %v", err)
	}
	if v.group, err = fleet.ParseGroup(q.Get("groupBy")); err != nil {
		return nil, invalid("groupBy: %v", err)
	}
	if v.facets, err = facetsIn(q.Get("facets")); err != nil {
		return nil, err
	}
	if v.rows, err = rangeIn(q); err != nil {
		return nil, err
	}
	if text := q.Get("find"); text != "" {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok || namespace == "" || name == "" {
			return nil, invalid("find must be namespace/name, not %q", resource.Short(text))
		}
		v.find = &resource.Name{Namespace: namespace, Name: name}
	}
	return v, nil
}

// facetsIn reads the keys of facets.
func facetsIn(text string) (facets []fleet.Group, err error) {
	if text == "" {
		return nil, nil
	}
	for key := range strings.SplitSeq(text, ",") {
		by, err := fleet.ParseGroup(key)
		if err != nil || !by.Grouped() {
			return nil, invalid("facets: %v", cmp.Or(err, errors.New("a key is empty")))
		}
		if facets = append(facets, by); len(facets) > maxFacets {
			return nil, invalid("facets may have %d keys at most", maxFacets)
		}
	}
	return facets, nil
}

// openEntityView returns a reader of a list of entities. The caller must close it.
func (a *API) openEntityView(query fleet.Query) (*fleet.Reader, error) {
	reader, err := a.opts.EntityViews.Open(query)
	if err != nil {
		return nil, viewError(err)
	}
	return reader, nil
}

// viewEntities answers with a window of a list.
func (a *API) viewEntities(w *response, r *request) error {
	v, err := a.entityViewRequestOf(r)
	if err != nil {
		return err
	}
	reader, err := a.openEntityView(v.query)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := reader.Ready(r.Context()); err != nil {
		return viewError(err)
	}
	return w.object((&shownEntities{request: v}).next(reader.Content()))
}

// streamEntityView sends a window of a list of entities, and what changes in it, as streamView does.
func (a *API) streamEntityView(w *response, r *request) error {
	v, err := a.entityViewRequestOf(r)
	if err != nil {
		return err
	}
	reader, err := a.openEntityView(v.query)
	if err != nil {
		return err
	}
	defer reader.Close()
	shown := &shownEntities{request: v}
	return a.streamWindows(w, r, entityViewAccess, liveWindow{
		changed: reader.Changed, err: reader.Err, every: entityViewEvery,
		may: func() bool { return v.query.Blind == !a.mayList(r.user, "events", v.query.Namespace) },
		next: func() (any, error) {
			content := reader.Content()
			if content == nil {
				return nil, nil
			}
			if out := shown.next(content); out != nil {
				return out, nil
			}
			return nil, nil
		},
	})
}

// mapEntities answers with all entities of a list. While no cell changes, the answer is encoded and compressed once.
func (a *API) mapEntities(w *response, r *request) error {
	v, err := a.entityViewRequestOf(r)
	if err != nil {
		return err
	}
	if v.query.Order, err = fleet.ParseOrder("name"); err != nil {
		return err
	}
	reader, err := a.openEntityView(v.query)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := reader.Ready(r.Context()); err != nil {
		return viewError(err)
	}
	content := reader.Content()
	plain, err := content.Once("map "+v.group.String(), func() ([]byte, error) { return encode(mapOf(content, v)) })
	if err != nil {
		return err
	}
	tag, err := content.Once("tag "+v.group.String(), func() ([]byte, error) { return []byte(entityTag(plain)), nil })
	if err != nil {
		return err
	}
	w.Header().Set("Etag", string(tag))
	w.Header().Set("Vary", "Accept-Encoding")
	if noneMatch(r.Header, string(tag)) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.Header().Set("Content-Type", jsonType)
	if !acceptsGzip(r.Header) {
		_, _ = w.Write(plain)
		return nil
	}
	packed, err := content.Once("packed "+v.group.String(), func() ([]byte, error) { return packed(plain) })
	if err != nil {
		return err
	}
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write(packed)
	return nil
}

func mapOf(content *fleet.Content, v *entityViewRequest) *entityMap {
	counts := content.Counts()
	out := &entityMap{Total: counts.Total(), Groups: []entityMapGroup{}}
	for _, cells := range content.Cells(v.group) {
		g := entityMapGroup{Value: cells.Value, Namespace: cells.Namespace, Names: cells.Names}
		if !v.query.Blind {
			digits := make([]byte, len(cells.Worst))
			for i, class := range cells.Worst {
				digits[i] = '0' + byte(class)
			}
			g.Worst = string(digits)
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}

// packed compresses an answer.
func packed(plain []byte) ([]byte, error) {
	var buf bytes.Buffer
	to, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("compress answer: %w", err)
	}
	if _, err := to.Write(plain); err != nil {
		return nil, fmt.Errorf("compress answer: %w", err)
	}
	if err := to.Close(); err != nil {
		return nil, fmt.Errorf("compress answer: %w", err)
	}
	return buf.Bytes(), nil
}

// acceptsGzip reports whether a client takes answers in gzip.
func acceptsGzip(h http.Header) bool {
	for _, list := range h.Values("Accept-Encoding") {
		for one := range strings.SplitSeq(list, ",") {
			name, weight, _ := strings.Cut(one, ";")
			_, zero, _ := strings.Cut(weight, "=")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") && strings.Trim(zero, "0. ") != "" || strings.EqualFold(strings.TrimSpace(one), "gzip") {
				return true
			}
		}
	}
	return false
}

// shownEntities knows what a client has of a window of entities.
type shownEntities struct {
	request *entityViewRequest
	begun   bool
	counts  fleet.Counts
	rows    []*fleet.Row
	groups  []fleet.GroupCounts
	facets  [][]fleet.GroupCounts
	place   int
}

// next returns what the client does not have yet; nil if that is nothing.
func (s *shownEntities) next(content *fleet.Content) *entityWindow {
	v := s.request
	counts := content.Counts()
	changed := !s.begun || counts != s.counts
	out := &entityWindow{Offset: v.rows.Offset, Counts: v.counts(&counts)}
	if v.group.Grouped() {
		all := content.Groups(v.group)
		first := min(v.rows.Offset, len(all))
		some := all[first:min(first+v.rows.Limit, len(all))]
		if out.Groups = len(all); !s.begun || !slices.Equal(some, s.groups) {
			out.Group, changed = v.groups(some), true
		}
		s.groups = some
	} else if s.window(out, content.Rows(v.rows.Offset, v.rows.Limit)) {
		changed = true
	}
	if s.facet(out, content) {
		changed = true
	}
	if v.find != nil {
		place, ok := content.Place(*v.find)
		if !ok {
			place = -1
		}
		if !s.begun || place != s.place {
			s.place, out.Place, changed = place, &place, true
		}
	}
	s.begun, s.counts = true, counts
	if !changed {
		return nil
	}
	return out
}

// window adds the order and the rows that have changed, and reports whether there are any.
func (s *shownEntities) window(out *entityWindow, rows []*fleet.Row) (changed bool) {
	had := make(map[*fleet.Row]bool, len(s.rows))
	for _, row := range s.rows {
		had[row] = true
	}
	order, before := keysOf(rows), keysOf(s.rows)
	if !s.begun || !slices.Equal(order, before) {
		out.Order, changed = order, true
	}
	for _, row := range rows {
		if !had[row] {
			out.Rows, changed = append(out.Rows, s.request.row(row)), true
		}
	}
	s.rows = rows
	return changed
}

func keysOf(rows []*fleet.Row) []string {
	keys := make([]string, len(rows))
	for i, row := range rows {
		keys[i] = row.Config.Metadata.Namespace + "/" + row.Config.Metadata.Name
	}
	return keys
}

// facet adds the facets if any has changed, and reports whether one has.
func (s *shownEntities) facet(out *entityWindow, content *fleet.Content) (changed bool) {
	var now [][]fleet.GroupCounts
	var facets []entityFacet
	for i, by := range s.request.facets {
		all := content.Facet(by)
		some := all[:min(facetValues, len(all))]
		now = append(now, some)
		facets = append(facets, entityFacet{Key: by.String(), Total: len(all), Values: s.request.groups(some)})
		changed = changed || !s.begun || !slices.Equal(some, s.facets[i])
	}
	if s.facets = now; changed {
		out.Facets = facets
	}
	return changed
}

// counts shows counts to the user of a request.
func (v *entityViewRequest) counts(c *fleet.Counts) entityCounts {
	out := entityCounts{
		Total: c.Total(), Connected: c.Agents[fleet.Connected], Late: c.Agents[fleet.Late], Gone: c.Agents[fleet.Gone],
		Proxy: c.Agents[fleet.None],
	}
	if w := &c.Worst; !v.query.Blind {
		out.Worst = &worstClasses{
			w[view.Critical], w[view.Warning], w[view.Unknown], w[view.Silenced], w[view.OK], w[fleet.NoEvents],
		}
	}
	return out
}

func (v *entityViewRequest) groups(some []fleet.GroupCounts) []entityGroup {
	out := make([]entityGroup, len(some))
	for i := range some {
		out[i] = entityGroup{some[i].Value, v.counts(&some[i].Counts)}
	}
	return out
}

// The words for fleet.Agent and the worst class.
var (
	agentWords = [...]string{fleet.None: "", fleet.Connected: "connected", fleet.Late: "late", fleet.Gone: "gone"}
	worstWords = [...]string{
		view.Critical: "critical", view.Warning: "warning", view.Unknown: "unknown", view.Silenced: "silenced", view.OK: "ok",
		fleet.NoEvents: "none",
	}
)

// row shows an entity to the user of a request.
func (v *entityViewRequest) row(row *fleet.Row) entityRow {
	cfg := row.Config.Redacted()
	out := entityRow{
		Namespace: cfg.Metadata.Namespace, Name: cfg.Metadata.Name, Class: cfg.EntityClass,
		OS: row.Host.System.OS, Platform: row.Host.System.Platform, Version: row.Host.Version,
		Subscriptions: append([]string{}, cfg.Subscriptions[:min(rowLabels, len(cfg.Subscriptions))]...),
		Labels:        boundedLabels(cfg.Metadata.Labels), LastSeen: row.LastSeen, Agent: agentWords[row.Agent], Backend: row.Backend,
	}
	if !v.query.Blind {
		counts := countsOf(row.Events)
		out.Worst, out.Events = worstWords[row.Worst()], &counts
	}
	return out
}

// boundedLabels returns some labels of an entity, the first by name.
func boundedLabels(labels map[string]string) map[string]string {
	keys := make([]string, 0, len(labels))
	for key := range labels {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	out := make(map[string]string, min(rowLabels, len(keys)))
	for _, key := range keys[:min(rowLabels, len(keys))] {
		out[key] = shortened(labels[key], rowLabelBytes)
	}
	return out
}
