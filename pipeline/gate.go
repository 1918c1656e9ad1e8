package pipeline

import (
	"iter"
	"slices"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
)

// gate reports whether any handler of a namespace may take an event that is not decoded yet, so that its handlers'
// names are unknown. Most handlers want incidents only, so most events end here.
type gate struct {
	snapshot *config.Snapshot
	open     map[string]uint16  // by namespace: the kinds of events (kindOf) that pass the filters of some handler
	falls    map[[2]string]bool // the namespace and name of each check whose events go through a fallback pipeline
}

// newGate reads all handlers and the workflows of all pipelines. It assumes that filters of users pass everything.
// Sets do not count: the filters of their members do.
func newGate(sn *config.Snapshot) *gate {
	g := &gate{snapshot: sn, open: map[string]uint16{}}
	for h := range config.List(sn, config.Handlers, "") {
		if h.Type != "set" {
			g.open[h.Metadata.Namespace] |= kindsFor(slices.Values(h.Filters))
		}
	}
	for p := range config.List(sn, config.Pipelines, "") {
		for i := range p.Workflows {
			g.open[p.Metadata.Namespace] |= kindsFor(workflow.FilterNames(&p.Workflows[i]))
		}
	}
	for c := range config.List(sn, config.Checks, "") {
		if c.FallbackPipeline != nil {
			if g.falls == nil {
				g.falls = map[[2]string]bool{}
			}
			g.falls[[2]string{c.Metadata.Namespace, c.Metadata.Name}] = true
		}
	}
	return g
}

// holdsFor reports whether the gate is right for another snapshot as well. Most changes are of entities: a fleet that
// registers makes thousands.
func (g *gate) holdsFor(sn *config.Snapshot) bool {
	return config.Same(g.snapshot, sn, config.Handlers) && config.Same(g.snapshot, sn, config.Pipelines) &&
		config.Same(g.snapshot, sn, config.Checks)
}

// kindsFor returns the kinds of events that pass these filters.
func kindsFor(filters iter.Seq[string]) uint16 {
	kinds := ^uint16(0)
	for name := range filters {
		pass, ok := filter.Builtin(name)
		if !ok {
			continue
		}
		for kind := range uint16(16) {
			if !pass(factsOfKind(kind)) {
				kinds &^= 1 << kind
			}
		}
	}
	return kinds
}

// kindOf returns the number of an event's facts, from 0 to 15; factsOfKind is its inverse.
func kindOf(f filter.Facts) (kind uint16) {
	if f.Incident {
		kind |= 1
	}
	if f.Resolution {
		kind |= 2
	}
	if f.Silenced {
		kind |= 4
	}
	if f.HasMetrics {
		kind |= 8
	}
	return kind
}

func factsOfKind(kind uint16) filter.Facts {
	return filter.Facts{Incident: kind&1 != 0, Resolution: kind&2 != 0, Silenced: kind&4 != 0, HasMetrics: kind&8 != 0}
}

// passes reports whether a handler of the namespace may take the event, and whether the namespace has any handler that
// is not a set.
func (g *gate) passes(namespace string, facts filter.Facts) (passes, defined bool) {
	kinds, defined := g.open[namespace]
	return kinds&(1<<kindOf(facts)) != 0, defined
}

// routed reports whether an event goes somewhere although it names neither handlers nor pipelines.
func (g *gate) routed(namespace, check string) bool {
	return g.falls != nil && g.falls[[2]string{namespace, check}]
}

// gate returns the gate for the present definitions.
func (r *Router) gate(sn *config.Snapshot) *gate {
	g := r.lastGate.Load()
	if g != nil && g.snapshot == sn {
		return g
	}
	var next *gate
	if g != nil && g.holdsFor(sn) {
		next = &gate{snapshot: sn, open: g.open, falls: g.falls}
	} else {
		next = newGate(sn)
	}
	var before *config.Snapshot
	if g != nil {
		before = g.snapshot
	}
	r.workflows.Prepare(before, sn)
	r.lastGate.Store(next)
	return next
}
