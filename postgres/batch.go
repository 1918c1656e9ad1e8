package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// shortOutput is how much of an output the tables latest and state_change have, in bytes.
const shortOutput = 1024

// lastDay is the end of the times for which a table can be named, in Unix milliseconds.
var lastDay = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// pairIDs makes the ids of pairs in a database, which has the secret. Without it, a user could choose names whose rows
// are those of another namespace's check. Of a million and a half pairs two have the same id with a probability of one in
// sixteen million. It is for one goroutine.
type pairIDs struct {
	secret []byte
	text   []byte
}

func (p *pairIDs) id(namespace, entity, check []byte) int64 {
	p.text = append(p.text[:0], p.secret...)
	for _, name := range [...][]byte{namespace, entity, check} {
		p.text = binary.BigEndian.AppendUint32(p.text, uint32(len(name)))
		p.text = append(p.text, name...)
	}
	sum := sha256.Sum256(p.text)
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// known says which rows of a pair are in the database.
type known uint8

const (
	knownPair known = 1 << iota
	knownLatest
)

// latest is what becomes of a pair's row in the table latest.
type latest struct {
	pair                       int64
	known                      known
	changed, deleted           bool
	settled                    bool   // no change of the pair is still to be written
	namespace, entity, check   string // unless the pair is known
	seq                        uint64
	partition                  int
	received, executed, lastOK int64 // Unix milliseconds
	occurrences, watermark     int64
	status, flags              int32
	output                     string
}

// batch has the rows of one transaction.
type batch struct {
	ids             pairIDs
	events, changes rows
	latest          []latest
	byPair          map[int64]int      // index into latest
	count           int                // changes
	days            map[int64]struct{} // of rows in events and changes, in days since 1970
	day             int64              // of the newest row
	newest          []int64            // when the newest event of each partition was received, Unix milliseconds; 0 for none
	from, to        []uint64           // by partition: the positions in the database, and those behind the batch
	gaps            []gap
	received        []int64 // when each frame's first event was received
}

// gap is a range of messages of which PostgreSQL will not have all changes.
type gap struct {
	partition int
	from, to  uint64
	// since is when the event before was received, until the one behind, in Unix milliseconds; 0 if it is not known.
	since, until int64
	changes      int // that PostgreSQL refused; 0 if none of the range is there
	reason       string
}

// Why there is a gap.
const (
	notInJournal = "the journal does not have them"
	notReadable  = "the journal cannot be read"
)

// cutoffs are the times before which rows are left out, in Unix milliseconds.
type cutoffs struct{ events, changes int64 }

const (
	eventColumns = "received, executed, pair_id, seq, occurrences, watermark, sub, partition, status, flags, duration, output, body"
	eventCount   = 13

	changeColumns = "received, executed, pair_id, seq, sub, partition, status, flags, output"
	changeCount   = 9
)

func (b *batch) reset(from, to []uint64) {
	b.removeRows()
	b.newest = make([]int64, len(from))
	b.from, b.to = append(b.from[:0], from...), append(b.to[:0], to...)
	b.gaps, b.received = b.gaps[:0], b.received[:0]
}

// removeRows leaves the positions alone.
func (b *batch) removeRows() {
	b.events.reset(eventCount)
	b.changes.reset(changeCount)
	b.latest = b.latest[:0]
	if b.byPair == nil {
		b.byPair, b.days = map[int64]int{}, map[int64]struct{}{}
	}
	clear(b.byPair)
	clear(b.days)
	b.count, b.day = 0, math.MinInt64
}

// upTo returns when the newest event was received of the partition that is furthest behind, in Unix milliseconds; 0
// without events.
func (b *batch) upTo() (least int64) {
	for _, newest := range b.newest {
		if newest > 0 && (least == 0 || newest < least) {
			least = newest
		}
	}
	return least
}

func (b *batch) size() int { return len(b.events.b) + len(b.changes.b) }

// add adds a change.
func (b *batch) add(partition int, e *journal.Entry, from cutoffs, pairs map[int64]known) {
	pair := b.ids.id(e.Namespace, e.Entity, e.Check)
	e.Received = min(max(e.Received, 0), lastDay) // or no table can be named for its day
	b.count++
	var output []byte
	deleted := e.Flags&journal.Deleted != 0
	executed := seconds(e.Executed)
	if e.Executed == 0 {
		executed = 0
	}
	if !deleted {
		output = resource.PeekOutput(e.Body)
	}
	if !deleted && e.Received >= from.events {
		b.span(e.Received)
		run, _ := resource.PeekRun(e.Body) // an event that cannot be read has no duration
		r := &b.events
		r.begin()
		r.int8(microseconds(e.Received))
		r.millis(executed)
		r.int8(pair)
		r.int8(int64(e.Seq))
		r.int8(e.Occurrences)
		r.int8(e.OccurrencesWatermark)
		r.int4(int32(e.Sub))
		r.int4(int32(partition))
		r.int4(int32(e.Status))
		r.int4(int32(e.Flags))
		r.float4(float32(run.Duration.Seconds()))
		r.text(output)
		r.bytes(e.Body)
	}
	short := beginning(output, shortOutput)
	if e.Flags&journal.Changed != 0 && e.Flags&journal.Stateless == 0 && e.Received >= from.changes {
		b.span(e.Received)
		r := &b.changes
		r.begin()
		r.int8(microseconds(e.Received))
		r.millis(executed)
		r.int8(pair)
		r.int8(int64(e.Seq))
		r.int4(int32(e.Sub))
		r.int4(int32(partition))
		r.int4(int32(e.Status))
		r.int4(int32(e.Flags))
		r.text(short)
	}
	b.addLatest(pair, partition, e, executed, short, pairs)
}

// addLatest replaces the pair's row: of several events of a pair only the newest is written.
func (b *batch) addLatest(
	pair int64, partition int, e *journal.Entry, executed int64, output []byte, pairs map[int64]known,
) {
	i, again := b.byPair[pair]
	if !again {
		i = len(b.latest)
		b.byPair[pair] = i
		b.latest = append(b.latest, latest{pair: pair, known: pairs[pair]})
		if l := &b.latest[i]; l.known&knownPair == 0 {
			l.namespace, l.entity, l.check = text(e.Namespace), text(e.Entity), text(e.Check)
		}
	}
	if e.Flags&journal.Stateless != 0 {
		return // metrics alone: the pair is what it was
	}
	l := &b.latest[i]
	l.changed, l.deleted = true, e.Flags&journal.Deleted != 0
	l.seq, l.partition, l.received, l.executed, l.lastOK = e.Seq, partition, e.Received, executed, 0
	if e.LastOK != 0 {
		l.lastOK = seconds(e.LastOK)
	}
	l.occurrences, l.watermark, l.status, l.flags = e.Occurrences, e.OccurrencesWatermark, int32(e.Status), int32(e.Flags)
	l.output = text(output)
}

// span notes the day of a row, so that it has a partition to go to.
func (b *batch) span(received int64) {
	if day := time.UnixMilli(received).Unix() / (24 * 60 * 60); day != b.day {
		b.day = day
		b.days[day] = struct{}{}
	}
}
