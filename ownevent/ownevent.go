// Package ownevent makes the events of the backend about things of one kind: late checks, failing handlers.
//
// Each thing has an event of entity lapwing-backend, named after it. If a namespace has many such things, for example
// after a power cut, one event counts them, and no more of them get events of their own.
//
// The state says which of these events are open, so another member of the cluster, or the next process, can go on at
// any time. The caller says what is wrong now and when an open event is over. It must see to it that one member at a
// time makes the events. A Reporter is for one goroutine.
package ownevent

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	// MostEvents is how many things of a namespace have an event each. If there are more, they are counted until there
	// are half as many.
	MostEvents = 20
	// MostNamed is how many of them the event that counts them should name.
	MostNamed = 10
	// repeatAfter is the least time between two events of the same status with different words.
	repeatAfter = 5 * time.Minute
	// reportTimeout bounds the making of one event.
	reportTimeout = 10 * time.Second
)

// Options configures a Reporter. All fields are required.
type Options struct {
	// One begins the name of the event about one thing, and Many is the name of the event that counts many.
	One, Many string
	// About says in log lines what the events are about.
	About string
	// FewLeft is what the event that counts many says when it is resolved.
	FewLeft  string
	Snapshot func() *config.Snapshot
	State    interface {
		PairsOf(namespace, entity string) []state.Pair
	}
	// Report makes an event of the backend about itself.
	Report func(ctx context.Context, namespace, check string, status uint32, output string) error
	Rare   *rarelog.Log
}

// Says is what an event says.
type Says struct {
	Status uint32
	Why    string // the event is made again, after a while, when this changes
	Output string
}

// Thing is something that is wrong.
type Thing struct {
	Name string
	Says
}

// Found is what is wrong in a namespace.
type Found struct {
	Things  []Thing
	Unknown int         // more things that may be wrong
	Many    func() Says // for the event that counts them
}

// Event is an event to make.
type Event struct {
	Name resource.Name // its namespace and check
	Says
}

// sent is an event that was made.
type sent struct {
	status uint32
	why    string
	at     time.Time
}

// Reporter makes the events about things of one kind.
type Reporter struct {
	opts Options
	sent map[resource.Name]sent // the events that this process has made
}

// New returns a Reporter that knows of no event.
func New(opts Options) *Reporter { return &Reporter{opts: opts, sent: map[resource.Name]sent{}} }

// Forget forgets what this process has reported: another member makes the events now.
func (r *Reporter) Forget() { clear(r.sent) }

// Open returns the events of the kind whose status is not 0, with their status.
func (r *Reporter) Open() map[resource.Name]uint32 {
	open := map[resource.Name]uint32{}
	for ns := range config.List(r.opts.Snapshot(), config.Namespaces, "") {
		for _, pair := range r.opts.State.PairsOf(ns.Name, resource.BackendEntity) {
			if pair.Status != 0 && (pair.Check == r.opts.Many || strings.HasPrefix(pair.Check, r.opts.One)) {
				open[resource.Name{Namespace: ns.Name, Name: pair.Check}] = pair.Status
			}
		}
	}
	return open
}

// Events returns the events to make, in the order of their names. open is from Open, found is by namespace. over says
// of an open event about one thing that is not wrong, as far as found says, whether it is to be resolved, and with
// which words.
func (r *Reporter) Events(
	now time.Time, open map[resource.Name]uint32, found map[string]*Found, over func(event resource.Name) (string, bool),
) (events []Event) {
	wanted := map[resource.Name]bool{}
	add := func(name resource.Name, says Says) {
		wanted[name] = true
		if r.changed(name, says, now, open[name]) {
			events = append(events, Event{name, says})
		}
	}
	many := map[string]bool{}
	for namespace, f := range found {
		n := len(f.Things) + f.Unknown
		count := resource.Name{Namespace: namespace, Name: r.opts.Many}
		many[namespace] = n > MostEvents || open[count] > 0 && n > MostEvents/2
		if many[namespace] && len(f.Things) > 0 {
			add(count, f.Many())
		}
		for _, thing := range f.Things {
			name := resource.Name{Namespace: namespace, Name: EventName(r.opts.One, thing.Name)}
			if !many[namespace] || open[name] > 0 {
				add(name, thing.Says)
			}
		}
	}
	for name := range open {
		if wanted[name] {
			continue
		}
		output, isOver := r.opts.FewLeft, !many[name.Namespace]
		if name.Name != r.opts.Many {
			output, isOver = over(name)
		}
		if isOver {
			events = append(events, Event{name, Says{Output: output}})
		}
	}
	maps.DeleteFunc(r.sent, func(name resource.Name, _ sent) bool { return !wanted[name] && open[name] == 0 })
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(strings.Compare(a.Name.Namespace, b.Name.Namespace), strings.Compare(a.Name.Name, b.Name.Name))
	})
	return events
}

// changed reports whether an event must be made: it says something new. If an operator has resolved or deleted the
// event, it is made again only when its status gets worse.
func (r *Reporter) changed(name resource.Name, says Says, now time.Time, open uint32) bool {
	before, known := r.sent[name]
	switch {
	case open == 0:
		return !known || says.Status > before.status
	case open != says.Status:
		return true
	case !known: // another process has made it
		r.sent[name] = sent{says.Status, says.Why, now}
		return false
	}
	return says.Why != before.why && now.Sub(before.at) >= repeatAfter
}

// Make makes events that were found to be necessary at a time. The next call of Events returns those again that could
// not be made.
func (r *Reporter) Make(ctx context.Context, now time.Time, events []Event) {
	for _, e := range events {
		if err := r.make(ctx, e); err != nil {
			if ctx.Err() != nil {
				return
			}
			r.opts.Rare.Warn("event about "+r.opts.About+" was not made, it is tried again", e.Name.Namespace,
				"namespace", e.Name.Namespace, "check", e.Name.Name, "err", err)
			continue
		}
		r.sent[e.Name] = sent{e.Status, e.Why, now}
		if e.Status == 0 {
			delete(r.sent, e.Name)
		}
	}
}

func (r *Reporter) make(ctx context.Context, e Event) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return r.opts.Report(ctx, e.Name.Namespace, e.Name.Name, e.Status, e.Output)
}

// EventName returns the name of the event about one thing. It cuts a name that would be too long.
func EventName(prefix, name string) string {
	if len(prefix)+len(name) <= resource.MaxName {
		return prefix + name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%s%s-%016x", prefix, name[:resource.MaxName-len(prefix)-17], h.Sum64())
}

// Clock returns a time for people.
func Clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }
