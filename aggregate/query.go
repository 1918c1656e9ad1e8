package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/computed"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// query is an aggregate with its parsed selectors.
type query struct {
	def     *resource.Aggregate
	members *selector.Selector
	failing *selector.Selector // of the members
	own     *selector.Selector // results of the aggregate
	groupBy string             // "" for none
}

func must(s *selector.Selector, err error) *selector.Selector {
	if err != nil {
		panic(err) // a constant selector is valid
	}
	return s
}

// Parse checks an aggregate's selectors for their author. It also refuses fields that events do not have, with which a
// stored aggregate from before still runs.
func Parse(def *resource.Aggregate) error {
	q, err := newQuery(def)
	if err != nil {
		return err
	}
	return q.check()
}

// check returns an error if the selectors ask for fields that events do not have.
func (q *query) check() error {
	events := selector.NamesOf((*resource.Event)(nil))
	if err := events.Check(q.members); err != nil {
		return err
	}
	if err := events.Check(q.failing); err != nil {
		return fmt.Errorf("failing: %w", err)
	}
	return nil
}

func newQuery(def *resource.Aggregate) (*query, error) {
	q := &query{def: def}
	chosen, err := selector.Parse(def.LabelSelector, def.FieldSelector)
	if err != nil {
		return nil, err
	}
	failing := def.Failing
	if failing == "" {
		failing = "event.is_incident == true"
	}
	bad, err := selector.Parse("", failing)
	if err != nil {
		return nil, fmt.Errorf("failing: %w", err)
	}
	name := def.Metadata.Name
	others, err := selector.Parse(fmt.Sprintf("%s != %q", resource.AggregateLabel, name), "")
	if err != nil {
		return nil, err
	}
	if q.own, err = selector.Parse(fmt.Sprintf("%s == %q", resource.AggregateLabel, name), ""); err != nil {
		return nil, err
	}
	var heard *selector.Selector
	if def.IgnoreSilenced {
		heard = must(selector.Parse("", "event.is_silenced == false"))
	}
	q.members = selector.All(chosen, heard, others)
	q.failing = selector.All(q.members, bad)
	if def.GroupBy != "" {
		q.groupBy = def.GroupBy
		if !strings.HasPrefix(q.groupBy, "event.") {
			q.groupBy = "event." + q.groupBy
		}
		if !selector.Knows("event", (*resource.Event)(nil), q.groupBy) && !slices.Contains(eventFields, q.groupBy) &&
			!strings.HasPrefix(q.groupBy, "event.labels.") {
			return nil, fmt.Errorf("group_by: events have no field %q", def.GroupBy)
		}
	}
	return q, nil
}

// eventFields are the fields of selectors that an event's JSON does not have.
var eventFields = []string{"event.name", "event.namespace", "event.is_silenced", "event.is_incident"}

// Evaluate returns what an aggregate would find now among the events that the reader may list, nil for all. It submits
// nothing.
func (r *Runner) Evaluate(ctx context.Context, def *resource.Aggregate,
	reader *selector.Selector) ([]resource.AggregateEvaluation, error) {
	q, err := newQuery(def)
	if err != nil {
		return nil, err
	}
	limit, err := r.limit(def)
	if err != nil {
		return nil, err
	}
	return r.evaluate(ctx, q, selector.All(limit, reader))
}

// group is one group's findings.
type group struct {
	members int
	failing []state.Key
}

// evaluate finds an aggregate's results among the events that limit selects, nil for all.
func (r *Runner) evaluate(ctx context.Context, q *query,
	limit *selector.Selector) ([]resource.AggregateEvaluation, error) {
	namespace := q.def.Metadata.Namespace
	members, err := r.source.Find(ctx, namespace, selector.All(limit, q.members))
	if err != nil {
		return nil, fmt.Errorf("find members: %w", err)
	}
	failing, err := r.source.Find(ctx, namespace, selector.All(limit, q.failing))
	if err != nil {
		return nil, fmt.Errorf("find failing members: %w", err)
	}
	groups := map[string]*group{}
	values := newValues(r.source, q.groupBy)
	for _, k := range members {
		value, err := values.of(ctx, k)
		if err != nil {
			return nil, err
		}
		if value == "" && q.groupBy != "" {
			continue // it belongs to no group
		}
		g := groups[value]
		if g == nil {
			if len(groups) == r.opts.MaxGroups {
				return nil, fmt.Errorf("there are more than %d groups", r.opts.MaxGroups)
			}
			g = new(group)
			groups[value] = g
		}
		g.members++
	}
	if q.groupBy == "" && len(groups) == 0 {
		groups[""] = new(group)
	}
	for _, k := range failing {
		value, err := values.of(ctx, k)
		if err != nil {
			return nil, err
		}
		// A member that has just begun to fail may be missing from the first list.
		if g := groups[value]; g != nil && len(g.failing) < g.members {
			g.failing = append(g.failing, k)
		}
	}
	results := make([]resource.AggregateEvaluation, 0, len(groups))
	for value, g := range groups {
		results = append(results, g.result(q, value))
	}
	slices.SortFunc(results, func(a, b resource.AggregateEvaluation) int { return strings.Compare(a.Group, b.Group) })
	return separate(results), nil
}

// shownFailing is how many failing members a result's output names.
const shownFailing = 20

func (g *group) result(q *query, value string) resource.AggregateEvaluation {
	out := resource.AggregateEvaluation{
		AggregateCount: resource.AggregateCount{Group: value, Members: g.members, Failing: len(g.failing)},
		Entity:         q.def.EntityName(), Check: q.def.CheckName(),
	}
	if g.members > 0 {
		out.Percent = float64(out.Failing) * 100 / float64(g.members)
	}
	if value != "" {
		out.Entity += "-" + resourceName(value)
	}
	var b strings.Builder
	var line string
	out.Status, line = statusOf(q.def, &out.AggregateCount)
	b.WriteString(line + "\n")
	for i, k := range g.failing {
		if i == shownFailing {
			fmt.Fprintf(&b, "and %d more\n", len(g.failing)-i)
			break
		}
		b.WriteString(k.Entity + "/" + k.Check + "\n")
	}
	out.Output = b.String()
	return out
}

// resourceName turns a value into a part of a resource name.
func resourceName(value string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && r != ':' && resource.ValidName(string(r)) {
			return r
		}
		return '_'
	}, value)
}

// separate gives different names to groups whose values lead to the same name.
func separate(results []resource.AggregateEvaluation) []resource.AggregateEvaluation {
	used := map[string]bool{}
	for i := range results {
		base := results[i].Entity
		for n := 2; used[results[i].Entity]; n++ {
			results[i].Entity = fmt.Sprintf("%s.%d", base, n)
		}
		used[results[i].Entity] = true
	}
	return results
}

// values finds the values of a field in events. Fields of entities come from the definitions; for other fields the
// events are read.
type values struct {
	source source
	field  string
	known  map[state.Key]string
}

func newValues(from source, field string) *values {
	return &values{source: from, field: field, known: map[state.Key]string{}}
}

const entityPrefix = "event.entity"

func (v *values) of(ctx context.Context, k state.Key) (string, error) {
	switch v.field {
	case "":
		return "", nil
	case "event.entity.name":
		return k.Entity, nil
	case "event.check.name":
		return k.Check, nil
	case "event.name":
		return k.Entity + "/" + k.Check, nil
	case "event.namespace":
		return k.Namespace, nil
	}
	if strings.HasPrefix(v.field, entityPrefix+".labels.") || strings.HasPrefix(v.field, entityPrefix+".annotations.") {
		if cfg, ok := v.source.entity(k.Namespace, k.Entity); ok {
			return selector.Of(entityPrefix, cfg).Field(v.field).String(), nil
		}
		return "", nil
	}
	if value, ok := v.known[k]; ok {
		return value, nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	ev, err := v.source.Event(k)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read member %s/%s: %w", k.Entity, k.Check, err)
	}
	value := selector.Event(ev).Field(v.field).String()
	v.known[k] = value
	return value, nil
}

// source provides definitions and events; tests have their own.
type source interface {
	computed.Source
	definitions() []*resource.Aggregate
	onChange(f func()) (cancel func())
	entity(namespace, name string) (*resource.EntityConfig, bool)
}

// events is the source of a backend.
type events struct {
	computed.State
	config *config.Store
}

func (e *events) definitions() []*resource.Aggregate {
	return slices.Collect(config.List(e.config.Snapshot(), config.Aggregates, ""))
}

func (e *events) onChange(f func()) (cancel func()) {
	return e.config.OnChange(func(c config.Change) {
		if c.Kind == config.Aggregates.String() {
			f()
		}
	})
}

func (e *events) entity(namespace, name string) (*resource.EntityConfig, bool) {
	return config.Get(e.config.Snapshot(), config.Entities, namespace, name)
}
