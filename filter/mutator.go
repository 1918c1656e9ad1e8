package filter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/dop251/goja"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// mutatorBudget is the CPU time of a mutator without a timeout of its own. maxMutatorBudget is the most that a
	// timeout gives, because others wait for the worker.
	mutatorBudget, maxMutatorBudget = time.Second, 2 * time.Second
	// mutatorWait bounds a mutator's wait for a free worker.
	mutatorWait = time.Minute
	// maxMutated bounds the event that a mutator makes, in bytes.
	maxMutated = 16 << 20
)

// mutation is the parsed definition of a JavaScript mutator.
type mutation struct {
	by        Definer
	budget    time.Duration
	libraries libraries
	allowance allowance
}

func (e *Engine) mutation(def *resource.Mutator) *mutation {
	if m, ok := e.mutators.Load(def); ok {
		return m.(*mutation)
	}
	m := &mutation{budget: time.Duration(def.Timeout) * time.Second}
	if m.budget <= 0 {
		m.budget = mutatorBudget
	}
	m.budget = min(m.budget, maxMutatorBudget)
	var env [][2]string
	for _, entry := range def.EnvVars {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env = append(env, [2]string{name, value})
		}
	}
	m.by = Definer{"mutator", def.Metadata.Namespace, def.Metadata.Name}
	m.libraries = libraries{
		namespace: def.Metadata.Namespace, assets: def.RuntimeAssets,
		failed: func(_, source string, err error) {
			e.log.Warn("mutator's asset is left out",
				"namespace", def.Metadata.Namespace, "mutator", def.Metadata.Name, "script", source, "err", err)
		},
		define: func(files []scriptFile) *definition {
			return newDefinition(m.by, true, []string{def.Eval}, env, files)
		},
	}
	known, _ := e.mutators.LoadOrStore(def, m)
	return known.(*mutation)
}

// Mutate runs a JavaScript mutator for an event, given as JSON, which its script sees and may change. If the script
// returns a text, that is the result; if it returns nothing, the changed event is. Anything else is an error, and so is
// a script that throws, is out of time or leaves an invalid event.
func (e *Engine) Mutate(
	ctx context.Context, def *resource.Mutator, ev *resource.Event, data []byte,
) (text []byte, changed *resource.Event, err error) {
	m := e.mutation(def)
	if m.allowance.spent(m.share(e)) {
		return nil, nil, errSuspended
	}
	b := m.libraries.get(ctx, e)
	if _, why := e.opts.Pool.suspicion(def.Metadata.Namespace, b.def.keys[0]); why != nil {
		return nil, nil, why
	}
	shown, err := complete(data)
	if err != nil {
		return nil, nil, err
	}
	j := &job{
		by: m.by, def: b.def, pace: &m.allowance.pace, text: func(int) string { return def.Eval }, wait: mutatorWait,
		question: func(only []int, quick bool) *asked {
			total := m.budget
			if len(b.files) > 0 {
				total += librariesBudget
			}
			if quick {
				total = quickTotal
			}
			body := make([]byte, 0, 2*len(shown))
			body = appendQuestion(body, b.def, e.opts.Now().Unix(), m.budget, total, only, e.opts.Events != nil)
			return &asked{
				body: fields.AppendBytes(appendEvent(body, ev), shown), look: lookIn(e.events(def.Author), e.opts.InCalendar, ev), patience: longest(total) + grace,
			}
		},
	}
	var event []byte
	j.got = func(only []int, body []byte, failed error) (left []int, more bool) {
		if err = failed; err != nil {
			return nil, false
		}
		r := readFields(body)
		for _, f := range r.failedFiles() {
			m.libraries.failed("asset", f.name, errors.New(f.text))
		}
		if len(r.Rest) == 0 && r.Err() == nil {
			return only, true
		}
		v := r.verdict()
		text, event, err = r.Bytes(), r.Bytes(), errors.Join(v.err, r.Err())
		m.allowance.take(v.cpu)
		if errors.Is(v.err, errMemory) {
			m.allowance.take(m.share(e) + slow)
		}
		return nil, false
	}
	e.opts.Pool.run(ctx, j, []int{0})
	if err != nil {
		return nil, nil, err
	}
	if len(event) == 0 {
		return text, nil, nil
	}
	changed, err = eventOf(event, ev)
	return nil, changed, err
}

// share bounds the CPU time of a mutator's slow runs in a minute: that of a filter, or two runs of its whole budget.
func (m *mutation) share(e *Engine) time.Duration { return max(e.opts.SlowShare, 2*m.budget) }

// leftProgram returns the event as JSON after a mutator has run.
var leftProgram = goja.MustCompile("left", "JSON.stringify(event)", false)

// showProgram turns JSON into the event that mutators see: with its metadata as in JSON, and the metadata's fields
// beside the others too.
var showProgram = goja.MustCompile("show", `(function (text) {
	function flatten(o) {
		if (!o) return;
		["name", "namespace", "labels", "annotations", "created_by"].forEach(function (key) {
			Object.defineProperty(o, key, {
				configurable: true, enumerable: false,
				get: function () { return this.metadata[key]; },
				set: function (value) { this.metadata[key] = value; }
			});
		});
	}
	var event = JSON.parse(text);
	[event, event.check, event.entity].forEach(flatten);
	return event;
})`, false)

func (s *sandbox) mutable(data []byte, budget time.Duration) error {
	event, err := s.watched(budget, func() (goja.Value, error) {
		value, err := s.vm.RunProgram(showProgram)
		if err != nil {
			return nil, err
		}
		show, _ := goja.AssertFunction(value)
		return show(goja.Undefined(), s.vm.ToValue(string(data)))
	})
	if err != nil {
		return err
	}
	return s.vm.Set("event", event)
}

// complete adds the empty lists and objects to an event's JSON that scripts rely on.
func complete(data []byte) ([]byte, error) {
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	fill(tree, reflect.TypeFor[resource.Event]())
	return json.Marshal(tree)
}

// parts are the objects within an event that have metadata of their own.
var parts = []struct {
	name string
	of   reflect.Type
}{{"check", reflect.TypeFor[resource.Check]()}, {"entity", entityType}}

func fill(tree map[string]any, t reflect.Type) {
	meta, _ := tree["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		tree["metadata"] = meta
	}
	for _, name := range []string{"labels", "annotations"} {
		if meta[name] == nil {
			meta[name] = map[string]any{}
		}
	}
	for name, at := range fieldsOfType(t).index {
		if len(at) == 1 && t.FieldByIndex(at).Type.Kind() == reflect.Slice && tree[name] == nil {
			tree[name] = []any{}
		}
	}
	for _, part := range parts {
		if inner, ok := tree[part.name].(map[string]any); ok {
			fill(inner, part.of)
		}
	}
}

// eventOf returns the event that a script left, without the additions of complete.
func eventOf(data []byte, before *resource.Event) (*resource.Event, error) {
	if len(data) > maxMutated {
		return nil, errors.New("it leaves an event that is too large")
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil || tree == nil {
		return nil, errors.New("it leaves something that is no event")
	}
	nest(tree)
	for _, part := range parts {
		if inner, ok := tree[part.name].(map[string]any); ok {
			nest(inner)
		}
	}
	if id, ok := tree["id"].(string); !ok || id == "" {
		delete(tree, "id")
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("read the event it leaves: %w", err)
	}
	ev := &resource.Event{}
	if err := json.Unmarshal(data, ev); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("it leaves a %s as event.%s, where an event has %s", wrong.Value, wrong.Field, kindName(wrong.Type))
		}
		return nil, fmt.Errorf("read the event it leaves: %w", err)
	}
	if ev.ID == nil {
		ev.ID = before.ID
	}
	empty(reflect.ValueOf(ev).Elem(), reflect.ValueOf(before).Elem())
	if ev.Check != nil && before.Check != nil {
		empty(reflect.ValueOf(ev.Check).Elem(), reflect.ValueOf(before.Check).Elem())
	}
	if ev.Entity != nil && before.Entity != nil {
		empty(reflect.ValueOf(ev.Entity).Elem(), reflect.ValueOf(before.Entity).Elem())
	}
	return ev, nil
}

// kindName names a type for authors of scripts.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	}
	return "a number (" + t.Kind().String() + ")"
}

// nest moves the fields of metadata where they belong, if a script has created an object of its own.
func nest(tree map[string]any) {
	for _, name := range []string{"name", "namespace", "labels", "annotations", "created_by"} {
		value, ok := tree[name]
		if !ok {
			continue
		}
		delete(tree, name)
		meta, _ := tree["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
			tree["metadata"] = meta
		}
		meta[name] = value
	}
}

// empty removes the empty lists that were not there before.
func empty(after, before reflect.Value) {
	for i := range after.NumField() {
		f := after.Field(i)
		if f.Kind() == reflect.Slice && f.Len() == 0 && before.Field(i).IsNil() {
			f.SetZero()
		}
	}
}

// Forget forgets definitions that were evaluated once. The router calls it for drafts.
func (e *Engine) Forget(filters []*resource.EventFilter, mutators []*resource.Mutator) {
	for _, def := range filters {
		e.filters.Delete(def)
	}
	for _, def := range mutators {
		e.mutators.Delete(def)
	}
}

// KeepMutators forgets all mutators except these.
func (e *Engine) KeepMutators(defs iter.Seq[*resource.Mutator]) { keep(&e.mutators, defs) }

func keep[T any](known *sync.Map, defs iter.Seq[*T]) {
	wanted := map[*T]struct{}{}
	for def := range defs {
		wanted[def] = struct{}{}
	}
	known.Range(func(def, _ any) bool {
		if _, ok := wanted[def.(*T)]; !ok {
			known.Delete(def)
		}
		return true
	})
}
