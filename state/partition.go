package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// A position names a record in a partition: the sequence number of its message and its place in it, counted from 1.
const subBits = 20

func position(seq uint64, sub int) uint64 { return seq<<subBits | uint64(sub) }

const chunkLen = 4096

// partition is the state of one partition of the log. Only its Folder folds.
//
// Two locks are taken in this order. fold is held while a message is folded and routed, and while write-back gathers:
// a commit always has whole messages. mu guards the data for readers and is held for one record at a time.
type partition struct {
	id    int
	state *State

	fold sync.Mutex
	// storing is held from a checkpoint until its batch is committed or given up. Taken before fold.
	storing sync.Mutex

	mu        sync.Mutex
	entities  []entity
	unused    []uint32                           // released indexes of entities
	byName    map[string]uint32                  // namespace NUL name -> entity
	ordered   btree.Map[string, uint32]          // the same, ordered
	checks    checkSet                           // check names
	renamed   uint64                             // how often the index of an entity or a check was reused
	chunks    [][]pair                           // the pairs, chunkLen a chunk
	used      uint32                             // slots in use or in free
	free      []uint32                           // released slots
	index     map[uint64]uint32                  // entity<<32 | check -> slot
	wide      map[uint32][]resource.CheckHistory // the histories that do not fit their pair
	turned    bool                               // the newest event changed its pair's aspects
	configs   []*resource.EntityConfig           // by entity, for those that searches have read
	traits    traitSet                           // the traits of checks in the pairs' newest events
	marks     markSet                            // how far epochs had come whose events are no longer the newest
	origins   originSet                          // how far each backend's batches are folded
	digest    digestSet                          // of the folded messages
	heard     []string                           // the backends that pairs were heard through; the first is ""
	count     int                                // pairs in use
	dirty     dirtySet
	deletions deletions
	loaded    uint64 // the newest message that the stored state had at the start; set before the fold begins
	synced    uint64 // a restart replays from this message; 0 before the first sync
	folded    uint64 // sequence number of the newest folded message
	again     uint64 // first message whose events a replay must return again for what they set off; 0 for none
	first     uint64 // first message whose events a replay must return again, as of the present write-back; 0 for none
	received  int64  // when its last record was received, Unix milliseconds
	waiters   []foldWaiter
	live      bool  // caught up after the start: deadlines count
	listening int64 // when that was, Unix milliseconds

	value   []byte  // for encoding a value
	names   nameSet // for the Folder alone
	clock   int64   // likewise: when the message was opened, Unix milliseconds
	scratch []byte
}

// entity is one entity with state in this partition.
type entity struct {
	namespace, name string
	body            []byte // its EntityState as AppendFacts encodes it; nil if it has none
	pos             uint64 // position of body's record
	first           uint32 // first of its pairs, plus one
	dirty           bool
	used            bool
}

type foldWaiter struct {
	seq  uint64
	done chan struct{}
}

func newPartition(s *State, id int) *partition {
	return &partition{
		id: id, state: s,
		byName: map[string]uint32{}, checks: newCheckSet(), index: map[uint64]uint32{},
		wide: map[uint32][]resource.CheckHistory{}, names: newNameSet(),
		dirty: newDirtySet(), traits: newTraitSet(), marks: newMarkSet(), origins: newOriginSet(), heard: []string{""},
	}
}

// at returns the pair in a slot.
func (p *partition) at(slot uint32) *pair { return &p.chunks[slot/chunkLen][slot%chunkLen] }

func entityKey(b []byte, namespace, name string) []byte {
	b = append(b, namespace...)
	b = append(b, 0)
	return append(b, name...)
}

// findEntity returns an entity's index, and with add makes the entity if necessary. The caller holds mu.
func (p *partition) findEntity(namespace, name string, add bool) (uint32, bool) {
	p.scratch = entityKey(p.scratch[:0], namespace, name)
	if i, ok := p.byName[string(p.scratch)]; ok {
		return i, true
	}
	if !add {
		return 0, false
	}
	key := string(p.scratch)
	var i uint32
	if n := len(p.unused); n > 0 {
		i, p.unused = p.unused[n-1], p.unused[:n-1]
		p.renamed++
	} else {
		i = uint32(len(p.entities))
		p.entities = append(p.entities, entity{})
	}
	p.entities[i] = entity{namespace: namespace, name: name, used: true}
	p.byName[key] = i
	p.ordered.Set(key, i)
	return i, true
}

// findPair returns the slot of an entity's check, and with add makes the pair if necessary. The caller holds mu.
func (p *partition) findPair(ent uint32, check string, add bool) (uint32, bool) {
	id, known := p.checks.id[check]
	if known {
		if slot, ok := p.index[uint64(ent)<<32|uint64(id)]; ok {
			return slot, true
		}
	}
	if !add {
		return 0, false
	}
	id, another := p.checks.take(check)
	if another {
		p.renamed++
	}
	key := uint64(ent)<<32 | uint64(id)
	var slot uint32
	if n := len(p.free); n > 0 {
		slot, p.free = p.free[n-1], p.free[:n-1]
	} else {
		slot = p.used
		p.used++
		if int(slot/chunkLen) == len(p.chunks) {
			p.chunks = append(p.chunks, make([]pair, chunkLen))
		}
	}
	*p.at(slot) = pair{entity: ent, check: id, next: p.entities[ent].first, flags: pairUsed}
	p.entities[ent].first = slot + 1
	p.index[key] = slot
	p.count++
	return slot, true
}

// find returns the slot of (namespace, entity, check). The caller holds mu.
func (p *partition) find(namespace, entity, check string) (uint32, bool) {
	ent, ok := p.findEntity(namespace, entity, false)
	if !ok {
		return 0, false
	}
	return p.findPair(ent, check, false)
}

// Folder folds the messages of one partition. It belongs to the goroutine that reads the partition:
//
//	if f.Open(seq, msg) {
//		for a := f.Next(); a != nil; a = f.Next() {
//			…
//		}
//		if err := f.Refused(); err != nil {
//			return err
//		}
//		f.Close()
//	}
//
// From Open to Close it holds the fold lock, so that a write-back commit has whole messages.
type Folder struct {
	p       *partition
	seq     uint64
	size    int
	begin   time.Time
	batch   eventlog.Batch
	rec     eventlog.Record
	sub     int // place of rec in the message, from 1
	events  int
	sum     uint32   // the message's checksum
	origin  uint8    // of the batch, in partition.heard
	late    bool     // the batch is
	refused error    // why the message is not folded to its end, or nil
	gone    []Update // pairs that rec deleted and Next has not returned yet
	applied Applied
}

// Folder returns the Folder of a partition. A partition must have only one at a time.
func (s *State) Folder(partition int) *Folder { return &Folder{p: s.parts[partition]} }

// From returns the first message that is not folded.
func (f *Folder) From() uint64 {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return f.p.folded + 1
}

// Open starts a message; false means that it is folded already. A repeated batch counts as a message without records.
func (f *Folder) Open(seq uint64, msg []byte) bool {
	f.begin = time.Now()
	p := f.p
	p.fold.Lock()
	p.clock = f.begin.UnixMilli()
	if seq <= p.folded {
		p.fold.Unlock()
		return false
	}
	f.seq, f.size, f.sub, f.events, f.gone, f.refused = seq, len(msg), 0, 0, nil, nil
	var err error
	f.batch, err = eventlog.OpenBatch(msg, p.names.get)
	f.sum = eventlog.Checksum(msg, err == nil)
	if err != nil {
		f.batch = eventlog.Batch{}
		f.undecodable(err)
		return true
	}
	p.mu.Lock()
	repeat := p.origins.fold(seq, f.batch.Origin, f.batch.Number)
	p.mu.Unlock()
	if repeat {
		f.batch = eventlog.Batch{}
		p.state.metrics.repeatedBatches.Inc()
	}
	f.late = !repeat && p.state.opts.Late != nil && p.state.opts.Late(p.id, seq, f.batch.Origin, f.batch.Roster)
	f.origin = p.hear(f.batch.Origin)
	return true
}

// ReturnAgain says that a replay after a crash must return the events from message seq on again, because what they set
// off is not durable yet; 0 is none of the folded ones. Until the next call no pair is stored with a newer event, and
// the stored position does not pass the message. The call is made between Open and Close, or before the state is live.
func (f *Folder) ReturnAgain(seq uint64) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.p.again = seq
}

// Next folds records until one changes a pair, and returns that change; nil at the end of the message.
func (f *Folder) Next() *Applied {
	p := f.p
	for {
		if len(f.gone) > 0 {
			u := f.gone[0]
			f.gone = f.gone[1:]
			return f.deleted(u)
		}
		rec := f.record()
		if rec == nil {
			return nil
		}
		pos := position(f.seq, f.sub)
		switch rec.Kind {
		case eventlog.KindEvent:
			f.events++
			if rec.Flags&eventlog.FlagStateless != 0 {
				return f.event(nil)
			}
			if slot, ok := p.applyEvent(pos, rec, f.origin, f.late); ok {
				return f.event(p.at(slot))
			}
		case eventlog.KindEntity:
			p.applyEntity(pos, rec)
		case eventlog.KindDeleteEvent:
			f.gone = p.deleteEvent(pos, rec)
		case eventlog.KindDeleteEntity:
			f.gone = p.deleteEntity(pos, rec)
		case eventlog.KindDeliveries, eventlog.KindRoster:
			return f.other()
		}
	}
}

// record decodes the next readable record; nil at the end, or if the message is refused.
func (f *Folder) record() *eventlog.Record {
	for f.refused == nil {
		more, err := f.batch.Next(&f.rec, f.p.names.get)
		if !more {
			return nil
		}
		f.sub++
		if err == nil {
			return &f.rec
		}
		f.undecodable(err)
	}
	return nil
}

// Refuse ends the message before its end: Next returns nothing more, and Refused returns the error.
func (f *Folder) Refuse(err error) { f.refused = err }

// Refused takes the place of Close if it returns an error: the message could not be folded to its end, and nothing may be
// folded behind it. The next start begins with this message.
func (f *Folder) Refused() error {
	if f.refused == nil {
		return nil
	}
	f.rec, f.batch = eventlog.Record{}, eventlog.Batch{}
	f.p.fold.Unlock()
	return f.refused
}

// Close ends the message: it is folded.
func (f *Folder) Close() {
	p := f.p
	defer p.fold.Unlock()
	p.mu.Lock()
	p.folded = f.seq
	p.digest.fold(f.seq, f.sum)
	p.dirty.read += uint64(f.size)
	if f.rec.Received > 0 {
		p.received = f.rec.Received
	}
	waiters := p.waiters[:0]
	for _, w := range p.waiters {
		if w.seq <= f.seq {
			close(w.done)
		} else {
			waiters = append(waiters, w)
		}
	}
	p.waiters = waiters
	if p.names.full() {
		p.keepNames()
	}
	p.names.kept = len(p.names.names)
	p.mu.Unlock()
	f.rec, f.batch = eventlog.Record{}, eventlog.Batch{} // they refer to the message
	p.state.metrics.folded.Add(float64(f.events))
	p.state.metrics.foldSeconds.Observe(time.Since(f.begin).Seconds())
}

// undecodable skips what cannot be read: damage must not stop the fold. But what a newer release has written is refused.
func (f *Folder) undecodable(err error) {
	if newer := (*fields.NewerError)(nil); errors.As(err, &newer) {
		f.Refuse(err)
		return
	}
	f.p.state.metrics.undecodable.Inc()
	f.p.state.log.Error("log record cannot be read and is skipped", "partition", f.p.id, "seq", f.seq, "record", f.sub, "err", err)
}

// applyEvent folds an event into its pair. It returns false for an event that does not count: already folded (replay),
// sent twice by its agent, a deadline that a later event made obsolete, or an event of a late batch that is older than the
// newest one.
func (p *partition) applyEvent(pos uint64, rec *eventlog.Record, origin uint8, late bool) (slot uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	deadline := rec.Flags&eventlog.FlagDeadline != 0
	slot, found := p.find(rec.Namespace, rec.Entity, rec.Check)
	switch {
	case found:
	case deadline:
		p.state.metrics.stale.Inc()
		return 0, false
	case p.repeated(nil, pos, rec): // it was deleted since
		p.state.metrics.duplicates.Inc()
		return 0, false
	default:
		ent, _ := p.findEntity(rec.Namespace, rec.Entity, true)
		slot, _ = p.findPair(ent, rec.Check, true)
	}
	pr := p.at(slot)
	switch {
	case pos <= pr.pos:
		return 0, false
	case deadline && rec.Basis != pr.pos:
		p.state.metrics.stale.Inc()
		if p.live && pr.due != 0 { // the deadline that fired may have been the pair's only one
			p.state.opts.Arm(p.pairID(slot), pr.due)
		}
		return 0, false
	case p.repeated(pr, pos, rec):
		p.state.metrics.duplicates.Inc()
		return 0, false
	// A deadline that passed has Basis, which says more than Executed: that may be of a clock that was ahead then.
	case late && !deadline && rec.Executed < pr.lastExecuted(p.wide[slot]):
		p.state.metrics.late.Inc()
		return 0, false
	}
	wide := p.wide[slot]
	before := pr.aspects(wide)
	if pr.n == 0 && rec.Flags&eventlog.FlagHistory != 0 {
		wide = p.seed(slot, pr, rec.Body)
	}
	if wide = pr.apply(rec.Status, rec.Executed, rec.LowFlap, rec.HighFlap, wide); wide != nil {
		p.wide[slot] = wide
	} else if len(p.wide) > 0 {
		delete(p.wide, slot)
	}
	if rec.Flags&eventlog.FlagOnResolve != 0 {
		p.endSilences(rec, pr.resolution(wide))
	}
	armed := pr.due
	if rec.Flags&eventlog.FlagFromAgent != 0 && pr.epoch != rec.Epoch {
		p.displaced(pr, pos, rec.Received)
	}
	pr.pos, pr.received, pr.due, pr.origin = pos, rec.Received, rec.Due, origin
	pr.flags &^= pairMoved
	if p.live {
		pr.received, pr.due = notFuture(rec.Received, rec.Due, p.clock)
	}
	if rec.Flags&eventlog.FlagFromAgent != 0 {
		pr.epoch, pr.sequence = rec.Epoch, rec.Sequence
	}
	if pr.flags &^= pairSilenced; rec.Flags&eventlog.FlagSilenced != 0 {
		pr.flags |= pairSilenced
	}
	body := p.keep(rec)
	if pr.flags &^= pairRan | pairMissing; deadline {
		pr.flags |= pairMissing
	}
	if p.characterise(pr, body) && !deadline {
		pr.flags |= pairRan
		pr.ran = max(pr.ran, unixSeconds(pr.received)) // backends receive in no common order
		if p.live {
			pr.ran = min(pr.ran, unixSeconds(p.clock)) // an earlier clock was ahead
		}
	}
	p.dirty.keepBody(pr, body)
	after := pr.aspects(wide)
	p.turned = before != after
	p.noteChange(slot, pos, before, after, rec, body)
	p.markPair(slot, pos)
	// A deadline that moves later needs no call of Arm, unless the one that Arm has may have passed and been dropped.
	if p.live && pr.due != 0 && (armed == 0 || pr.due < armed || armed <= pr.received) {
		p.state.opts.Arm(p.pairID(slot), pr.due)
	}
	return slot, true
}

// hear returns the index of a backend in heard. There are few: when all indexes are taken, the others get 0, which
// names none.
func (p *partition) hear(origin string) uint8 {
	i := slices.Index(p.heard, origin)
	if i >= 0 {
		return uint8(i)
	}
	if len(p.heard) > math.MaxUint8 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, strings.Clone(origin))
	return uint8(len(p.heard) - 1)
}

// endSilences removes from an event the silences that end with the incident, if it resolves one; else it only clears
// that list.
func (p *partition) endSilences(rec *eventlog.Record, resolution bool) {
	var ev resource.Event
	if !resolution || ev.UnmarshalProto(rec.Body) != nil || ev.Check == nil {
		rec.OnResolve = nil
		return
	}
	c := ev.Check
	c.Silenced = slices.DeleteFunc(c.Silenced, func(name string) bool { return slices.Contains(rec.OnResolve, name) })
	if c.IsSilenced = len(c.Silenced) > 0; !c.IsSilenced {
		rec.Flags &^= eventlog.FlagSilenced
	}
	rec.Body = ev.AppendProto(nil)
}

// seed gives a new pair the history in its first event.
func (p *partition) seed(slot uint32, pr *pair, body []byte) []resource.CheckHistory {
	var ev resource.Event
	if err := ev.UnmarshalProto(body); err != nil || ev.Check == nil {
		return nil
	}
	h := ev.Check.History
	if len(h) > historyLen {
		h = h[len(h)-historyLen:]
	}
	pr.setHistory(h)
	pr.occurrences, pr.watermark, pr.lastOK = ev.Check.Occurrences, ev.Check.OccurrencesWatermark, ev.Check.LastOK
	if pr.flags&pairWide != 0 {
		return h
	}
	return nil
}

// keep returns the stored part of an event's body: without metrics, and with the output cut to the check's
// max_output_size.
func (p *partition) keep(rec *eventlog.Record) []byte {
	if rec.Flags&eventlog.FlagMetrics == 0 && rec.MaxOutput == 0 {
		return rec.Body
	}
	var ev resource.Event
	if err := ev.UnmarshalProto(rec.Body); err != nil || ev.Check == nil {
		return rec.Body
	}
	ev.Metrics = nil
	if cut := int64(len(ev.Check.Output)) - rec.MaxOutput; rec.MaxOutput > 0 && cut > 0 {
		ev.Check.Output = ev.Check.Output[:rec.MaxOutput]
		if ev.Metadata.Labels == nil {
			ev.Metadata.Labels = map[string]string{}
		}
		ev.Metadata.Labels["sensu.io/output_truncated_bytes"] = strconv.FormatInt(cut, 10)
	}
	return ev.AppendProto(nil)
}

func (p *partition) applyEntity(pos uint64, rec *eventlog.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, _ := p.findEntity(rec.Namespace, rec.Entity, true)
	e := &p.entities[i]
	if pos <= e.pos {
		return
	}
	e.body, e.pos = append([]byte(nil), rec.Body...), pos
	p.markEntity(i, pos)
}

// wideOf returns the wide history of a pair that has one.
func (p *partition) wideOf(pr *pair) []resource.CheckHistory {
	if pr.flags&pairWide == 0 {
		return nil
	}
	return p.wide[p.index[uint64(pr.entity)<<32|uint64(pr.check)]]
}

func (p *partition) pairID(slot uint32) uint64 { return uint64(p.id)<<32 | uint64(slot) }

// storeKey returns a key of the database: a kind byte, the partition, and the names.
func storeKey(kind byte, partition int, namespace, entity, check string) []byte {
	b := make([]byte, 0, 4+len(namespace)+len(entity)+len(check))
	b = append(b, kind, byte(partition))
	b = entityKey(b, namespace, entity)
	if kind == 'e' {
		return b
	}
	b = append(b, 0)
	return append(b, check...)
}

// positionKey returns the key of a partition's position, the message from which a restart replays.
func positionKey(partition int) []byte { return []byte{'p', byte(partition)} }

// streamKey returns the key of the id of the stream that a partition's position is of.
func streamKey(partition int) []byte { return []byte{'i', byte(partition)} }

func decodePosition(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("stored log position has %d bytes, want 8", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}
