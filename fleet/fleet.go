// Package fleet keeps live lists of entities for readers that see only a part of one at a time, such as the web page: which
// entities a selector selects, in an order, counted by group, with the number of events of each.
//
// One goroutine follows the changes of events and of definitions and keeps a table of all entities. It publishes a snapshot
// of the table when something changed, once a second at most. Fleet.Open finds or makes the list of a query, and readers with
// equal queries share it. A list is brought up to date when a reader asks for it after a new snapshot: it looks again at the
// entities that changed. So an answer costs what its part of the list costs, however often it is asked for.
//
// The table is made from all events in memory when the first list is opened, and is kept for a while after the last one. From
// time to time all events are looked at again, since some things change without an event: windows of silences, and what
// agents report of their hosts. Who may see which entities is up to the caller, who puts it into the query.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Definitions has the definitions and tells of changes. *config.Store implements it.
type Definitions interface {
	Snapshot() *config.Snapshot
	OnChange(func(config.Change)) (cancel func())
}

// Options wires a Fleet. 0 stands for the value of DefaultOptions.
type Options struct {
	// Config has the definitions of the entities, and State their events. Required.
	Config Definitions
	State  *state.State
	// Backend returns the name of the member that an agent is connected to, or "". Default: that is not known.
	Backend func(agent resource.Name) string
	// Delay is the shortest time between two snapshots. It is longer if it takes long to take changes in.
	Delay time.Duration
	// Refresh is how long after a survey the next one begins, and RefreshTimed how old a list gets whose selector has answers
	// that change with the time.
	Refresh, RefreshTimed time.Duration
	// Keep is how long a list is kept after its last reader, and KeepTable how long the table is after the last list.
	Keep, KeepTable time.Duration
	// MaxEntities bounds the entities in all lists. One needs about 10 bytes there, and about 300 in the table.
	MaxEntities int
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		Delay: time.Second, Refresh: 30 * time.Second, RefreshTimed: 5 * time.Second, Keep: time.Minute, KeepTable: 10 * time.Minute,
		MaxEntities: 4_000_000,
	}
}

const (
	// tailBuffer is how many changes may wait while others are taken in.
	tailBuffer = 1 << 16
	// restFactor is how many times as long as the last taking in the next gathering lasts at least, and surveyFactor the same
	// for surveys.
	restFactor, surveyFactor = 4, 20
)

// The errors of Open and of readers.
var (
	ErrTooMany = errors.New("too many different lists of entities are open at once: narrow the search, or close other pages")
	ErrStopped = errors.New("the server is stopping")
)

// Fleet keeps the lists. Its methods are safe for concurrent use.
type Fleet struct {
	opts    Options
	log     *slog.Logger
	metrics metrics
	wake    chan struct{} // capacity 1: a list was opened
	done    chan struct{}
	ctx     context.Context // ends run
	cancel  context.CancelFunc

	mu       sync.Mutex // guards the fields below
	lists    map[key]*list
	used     time.Time              // when there was a list last
	told     time.Time              // when the readers of lists that change with the time were woken last
	defined  map[resource.Name]bool // whose definitions changed; nil while nothing is followed
	snapshot *snapshot              // nil while there is no table
	err      error                  // why there is none
	changed  chan struct{}          // closed with each snapshot, and at the end
	started  bool
	stopped  bool
}

// key is what equal queries have in common.
type key struct {
	namespace, text string
	order           Order
	state           State
	blind           bool
}

// New checks the options.
func New(opts Options) (*Fleet, error) {
	if opts.Config == nil || opts.State == nil {
		return nil, errors.New("fleet: config and state are required")
	}
	for _, d := range []time.Duration{opts.Delay, opts.Refresh, opts.RefreshTimed, opts.Keep, opts.KeepTable} {
		if d < 0 || opts.MaxEntities < 0 {
			return nil, errors.New("fleet: Delay, Refresh, RefreshTimed, Keep, KeepTable and MaxEntities must not be negative")
		}
	}
	defaults := DefaultOptions()
	opts.Delay = cmp.Or(opts.Delay, defaults.Delay)
	opts.Refresh = cmp.Or(opts.Refresh, defaults.Refresh)
	opts.RefreshTimed = cmp.Or(opts.RefreshTimed, defaults.RefreshTimed)
	opts.Keep = cmp.Or(opts.Keep, defaults.Keep)
	opts.KeepTable = cmp.Or(opts.KeepTable, defaults.KeepTable)
	opts.MaxEntities = cmp.Or(opts.MaxEntities, defaults.MaxEntities)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{
		opts: opts, log: opts.Logger.With("component", "fleet"), wake: make(chan struct{}, 1), done: make(chan struct{}),
		ctx: ctx, cancel: cancel, lists: map[key]*list{}, changed: make(chan struct{}),
	}
	f.metrics = newMetrics(opts.Registerer, f)
	return f, nil
}

// Start begins to keep lists. It does not keep the context.
func (f *Fleet) Start(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started || f.stopped {
		return errors.New("start lists of entities: started or stopped before")
	}
	f.started = true
	go f.run()
	return nil
}

// Stop ends all lists. Their readers get ErrStopped.
func (f *Fleet) Stop() error {
	f.mu.Lock()
	first, started := !f.stopped, f.started
	f.stopped = true
	f.mu.Unlock()
	f.cancel()
	if started {
		<-f.done
	}
	if first {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = ErrStopped
		f.tell()
	}
	return nil
}

// tell wakes the readers. The caller holds mu.
func (f *Fleet) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Open returns a reader of the list of a query. There may be no table yet: see Reader.Ready. The caller must close the
// reader.
func (f *Fleet) Open(query Query) (*Reader, error) {
	at := key{query.Namespace, query.Text, query.Order, query.State, query.Blind}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || !f.started {
		return nil, ErrStopped
	}
	one, ok := f.lists[at]
	if !ok {
		if !f.room(query.Owner) {
			f.metrics.refused.Inc()
			return nil, ErrTooMany
		}
		one = newList(query)
		f.lists[at] = one
		select {
		case f.wake <- struct{}{}:
		default: // run has not looked since the last one
		}
	}
	one.readers++
	return &Reader{fleet: f, list: one}, nil
}

// rowsOfEntity is how many rows of a list's mark for each row of the table need as much memory as an entity of the list.
const rowsOfEntity = 16

// room reports whether another list may be opened. It drops lists without readers to make it so. The caller holds mu.
func (f *Fleet) room(owner string) bool {
	rows := 1
	if f.snapshot != nil {
		rows = len(f.snapshot.rows)
	}
	next := rows // as many as it may have
	weigh := func(one *list) int {
		if size := int(one.size.Load()); size >= 0 {
			return size + rows/rowsOfEntity
		}
		return next
	}
	n, own := 0, 0
	unused := make([]key, 0, len(f.lists))
	for at, one := range f.lists {
		weight := weigh(one)
		n += weight
		if one.readers == 0 {
			unused = append(unused, at)
		} else if one.query.Owner == owner {
			own += weight
		}
	}
	if owner != "" && own+next > f.opts.MaxEntities/2 {
		return false
	}
	slices.SortFunc(unused, func(x, y key) int { return f.lists[x].unused.Compare(f.lists[y].unused) })
	for _, at := range unused {
		if n+next <= f.opts.MaxEntities {
			break
		}
		n -= weigh(f.lists[at])
		delete(f.lists, at)
	}
	return n+next <= f.opts.MaxEntities
}

// size returns how many lists there are, and the entities in all of them.
func (f *Fleet) size() (lists, entities int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.lists {
		entities += max(0, int(one.size.Load()))
	}
	return len(f.lists), entities
}

// release takes a reader off its list.
func (f *Fleet) release(one *list) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.readers--
	one.unused = time.Now()
}

// run keeps the table until the stop.
func (f *Fleet) run() {
	defer close(f.done)
	for {
		select {
		case <-f.wake:
			f.follow()
		case <-f.ctx.Done():
			return
		}
	}
}

// follow makes the table and keeps it until no list has been open for a while.
func (f *Fleet) follow() {
	unlisten := f.opts.Config.OnChange(f.onChange)
	defer unlisten()
	f.mu.Lock()
	f.defined, f.used = map[resource.Name]bool{}, time.Now()
	f.mu.Unlock()
	tail := f.opts.State.Tail(tailBuffer) // before the survey, so that no change falls between the two
	defer func() { tail.Close() }()
	t := newTable(&f.opts, 1)
	next := f.survey(t)
	f.publish(t)
	pending := map[resource.Name]bool{} // whether more than the time of the keepalive changed
	tick := time.NewTimer(f.opts.Delay)
	defer tick.Stop()
	for {
		select {
		case u, ok := <-tail.C:
			if !ok {
				f.log.Warn("changes came faster than the lists of entities could take them in: all entities are looked at again")
				tail = f.opts.State.Tail(tailBuffer)
				next = time.Time{}
				continue
			}
			if name := (resource.Name{Namespace: u.Namespace, Name: u.Entity}); !u.Repeats {
				pending[name] = true
			} else if u.Check == state.KeepaliveCheck && !pending[name] {
				pending[name] = false
			}
		case <-tick.C:
			begin := time.Now()
			f.mu.Lock()
			for name := range f.defined {
				pending[name] = true
			}
			clear(f.defined)
			f.mu.Unlock()
			if err := t.take(f.ctx, pending); err != nil {
				f.failed(err)
				next = time.Time{}
			}
			clear(pending)
			rest := max(f.opts.Delay, restFactor*time.Since(begin))
			if !begin.Before(next) {
				next = f.survey(t)
			}
			f.publish(t)
			if !f.tidy(begin) {
				return
			}
			tick.Reset(rest)
		case <-f.ctx.Done():
			return
		}
	}
}

// onChange notes that an entity's definition changed.
func (f *Fleet) onChange(c config.Change) {
	if c.Kind != config.Entities.String() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.defined != nil {
		f.defined[resource.Name{Namespace: c.Namespace, Name: c.Name}] = true
	}
}

// survey looks at all entities, and returns when to do it again.
func (f *Fleet) survey(t *table) (next time.Time) {
	begin := time.Now()
	if err := t.survey(f.ctx); err != nil {
		f.failed(err)
		return begin.Add(f.opts.Delay)
	}
	took := time.Since(begin)
	f.metrics.surveys.Inc()
	f.metrics.surveySeconds.Observe(took.Seconds())
	t.whole = true
	return begin.Add(max(f.opts.Refresh, surveyFactor*took))
}

// failed notes that the table could not be brought up to date. Readers keep what there is.
func (f *Fleet) failed(err error) {
	if f.ctx.Err() != nil {
		return
	}
	f.log.Error("the lists of entities could not be brought up to date", "err", err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.snapshot == nil {
		f.err = err
		f.tell()
	}
}

// publish gives the readers a snapshot, if there is something new.
func (f *Fleet) publish(t *table) {
	if !t.whole {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.snapshot == nil || t.changed {
		f.snapshot, f.err = t.snapshot(), nil
		f.tell()
	}
}

// tidy wakes readers of lists that change with the time. It drops lists that have had no reader for a while, and then the
// table, and reports whether there is one.
func (f *Fleet) tidy(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	timed := false
	for at, one := range f.lists {
		if one.readers == 0 && now.Sub(one.unused) >= f.opts.Keep {
			delete(f.lists, at)
		}
		timed = timed || one.timed && one.readers > 0
	}
	if timed && now.Sub(f.told) >= f.opts.RefreshTimed {
		f.told = now
		f.tell()
	}
	if len(f.lists) > 0 {
		f.used = now
	}
	if now.Sub(f.used) < f.opts.KeepTable {
		return true
	}
	f.snapshot, f.defined = nil, nil
	select {
	case <-f.wake: // of a list that was opened meanwhile, and is gone
	default:
	}
	return false
}
