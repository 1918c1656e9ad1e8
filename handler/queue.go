package handler

import (
	"container/list"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// queue has the deliveries of one handler: some in memory, and when there are too many, the newer ones in Pebble.
//
// In memory they form one chain for each pair. Chains whose turn it is are in ready, by class. A chain is detached
// while its first delivery runs: it is in no list, and after the run it goes to the end of its class. So a pair never
// runs twice at a time, and a pair with many deliveries does not delay one with few. A chain whose first delivery has to wait is in
// waits, or in its group. A chain whose first delivery is to be handed over is in leaving.
type queue struct {
	d    *Dispatcher
	name resource.Name
	home int // the partition whose owner runs all deliveries of the handler if it groups or limits its rate

	mu      sync.Mutex // guards the fields below
	chains  map[pair]*chain
	ready   [delivery.Classes]chainList
	turns   rotation // of the chains in ready
	placed  uint64   // deliveries that were put into chains, ever
	leaving chainList
	handing bool // deliveries are being handed over
	central bool // the handler groups or limits its rate, by its last known definition
	waits   dueHeap[*chain]
	timer   *time.Timer // for the first of waits, of groupWaits, or a token
	armed   time.Time   // when the timer fires

	groups     map[string]*group    // that take members; all are in groupWaits
	groupWaits dueHeap[*group]      // and those that failed and wait for their next attempt
	sealed     []*group             // groups that are ready for a worker
	sending    map[*group]struct{}  // groups that workers have
	sent       map[string]time.Time // when groups last went out

	changes    held   // in memory with their events, running ones included: state changes and what was read with them
	others     held   // the same of all others
	whole      counts // the deliveries of changes and others
	parked     counts // deliveries in memory without their events
	retrying   int    // deliveries of whole and parked of which an attempt has failed
	running    int    // deliveries that workers have, without those in groups
	lastError  string // why the last attempt failed that did
	lastFailed int64  // when that was, Unix milliseconds
	health     health
	lanes      map[int]*lane
	spilled    counts // sum over lanes
	shelves    map[pair]*shelf
	lines      [delivery.Classes]list.List // of shelves that wait to be read
	pages      rotation                    // of lines
	paging     bool
	workers    int
	limit      int // of workers, from the handler's last known definition
	bucket     bucket
	added      uint64 // deliveries accepted, ever
	spills     uint64 // deliveries of these that were spilled
	sheds      [delivery.Classes]uint64
}

// held is what memory has of some deliveries.
type held struct{ count, bytes int }

// held returns the sums that a delivery counts in. State changes have room of their own, so others leave them some.
func (q *queue) held(it *item) *held {
	if it.urgent {
		return &q.changes
	}
	return &q.others
}

// pair is a check of an entity, whose deliveries to a handler are made in their order. Those of an escalation to different
// contacts do not wait for one another.
type pair struct{ entity, check, contact string }

func pairOf(dl *delivery.Delivery) pair { return pair{dl.Entity, dl.Check, dl.Contact} }

// item is a delivery in memory.
type item struct {
	*delivery.Delivery
	pos    position
	ledger *ledger
	next   *item  // in its chain
	number uint64 // in the order in which deliveries were put into chains

	// Guarded by queue.mu, or owned by the worker that runs it.
	begin     time.Time // when a worker took it
	parked    bool      // its event is in Pebble only
	size      int       // its share of held.bytes
	urgent    bool      // it counts as a state change: it is one, or it was read from disk to go before one of its pair
	decided   bool      // it goes out
	behind    *group    // has deliveries of its pair
	revoked   bool      // a resolution that an incident has followed
	stays     bool      // it cannot be handed over
	tried     bool      // an attempt has failed, alone or with its group: it counts in queue.retrying
	lastError string    // why its last attempt failed, if this process made it
	climber             // of an escalation
	progress

	// Guarded by ledger.mu.
	stored     bool // in Pebble
	progressed bool // its progress is in Pebble too
	finished   bool
}

// chain has the deliveries of one pair in their order, except those in a group.
type chain struct {
	pair       pair
	head, tail *item
	lasts      lasts
	in         *chainList // ready or leaving
	prev, next *chain     // there

	slot // in queue.waits
	// resolving is set while it waits with a resolution, which an incident would revoke.
	resolving bool

	climbs  bool   // its first delivery is an escalation
	noticed bool   // a notice came that the escalation may not have read
	gaveUp  string // of outcome
	members int    // in group
	group   *group // has deliveries of the pair
	stopped bool   // the next deliveries must not overtake the group
}

type chainList struct{ head, tail *chain }

func (l *chainList) push(c *chain) {
	c.in, c.prev, c.next = l, l.tail, nil
	if l.head == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
}

func (l *chainList) pop() *chain {
	c := l.head
	l.remove(c)
	return c
}

func (l *chainList) remove(c *chain) {
	if c.prev == nil {
		l.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.in, c.prev, c.next = nil, nil, nil
}

// lane is one partition's part of a queue.
type lane struct {
	id      int
	ledger  *ledger
	spilled counts
}

func newQueue(d *Dispatcher, name resource.Name) *queue {
	h, ok := d.lookup(name.Namespace, name.Name)
	return &queue{
		d: d, name: name, home: d.opts.Log.Partition(name.Namespace, name.Name), central: ok && central(h),
		chains: map[pair]*chain{}, groups: map[string]*group{}, sending: map[*group]struct{}{},
		sent: map[string]time.Time{}, lanes: map[int]*lane{}, shelves: map[pair]*shelf{}, limit: d.opts.Workers,
	}
}

// Dispatch accepts a delivery. It never waits for a handler: when the handler's queue is full, the delivery is stored.
// Deliveries of one partition must come one after the other, in the order of the log, and Routed behind those of a
// message.
func (d *Dispatcher) Dispatch(dl *delivery.Delivery) {
	it := &item{Delivery: dl, pos: position{dl.Seq, uint32(dl.Sub)}, ledger: d.ledger(dl.Partition)}
	if !it.ledger.news(dl.Seq) {
		return // the log has it already: it is finished, or stored and in its queue
	}
	d.enqueue(it)
}

// enqueue puts a delivery into its handler's queue.
func (d *Dispatcher) enqueue(it *item) {
	name := resource.Name{Namespace: it.Namespace, Name: it.Handler}
	for {
		d.mu.RLock()
		if q := d.queues[name]; q != nil {
			q.add(it)
			d.mu.RUnlock()
			return
		}
		d.mu.RUnlock()
		d.makeQueue(name)
	}
}

// add puts a delivery into memory, or behind the spilled ones. Local deliveries are stored, and memory takes the names
// of all: there are not more of them than there were dead letters. Deliveries that were handed over are stored, too.
func (q *queue) add(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added++
	if isLocal(it.Partition) {
		q.put(it)
		return
	}
	ln := q.lanes[it.Partition]
	if ln == nil {
		ln = &lane{id: it.Partition, ledger: it.ledger}
		q.lanes[it.Partition] = ln
	}
	p, class := pairOf(it.Delivery), it.Class()
	it.urgent = class == delivery.Change
	overtakes := class == delivery.Change && q.shelves[p] == nil && q.lines[class].Len() == 0
	room := (q.spilled.sum() == 0 || overtakes) && q.parked.sum() < q.d.opts.ParkSize && q.fits(*q.held(it), len(it.Event))
	if c := q.chains[p]; c != nil && c.climbs && q.shelves[p] == nil {
		room = true // the escalation takes it at once, and may end with it
	}
	if room {
		if !it.stored {
			it.ledger.track(it)
		}
		q.put(it)
		return
	}
	if q.mayShed(class) {
		q.shed(it, class)
		return
	}
	if err := it.ledger.spill(it); err != nil {
		// Exceeding the bound, and running out of order, is better than losing it.
		q.d.rare.Error("delivery could not be spilled and stays in memory", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name, "err", err)
		it.ledger.track(it)
		q.put(it)
		return
	}
	if q.spilled.sum() == 0 {
		q.d.rare.Warn("queue of handler is full: new deliveries are stored until it drains", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name)
	}
	q.shelve(p, spot{lane: ln, pos: it.pos, class: class, size: int32(len(it.Event))})
	q.spills++
	if q.workers == 0 {
		q.wake() // reading them back has failed
	}
}

// fits reports whether memory has room for one more. It always has room for one.
func (q *queue) fits(h held, size int) bool {
	return h.count == 0 || h.count < q.d.opts.QueueSize && h.bytes+size <= q.d.opts.QueueBytes
}

// put appends a delivery to its chain. The caller holds mu.
func (q *queue) put(it *item) {
	if it.parked {
		q.parked[it.Class()]++
	} else {
		it.size = len(it.Event)
		q.whole[it.Class()]++
		h := q.held(it)
		h.count++
		h.bytes += it.size
	}
	q.noteTries(it, it.attempts)
	p := pairOf(it.Delivery)
	c := q.chains[p]
	if c == nil {
		c = &chain{pair: p}
		q.chains[p] = c
	}
	q.placed++
	it.number = q.placed
	c.lasts[it.Class()] = it.number
	c.climbs = c.climbs || c.head == nil && it.climb != nil // it went on before a restart
	if c.head != nil {
		c.tail.next = it
		c.tail = it
		switch {
		case c.index > 0 && c.head.climb != nil: // the escalation looks at it
			q.unwait(c)
			q.turn(c)
		case c.resolving && it.Incident:
			q.unwait(c)
			q.turn(c)
		case c.index > 0 || c.stopped:
			q.park(it) // the wait may be long
		case c.in != nil && c.in != &q.leaving && c.in != &q.ready[c.lasts.class(c.head.number)]:
			c.in.remove(c) // the whole pair is more urgent now
			q.turn(c)
		}
		return
	}
	c.head, c.tail = it, it
	if it.due > 0 && it.climb == nil { // an escalation looks first: there may be notices
		if wait := q.waitUntil(it.due); wait > 0 { // it was tried before a restart
			q.wait(c, time.Now().Add(wait), false)
			return
		}
	}
	q.turn(c)
}

// waitUntil returns how long a delivery waits for an attempt whose time was stored, in Unix milliseconds. If the clock
// was set back since, that is too far in the future: it waits no longer than the handler's longest wait.
func (q *queue) waitUntil(due int64) time.Duration {
	wait := time.Until(time.UnixMilli(due))
	if wait <= 0 {
		return 0
	}
	if h, ok := q.d.lookup(q.name.Namespace, q.name.Name); ok {
		return min(wait, q.d.policy(h).maxBackoff)
	}
	return min(wait, defaultMaxBackoff)
}

// turn hands a detached chain to the workers. The caller holds mu.
func (q *queue) turn(c *chain) {
	if q.away(c.head) {
		q.leaving.push(c)
		q.startHandOver()
		return
	}
	q.ready[c.lasts.class(c.head.number)].push(c)
	q.spawn()
}

// drop removes the first delivery of a detached chain. The caller holds mu.
func (q *queue) drop(c *chain) {
	it := c.head
	q.forget(it)
	c.climbs = false
	c.head, it.next = it.next, nil // the ledger may keep it for a while, but must not keep those behind it
	q.advance(c)
}

// dropSecond removes the delivery behind the first one of a detached chain, unless Disown did. The caller holds mu.
func (q *queue) dropSecond(c *chain, it *item) {
	if c.head == nil || c.head.next != it {
		return
	}
	q.forget(it)
	c.head.next, it.next = it.next, nil
	if c.tail == it {
		c.tail = c.head
	}
}

// advance moves a detached chain on to ready, or removes it if it is empty. The caller holds mu.
func (q *queue) advance(c *chain) {
	switch {
	case c.head != nil && !c.stopped:
		q.turn(c)
	case c.head == nil && c.members == 0:
		delete(q.chains, c.pair)
	}
}

// forget subtracts a delivery that has ended, or belongs to another backend by now, from the sums. The caller holds mu.
func (q *queue) forget(it *item) {
	if it.tried {
		it.tried = false
		q.retrying--
	}
	q.subtract(it)
}

// noteTries notes how many attempts to send a delivery were made that all failed. The caller holds mu.
func (q *queue) noteTries(it *item, n int) {
	if n > 0 && !it.tried {
		it.tried = true
		q.retrying++
	}
}

// subtract takes a delivery out of the sums of whole, or of parked. The caller holds mu.
func (q *queue) subtract(it *item) {
	if it.parked {
		q.parked[it.Class()]--
		return
	}
	q.whole[it.Class()]--
	h := q.held(it)
	h.count--
	h.bytes -= it.size
}

// park leaves a delivery's event to Pebble. If that fails, the delivery stays in memory. The caller holds mu.
func (q *queue) park(it *item) {
	if it.parked {
		return
	}
	if err := it.ledger.park(it); err != nil {
		q.d.rare.Error("delivery that waits could not be stored and stays in memory", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name, "err", err)
		return
	}
	q.subtract(it)
	it.Delivery = slim(it.Delivery)
	it.parked, it.size = true, 0
	q.parked[it.Class()]++
}

// wake starts workers for the ready chains, and at least one, and hands over what leaves. The caller holds mu.
func (q *queue) wake() {
	q.startHandOver()
	q.spawn()
	for i := range q.ready {
		for c := q.ready[i].head; c != nil && q.workers < q.limit; c = c.next {
			q.spawn()
		}
	}
}

// nextClass returns the class that has the next turn; false if none has a chain. The caller holds mu.
func (q *queue) nextClass() (delivery.Class, bool) {
	return q.turns.next(func(c delivery.Class) bool { return q.ready[c].head != nil })
}

// isReady reports whether a chain is in ready. The caller holds mu.
func (q *queue) isReady() bool {
	_, ok := q.nextClass()
	return ok
}

// spawn starts a worker unless there are enough. The caller holds mu.
func (q *queue) spawn() {
	if q.workers < q.limit && q.d.running.Load() {
		q.workers++
		q.d.workers.Go(q.work)
	}
}

// mayRunPause is the time until a backend that may make no attempts looks again.
const mayRunPause = 100 * time.Millisecond

// work runs deliveries until there are none, or Stop.
func (q *queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() { q.workers-- }()
	for q.d.running.Load() && q.workers <= q.limit && !q.d.behind() {
		if q.pageDue() && q.pageIn() {
			continue
		}
		class, found := q.nextClass()
		if !found && len(q.sealed) == 0 {
			return
		}
		permit := q.d.permit.Load() // before the question: a loss of the right behind it ends them
		if !q.d.mayRun() {
			q.arm(time.Now().Add(mayRunPause))
			return
		}
		h, ok := q.d.lookup(q.name.Namespace, q.name.Name)
		q.central = ok && central(h)
		if len(q.sealed) == 0 && q.away(q.ready[class].head.head) {
			q.turn(q.ready[class].pop()) // the definition has changed
			continue
		}
		if ok {
			q.configure(h)
			if wait := q.bucket.take(time.Now()); wait > 0 {
				q.arm(time.Now().Add(wait))
				return
			}
		} else {
			h = nil
			q.health = health{} // a new handler of the name begins anew
		}
		if len(q.sealed) > 0 {
			g := q.sealed[0]
			q.sealed = q.sealed[1:]
			if !q.workGroup(permit.ctx, h, g) {
				return
			}
			continue
		}
		c := q.ready[class].pop()
		q.turns.turns++
		it := c.head
		it.begin, it.behind = time.Now(), c.group
		it.revoked = it.Resolution && c.incidentFollows()
		it.follower, it.spilledBehind = it.next, q.shelves[c.pair] != nil
		q.running++
		q.mu.Unlock()
		out := q.d.run(permit.ctx, h, it)
		q.mu.Lock()
		q.running--
		it.begin = time.Time{}
		if !out.sent {
			q.bucket.giveBack(time.Now())
		}
		if out.stopped {
			return // its chain is for the next process too
		}
		q.afterTurn(h, c, it, out)
	}
}

// configure sets concurrency and rate from the handler's definition. The caller holds mu.
func (q *queue) configure(h *resource.Handler) {
	limit := q.d.opts.Workers
	if h.Concurrency > 0 {
		limit = int(h.Concurrency)
	}
	q.bucket.set(h.RateLimit, time.Now())
	if was := q.limit; limit != was {
		if q.limit = limit; limit > was {
			q.wake()
		}
	}
}

// afterTurn moves a chain on, by the outcome of its first delivery's turn. The caller holds mu.
func (q *queue) afterTurn(h *resource.Handler, c *chain, it *item, out outcome) {
	if out.absorbed {
		q.dropSecond(c, it.follower)
	}
	noticed := c.noticed
	c.climbs, c.noticed, c.gaveUp = it.climb != nil, false, out.gaveUp
	it.lastError = q.noteError(it.lastError, out.errorText)
	q.noteTurn(&out, it.progress.first, it.aboutFailing())
	q.noteTries(it, it.attempts)
	switch {
	case out.finished || it.ledger.isOver():
		q.drop(c)
	case out.behind:
		q.stop(c)
	case out.group != "":
		q.join(h.Group, c, it, out.group)
	case out.absorbed, noticed, out.resolving && c.incidentFollows(),
		it.climb != nil && it.follower == nil && it.next != nil: // the next one came meanwhile
		q.turn(c)
	default:
		q.wait(c, out.due, out.resolving)
	}
}

// incidentFollows reports whether an incident comes behind the first delivery. The caller holds queue.mu.
func (c *chain) incidentFollows() bool {
	for it := c.head.next; it != nil; it = it.next {
		if it.Incident {
			return true
		}
	}
	return false
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changes.count+q.others.count == 0 && q.parked.sum() == 0 && q.spilled.sum() == 0 && q.workers == 0 && !q.handing
}
