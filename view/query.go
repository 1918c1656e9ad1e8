package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Query says which events a view has, and how.
type Query struct {
	Namespace string             // "" for all
	Selector  *selector.Selector // nil for all
	// Text must differ for queries with different selectors: readers with equal queries share a view.
	Text  string
	Order Order
	Group Group
	// Owner is who asks, for example a user's name. Of those whose views have most events, the newest is ended when all have too many.
	Owner string
}

// Order is the order of a view's events. The zero Order is by severity.
type Order struct {
	by       orderBy
	reversed bool
}

type orderBy uint8

const (
	bySeverity orderBy = iota // incidents first, the worst and then the newest of them; then by name
	bySince                   // the newest change between OK and not OK first
	byEntity                  // by entity, then by check
	byCheck                   // by check, then by entity
)

var orders = []string{"severity", "since", "entity", "check"}

// ParseOrder reads the name of an order: severity, since, entity or check, reversed with a "-" before it.
func ParseOrder(text string) (Order, error) {
	name, reversed := strings.CutPrefix(text, "-")
	for i, known := range orders {
		if name == known {
			return Order{by: orderBy(i), reversed: reversed}, nil
		}
	}
	return Order{}, fmt.Errorf("%q is no order: it must be %s, or one of them with a - before it", text, strings.Join(orders, ", "))
}

// String is what ParseOrder reads.
func (o Order) String() string {
	if o.reversed {
		return "-" + orders[o.by]
	}
	return orders[o.by]
}

// compare is negative if x comes before y.
func (o Order) compare(x, y *item) int {
	c := 0
	switch o.by {
	case bySeverity:
		if c = cmp.Compare(x.class, y.class); c == 0 && x.class != OK {
			c = cmp.Compare(y.since, x.since)
		}
	case bySince:
		c = cmp.Compare(y.since, x.since)
	case byCheck:
		c = strings.Compare(x.key.Check, y.key.Check)
	}
	if c == 0 {
		c = strings.Compare(x.key.Entity, y.key.Entity)
	}
	if c == 0 {
		c = strings.Compare(x.key.Check, y.key.Check)
	}
	if c == 0 {
		c = strings.Compare(x.key.Namespace, y.key.Namespace)
	}
	if o.reversed {
		return -c
	}
	return c
}

func (o Order) less(x, y *item) bool { return o.compare(x, y) < 0 }

// Group says by what the events of a view are counted. The zero Group is none.
type Group struct {
	by    groupBy
	label string
}

type groupBy uint8

const (
	byNone groupBy = iota
	groupEntity
	groupCheck
	groupNamespace
	groupLabel
)

const labelPrefix = "label:"

var groups = []string{"", "entity", "check", "namespace"}

// ParseGroup reads what to group by: entity, check, namespace, or label:KEY.
func ParseGroup(text string) (Group, error) {
	for i, known := range groups {
		if text == known {
			return Group{by: groupBy(i)}, nil
		}
	}
	if key, ok := strings.CutPrefix(text, labelPrefix); ok && key != "" {
		return Group{by: groupLabel, label: key}, nil
	}
	return Group{}, fmt.Errorf("%q is no group: it must be entity, check, namespace or label:KEY", text)
}

// String is what ParseGroup reads.
func (g Group) String() string {
	if g.by == groupLabel {
		return labelPrefix + g.label
	}
	return groups[g.by]
}

// Grouped reports whether there are groups.
func (g Group) Grouped() bool { return g.by != byNone }

// labels returns the keys of the labels that are needed.
func (g Group) labels() []string {
	if g.by != groupLabel {
		return nil
	}
	return []string{g.label}
}

// of returns the group of an event; "" if its label is missing.
func (g Group) of(at *state.Glance) string {
	switch g.by {
	case groupEntity:
		return at.Entity
	case groupCheck:
		return at.Check
	case groupNamespace:
		return at.Namespace
	case groupLabel:
		return at.Labels[0]
	}
	return ""
}

// Class says how bad an event is. Each event is in one class.
type Class uint8

// The classes, the worst first. An incident that is silenced or acknowledged is Silenced, and of no other class.
const (
	Critical Class = iota
	Warning
	Unknown
	Silenced
	OK
	classes
)

// ClassOf returns the class of an event.
func ClassOf(at *state.Glance) Class {
	switch {
	case at.Status == 0:
		return OK
	case at.Silenced:
		return Silenced
	case at.Status == 1:
		return Warning
	case at.Status == 2:
		return Critical
	}
	return Unknown
}

// Counts has the number of events of each class.
type Counts [classes]int

// Total is the number of events.
func (c Counts) Total() (n int) {
	for _, one := range c {
		n += one
	}
	return n
}
