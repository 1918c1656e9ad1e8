package queue

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// A message about turns begins with newsVersion and the member. Items follow, each with an operation and its group.
const newsVersion = 1

const (
	opGiven    = 1 // a turn, and who has it
	opReceipt  = 2 // a turn, and what the agent says
	opStanding = 3 // a group's newest turn
	opExpired  = 4 // a turn that had no result in time
)

// item is what a message says about a group.
type item struct {
	group         Group
	turn          Turn
	agent, member string
	attempt       int
	issued        int64
	stamp, moved  uint64
	outcome       wire.Outcome
}

// encode returns messages for the other members; none if there is nothing to say.
func (n *news) encode(member string) (messages [][]byte) {
	w := newWriter(newsVersion, member)
	part := func() {
		if len(w.buf) > maxNews {
			messages = append(messages, w.buf)
			w = newWriter(newsVersion, member)
		}
	}
	for i := range n.given {
		w.given(&n.given[i])
		part()
	}
	for i := range n.receipts {
		r := &n.receipts[i]
		w.group(opReceipt, r.group)
		w.turn(r.turn)
		w.text(r.agent)
		w.buf = append(w.buf, byte(r.outcome))
		part()
	}
	for _, o := range n.expired {
		w.group(opExpired, o.group.name)
		w.turn(o.turn)
		part()
	}
	for _, g := range n.standing {
		w.group(opStanding, g.name)
		w.uint(g.moved)
		w.text(g.cursor)
		for _, o := range g.open {
			if o.agent != "" {
				w.given(&giving{g.name, o.turn, o.attempt, o.agent, o.member, o.issued, o.stamp, o.moved})
			}
		}
		part()
	}
	if w.items > 0 {
		messages = append(messages, w.buf)
	}
	return messages
}

// writer writes a message to other members. A word that comes again is written as its number: names of checks and
// subscriptions do so all the time.
type writer struct {
	buf   []byte
	words map[string]uint64
	items int
}

func newWriter(version byte, member string) *writer {
	return &writer{buf: fields.AppendBytes([]byte{version}, member), words: map[string]uint64{}}
}

func (w *writer) uint(n uint64)    { w.buf = binary.AppendUvarint(w.buf, n) }
func (w *writer) int(n int64)      { w.buf = binary.AppendVarint(w.buf, n) }
func (w *writer) text(text string) { w.buf = fields.AppendBytes(w.buf, text) }

// word writes 0 and the word when it comes for the first time, and its number, from 1 on, later.
func (w *writer) word(text string) {
	n, known := w.words[text]
	w.uint(n)
	if !known {
		w.words[text] = uint64(len(w.words)) + 1
		w.text(text)
	}
}

func (w *writer) group(op byte, g Group) {
	w.items++
	w.buf = append(w.buf, op)
	w.word(g.Check.Namespace)
	w.word(g.Check.Name)
	w.word(g.Subscription)
}

func (w *writer) turn(t Turn) {
	w.int(t.Tick)
	w.text(t.Entity)
	asked := byte(0)
	if t.Asked {
		asked = 1
	}
	w.buf = append(w.buf, asked)
}

// given writes who has a turn. The time of issue is counted from the tick.
func (w *writer) given(g *giving) {
	w.group(opGiven, g.group)
	w.turn(g.turn)
	w.word(g.member)
	w.text(g.agent)
	w.uint(uint64(g.attempt))
	w.int(g.issued - g.turn.Tick)
	w.uint(g.stamp)
	w.uint(g.moved)
}

// reader reads a message of another member.
type reader struct {
	fields.Reader
	words []string
}

func (r *reader) word() string {
	n := r.Uint()
	switch {
	case n == 0:
		r.words = append(r.words, r.Text())
		return r.words[len(r.words)-1]
	case n > uint64(len(r.words)):
		r.Fail(fmt.Errorf("word %d of %d", n, len(r.words)))
		return ""
	}
	return r.words[n-1]
}

// newsReader reads a message about turns, item by item.
type newsReader struct {
	reader
	member string
	op     byte
	item   item
}

func readNews(message []byte) (*newsReader, error) {
	r := &newsReader{reader: reader{Reader: fields.NewReader(message)}}
	if err := fields.CheckVersion("news of turns", r.Byte(), newsVersion); err != nil {
		return nil, err
	}
	r.member = r.Text()
	return r, r.err()
}

func (r *newsReader) err() error {
	if err := r.Err(); err != nil {
		return fmt.Errorf("read news of turns: %w", err)
	}
	return nil
}

// next reads the next item, and reports whether there is one.
func (r *newsReader) next() bool {
	if r.Err() != nil || len(r.Rest) == 0 {
		return false
	}
	r.op = r.Byte()
	it := &r.item
	*it = item{group: Group{resource.Name{Namespace: r.word(), Name: r.word()}, r.word()}}
	switch r.op {
	case opGiven:
		it.turn, it.member, it.agent = r.turn(), r.word(), r.Text()
		it.attempt, it.issued = int(r.Uint()), it.turn.Tick+r.Int()
		it.stamp, it.moved = r.Uint(), r.Uint()
	case opExpired:
		it.turn = r.turn()
	case opReceipt:
		it.turn, it.agent, it.outcome = r.turn(), r.Text(), wire.Outcome(r.Byte())
	case opStanding:
		it.moved, it.agent = r.Uint(), r.Text()
	default:
		r.Fail(fmt.Errorf("operation %d is not known", r.op))
	}
	return r.Err() == nil
}

func (r *newsReader) turn() Turn { return Turn{Tick: r.Int(), Entity: r.Text(), Asked: r.Bool()} }

// subscriptions reads the number of an agent's subscriptions plus one, and the subscriptions; false if it is not connected.
func (r *reader) subscriptions() (list []string, connected bool) {
	n := r.Uint()
	if n == 0 {
		return nil, false
	}
	if n > uint64(len(r.Rest))+1 { // each has a byte at least
		r.Fail(fields.ErrTruncated)
		return nil, false
	}
	list = slices.Grow(list, int(n)-1)
	for range int(n) - 1 {
		list = append(list, r.word())
	}
	return list, true
}
