package lateness

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/ownevent"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// One member reports late checks as events of the backend, each as late-check-NAME, or many as late-checks (package
// ownevent). An event is resolved when its check runs again, or has no schedule any more. While the lateness of the check
// is unknown, its event stays as it is.

const (
	// reportRuns is how many runs must be missing before a check is reported, and criticalRuns before that is critical.
	reportRuns   = 3
	criticalRuns = 10

	eventOfOne  = "late-check-"
	eventOfMany = "late-checks"
)

// newReporter returns what makes the events.
func newReporter(o *Options, rare *rarelog.Log) *ownevent.Reporter {
	return ownevent.New(ownevent.Options{
		One: eventOfOne, Many: eventOfMany, About: "late checks", FewLeft: overOfMany,
		Snapshot: o.Snapshot, State: o.State, Report: o.Report, Rare: rare,
	})
}

// report makes the events for what has changed.
func (w *Watcher) report(ctx context.Context) {
	now := time.Now()
	w.reporter.Make(ctx, now, w.events(now))
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

// events returns the events to make.
func (w *Watcher) events(now time.Time) []ownevent.Event {
	open := w.reporter.Open()
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string]*ownevent.Found{}
	for namespace, checks := range w.checksByNamespace(now) {
		f := &ownevent.Found{Unknown: checks.unknown, Many: checks.says}
		for _, c := range checks.late {
			f.Things = append(f.Things, ownevent.Thing{Name: c.name.Name, Says: c.says()})
		}
		found[namespace] = f
	}
	byEvent := w.checksByEvent(open)
	return w.reporter.Events(now, open, found, func(event resource.Name) (string, bool) { return byEvent[event].over() })
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
		event := resource.Name{Namespace: k.Namespace, Name: ownevent.EventName(eventOfOne, k.Name)}
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

// says returns what the event about one check says.
func (c lateCheck) says() ownevent.Says {
	name := c.name.Name
	text := fmt.Sprintf("No agent has ever run the check %s, as far as its events show", name)
	if last := c.lastRun(); last > 0 {
		text = fmt.Sprintf("No agent has run the check %s since %s", name, clock(last))
	}
	return ownevent.Says{
		Status: statusOf(c.overdue.runs), Why: c.reason,
		Output: fmt.Sprintf("%s: it is %s. %s", text, c.plan.words(c.overdue.runs), c.advice()),
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

// says returns what the event that counts the late checks says. Its words change when the number has doubled or halved.
func (n *namespaceChecks) says() ownevent.Says {
	var status uint32
	var names []string
	without := 0
	for _, c := range n.late {
		status = max(status, statusOf(c.overdue.runs))
		if len(names) < ownevent.MostNamed {
			names = append(names, c.name.Name)
		}
		if c.reason != "" {
			without++
		}
	}
	if more := len(n.late) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return ownevent.Says{
		Status: status, Why: fmt.Sprint(bits.Len(uint(len(n.late)))),
		Output: fmt.Sprintf("%d of %d published checks are late: no agent has run them for %d or more of their intervals. "+
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

// clock returns a time in Unix nanoseconds for people.
func clock(nanos int64) string { return ownevent.Clock(time.Unix(0, nanos)) }
