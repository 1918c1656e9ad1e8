package handler

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// position is a place in a partition of the event log: a message, and the delivery's place in it.
type position struct {
	seq uint64
	sub uint32
}

// compare returns the order of two positions of a partition, as cmp.Compare.
func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(p.seq, o.seq), cmp.Compare(p.sub, o.sub))
}

// successor returns the first position behind p.
func (p position) successor() position {
	if p.sub == ^uint32(0) {
		return position{p.seq + 1, 0}
	}
	return position{p.seq, p.sub + 1}
}

const (
	// reportAfter is how long the end of a delivery may wait for its report, unless workers are about to pause.
	reportAfter = 50 * time.Millisecond
	// reportRouted is how long it may take until the log has new deliveries that have not ended.
	reportRouted = 200 * time.Millisecond
)

// ledger has what the records of a partition say (known, term) and, while this backend owns the partition, what its
// next report must say. DESIGN.md gives the rules.
type ledger struct {
	d         *Dispatcher
	partition int

	mu sync.Mutex // guards the fields below
	// known is the message up to which the log has all deliveries: newer messages are routed again after a crash.
	known uint64
	term  uint64 // of the newest report that is folded

	owned bool
	over  bool   // for good: Disown or Stop
	mine  uint64 // the term of this ownership
	// roster is the number of the cluster's roster under which it began.
	roster  uint64
	from    uint64 // known when it began
	begun   bool   // a report of it was made
	top     uint64 // the message up to which all deliveries were dispatched
	lastTop uint64 // top in the last report

	// fresh has the deliveries that are only in memory. changes has the other news, in their order; index finds the
	// newest change of a key. A change without a key was replaced.
	fresh   map[*item]struct{}
	changes []change
	index   map[string]int
	owed    int64 // bytes of the changes that workers made

	timer             *time.Timer
	due               time.Time // when the timer fires, zero if it is not set
	again             bool      // a report is due while another one is under way
	reports, answered uint64    // how many reports were made, and how many of them are folded here
	reported          int64     // owed by the report under way
	err               error     // the log is closed
	progressed        chan struct{}
	ctx               context.Context
	cancel            context.CancelFunc
	sending           sync.WaitGroup // for the report under way
}

// change sets a key to a value, or deletes it. A delivery's value is made when the report is written, so that memory
// does not have it twice.
type change struct {
	key    []byte
	value  []byte             // nil deletes the key, unless one of these is set:
	whole  *delivery.Delivery // the value encodes it
	stored bool               // the value is in Pebble
}

func newLedger(d *Dispatcher, partition int) *ledger {
	l := &ledger{
		d: d, partition: partition, fresh: map[*item]struct{}{}, index: map[string]int{}, progressed: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// news reports whether the log does not have the deliveries of a message.
func (l *ledger) news(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known < seq
}

// knownNow returns the message up to which the log has all deliveries.
func (l *ledger) knownNow() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// isOver reports whether the ends of deliveries do not count any more.
func (l *ledger) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// track adds a delivery that was put into memory.
func (l *ledger) track(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.fresh[it] = struct{}{}
	l.ask(reportRouted)
}

// spill stores a delivery for which memory has no room. If no report mentions it, the next owner removes it and routes
// its message again.
func (l *ledger) spill(it *item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it.stored || l.over {
		return nil
	}
	if err := l.store(it.key(), it.value()); err != nil {
		return err
	}
	l.note(change{key: it.key(), stored: true})
	return nil
}

// park stores a tracked delivery, so that its event need not stay in memory. Without a report it is undone like a
// spill.
func (l *ledger) park(it *item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it.stored || l.over {
		return nil
	}
	if err := l.store(it.key(), it.value()); err != nil {
		return err
	}
	it.stored = true
	if _, fresh := l.fresh[it]; fresh {
		delete(l.fresh, it)
		l.note(change{key: it.key(), stored: true})
	}
	return nil
}

// progress stores the progress of a delivery that will be tried again. It counts as long as the delivery is stored.
func (l *ledger) progress(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	value := it.progress.encode()
	if err := l.store(it.progressKey(), value); err != nil {
		l.d.rare.Error("attempts of a delivery could not be stored: after a restart they will not count", "",
			"delivery", it.ID, "err", err)
		return
	}
	it.progressed = true
	l.owe(change{key: it.progressKey(), value: value})
}

// mark makes a change of a mark at once. The report has it together with the end of its delivery.
func (l *ledger) mark(c change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil
	}
	return l.store(c.key, c.value)
}

// change has the log make changes that belong to no end of a delivery.
func (l *ledger) change(with ...change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owe(with...)
}

// finish records that a delivery is over, with the changes that belong to its end. It returns false if that does not
// count any more.
func (l *ledger) finish(it *item, with ...change) bool { return l.finishAs(it, false, with...) }

// finishAs is finish for a delivery that was sent or given up, or that was handed over.
func (l *ledger) finishAs(it *item, handedOver bool, with ...change) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	it.finished = true
	if l.over {
		return false
	}
	l.owe(with...)
	if _, fresh := l.fresh[it]; !fresh || it.progressed {
		l.owe(change{key: it.key()})
	}
	delete(l.fresh, it)
	if !handedOver { // else a repeat is passed over
		end := l.d.maxOwed / maxEnded
		l.owed += end
		l.d.owed.Add(end)
	}
	if l.d.owesMuch() {
		l.ask(0)
	} else {
		l.ask(reportAfter)
	}
	return true
}

// discard has a stored delivery removed.
func (l *ledger) discard(key []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owe(change{key: key})
}

// add has the log add deliveries that are none of its events. It returns false if that does not count any more.
func (l *ledger) add(its []*item) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range its {
		l.owe(change{key: it.key(), whole: it.Delivery})
	}
	return !l.over
}

// routed records that all deliveries up to a message were dispatched.
func (l *ledger) routed(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.top = max(l.top, seq)
	l.ask(reportRouted)
}

// store sets a key in Pebble, or deletes it. The caller holds mu.
func (l *ledger) store(key, value []byte) error {
	var err error
	if value == nil {
		err = l.d.opts.DB.Delete(key, pebble.NoSync)
	} else {
		err = l.d.opts.DB.Set(key, value, pebble.NoSync)
	}
	if err != nil {
		l.d.metrics.storeErrors.Inc()
	}
	return err
}

// owe notes changes that workers make. The caller holds mu.
func (l *ledger) owe(changes ...change) {
	if l.over {
		return
	}
	for _, c := range changes {
		n := int64(len(c.key) + len(c.value))
		if c.whole != nil {
			n += int64(len(c.whole.Event))
		}
		l.owed += n
		l.d.owed.Add(n)
		l.note(c)
	}
}

// note adds a change to the next report. An earlier change of the key is dropped: progress is replaced where it is, so
// that many attempts make one change. The caller holds mu.
func (l *ledger) note(c change) {
	if l.over {
		return
	}
	l.ask(reportRouted)
	if i, ok := l.index[string(c.key)]; ok {
		if c.key[1] == 'r' {
			l.changes[i] = c
			return
		}
		l.changes[i] = change{}
	}
	l.index[string(c.key)] = len(l.changes)
	l.changes = append(l.changes, c)
}

// ask has a report made within a time. The caller holds mu.
func (l *ledger) ask(within time.Duration) {
	if !l.owned || l.over || within == reportRouted && !l.due.IsZero() {
		return
	}
	due := time.Now().Add(within)
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(within, l.onTimer)
	case l.due.IsZero() || due.Before(l.due):
		l.timer.Reset(within)
	default:
		return
	}
	l.due = due
}

func (l *ledger) onTimer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = time.Time{}
	l.report()
}

// report makes a report, or has Logged make it if one is under way: a slow log gets few large ones. It returns false if
// there is no news. The caller holds mu.
func (l *ledger) report() bool {
	if !l.owned || l.over || l.err != nil {
		return false
	}
	if l.again = l.reports > l.answered; l.again {
		return true
	}
	r := report{term: l.mine, roster: l.roster, begins: !l.begun, from: l.from, upto: l.top, changes: l.changes[:0]}
	for _, c := range l.changes {
		if c.key != nil {
			r.changes = append(r.changes, c)
		}
	}
	for it := range l.fresh {
		r.changes = append(r.changes, change{key: it.key(), whole: it.Delivery})
	}
	if len(r.changes) == 0 && l.lastTop >= l.top {
		return false
	}
	clear(l.fresh)
	clear(l.index)
	l.reported, l.owed = l.owed, 0
	l.changes, l.begun, l.lastTop = nil, true, l.top
	l.reports++
	number := l.reports
	l.sending.Go(func() {
		if err := l.send(r, number); err != nil {
			l.Logged(number, l.partition, 0, err)
		}
	})
	return true
}

// Logged implements eventlog.Acker: the report is folded here, or the log is closed.
func (l *ledger) Logged(report uint64, _ int, _ uint64, err error) {
	l.mu.Lock()
	l.answered = report
	if err != nil && l.err == nil {
		l.err = err
	}
	owed := l.reported
	l.reported = 0
	l.signal()
	if l.again && err == nil {
		l.again = false
		l.report()
	}
	l.mu.Unlock()
	l.d.release(owed)
}

// signal wakes the callers of wait. The caller holds mu.
func (l *ledger) signal() {
	close(l.progressed)
	l.progressed = make(chan struct{})
}

// wait waits for signal. The caller holds mu, which is unlocked until then.
func (l *ledger) wait(ctx context.Context) error {
	progressed := l.progressed
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-progressed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush reports all news, and returns when that is folded here.
func (l *ledger) flush(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	goal := l.reports + 1
	for l.answered < goal {
		if !l.report() {
			return l.err
		}
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	return l.err
}

// begin makes this backend the owner.
func (l *ledger) begin(roster uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owned {
		return fmt.Errorf("deliveries of partition %d are run already", l.partition)
	}
	l.owned, l.begun, l.roster = true, false, roster
	l.mine = max(l.term+1, uint64(time.Now().UnixNano()))
	l.from, l.top, l.lastTop = l.known, max(l.top, l.known), l.known
	return nil
}

// end makes the ledger one that notes nothing, and appends nothing to the log when end has returned.
func (l *ledger) end() {
	defer l.sending.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.cancel()
	l.d.owed.Add(-l.owed)
	l.owed, l.changes = 0, nil
	clear(l.fresh)
	clear(l.index)
	l.signal()
}

// readable returns the value of a change; nil if it deletes its key.
func (d *Dispatcher) readable(c change) (value []byte, err error) {
	switch {
	case c.whole != nil:
		return appendDelivery(nil, c.whole), nil
	case !c.stored:
		return c.value, nil
	}
	value, closer, err := d.opts.DB.Get(c.key)
	if err != nil {
		return nil, fmt.Errorf("read delivery: %w", err)
	}
	return bytes.Clone(value), closer.Close()
}
