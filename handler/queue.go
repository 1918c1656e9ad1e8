package handler

import (
	"sync"
	"time"
)

// queue is the deliveries of one handler: some in memory, and when there are too many, the newer ones in Pebble.
//
// In memory they form one chain for each pair. A chain whose turn it is stands in ready; while its first delivery runs it
// stands nowhere, and after that it goes to the end of ready again. So no pair runs twice at a time, and one that has
// many deliveries does not hold up those that have few.
type queue struct {
	d    *Dispatcher
	name queueName

	mu      sync.Mutex // guards the fields below
	chains  map[pair]*chain
	ready   chainList
	count   int           // deliveries in memory, running ones included
	bytes   int           // their data
	lanes   map[int]*lane // by partition
	spilled int           // sum over lanes
	paging  bool
	workers int
	added   uint64 // deliveries taken over, ever
	spills  uint64 // those that were spilled
}

type pair struct{ entity, check string }

// item is a delivery in memory.
type item struct {
	*Delivery
	pos    position
	ledger *ledger
	next   *item // in its chain
	// begin is when it was given to a worker; guarded by queue.mu.
	begin time.Time

	// Guarded by ledger.mu.
	stored   bool // in Pebble, or in a batch on its way there
	finished bool
}

// chain is the deliveries of one pair in their order.
type chain struct {
	pair       pair
	head, tail *item
	next       *chain // in ready
}

type chainList struct{ head, tail *chain }

func (l *chainList) push(c *chain) {
	c.next = nil
	if l.head == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
}

func (l *chainList) pop() *chain {
	c := l.head
	if c != nil {
		l.head = c.next
	}
	return c
}

// lane is the spilled deliveries of one partition: those stored at next or behind it. What is stored before next is, or
// was, in memory.
type lane struct {
	ledger  *ledger
	next    position
	spilled int
}

func newQueue(d *Dispatcher, name queueName) *queue {
	return &queue{d: d, name: name, chains: map[pair]*chain{}, lanes: map[int]*lane{}}
}

// add puts a delivery into memory, or behind those that are spilled.
func (q *queue) add(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added++
	ln := q.lanes[it.Partition]
	if ln == nil {
		ln = &lane{ledger: it.ledger, next: it.pos}
		q.lanes[it.Partition] = ln
	}
	if q.spilled == 0 && q.fits(len(it.Data)) {
		ln.next = it.pos.successor()
		it.ledger.track(it)
		q.put(it)
		return
	}
	if err := it.ledger.spill(it); err != nil {
		// Better above the bound and out of order than lost.
		q.d.log.Error("delivery could not be spilled and stays in memory", "namespace", q.name.namespace, "handler", q.name.handler, "err", err)
		it.ledger.track(it)
		q.put(it)
		return
	}
	if q.spilled == 0 {
		q.d.log.Warn("queue of handler is full: new deliveries are stored until it drains", "namespace", q.name.namespace, "handler", q.name.handler)
	}
	ln.spilled++
	q.spilled++
	q.spills++
	if q.workers == 0 {
		q.wake() // reading them back has failed
	}
}

func (q *queue) fits(size int) bool {
	return q.count == 0 || q.count < q.d.opts.QueueSize && q.bytes+size <= q.d.opts.QueueBytes
}

// put appends a delivery to its chain. The caller holds mu.
func (q *queue) put(it *item) {
	q.count++
	q.bytes += len(it.Data)
	p := pair{it.Entity, it.Check}
	if c := q.chains[p]; c != nil {
		c.tail.next = it
		c.tail = it
		return
	}
	c := &chain{pair: p, head: it, tail: it}
	q.chains[p] = c
	q.ready.push(c)
	q.spawn()
}

// drop removes the first delivery of a chain, which was not in ready. The caller holds mu.
func (q *queue) drop(c *chain) {
	it := c.head
	q.count--
	q.bytes -= len(it.Data)
	c.head, it.next = it.next, nil // the ledger may hold on to it for a while, but not to those behind it
	if c.head == nil {
		delete(q.chains, c.pair)
		return
	}
	q.ready.push(c)
}

// wake starts workers for what is ready, and at least one. The caller holds mu.
func (q *queue) wake() {
	q.spawn()
	for c := q.ready.head; c != nil && q.workers < q.d.opts.Workers; c = c.next {
		q.spawn()
	}
}

// spawn starts a worker unless there are enough. The caller holds mu.
func (q *queue) spawn() {
	if q.workers < q.d.opts.Workers && q.d.running.Load() {
		q.workers++
		q.d.workers.Go(q.work)
	}
}

// work runs deliveries until there are none, or Stop.
func (q *queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() { q.workers-- }()
	for q.d.running.Load() {
		if q.pageDue() && q.pageIn() {
			continue
		}
		c := q.ready.pop()
		if c == nil {
			return
		}
		it := c.head
		it.begin = time.Now()
		q.mu.Unlock()
		finished := q.d.run(it)
		q.mu.Lock()
		if !finished {
			return // and so does not the chain: it is for the next process
		}
		q.drop(c)
	}
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count == 0 && q.spilled == 0 && q.workers == 0
}

func (q *queue) pageDue() bool {
	return q.spilled > 0 && !q.paging && q.count <= q.d.opts.QueueSize/2 && q.bytes <= q.d.opts.QueueBytes/2
}

// pageIn reads spilled deliveries into memory, some of each lane. It gives up mu while it reads. False means that this
// failed.
func (q *queue) pageIn() bool {
	var plan []page
	for _, ln := range q.lanes {
		if ln.spilled > 0 {
			plan = append(plan, page{lane: ln, next: ln.next})
		}
	}
	share := max(1, (q.d.opts.QueueSize-q.count)/len(plan))
	for i := range plan {
		plan[i].want = min(plan[i].lane.spilled, share)
	}
	room := q.d.opts.QueueBytes - q.bytes
	q.paging = true
	q.mu.Unlock()
	err := q.d.readPage(q.name, plan, room)
	q.mu.Lock()
	q.paging = false
	if err != nil {
		q.d.metrics.storeErrors.Inc()
		q.d.log.Error("stored deliveries could not be read and will be tried again", "namespace", q.name.namespace, "handler", q.name.handler, "err", err)
		return false
	}
	// In turns, so that no partition waits for the whole page of another.
	for i, more := 0, true; more; i++ {
		more = false
		for _, p := range plan {
			if i < len(p.items) {
				q.put(p.items[i])
				more = true
			}
		}
	}
	for _, p := range plan {
		p.lane.next = p.next
		p.lane.spilled -= p.passed
		q.spilled -= p.passed
	}
	if q.spilled == 0 {
		q.d.log.Info("queue of handler has drained", "namespace", q.name.namespace, "handler", q.name.handler)
	}
	return true
}
