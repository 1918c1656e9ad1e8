// Package view keeps live lists of events for readers that see only a part of one at a time, such as the web page: which
// events a selector selects, in an order, counted by severity and by group. The page asks for a window of rows and is told
// when something changes; it never has all events.
//
// Views.Open finds or makes the View of a Query. Readers with equal queries share it, and it stays for a while after its
// last reader. One goroutine follows the changes of the state, gathers them for a moment, and takes them into all views.
// A view is made by a survey of all events in memory. From time to time it is made anew, since some answers change without an
// event: terms that compare with the present time, and windows of silences.
//
// A view has names and classes of events and not the events: a reader reads those of its window from the state. Who may see
// which events is up to the caller, who puts it into the query's selector.
package view

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/state"
)

// Options wires Views. 0 stands for the value of DefaultOptions.
type Options struct {
	// State has the events. Required.
	State *state.State
	// Delay is how long changes are gathered. They are gathered for longer if it takes long to take them in.
	Delay time.Duration
	// Refresh is how old a view gets before it is made anew, and RefreshTimed the same for a selector whose answers change with
	// the time. Both are longer for a view that takes long to make.
	Refresh, RefreshTimed time.Duration
	// Keep is how long a view is kept after its last reader.
	Keep time.Duration
	// MaxEvents bounds the events in all views, and MaxViews the views. An event of a view needs about 200 bytes.
	MaxEvents, MaxViews int

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		Delay: 200 * time.Millisecond, Refresh: 30 * time.Second, RefreshTimed: 5 * time.Second, Keep: time.Minute,
		MaxEvents: 2_000_000, MaxViews: 2000,
	}
}

const (
	// tailBuffer is how many changes may wait while others are taken in.
	tailBuffer = 1 << 16
	// restFactor is how many times as long as the last taking in the next gathering lasts at least, and surveyFactor the same
	// for surveys of one view.
	restFactor, surveyFactor = 4, 20
	// maxSurveys is how many surveys run at once.
	maxSurveys = 2
)

// The errors of Open and of readers.
var (
	ErrTooMany = errors.New("too many different lists of events are open at once: narrow the search, or close other pages")
	ErrStopped = errors.New("the server is stopping")
)

// Views keeps the views. Its methods are safe for concurrent use.
type Views struct {
	opts    Options
	log     *slog.Logger
	metrics metrics
	surveys chan struct{} // a place for each survey that runs
	done    chan struct{}
	ctx     context.Context // ends surveys
	cancel  context.CancelFunc
	running sync.WaitGroup // surveys

	mu      sync.Mutex // guards the fields below
	views   map[key]*View
	opened  uint64        // views that were opened
	tail    *state.Tail   // nil while there are no views
	tailed  chan struct{} // capacity 1: tail is set
	made    chan made     // finished surveys
	started bool
	stopped bool
}

// key is what equal queries have in common.
type key struct {
	namespace, text string
	order           Order
	group           Group
}

func keyOf(q *Query) key { return key{q.Namespace, q.Text, q.Order, q.Group} }

// made is the result of a survey.
type made struct {
	view    *View
	content *content
	took    time.Duration
	err     error
}

// New checks the options.
func New(opts Options) (*Views, error) {
	if opts.State == nil {
		return nil, errors.New("view: state is required")
	}
	if opts.Delay < 0 || opts.Refresh < 0 || opts.RefreshTimed < 0 || opts.Keep < 0 || opts.MaxEvents < 0 || opts.MaxViews < 0 {
		return nil, errors.New("view: Delay, Refresh, RefreshTimed, Keep, MaxEvents and MaxViews must not be negative")
	}
	defaults := DefaultOptions()
	opts.Delay = cmp.Or(opts.Delay, defaults.Delay)
	opts.Refresh = cmp.Or(opts.Refresh, defaults.Refresh)
	opts.RefreshTimed = cmp.Or(opts.RefreshTimed, defaults.RefreshTimed)
	opts.Keep = cmp.Or(opts.Keep, defaults.Keep)
	opts.MaxEvents = cmp.Or(opts.MaxEvents, defaults.MaxEvents)
	opts.MaxViews = cmp.Or(opts.MaxViews, defaults.MaxViews)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	v := &Views{
		opts: opts, log: opts.Logger.With("component", "view"), surveys: make(chan struct{}, maxSurveys), done: make(chan struct{}),
		ctx: ctx, cancel: cancel, views: map[key]*View{}, tailed: make(chan struct{}, 1), made: make(chan made),
	}
	v.metrics = newMetrics(opts.Registerer, v)
	return v, nil
}

// Start begins to keep views. It does not keep the context.
func (v *Views) Start(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.started || v.stopped {
		return errors.New("start views: started or stopped before")
	}
	v.started = true
	go v.run()
	return nil
}

// Stop ends all views. Their readers get ErrStopped.
func (v *Views) Stop() error {
	v.mu.Lock()
	if v.stopped {
		v.mu.Unlock()
		return nil
	}
	v.stopped = true
	started := v.started
	v.mu.Unlock()
	v.cancel()
	if started {
		<-v.done
	}
	v.running.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.views {
		one.end(ErrStopped)
	}
	v.shrink()
	return nil
}

// Open returns a reader of the view of a query. The view may still be in the making: see Reader.Ready. The caller must
// close the reader.
func (v *Views) Open(query Query) (*Reader, error) {
	at := keyOf(&query)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stopped || !v.started {
		return nil, ErrStopped
	}
	one, ok := v.views[at]
	switch {
	case !ok:
		if !v.place() {
			v.metrics.refused.Inc()
			return nil, ErrTooMany
		}
		if v.tail == nil {
			v.tail = v.opts.State.Tail(tailBuffer) // before the survey, so that no change falls between the two
			select {
			case v.tailed <- struct{}{}:
			default: // run has not looked since the last one
			}
		}
		one = newView(query)
		one.opened = v.opened
		v.opened++
		v.views[at] = one
		v.survey(one)
	case one.readers == 0 && !one.making && one.old(time.Now(), &v.opts):
		v.survey(one)
	}
	one.readers++
	return &Reader{views: v, view: one}, nil
}

// place reports whether another view may be opened. It drops the view that has been without a reader for longest to make it so.
// The caller holds mu.
func (v *Views) place() bool {
	if len(v.views) < v.opts.MaxViews {
		return true
	}
	var oldest *View
	for _, one := range v.views {
		if one.readers == 0 && !one.making && (oldest == nil || one.unused.Before(oldest.unused)) {
			oldest = one
		}
	}
	if oldest == nil {
		return false
	}
	delete(v.views, keyOf(&oldest.query))
	return true
}

// release takes a reader off its view.
func (v *Views) release(one *View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one.readers--
	one.unused = time.Now()
}

// survey begins to make a view's content. The caller holds mu.
func (v *Views) survey(one *View) {
	one.making, one.late = true, map[state.Key]bool{}
	v.running.Go(func() {
		m := made{view: one}
		select {
		case v.surveys <- struct{}{}:
		case <-v.ctx.Done():
			return
		}
		if v.unread(one) {
			<-v.surveys
			return
		}
		begin := time.Now()
		m.content, m.err = survey(v.ctx, v.opts.State, one.query, one.version+1)
		if m.err == nil && one.content != nil {
			m.content.inherit(one.content)
		}
		m.took = time.Since(begin)
		<-v.surveys
		select {
		case v.made <- m:
		case <-v.ctx.Done():
		}
	})
}

// unread drops a view whose readers went while it waited to be made, and reports whether it did.
func (v *Views) unread(one *View) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if one.readers > 0 {
		return false
	}
	if at := keyOf(&one.query); v.views[at] == one {
		delete(v.views, at)
	}
	return true
}

// run takes changes and surveys in until the stop.
func (v *Views) run() {
	defer close(v.done)
	var tail *state.Tail
	var updates <-chan state.Update
	pending := map[state.Key]bool{} // whether more than the result's time changed
	tick := time.NewTimer(v.opts.Delay)
	defer tick.Stop()
	for {
		select {
		case <-v.tailed:
			v.mu.Lock()
			tail = v.tail
			v.mu.Unlock()
			updates = tail.C
			clear(pending)
			tick.Reset(v.opts.Delay)
		case u, ok := <-updates:
			if !ok {
				updates = v.lost()
				clear(pending)
				continue
			}
			at := state.Key{Namespace: u.Namespace, Entity: u.Entity, Check: u.Check}
			pending[at] = pending[at] || !u.Repeats
		case m := <-v.made:
			v.take(m)
		case <-tick.C:
			begin := time.Now()
			v.apply(pending)
			clear(pending)
			if !v.tidy(begin) {
				updates = nil // until the next view is opened
				continue
			}
			tick.Reset(max(v.opts.Delay, restFactor*time.Since(begin)))
		case <-v.ctx.Done():
			return
		}
	}
}

// lost follows the state again after changes were lost, and makes all views anew.
func (v *Views) lost() <-chan state.Update {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.log.Warn("changes came faster than the live lists could take them in: the lists are made anew")
	v.tail = v.opts.State.Tail(tailBuffer)
	for _, one := range v.views {
		if one.making {
			one.again = true
		} else {
			v.survey(one)
		}
	}
	return v.tail.C
}

// apply takes changes into all views.
func (v *Views) apply(pending map[state.Key]bool) {
	if len(pending) == 0 {
		return
	}
	v.mu.Lock()
	views := make([]*View, 0, len(v.views))
	for _, one := range v.views {
		if !one.making {
			views = append(views, one)
			continue
		}
		for at, changed := range pending {
			one.late[at] = one.late[at] || changed
		}
	}
	v.mu.Unlock()
	for _, one := range views {
		if err := one.apply(v.ctx, v.opts.State, pending); err != nil {
			v.drop(one, err)
		}
	}
}

// take puts the result of a survey into its view.
func (v *Views) take(m made) {
	v.metrics.surveys.Inc()
	v.metrics.surveySeconds.Observe(m.took.Seconds())
	one := m.view
	if m.err != nil {
		v.drop(one, m.err)
		return
	}
	if err := one.replace(v.ctx, v.opts.State, m.content); err != nil {
		v.drop(one, err)
		return
	}
	v.mu.Lock()
	one.making, one.late = false, nil
	one.surveyed, one.took = time.Now(), m.took
	if one.again {
		one.again = false
		v.survey(one)
	}
	v.mu.Unlock()
	for _, one := range v.excess() {
		v.metrics.refused.Inc()
		v.drop(one, ErrTooMany)
	}
}

// excess returns the views that must end because all together have too many events. It drops views without readers first. Then
// those who have most in theirs lose their newest, so that no one takes the lists of all others away.
func (v *Views) excess() []*View {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	var unused, used []*View
	events := map[*View]int{}
	for _, one := range v.views {
		events[one] = one.len()
		n += events[one]
		if one.readers > 0 {
			used = append(used, one)
		} else if !one.making {
			unused = append(unused, one)
		}
	}
	slices.SortFunc(unused, func(x, y *View) int { return x.unused.Compare(y.unused) })
	for _, one := range unused {
		if n <= v.opts.MaxEvents {
			break
		}
		n -= events[one]
		delete(v.views, keyOf(&one.query))
	}
	slices.SortFunc(used, func(x, y *View) int { return cmp.Compare(y.opened, x.opened) }) // the newest first
	held := map[string]int{}                                                               // events by owner
	for _, one := range used {
		held[one.query.Owner] += events[one]
	}
	var over []*View
	for n > v.opts.MaxEvents && len(used) > 0 {
		most := used[0].query.Owner
		for owner, events := range held {
			if events > held[most] {
				most = owner
			}
		}
		i := slices.IndexFunc(used, func(one *View) bool { return one.query.Owner == most })
		over = append(over, used[i])
		n -= events[used[i]]
		held[most] -= events[used[i]]
		used = slices.Delete(used, i, i+1)
	}
	return over
}

// drop ends a view with an error.
func (v *Views) drop(one *View, err error) {
	if v.ctx.Err() != nil {
		err = ErrStopped
	} else if !errors.Is(err, ErrTooMany) {
		v.log.Error("a live list of events has ended", "err", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for at, other := range v.views {
		if other == one {
			delete(v.views, at)
		}
	}
	one.end(err)
}

// tidy drops views that have had no reader for a while, and makes old ones anew. It reports whether there are any.
func (v *Views) tidy(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for at, one := range v.views {
		switch {
		case one.making:
		case one.readers == 0 && now.Sub(one.unused) >= v.opts.Keep:
			delete(v.views, at)
		case one.readers > 0 && one.old(now, &v.opts):
			v.survey(one)
		}
	}
	v.shrink()
	return len(v.views) > 0
}

// shrink stops following the state if there are no views. The caller holds mu.
func (v *Views) shrink() {
	if v.tail != nil && (len(v.views) == 0 || v.stopped) {
		v.tail.Close()
		v.tail = nil
	}
}

// size returns how many views there are, and the events in all of them.
func (v *Views) size() (views, events int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.views {
		events += one.len()
	}
	return len(v.views), events
}
