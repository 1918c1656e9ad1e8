package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/view"
)

// Query says which entities a list has, and in which order.
type Query struct {
	Namespace string             // "" for all
	Selector  *selector.Selector // of entities; nil for all
	// Text must differ for queries with different selectors: readers with equal queries share a list.
	Text  string
	Order Order
	// Blind is for readers who may not see events: no entity of the list has any.
	Blind bool
	State State
	// Owner is who asks, for example a user's name: the lists of one may have half of all entities at most. "" may have all.
	Owner string
}

// State says which entities a list has by what selectors do not know. The zero State is all.
type State struct {
	agents  uint8 // a bit for each Agent; 0 for all
	classes uint8 // the same for the worst class
	backend string
}

var (
	agentNames = [agents]string{"proxy", "connected", "late", "gone"}
	classNames = [NoEvents + 1]string{"critical", "warning", "unknown", "silenced", "ok", "none"}
)

// ParseState reads states of agents (connected, late, gone or proxy) and worst classes (critical, warning, unknown, silenced,
// ok or none), each "" for all or some with commas between them, and takes the name of the member that agents must be
// connected to, or "".
func ParseState(agent, worst, backend string) (s State, err error) {
	if s.agents, err = bitsOf(agent, agentNames[:]); err != nil {
		return State{}, fmt.Errorf("agent: %w", err)
	}
	if s.classes, err = bitsOf(worst, classNames[:]); err != nil {
		return State{}, fmt.Errorf("worst: %w", err)
	}
	s.backend = backend
	return s, nil
}

func bitsOf(text string, names []string) (bits uint8, err error) {
	if text == "" {
		return 0, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return 0, fmt.Errorf("%q is none of %s", resource.Short(name), strings.Join(names, ", "))
		}
		bits |= 1 << i
	}
	return bits, nil
}

// has reports whether a list has a row, as far as its state says.
func (q *Query) has(r *Row) bool {
	s := &q.State
	return (s.agents == 0 || s.agents&(1<<r.Agent) != 0) && (s.classes == 0 || s.classes&(1<<q.worst(r)) != 0) &&
		(s.backend == "" || s.backend == r.Backend)
}

// worst is Row.Worst, as the readers of the query see it.
func (q *Query) worst(r *Row) view.Class {
	if q.Blind {
		return NoEvents
	}
	return r.Worst()
}

// Order is the order of a list's entities. The zero Order is by state.
type Order struct {
	by       orderBy
	reversed bool
}

type orderBy uint8

const (
	byState    orderBy = iota // the worst class of events first, then the most of that class, then agents that are gone or late
	byName                    // by name, then by namespace
	byLastSeen                // those seen last first
	byVersion                 // the lowest version of the agent first
)

var orders = []string{"state", "name", "last_seen", "version"}

// ParseOrder reads the name of an order: state, name, last_seen or version, reversed with a "-" before it.
func ParseOrder(text string) (Order, error) {
	name, reversed := strings.CutPrefix(text, "-")
	if i := slices.Index(orders, name); i >= 0 {
		return Order{by: orderBy(i), reversed: reversed}, nil
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
func (q *Query) compare(x, y *Row) int {
	c := 0
	switch q.Order.by {
	case byState:
		worst := q.worst(x)
		if c = cmp.Compare(worst, q.worst(y)); c == 0 && worst < view.OK {
			c = cmp.Compare(y.Events[worst], x.Events[worst])
		}
		if c == 0 {
			c = cmp.Compare(y.Agent, x.Agent)
		}
	case byLastSeen:
		c = cmp.Compare(y.LastSeen, x.LastSeen)
	case byVersion:
		c = strings.Compare(x.Host.order, y.Host.order)
	}
	if c == 0 {
		c = strings.Compare(x.Config.Metadata.Name, y.Config.Metadata.Name)
	}
	if c == 0 {
		c = strings.Compare(x.Config.Metadata.Namespace, y.Config.Metadata.Namespace)
	}
	if q.Order.reversed {
		return -c
	}
	return c
}

// Group says by what entities are counted. The zero Group is none.
type Group struct {
	by    groupBy
	label string
}

type groupBy uint8

const (
	byNone groupBy = iota
	groupNamespace
	groupClass
	groupOS
	groupPlatform
	groupVersion
	groupSubscription
	groupBackend
	groupLabel
)

const labelPrefix = "label:"

var groups = []string{"", "namespace", "class", "os", "platform", "version", "subscription", "backend"}

// ParseGroup reads what to group by: namespace, class, os, platform, version, subscription, backend, or label:KEY.
func ParseGroup(text string) (Group, error) {
	if i := slices.Index(groups, text); i >= 0 {
		return Group{by: groupBy(i)}, nil
	}
	if key, ok := strings.CutPrefix(text, labelPrefix); ok && key != "" {
		return Group{by: groupLabel, label: key}, nil
	}
	return Group{}, fmt.Errorf("%q is no group: it must be %s or label:KEY", text, strings.Join(groups[1:], ", "))
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

// each passes the groups of an entity to yield: one, "" if it has none, but one for each subscription except its own.
func (g Group) each(r *Row, yield func(string)) {
	m := &r.Config.Metadata
	switch g.by {
	case groupNamespace:
		yield(m.Namespace)
	case groupClass:
		yield(r.Config.EntityClass)
	case groupOS:
		yield(r.Host.System.OS)
	case groupPlatform:
		yield(r.Host.System.Platform)
	case groupVersion:
		yield(r.Host.Version)
	case groupBackend:
		yield(r.Backend)
	case groupLabel:
		value := m.Labels[g.label]
		if value != "" && r.Config.Redacts(g.label) {
			value = resource.Redacted
		}
		yield(value)
	case groupSubscription:
		own, some := resource.EntitySubscription(m.Name), false
		for i, name := range r.Config.Subscriptions {
			if name != own && !slices.Contains(r.Config.Subscriptions[:i], name) {
				yield(name)
				some = true
			}
		}
		if !some {
			yield("")
		}
	default:
		yield("")
	}
}

// Counts has the number of entities, by the states of their agents and by their worst classes.
type Counts struct {
	Agents [agents]int
	Worst  [NoEvents + 1]int
}

// Total is the number of entities.
func (c *Counts) Total() (n int) {
	for _, one := range c.Agents {
		n += one
	}
	return n
}

func (c *Counts) add(r *Row, worst view.Class) {
	c.Agents[r.Agent]++
	c.Worst[worst]++
}
