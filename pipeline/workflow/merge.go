package workflow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Annotations of a merged event about its members.
const (
	// MergedAnnotation lists the members, in JSON: see MergedMember.
	MergedAnnotation = "lapwing.io/folded"
	// MergedCountAnnotation is the number of members, and MergedLeftOutAnnotation how many of them the list leaves
	// out.
	MergedCountAnnotation   = "lapwing.io/folded-count"
	MergedLeftOutAnnotation = "lapwing.io/folded-left-out"
	// MergedKeyAnnotation is the group's key.
	MergedKeyAnnotation = "lapwing.io/folded-key"
)

// MergedMember is one event in the list of a merged event.
type MergedMember struct {
	Entity string `json:"entity"`
	Check  string `json:"check"`
	Status uint32 `json:"status"`
	Since  int64  `json:"since,omitempty"` // when it was last OK, Unix seconds
}

const (
	mergedLines     = 20      // members that the output names
	mergedLineBytes = 160     // of each
	mergedListBytes = 1 << 20 // of MergedAnnotation
	mergedSeveral   = "several"
)

// GroupValues returns the values of a handler's group fields in an event. Fields have the names of selectors; the
// prefix "event." is optional.
func GroupValues(by []string, ev *resource.Event) []string {
	if len(by) == 0 {
		return nil
	}
	fields := selector.Event(ev)
	values := make([]string, len(by))
	for i, name := range by {
		values[i] = fields.Field(eventField(name)).String()
	}
	return values
}

func eventField(name string) string {
	if strings.HasPrefix(name, "event.") {
		return name
	}
	return "event." + name
}

// Merge makes one event of the newest events of a group's pairs. Its entity is a proxy named after the group, or the
// members' entity if they are grouped by entity. Its check is called "several", or has the members' name if they are
// grouped by check. So the names depend on the group alone, and receivers that identify an alert by its names find it
// again.
// The status is that of the worst member, the output lists the first members and the annotations all of them. Labels,
// handlers and pipelines stay if all members agree. If all members are resolved, others of the group that went out
// earlier may still fail. The event then fails too, or receivers would take the whole group for resolved.
func (w *Workflows) Merge(dl *delivery.Delivery, key string, events []*resource.Event) *resource.Event {
	events = slices.DeleteFunc(slices.Clone(events), func(ev *resource.Event) bool { return ev == nil || ev.Check == nil || ev.Entity == nil })
	if len(events) == 0 {
		return &resource.Event{Metadata: resource.ObjectMeta{Namespace: dl.Namespace}}
	}
	slices.SortFunc(events, func(a, b *resource.Event) int {
		return cmp.Or(cmp.Compare(severity(b.Check.Status), severity(a.Check.Status)),
			cmp.Compare(a.Entity.Metadata.Name, b.Entity.Metadata.Name), cmp.Compare(a.Check.Metadata.Name, b.Check.Metadata.Name))
	})
	var by []string
	if h, ok := config.Get(w.opts.Config(), config.Handlers, dl.Namespace, dl.Handler); ok && h.Group != nil {
		by = h.Group.By
	}
	g := newGroup(dl, key, by, events)
	if g.failing == 0 {
		g.still, g.others = w.stillFailing(dl, key, by, events)
	}
	return &resource.Event{
		Timestamp: g.newest, ID: g.id(), Entity: g.entity(), Check: g.check(),
		Metadata: resource.ObjectMeta{
			Namespace: dl.Namespace, Annotations: g.annotations(),
			Labels: common(events, func(ev *resource.Event) map[string]string { return ev.Metadata.Labels }),
		},
		Pipelines: same(events, func(ev *resource.Event) []resource.ResourceReference { return ev.Pipelines }),
	}
}

const (
	maxOthers    = 200 // events searched for others of a group that still fail
	othersBudget = 2 * time.Second
)

// stillFailing finds the worst event outside of the members that would go to the delivery's handler in the same group
// now, and returns how many there are.
func (w *Workflows) stillFailing(
	dl *delivery.Delivery, key string, by []string, members []*resource.Event,
) (worst *resource.Event, count string) {
	if w.opts.Present == nil {
		return nil, ""
	}
	defs := definitions{Snapshot: w.opts.Config()}
	rt, err := w.routeOf(defs, dl)
	if err != nil {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), othersBudget)
	defer cancel()
	failing, err := failingLike(by, members[0])
	if err != nil {
		return nil, ""
	}
	page, err := w.opts.Present.Select(ctx, state.Query{Namespace: dl.Namespace, Selector: failing, Limit: maxOthers})
	if err != nil {
		w.rare.Warn("other failing events of a group were not found", dl.Namespace+"/"+dl.Handler,
			"namespace", dl.Namespace, "handler", dl.Handler, "group", key, "err", err)
		return nil, ""
	}
	n := 0
	for ev, err := range page.Events() {
		if err != nil || ctx.Err() != nil {
			break
		}
		if slices.ContainsFunc(members, func(m *resource.Event) bool { return samePair(m, ev) }) || groupKey(rt.def, ev) != key {
			continue
		}
		if !slices.ContainsFunc(w.routes(defs, dl.Namespace, ev), func(other Route) bool { return other.ID() == rt.ID() }) {
			continue
		}
		facts := filter.Facts{Incident: true, Silenced: ev.IsSilenced(), HasMetrics: ev.HasMetrics()}
		if w.decide(ctx, defs, rt, ev, facts).Verdict != "" {
			continue
		}
		n++
		if worst == nil || severity(ev.Check.Status) > severity(worst.Check.Status) {
			worst = ev
		}
	}
	switch {
	case page.Next != "":
		return worst, fmt.Sprint(n, " or more others")
	case n == 1:
		return worst, "1 other"
	}
	return worst, fmt.Sprint(n, " others")
}

// failingLike selects the incidents that share the event's values of the group's fields.
func failingLike(by []string, ev *resource.Event) (*selector.Selector, error) {
	text := []string{"event.is_incident == true"}
	for i, value := range GroupValues(by, ev) {
		if value != "" { // missing values are compared later
			text = append(text, eventField(by[i])+` == "`+quoted.Replace(value)+`"`)
		}
	}
	return selector.ParseAll(nil, text)
}

// quoted escapes text for a quoted string in a selector.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func samePair(a, b *resource.Event) bool {
	return a.Entity.Metadata.Name == b.Entity.Metadata.Name && b.Check != nil && a.Check.Metadata.Name == b.Check.Metadata.Name
}

// severity orders statuses: critical is the worst, then all that are neither critical nor warning.
func severity(status uint32) int {
	switch status {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return 3
	}
	return 2
}

// group summarises a group's events.
type group struct {
	dl     *delivery.Delivery
	key    string
	events []*resource.Event // the worst first
	first  *resource.Event

	title     string          // the values that the members share, for people; may be ""
	oneEntity bool            // all members are of one entity
	oneCheck  bool            // all members are of one check
	byEntity  bool            // the handler groups by entity
	still     *resource.Event // the worst event outside of the members that still fails, if all members are resolved
	others    string          // how many of these there are, as text
	byCheck   bool            // the handler groups by check
	name      string          // of the entity of the merged event

	newest, executed, issued, since int64
	failing                         int
	statuses                        map[uint32]int
	occurrences, watermark          int64
	news                            bool // an incident of a member is new
}

func newGroup(dl *delivery.Delivery, key string, by []string, events []*resource.Event) *group {
	g := &group{
		dl: dl, key: key, events: events, first: events[0], oneEntity: true, oneCheck: true,
		statuses: map[uint32]int{}, occurrences: math.MaxInt64, since: math.MaxInt64,
	}
	for _, ev := range events {
		c := ev.Check
		g.oneEntity = g.oneEntity && ev.Entity.Metadata.Name == g.first.Entity.Metadata.Name
		g.oneCheck = g.oneCheck && c.Metadata.Name == g.first.Check.Metadata.Name
		g.newest, g.executed, g.issued = max(g.newest, ev.Timestamp), max(g.executed, c.Executed), max(g.issued, c.Issued)
		g.statuses[c.Status]++
		if c.LastOK > 0 {
			g.since = min(g.since, c.LastOK)
		}
		if c.Status != 0 {
			g.failing++
			g.news = g.news || c.Occurrences <= 1
		}
		if (c.Status != 0) == (g.first.Check.Status != 0) {
			g.occurrences, g.watermark = min(g.occurrences, c.Occurrences), max(g.watermark, c.OccurrencesWatermark)
		}
	}
	if g.since == math.MaxInt64 {
		g.since = 0
	}
	g.named(by)
	return g
}

// named derives the group's names from the values of its fields, except namespace and check, which the event has
// anyway.
func (g *group) named(by []string) {
	var values []string
	for i, v := range GroupValues(by, g.first) {
		switch strings.TrimPrefix(by[i], "event.") {
		case "namespace", "entity.namespace", "check.namespace":
			continue
		case "check.name":
			g.byCheck = true
			continue
		case "entity.name":
			g.byEntity = true
		}
		if v != "" {
			values = append(values, v)
		}
	}
	g.title = strings.Join(values, ", ")
	g.name = resourceName(strings.Join(values, "-"))
	if g.name == "" {
		g.name = mergedSeveral
	}
}

// resourceName makes a valid resource name of any text.
func resourceName(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && resource.ValidName(string(r)) {
			return r
		}
		return '_'
	}, text)
}

// id returns an event ID that depends on the delivery alone.
func (g *group) id() []byte {
	sum := sha256.Sum256([]byte(g.dl.ID + "\x00" + g.key))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return id
}

func (g *group) entity() *resource.Entity {
	if g.byEntity {
		return g.first.Entity
	}
	meta := func(ev *resource.Event) *resource.ObjectMeta { return &ev.Entity.Metadata }
	return &resource.Entity{
		EntityClass:   resource.EntityProxyClass,
		Subscriptions: []string{resource.EntitySubscription(g.name)},
		Redact:        same(g.events, func(ev *resource.Event) []string { return ev.Entity.Redact }),
		Metadata: resource.ObjectMeta{
			Namespace: g.dl.Namespace, Name: g.name,
			Labels:      common(g.events, func(ev *resource.Event) map[string]string { return shown(ev.Entity, meta(ev).Labels) }),
			Annotations: common(g.events, func(ev *resource.Event) map[string]string { return shown(ev.Entity, meta(ev).Annotations) }),
		},
	}
}

// shown removes the values that an entity redacts, because the merged event's entity does not redact them.
func shown(e *resource.Entity, values map[string]string) map[string]string {
	out := values
	for key := range values {
		if e.Redacts(key) {
			if len(out) == len(values) {
				out = maps.Clone(values)
			}
			delete(out, key)
		}
	}
	return out
}

func (g *group) check() *resource.Check {
	c := g.first.Check
	out := &resource.Check{
		Interval: c.Interval, Status: c.Status, State: "failing", Executed: g.executed, Issued: g.issued, LastOK: g.since,
		Occurrences: g.occurrences, OccurrencesWatermark: g.watermark, Output: g.output(),
		Handlers:  same(g.events, func(ev *resource.Event) []string { return ev.Check.Handlers }),
		Pipelines: same(g.events, func(ev *resource.Event) []resource.ResourceReference { return ev.Check.Pipelines }),
		Metadata: resource.ObjectMeta{
			Namespace: g.dl.Namespace, Name: c.Metadata.Name,
			Labels:      common(g.events, func(ev *resource.Event) map[string]string { return ev.Check.Metadata.Labels }),
			Annotations: common(g.events, func(ev *resource.Event) map[string]string { return ev.Check.Metadata.Annotations }),
		},
	}
	if !g.byCheck {
		out.Metadata.Name = mergedSeveral
	}
	before := c.Status
	switch {
	case g.still != nil:
		out.Status, before = g.still.Check.Status, g.still.Check.Status
		out.Occurrences, out.OccurrencesWatermark = g.still.Check.Occurrences, g.still.Check.OccurrencesWatermark
		out.LastOK = g.still.Check.LastOK
	case g.failing == 0:
		out.State, before = "passing", 1
		out.LastOK = g.executed
	case g.news:
		before = 0
	}
	out.History = []resource.CheckHistory{{Status: before, Executed: g.executed}, {Status: out.Status, Executed: g.executed}}
	return out
}

// output returns a summary line, then the worst members, one a line.
func (g *group) output() string {
	var b strings.Builder
	if g.title != "" {
		b.WriteString(g.title + ": ")
	}
	resolved := len(g.events) - g.failing
	if g.failing > 0 {
		fmt.Fprintf(&b, "%s failing (%s)", g.things(g.failing), g.counts())
	}
	switch {
	case g.failing > 0 && resolved > 0:
		fmt.Fprintf(&b, ", %d resolved", resolved)
	case resolved > 0:
		fmt.Fprintf(&b, "%s resolved", g.things(resolved))
	}
	if g.still != nil {
		fmt.Fprintf(&b, ", %s still failing", g.others)
	}
	b.WriteByte('\n')
	for i, ev := range g.events {
		if i == mergedLines {
			fmt.Fprintf(&b, "and %d more\n", len(g.events)-i)
			break
		}
		name := ev.Entity.Metadata.Name
		switch {
		case g.oneEntity:
			name = ev.Check.Metadata.Name
		case !g.oneCheck:
			name += "/" + ev.Check.Metadata.Name
		}
		line, _, _ := strings.Cut(strings.TrimSpace(ev.Check.Output), "\n")
		fmt.Fprintf(&b, "%s: %s: %s\n", name, statusName(ev.Check.Status), cut(line, mergedLineBytes))
	}
	return b.String()
}

// things names the members with their number: 3 keepalives, 3 disk checks, 3 checks of 2 entities.
func (g *group) things(n int) string {
	plural := "s"
	if n == 1 {
		plural = ""
	}
	name := g.first.Check.Metadata.Name
	switch {
	case g.oneCheck && name == state.KeepaliveCheck:
		return fmt.Sprintf("%d keepalive%s", n, plural)
	case g.oneCheck:
		return fmt.Sprintf("%d %s check%s", n, name, plural)
	case g.oneEntity:
		return fmt.Sprintf("%d check%s of %s", n, plural, g.first.Entity.Metadata.Name)
	}
	entities := map[string]bool{}
	for _, ev := range g.events {
		entities[ev.Entity.Metadata.Name] = true
	}
	return fmt.Sprintf("%d check%s of %d entities", n, plural, len(entities))
}

// counts returns the number of members by status, the worst first.
func (g *group) counts() string {
	statuses := slices.SortedFunc(maps.Keys(g.statuses), func(a, b uint32) int {
		return cmp.Or(cmp.Compare(severity(b), severity(a)), cmp.Compare(a, b))
	})
	var parts []string
	for _, s := range statuses {
		if s != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", g.statuses[s], statusName(s)))
		}
	}
	return strings.Join(parts, ", ")
}

func statusName(status uint32) string {
	switch status {
	case 0:
		return "ok"
	case 1:
		return "warning"
	case 2:
		return "critical"
	case 3:
		return "unknown"
	}
	return fmt.Sprint("status ", status)
}

// cut shortens text to a number of bytes, between two characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

func (g *group) annotations() map[string]string {
	out := common(g.events, func(ev *resource.Event) map[string]string { return ev.Metadata.Annotations })
	if out == nil {
		out = map[string]string{}
	}
	list := []byte{'['}
	listed := 0
	for _, ev := range g.events {
		m := MergedMember{Entity: ev.Entity.Metadata.Name, Check: ev.Check.Metadata.Name, Status: ev.Check.Status}
		if m.Status != 0 {
			m.Since = ev.Check.LastOK
		}
		text, err := json.Marshal(m)
		if err != nil || len(list)+len(text)+2 > mergedListBytes {
			break
		}
		if listed > 0 {
			list = append(list, ',')
		}
		list = append(list, text...)
		listed++
	}
	out[MergedAnnotation] = string(append(list, ']'))
	out[MergedCountAnnotation] = fmt.Sprint(len(g.events))
	out[MergedKeyAnnotation] = g.key
	if left := len(g.events) - listed; left > 0 {
		out[MergedLeftOutAnnotation] = fmt.Sprint(left)
	}
	return out
}

// common returns the entries that all events share.
func common(events []*resource.Event, of func(*resource.Event) map[string]string) map[string]string {
	out := maps.Clone(of(events[0]))
	for _, ev := range events[1:] {
		if len(out) == 0 {
			return nil
		}
		m := of(ev)
		maps.DeleteFunc(out, func(k, v string) bool { other, ok := m[k]; return !ok || other != v })
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// same returns the list that all events share; nil if they differ.
func same[T comparable](events []*resource.Event, of func(*resource.Event) []T) []T {
	out := of(events[0])
	for _, ev := range events[1:] {
		if !slices.Equal(out, of(ev)) {
			return nil
		}
	}
	return out
}
