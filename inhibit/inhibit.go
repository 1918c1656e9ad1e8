// Package inhibit decides which incidents are only consequences: something that they depend on fails too, so no alert
// about them is needed. A handler's worker calls Inhibited, through workflow.Decide, for each incident that its filters let
// pass; the API calls Explain.
//
// Checks and entities name their dependencies (depends_on, or an annotation), see resource.Dependency. Both functions
// walk from the event's check along the dependencies, and look up in the state which of them fail now. Nothing is kept
// between calls. If the answer cannot be found, the incident is not inhibited. What becomes of an inhibited event is up
// to pipeline/workflow.
//
// A dependency that depends on the event itself, directly or over others, does not inhibit it: two checks that depend
// on each other both alert.
package inhibit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// State reads events. *state.State is one.
type State interface {
	Select(ctx context.Context, query state.Query) (*state.Page, error)
}

// Options configures an Inhibitor.
type Options struct {
	// Config returns the present definitions. Required.
	Config func() *config.Snapshot
	// State holds the present events. Required.
	State State
	// MaxNodes bounds the checks and entities that are visited for one event. An event with more is not inhibited.
	// Default 1000.
	MaxNodes   int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Inhibitor decides whether incidents are inhibited. It is safe for concurrent use.
type Inhibitor struct {
	opts     Options
	rare     *rarelog.Log // for messages that may come for each incident
	asked    *prometheus.CounterVec
	failing  *selector.Selector
	failures func(ctx context.Context, namespace, entity string) ([]string, error) // replaced by tests
}

// New checks the options.
func New(opts Options) (*Inhibitor, error) {
	if opts.Config == nil || opts.State == nil {
		return nil, errors.New("inhibit: config and state are required")
	}
	if opts.MaxNodes < 0 {
		return nil, errors.New("inhibit: MaxNodes must not be negative")
	}
	if opts.MaxNodes == 0 {
		opts.MaxNodes = 1000
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	failing, err := selector.Parse("", "event.is_incident == true")
	if err != nil {
		return nil, fmt.Errorf("inhibit: %w", err)
	}
	i := &Inhibitor{opts: opts, rare: rarelog.New(opts.Logger.With("component", "inhibit")), failing: failing}
	i.failures = i.failingChecks
	i.asked = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_inhibit_incidents_total",
		Help: "Incidents with dependencies that were asked about, by answer: inhibited, not, or failed because the answer could not be found.",
	}, []string{"answer"})
	for _, answer := range []string{"inhibited", "not", "failed"} {
		i.asked.WithLabelValues(answer)
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(i.asked)
	}
	return i, nil
}

// Inhibited reports whether an incident is inhibited, and by what: the path from its first dependency to the failing
// one. Other events are never inhibited, and neither is an incident for which the answer cannot be found: better an
// alert too many than one too few.
func (i *Inhibitor) Inhibited(ctx context.Context, ev *resource.Event) (by []string, inhibited bool) {
	if !ev.IsIncident() || ev.Entity == nil {
		return nil, false
	}
	w := i.walk(ev.Entity.Metadata.Namespace)
	if !w.begin(ev) {
		return nil, false
	}
	if err := w.run(ctx); err != nil {
		i.asked.WithLabelValues("failed").Inc()
		i.rare.Warn("cannot look up dependencies", w.namespace, "namespace", w.namespace, "entity", ev.Entity.Metadata.Name,
			"check", ev.Check.Metadata.Name, "err", err)
		return nil, false
	}
	n, inhibited := w.verdict()
	if !inhibited {
		i.asked.WithLabelValues("not").Inc()
		return nil, false
	}
	i.asked.WithLabelValues("inhibited").Inc()
	return w.way(n), true
}

// Report is an event's dependencies and their effect.
type Report struct {
	// Inhibited says that the event, if it is an incident, is not handled now. By is the path to the reason.
	Inhibited    bool           `json:"inhibited"`
	By           []string       `json:"by,omitempty"`
	Dependencies []Relationship `json:"dependencies"`
	// Cut says that there are too many dependencies to visit. Then nothing is inhibited.
	Cut bool `json:"cut,omitempty"`
}

// Relationship is one dependency of an event.
type Relationship struct {
	Name string `json:"name"` // entity/check, or entity/ for any check of an entity
	// Through is the path to it, without itself.
	Through []string `json:"through,omitempty"`
	Failing bool     `json:"failing"`
	// Circular says that it depends on the event in turn, and so does not inhibit it.
	Circular bool `json:"circular,omitempty"`
}

// Explain returns all dependencies of an event, nearest first.
func (i *Inhibitor) Explain(ctx context.Context, ev *resource.Event) (*Report, error) {
	out := &Report{Dependencies: []Relationship{}}
	if ev.Entity == nil || ev.Check == nil {
		return out, nil
	}
	w := i.walk(ev.Entity.Metadata.Namespace)
	if !w.begin(ev) {
		return out, nil
	}
	if err := w.run(ctx); err != nil && !errors.Is(err, errCut) {
		return nil, err
	} else if err != nil {
		out.Cut = true
	}
	if n, ok := w.verdict(); ok && !out.Cut {
		out.Inhibited, out.By = ev.IsIncident(), w.way(n)
	}
	for n := range w.nodes[1:] {
		one := &w.nodes[n+1]
		way := w.way(n + 1)
		out.Dependencies = append(out.Dependencies, Relationship{
			Name: one.String(), Through: way[:len(way)-1], Failing: one.failing || w.anyFailing(one), Circular: one.circular,
		})
	}
	return out, nil
}

// failingChecks returns the checks of an entity that fail now, from memory.
func (i *Inhibitor) failingChecks(ctx context.Context, namespace, entity string) ([]string, error) {
	page, err := i.opts.State.Select(ctx, state.Query{Namespace: namespace, Entity: entity, Selector: i.failing})
	if err != nil {
		return nil, fmt.Errorf("find failing checks of %s: %w", entity, err)
	}
	checks := make([]string, 0, page.Len())
	for k := range page.Keys() {
		checks = append(checks, k.Check)
	}
	return checks, nil
}

func (i *Inhibitor) walk(namespace string) *walk {
	return &walk{i: i, sn: i.opts.Config(), namespace: namespace}
}

// errCut says that an event has too many dependencies.
var errCut = errors.New("there are too many dependencies")

// walk searches from one event along its dependencies.
type walk struct {
	i         *Inhibitor
	sn        *config.Snapshot
	namespace string

	nodes   []node // the event first, then the others in the order in which they were found: nearest first
	index   map[name]int
	failing map[string][]string // by entity
}

// name is a check of an entity, or any check of it if check is "".
type name struct{ entity, check string }

func (n name) String() string { return n.entity + "/" + n.check }

// node is a dependency of the event.
type node struct {
	name
	from     int   // node through which it was found first
	to       []int // its own dependencies
	failing  bool
	circular bool // it depends on the event
}

// begin finds the event's direct dependencies; false if there are none.
func (w *walk) begin(ev *resource.Event) bool {
	at := name{ev.Entity.Metadata.Name, ev.Check.Metadata.Name}
	own := resource.AnnotatedDependencies(ev.Check.Metadata.Annotations)
	all := resource.AnnotatedDependencies(ev.Entity.Metadata.Annotations)
	check, _ := config.Get(w.sn, config.Checks, w.namespace, at.check)
	entity, _ := config.Get(w.sn, config.Entities, w.namespace, at.entity)
	if len(own)+len(all) == 0 && !dependsOfCheck(check) && !dependsOfEntity(entity) {
		return false
	}
	w.index, w.failing = map[name]int{at: 0}, map[string][]string{}
	w.nodes = append(w.nodes, node{name: at, from: -1})
	w.depend(0, own)
	w.depend(0, all)
	w.expand(0)
	return len(w.nodes) > 1
}

func dependsOfCheck(c *resource.CheckConfig) bool {
	return c != nil && (len(c.DependsOn) > 0 || c.Metadata.Annotations[resource.DependsOnAnnotation] != "")
}

func dependsOfEntity(e *resource.EntityConfig) bool {
	return e != nil && (len(e.DependsOn) > 0 || e.Metadata.Annotations[resource.DependsOnAnnotation] != "")
}

// run visits all reachable nodes.
func (w *walk) run(ctx context.Context) error {
	for n := 1; n < len(w.nodes); n++ {
		if n > w.i.opts.MaxNodes {
			w.nodes = w.nodes[:n]
			return errCut
		}
		at := w.nodes[n].name
		failing, err := w.failuresOf(ctx, at.entity)
		if err != nil {
			return err
		}
		if at.check != "" {
			w.nodes[n].failing = slices.Contains(failing, at.check)
		} else {
			for _, check := range failing {
				w.add(n, name{at.entity, check})
			}
		}
		w.expand(n)
	}
	w.closeCircles()
	return nil
}

func (w *walk) failuresOf(ctx context.Context, entity string) ([]string, error) {
	failing, known := w.failing[entity]
	if known {
		return failing, nil
	}
	failing, err := w.i.failures(ctx, w.namespace, entity)
	w.failing[entity] = failing
	return failing, err
}

// expand adds a node's dependencies by the definitions.
func (w *walk) expand(n int) {
	at := w.nodes[n].name
	if at.check != "" {
		if c, ok := config.Get(w.sn, config.Checks, w.namespace, at.check); ok {
			w.dependOn(n, c.DependsOn)
			w.depend(n, resource.AnnotatedDependencies(c.Metadata.Annotations))
		}
	}
	if e, ok := config.Get(w.sn, config.Entities, w.namespace, at.entity); ok {
		w.dependOn(n, e.DependsOn)
		w.depend(n, resource.AnnotatedDependencies(e.Metadata.Annotations))
	}
}

func (w *walk) dependOn(n int, texts []string) {
	for _, text := range texts {
		if d, err := resource.ParseDependency(text); err == nil {
			w.depend(n, []resource.Dependency{d})
		}
	}
}

func (w *walk) depend(n int, list []resource.Dependency) {
	for _, d := range list {
		to := name{d.Entity, d.Check}
		if to.entity == "" {
			to.entity = w.nodes[n].entity
		}
		w.add(n, to)
	}
}

// add notes that a node depends on another, perhaps new, one.
func (w *walk) add(from int, to name) {
	n, known := w.index[to]
	if !known {
		n = len(w.nodes)
		w.index[to] = n
		w.nodes = append(w.nodes, node{name: to, from: from})
	}
	if n != from && (!known || !slices.Contains(w.nodes[from].to, n)) {
		w.nodes[from].to = append(w.nodes[from].to, n)
	}
}

// closeCircles marks the nodes from which a path leads back to the event.
func (w *walk) closeCircles() {
	back := make([][]int, len(w.nodes))
	for n := range w.nodes {
		for _, to := range w.nodes[n].to {
			back[to] = append(back[to], n)
		}
	}
	reached := []int{0}
	for len(reached) > 0 {
		n := reached[0]
		reached = reached[1:]
		for _, from := range back[n] {
			if from != 0 && !w.nodes[from].circular {
				w.nodes[from].circular = true
				reached = append(reached, from)
			}
		}
	}
}

// verdict returns the nearest node that inhibits the event.
func (w *walk) verdict() (n int, ok bool) {
	for n := range w.nodes {
		if n > 0 && w.nodes[n].failing && !w.nodes[n].circular {
			return n, true
		}
	}
	return 0, false
}

// anyFailing reports whether a check of an entity fails, other than the event's.
func (w *walk) anyFailing(n *node) bool {
	return n.check == "" && slices.ContainsFunc(n.to, func(to int) bool {
		return to > 0 && to < len(w.nodes) && w.nodes[to].failing && w.nodes[to].entity == n.entity
	})
}

// way returns the names from the event's first dependency to a node. For an entity only its failing check is named.
func (w *walk) way(n int) []string {
	var out []string
	for last := n; n > 0; n = w.nodes[n].from {
		if w.nodes[n].check == "" && n != last && w.nodes[last].entity == w.nodes[n].entity {
			continue
		}
		out = append(out, w.nodes[n].String())
	}
	slices.Reverse(out)
	return out
}
