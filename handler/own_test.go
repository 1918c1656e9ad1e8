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

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// cluster is a log of one partition and the backends that fold it, each as far as the test lets it. It does with
// records what packages state and fold do.
type cluster struct {
	t   *testing.T
	rng *rand.Rand

	mu      sync.Mutex // guards the fields below, and those of members; never held while a Dispatcher is called
	log     []clusterRecord
	members []*clusterMember
	runs    map[string][]modelRun // by handler and pair
	want    map[string][]uint64   // the same, the messages in their order
	ids     map[string]bool
	tokens  int
	cond    *sync.Cond
}

// clusterRecord is an event, a record of deliveries, or a change of the owner.
type clusterRecord struct {
	pair   int // of an event
	body   []byte
	origin *clusterMember
	epoch  int
	acker  eventlog.Acker
	token  uint64
	owner  *clusterMember
}

type clusterMember struct {
	c  *cluster
	db *pebble.DB
	d  *Dispatcher

	folding sync.Mutex // held while records are folded; guards the two below
	held    []int      // events whose deliveries the log does not have, as indexes of the log
	owner   *clusterMember

	epoch    int  // how many changes of the owner are folded
	at       int  // folded so far
	dead     bool // appends and attempts come to nothing
	owns     int  // counts ownerships
	owning   bool
	known    uint64          // when it began
	finished map[string]bool // the deliveries up to known that had finished then
}

func newCluster(t *testing.T, seed uint64, n int) *cluster {
	c := &cluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), runs: map[string][]modelRun{}, want: map[string][]uint64{}, ids: map[string]bool{},
	}
	c.cond = sync.NewCond(&c.mu)
	h := newHandlers(pipe("a", "x"), pipe("b", "x"))
	for i := range n {
		m := &clusterMember{c: c, db: openDB(t, "db", vfs.NewMem())}
		sender := newSender(t, func(_ context.Context, _ *resource.Handler, dl *delivery.Delivery, _ send.Job) send.Result {
			return m.run(dl)
		})
		var err error
		m.d, err = New(Options{
			DB: m.db, Config: h.snapshot, QueueSize: 4, ParkSize: 6, Workers: 2, Workflows: newWorkflows(t, h), Sender: sender,
			Backoff: time.Millisecond, Log: m, Origin: fmt.Sprint("b", i), StopTimeout: time.Millisecond,
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

func (m *clusterMember) Partition(string, string) int { return 0 }

func (m *clusterMember) AppendTo(_ context.Context, _ int, r *eventlog.Record, acker eventlog.Acker, token uint64) error {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if m.dead {
		return eventlog.ErrClosed
	}
	m.c.log = append(m.c.log, clusterRecord{body: bytes.Clone(r.Body), origin: m, epoch: m.epoch, acker: acker, token: token})
	return nil
}

// kill lets nothing of the member have an effect any more.
func (m *clusterMember) kill() {
	m.folding.Lock()
	defer m.folding.Unlock()
	m.c.mu.Lock()
	was := m.dead
	m.dead = true
	m.c.cond.Broadcast()
	left := m.c.log[m.at:]
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
	owns := m.owns
	gone := func() bool { return m.dead || m.owns != owns || !m.owning }
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
	if m.finished[dl.ID] {
		c.t.Errorf("%s runs again, but the log had its end when the member took over at %d", dl.ID, m.known)
	}
	c.runs[key] = append(c.runs[key], modelRun{slices.Index(c.members, m) + 10*m.owns, index})
	if dl.Seq%7 == 0 && rand.IntN(2) == 0 {
		return later
	}
	return send.Result{}
}

// fold has a member fold up to n records.
func (m *clusterMember) fold(n int) {
	m.folding.Lock()
	defer m.folding.Unlock()
	for range n {
		m.c.mu.Lock()
		if m.dead || m.at == len(m.c.log) {
			m.c.mu.Unlock()
			return
		}
		i := m.at
		rec := m.c.log[i]
		m.c.mu.Unlock()
		m.foldOne(i, rec)
		m.c.mu.Lock()
		m.at++
		m.c.mu.Unlock()
		if rec.acker != nil && rec.origin == m {
			rec.acker.Logged(rec.token, 0, uint64(i+1), nil)
		}
	}
}

func (m *clusterMember) foldOne(i int, rec clusterRecord) {
	switch {
	case rec.owner != nil:
		m.change(rec.owner)
	case rec.body != nil:
		if rec.body[0] == kindReport && (rec.origin != m.owner || rec.epoch != m.epoch) {
			return
		}
		known, err := m.d.Fold(0, uint64(i+1), 1, rec.body, nil)
		if err != nil {
			m.c.t.Error(err)
		}
		m.held = slices.DeleteFunc(m.held, func(i int) bool { return uint64(i+1) <= known })
	default:
		// The owner keeps it, too: it may lose the partition to a backend that dies, and get it back.
		if m.held = append(m.held, i); m.owner == m {
			m.route(i)
		}
	}
}

// change changes the owner.
func (m *clusterMember) change(owner *clusterMember) {
	was := m.owner
	m.owner = owner
	if was == m {
		m.c.mu.Lock()
		m.owning = false
		m.c.cond.Broadcast()
		m.c.mu.Unlock()
		m.d.Disown(0)
		eventually(m.c.t, "what ran has come to nothing", func() bool { // run must not take it for the next ownership's
			m.d.mu.RLock()
			defer m.d.mu.RUnlock()
			for _, q := range m.d.queues {
				if !q.empty() {
					return false
				}
			}
			return true
		})
	}
	m.c.mu.Lock()
	m.epoch++
	m.c.mu.Unlock()
	if owner != m {
		return
	}
	m.began()
	if err := m.d.Own(0, 0); err != nil {
		m.c.t.Error(err)
	}
	for _, i := range m.held {
		m.route(i)
	}
}

// began records which deliveries have ended, by the log.
func (m *clusterMember) began() {
	l := m.d.ledger(0)
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	unfinished := map[string]bool{}
	for _, key := range stored(m.c.t, m.db) {
		name, _, pos, err := parseDeliveryKey([]byte(key))
		if err != nil {
			m.c.t.Error(err)
		}
		unfinished[clusterID(pos.seq, name.Name)] = true
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.owns++
	m.owning, m.known, m.finished = true, known, map[string]bool{}
	for i := range m.c.log[:known] {
		for _, h := range []string{"a", "b"} {
			if id := clusterID(uint64(i+1), h); m.c.ids[id] && !unfinished[id] {
				m.finished[id] = true
			}
		}
	}
}

func clusterID(seq uint64, handler string) string { return fmt.Sprintf("0-%d-1/%s", seq, handler) }

// route dispatches the deliveries of an event.
func (m *clusterMember) route(i int) {
	m.c.mu.Lock()
	pair := m.c.log[i].pair
	m.c.mu.Unlock()
	seq, entity := uint64(i+1), fmt.Sprint("e", pair)
	for _, h := range []string{"a", "b"} {
		dl := incident(h, int(seq), entity)
		m.c.mu.Lock()
		if m.c.ids[dl.ID] = true; !slices.Contains(m.c.want[h+" "+entity], seq) {
			m.c.want[h+" "+entity] = append(m.c.want[h+" "+entity], seq)
		}
		m.c.mu.Unlock()
		m.d.Dispatch(dl)
	}
	m.d.Routed(0, seq)
}

// report has the member make a report now.
func (m *clusterMember) report() {
	l := m.d.ledger(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
}

func (c *cluster) append(rec clusterRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, rec)
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

// TestTakeover plays random histories in which the partition changes its owner, because that dies or gives it up.
func TestTakeover(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newCluster(t, seed, 4)
			owner := c.members[0]
			c.append(clusterRecord{owner: owner})
			for range 200 {
				alive := c.alive()
				switch n := c.rng.IntN(100); {
				case n < 35:
					c.append(clusterRecord{pair: c.rng.IntN(3)})
				case n < 55:
					c.release(c.rng.IntN(4))
				case n < 75:
					alive[c.rng.IntN(len(alive))].fold(c.rng.IntN(8))
				case n < 93:
					owner.report()
				case n < 96:
					if len(alive) > 2 {
						owner.kill() // and its disk is lost
						alive = c.alive()
					}
					fallthrough
				default:
					// As with leases, no two members act at the same time, although the new owner may be late.
					for _, m := range alive {
						m.fold(1 << 20)
					}
					before := owner
					owner = alive[c.rng.IntN(len(alive))]
					c.append(clusterRecord{owner: owner})
					before.fold(1 << 20)
				}
			}
			c.drain()
			c.check()
		})
	}
}

// TestReportInPart: the owner dies when half of a report is in the log. The next owner routes otherwise, so what it did
// not route must not come back later.
func TestReportInPart(t *testing.T) {
	c := newCluster(t, 1, 3)
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
	b.held = nil // for b, no handler takes the event
	c.append(clusterRecord{owner: b})
	c.append(clusterRecord{pair: 2})
	for _, m := range c.alive() {
		m.fold(2)
	}
	b.report()
	c.mu.Lock()
	delete(c.want, "a e1")
	delete(c.want, "b e1")
	c.mu.Unlock()
	c.drain()
	if len(c.runs["a e1"]) != 0 || len(c.runs["a e2"]) != 1 {
		t.Errorf("ran %v", c.runs)
	}
}

// TestRacingRequests: two backends are asked to send the same dead letter again, or to delete it. One of them does.
func TestRacingRequests(t *testing.T) {
	for name, second := range map[string]func(*Dispatcher, context.Context, string, []string, string) (int, error){
		"redrive": (*Dispatcher).Redrive, "delete": (*Dispatcher).DeleteDeadLetters,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, 3)
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
				if n := m.d.letters.byHandler()["a"]; n != 1 {
					t.Fatalf("%d dead letters are counted", n)
				}
			}
			var calls sync.WaitGroup
			counts, errs := make([]int, 2), make([]error, 2)
			calls.Go(func() { counts[0], errs[0] = c.members[0].d.Redrive(t.Context(), "default", nil, "") })
			calls.Go(func() {
				counts[1], errs[1] = second(c.members[1].d, t.Context(), "default", []string{"0-2-1.a", "0-2-1.a"}, "")
			})
			eventually(t, "both requests are in the log", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.log) == 4
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
				if n := m.d.letters.byHandler()["a"]; n != 0 || len(keysFrom(t, m.db, "dx")) != 0 {
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
