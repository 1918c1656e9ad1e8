package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	// maxRemoving is how many entities are removed at a time.
	maxRemoving = 16
	// removeTimeout bounds the removal of one entity.
	removeTimeout = time.Minute
)

// The reasons for which the backend removes entities by itself; a label of a metric.
const (
	removedDeregistered = "deregistered"
	removedExpired      = "expired"
)

// deregisterSoon starts the removal of an entity whose agent wants to be deregistered when it goes. It returns when to
// check again, in case the removal fails.
func (i *Intake) deregisterSoon(cfg *resource.EntityConfig, now time.Time) (again int64) {
	select {
	case i.removing <- struct{}{}:
	default:
		return now.UnixMilli() + 100
	}
	i.removals.Go(func() {
		defer func() { <-i.removing }()
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := i.deregister(ctx, cfg, now); err != nil {
			i.rare.Error("agent was not deregistered", cfg.Metadata.Namespace,
				"namespace", cfg.Metadata.Namespace, "entity", cfg.Metadata.Name, "err", err)
		}
	})
	return now.Add(removeTimeout).UnixMilli()
}

// deregister resolves all events of an entity, runs its deregistration handler, and removes it.
func (i *Intake) deregister(ctx context.Context, cfg *resource.EntityConfig, now time.Time) error {
	namespace, name := cfg.Metadata.Namespace, cfg.Metadata.Name
	if err := i.Resolve(ctx, i.readable(namespace, name), "Resolving due to entity deregistering"); err != nil {
		return fmt.Errorf("deregister entity %s: %w", name, err)
	}
	if h := strings.TrimSpace(cfg.Deregistration.Handler); h != "" {
		if err := i.announce(ctx, namespace, name, "deregistration", h, now); err != nil {
			return err
		}
	}
	if err := i.remove(ctx, namespace, name, removedDeregistered); err != nil {
		return fmt.Errorf("deregister entity %s: %w", name, err)
	}
	return nil
}

// readable returns the events of an entity, in the order of their checks. It leaves out events that cannot be read:
// they must not keep their entity from being removed.
func (i *Intake) readable(namespace, name string) (events []*resource.Event) {
	pairs := i.opts.State.PairsOf(namespace, name)
	slices.SortFunc(pairs, func(a, b state.Pair) int { return strings.Compare(a.Check, b.Check) })
	for _, pair := range pairs {
		ev, err := i.opts.State.Event(namespace, name, pair.Check)
		switch {
		case errors.Is(err, state.ErrNotFound):
		case err != nil:
			i.log.Error("event cannot be read and is removed without being resolved",
				"namespace", namespace, "entity", name, "check", pair.Check, "err", err)
		default:
			events = append(events, ev)
		}
	}
	return events
}

// Resolve appends a good result for each of the events, as of now, and returns when they are folded, so that their
// handlers get the resolutions. The results have no deadline.
func (i *Intake) Resolve(ctx context.Context, events []*resource.Event, output string) error {
	now := time.Now()
	for n, ev := range events {
		if ev.Check == nil || ev.Entity == nil {
			continue
		}
		rec := i.resolution(ev, output, now)
		if n < len(events)-1 {
			if err := i.append(ctx, rec, nil, 0); err != nil {
				return fmt.Errorf("resolve %s/%s: %w", rec.Entity, rec.Check, err)
			}
			continue
		}
		if err := i.appendAndWait(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// resolution returns the record of a good result after an entity's last one.
func (i *Intake) resolution(last *resource.Event, output string, now time.Time) *eventlog.Record {
	ev, c := *last, *last.Check
	ev.Check, ev.ID, ev.Timestamp, ev.Metrics = &c, resource.NewEventID(), now.Unix(), nil
	c.Status, c.Output, c.Executed, c.Issued = 0, output, now.Unix(), 0 // it was not run
	c.History, c.State, c.Occurrences, c.OccurrencesWatermark, c.LastOK, c.TotalStateChange = nil, "", 0, 0, 0, 0
	rec := recordOf(&ev, ev.Entity.Metadata.Namespace, ev.Entity.Metadata.Name, now)
	i.complete(&rec, &ev, ev.Entity, now)
	return &rec
}

// remove deletes an entity with its events. Its definition goes first, which ends its deadlines.
func (i *Intake) remove(ctx context.Context, namespace, name, reason string) error {
	if err := config.Delete(ctx, i.opts.Config, config.Entities, namespace, name); err != nil && !errors.Is(err, config.ErrNotFound) {
		return fmt.Errorf("delete entity %s: %w", name, err)
	}
	if err := i.DeleteEntity(ctx, namespace, name); err != nil {
		return err
	}
	i.metrics.removed.WithLabelValues(reason).Inc()
	i.rare.Info("entity removed", namespace+"/"+name, "namespace", namespace, "entity", name, "reason", reason)
	return nil
}
