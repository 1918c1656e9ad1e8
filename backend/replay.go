package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/postgres"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// replayer takes stored events through a pipeline for the API. It sends them itself, one at a time and once: the handlers'
// queues run the definitions of the present and not drafts, and order deliveries by the event log.
type replayer struct {
	events    *postgres.Projection
	state     *state.State
	workflows *workflow.Workflows
	sender    *send.Sender
	notify    func(*notification.Notification)
}

// replay is one run.
type replay struct {
	*replayer
	*api.Replay
	rate     *rate.Limiter
	handlers map[string]*rate.Limiter // of handlers with a rate of their own
}

// run implements api.Options.Replay.
func (p *replayer) run(ctx context.Context, o *api.Replay, each func(api.ReplayedEvent) error) error {
	events, err := p.events.Events(ctx, postgres.EventQuery{
		Namespace: o.Namespace, Entity: o.Entity, Check: o.Check, Since: o.Since, Until: o.Until,
	})
	if errors.Is(err, postgres.ErrNotConfigured) {
		return api.ErrNoPostgres
	}
	if err != nil {
		return err
	}
	defer events.Close()
	through, err := p.workflows.Replay(o.Namespace, o.Pipeline, workflow.Overlay{
		Handlers: o.Draft.Handlers, Filters: o.Draft.Filters, Mutators: o.Draft.Mutators, Pipelines: o.Draft.Pipelines,
		RunCommands: o.RunCommands || o.Send,
	})
	if err != nil {
		return err
	}
	defer through.Close()
	r := &replay{p, o, rate.NewLimiter(rate.Limit(o.Rate), 1), map[string]*rate.Limiter{}}
	selected := 0
	for more := true; more; {
		var page []postgres.StoredEvent
		if page, more, err = events.Next(ctx); err != nil {
			return err
		}
		for i := range page {
			out, err := r.event(ctx, through, &page[i])
			if err != nil {
				return err
			}
			if err := each(*out); err != nil {
				return err
			}
			if !out.Selected {
				continue
			}
			if selected++; selected == o.Limit {
				return nil
			}
		}
		if len(page) == 0 {
			if err := each(api.ReplayedEvent{Received: events.ReadUpTo().UnixMilli()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// event takes one event through the pipeline, and sends what comes out if that is wanted.
func (r *replay) event(ctx context.Context, through *workflow.Replay, e *postgres.StoredEvent) (*api.ReplayedEvent, error) {
	out := &api.ReplayedEvent{ID: e.ID(), Entity: e.Entity, Check: e.Check, Status: e.Status, Received: e.Received.UnixMilli()}
	ev, err := r.state.Rebuild(r.Namespace, e.Entity, e.Body)
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	addState(ev, e)
	if out.Selected = r.Select(ev); !out.Selected {
		return out, nil
	}
	facts := filter.Facts{Incident: e.Incident, Resolution: e.Resolution, HasMetrics: e.Metric, Silenced: e.Silenced}
	about := trace.Delivery{Header: delivery.Header{
		EventID: "replay-" + r.ID + "-" + out.ID, Namespace: r.Namespace, Entity: e.Entity, Check: e.Check, Status: e.Status,
		Incident: e.Incident, Resolution: e.Resolution, Received: out.Received,
	}}
	for _, one := range through.Run(ctx, ev, facts, about) {
		if r.Send && one.Verdict == trace.Delivered {
			if err := r.send(ctx, ev, &one); err != nil {
				return nil, err
			}
		}
		out.Deliveries = append(out.Deliveries, one.Delivery)
	}
	return out, ctx.Err()
}

// addState adds to an event what PostgreSQL knows of the state after it. It knows no history: a resolution gets one that
// shows that it is one.
func addState(ev *resource.Event, e *postgres.StoredEvent) {
	c := ev.Check
	if c == nil {
		return
	}
	c.Occurrences, c.OccurrencesWatermark = e.Occurrences, e.OccurrencesWatermark
	c.History = []resource.CheckHistory{{Status: c.Status, Executed: c.Executed}}
	if e.Resolution {
		c.History = append([]resource.CheckHistory{{Status: 1}}, c.History...)
	}
	switch {
	case e.Flapping:
		c.State = "flapping"
	case c.Status == 0:
		c.State = "passing"
	default:
		c.State = "failing"
	}
}

// send makes one attempt, when the rates allow it.
func (r *replay) send(ctx context.Context, ev *resource.Event, one *workflow.Replayed) error {
	h := one.Handler
	limits := []*rate.Limiter{r.rate}
	if h.RateLimit != nil && h.RateLimit.PerSecond > 0 {
		own := r.handlers[h.Metadata.Name]
		if own == nil {
			own = rate.NewLimiter(rate.Limit(h.RateLimit.PerSecond), 1)
			r.handlers[h.Metadata.Name] = own
		}
		limits = append(limits, own)
	}
	for _, limit := range limits {
		if err := limit.Wait(ctx); err != nil {
			return err
		}
	}
	begin := time.Now()
	res := r.sender.Run(ctx, h, send.Job{ID: one.ID, Event: ev, Data: one.Input, Mutated: one.Mutated, Attempt: 1})
	if errors.Is(res.Err, send.ErrMayNotRun) {
		return fmt.Errorf("send to handler %s: %w", h.Metadata.Name, res.Err)
	}
	made := trace.Attempt{
		At: begin.UnixMilli(), Millis: time.Since(begin).Milliseconds(), Result: res.Kind, Status: res.Status, Output: string(res.Output),
	}
	one.Reason = "sent by a replay"
	if res.Err != nil {
		made.Error = res.Err.Error()
		one.Verdict, one.Reason = trace.Dropped, made.Error
	}
	one.Attempts = []trace.Attempt{made}
	if !h.StoresPoints() { // as for other deliveries
		r.notify(&notification.Notification{
			At: made.At, Millis: made.Millis, Header: one.Header, Type: h.Type, Recipients: res.Recipients, Result: made.Result,
			Attempt: 1, Final: true, Error: made.Error, Output: made.Output, Events: 1,
		})
	}
	return nil
}
