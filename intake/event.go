package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxKeptBody is the size up to which a buffer for a body is used again.
const maxKeptBody = 64 << 10

// maxSkew is how far an event's time may lie in the future.
const maxSkew = 10 * time.Minute

// Source is where an agent's event comes from.
type Source struct {
	Namespace string // of the agent; the event must belong to it
	Agent     string
	// Epoch is that of a lapwing agent, 0 for Sensu's, and Sequence the event's number in it.
	Epoch, Sequence uint64
	// Acker, if not nil, gets Token when the event is durable.
	Acker eventlog.Acker
	Token uint64
	// Prompt sources must not wait: they get ErrMustWait instead.
	Prompt bool
}

// Event appends an event of an agent, given as protobuf. The body goes into the log as it came, without its entity if that
// is configured; only an event that needs mending is decoded.
func (i *Intake) Event(ctx context.Context, body []byte, src Source) error {
	if limit := i.opts.Log.MaxRecord(); len(body) > limit {
		return &resource.TooLargeError{What: "event", Size: len(body), Limit: limit}
	}
	view, err := resource.PeekEvent(body)
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if err := view.Validate(); err != nil {
		return reject("invalid", "event: %w", err)
	}
	ent, err := resource.PeekEntity(view.Entity)
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if string(ent.Namespace) != src.Namespace {
		return reject("namespace", "event of namespace %q in a session of namespace %q", resource.Short(ent.Namespace), src.Namespace)
	}
	if err := ent.Validate(); err != nil {
		return reject("invalid", "event of entity %q: %w", resource.Short(ent.Name), err)
	}
	now := time.Now()
	rec := eventlog.Record{Kind: eventlog.KindEvent, Received: now.UnixMilli(), Namespace: src.Namespace, Entity: src.Agent}
	if string(ent.Name) != src.Agent {
		rec.Entity = i.names.get(ent.Name)
	}
	if src.Epoch != 0 {
		rec.Flags |= eventlog.FlagFromAgent
		rec.Epoch, rec.Sequence = src.Epoch, src.Sequence
	}
	if view.Pipelines {
		rec.Flags |= eventlog.FlagHandlers
	}
	if view.Metrics != nil {
		// Who handles the metrics is in their own list; the pipeline looks there.
		rec.Flags |= eventlog.FlagMetrics
	}
	mend := len(view.ID) == 0 || view.Timestamp == 0
	skewed := view.Timestamp > now.Add(maxSkew).Unix()
	mend = mend || skewed
	var check resource.CheckView
	if view.Check == nil {
		rec.Flags |= eventlog.FlagStateless
	} else {
		if check, err = resource.PeekCheck(view.Check); err != nil {
			return reject("undecodable", "decode event: %w", err)
		}
		if err := check.Validate(); err != nil {
			return reject("invalid", "event of check %q: %w", resource.Short(check.Name), err)
		}
		i.describe(&rec, &check, now)
		mend = mend || check.Silenced > 0 || check.IsSilenced
	}
	proxied := len(check.ProxyEntityName) > 0
	known, err := i.resolveEntity(ctx, &rec, check.ProxyEntityName, ent, body, src)
	if err != nil {
		return err
	}
	silenced, err := i.silencedEncoded(&rec, body, view.Check, view.Entity, proxied, now)
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if mend || silenced != nil || !known {
		rec.Body, err = mended(body, silenced, known, now)
	} else {
		bare := i.bodies.Get().(*[]byte)
		*bare, err = resource.AppendEventWithoutEntity((*bare)[:0], body)
		if rec.Body = *bare; cap(rec.Body) <= maxKeptBody {
			defer i.bodies.Put(bare)
		}
	}
	if err != nil {
		return reject("undecodable", "decode event: %w", err)
	}
	if rec.Entity != src.Agent && rec.Check != "" {
		if err := i.quotas.store(rec.Namespace, src.Agent, rec.Entity, rec.Check, len(rec.Body)); err != nil {
			return err
		}
	}
	if err := i.appendFrom(ctx, src, &rec); err != nil {
		return fmt.Errorf("append event %s/%s: %w", rec.Entity, rec.Check, err)
	}
	if skewed {
		i.metrics.skewed.Inc()
	}
	i.metrics.received.WithLabelValues("agent").Inc()
	return nil
}

// describe fills a record's header from an event's check.
func (i *Intake) describe(rec *eventlog.Record, c *resource.CheckView, now time.Time) {
	rec.Check = i.names.get(c.Name)
	rec.Status, rec.Executed = c.Status, c.Executed
	rec.LowFlap, rec.HighFlap = c.LowFlap, c.HighFlap
	if c.MaxOutputSize > 0 && int64(c.OutputLen) > c.MaxOutputSize {
		rec.MaxOutput = c.MaxOutputSize
	}
	if c.TTL > 0 {
		rec.Due = now.UnixMilli() + c.TTL*1000
		if c.RoundRobin && len(c.ProxyEntityName) == 0 {
			i.turns.took(rec.Namespace, rec.Check, rec.Received, rec.Due)
		}
	}
	if c.Handlers+c.MetricHandlers+c.Pipelines > 0 {
		rec.Flags |= eventlog.FlagHandlers
	}
}

// mended gives an event what it must have: an id, a time that is not in the future, and the silences we know. It is as it stands
// in the log then, without its entity if that is known.
func mended(body []byte, silenced []string, known bool, now time.Time) ([]byte, error) {
	var ev resource.Event
	if err := ev.UnmarshalProto(body); err != nil {
		return nil, err
	}
	mend(&ev, silenced, now)
	if known {
		return encodeBody(&ev), nil
	}
	ev.Entity.Subscriptions = resource.AddEntitySubscription(ev.Entity.Subscriptions, ev.Entity.Metadata.Name)
	return ev.AppendProto(nil), nil
}

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

// encodeBody is an event as it stands in the log: without its entity.
func encodeBody(ev *resource.Event) []byte {
	bare := *ev
	bare.Entity = nil
	return bare.AppendProto(nil)
}

// encodeFor is encodeBody for an event whose entity may be unknown: then it keeps the one it carries.
func (i *Intake) encodeFor(rec *eventlog.Record, ev *resource.Event) []byte {
	if ev.Entity != nil && ev.Entity.Metadata.Name == rec.Entity && !i.configured(rec) {
		return ev.AppendProto(nil)
	}
	return encodeBody(ev)
}

// append puts a record into the log, waiting for room there until ctx ends at the latest.
func (i *Intake) append(ctx context.Context, rec *eventlog.Record, acker eventlog.Acker, token uint64) error {
	if err := checkNames(rec); err != nil {
		return err
	}
	err := i.opts.Log.AppendContext(ctx, rec, acker, token)
	if err == nil && rec.Flags&eventlog.FlagSilenced != 0 {
		i.metrics.silenced.Inc()
	}
	return err
}

// checkNames refuses a record whose names are too long, wherever it comes from.
func checkNames(rec *eventlog.Record) error {
	if len(rec.Namespace) > resource.MaxName || len(rec.Entity) > resource.MaxName || len(rec.Check) > resource.MaxName {
		return reject("invalid", "event of %q/%q: a name must not be longer than %d bytes",
			resource.Short(rec.Entity), resource.Short(rec.Check), resource.MaxName)
	}
	return nil
}

// appendFrom is append for a record of a source, which may have to be prompt.
func (i *Intake) appendFrom(ctx context.Context, src Source, rec *eventlog.Record) error {
	if !src.Prompt {
		return i.append(ctx, rec, src.Acker, src.Token)
	}
	if err := checkNames(rec); err != nil {
		return err
	}
	switch err := i.opts.Log.TryAppend(rec, src.Acker, src.Token); {
	case errors.Is(err, eventlog.ErrNoRoom):
		return NoRoomError{i.opts.Log.Partition(rec.Namespace, rec.Entity)}
	case err != nil:
		return err
	}
	if rec.Flags&eventlog.FlagSilenced != 0 {
		i.metrics.silenced.Inc()
	}
	return nil
}
