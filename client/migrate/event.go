package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const keepaliveCheck = "keepalive"

var eventKind = of(client.Events.Kind, func(k *kind) {
	k.silent = true
	k.normal = normalEvent
	k.adapt = completeEvent
	k.leave = func(_ *migration, o *object) (reason, hint string) {
		switch {
		case sub(o.body, "check") == nil:
			return "it has no check: metrics have no state", ""
		case text(sub(o.body, "entity"), "entity_class") == resource.EntityBackendClass:
			return "it is about a backend of the source", ""
		}
		return "", ""
	}
	k.hold = func(m *migration, o *object, old *summary) (reason, hint string) {
		if old != nil && old.executed > integer(sub(o.body, "check"), "executed") {
			return "lapwing has a newer result", ""
		}
		return "", ""
	}
	k.foresee = func(m *migration, o *object, _ *summary) {
		m.deadlines.count(o)
		if names := m.quieten(o, firstEvent(o.body)); len(names) > 0 {
			m.rec.remark(Noted, o.kind.Type, "copied without the handlers and pipelines that lapwing already has: they would alert again",
				"The next result of the check names them again.", o.label()+": "+strings.Join(names, " "))
		}
	}
	k.write = writeEvent
})

// completeEvent sets what servers compute, where it is missing, as in a file that was written by hand. Without it the copy
// would never be equal.
func completeEvent(m *migration, o *object) {
	check := sub(o.body, "check")
	if check == nil {
		return
	}
	executed := cmp.Or(integer(check, "executed"), integer(o.body, "timestamp"), m.started.Unix())
	if integer(check, "executed") == 0 {
		setNumber(check, "executed", executed)
	}
	if integer(o.body, "timestamp") == 0 {
		setNumber(o.body, "timestamp", executed)
	}
	status := integer(check, "status")
	history, _ := check["history"].([]any)
	entry := func(i int) (status, executed int64) {
		e, _ := history[i].(map[string]any)
		return integer(e, "status"), integer(e, "executed")
	}
	newest := map[string]any{"status": json.Number(strconv.FormatInt(status, 10)), "executed": check["executed"]}
	if last := len(history) - 1; last < 0 {
		history = []any{newest}
	} else if s, at := entry(last); s != status || at != executed {
		history = append(slices.Clip(history), newest)
	}
	check["history"] = history
	if integer(check, "occurrences") == 0 {
		same := int64(0)
		for i := len(history) - 1; i >= 0; i-- {
			if s, _ := entry(i); s != status {
				break
			}
			same++
		}
		setNumber(check, "occurrences", same)
	}
	if occurrences := integer(check, "occurrences"); integer(check, "occurrences_watermark") < occurrences {
		setNumber(check, "occurrences_watermark", occurrences)
	}
}

// normalEvent removes the entity, which is copied by itself, fields that a server computes from others, and fields that
// the next result has anew.
func normalEvent(tree map[string]any) {
	meta := sub(sub(tree, "entity"), "metadata")
	tree["entity"] = map[string]any{"name": meta["name"], "namespace": meta["namespace"]}
	delete(tree, "id") // old events have none, the copy gets one
	delete(tree, "pipelines")
	check := sub(tree, "check")
	dropCreator(check)
	for _, field := range []string{"handlers", "pipelines", "is_silenced", "silenced", "state", "total_state_change"} {
		delete(check, field)
	}
}

// writeEvent sends an event as the first of its check, with its earlier history. So the target gets the state of the
// source.
func writeEvent(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error) {
	if old != nil && m.apply {
		// Later events add to the history. Only a first one brings its own.
		if err := m.Target.Do(ctx, http.MethodDelete, o.path(), nil, nil); err != nil && !isRefusal(err, http.StatusNotFound) {
			return "", "", err
		}
	}
	body := firstEvent(o.body)
	m.quieten(o, body)
	return "", "", m.Target.Do(ctx, http.MethodPost, o.path(), body, nil)
}

// firstEvent returns the event to send to a server without events of its check, so that it becomes body.
func firstEvent(body map[string]any) map[string]any {
	out := maps.Clone(body)
	entity := sub(body, "entity")
	out["entity"] = map[string]any{
		"entity_class": entity["entity_class"], "subscriptions": entity["subscriptions"], "system": map[string]any{},
		"deregistration": map[string]any{},
		"metadata":       map[string]any{"name": sub(entity, "metadata")["name"], "namespace": sub(entity, "metadata")["namespace"]},
	}
	check := maps.Clone(sub(body, "check"))
	out["check"] = check
	delete(check, "silenced")
	delete(check, "is_silenced")
	history, _ := check["history"].([]any)
	status := integer(check, "status")
	if last := len(history) - 1; last >= 0 {
		newest, _ := history[last].(map[string]any)
		if integer(newest, "status") == status && integer(newest, "executed") == integer(check, "executed") {
			history = history[:last] // the server adds it
		}
	}
	check["history"] = history
	// The server counts this result, too. If it changed the status, the count before it does not matter.
	occurrences := int64(0)
	if last := len(history) - 1; last >= 0 {
		if before, _ := history[last].(map[string]any); integer(before, "status") == status {
			occurrences = max(0, integer(check, "occurrences")-1)
		}
	}
	check["occurrences"] = occurrences
	return out
}

// findHandlers finds the target's handlers and pipelines: an event that is sent would trigger them.
func findHandlers(ctx context.Context, m *migration) error {
	m.quiet = map[string]bool{}
	for _, k := range []*kind{handlerKind, pipelineKind} {
		for _, namespace := range m.names {
			err := listAll(ctx, m.Target, k, namespace, func(o *object) error {
				m.quiet[quietKey(k.Plural, namespace, o.name)] = true
				return nil
			})
			if err != nil && err != errNoKind {
				return fmt.Errorf("list %s of %s: %w", k.Plural, m.TargetName, err)
			}
		}
	}
	return nil
}

func quietKey(plural, namespace, name string) string { return plural + "/" + namespace + "/" + name }

// quieten removes the target's handlers and pipelines from an event, and returns their names.
func (m *migration) quieten(o *object, body map[string]any) (names []string) {
	without := func(in map[string]any, field, plural string, name func(any) string) {
		list, _ := in[field].([]any)
		kept := []any{}
		for _, item := range list {
			if n := name(item); m.quiet[quietKey(plural, o.namespace, n)] {
				names = append(names, n)
			} else {
				kept = append(kept, item)
			}
		}
		if len(kept) < len(list) {
			in[field] = kept
		}
	}
	plain := func(v any) string { s, _ := v.(string); return s }
	reference := func(v any) string { r, _ := v.(map[string]any); return text(r, "name") }
	check := sub(body, "check")
	without(check, "handlers", "handlers", plain)
	without(check, "pipelines", "pipelines", reference)
	without(body, "pipelines", "pipelines", reference)
	return names
}

// deadlines counts what will be overdue in the target unless results arrive there.
type deadlines struct {
	mu              sync.Mutex // guards the fields below
	keepalives, ttl int
	shortest        int64 // seconds
}

func (d *deadlines) count(o *object) {
	check := sub(o.body, "check")
	ttl, keepalive := integer(check, "ttl"), strings.HasSuffix(o.name, "/"+keepaliveCheck)
	if keepalive {
		ttl = integer(check, "timeout")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case keepalive:
		d.keepalives++
	case ttl > 0:
		d.ttl++
	default:
		return
	}
	if ttl > 0 && (d.shortest == 0 || ttl < d.shortest) {
		d.shortest = ttl
	}
}

// remarkDeadlines says what happens to hosts that stay with the source.
func (m *migration) remarkDeadlines() {
	d := &m.deadlines
	if d.keepalives+d.ttl == 0 {
		return
	}
	m.rec.remark(Noted, eventKind.Type,
		fmt.Sprintf("%d keepalives and %d events with a ttl are waited for from now on: what has not moved to lapwing after their time (the shortest is %d s) counts as lost, and handlers are told", d.keepalives, d.ttl, d.shortest),
		"Move agents soon, or copy with --skip events: lapwing then builds the state from new results.")
}
