package load

import (
	"sync"
	"time"
)

// TurnAnswer is an agent's answer to a turn, as hashes. Its fields are exported for the connection between processes.
type TurnAnswer struct {
	Turn  uint64 // key of the turn
	Agent uint32 // hash of the agent's name, not 0
}

// answerList collects the answers of a fleet until the next snapshot.
type answerList struct {
	mu    sync.Mutex // guards the fields below
	list  []TurnAnswer
	total uint64 // answers so far
}

func (l *answerList) add(a TurnAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, a)
	l.total++
}

// swap returns the answers since the last swap, and how many there were so far.
func (l *answerList) swap() ([]TurnAnswer, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list, l.total
}

// A book has two halves. It forgets the older half when the newer one is as old as bookSpan, or has bookTurns turns. At
// 40,000 turns/s that is after bookSpan, with 12 million turns. bookTurns is a little less than the number at which a
// map doubles its memory: two such maps take 650 MB.
const (
	bookSpan  = 5 * time.Minute // by then no backend gives a turn to agents any more
	bookTurns = 14_000_000
)

// answerBook counts, for all processes of a run, the turns that were answered, and those that several agents answered.
// It knows turns and agents by their hashes: among 24 million turns the chance of one wrong count is about 1 in 60,000.
type answerBook struct {
	different uint64 // turns with an answer
	twice     uint64 // turns with answers of several agents

	limit      int               // of turns in each half; default bookTurns
	young, old map[uint64]uint32 // the agent that answered a turn first; 0 when the turn is counted in twice
	begun      time.Time         // when young was empty
}

// note takes the answers since the last call.
func (b *answerBook) note(answers []TurnAnswer, now time.Time) {
	if b.limit == 0 {
		b.limit = bookTurns
	}
	for _, a := range answers {
		if b.young == nil || len(b.young) >= b.limit || now.Sub(b.begun) >= bookSpan {
			b.young, b.old, b.begun = map[uint64]uint32{}, b.young, now
		}
		first, ok := b.young[a.Turn]
		if !ok {
			first, ok = b.old[a.Turn]
		}
		switch {
		case !ok:
			b.different++
			b.young[a.Turn] = a.Agent
		case first != 0 && first != a.Agent:
			b.twice++
			b.young[a.Turn] = 0
		}
	}
}
