package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	maxKeptBody = 64 << 10         // larger buffers for bodies are not reused
	maxSkew     = 10 * time.Minute // how far in the future an event's time may be
)

// Source says where an agent's event comes from.
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

// Event appends an event of an agent, given as protobuf. The body goes into the log unchanged, without its entity if
// that is configured; an event that mend must correct is decoded. It keeps nothing of body.
func (i *Intake) Event(ctx context.Context, body []byte, src Source) error {
	if limit := i.opts.Log.MaxRecord(); len(body) > limit {
		return &resource.TooLargeError{What: "event", Size: len(body), Limit: limit}
	}
	var e encoded
	if err := e.read(body, src.Namespace); err != nil {
		return err
	}
	now := time.Now()
	rec := i.recordOfEncoded(&e, &src, now)
	known, err := i.resolveEntity(ctx, &rec, e.check.ProxyEntityName, e.entity, body, src)
	if err != nil {
		return err
	}
	silenced, err := i.silencedEncoded(&rec, body, e.view.Check, e.view.Entity, len(e.check.ProxyEntityName) > 0, now)
	if err != nil {
		return Undecodable("event", err)
	}
	if silenced != nil || !known || e.needsMending(now) {
		rec.Body, err = mended(body, silenced, known, now)
	} else {
		bare := i.bodies.Get().(*[]byte)
		*bare, err = resource.AppendEventWithoutEntity((*bare)[:0], body)
		if rec.Body = *bare; cap(rec.Body) <= maxKeptBody {
			defer i.bodies.Put(bare)
		}
	}
	if err != nil {
		return Undecodable("event", err)
	}
	if rec.Entity != src.Agent && rec.Check != "" {
		if err := i.quotas.store(rec.Namespace, src.Agent, rec.Entity, rec.Check, len(rec.Body)); err != nil {
			return err
		}
	}
	if err := i.appendFrom(ctx, src, &rec); err != nil {
		return fmt.Errorf("append event %s/%s: %w", rec.Entity, rec.Check, err)
	}
	i.putEncodedPoints(&rec, e.view.Metrics)
	if e.skewed(now) {
		i.metrics.skewed.Inc()
	}
	i.metrics.received.WithLabelValues("agent").Inc()
	return nil
}

// encoded is an event as protobuf, and the parts of it that are read.
type encoded struct {
	view   resource.EventView
	entity resource.EntityView
	check  resource.CheckView // if view.Check is not nil
}

// read checks the event of an agent in the namespace.
func (e *encoded) read(body []byte, namespace string) (err error) {
	if e.view, err = resource.PeekEvent(body); err != nil {
		return Undecodable("event", err)
	}
	if err := e.view.Validate(); err != nil {
		return reject("invalid", "event: %w", err)
	}
	if e.entity, err = resource.PeekEntity(e.view.Entity); err != nil {
		return Undecodable("event", err)
	}
	if string(e.entity.Namespace) != namespace {
		return reject("namespace", "event of namespace %q in a session of namespace %q",
			resource.Short(e.entity.Namespace), namespace)
	}
	if err := e.entity.Validate(); err != nil {
		return reject("invalid", "event of entity %q: %w", resource.Short(e.entity.Name), err)
	}
	if e.view.Check == nil {
		return nil
	}
	if e.check, err = resource.PeekCheck(e.view.Check); err != nil {
		return Undecodable("event", err)
	}
	if err := e.check.Validate(); err != nil {
		return reject("invalid", "event of check %q: %w", resource.Short(e.check.Name), err)
	}
	return nil
}

// recordOfEncoded returns the record of an agent's event, without a body.
func (i *Intake) recordOfEncoded(e *encoded, src *Source, now time.Time) eventlog.Record {
	c := &e.check
	p := parts{
		namespace: src.Namespace, entity: src.Agent,
		status: c.Status, lowFlap: c.LowFlap, highFlap: c.HighFlap, executed: c.Executed,
		// The metrics have a list of handlers of their own, which the pipeline reads.
		handled: e.view.Pipelines || c.Handlers+c.MetricHandlers+c.Pipelines > 0, metrics: e.view.Metrics != nil,
		stateless: e.view.Check == nil,
	}
	if string(e.entity.Name) != src.Agent {
		p.entity = i.names.get(e.entity.Name)
	}
	if !p.stateless {
		p.check = i.names.get(c.Name)
	}
	rec := eventRecord(&p, now)
	src.mark(&rec)
	limit(&rec, int64(c.OutputLen), c.MaxOutputSize, c.TTL)
	return rec
}

// skewed reports whether the event's time is too far in the future.
func (e *encoded) skewed(now time.Time) bool { return e.view.Timestamp > now.Add(maxSkew).Unix() }

// needsMending reports whether the event must be corrected before it goes into the log: see mend.
func (e *encoded) needsMending(now time.Time) bool {
	return len(e.view.ID) == 0 || e.view.Timestamp == 0 || e.skewed(now) || e.check.Silenced > 0 || e.check.IsSilenced
}

// mended returns the corrected body of an event. The entity stays in it if it is not known.
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

// appendFrom appends a record of a source to the log.
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
	i.appended(rec)
	return nil
}

// append appends a record to the log, and waits for room there at most until ctx ends.
func (i *Intake) append(ctx context.Context, rec *eventlog.Record, acker eventlog.Acker, token uint64) error {
	if err := checkNames(rec); err != nil {
		return err
	}
	if err := i.opts.Log.AppendContext(ctx, rec, acker, token); err != nil {
		return err
	}
	i.appended(rec)
	return nil
}

// appended counts a record that is in the log.
func (i *Intake) appended(rec *eventlog.Record) {
	if rec.Flags&eventlog.FlagSilenced != 0 {
		i.metrics.silenced.Inc()
	}
}

// checkNames refuses a record whose names are too long.
func checkNames(rec *eventlog.Record) error {
	if len(rec.Namespace) > resource.MaxName || len(rec.Entity) > resource.MaxName || len(rec.Check) > resource.MaxName {
		return reject("invalid", "event of %q/%q: a name must not be longer than %d bytes",
			resource.Short(rec.Entity), resource.Short(rec.Check), resource.MaxName)
	}
	return nil
}
