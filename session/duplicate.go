package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/ownevent"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// duplicates finds agents that share one name. Sensu allows them, but their results mix and each hides the silence of
// the other, so the log, an event and a metric report it.
//
// After a reconnect the old session may still be open beside the new one. So two sessions count as duplicates only if
// the older one still sends keepalives some time after the newer one has connected: a lost connection sends none.
type duplicates struct {
	server *Server
	report func(ctx context.Context, namespace, check string, status uint32, output string) error
	// failing returns the names for which the state has a failing event.
	failing func() []resource.Name
	wake    chan struct{} // capacity 1

	mu    sync.Mutex // guards known
	known map[resource.Name]*duplicate
}

// duplicate is a name that several agents share.
type duplicate struct {
	addresses string
	reported  bool
	ended     time.Time // when only one agent was left; zero while there are several
}

const (
	// duplicateGrace is how long after the newer session's start a keepalive of the older one counts.
	duplicateGrace = 10 * time.Second
	// duplicateQuiet is how long a single agent must be alone before the event is resolved.
	duplicateQuiet = time.Minute
	// duplicateLook is the time between two checks.
	duplicateLook = 5 * time.Second
	// maxDuplicateEvents bounds the events. Further names are only in the log and the metric.
	maxDuplicateEvents = 100
	// duplicateForget is how long after the start the events of an earlier process are resolved, if their names have
	// no duplicates by then.
	duplicateForget = 5 * time.Minute

	duplicateCheck = "duplicate-agent-"
)

func newDuplicates(s *Server) *duplicates {
	d := &duplicates{server: s, report: s.opts.Intake.Report, wake: make(chan struct{}, 1), known: map[resource.Name]*duplicate{}}
	d.failing = d.failingNames
	return d
}

// heard records a keepalive of a session that shares its name with another one, or did.
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

// count returns how many names several agents share.
func (d *duplicates) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.known)
}

// run reports duplicates that begin and end, until ctx ends.
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
			d.send(ctx, k, 1, fmt.Sprintf("Several agents are connected as %s in namespace %s, last seen at %s. Their results mix. "+
				"Stop all but one, or give each a name of its own (--name).", k.Name, k.Namespace, addresses), func() { one.reported = true })
		case over && reported:
			d.send(ctx, k, 0, fmt.Sprintf("One agent is connected as %s.", k.Name), func() { delete(d.known, k) })
		case over:
			d.mu.Lock()
			delete(d.known, k)
			d.mu.Unlock()
		}
	}
}

// events returns the number of names that have an event. The caller holds mu.
func (d *duplicates) events() (n int) {
	for _, one := range d.known {
		if one.reported {
			n++
		}
	}
	return n
}

// send reports an event, and calls done with mu held if that succeeded. If not, the next check tries again.
func (d *duplicates) send(ctx context.Context, k resource.Name, status uint32, output string, done func()) {
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

// duplicateCheckName returns the check name of the event about an agent name. It cuts a name that would be too long.
func duplicateCheckName(name string) string { return ownevent.EventName(duplicateCheck, name) }

// resolveOld resolves events of an earlier process about names that only one agent has now.
func (d *duplicates) resolveOld(ctx context.Context) {
	for _, k := range d.failing() {
		d.mu.Lock()
		_, still := d.known[k]
		d.mu.Unlock()
		if !still {
			d.send(ctx, k, 0, fmt.Sprintf("One agent at most is connected as %s.", k.Name), func() {})
		}
	}
}

// failingNames returns the names for which the state has a failing event.
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
