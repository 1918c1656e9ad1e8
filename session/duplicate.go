package session

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// duplicates notices agents that have one name. Sensu allows them, but their results mix and each hides the other's silence,
// so the log, an event and a metric say it.
//
// A session that has another of its name beside it may be what a reconnect has left behind. So two count only if the older
// still sends keepalives some time after the newer has connected: what is left of a lost connection sends none.
type duplicates struct {
	server *Server
	report func(ctx context.Context, namespace, check string, status uint32, output string) error
	// failing are the names that events of the state tell of.
	failing func() []resource.Name
	wake    chan struct{} // capacity 1

	mu    sync.Mutex // guards known
	known map[resource.Name]*duplicate
}

// duplicate is a name that several agents have.
type duplicate struct {
	addresses string
	reported  bool
	ended     time.Time // when all but one had left; zero while they have not
}

const (
	// duplicateGrace is how long after the newer has connected the older must still be heard of.
	duplicateGrace = 10 * time.Second
	// duplicateQuiet is how long only one must have been there for the event to be resolved.
	duplicateQuiet = time.Minute
	// duplicateLook is how often that is looked at.
	duplicateLook = 5 * time.Second
	// maxDuplicateEvents bounds the events. Of more names the log and the metric tell.
	maxDuplicateEvents = 100
	// duplicateForget is after how long events of a process before this one are resolved that nothing has confirmed.
	duplicateForget = 5 * time.Minute

	duplicateCheck = "duplicate-agent-"
)

func newDuplicates(s *Server) *duplicates {
	d := &duplicates{server: s, report: s.opts.Intake.Report, wake: make(chan struct{}, 1), known: map[resource.Name]*duplicate{}}
	d.failing = d.failingNames
	return d
}

// heard is told of a keepalive in a session that has, or had, another of its name beside it.
func (d *duplicates) heard(s *session) {
	same := d.server.registry.agent(s.namespace, s.name)
	if len(same) < 2 {
		s.shared.Store(false)
		return
	}
	newest := same[len(same)-1]
	if s == newest || time.Now().UnixMilli()-newest.joined < duplicateGrace.Milliseconds() {
		return
	}
	k := resource.Name{Namespace: s.namespace, Name: s.name}
	addresses := s.address() + " and " + newest.address()
	d.mu.Lock()
	known := d.known[k]
	if known == nil {
		d.known[k] = &duplicate{addresses: addresses}
	} else {
		known.addresses, known.ended = addresses, time.Time{}
	}
	d.mu.Unlock()
	if known != nil {
		return
	}
	d.server.rare.Warn("several agents are connected under one name: give each a name of its own", s.namespace+"/"+s.name,
		"agent", s.name, "namespace", s.namespace, "addresses", addresses)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (s *session) address() string { return s.conn.RemoteAddr().String() }

// count is how many names several agents have.
func (d *duplicates) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.known)
}

// run reports what begins and what has ended, until ctx ends.
func (d *duplicates) run(ctx context.Context) {
	tick := time.NewTicker(duplicateLook)
	defer tick.Stop()
	forget := time.After(duplicateForget)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-tick.C:
		case <-forget:
			d.resolveOld(ctx)
		}
		d.look(ctx, time.Now())
	}
}

func (d *duplicates) look(ctx context.Context, now time.Time) {
	d.mu.Lock()
	keys := slices.Collect(maps.Keys(d.known))
	d.mu.Unlock()
	for _, k := range keys {
		several := len(d.server.registry.agent(k.Namespace, k.Name)) > 1
		d.mu.Lock()
		one := d.known[k]
		switch {
		case several:
			one.ended = time.Time{}
		case one.ended.IsZero():
			one.ended = now
		}
		over := !one.ended.IsZero() && now.Sub(one.ended) >= duplicateQuiet
		begin := !over && !one.reported && d.events() < maxDuplicateEvents
		addresses, reported := one.addresses, one.reported
		d.mu.Unlock()
		switch {
		case begin:
			d.tell(ctx, k, 1, fmt.Sprintf("Several agents are connected as %s in namespace %s, last seen at %s. Their results mix. "+
				"Stop all but one, or give each a name of its own (--name).", k.Name, k.Namespace, addresses), func() { one.reported = true })
		case over && reported:
			d.tell(ctx, k, 0, fmt.Sprintf("One agent is connected as %s.", k.Name), func() { delete(d.known, k) })
		case over:
			d.mu.Lock()
			delete(d.known, k)
			d.mu.Unlock()
		}
	}
}

// events is how many names events tell of. The caller holds mu.
func (d *duplicates) events() (n int) {
	for _, one := range d.known {
		if one.reported {
			n++
		}
	}
	return n
}

// tell reports, and calls done with mu held if that has worked. Otherwise the next look tries again.
func (d *duplicates) tell(ctx context.Context, k resource.Name, status uint32, output string, done func()) {
	ctx, cancel := context.WithTimeout(ctx, duplicateLook)
	defer cancel()
	if err := d.report(ctx, k.Namespace, duplicateCheckName(k.Name), status, output); err != nil {
		d.server.rare.Warn("event about agents of one name was not made, it is tried again", k.Namespace, "agent", k.Name, "err", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	done()
}

// duplicateCheckName is the check of the event about a name. One that would be too long is cut.
func duplicateCheckName(name string) string {
	if len(duplicateCheck)+len(name) <= resource.MaxName {
		return duplicateCheck + name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%s%s-%016x", duplicateCheck, name[:resource.MaxName-len(duplicateCheck)-17], h.Sum64())
}

// resolveOld resolves events of a process before this one about names that only one agent has now.
func (d *duplicates) resolveOld(ctx context.Context) {
	for _, k := range d.failing() {
		d.mu.Lock()
		_, still := d.known[k]
		d.mu.Unlock()
		if !still {
			d.tell(ctx, k, 0, fmt.Sprintf("One agent at most is connected as %s.", k.Name), func() {})
		}
	}
}

// failingNames are the names that failing events of the state tell of.
func (d *duplicates) failingNames() (names []resource.Name) {
	opts := &d.server.opts
	for ns := range config.List(opts.Config.Snapshot(), config.Namespaces, "") {
		events, _, err := opts.State.Events(ns.Name, resource.BackendEntity, "", 0)
		if err != nil {
			d.server.rare.Warn("events about agents of one name cannot be read", ns.Name, "namespace", ns.Name, "err", err)
			continue
		}
		for _, ev := range events {
			if ev.Check == nil || ev.Check.Status == 0 {
				continue
			}
			if name, ours := strings.CutPrefix(ev.Check.Metadata.Name, duplicateCheck); ours {
				names = append(names, resource.Name{Namespace: ns.Name, Name: name})
			}
		}
	}
	return names
}
