package references

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/handler/send"
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
// comparisons, fields that the templates of a handler read and that do not exist, and scheduled checks that check nothing.
func Doubts(obj any) (texts []string) {
	if h, ok := obj.(*resource.Handler); ok {
		return send.UnknownFields(h)
	}
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

const (
	// leastLabel and longestLabel bound the labels that are compared, in bytes: short ones are near to anything.
	leastLabel, longestLabel = 4, 64
	// mostLabels bounds the labels of a namespace that each is compared with, and mostLabelSearches how many are compared.
	mostLabels, mostLabelSearches = 5000, 100
)

// Labels says which labels the expressions of a filter read that no entity of the namespace has, if one has a label of a similar
// name. Others may come with the first entity that has them. Labels of checks are left out: events of checks that are not
// defined have some, too.
func Labels(sn *config.Snapshot, obj any) (texts []string) { return newFinder(sn).unknownLabels(obj) }

func (f *finder) unknownLabels(obj any) (texts []string) {
	e, ok := obj.(*resource.EventFilter)
	if !ok {
		return nil
	}
	for i, w := range wordsOf(obj) {
		for _, label := range w.Labels {
			if len(label) < leastLabel || len(label) > longestLabel {
				continue
			}
			known := f.labelsOf(e.Metadata.Namespace)
			if _, found := slices.BinarySearch(known, label); found || f.searches == mostLabelSearches {
				continue
			}
			f.searches++
			if near := optionerr.Nearest(label, known[:min(mostLabels, len(known))]); near != "" && !numbered(label, near) {
				texts = append(texts, fmt.Sprintf("expression %d: no entity has the label %s (%s?)", i+1, label, near))
			}
		}
	}
	return texts[:min(maxNearest, len(texts))]
}

// numbered reports whether two names differ only in their digits or in the last character, as disk_a and disk_b do: such names
// are members of a series.
func numbered(a, b string) bool {
	digit := func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}
	return strings.Map(digit, a) == strings.Map(digit, b) || len(a) == len(b) && a[:len(a)-1] == b[:len(b)-1]
}

// labelsOf returns the names of the labels that entities of a namespace have, sorted, without those that are too long.
func (f *finder) labelsOf(namespace string) []string {
	if list, known := f.labels[namespace]; known {
		return list
	}
	names := map[string]bool{}
	for e := range config.List(f.sn, config.Entities, namespace) {
		for name := range e.Metadata.Labels {
			if len(name) <= longestLabel {
				names[name] = true
			}
		}
	}
	f.labels[namespace] = slices.Sorted(maps.Keys(names))
	return f.labels[namespace]
}

func scheduled(c *resource.CheckConfig) bool { return c.Publish && (c.Interval > 0 || c.Cron != "") }

const noSubscription = "it has no subscription, so no agent runs it"
