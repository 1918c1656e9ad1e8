package view

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/state"
)

// View is a live list of events.
type View struct {
	query Query
	timed bool // answers of the selector change with the time
	every bool // the selector may see a change in each result

	// Guarded by Views.mu.
	opened   uint64 // views that were opened before it
	readers  int
	unused   time.Time // since when there are no readers
	making   bool      // a survey runs
	again    bool      // another must follow it
	surveyed time.Time
	took     time.Duration // the last survey
	// late has the changes that came during the survey. Only Views.run uses it, and survey, which begins it.
	late map[state.Key]bool

	// Only Views.run changes the fields below, and takes mu for it. While making, it leaves content and version alone.
	mu      sync.RWMutex
	content *content      // nil before the first survey
	version uint64        // counts changes
	counted uint64        // the version in which more than times of results changed last
	sorted  []*group      // the worst first
	ordered uint64        // the value of counted at which they were sorted
	err     error         // why the view has ended
	changed chan struct{} // closed with each change
}

// steady are the fields that can change only with an update that is no repeat.
var steady = []string{
	"event.name", "event.namespace", "event.entity.name", "event.check.name", "event.check.namespace", "event.entity.namespace",
	"event.check.status", "event.check.state", "event.is_incident", "event.is_silenced", "event.check.is_silenced",
	"event.entity.entity_class", "event.entity.subscriptions",
}

func newView(query Query) *View {
	one := &View{query: query, changed: make(chan struct{})}
	for _, t := range query.Selector.Terms() {
		one.timed = one.timed || t.Timed()
		one.every = one.every || !t.Label && !slices.Contains(steady, t.Name)
	}
	return one
}

func (one *View) refresh(opts *Options) time.Duration {
	if one.timed {
		return opts.RefreshTimed
	}
	return opts.Refresh
}

// old reports whether it is time to make a view anew. The caller holds Views.mu.
func (one *View) old(now time.Time, opts *Options) bool {
	return now.Sub(one.surveyed) >= max(one.refresh(opts), surveyFactor*one.took)
}

// len returns the number of events.
func (one *View) len() int {
	one.mu.RLock()
	defer one.mu.RUnlock()
	if one.content == nil {
		return 0
	}
	return len(one.content.items)
}

// apply takes changes in. pending says for each event whether more than the result's time changed.
func (one *View) apply(ctx context.Context, from *state.State, pending map[state.Key]bool) error {
	looked, touched, err := one.look(ctx, from, pending)
	if err != nil || len(looked) == 0 && len(touched) == 0 {
		return err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	switch changed, shown := one.take(one.content, looked, touched); {
	case !shown:
		return nil
	case changed:
		one.counted = one.version + 1
	}
	one.version++
	one.tell()
	return nil
}

// replace puts a survey's content in the place of the present one.
func (one *View) replace(ctx context.Context, from *state.State, c *content) error {
	looked, touched, err := one.look(ctx, from, one.late)
	if err != nil {
		return err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.take(c, looked, touched)
	one.version++
	one.counted, one.content = one.version, c
	one.tell()
	return nil
}

// seen is an event that was looked at, and whether the view has it.
type seen struct {
	state.Glance
	selected bool
}

// look asks the state about events that changed. It returns the others of the view's namespace as touched.
func (one *View) look(ctx context.Context, from *state.State, pending map[state.Key]bool) (looked []seen, touched []state.Key, err error) {
	var ask []state.Key
	for at, changed := range pending {
		switch {
		case one.query.Namespace != "" && at.Namespace != one.query.Namespace:
		case changed || one.every:
			ask = append(ask, at)
		default:
			touched = append(touched, at)
		}
	}
	viewer := from.Viewer(one.query.Namespace, one.query.Selector, one.query.Group.labels())
	err = viewer.Of(ctx, ask, func(g state.Glance, selected bool) { looked = append(looked, seen{g, selected}) })
	return looked, touched, err
}

// take puts what was seen into a content, for the next version. changed says that more than times of results changed, and
// shown that the content has any of the events. The caller holds mu.
func (one *View) take(c *content, looked []seen, touched []state.Key) (changed, shown bool) {
	for i := range looked {
		if g := &looked[i].Glance; looked[i].selected {
			c.set(g, one.version+1)
			changed = true
		} else if c.remove(g.Key) {
			changed = true
		}
	}
	for _, at := range touched {
		if it, ok := c.items[at]; ok {
			it.version = one.version + 1
			shown = true
		}
	}
	return changed, changed || shown
}

// tell wakes the readers. The caller holds mu.
func (one *View) tell() {
	close(one.changed)
	one.changed = make(chan struct{})
}

// end tells the readers that there will be no more changes.
func (one *View) end(err error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.err == nil {
		one.err = err
		one.tell()
	}
}
