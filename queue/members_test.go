package queue

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// world is a cluster with agents, in a time of its own: nothing happens but what is in its agenda.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Time
	agenda  agenda
	members []*node
	roster  []string // the members that own something
	agents  []*host
	checks  []*resource.CheckConfig
	stopped time.Time // until when the log takes nothing

	given   []turnGiven     // as the members told each other
	results []ran           // in the order of the log
	first   map[string]int  // by turn: its first result
	twice   int             // results of turns that had one
	offered map[string]bool // turns
	loses   bool            // the bus
	over    bool            // no check has ticks any more
}

type event struct {
	at    time.Time
	order int
	f     func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return cmp.Or(a[i].at.Compare(a[j].at), cmp.Compare(a[i].order, a[j].order)) < 0
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

var orders int

func (w *world) after(d time.Duration, f func()) {
	orders++
	heap.Push(&w.agenda, event{w.now.Add(d), orders, f})
}

func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for len(w.agenda) > 0 && w.agenda[0].at.Before(end) {
		e := heap.Pop(&w.agenda).(event)
		w.now = e.at
		e.f()
	}
	w.now = end
}

// node is a member.
type node struct {
	w     *world
	id    string
	life  int
	alive bool
	*Queue
	hears map[string]func(string, []byte)
}

// turnGiven is a turn that an agent was to get.
type turnGiven struct {
	group Group
	moved uint64
	agent string
	at    time.Time
}

// ran is a result in the log.
type ran struct {
	group Group
	turn  Turn
	moved uint64
	agent string
	at    time.Time
}

// host is an agent.
type host struct {
	w      *world
	name   string
	at     *node // nil while it is not connected
	gone   bool  // for good
	issued map[string]int64
	left   []time.Time // when it lost its connection
	back   []time.Time // when it had one again, each before the next of left
}

// Publish implements Bus: each other member gets the message a bit later, and on a bus that loses some, one in a hundred
// not at all.
func (n *node) Publish(subject string, data []byte) error {
	if r, err := readNews(data); err == nil && subject == turnsSubject {
		for r.next() {
			if r.op == opGiven {
				n.w.given = append(n.w.given, turnGiven{r.item.group, r.item.moved, r.item.agent, n.w.now})
			}
		}
	}
	delay := time.Duration(1+n.w.rng.IntN(4)) * time.Millisecond
	for _, o := range n.w.members {
		if o != n && !(n.w.loses && n.w.rng.IntN(100) == 0) {
			life := o.life
			n.w.after(delay, func() {
				if o.alive && o.life == life {
					o.hears[subject]("", data)
				}
			})
		}
	}
	return nil
}

func (n *node) Subscribe(subject string, f func(string, []byte)) (func(), error) {
	n.hears[subject] = f
	return func() {}, nil
}

func (n *node) others() (others []Other) {
	for _, o := range n.w.members {
		if o != n {
			one := Other{ID: o.id, Life: strconv.Itoa(o.life), Heard: o.alive}
			if o.alive {
				one.Presence = o.presence.Number()
			}
			others = append(others, one)
		}
	}
	return others
}

func (n *node) copyOf(_ context.Context, member string) ([]byte, error) {
	for _, o := range n.w.members {
		if o.id == member && o.alive {
			return o.Copy(), nil
		}
	}
	return nil, fmt.Errorf("%s is away", member)
}

// start starts a member's process. It knows what the log has of the last minute.
func (n *node) start() {
	w := n.w
	n.life++
	n.alive, n.hears = true, map[string]func(string, []byte){}
	q, err := New(Options{
		Member: n.id, Life: strconv.Itoa(n.life), Bus: n, Others: n.others, AskCopy: n.copyOf,
		Acts:    func(check resource.Name) bool { return n.alive && w.owner(check) == n.id },
		Deliver: func(d *Delivery) bool { return n.deliver(d) },
		Unheard: func(period time.Duration) time.Time {
			if heard := w.stopped.Add(period); heard.After(w.now) {
				return heard
			}
			return time.Time{}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.Queue = q
	for _, c := range w.checks {
		q.Define(resource.NameOf(&c.Metadata), c)
	}
	if err := q.listen(); err != nil {
		w.t.Fatal(err)
	}
	// The subscriptions read the clock of the machine: here is another one.
	n.hears[turnsSubject] = func(_ string, m []byte) {
		if err := q.hear(m, w.now); err != nil {
			w.t.Error(err)
		}
	}
	for _, r := range w.results {
		if w.now.Sub(r.at) < time.Minute {
			n.fold(r)
		}
	}
	n.Queue.began = w.now
	n.step(n.life)
}

func (n *node) fold(r ran) {
	n.result(r.group, r.turn, r.moved, r.agent, 10*time.Millisecond, n.w.now)
}

// step is the loop of the queue.
func (n *node) step(life int) {
	if !n.alive || n.life != life {
		return
	}
	n.look(n.w.now)
	n.done.Wait()
	n.work()
	n.w.after(lookEvery, func() { n.step(life) })
}

func (n *node) work() {
	n.fire(n.w.now)
	n.send(n.w.now)
}

// owner returns the member that owns a check by the roster.
func (w *world) owner(check resource.Name) (owner string) {
	var best uint32
	for _, id := range w.roster {
		h := fnv.New32a()
		_, _ = h.Write([]byte(id + check.Name + id))
		if sum := h.Sum32(); owner == "" || sum > best {
			owner, best = id, sum
		}
	}
	return owner
}

// kill ends a member's process. The others take over some seconds later, and until then the log takes nothing. Its agents
// go to other members.
func (w *world) kill(n *node) {
	n.alive = false
	stall := time.Duration(3000+w.rng.IntN(5000)) * time.Millisecond
	w.stopped = w.now.Add(stall)
	for _, h := range w.agents {
		if h.at == n {
			h.leave(time.Duration(500+w.rng.IntN(2000)) * time.Millisecond)
		}
	}
	w.after(stall, func() { w.roster = slices.DeleteFunc(w.roster, func(id string) bool { return id == n.id }) })
	w.after(10*time.Second, func() {
		n.start()
		w.after(2*time.Second, func() { w.roster = append(w.roster, n.id) })
	})
}

// connect connects an agent to a member that lives.
func (h *host) connect() {
	var living []*node
	for _, n := range h.w.members {
		if n.alive {
			living = append(living, n)
		}
	}
	if h.at != nil || h.gone || len(living) == 0 {
		return
	}
	h.at = living[h.w.rng.IntN(len(living))]
	h.at.presence.Connected(name(h.name), []string{"linux"})
	h.back = append(h.back, h.w.now)
}

// leave ends an agent's connection; it comes back after a time.
func (h *host) leave(back time.Duration) {
	if h.at != nil && h.at.alive {
		h.at.presence.Gone(name(h.name))
	}
	h.at = nil
	h.left = append(h.left, h.w.now)
	h.w.after(back, h.connect)
}

// deliver passes a turn to an agent of this member.
func (n *node) deliver(d *Delivery) bool {
	w := n.w
	for _, h := range w.agents {
		if h.name != d.Agent.Name || h.at != n {
			continue
		}
		issued := d.Request.Issued // the request is the next delivery's then
		w.after(time.Millisecond, func() { h.take(d, issued) })
		return true
	}
	return false
}

// take has an agent run a check, unless the request is not newer than one it had.
func (h *host) take(d *Delivery, issued int64) {
	if h.gone {
		return
	}
	if issued == h.issued[d.Check.Name] {
		return // it has it
	}
	if issued < h.issued[d.Check.Name] {
		h.w.t.Errorf("%s drops %+v: issued at %d, and one before at %d", h.name, d, issued, h.issued[d.Check.Name])
	}
	h.issued[d.Check.Name] = issued
	if h.w.rng.IntN(20) == 0 && h.at != nil {
		h.at.Receipt(name(h.name), &wire.Receipt{
			Check: d.Check.Name, Turn: d.Turn.Format(d.moved, d.Subscriptions...), Outcome: wire.OutcomeDeclined,
		}, h.w.now)
		h.at.work()
		return
	}
	moved := d.moved
	h.w.after(time.Duration(50+h.w.rng.IntN(200))*time.Millisecond, func() { h.report(ran{group: Group{d.Check, "linux"}, turn: d.Turn, moved: moved, agent: h.name}) })
}

// report has an agent send a result until it is in the log.
func (h *host) report(r ran) {
	w := h.w
	if h.gone {
		return
	}
	if h.at == nil || w.now.Before(w.stopped) {
		w.after(100*time.Millisecond, func() { h.report(r) })
		return
	}
	r.at = w.now
	key := fmt.Sprint(r.group, r.turn)
	if _, had := w.first[key]; had {
		w.twice++
	} else {
		w.first[key] = len(w.results)
	}
	w.results = append(w.results, r)
	for _, n := range w.members {
		if n.alive {
			life := n.life
			w.after(time.Duration(w.rng.IntN(50))*time.Millisecond, func() {
				if n.alive && n.life == life {
					n.fold(r)
				}
			})
		}
	}
}

// tick offers a tick of a check to all members, to some of them a bit later than to others.
func (w *world) tick(c *resource.CheckConfig) {
	if w.over {
		return
	}
	at := w.now.Unix()
	w.offered[fmt.Sprint(Group{resource.NameOf(&c.Metadata), "linux"}, Turn{Tick: at})] = true
	for _, n := range w.members {
		life := n.life
		w.after(time.Duration(w.rng.IntN(20))*time.Millisecond, func() {
			if n.alive && n.life == life {
				n.Offer(&Tick{
					Tick: at, Due: at, Request: &resource.CheckRequest{Config: c}, Subscriptions: c.Subscriptions,
					Every: time.Duration(c.Interval) * time.Second,
				}, w.now)
				n.work()
			}
		})
	}
	w.after(time.Duration(c.Interval)*time.Second, func() { w.tick(c) })
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1_000_000, 0), first: map[string]int{}, offered: map[string]bool{},
	}
	for i := range 4 {
		c := turnsCheck
		c.Metadata.Name, c.Interval = fmt.Sprint("turns-", i), []uint32{2, 2, 3, 20}[i]
		w.checks = append(w.checks, &c)
	}
	for i := range 3 {
		n := &node{w: w, id: fmt.Sprint("m", i)}
		w.members, w.roster = append(w.members, n), append(w.roster, n.id)
	}
	for _, n := range w.members {
		n.start()
	}
	for i := range 30 {
		h := &host{w: w, name: fmt.Sprintf("agent-%02d", i), issued: map[string]int64{}}
		w.agents = append(w.agents, h)
		h.connect()
	}
	return w
}

// TestMembers: three members one of which dies every 20 s, and agents of which a third dies. No turn is lost, few are run
// twice, all of these are noticed, and the agents that stay have their turns in order.
func TestMembers(t *testing.T) {
	seeds := uint64(20)
	var turns, twice int
	for seed := range seeds {
		w := newWorld(t, seed)
		w.loses = seed%2 == 1
		w.run(5 * time.Second)
		for _, c := range w.checks {
			w.tick(c)
		}
		for i := range 10 {
			w.run(10 * time.Second)
			w.agents[20+i].die()
			if i%2 == 0 {
				w.kill(w.members[w.rng.IntN(3)])
			}
			w.run(10 * time.Second)
		}
		w.over = true
		w.run(20 * time.Second)
		for key := range w.offered {
			if _, ok := w.first[key]; !ok {
				t.Errorf("seed %d: %s is lost", seed, key)
			}
		}
		turns, twice = turns+len(w.offered), twice+w.twice
		w.checkDuplicates(seed)
		if !w.loses {
			w.checkOrder(seed)
		}
	}
	t.Logf("%d turns, %d of them run twice", turns, twice)
	if twice*1000 > turns*5 {
		t.Errorf("%d of %d turns were run twice", twice, turns)
	}
}

// die ends an agent for good.
func (h *host) die() {
	if h.at != nil && h.at.alive {
		h.at.presence.Gone(name(h.name))
	}
	h.at, h.gone = nil, true
	h.left = append(h.left, h.w.now)
}

// checkDuplicates compares the duplicates of a member that has lived all the time with those of the log.
func (w *world) checkDuplicates(seed uint64) {
	for _, n := range w.members {
		if n.life > 1 {
			continue
		}
		found := 0
		for _, g := range n.Groups("") {
			found += int(g.Duplicates)
		}
		if found != w.twice {
			w.t.Errorf("seed %d: %s has noticed %d of %d duplicates", seed, n.id, found, w.twice)
		}
	}
}

// checkOrder checks that agents have turns in order: between two of one agent, each agent that was connected for all that
// time has one.
func (w *world) checkOrder(seed uint64) {
	byGroup := map[Group][]turnGiven{}
	for _, g := range w.given {
		byGroup[g.group] = append(byGroup[g.group], g)
	}
	for group, given := range byGroup {
		slices.SortStableFunc(given, func(a, b turnGiven) int { return cmp.Compare(a.moved, b.moved) })
		given = slices.CompactFunc(given, func(a, b turnGiven) bool { return a.moved == b.moved && a.agent == b.agent }) // told again
		last := map[string]int{}
		for at, g := range given {
			before, had := last[g.agent]
			for _, h := range w.agents {
				since, ok := last[h.name]
				if had && h.name != g.agent && (!ok || since < before) && h.was(given[before].at, g.at) {
					w.t.Fatalf("seed %d, %s: %s had turns %d and %d, and %s none between them", seed, group.Check.Name, g.agent,
						given[before].moved, g.moved, h.name)
				}
			}
			last[g.agent] = at
		}
	}
}

// settled is how long the members may take to notice that an agent has come.
const settled = 2 * time.Second

// was reports whether an agent was connected from one time to another.
func (h *host) was(from, to time.Time) bool {
	for i, back := range h.back {
		left := h.w.now
		if i < len(h.left) {
			left = h.left[i]
		}
		if back.Add(settled).Before(from) && left.After(to) {
			return true
		}
	}
	return false
}
