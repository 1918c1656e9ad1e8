package references

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxExpressions bounds how many expressions of a filter are read for names.
const maxExpressions = 100

// calendars are what in_calendar asks for.
var calendars = resource.KindFor[resource.Calendar]()

// usesOf returns what a definition names: resource.Uses, and the calendars that the expressions of a filter ask for.
func usesOf(obj any) (namespace string, uses []resource.Use) {
	namespace, uses = resource.Uses(obj)
	for _, w := range wordsOf(obj) {
		for _, name := range w.Calendars {
			uses = append(uses, resource.Use{Kind: calendars, Name: name})
		}
	}
	return namespace, uses
}

// wordsOf reads the expressions of a filter; of other definitions there is nothing to read.
func wordsOf(obj any) (all []filter.Words) {
	f, ok := obj.(*resource.EventFilter)
	if !ok {
		return nil
	}
	for _, e := range f.Expressions[:min(maxExpressions, len(f.Expressions))] {
		all = append(all, filter.WordsOf(e))
	}
	return all
}

// Doubts says what in a definition mostly never does what its author meant: members of the event that the expressions of a
// filter read and no event has, functions they call that do not exist (assets may define functions), assignments in place of
// comparisons, and scheduled checks that check nothing.
func Doubts(obj any) (texts []string) {
	if c, ok := obj.(*resource.CheckConfig); ok && scheduled(c) {
		if len(c.Subscriptions) == 0 {
			texts = append(texts, noSubscription)
		}
		if strings.TrimSpace(c.Command) == "" {
			texts = append(texts, "its command is empty, so its result is always OK")
		}
		return texts
	}
	f, _ := obj.(*resource.EventFilter)
	for i, w := range wordsOf(obj) {
		if w.Assigns {
			texts = append(texts, fmt.Sprintf("expression %d assigns a value with =: to compare, write ==", i+1))
		}
		for _, m := range w.Members {
			texts = append(texts, fmt.Sprintf("expression %d: no event has %s", i+1, m))
		}
		for _, name := range w.Functions {
			if len(f.RuntimeAssets) == 0 {
				texts = append(texts, fmt.Sprintf("expression %d: there is no function %s", i+1, name))
			}
		}
	}
	return texts[:min(maxNearest, len(texts))]
}

// Doubt is a text about a definition that tells about names of a resource.
type Doubt struct{ Resource, Text string }

// Labels says which labels the expressions of a filter read that no entity or no check of the namespace has, if one of them has
// a label of a similar name. Other labels may come with the first entity or check that has them.
func Labels(sn *config.Snapshot, obj any) []Doubt { return newFinder(sn).unknownLabels(obj) }

func (f *finder) unknownLabels(obj any) (found []Doubt) {
	e, ok := obj.(*resource.EventFilter)
	if !ok {
		return nil
	}
	of := map[string]string{"entity": config.Entities.String(), "check": config.Checks.String()}
	for i, w := range wordsOf(obj) {
		for _, label := range w.Labels {
			known := f.labelsOf(label.Of, e.Metadata.Namespace)
			if known[label.Key] {
				continue
			}
			if near := optionerr.Nearest(label.Key, slices.Sorted(maps.Keys(known))); near != "" {
				found = append(found, Doubt{of[label.Of],
					fmt.Sprintf("expression %d: no %s has the label %s (%s?)", i+1, label.Of, label.Key, near)})
			}
		}
	}
	return found[:min(maxNearest, len(found))]
}

// labelsOf returns the names of the labels that entities or checks of a namespace have.
func (f *finder) labelsOf(what, namespace string) map[string]bool {
	key := what + " " + namespace
	if f.labels[key] != nil {
		return f.labels[key]
	}
	known := map[string]bool{}
	note := func(m *resource.ObjectMeta) {
		for name := range m.Labels {
			known[name] = true
		}
	}
	if what == "entity" {
		for e := range config.List(f.sn, config.Entities, namespace) {
			note(&e.Metadata)
		}
	} else {
		for c := range config.List(f.sn, config.Checks, namespace) {
			note(&c.Metadata)
		}
	}
	f.labels[key] = known
	return known
}

func scheduled(c *resource.CheckConfig) bool { return c.Publish && (c.Interval > 0 || c.Cron != "") }

const noSubscription = "it has no subscription, so no agent runs it"
