package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

// unknownNames says what a silence names that no entity, check or event of its namespace has, with the nearest name: it hits
// nothing most often because of a typing error. Names that the user may not list are not told.
func (s *silences) unknownNames(user *auth.Identity, one *resource.Silenced, events *state.Page) (texts []string) {
	sn, namespace, may := s.api.opts.Config.Snapshot(), one.Metadata.Namespace, s.api.mayListEach(user)
	seesEntities := may(config.Entities.String(), namespace)
	seesChecks := may(config.Checks.String(), namespace)
	unknown := func(what, name string, known map[string]bool) {
		if len(known) > 0 && !known[name] {
			texts = append(texts, "no "+what+" "+name+maybe(name, known))
		}
	}
	entity, single := silence.EntityOf(one)
	switch {
	case one.Subscription == "" || one.Subscription == "*" || !seesEntities:
	case single:
		known := map[string]bool{}
		for e := range config.List(sn, config.Entities, namespace) {
			known[e.Metadata.Name] = true
		}
		unknown("entity is named", entity, known)
	case seesChecks:
		known := map[string]bool{}
		for e := range config.List(sn, config.Entities, namespace) {
			note(known, e.Subscriptions)
		}
		for c := range config.List(sn, config.Checks, namespace) {
			note(known, c.Subscriptions)
		}
		maps.DeleteFunc(known, func(name string, _ bool) bool { return strings.HasPrefix(name, resource.EntitySubscription("")) })
		unknown("entity and no check has the subscription", one.Subscription, known)
	}
	checks := map[string]bool{}
	for key := range events.Keys() {
		checks[key.Check] = true // it may be defined on a host
	}
	if seesChecks {
		for c := range config.List(sn, config.Checks, namespace) {
			checks[c.Metadata.Name] = true
		}
	}
	if one.Check != "" && one.Check != "*" {
		unknown("check is named", one.Check, checks)
	}
	if seesEntities && seesChecks {
		texts = append(texts, unknownValues(sn, one, checks)...)
	}
	return texts
}

// note adds names to those that are known.
func note(known map[string]bool, names []string) {
	for _, name := range names {
		known[name] = true
	}
}

// maybe ends a text about an unknown name with the one that may be meant.
func maybe(name string, known map[string]bool) string {
	if near := optionerr.Nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
		return " (" + near + "?)"
	}
	return ""
}

// unknownValues says which labels, names and subscriptions of a silence's selectors no entity and no check has. checks are the
// names of those that there are.
func unknownValues(sn *config.Snapshot, one *resource.Silenced, checks map[string]bool) (texts []string) {
	selects, err := selector.Parse(one.LabelSelector, one.FieldSelector)
	if err != nil || selects == nil {
		return nil // the silence was refused, or has no selectors
	}
	var samples []selector.Fields
	keys := map[string]bool{}
	for e := range config.List(sn, config.Entities, one.Metadata.Namespace) {
		samples = append(samples, selector.Event(&resource.Event{Entity: resource.JoinEntity(e, nil)}))
		for key := range e.Metadata.Labels {
			keys[key] = true
		}
	}
	for c := range config.List(sn, config.Checks, one.Metadata.Namespace) {
		samples = append(samples, selector.Event(&resource.Event{Check: &resource.Check{Metadata: c.Metadata, Subscriptions: c.Subscriptions}}))
		for key := range c.Metadata.Labels {
			keys[key] = true
		}
	}
	for name := range checks {
		samples = append(samples, selector.Event(&resource.Event{Check: &resource.Check{Metadata: resource.ObjectMeta{Name: name}}}))
	}
	for _, t := range selects.Terms() {
		key, field := labelAndField(t)
		wanted := t.Wanted()
		if field == "" || len(wanted) == 0 {
			continue
		}
		known := map[string]bool{}
		for _, sample := range samples {
			for _, value := range t.Value(sample).Parts() {
				known[value] = true
			}
		}
		switch {
		case slices.ContainsFunc(wanted, func(w string) bool { return known[w] }):
		case len(known) == 0 && key != "" && len(keys) > 0: // silences often come before the first agent
			texts = append(texts, fmt.Sprintf("no entity and no check has a label %s%s", key, maybe(key, keys)))
		case len(known) > 0:
			delete(known, resource.Redacted)
			for _, w := range wanted {
				texts = append(texts, fmt.Sprintf("no entity and no check has %s %q%s", field, w, maybe(w, known)))
			}
		}
	}
	return texts
}

// labelAndField returns the label that a term is about, if it is about one, and what the term is about, in words; "" for what
// definitions do not tell, such as the status of an event.
func labelAndField(t *selector.Term) (label, field string) {
	if t.Label {
		return t.Name, "the label " + t.Name
	}
	for _, prefix := range []string{"event.entity.labels.", "event.check.labels.", "event.labels."} {
		if key, ok := strings.CutPrefix(t.Name, prefix); ok {
			return key, "the label " + key
		}
	}
	switch t.Name {
	case "event.entity.name", "event.check.name":
		return "", "the name"
	case "event.entity.subscriptions", "event.check.subscriptions":
		return "", "the subscription"
	}
	return "", ""
}
