package load

import (
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// delayedAnswer is what an agent is to send for turns that arrived together.
type delayedAnswer struct {
	due   time.Time
	agent *simAgent
	conn  *wire.Conn // that the turns came on
	turns []result
}

// delayQueue holds the answers of a fleet that are not due yet. All wait equally long, so the oldest is due first.
type delayQueue struct {
	mu    sync.Mutex // guards queue
	queue []delayedAnswer
}

func (q *delayQueue) put(d delayedAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, d)
}

// removeDue removes the answers that are due, and returns them.
func (q *delayQueue) removeDue(now time.Time) []delayedAnswer {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.queue) && !q.queue[n].due.After(now) {
		n++
	}
	due := slices.Clone(q.queue[:n])
	q.queue = slices.Delete(q.queue, 0, n)
	return due
}

// sendDelayed sends the delayed answers that are due.
func (f *Fleet) sendDelayed(now time.Time) {
	for _, d := range f.delayed.removeDue(now) {
		if conn, err := d.send(); err != nil {
			f.drop(d.agent, conn, err)
		}
	}
}

// send sends an answer, and returns the agent's connection. Results may go over another connection than the one the
// turns came on.
func (d *delayedAnswer) send() (*wire.Conn, error) {
	a := d.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range d.turns {
		key := d.turns[i].turn.key
		a.delayed = slices.DeleteFunc(a.delayed, func(k uint64) bool { return k == key })
	}
	if a.fleet.opts.Receipts {
		return a.conn, a.sendReceipts(d.conn, d.turns)
	}
	return a.conn, a.respondNow(a.conn, d.turns)
}

// onTurn takes a request that is a turn, unless the agent's answer to the same turn is still delayed.
func (a *simAgent) onTurn(req *request, now time.Time) (result, bool) {
	f := a.fleet
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead || f.over(req.turn.tick) {
		return result{}, false
	}
	f.measures.latencies[report.LatencyTurnArrival].record(now.Sub(time.Unix(req.turn.tick, 0)))
	f.measures.turns.Add(1)
	a.delivered++
	if slices.Contains(a.delayed, req.turn.key) {
		f.measures.inProgress.Add(1)
		return result{}, false
	}
	if f.opts.AckDelay > 0 {
		a.delayed = append(a.delayed, req.turn.key)
	}
	return result{check: req.check, n: a.delivered, issued: req.issued, executed: now.Unix(), turn: req.turn}, true
}

// onResult runs when a result is given to the socket. The caller holds a.mu.
func (f *Fleet) onResult(a *simAgent, r *result) {
	f.onSend(a, r)
	if r.turn.text != "" && !r.created {
		r.created = true
		f.measures.created.Add(1)
	}
}

// onAnswered runs once for each answer to a turn. In the lapwing protocol a result counts when the backend acknowledges
// it. Receipts, and results in Sensu's protocol, are not acknowledged: they count when the socket has taken them, with
// all that was written together with them. The caller holds a.mu.
//
// It would be wrong to count them when they are given to the socket: a killed agent loses what the socket has no room
// for, and the backend gives the turn to another agent.
func (f *Fleet) onAnswered(a *simAgent, r *result, now time.Time) {
	m := f.measures
	m.answers.add(TurnAnswer{r.turn.key, a.id})
	m.latencies[report.LatencyTurnAnswer].record(now.Sub(time.Unix(r.turn.tick, 0)))
	if f.turnLog != nil {
		f.turnLog.write(a.name, r, now)
	}
}
