package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Submit takes an event of the API, and returns once it is durable and folded, so that its sender can read it. The API
// has validated it and has checked that the user may report for the entity.
func (i *Intake) Submit(ctx context.Context, ev *resource.Event) error {
	return i.submit(ctx, ev, true)
}

// Internal is an Intake for events that the backend makes itself, for example results of aggregates. Quotas neither
// count nor refuse them.
type Internal struct{ *Intake }

// Internal returns the intake for the backend's own events.
func (i *Intake) Internal() Internal { return Internal{i} }

// Submit is Intake.Submit for an event that the backend makes about something else. Events about the backend itself go
// to Report.
func (i Internal) Submit(ctx context.Context, ev *resource.Event) error {
	if ev.AboutBackend() {
		return errReserved()
	}
	return i.submit(ctx, ev, false)
}

// submit is Submit. An event that is not limited is the backend's own, which no quota counts.
func (i *Intake) submit(ctx context.Context, ev *resource.Event, limited bool) error {
	now := time.Now()
	if limited {
		if err := i.quotas.admit(ev.Entity.Metadata.Namespace, now); err != nil {
			i.count(err)
			return err
		}
	}
	sent := *ev
	forgetResult(&sent)
	if sent.Check != nil {
		check := *sent.Check
		sent.Check = &check
	}
	rec := recordOf(&sent, sent.Entity.Metadata.Namespace, sent.Entity.Metadata.Name, now)
	if c := sent.Check; c != nil {
		limit(&rec, int64(len(c.Output)), c.MaxOutputSize, c.TTL)
		if len(c.History) > 0 || c.OccurrencesWatermark != 0 || c.LastOK != 0 {
			rec.Flags |= eventlog.FlagHistory
		}
	}
	if rec.Check == state.KeepaliveCheck {
		rec.Due = now.UnixMilli() + keepaliveTimeouts(sent.Check).first()
	}
	// No proxy entity may be made for an event that is too large.
	if size, limit := len(sent.AppendProto(nil)), i.opts.Log.MaxRecord(); size > limit {
		i.metrics.rejected.WithLabelValues("too_large").Inc()
		return &resource.TooLargeError{What: "event", Size: size, Limit: limit}
	}
	proxy := *sent.Entity
	if sent.Check != nil && sent.Check.ProxyEntityName != "" && sent.Check.ProxyEntityName != rec.Entity {
		rec.Entity = sent.Check.ProxyEntityName
		proxy = resource.Entity{Metadata: resource.ObjectMeta{Namespace: rec.Namespace, Name: rec.Entity}}
	}
	if proxy.EntityClass != resource.EntityAgentClass && sent.Check != nil {
		proxy.Metadata.CreatedBy = sent.Metadata.CreatedBy
		if err := i.ensureProxy(ctx, "", &proxy, limited); err != nil {
			i.count(err)
			return err
		}
	}
	i.complete(&rec, &sent, sent.Entity, now)
	if limited && rec.Check != "" {
		if err := i.quotas.store(rec.Namespace, "", rec.Entity, rec.Check, len(rec.Body)); err != nil {
			i.count(err)
			return err
		}
	}
	i.metrics.received.WithLabelValues("api").Inc()
	done, err := i.begin(ctx, &rec)
	if err != nil {
		return err
	}
	i.putPoints(&rec, sent.Metrics)
	return i.await(ctx, &rec, done)
}

// PutEntityState replaces the facts of an entity's host, and returns when they can be read.
func (i *Intake) PutEntityState(ctx context.Context, st *resource.EntityState) error {
	rec := recordOfState(st, time.Now())
	return i.appendAndWait(ctx, &rec)
}

// DeleteEvent deletes the state of a check on an entity, and returns when it is gone.
func (i *Intake) DeleteEvent(ctx context.Context, namespace, entity, check string) error {
	i.quotas.forgetEvent(namespace, entity, check)
	rec := newRecord(eventlog.KindDeleteEvent, namespace, entity, check, time.Now())
	return i.appendAndWait(ctx, &rec)
}

// DeleteEntity deletes an entity's state and all its events, and returns when they are gone.
func (i *Intake) DeleteEntity(ctx context.Context, namespace, name string) error {
	rec := newRecord(eventlog.KindDeleteEntity, namespace, name, "", time.Now())
	return i.appendAndWait(ctx, &rec)
}

// appendAndWait appends a record and waits until it is durable and folded.
func (i *Intake) appendAndWait(ctx context.Context, rec *eventlog.Record) error {
	done, err := i.begin(ctx, rec)
	if err != nil {
		return err
	}
	return i.await(ctx, rec, done)
}

// begin appends a record for await. It fails at once while the log takes nothing: an error serves a person or script
// better than a wait.
func (i *Intake) begin(ctx context.Context, rec *eventlog.Record) (waiting, error) {
	if err := i.opts.Log.Err(); err != nil {
		i.metrics.rejected.WithLabelValues("log").Inc()
		return nil, fmt.Errorf("append %s/%s: %w", rec.Entity, rec.Check, err)
	}
	done := make(waiting, 1)
	if err := i.append(ctx, rec, done, 0); err != nil {
		i.count(err)
		return nil, fmt.Errorf("append %s/%s: %w", rec.Entity, rec.Check, err)
	}
	return done, nil
}

// await waits until a record from begin is durable and folded.
func (i *Intake) await(ctx context.Context, rec *eventlog.Record, done waiting) error {
	select {
	case l := <-done:
		if l.err != nil {
			return fmt.Errorf("append %s/%s: %w", rec.Entity, rec.Check, l.err)
		}
		return i.opts.State.WaitFolded(ctx, l.partition, l.seq)
	case <-ctx.Done():
		return fmt.Errorf("append %s/%s: %w", rec.Entity, rec.Check, ctx.Err())
	}
}

// waiting is an Acker for one record.
type waiting chan logged

type logged struct {
	partition int
	seq       uint64
	err       error
}

func (w waiting) Logged(_ uint64, partition int, seq uint64, err error) {
	w <- logged{partition, seq, err}
}
