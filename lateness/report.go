package lateness

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// One member reports late checks as events of the backend, each as late-check-NAME. If a namespace has many, for
// example after a power cut, one event late-checks counts them, and no more late checks get events of their own.
//
// The state says which of these events are open, so another member can go on at any time. An event is resolved when its
// check runs again, or has no schedule any more. While the lateness of the check is unknown, its event stays as it is.

const (
	// reportRuns is how many runs must be missing before a check is reported, and criticalRuns before that is critical.
	reportRuns   = 3
	criticalRuns = 10
	// mostEvents is how many late checks of a namespace have an event each. If there are more, they are counted until
	// there are half as many.
	mostEvents = 20
	// mostNamed is how many late checks the event that counts them names.
	mostNamed = 10
	// repeatAfter is the least time between two events of the same status with different words.
	repeatAfter = 5 * time.Minute
	// reportTimeout bounds the making of one event.
	reportTimeout = 10 * time.Second

	eventOfOne  = "late-check-"
	eventOfMany = "late-checks"
)

// sent is what an event of the backend says.
type sent struct {
	status uint32
	why    string // the event is made again when this changes
	at     time.Time
}

// notice is an event to make.
type notice struct {
	event resource.Name // its namespace and check
	sent
	output string
}

// report makes the events for what has changed. If an event cannot be made, report tries it again at the next look.
func (w *Watcher) report(ctx context.Context) {
	for _, n := range w.notices(time.Now()) {
		if err := w.send(ctx, n); err != nil {
			if ctx.Err() != nil {
				return
			}
			w.rare.Warn("event about late checks was not made, it is tried again", n.event.Namespace,
				"namespace", n.event.Namespace, "check", n.event.Name, "err", err)
			continue
		}
		w.sent[n.event] = n.sent
		if n.status == 0 {
			delete(w.sent, n.event)
		}
	}
}

func (w *Watcher) send(ctx context.Context, n notice) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return w.opts.Report(ctx, n.event.Namespace, n.event.Name, n.status, n.output)
}

// lateCheck is a check to report.
type lateCheck struct {
	*check
	name   resource.Name
	reason string // why no agent can run it; "" if agents can
}

// namespaceChecks has the checks of a namespace that may be reported.
type namespaceChecks struct {
	published int
	late      []lateCheck // in the order of their names
	unknown   int         // more checks whose runs are missing, and whose lateness is unknown
}

// notices returns the events to make, in the order of their names.
func (w *Watcher) notices(now time.Time) (notices []notice) {
	open := w.openEvents()
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := map[resource.Name]bool{}
	add := func(n notice) {
		wanted[n.event] = true
		if n.at = now; w.changed(n, open) {
			notices = append(notices, n)
		}
	}
	all := w.checksByNamespace(now)
	many := map[string]bool{}
	for namespace, checks := range all {
		n := len(checks.late) + checks.unknown
		count := resource.Name{Namespace: namespace, Name: eventOfMany}
		many[namespace] = n > mostEvents || open[count] > 0 && n > mostEvents/2
		if many[namespace] && len(checks.late) > 0 {
			add(checks.notice(count))
		}
		for _, c := range checks.late {
			if n := c.notice(); !many[namespace] || open[n.event] > 0 {
				add(n)
			}
		}
	}
	byEvent := w.checksByEvent(open)
	for event := range open {
		if wanted[event] {
			continue
		}
		output, over := overOfMany, !many[event.Namespace]
		if event.Name != eventOfMany {
			output, over = byEvent[event].over()
		}
		if over {
			notices = append(notices, notice{event: event, output: output})
		}
	}
	maps.DeleteFunc(w.sent, func(event resource.Name, _ sent) bool { return !wanted[event] && open[event] == 0 })
	slices.SortFunc(notices, func(a, b notice) int {
		return cmp.Or(strings.Compare(a.event.Namespace, b.event.Namespace), strings.Compare(a.event.Name, b.event.Name))
	})
	return notices
}

// changed reports whether an event must be made: it says something new. If an operator has resolved or deleted the
// event, it is made again only when its status gets worse.
func (w *Watcher) changed(n notice, open map[resource.Name]uint32) bool {
	before, known := w.sent[n.event]
	switch status := open[n.event]; {
	case status == 0:
		return !known || n.status > before.status
	case status != n.status:
		return true
	case !known: // another process has made it
		w.sent[n.event] = n.sent
		return false
	}
	return n.why != before.why && n.at.Sub(before.at) >= repeatAfter
}

// openEvents returns the events about late checks whose status is not 0.
func (w *Watcher) openEvents() map[resource.Name]uint32 {
	open := map[resource.Name]uint32{}
	for ns := range config.List(w.opts.Snapshot(), config.Namespaces, "") {
		for _, pair := range w.opts.State.PairsOf(ns.Name, resource.BackendEntity) {
			if pair.Status != 0 && (pair.Check == eventOfMany || strings.HasPrefix(pair.Check, eventOfOne)) {
				open[resource.Name{Namespace: ns.Name, Name: pair.Check}] = pair.Status
			}
		}
	}
	return open
}

// checksByNamespace returns the checks that may be reported. The caller holds mu.
func (w *Watcher) checksByNamespace(now time.Time) map[string]*namespaceChecks {
	all := map[string]*namespaceChecks{}
	h := w.hearing(now)
	for k, c := range w.checks {
		if c.plan == nil {
			continue
		}
		in := all[k.Namespace]
		if in == nil {
			in = &namespaceChecks{}
			all[k.Namespace] = in
		}
		in.published++
		switch w.count(c, h.now); {
		case c.overdue.runs < reportRuns || h.now-c.overdue.from < int64(w.opts.Silence):
		case h.settled() && c.judge(h) == isLate:
			in.late = append(in.late, lateCheck{c, k, noAgent(c.config, w.withoutAgent(k.Namespace, c.config))})
		default:
			in.unknown++
		}
	}
	for _, in := range all {
		slices.SortFunc(in.late, func(a, b lateCheck) int { return strings.Compare(a.name.Name, b.name.Name) })
	}
	return all
}

// checksByEvent returns the checks with a schedule that open events are about. The caller holds mu.
func (w *Watcher) checksByEvent(open map[resource.Name]uint32) map[resource.Name]*check {
	found := map[resource.Name]*check{}
	if len(open) == 0 {
		return found
	}
	for k, c := range w.checks {
		event := resource.Name{Namespace: k.Namespace, Name: eventName(k.Name)}
		if c.plan != nil && open[event] > 0 {
			found[event] = c
		}
	}
	return found
}

// statusOf returns the status for a number of missing runs.
func statusOf(missed int) uint32 {
	if missed >= criticalRuns {
		return 2
	}
	return 1
}

// notice returns the event about one check.
func (c lateCheck) notice() notice {
	name := c.name.Name
	text := fmt.Sprintf("No agent has ever run the check %s, as far as its events show", name)
	if last := c.lastRun(); last > 0 {
		text = fmt.Sprintf("No agent has run the check %s since %s", name, clock(last))
	}
	return notice{
		event:  resource.Name{Namespace: c.name.Namespace, Name: eventName(name)},
		sent:   sent{status: statusOf(c.overdue.runs), why: c.reason},
		output: fmt.Sprintf("%s: it is %s. %s", text, c.plan.words(c.overdue.runs), c.advice()),
	}
}

// advice says why a check is late and what to do next.
func (c lateCheck) advice() string {
	set := "lapwing check set-subscriptions " + c.name.Name + " NAME"
	switch subscriptions := c.config.Subscriptions; {
	case len(subscriptions) == 0:
		return "It has no subscriptions, so no agent runs it. Give it one that agents have: " + set
	case c.reason != "":
		return fmt.Sprintf("No connected agent has %s. Start an agent with that, or give the check a subscription "+
			"that agents have: %s", oneOf(subscriptions), set)
	default:
		return fmt.Sprintf("Agents with %s are connected, and none has sent a result. Run it once with lapwing check "+
			"execute %s, look at the logs of these agents, and see with lapwing doctor whether the backend keeps up.",
			oneOf(subscriptions), c.name.Name)
	}
}

func oneOf(subscriptions []string) string {
	if len(subscriptions) == 1 {
		return "the subscription " + subscriptions[0]
	}
	return "one of the subscriptions " + strings.Join(subscriptions, ", ")
}

// notice returns the event that counts the late checks. Its words change when the number has doubled or halved.
func (n *namespaceChecks) notice(event resource.Name) notice {
	var status uint32
	var names []string
	without := 0
	for _, c := range n.late {
		status = max(status, statusOf(c.overdue.runs))
		if len(names) < mostNamed {
			names = append(names, c.name.Name)
		}
		if c.reason != "" {
			without++
		}
	}
	if more := len(n.late) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return notice{
		event: event,
		sent:  sent{status: status, why: fmt.Sprint(bits.Len(uint(len(n.late))))},
		output: fmt.Sprintf("%d of %d published checks are late: no agent has run them for %d or more of their intervals. "+
			"For %d of them no agent with their subscriptions is connected. Late are: %s. See with lapwing doctor and lapwing "+
			"entity list whether agents are connected; lapwing check list shows each check.",
			len(n.late), n.published, reportRuns, without, strings.Join(names, ", ")),
	}
}

// overOfMany is what the event that counts late checks says when it is resolved.
const overOfMany = "There are few late checks, or none: those that are late have events of their own."

// over reports whether the event about a check is to be resolved, and what it says then. The check is nil if it has no
// schedule any more. The caller holds mu.
func (c *check) over() (output string, yes bool) {
	switch {
	case c == nil:
		return "The check is not defined any more, or not published.", true
	case c.overdue.runs > 0 || c.proxies == unknownProxies && c.lastRun() < c.since:
		return "", false
	case c.proxies == noProxies:
		return fmt.Sprintf("No entity matches the proxy requests of the check %s.", c.config.Metadata.Name), true
	case c.lastRun() < c.since:
		return fmt.Sprintf("The schedule of the check %s was changed at %s, and it is not late yet.",
			c.config.Metadata.Name, clock(c.since)), true
	}
	return fmt.Sprintf("The check %s runs again: its newest result came at %s.",
		c.config.Metadata.Name, clock(c.lastRun())), true
}

// eventName returns the name of the event about a check. It cuts a name that would be too long.
func eventName(check string) string {
	if len(eventOfOne)+len(check) <= resource.MaxName {
		return eventOfOne + check
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(check))
	return fmt.Sprintf("%s%s-%016x", eventOfOne, check[:resource.MaxName-len(eventOfOne)-17], h.Sum64())
}

// clock returns a time in Unix nanoseconds for people.
func clock(nanos int64) string {
	return time.Unix(0, nanos).UTC().Format("2006-01-02 15:04:05 UTC")
}
