package load

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// simAgent is one simulated agent. It answers requests without running checks.
type simAgent struct {
	fleet  *Fleet
	index  int // within the whole run
	name   string
	id     uint32 // hash of the name, not 0
	entity []byte // as in its events, protobuf
	// subscriptions are shared with other agents.
	subscriptions []string

	backoff time.Duration // for the dialer

	mu         sync.Mutex // guards the fields below
	conn       *wire.Conn
	configured bool // the backend has sent what it knows of the agent: events may be sent
	lapwing    bool // the connection speaks the lapwing protocol
	dialed     time.Time
	pairs      []pair // by number of the check in the fleet
	sequence   uint64 // of the lapwing protocol: the last number given
	sent       uint64 // the last number sent on this connection
	unacked    []unacked
	keepalives int64
	plan       []planned // of the lapwing protocol
	due        int64     // the first second of Unix time in which one of plan may be due, or ripe
	ripe       time.Time // when results that are held back are sent; zero if there are none
	pace       wire.Pace
	arrived    bool // was configured at least once
	dead       bool // was killed: it does nothing any more
	cluster    membership

	delivered uint32   // turns so far
	before    uint32   // of them, before the measured part
	delayed   []uint64 // keys of turns whose answers are delayed

	// While TCP blocks the agent, its messages wait here: no goroutine of the load tool waits for a socket.
	writing time.Time // start of a write that is not complete; zero if there is none
	held    []result  // of Sensu's protocol; receipts in lapwing's
	owed    bool      // a keepalive
}

// pair is an agent's state of one check.
type pair struct {
	n       uint32 // results so far
	issued  int64  // of the last request, Unix seconds
	arrived int64  // when the last request came, Unix milliseconds
	held    bool   // a result waits until the socket takes it
}

// planned is a check in an agent's schedule: it is due when the time in milliseconds, modulo every, is phase.
type planned struct {
	check  *check
	number int // of the check in the fleet
	every  int64
	phase  int64
}

// unacked is an event that the backend has not acknowledged. It is built again if it must be sent again.
type unacked struct {
	sequence  uint64
	result    result
	keepalive bool
	sent      time.Time
}

// outgoing is memory for the messages of one write.
type outgoing struct {
	buf   []byte
	ends  []int
	msgs  [][]byte
	items []wire.Item
}

var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

func (o *outgoing) release() {
	clear(o.msgs)
	clear(o.items)
	o.buf, o.ends, o.msgs, o.items = o.buf[:0], o.ends[:0], o.msgs[:0], o.items[:0]
	if cap(o.buf) <= 1<<20 {
		outgoings.Put(o)
	}
}

// end closes a message that was appended to buf.
func (o *outgoing) end() { o.ends = append(o.ends, len(o.buf)) }

// messages are the pieces of buf.
func (o *outgoing) messages() [][]byte {
	start := 0
	for _, end := range o.ends {
		o.msgs = append(o.msgs, o.buf[start:end])
		start = end
	}
	return o.msgs
}

// serve reads the backend's messages until the connection ends. Events for requests that arrived together are sent
// together.
func (a *simAgent) serve(conn *wire.Conn) error {
	var due []result
	for {
		msg, err := conn.Read()
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		switch typ {
		case wire.TypeCheckRequest:
			r, ok, err := a.onRequest(payload)
			if err != nil {
				return err
			}
			if ok {
				due = append(due, r)
			}
		case wire.TypeEntityConfig:
			err = a.onConfigured(conn)
		case wire.TypeAck:
			err = a.onAck(payload)
		case wire.TypeSchedule:
			err = a.onSchedule(payload)
		case wire.TypePace:
			err = a.onPace(conn, payload)
		case wire.TypeMembers:
			err = a.onMembers(payload)
		}
		if err != nil {
			return err
		}
		if len(due) > 0 && !conn.Buffered() {
			if err := a.respond(conn, due); err != nil {
				return err
			}
			due = due[:0]
		}
	}
}

// onConfigured completes a new connection: it sends the first keepalive, and the events that an earlier connection left
// unacknowledged.
func (a *simAgent) onConfigured(conn *wire.Conn) error {
	a.mu.Lock()
	if a.conn != conn || a.configured {
		a.mu.Unlock()
		return nil
	}
	a.configured = true
	if !a.arrived {
		a.arrived = true
		a.fleet.measures.arrived.Add(1)
	}
	err := a.sendHeld()
	dialed := a.dialed
	a.mu.Unlock()
	a.fleet.measures.latencies[report.LatencyConnect].record(time.Since(dialed))
	if err != nil {
		return err
	}
	return a.sendKeepalive(conn)
}

// write sends messages without waiting for the socket: a goroutine sends what it does not take at once. Answers are the
// turns that count as answered when the socket has taken all of the messages; write does not keep the slice. The caller
// holds a.mu, and a.writing is zero.
func (a *simAgent) write(msgs [][]byte, answers []result) error {
	conn := a.conn
	rest, err := conn.TryWriteBatch(msgs)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		a.written(answers)
		return nil
	}
	a.writing = time.Now()
	answers = slices.Clone(answers)
	a.fleet.running.Go(func() {
		if err := a.finish(conn, rest, answers); err != nil {
			a.fleet.drop(a, conn, err)
		}
	})
	return nil
}

// written notes answers to turns that the socket has taken. The caller holds a.mu.
func (a *simAgent) written(answers []result) {
	now := time.Now()
	for i := range answers {
		if answers[i].turn.text != "" {
			a.fleet.onAnswered(a, &answers[i], now)
		}
	}
}

// finish ends a write, and sends messages that have waited for it.
func (a *simAgent) finish(conn *wire.Conn, rest []byte, answers []result) error {
	err := conn.FinishWrite(rest)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && !a.dead { // a killed agent's socket throws away what it has not sent
		a.written(answers)
	}
	if a.conn != conn {
		return nil // the connection was dropped
	}
	a.writing = time.Time{}
	if err == nil {
		err = a.sendHeld()
	}
	return err
}

// sendHeld sends waiting messages, as far as the socket takes them. The caller holds a.mu.
func (a *simAgent) sendHeld() error {
	if a.owed && !a.lapwing {
		if err := a.keepaliveNow(); err != nil {
			return err
		}
	}
	if len(a.held) > 0 && a.writing.IsZero() {
		due := a.held
		a.held = nil
		a.mark(due, false)
		if err := a.sendKept(due); err != nil {
			return err
		}
	}
	if !a.lapwing {
		return nil
	}
	if err := a.sendWaiting(); err != nil || !a.owed || !a.writing.IsZero() {
		return err
	}
	return a.keepaliveNow()
}

// sendKept sends what waited for the socket. The caller holds a.mu and knows that the socket is free.
func (a *simAgent) sendKept(due []result) error {
	if a.lapwing {
		return a.sendReceipts(a.conn, due)
	}
	return a.sendResults(due)
}

// sendKeepalive sends a keepalive.
func (a *simAgent) sendKeepalive(conn *wire.Conn) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.conn != conn || !a.configured:
		return nil
	case !a.writing.IsZero():
		a.owed = true
		return nil
	}
	return a.keepaliveNow()
}

// keepaliveNow is sendKeepalive for a caller who holds a.mu and knows that the socket is free.
func (a *simAgent) keepaliveNow() error {
	o := outgoings.Get().(*outgoing)
	defer o.release()
	a.owed = false
	a.keepalives++
	event := a.fleet.keepalive(a, a.keepalives)
	if a.lapwing {
		if a.spools() {
			return nil // the backend takes nothing; a later one will follow
		}
		a.sequence++
		a.unacked = append(a.unacked, unacked{sequence: a.sequence, keepalive: true, sent: time.Now()})
		if a.sent+1 != a.sequence {
			a.fleet.measures.keepalives.Add(1)
			return a.sendWaiting() // with the results that are held back
		}
		a.sent = a.sequence
		o.items = append(o.items, wire.Item{Keepalive: true, Event: event.AppendProto(nil)})
		o.buf = wire.AppendEvents(o.buf, a.sequence, o.items)
	} else {
		var err error
		if o.buf, err = wire.Append(o.buf, wire.TypeKeepalive, wire.Protobuf, event); err != nil {
			return fmt.Errorf("encode keepalive: %w", err)
		}
	}
	if err := a.write([][]byte{o.buf}, nil); err != nil {
		return fmt.Errorf("send keepalive: %w", err)
	}
	a.fleet.measures.keepalives.Add(1)
	return nil
}

// onRequest takes a check request, unless an earlier one of the check waits.
func (a *simAgent) onRequest(payload []byte) (result, bool, error) {
	req, err := a.fleet.request(payload)
	if err != nil {
		return result{}, false, err
	}
	now := time.Now()
	m := a.fleet.measures
	m.requests.Add(1)
	if req.turn.text != "" {
		r, ok := a.onTurn(&req, now)
		return r, ok, nil
	}
	number := a.fleet.number(req.check.name)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pair(number)
	if req.issued <= p.issued || a.fleet.quiet.Load() > 0 || a.dead {
		return result{}, false, nil
	}
	if p.held {
		m.inProgress.Add(1) // as Sensu agents do, which do not run a check again while its result waits
		return result{}, false, nil
	}
	m.latencies[report.LatencyRequest].record(now.Sub(time.Unix(req.issued, 0)))
	if p.arrived != 0 && req.check.interval > 0 {
		gap := time.Duration(now.UnixMilli()-p.arrived) * time.Millisecond
		m.latencies[report.LatencyInterval].record((gap - req.check.interval).Abs())
	}
	p.issued, p.arrived = req.issued, now.UnixMilli()
	p.n++
	m.created.Add(1)
	return result{check: req.check, number: number, n: p.n, issued: req.issued, executed: now.Unix()}, true, nil
}

// pair returns the state of the check with the given number. The caller holds a.mu.
func (a *simAgent) pair(number int) *pair {
	if number >= len(a.pairs) {
		a.pairs = append(a.pairs, make([]pair, number+1-len(a.pairs))...)
	}
	return &a.pairs[number]
}

// respond answers requests that arrived together: turns after the fleet's delay, others at once. It does not keep due.
func (a *simAgent) respond(conn *wire.Conn, due []result) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if delay := a.fleet.opts.AckDelay; delay > 0 {
		var turns []result
		if turns, due = splitTurns(due); len(turns) > 0 {
			at := time.Now().Add(delay)
			a.fleet.delayed.put(delayedAnswer{due: at, agent: a, conn: conn, turns: slices.Clone(turns)})
		}
	}
	return a.respondNow(conn, due)
}

// respondNow sends what answers the requests of a connection. The caller holds a.mu.
func (a *simAgent) respondNow(conn *wire.Conn, due []result) error {
	if a.fleet.opts.Receipts {
		var turns []result
		turns, due = splitTurns(due)
		if err := a.sendReceipts(conn, turns); err != nil {
			return err
		}
	}
	switch {
	case a.dead || len(due) == 0:
		return nil
	case a.lapwing:
		return a.sendBatch(conn, due)
	case a.conn == nil || a.conn != conn || !a.configured || !a.writing.IsZero():
		a.hold(due)
		return nil
	}
	return a.sendResults(due)
}

// hold keeps results or receipts until the socket takes them. The caller holds a.mu.
func (a *simAgent) hold(due []result) {
	a.held = append(a.held, due...)
	a.mark(due, true)
}

// mark notes whether checks have a result that waits. The caller holds a.mu.
func (a *simAgent) mark(results []result, held bool) {
	for i := range results {
		if results[i].turn.text == "" {
			a.pair(results[i].number).held = held
		}
	}
}

// sendReceipts answers turns with receipts. They are not sent on another connection: the backend has given the turns to
// other agents. The caller holds a.mu.
func (a *simAgent) sendReceipts(conn *wire.Conn, turns []result) error {
	switch {
	case a.dead || len(turns) == 0 || a.conn == nil || a.conn != conn:
		return nil
	case !a.configured || !a.writing.IsZero():
		a.hold(turns)
		return nil
	}
	o := outgoings.Get().(*outgoing)
	defer o.release()
	for i := range turns {
		r := &turns[i]
		o.buf = wire.AppendReceipt(o.buf, &wire.Receipt{
			Check: r.check.name, Entity: r.check.result.ProxyEntityName, Turn: r.turn.text, Outcome: wire.OutcomeDone,
		})
		o.end()
	}
	if err := a.write(o.messages(), turns); err != nil {
		return fmt.Errorf("send receipts: %w", err)
	}
	return nil
}

// sendResults sends results in Sensu's protocol. The caller holds a.mu and knows that the socket is free.
func (a *simAgent) sendResults(due []result) error {
	o := outgoings.Get().(*outgoing)
	defer o.release()
	for i := range due {
		o.buf = append(o.buf, wire.TypeEvent...)
		o.buf = append(o.buf, '\n')
		o.buf = a.fleet.appendEvent(o.buf, a, &due[i])
		o.end()
		a.fleet.onResult(a, &due[i])
	}
	if err := a.write(o.messages(), due); err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	a.fleet.measures.events.Add(uint64(len(due)))
	return nil
}

// sendDue sends results, or what was held back and is ripe. The caller holds a.mu.
func (a *simAgent) sendDue(conn *wire.Conn, due []result, second int64) error {
	switch {
	case len(due) > 0:
		return a.sendBatch(conn, due)
	case !a.ripe.IsZero() && second >= a.ripe.Unix() && a.ready(conn):
		return a.sendWaiting()
	}
	return nil
}

// ready reports whether the agent can send events. The caller holds a.mu.
func (a *simAgent) ready(conn *wire.Conn) bool {
	return a.conn != nil && a.conn == conn && a.configured && !a.spools() && a.writing.IsZero()
}

// sendBatch sends results in the lapwing protocol, and keeps them until they are acknowledged. The caller holds a.mu.
func (a *simAgent) sendBatch(conn *wire.Conn, due []result) error {
	now := time.Now()
	first := a.sequence + 1
	for _, r := range due {
		a.sequence++
		a.unacked = append(a.unacked, unacked{sequence: a.sequence, result: r, sent: now})
	}
	if !a.ready(conn) {
		return nil // for the next connection, or until the backend takes events again
	}
	if a.holdsBack(due, now) {
		return nil
	}
	if a.sent+1 != first {
		return a.sendWaiting()
	}
	o := outgoings.Get().(*outgoing)
	defer o.release()
	return a.writeBatch(o, a.unacked[len(a.unacked)-len(due):])
}

// holdsBack reports whether the last results wait for others, which they do while their checks stay OK and none of
// those held back has waited for long enough. Only an agent with a schedule holds results back, because runDue ends
// their time. The caller holds a.mu.
func (a *simAgent) holdsBack(due []result, now time.Time) bool {
	if a.fleet.opts.BatchDelay == 0 || len(a.plan) == 0 {
		return false
	}
	for i := range due {
		if r := &due[i]; r.n == 1 || a.status(r, r.n-1) > 0 || a.status(r, r.n) > 0 {
			return false
		}
	}
	if a.ripe.IsZero() {
		a.ripe = now.Add(a.fleet.opts.BatchDelay)
		a.due = min(a.due, a.ripe.Unix())
	}
	return now.Unix() < a.ripe.Unix()
}

func (a *simAgent) status(r *result, n uint32) uint32 {
	return a.fleet.outcomes.status(a.index, r.check.id, n)
}

// writeBatch writes unacknowledged events with consecutive numbers. The caller holds a.mu.
func (a *simAgent) writeBatch(o *outgoing, events []unacked) error {
	results := 0
	for i := range events {
		if events[i].keepalive {
			o.buf = a.fleet.keepalive(a, a.keepalives).AppendProto(o.buf)
		} else {
			results++
			o.buf = a.fleet.appendEvent(o.buf, a, &events[i].result)
			a.fleet.onResult(a, &events[i].result)
		}
		o.end()
	}
	for i, b := range o.messages() {
		o.items = append(o.items, wire.Item{Keepalive: events[i].keepalive, Event: b})
	}
	start := len(o.buf)
	o.buf = wire.AppendEvents(o.buf, events[0].sequence, o.items)
	a.sent = events[len(events)-1].sequence
	if err := a.write([][]byte{o.buf[start:]}, nil); err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	a.fleet.measures.events.Add(uint64(results))
	return nil
}

// maxResend bounds the events of a message when many are waiting.
const maxResend = 256

// sendWaiting sends unacknowledged events that were not sent on this connection, oldest first. The caller holds a.mu.
func (a *simAgent) sendWaiting() error {
	if a.cluster.leaving {
		return nil
	}
	waiting := a.unacked
	for len(waiting) > 0 && waiting[0].sequence <= a.sent {
		waiting = waiting[1:]
	}
	if !a.ripe.IsZero() {
		late := a.ripe // what is held back on purpose is not late before that
		if now := time.Now(); now.Before(late) {
			late = now
		}
		for i := range waiting {
			if waiting[i].sent.Before(late) {
				waiting[i].sent = late
			}
		}
		a.ripe = time.Time{}
	}
	for len(waiting) > 0 && a.writing.IsZero() {
		some := waiting[:min(maxResend, len(waiting))]
		waiting = waiting[len(some):]
		o := outgoings.Get().(*outgoing)
		err := a.writeBatch(o, some)
		o.release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *simAgent) onAck(payload []byte) error {
	seq, err := wire.DecodeAck(payload)
	if err != nil {
		return fmt.Errorf("read acknowledgement: %w", err)
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.unacked) && a.unacked[n].sequence <= seq {
		a.fleet.measures.latencies[report.LatencyAck].record(now.Sub(a.unacked[n].sent))
		if r := &a.unacked[n].result; r.turn.text != "" {
			a.fleet.onAnswered(a, r, now)
		}
		n++
	}
	a.unacked = append(a.unacked[:0], a.unacked[n:]...)
	return a.left()
}

// onSchedule replaces or changes the agent's schedule.
func (a *simAgent) onSchedule(payload []byte) error {
	_, replace, entries, err := wire.DecodeSchedule(payload)
	if err != nil {
		return fmt.Errorf("read schedule: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead {
		return nil
	}
	if replace {
		a.plan = nil
	}
	for _, e := range entries {
		name := e.Remove
		var c *check
		var number int
		if name == "" {
			req, err := a.fleet.request(e.Request)
			if err != nil {
				return err
			}
			c, name, number = req.check, req.check.name, a.fleet.number(req.check.name)
		}
		kept := a.plan[:0]
		for _, p := range a.plan {
			if p.check.name != name {
				kept = append(kept, p)
			}
		}
		a.plan = kept
		if c != nil && c.interval > 0 {
			a.plan = append(a.plan, planned{check: c, number: number, every: c.interval.Milliseconds(), phase: int64(e.PhaseMillis)})
		}
	}
	a.due = 0
	a.fleet.planChanged(a)
	if len(a.plan) == 0 && !a.ripe.IsZero() && a.ready(a.conn) {
		return a.sendWaiting()
	}
	return nil
}

func (a *simAgent) onPace(conn *wire.Conn, payload []byte) error {
	pace, _, err := wire.DecodePace(payload)
	if err != nil {
		return fmt.Errorf("read pace: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	resume := a.pace == wire.PaceSpool && pace != wire.PaceSpool
	a.pace = pace
	if pace == wire.PaceLeave {
		a.cluster.leaving = true
		return a.left()
	}
	if resume && a.conn == conn && a.configured && a.writing.IsZero() {
		return a.sendWaiting()
	}
	return nil
}

// runDue runs the checks that are due in a second of Unix time, and sends the results that were held back until then.
func (a *simAgent) runDue(second int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if second < a.due {
		return
	}
	var due []result
	conn := a.conn
	a.due = math.MaxInt64
	if !a.ripe.IsZero() {
		a.due = a.ripe.Unix()
	}
	for _, p := range a.plan {
		since := (second*1000 + p.phase%1000 - p.phase) % p.every // since it was last due
		a.due = min(a.due, second+(p.every-since)/1000)
		if since != 0 || a.fleet.quiet.Load() > 0 {
			continue
		}
		pair := a.pair(p.number)
		if pair.issued >= second {
			continue
		}
		pair.issued = second
		pair.n++
		due = append(due, result{check: p.check, n: pair.n, issued: second, executed: second})
	}
	a.fleet.measures.created.Add(uint64(len(due)))
	if err := a.sendDue(conn, due, second); err != nil {
		a.fleet.running.Go(func() { a.fleet.drop(a, conn, err) })
	}
}
