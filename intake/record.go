package intake

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// newRecord returns a record with only its names, received now. All records begin here.
func newRecord(kind eventlog.Kind, namespace, entity, check string, now time.Time) eventlog.Record {
	return eventlog.Record{Kind: kind, Received: now.UnixMilli(), Namespace: namespace, Entity: entity, Check: check}
}

// parts is what a record's header says of an event.
type parts struct {
	namespace, entity, check string

	status, lowFlap, highFlap uint32
	executed                  int64

	handled   bool // the check or the metrics name handlers, or the event or the check names pipelines
	metrics   bool
	stateless bool // the fold keeps no state for it
	keepalive bool
}

// eventRecord returns the record of an event in its parts, without a body.
func eventRecord(p *parts, now time.Time) eventlog.Record {
	rec := newRecord(eventlog.KindEvent, p.namespace, p.entity, p.check, now)
	rec.Status, rec.Executed, rec.LowFlap, rec.HighFlap = p.status, p.executed, p.lowFlap, p.highFlap
	if p.handled {
		rec.Flags |= eventlog.FlagHandlers
	}
	if p.metrics {
		rec.Flags |= eventlog.FlagMetrics
	}
	if p.stateless {
		rec.Flags |= eventlog.FlagStateless
	}
	if p.keepalive {
		rec.Flags |= eventlog.FlagKeepalive
	}
	return rec
}

// recordOf returns the record of a decoded event about an entity.
func recordOf(ev *resource.Event, namespace, entity string, now time.Time) eventlog.Record {
	p := parts{
		namespace: namespace, entity: entity, stateless: ev.Check == nil, metrics: ev.Metrics != nil,
		handled: len(ev.Pipelines) > 0 || ev.Metrics != nil && len(ev.Metrics.Handlers) > 0,
	}
	if c := ev.Check; c != nil {
		p.check, p.keepalive = c.Metadata.Name, c.Metadata.Name == state.KeepaliveCheck
		p.status, p.executed, p.lowFlap, p.highFlap = c.Status, c.Executed, c.LowFlapThreshold, c.HighFlapThreshold
		p.handled = p.handled || len(c.Handlers)+len(c.Pipelines) > 0
	}
	return eventRecord(&p, now)
}

// recordOfState returns the record of the facts of an entity's host.
func recordOfState(st *resource.EntityState, now time.Time) eventlog.Record {
	rec := newRecord(eventlog.KindEntity, st.Metadata.Namespace, st.Metadata.Name, "", now)
	rec.Body = state.AppendFacts(nil, st)
	return rec
}

// mark sets a record's epoch and sequence to those of a lapwing agent's event.
func (src *Source) mark(rec *eventlog.Record) {
	if src.Epoch != 0 {
		rec.Flags |= eventlog.FlagFromAgent
		rec.Epoch, rec.Sequence = src.Epoch, src.Sequence
	}
}

// limit sets how much output of a result from outside is kept, and until when the next result must come.
func limit(rec *eventlog.Record, output, maxOutput, ttl int64) {
	if maxOutput > 0 && output > maxOutput {
		rec.MaxOutput = maxOutput
	}
	if ttl > 0 {
		rec.Due = rec.Received + ttl*1000
	}
}

// complete adds the silences and the body of a decoded event to its record. entity is the entity that was sent; it may
// be nil.
func (i *Intake) complete(rec *eventlog.Record, ev *resource.Event, entity *resource.Entity, now time.Time) {
	mend(ev, i.silenced(rec, ev, entity, now), now)
	if ev.Entity != nil && ev.Entity.Metadata.Name == rec.Entity && !i.configured(rec) {
		rec.Body = ev.AppendProto(nil) // the event has the only description of the entity
	} else {
		rec.Body = encodeBody(ev)
	}
}

// mend adds what an event must have: an id, a time that is not in the future, and the silences that apply.
func mend(ev *resource.Event, silenced []string, now time.Time) {
	if len(ev.ID) != 16 {
		ev.ID = resource.NewEventID()
	}
	if ev.Timestamp == 0 || ev.Timestamp > now.Add(maxSkew).Unix() {
		ev.Timestamp = now.Unix()
	}
	if ev.Check != nil {
		ev.Check.Silenced, ev.Check.IsSilenced = silenced, len(silenced) > 0
	}
}

// encodeBody returns an event as the log has it: without its entity.
func encodeBody(ev *resource.Event) []byte {
	bare := *ev
	bare.Entity = nil
	return bare.AppendProto(nil)
}
