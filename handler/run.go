package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// maxLogged is how much of the output of a command or the answer of a server is logged.
const maxLogged = 1024

// outcome is the result of a delivery's turn.
type outcome struct {
	finished  bool
	stopped   bool      // Stop came first
	sent      bool      // an attempt was made
	due       time.Time // if none of the others: when its next turn is
	resolving bool      // it may be taken back until then
	group     string    // that it is to join
	behind    bool      // it must not overtake the group of its pair
	absorbed  bool      // the delivery behind it is finished
	gaveUp    string    // an escalation without further steps: a label of gaveUpDesc
	errorText string    // why the attempt failed, "" if it did not
	delivered bool      // an attempt succeeded
	died      int       // deliveries that became dead letters
}

// run gives a delivery its turn: package workflow decides, and an attempt is made. h is nil if the handler was
// deleted. The delivery's pair has no other turn at the same time. ctx ends the attempt.
func (d *Dispatcher) run(ctx context.Context, h *resource.Handler, it *item) outcome {
	if h == nil {
		d.log.Debug("delivery dropped: its handler was deleted", "namespace", it.Namespace, "handler", it.Handler, "delivery", it.ID)
		d.metrics.dropped.Inc()
		d.finish(it, d.verdict(it, trace.Dropped, "the handler was deleted"))
		return outcome{finished: true}
	}
	if h.Type == resource.EscalationType {
		return d.escalate(h, it)
	}
	dl, ev, err := d.open(it)
	if err != nil {
		d.dropUnread(it, err)
		return outcome{finished: true}
	}
	var steps []trace.Step
	if !it.decided && it.attempts == 0 && ev != nil {
		out, decided := d.decide(h, it, dl, ev)
		if out != nil {
			return *out
		}
		steps = decided
	}
	it.decided = true
	if it.Resolution && onlyAfterAlert(h) && ev != nil && !d.alerted(it) {
		tr := d.verdict(it, trace.Filtered, "the alert that it resolves did not go out")
		tr.Steps = append(steps, trace.Step{Kind: trace.StepResolve, Name: "only_after_alert", Verdict: trace.Deny})
		d.finish(it, tr)
		return outcome{finished: true}
	}
	if it.attempts == 0 && it.Received > 0 {
		d.metrics.startSeconds.WithLabelValues(it.Handler).Observe(max(0, float64(time.Now().UnixMilli()-it.Received)/1000))
	}
	at := d.attempt(ctx, h, dl, ev, &it.progress)
	switch {
	case at.stopped:
		return outcome{stopped: true, sent: at.sent}
	case at.recalled:
		return outcome{sent: at.sent, due: at.due}
	}
	d.notify(h, &dl.Header, it.progress.attempts, &at, nil)
	tr := d.verdict(it, "", at.reason)
	tr.Steps, tr.Attempts = append(steps, at.steps...), at.attempts
	switch {
	case at.res.Err == nil:
		alerted := d.noteAlert(h, it)
		tr.Verdict = trace.Delivered
		d.observe(h, dl, send.KindOK, at)
		d.finish(it, tr, alerted...)
		return outcome{finished: true, sent: at.sent, delivered: true}
	case at.again:
		tr.Verdict = trace.Waiting
		it.ledger.progress(it)
		d.observe(h, dl, "", at)
		d.report(tr)
		return outcome{sent: at.sent, due: at.due, errorText: at.errorText()}
	default:
		tr.Verdict = trace.Dead
		d.observe(h, dl, at.kind(), at)
		d.bury(it, dl, ev, at, it.progress, tr)
	}
	return outcome{finished: true, sent: at.sent, died: 1, errorText: at.errorText()}
}

// dropUnread ends a delivery that cannot be read.
func (d *Dispatcher) dropUnread(it *item, err error) {
	d.metrics.storeErrors.Inc()
	d.rare.Error("delivery cannot be read and is dropped", it.Namespace+"/"+it.Handler, "namespace", it.Namespace,
		"handler", it.Handler, "delivery", it.ID, "err", err)
	d.finish(it, d.verdict(it, trace.Dropped, "it cannot be read: "+err.Error()))
}

// decide asks package workflow. It returns the steps of a delivery that goes on, or the end of one that does not.
func (d *Dispatcher) decide(h *resource.Handler, it *item, dl *delivery.Delivery, ev *resource.Event) (*outcome, []trace.Step) {
	dec := d.opts.Workflows.Decide(d.ctx, dl, ev)
	if d.ctx.Err() != nil {
		return &outcome{stopped: true}, nil
	}
	decided := func(v trace.Verdict, reason string, more ...trace.Step) *trace.Delivery {
		tr := d.verdict(it, v, reason)
		tr.Steps = append(dec.Steps, more...)
		return tr
	}
	if dec.Verdict != "" {
		d.finish(it, decided(dec.Verdict, dec.Reason))
		return &outcome{finished: true}, nil
	}
	if h.Resolve != nil && h.Resolve.Delay > 0 && it.Resolution && it.Received > 0 {
		step := trace.Step{Kind: trace.StepResolve, Name: "delay", Verdict: trace.Deny}
		if it.revoked {
			d.finish(it, decided(trace.Filtered, "an incident followed within the resolve delay", step))
			return &outcome{finished: true}, nil
		}
		if due := time.UnixMilli(it.Received).Add(time.Duration(h.Resolve.Delay) * time.Second); time.Now().Before(due) {
			d.report(decided(trace.Held, "a resolution waits for the resolve delay"))
			return &outcome{due: due, resolving: true}, nil
		}
	}
	key := dec.GroupKey
	if key != "" && dl.Contact != "" { // each contact has groups of its own
		key += ", contact=" + dl.Contact
	}
	switch {
	case h.Group != nil && key != "" && (it.behind == nil || it.behind.key == key):
		d.report(decided(trace.Grouped, "group "+key, trace.Step{Kind: trace.StepGroup, Name: key}))
		return &outcome{group: key}, nil
	case it.behind != nil:
		return &outcome{behind: true}, nil
	}
	return nil, dec.Steps
}

// open returns a delivery with its event. The event is nil if an older release stored the delivery: it kept only the
// handler's input.
func (d *Dispatcher) open(it *item) (*delivery.Delivery, *resource.Event, error) {
	dl := it.Delivery
	if it.parked {
		var err error
		if dl, err = d.read(it); err != nil {
			return nil, nil, err
		}
	}
	if dl.Data != nil && dl.Event == nil {
		return dl, nil, nil
	}
	ev := new(resource.Event)
	if err := ev.UnmarshalProto(dl.Event); err != nil {
		return nil, nil, fmt.Errorf("decode event: %w", err)
	}
	return dl, ev, nil
}

// attempt is the result of one attempt to deliver.
type attempt struct {
	stopped  bool
	recalled bool // this backend may make no attempts any more: it counts for nothing, and is made again
	sent     bool
	res      send.Result
	took     time.Duration
	again    bool      // and when
	due      time.Time //
	reason   string    // why it failed; for good unless again
	steps    []trace.Step
	attempts []trace.Attempt
}

func (at *attempt) kind() string {
	if at.res.Kind == "" {
		return send.KindError
	}
	return at.res.Kind
}

// attempt shapes and sends a delivery, and returns what comes next. The progress is that of the delivery, or of a
// group. ctx ends the attempt.
func (d *Dispatcher) attempt(
	ctx context.Context, h *resource.Handler, dl *delivery.Delivery, ev *resource.Event, p *progress,
) (at attempt) {
	ev, contact := d.address(dl, ev)
	job := send.Job{ID: dl.ID, Event: ev, Attempt: p.attempts + 1, Contact: contact}
	if ev == nil {
		job.Data, job.Mutated = dl.Data, true
	} else {
		var err error
		job.Data, at.steps, err = d.opts.Workflows.Shape(ctx, dl, ev)
		if ctx.Err() != nil {
			return d.ended(at)
		}
		if err != nil {
			at.res.Err = err
			at.reason = err.Error()
			return at
		}
		job.Mutated = mutated(at.steps)
	}
	if !d.mayRun() { // to shape it took time, or this process stood still
		return d.ended(at)
	}
	begin := time.Now()
	at.sent = true
	at.res = d.opts.Sender.Run(ctx, h, job)
	at.took = time.Since(begin)
	if at.res.Err != nil && ctx.Err() != nil || errors.Is(at.res.Err, send.ErrMayNotRun) {
		return d.ended(at)
	}
	p.attempts++
	if p.first == 0 {
		p.first = begin.UnixMilli()
	}
	p.due = 0
	record := trace.Attempt{
		At: begin.UnixMilli(), Millis: at.took.Milliseconds(), Result: at.kind(), Status: at.res.Status,
		Output: string(at.res.Output[:min(len(at.res.Output), maxLogged)]),
	}
	if err := at.res.Err; err != nil {
		at.reason = err.Error()
		record.Error = at.reason
		var wait time.Duration
		wait, at.again, at.reason = d.policy(h).next(p, dl.Received, at.res, time.Now())
		if at.again {
			at.due = time.Now().Add(wait)
			p.due = at.due.UnixMilli()
			record.Next = p.due
		}
	}
	at.attempts = []trace.Attempt{record}
	return at
}

// mutated reports whether a mutator of the user made the data.
func mutated(steps []trace.Step) bool {
	for i := range steps {
		if steps[i].Kind == trace.StepMutator && steps[i].Name != "" && steps[i].Name != "json" {
			return true
		}
	}
	return false
}

// observe counts and logs an attempt; result is the delivery's, or "" if it goes on.
func (d *Dispatcher) observe(h *resource.Handler, dl *delivery.Delivery, result string, at attempt) {
	if at.sent {
		d.metrics.seconds.WithLabelValues(h.Metadata.Name).Observe(at.took.Seconds())
	}
	if result == "" {
		d.metrics.retries.WithLabelValues(h.Metadata.Name).Inc()
	} else {
		d.metrics.runs.WithLabelValues(h.Metadata.Name, result).Inc()
	}
	dies := result != "" && result != send.KindOK
	if !dies && !d.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{"namespace", dl.Namespace, "handler", dl.Handler, "entity", dl.Entity, "check", dl.Check, "delivery", dl.ID}
	if at.res.Err != nil {
		attrs = append(attrs, "err", at.res.Err)
	}
	attrs = append(attrs, "output", string(at.res.Output[:min(len(at.res.Output), maxLogged)]))
	switch {
	case dies:
		d.rare.Warn("handler failed", dl.Namespace+"/"+dl.Handler, attrs...)
	case result == "":
		d.log.Debug("handler failed and is tried again", attrs...)
	default:
		d.log.Debug("handler ran", attrs...)
	}
}

// verdict starts a report on a delivery.
func (d *Dispatcher) verdict(it *item, v trace.Verdict, reason string) *trace.Delivery {
	return &trace.Delivery{Header: it.Header, Verdict: v, Reason: reason}
}

func (d *Dispatcher) report(tr *trace.Delivery) {
	if d.opts.Trace != nil {
		d.opts.Trace(tr)
	}
}

// finish records that a delivery is over, with the changes that belong to its end. It returns false if that does not
// count any more.
func (d *Dispatcher) finish(it *item, tr *trace.Delivery, with ...change) bool {
	with = append(append(with, d.noteEnd(it, tr)...), d.forgetNotices(it)...)
	counts := it.ledger.finish(it, with...)
	d.report(tr)
	if d.onFinish != nil {
		d.onFinish(it.Delivery, tr.Verdict)
	}
	return counts
}
