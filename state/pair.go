package state

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/internal/offheap"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// historyLen is how many results a check's history keeps.
const historyLen = 21

// Flags of a pair.
const (
	pairUsed     = 1 << iota // the slot holds a pair
	pairFlapping             // its state is flapping
	pairDirty                // it is in the dirty queue
	pairWide                 // its history is in partition.wide
	pairSilenced             // its newest event names silences
	pairMoved                // goLive has moved its deadline, which counts from partition.listening
	pairRan                  // its newest event is the result of a run
	pairMissing              // its newest event is a deadline that passed
)

// pair is the state of one check of one entity. It has no pointers, so that a million and a half of them cost the
// garbage collector nothing; names and bodies are elsewhere.
type pair struct {
	flags    uint8
	n        uint8             // history entries in use
	origin   uint8             // the backend that the newest event came through, in partition.heard; 0 = not known
	statuses [historyLen]uint8 // oldest first

	entity    uint32 // index into partition.entities
	check     uint32 // index into partition.checks
	next      uint32 // next pair of the same entity, plus one; 0 ends the list
	traits    uint32 // of the newest event, in partition.traits; 0 = read the event
	change    uint32 // total_state_change, percent
	timestamp uint32 // of the newest event, Unix seconds; 0 = read the event
	ran       uint32 // when the newest result of a run was received, Unix seconds; 0 = never, as far as is known

	executed [historyLen]uint32 // oldest first

	pos      uint64      // position of the newest folded event
	queued   uint64      // position of its last item in the dirty queue
	received int64       // when the newest event was received, Unix milliseconds
	due      int64       // when the next event is overdue, Unix milliseconds; 0 = never
	body     offheap.Ref // its body in the dirty set's arena; 0 if it is stored
	epoch    uint64      // of the agent process that sent the newest event
	sequence uint64      // the event's number in that epoch; both 0 if no lapwing agent sent it

	lastOK      int64 // Unix seconds
	occurrences int64
	watermark   int64
}

// history returns the pair's history, oldest first. If a result does not fit the compact form (a status over 255, a
// time outside 1970-2106) the whole history is in wide.
func (p *pair) history(wide []resource.CheckHistory) []resource.CheckHistory {
	if p.flags&pairWide != 0 {
		return append([]resource.CheckHistory(nil), wide...)
	}
	h := make([]resource.CheckHistory, p.n)
	for i := range h {
		h[i] = resource.CheckHistory{Status: uint32(p.statuses[i]), Executed: int64(p.executed[i])}
	}
	return h
}

func compact(h resource.CheckHistory) bool {
	return h.Status <= 255 && h.Executed >= 0 && h.Executed <= 1<<32-1
}

// record appends a result to the history, and returns the wide form if the history does not fit the compact one.
func (p *pair) record(h resource.CheckHistory, wide []resource.CheckHistory) []resource.CheckHistory {
	if p.flags&pairWide == 0 && compact(h) {
		if p.n == historyLen {
			copy(p.statuses[:], p.statuses[1:])
			copy(p.executed[:], p.executed[1:])
			p.n--
		}
		p.statuses[p.n], p.executed[p.n] = uint8(h.Status), uint32(h.Executed)
		p.n++
		return nil
	}
	all := append(p.history(wide), h)
	if len(all) > historyLen {
		all = all[len(all)-historyLen:]
	}
	p.setHistory(all)
	if p.flags&pairWide != 0 {
		return all
	}
	return nil
}

// setHistory replaces the history (at most historyLen entries); a wide one the caller keeps.
func (p *pair) setHistory(h []resource.CheckHistory) {
	p.flags &^= pairWide
	p.n = uint8(len(h))
	for i, e := range h {
		if !compact(e) {
			p.flags |= pairWide
			return
		}
		p.statuses[i], p.executed[i] = uint8(e.Status), uint32(e.Executed)
	}
}

// statusAt returns the status of a history entry.
func (p *pair) statusAt(i int, wide []resource.CheckHistory) uint32 {
	if p.flags&pairWide != 0 {
		return wide[i].Status
	}
	return uint32(p.statuses[i])
}

// apply folds a result into the pair: history, occurrences, watermark, flapping and last_ok. wide is the pair's wide
// history, if it has one; the new one is returned. The rules are those of the Sensu event model: occurrences count
// equal statuses in a row, the watermark is the highest count since the check last left OK, and a check flaps while
// the weighted share of changes in its last 21 results is at or above its high threshold.
func (p *pair) apply(status uint32, executed int64, lowFlap, highFlap uint32, wide []resource.CheckHistory) []resource.CheckHistory {
	first := p.n == 0
	wide = p.record(resource.CheckHistory{Status: status, Executed: executed}, wide)
	n := int(p.n)

	previous := status
	if n > 1 {
		previous = p.statusAt(n-2, wide)
	}
	if n > 1 && status == previous {
		p.occurrences++
	} else {
		p.occurrences = 1
	}
	switch {
	case n > 1 && status != 0 && previous == 0:
		p.watermark = 1
	case p.occurrences > p.watermark:
		p.watermark++
	}

	p.change = p.totalStateChange(wide)
	if lowFlap != 0 && highFlap != 0 && p.change >= highFlap {
		p.flags |= pairFlapping
	} else {
		p.flags &^= pairFlapping
	}
	if status == 0 && (first || p.flags&pairFlapping == 0) {
		p.lastOK = executed
	}
	return wide
}

// totalStateChange returns the weighted share of status changes in a full history, in percent: newer changes weigh
// more, from 0.80 for the oldest to 1.18 for the newest. A shorter history counts as steady.
func (p *pair) totalStateChange(wide []resource.CheckHistory) uint32 {
	if p.n < historyLen {
		return 0
	}
	sum, weight := 0.0, 0.80
	for i := 1; i < historyLen; i++ {
		if p.statusAt(i, wide) != p.statusAt(i-1, wide) {
			sum += weight
		}
		weight += 0.02
	}
	return uint32(float32(sum) / (historyLen - 1) * 100)
}

// status returns the status of the newest result; 0 if there is none.
func (p *pair) status(wide []resource.CheckHistory) uint32 {
	if p.n == 0 {
		return 0
	}
	return p.statusAt(int(p.n)-1, wide)
}

// lastExecuted returns when the newest result was executed, in Unix seconds; 0 without one.
func (p *pair) lastExecuted(wide []resource.CheckHistory) int64 {
	if p.n == 0 {
		return 0
	}
	return p.executedAt(int(p.n)-1, wide)
}

// executedAt returns when a result in the history was executed, in Unix seconds.
func (p *pair) executedAt(i int, wide []resource.CheckHistory) int64 {
	if p.flags&pairWide != 0 {
		return wide[i].Executed
	}
	return int64(p.executed[i])
}

// incident reports whether the check is not OK, resolution whether it is OK right after not OK, as Sensu defines them.
func (p *pair) incident(wide []resource.CheckHistory) bool {
	return p.n > 0 && p.statusAt(int(p.n)-1, wide) != 0
}

func (p *pair) resolution(wide []resource.CheckHistory) bool {
	return p.n > 1 && p.statusAt(int(p.n)-1, wide) == 0 && p.statusAt(int(p.n)-2, wide) != 0
}

// overlay sets the fields of a decoded event's check that the fold knows.
func (p *pair) overlay(c *resource.Check, wide []resource.CheckHistory) {
	c.History = p.history(wide)
	c.Occurrences = p.occurrences
	c.OccurrencesWatermark = p.watermark
	c.TotalStateChange = p.change
	c.LastOK = p.lastOK
	c.State = p.state(c.Status)
}

// state returns the name of the check's state at a status.
func (p *pair) state(status uint32) string {
	switch {
	case p.flags&pairFlapping != 0:
		return "flapping"
	case status == 0:
		return "passing"
	}
	return "failing"
}

// unixSeconds returns a time in Unix milliseconds in seconds; 0 if it does not fit.
func unixSeconds(millis int64) uint32 {
	if seconds := millis / 1000; seconds > 0 && seconds <= math.MaxUint32 {
		return uint32(seconds)
	}
	return 0
}

const pairVersion = 1

// pairStored are the flags that are stored.
const pairStored = pairFlapping | pairSilenced | pairMissing

// append encodes the pair for the store.
func (p *pair) append(b []byte, wide []resource.CheckHistory) []byte {
	b = append(b, pairVersion, p.flags&pairStored)
	b = binary.AppendUvarint(b, p.pos)
	b = binary.AppendVarint(b, p.received)
	b = binary.AppendVarint(b, p.due)
	b = binary.BigEndian.AppendUint64(b, p.epoch)
	b = binary.AppendUvarint(b, p.sequence)
	b = binary.AppendVarint(b, p.lastOK)
	b = binary.AppendVarint(b, p.occurrences)
	b = binary.AppendVarint(b, p.watermark)
	b = binary.AppendUvarint(b, uint64(p.change))
	b = append(b, p.n)
	var before int64 // times are stored as differences, which are small
	for i := range int(p.n) {
		var h resource.CheckHistory
		if p.flags&pairWide != 0 {
			h = wide[i]
		} else {
			h = resource.CheckHistory{Status: uint32(p.statuses[i]), Executed: int64(p.executed[i])}
		}
		b = binary.AppendUvarint(b, uint64(h.Status))
		b = binary.AppendVarint(b, h.Executed-before)
		before = h.Executed
	}
	b = binary.AppendUvarint(b, uint64(p.timestamp))
	return binary.AppendUvarint(b, uint64(p.ran))
}

// decode reads what append wrote; the wide history is returned if there is one.
func (p *pair) decode(b []byte) (wide []resource.CheckHistory, err error) {
	r := fields.NewReader(b)
	if version := r.Byte(); version != pairVersion && r.Err() == nil {
		return nil, fmt.Errorf("stored state has version %d, want %d", version, pairVersion)
	}
	p.flags = r.Byte()&pairStored | pairUsed
	p.pos, p.received, p.due = r.Uint(), r.Int(), r.Int()
	p.epoch = r.Fixed64()
	p.sequence, p.lastOK, p.occurrences, p.watermark, p.change = r.Uint(), r.Int(), r.Int(), r.Int(), uint32(r.Uint())
	n := r.Byte()
	if n > historyLen {
		return nil, fmt.Errorf("stored state has a history of %d results, at most %d can be", n, historyLen)
	}
	h := make([]resource.CheckHistory, n)
	var before int64
	for k := range h {
		h[k].Status = uint32(r.Uint())
		before += r.Int()
		h[k].Executed = before
	}
	if len(r.Rest) > 0 { // earlier versions did not store this
		p.timestamp = uint32(r.Uint())
	}
	// Nor did they store this. If the newest event was no run, the check counts as late once too late.
	if p.ran = unixSeconds(p.received); len(r.Rest) > 0 {
		p.ran = uint32(r.Uint())
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("read stored state: %w", err)
	}
	p.setHistory(h)
	if p.flags&pairWide != 0 {
		return h, nil
	}
	return nil, nil
}
