package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

// cluster is a log and the backends that fold it, each as far as the test lets it. It does with records what packages
// state and fold do.
type cluster struct {
	t   *testing.T
	rng *rand.Rand

	mu      sync.Mutex        // guards the fields below, and those of members; never held while a Dispatcher is called
	logs    [][]clusterRecord // by partition
	members []*clusterMember
	runs    map[string][]modelRun // by handler and pair
	want    map[string][]uint64   // the same, the messages in their order
	ids     map[string]bool
	tokens  int
	cond    *sync.Cond
}

// clusterRecord is an event, a record of deliveries, or a change of the owner.
type clusterRecord struct {
	partition int
	pair      int // of an event
	body      []byte
	origin    *clusterMember
	epoch     int
	acker     eventlog.Acker
	token     uint64
	owner     *clusterMember
}

type clusterMember struct {
	c  *cluster
	db *pebble.DB
	d  *Dispatcher

	folding sync.Mutex // held while records are folded
	dead    bool       // appends and attempts come to nothing
	parts   []clusterPart
}

// clusterPart is what a member knows of a partition.
type clusterPart struct {
	held  []int // events whose deliveries the log does not have, as indexes of the log; folding guards them, and owner
	owner *clusterMember

	buffer   []clusterRecord // that the log does not have yet
	epoch    int             // how many changes of the owner are folded
	at       int             // folded so far
	owns     int             // counts ownerships
	owning   bool
	known    uint64          // when it began
	finished map[string]bool // the deliveries up to known that had finished then
}

// newCluster makes a cluster of n members. The handlers are a and b, and c, which runs at one member only: with two
// partitions at the owner of the second one.
func newCluster(t *testing.T, seed uint64, n, partitions int) *cluster {
	c := &cluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), runs: map[string][]modelRun{}, want: map[string][]uint64{}, ids: map[string]bool{},
		logs: make([][]clusterRecord, partitions),
	}
	c.cond = sync.NewCond(&c.mu)
	defs := []*resource.Handler{pipe("a", "x"), pipe("b", "x"), limited("c")}
	for _, def := range defs {
		def.Retry = &resource.HandlerRetry{MaxBackoff: 1} // some deliveries fail often
	}
	h := newHandlers(defs...)
	for i := range n {
		m := &clusterMember{c: c, db: openDB(t, "db", vfs.NewMem()), parts: make([]clusterPart, partitions)}
		sender := newSender(t, func(_ context.Context, _ *resource.Handler, dl *delivery.Delivery, _ send.Job) send.Result {
			return m.run(dl)
		})
		var err error
		m.d, err = New(Options{
			DB: m.db, Config: h.snapshot, QueueSize: 4, ParkSize: 6, Workers: 2, Workflows: newWorkflows(t, h), Sender: sender,
			Backoff: time.Millisecond, Log: m, Origin: fmt.Sprint("b", i), StopTimeout: time.Millisecond,
			Present: new(present).Event, OnCall: oncall.New(h.snapshot, calendar.New(nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, m)
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.kill()
			if err := errors.Join(m.d.Stop(), m.db.Close()); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// Partition returns the home partition of a handler.
func (m *clusterMember) Partition(_, handler string) int { return int(handler[0]) % len(m.parts) }

func (m *clusterMember) AppendTo(
	_ context.Context, p int, r *eventlog.Record, acker eventlog.Acker, token uint64,
) error {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if m.dead {
		return eventlog.ErrClosed
	}
	m.parts[p].buffer = append(m.parts[p].buffer, clusterRecord{
		body: bytes.Clone(r.Body), origin: m, epoch: m.parts[p].epoch, acker: acker, token: token,
	})
	if r.Body[0] == kindRequest {
		m.write(p)
	}
	return nil
}

// write gives the log what waits in the buffer of a partition. The caller holds c.mu.
func (m *clusterMember) write(p int) {
	m.c.logs[p] = append(m.c.logs[p], m.parts[p].buffer...)
	m.parts[p].buffer = nil
}

// kill lets nothing of the member have an effect any more.
func (m *clusterMember) kill() {
	m.folding.Lock()
	defer m.folding.Unlock()
	m.c.mu.Lock()
	was := m.dead
	m.dead = true
	m.c.cond.Broadcast()
	var left []clusterRecord
	for p := range m.parts {
		left = append(append(left, m.c.logs[p][m.parts[p].at:]...), m.parts[p].buffer...)
		m.parts[p].buffer = nil
	}
	m.c.mu.Unlock()
	for _, rec := range left {
		if rec.acker != nil && rec.origin == m && !was {
			rec.acker.Logged(rec.token, 0, 0, eventlog.ErrClosed)
		}
	}
}

// run waits for a token and records the run, unless the member has died or lost the partition by then.
func (m *clusterMember) run(dl *delivery.Delivery) send.Result {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	part := &m.parts[dl.Partition]
	if dl.Handler == "c" {
		part = &m.parts[m.Partition("", "c")]
	}
	owns := part.owns
	gone := func() bool { return m.dead || part.owns != owns || !part.owning }
	if owns == 0 {
		c.t.Errorf("%s runs at a member that never owned its partition", dl.ID)
	}
	for c.tokens == 0 && !gone() {
		c.cond.Wait()
	}
	if gone() {
		return send.Result{}
	}
	c.tokens--
	key := dl.Handler + " " + dl.Entity
	index := slices.Index(c.want[key], dl.Seq)
	if index < 0 || !c.ids[dl.ID] {
		c.t.Errorf("%s: %s was never routed", key, dl.ID)
	}
	if part.finished[dl.ID] {
		c.t.Errorf("%s runs again, but the log had its end when the member took over at %d", dl.ID, part.known)
	}
	c.runs[key] = append(c.runs[key], modelRun{slices.Index(c.members, m) + 10*part.owns, index})
	if dl.Seq%7 == 0 && rand.IntN(2) == 0 {
		return later
	}
	return send.Result{}
}

// fold has a member fold up to n records of each partition.
func (m *clusterMember) fold(n int) {
	for p := range m.parts {
		m.foldPart(p, n)
	}
}

func (m *clusterMember) foldPart(p, n int) {
	m.folding.Lock()
	defer m.folding.Unlock()
	part := &m.parts[p]
	m.c.mu.Lock()
	m.write(p)
	m.c.mu.Unlock()
	for range n {
		m.c.mu.Lock()
		if m.dead || part.at == len(m.c.logs[p]) {
			m.c.mu.Unlock()
			return
		}
		i := part.at
		rec := m.c.logs[p][i]
		m.c.mu.Unlock()
		m.foldOne(p, i, rec)
		m.c.mu.Lock()
		part.at++
		m.c.mu.Unlock()
		if rec.acker != nil && rec.origin == m {
			rec.acker.Logged(rec.token, p, uint64(i+1), nil)
		}
	}
}

func (m *clusterMember) foldOne(p, i int, rec clusterRecord) {
	part := &m.parts[p]
	switch {
	case rec.owner != nil:
		m.change(p, rec.owner)
	case rec.body != nil:
		if rec.body[0] == kindReport && (rec.origin != part.owner || rec.epoch != part.epoch) {
			return
		}
		known, err := m.d.Fold(p, uint64(i+1), 1, rec.body, nil)
		if err != nil {
			m.c.t.Error(err)
		}
		part.held = slices.DeleteFunc(part.held, func(i int) bool { return uint64(i+1) <= known })
	default:
		// The owner keeps it, too: it may lose the partition to a backend that dies, and get it back.
		if part.held = append(part.held, i); part.owner == m {
			m.route(p, i)
		}
	}
}

// change changes the owner.
func (m *clusterMember) change(p int, owner *clusterMember) {
	part := &m.parts[p]
	was := part.owner
	part.owner = owner
	if was == m {
		m.c.mu.Lock()
		part.owning = false
		m.c.cond.Broadcast()
		m.c.mu.Unlock()
		l := m.d.ledger(p)
		m.d.Disown(p)
		// run must not take it for the next ownership's
		eventually(m.c.t, "what ran has come to nothing", func() bool { return !m.d.runs(l) })
	}
	m.c.mu.Lock()
	part.epoch++
	m.c.mu.Unlock()
	if owner != m {
		return
	}
	m.began(p)
	if err := m.d.Own(p, 0); err != nil {
		m.c.t.Error(err)
	}
	for _, i := range part.held {
		m.route(p, i)
	}
}

// runs reports whether deliveries of a ledger are in memory, except deliveries that are being handed over.
func (d *Dispatcher) runs(l *ledger) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, q := range d.queues {
		q.mu.Lock()
		for _, c := range q.chains {
			for it := c.head; it != nil; it = it.next {
				if it.ledger == l && !q.away(it) {
					q.mu.Unlock()
					return true
				}
			}
		}
		q.mu.Unlock()
	}
	return false
}

// began records which deliveries have ended, by the log.
func (m *clusterMember) began(p int) {
	known := m.d.ledger(p).knownNow()
	unfinished := map[string]bool{}
	for _, key := range stored(m.c.t, m.db) {
		value, _ := find(m.c.t, m.db, key)
		name, lane, pos, err := parseDeliveryKey([]byte(key))
		if err != nil {
			m.c.t.Error(err)
		}
		dl, err := decodeDelivery(name, lane, pos, value)
		if err != nil {
			m.c.t.Error(err)
			continue
		}
		if m.d.partitionOf(dl) == p {
			unfinished[dl.ID] = true
		}
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	part := &m.parts[p]
	part.owns++
	part.owning, part.known, part.finished = true, known, map[string]bool{}
	for i := range m.c.logs[p][:known] {
		for _, h := range []string{"a", "b", "c"} {
			if h == "c" && m.Partition("", h) != p {
				continue
			}
			if id := clusterID(p, uint64(i+1), h); m.c.ids[id] && !unfinished[id] {
				part.finished[id] = true
			}
		}
	}
	if m.Partition("", "c") != p {
		return
	}
	for _, key := range keysFrom(m.c.t, m.db, "dh") {
		id := key[len(handedKey(resource.Name{Namespace: "default", Name: "c"}, 0, 0, "")):]
		if part.finished[id] = !unfinished[id]; !m.c.ids[id] {
			m.c.t.Errorf("%q was handed over", key)
		}
	}
}

func clusterID(p int, seq uint64, handler string) string {
	return fmt.Sprintf("%d-%d-1/%s", p, seq, handler)
}

// route dispatches the deliveries of an event.
func (m *clusterMember) route(p, i int) {
	m.c.mu.Lock()
	pair := m.c.logs[p][i].pair
	m.c.mu.Unlock()
	seq, entity := uint64(i+1), fmt.Sprint("e", pair)
	for _, h := range []string{"a", "b", "c"} {
		dl := incident(h, int(seq), entity)
		dl.ID, dl.Partition = clusterID(p, seq, h), p
		m.c.mu.Lock()
		if m.c.ids[dl.ID] = true; !slices.Contains(m.c.want[h+" "+entity], seq) {
			m.c.want[h+" "+entity] = append(m.c.want[h+" "+entity], seq)
		}
		m.c.mu.Unlock()
		m.d.Dispatch(dl)
	}
	m.d.Routed(p, seq)
}

// report has the member make a report on a partition now.
func (m *clusterMember) report(p int) {
	l := m.d.ledger(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
}

func (c *cluster) append(rec clusterRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs[rec.partition] = append(c.logs[rec.partition], rec)
}

func (c *cluster) release(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens += n
	c.cond.Broadcast()
}

func (c *cluster) alive() (alive []*clusterMember) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if !m.dead {
			alive = append(alive, m)
		}
	}
	return alive
}

// drain lets everything run, and folds until nothing is stored on any member.
func (c *cluster) drain() {
	c.release(1 << 30)
	eventually(c.t, "every delivery has ended on every member", func() bool {
		ended := true
		for _, m := range c.alive() {
			m.fold(1 << 20)
			ended = ended && len(stored(c.t, m.db)) == 0 && len(keysFrom(c.t, m.db, "dr")) == 0
		}
		return ended && c.ranAll()
	})
}

func (c *cluster) ranAll() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, want := range c.want {
		if runs := c.runs[key]; len(runs) == 0 || runs[len(runs)-1].index != len(want)-1 {
			return false
		}
	}
	return true
}

// check checks the order: each ownership runs a pair's deliveries in order and without a gap, and begins no later than
// behind the last that had run before.
func (c *cluster) check() {
	for key, runs := range c.runs {
		last, by := -1, -1
		for _, r := range runs {
			switch {
			case r.incarnation == by && r.index != last+1 && r.index != last: // an attempt may have failed
				c.t.Errorf("%s: delivery %d ran behind %d", key, r.index, last)
			case r.incarnation != by && r.index > last+1:
				c.t.Errorf("%s: after a takeover delivery %d ran, but %d had not", key, r.index, last+1)
			}
			last, by = r.index, r.incarnation
		}
	}
}

// TestTakeover plays random histories in which partitions change their owners, because they die or give them up.
func TestTakeover(t *testing.T) {
	seeds := 25
	if testing.Short() {
		seeds = 8
	}
	for partitions := 1; partitions <= 2; partitions++ {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(partitions, "/", seed), func(t *testing.T) {
				c := newCluster(t, seed, 4, partitions)
				owners := make([]*clusterMember, partitions)
				for p := range owners {
					owners[p] = c.members[p]
					c.append(clusterRecord{partition: p, owner: owners[p]})
				}
				for range 200 * partitions {
					c.step(owners)
				}
				c.drain()
				c.check()
			})
		}
	}
}

// step is one step of a random history.
func (c *cluster) step(owners []*clusterMember) {
	alive := c.alive()
	p := c.rng.IntN(len(owners))
	switch n := c.rng.IntN(100); {
	case n < 35:
		pair := c.rng.IntN(4)
		c.append(clusterRecord{partition: pair % len(owners), pair: pair})
	case n < 55:
		c.release(c.rng.IntN(4))
	case n < 75:
		alive[c.rng.IntN(len(alive))].foldPart(p, c.rng.IntN(8))
	case n < 93:
		owners[p].report(p)
	case n < 96 && len(alive) > 2:
		victim := owners[p]
		victim.kill() // and its disk is lost
		for p, owner := range owners {
			if owner == victim {
				c.takeOver(p, owners)
			}
		}
	default:
		c.takeOver(p, owners)
	}
}

// takeOver changes the owner of a partition. As with leases, no two members act at the same time, although the new
// owner may be late.
func (c *cluster) takeOver(p int, owners []*clusterMember) {
	alive := c.alive()
	for _, m := range alive {
		m.fold(1 << 20)
	}
	before := owners[p]
	owners[p] = alive[c.rng.IntN(len(alive))]
	c.append(clusterRecord{partition: p, owner: owners[p]})
	before.fold(1 << 20)
}

// TestReportInPart: the owner dies when half of a report is in the log. The next owner routes otherwise, so what it did
// not route must not come back later.
func TestReportInPart(t *testing.T) {
	c := newCluster(t, 1, 3, 1)
	a, b, other := c.members[0], c.members[1], c.members[2]
	c.append(clusterRecord{owner: a})
	c.append(clusterRecord{pair: 1}) // message 2
	for _, m := range c.members {
		m.fold(2)
	}
	it := &item{Delivery: incident("a", 2, "e1"), pos: position{2, 1}}
	half := appendOp(appendReportHeader(nil, &report{term: a.d.ledger(0).mine, begins: true}), op{it.key(), opSet, 0, it.value()})
	c.append(clusterRecord{body: half, origin: a, epoch: 1})
	for _, m := range c.members {
		m.fold(1)
	}
	a.kill()
	if n := len(stored(t, other.db)); n != 1 {
		t.Fatalf("%d are stored, want 1", n)
	}
	b.parts[0].held = nil // for b, no handler takes the event
	c.append(clusterRecord{owner: b})
	c.append(clusterRecord{pair: 2})
	for _, m := range c.alive() {
		m.fold(2)
	}
	b.report(0)
	c.mu.Lock()
	delete(c.want, "a e1")
	delete(c.want, "b e1")
	delete(c.want, "c e1")
	c.mu.Unlock()
	c.drain()
	if len(c.runs["a e1"]) != 0 || len(c.runs["a e2"]) != 1 {
		t.Errorf("ran %v", c.runs)
	}
}

func redrive(d *Dispatcher, ctx context.Context, namespace string, ids []string, handler string) (int, error) {
	done, err := d.Redrive(ctx, delivery.Redrive{Namespace: namespace, IDs: ids, Handler: handler})
	return done.Count, err
}

// TestRacingRequests: two backends are asked to send the same dead letter again, or to delete it. One of them does.
func TestRacingRequests(t *testing.T) {
	for name, second := range map[string]func(*Dispatcher, context.Context, string, []string, string) (int, error){
		"redrive": redrive, "delete": (*Dispatcher).DeleteDeadLetters,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, 3, 1)
			c.append(clusterRecord{owner: c.members[2]})
			owner := c.members[2]
			owner.fold(1)
			dl := incident("a", 2, "e1")
			letter := op{letterKey("default", letterID(dl)), opSet, 0, encodeLetter(dl, progress{attempts: 3}, 1, "why", "")}
			c.append(clusterRecord{origin: owner, epoch: 1, body: appendOp(
				appendReportHeader(nil, &report{term: owner.d.ledger(0).mine, begins: true, upto: 2}), letter)})
			c.ids[dl.ID], c.want["a e1"] = true, []uint64{2}
			for _, m := range c.members {
				m.fold(2)
				if n := m.d.letters.byName()[resource.Name{Namespace: "default", Name: "a"}]; n != 1 {
					t.Fatalf("%d dead letters are counted", n)
				}
			}
			var calls sync.WaitGroup
			counts, errs := make([]int, 2), make([]error, 2)
			calls.Go(func() { counts[0], errs[0] = redrive(c.members[0].d, t.Context(), "default", nil, "") })
			calls.Go(func() {
				counts[1], errs[1] = second(c.members[1].d, t.Context(), "default", []string{"0-2-1.a", "0-2-1.a"}, "")
			})
			eventually(t, "both requests are in the log", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.logs[0]) == 4
			})
			for _, m := range c.members {
				m.fold(10)
			}
			calls.Wait()
			if counts[0]+counts[1] != 1 || errors.Join(errs...) != nil {
				t.Errorf("the requests got %v, %v", counts, errs)
			}
			sent := counts[0]
			if name == "redrive" {
				sent = 1
			}
			for i, m := range c.members {
				if n := m.d.letters.byName()[resource.Name{Namespace: "default", Name: "a"}]; n != 0 || len(keysFrom(t, m.db, "dx")) != 0 {
					t.Errorf("member %d counts %d dead letters and has %q", i, n, keysFrom(t, m.db, "dx"))
				}
				if n := len(stored(t, m.db)); n != sent {
					t.Errorf("member %d has %d deliveries, the requests got %v", i, n, counts)
				}
			}
			if sent == 0 {
				return
			}
			c.drain()
			if runs := c.runs["a e1"]; len(runs) != 1 || runs[0].incarnation%10 != 2 {
				t.Errorf("ran %v, want once by the owner", runs)
			}
		})
	}
}

// TestNoAttemptsWithoutLease: a backend that may not act holds its deliveries, and goes on when it may again.
func TestNoAttemptsWithoutLease(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var may atomic.Bool
		b := setup(t, Options{DB: db, MayRun: may.Load}, hook("a"))
		a := b.attempts(nil)
		b.start(t)
		b.Dispatch(incident("a", 1, "e"))
		time.Sleep(time.Minute) // the bubble's time
		if got := a.times("0-1-1/a"); len(got) != 0 {
			t.Fatalf("without a lease it was tried at %v", got)
		}
		may.Store(true)
		b.finished.wait(1)
		if got := a.times("0-1-1/a"); len(got) != 1 {
			t.Errorf("with a lease it was tried at %v", got)
		}
	})
}
