package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// model is a small world around the dispatcher: an event log that survives everything, and a fold that stores the
// state of each pair together with the position from which to replay, as packages state and fold do. Records of
// deliveries are in the log, too, unless the process dies before they are.
type model struct {
	t   *testing.T
	rng *rand.Rand
	fs  *vfs.MemFS
	db  *pebble.DB
	d   *Dispatcher

	fails bool // whether some attempts fail

	// folding guards the three below. The goroutines that append records of deliveries fold them at once.
	folding sync.Mutex
	whole   [modelPartitions]uint64 // messages up to this one get no more events
	log     [modelPartitions][]modelEvent
	parts   [modelPartitions]modelPart

	mu          sync.Mutex
	cond        *sync.Cond
	incarnation int
	tokens      int                       // how many deliveries may run
	runs        map[string][]modelRun     // by handler and pair
	want        map[string][]position     // the same, what was dispatched first
	done        map[string]map[string]int // handler and pair -> ID -> times
}

// modelEvent is an event, or a record of deliveries.
type modelEvent struct {
	pos      position
	pair     int
	handlers []string
	report   []byte
	logged   func() // not nil until a record that was appended during the replay is folded
}

type modelRun struct {
	incarnation, index int
}

// modelPart is the fold of one partition.
type modelPart struct {
	folded int              // newest event of each
	pairs  map[int]position // newest event of each
	dirty  []modelDirty     // oldest first
	held   []modelEvent     // not routed before the end of the replay
	live   bool
}

type modelDirty struct {
	pair  int
	since position
}

const modelPartitions = 2

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), fs: vfs.NewCrashableMem(),
		runs: map[string][]modelRun{}, want: map[string][]position{}, done: map[string]map[string]int{},
	}
	m.cond = sync.NewCond(&m.mu)
	m.open()
	return m
}

func pairName(partition, pair int) string { return fmt.Sprintf("e%d-%d", partition, pair) }

// open starts a process: it loads the fold and replays the log from the fold's position.
func (m *model) open() {
	m.db = openDB(m.t, "db", m.fs)
	h := newHandlers(pipe("a", "x"), pipe("b", "x"), limited("c"))
	incarnation := m.incarnation
	sender := newSender(m.t, func(_ context.Context, _ *resource.Handler, dl *delivery.Delivery, _ send.Job) send.Result {
		return m.run(incarnation, dl)
	})
	d, err := New(Options{
		DB: m.db, Config: h.snapshot, QueueSize: 4, Workers: 2, Workflows: newWorkflows(m.t, h), Sender: sender,
		Backoff: time.Millisecond, ParkSize: 6, Log: &modelLog{m, incarnation},
		Present: new(present).Event, OnCall: oncall.New(h.snapshot, calendar.New(nil)),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.d = d
	early := m.rng.IntN(2) == 0
	if early {
		m.start()
	}
	m.folding.Lock()
	m.parts = [modelPartitions]modelPart{}
	for p := range m.parts {
		part := &m.parts[p]
		part.pairs = map[int]position{}
		for pair := range 4 {
			if b, closer, err := m.db.Get(fmt.Appendf(nil, "s%d/%d", p, pair)); err == nil {
				part.pairs[pair] = decodePosition(b)
				closer.Close()
			}
		}
		var resume position
		if b, closer, err := m.db.Get(fmt.Appendf(nil, "p%d", p)); err == nil {
			resume = decodePosition(b)
			closer.Close()
		}
		for i := 0; i < len(m.log[p]); i++ {
			ev := m.log[p][i]
			if ev.pos.compare(resume) < 0 {
				part.folded++
				continue
			}
			if m.fold(p, ev); ev.logged != nil {
				m.log[p][i].logged = nil
				ev.logged()
			}
		}
		part.live = true
		if err := d.Own(p, 0); err != nil {
			m.t.Fatal(err)
		}
		if early { // and far enough to have read back the stored deliveries
			m.release(m.rng.IntN(4))
			m.folding.Unlock() // deliveries may be handed over
			m.poll(m.atRest)
			m.folding.Lock()
			m.takeBack()
		}
		for _, ev := range part.held {
			m.route(p, ev)
		}
		part.held = nil
		m.routed(p)
	}
	m.folding.Unlock()
	if !early {
		m.start()
	}
}

// modelLog is the log of one incarnation.
type modelLog struct {
	m           *model
	incarnation int
}

// limited is a handler whose rate is limited, so that all its deliveries are run by one owner.
func limited(name string) *resource.Handler {
	h := pipe(name, "x")
	h.RateLimit = &resource.HandlerRate{PerSecond: 1e6}
	return h
}

// Partition returns the partition of an entity, or of a handler.
func (l *modelLog) Partition(_, name string) int {
	return int(name[min(1, len(name)-1)]) % modelPartitions
}

// AppendTo adds a record behind the newest event and folds it, unless the replay is to come to it.
func (l *modelLog) AppendTo(_ context.Context, p int, r *eventlog.Record, acker eventlog.Acker, token uint64) error {
	m := l.m
	m.folding.Lock()
	defer m.folding.Unlock()
	m.mu.Lock()
	dead := m.incarnation != l.incarnation
	m.mu.Unlock()
	if dead {
		return eventlog.ErrClosed
	}
	pos := position{1, 1}
	if n := len(m.log[p]); n > 0 {
		pos = position{m.log[p][n-1].pos.seq + 1, 1}
	}
	ev := modelEvent{pos: pos, report: bytes.Clone(r.Body)}
	logged := func() {
		if acker != nil {
			acker.Logged(token, p, pos.seq, nil)
		}
	}
	if !m.parts[p].live {
		ev.logged = logged
		m.log[p] = append(m.log[p], ev)
		return nil
	}
	m.log[p] = append(m.log[p], ev)
	m.fold(p, ev)
	logged()
	return nil
}

func (m *model) start() {
	if err := m.d.Start(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

// run waits for a token and records the run, unless its process has crashed in the meantime.
func (m *model) run(incarnation int, dl *delivery.Delivery) send.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.tokens == 0 && m.incarnation == incarnation {
		m.cond.Wait()
	}
	if m.incarnation != incarnation {
		return send.Result{} // a crashed process has no effect any more
	}
	m.tokens--
	m.cond.Broadcast()
	if m.fails && rand.IntN(4) == 0 {
		return later
	}
	key := dl.Handler + " " + dl.Entity
	index := slices.Index(m.want[key], position{dl.Seq, uint32(dl.Sub)})
	if index < 0 {
		m.t.Errorf("%s: %s was never dispatched", key, dl.ID)
	}
	if got := output(m.t, dl); got != "data of "+dl.ID {
		m.t.Errorf("%s has data %q", dl.ID, got)
	}
	m.runs[key] = append(m.runs[key], modelRun{incarnation, index})
	if m.done[key] == nil {
		m.done[key] = map[string]int{}
	}
	m.done[key][dl.ID]++
	if m.fails && doomed(dl) {
		return never
	}
	return send.Result{}
}

// doomed reports whether a delivery becomes a dead letter, if any fail.
func doomed(dl *delivery.Delivery) bool { return (dl.Seq+uint64(dl.Sub))%5 == 0 }

// checkLetters checks that the dead letters are exactly the doomed deliveries.
func (m *model) checkLetters() {
	want := map[string]bool{}
	for _, done := range m.done {
		for id := range done {
			var dl delivery.Delivery
			if _, err := fmt.Sscanf(id, "%d-%d-%d/", &dl.Partition, &dl.Seq, &dl.Sub); err != nil {
				m.t.Fatal(err)
			}
			if m.fails && doomed(&dl) {
				want[id] = true
			}
		}
	}
	letters, _, err := m.d.DeadLetters("", "", "", 1<<30)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, l := range letters {
		whole, ok, err := m.d.DeadLetter(l.Namespace, l.ID)
		if !ok || err != nil {
			m.t.Fatal(ok, err)
		}
		id := strings.TrimPrefix(whole.Event.Check.Output, "data of ")
		if !want[id] {
			m.t.Errorf("%s is a dead letter", id)
		}
		delete(want, id)
	}
	for id := range want {
		m.t.Errorf("%s is not a dead letter", id)
	}
}

// fold does with an event what packages state and fold do. The caller holds folding.
func (m *model) fold(p int, ev modelEvent) {
	part := &m.parts[p]
	part.folded++
	if ev.report != nil {
		known, err := m.d.Fold(p, ev.pos.seq, int(ev.pos.sub), ev.report, nil)
		if err != nil {
			m.t.Error(err)
		}
		part.held = slices.DeleteFunc(part.held, func(h modelEvent) bool { return h.pos.seq <= known })
		return
	}
	if part.pairs[ev.pair].compare(ev.pos) >= 0 {
		return
	}
	part.pairs[ev.pair] = ev.pos
	if !slices.ContainsFunc(part.dirty, func(d modelDirty) bool { return d.pair == ev.pair }) {
		part.dirty = append(part.dirty, modelDirty{ev.pair, ev.pos})
	}
	if part.live {
		m.route(p, ev)
	} else {
		part.held = append(part.held, ev)
	}
}

// route dispatches an event's deliveries, as the pipeline does. The caller holds folding.
func (m *model) route(p int, ev modelEvent) {
	for _, h := range ev.handlers {
		id := fmt.Sprintf("%d-%d-%d/%s", p, ev.pos.seq, ev.pos.sub, h)
		key := h + " " + pairName(p, ev.pair)
		m.mu.Lock()
		if !slices.Contains(m.want[key], ev.pos) {
			m.want[key] = append(m.want[key], ev.pos)
		}
		m.mu.Unlock()
		entity := pairName(p, ev.pair)
		m.d.Dispatch(&delivery.Delivery{
			Header: delivery.Header{
				ID: id, EventID: delivery.EventIDOf(id), Namespace: "default", Handler: h, Entity: entity, Check: "cpu",
				Status: uint32(ev.pos.seq % 2),
			},
			Repeats:   (ev.pos.seq+uint64(ev.pos.sub))%3 != 0,
			Partition: p, Seq: ev.pos.seq, Sub: int(ev.pos.sub), Event: event(entity, "data of "+id).AppendProto(nil),
		})
	}
	m.d.Routed(p, ev.pos.seq-1)
}

// routed ends the newest message, all of whose events are routed. The caller holds folding.
func (m *model) routed(p int) uint64 {
	if n := len(m.log[p]); n > 0 {
		m.whole[p] = m.log[p][n-1].pos.seq
		m.d.Routed(p, m.whole[p])
	}
	return m.whole[p]
}

// arrive adds a new event.
func (m *model) arrive() {
	m.folding.Lock()
	defer m.folding.Unlock()
	p := m.rng.IntN(modelPartitions)
	pos := position{1, 1}
	if n := len(m.log[p]); n > 0 {
		last := m.log[p][n-1].pos
		if pos = (position{last.seq, last.sub + 1}); last.seq <= m.whole[p] || m.rng.IntN(3) == 0 {
			pos = position{last.seq + 1, 1}
		}
	}
	ev := modelEvent{pos: pos, pair: m.rng.IntN(4)}
	for _, h := range []string{"a", "b", "c"} {
		if m.rng.IntN(2) == 0 {
			ev.handlers = append(ev.handlers, h)
		}
	}
	m.log[p] = append(m.log[p], ev)
	m.fold(p, ev)
}

// writeBack stores some of the dirty pairs, or fails to. It commits when the log has the deliveries of their messages.
func (m *model) writeBack(p int, fail, sync bool) {
	b := m.db.NewBatch()
	defer b.Close()
	n, newest := m.gather(p, b)
	if n == 0 || fail {
		return
	}
	if err := m.d.ledger(p).awaitKnown(m.t.Context(), newest); err != nil {
		m.t.Fatal(err)
	}
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	if err := b.Commit(opts); err != nil {
		m.t.Fatal(err)
	}
	m.folding.Lock()
	defer m.folding.Unlock()
	m.parts[p].dirty = m.parts[p].dirty[n:]
}

// gather adds some of the dirty pairs to a batch. It returns their number, and the newest message.
func (m *model) gather(p int, b *pebble.Batch) (n int, newest uint64) {
	m.folding.Lock()
	defer m.folding.Unlock()
	part := &m.parts[p]
	if n = min(1+m.rng.IntN(3), len(part.dirty)); n == 0 {
		return 0, 0
	}
	for _, d := range part.dirty[:n] {
		_ = b.Set(fmt.Appendf(nil, "s%d/%d", p, d.pair), appendPosition(nil, part.pairs[d.pair]), nil)
	}
	resume := m.log[p][part.folded-1].pos.successor()
	if len(part.dirty) > n {
		resume = part.dirty[n].since
	}
	_ = b.Set(fmt.Appendf(nil, "p%d", p), appendPosition(nil, resume), nil)
	return n, m.routed(p)
}

// report makes a partition's report now.
func (m *model) report(p int) {
	m.folding.Lock()
	m.routed(p)
	m.folding.Unlock()
	if err := m.d.ledger(p).flush(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) release(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens += n
	m.cond.Broadcast()
}

// crash is kill -9, and a loss of some writes that were not synced.
func (m *model) crash() {
	m.mu.Lock()
	clone := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.rng.IntN(101), RNG: m.rng})
	m.incarnation++
	m.tokens = 0
	m.cond.Broadcast()
	m.mu.Unlock()
	m.close()
	m.fs = clone
	m.open()
}

func (m *model) close() {
	if err := errors.Join(m.d.Stop(), m.db.Close()); err != nil {
		m.t.Fatal(err)
	}
}

// drain runs everything and returns when all queues are empty.
func (m *model) drain() {
	m.release(1 << 30)
	m.poll(m.idle)
	m.takeBack()
}

// takeBack takes back the unused tokens.
func (m *model) takeBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens = 0
}

// poll waits for a state that gives no signal.
func (m *model) poll(f func() bool) {
	m.t.Helper()
	begin := time.Now()
	eventually(m.t, "the dispatcher has run all that it can", func() bool {
		if time.Since(begin) > 5*time.Second {
			m.mu.Lock()
			fmt.Println("tokens", m.tokens)
			m.mu.Unlock()
			m.each(func(q *queue) bool {
				q.mu.Lock()
				defer q.mu.Unlock()
				fmt.Println(q.name, q.changes, q.others, q.parked, q.spilled, q.workers, q.paging, len(q.waits), q.isReady(),
					q.leaving.head != nil, q.handing)
				for p, c := range q.chains {
					fmt.Print(p, " ", c.index, c.due)
					for it := c.head; it != nil; it = it.next {
						fmt.Print(" ", it.ID, it.parked, it.begin)
					}
					fmt.Println()
				}
				return true
			})
			m.t.FailNow()
		}
		return f()
	})
}

func (m *model) idle() bool {
	return m.each(func(q *queue) bool { return q.empty() })
}

// atRest reports whether all tokens are used up, or none can be used any more, and the queues have stopped growing.
func (m *model) atRest() bool {
	m.mu.Lock()
	tokens := m.tokens
	m.mu.Unlock()
	return m.each(func(q *queue) bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.changes.count+q.others.count != q.whole.sum() {
			m.t.Errorf("%s: by class there are %v, and in all %v and %v", q.name, q.whole, q.changes, q.others)
		}
		if q.changes.count+q.others.count+q.parked.sum()+q.spilled.sum() == 0 && q.workers == 0 {
			return true
		}
		if q.handing && q.workers == 0 && !q.isReady() {
			return true // the other partition is not replayed yet
		}
		busy := 0
		for _, c := range q.chains {
			if c.head != nil && !c.head.begin.IsZero() {
				busy++
			}
		}
		return tokens == 0 && !q.paging && (!q.pageDue() || busy == q.workers)
	})
}

func (m *model) each(f func(*queue) bool) bool {
	m.d.mu.RLock()
	defer m.d.mu.RUnlock()
	for _, q := range m.d.queues {
		if !f(q) {
			return false
		}
	}
	return true
}

// check checks the runs of all incarnations: in each, a pair's deliveries ran in order and without a gap, starting no
// later than after the last that had run before. In the end all have run.
func (m *model) check() {
	for _, key := range slices.Sorted(maps.Keys(m.want)) {
		n := len(m.want[key])
		last, incarnation := -1, -1
		for i, r := range m.runs[key] {
			switch {
			case r.incarnation == incarnation && r.index != last+1:
				m.t.Errorf("%s: delivery %d ran behind %d", key, r.index, last)
			case r.incarnation != incarnation && r.index > last+1:
				m.t.Errorf("%s: after a crash delivery %d ran, but %d had not", key, r.index, last+1)
			}
			last, incarnation = r.index, r.incarnation
			if i == len(m.runs[key])-1 && last != n-1 {
				m.t.Errorf("%s: delivery %d ran last, not %d", key, last, n-1)
			}
		}
		for _, pos := range m.want[key] {
			if !slices.ContainsFunc(m.runs[key], func(r modelRun) bool { return m.want[key][r.index] == pos }) {
				m.t.Errorf("%s: the delivery of %v was lost", key, pos)
			}
		}
	}
}

// TestNothingIsLost plays random histories with crashes.
func TestNothingIsLost(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed)
			m.fails = seed%2 == 1
			for range 300 {
				switch n := m.rng.IntN(100); {
				case n < 55:
					m.arrive()
				case n < 75:
					m.release(m.rng.IntN(4))
				case n < 85:
					m.writeBack(m.rng.IntN(modelPartitions), m.rng.IntN(6) == 0, m.rng.IntN(3) == 0)
				case n < 97:
					m.report(m.rng.IntN(modelPartitions))
				default:
					m.crash()
				}
			}
			m.drain()
			for p := range m.parts {
				m.report(p)
			}
			if keys := append(stored(t, m.db), keysFrom(t, m.db, "dr")...); len(keys) > 0 {
				t.Errorf("still stored: %q", keys)
			}
			m.checkLetters()
			m.close()
			m.check()
		})
	}
}

// TestCrashAtEachStep kills the process at every step of one delivery's life.
func TestCrashAtEachStep(t *testing.T) {
	type step func(m *model)
	arrive := func(m *model) {
		m.folding.Lock()
		defer m.folding.Unlock()
		n := len(m.log[0])
		ev := modelEvent{pos: position{uint64(n + 1), 1}, pair: n % 2, handlers: []string{"a"}}
		m.log[0] = append(m.log[0], ev)
		m.fold(0, ev)
	}
	finish := func(m *model) {
		m.mu.Lock()
		n := 0
		for _, r := range m.runs {
			n += len(r)
		}
		m.tokens++
		m.cond.Broadcast()
		for m.tokens > 0 {
			m.cond.Wait()
		}
		m.mu.Unlock()
	}
	report := func(m *model) { m.report(0) }
	store := func(m *model) { m.writeBack(0, false, true) }
	write := func(m *model) { report(m); store(m) }
	for name, steps := range map[string][]step{
		"finished before it is reported": {arrive, finish, report, arrive, report, store},
		"finished after it is reported":  {arrive, report, finish, store, arrive, report, arrive, write},
		"stored before it is reported":   {arrive, store, report, finish, arrive, store, finish, report},
		"spilled": {
			arrive, arrive, arrive, arrive, arrive, arrive, arrive, write, finish, finish, write, finish, write,
			finish, finish, arrive, write,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for crashAt := range len(steps) + 1 {
				m := newModel(t, uint64(crashAt))
				for _, s := range steps[:crashAt] {
					s(m)
				}
				m.crash()
				arrive(m)
				m.drain()
				m.close()
				m.check()
			}
		})
	}
}
