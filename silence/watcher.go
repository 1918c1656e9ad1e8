package silence

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// gather is how long changes are collected before a pass over the silences.
	gather = 100 * time.Millisecond
	// unacknowledged is how long an acknowledgement stays whose check does not fail: the failing event may be on its
	// way.
	unacknowledged = 10 * time.Second
	// retry is the pause before a failed reminder is tried again.
	retry = 10 * time.Second
	// takeover is how long after its time another backend may still send a reminder.
	takeover = 30 * time.Second
)

// Covers reports whether a silence is about an event.
type Covers func(*resource.Silenceable) bool

// Reminder announces that a silence ends soon.
type Reminder struct {
	Silence         *resource.Silenced
	Ends            time.Time
	Events, Failing int // that it covers now, and the failing ones of those
}

// WatcherOptions configures a Watcher. Config, Matcher and the functions up to Failing are required.
type WatcherOptions struct {
	// Config holds the silences. It must be running from Start to Stop.
	Config *config.Store
	// Matcher has their parsed rules.
	Matcher *Matcher
	// Announce reports the covered events to live streams of a namespace: they look different now.
	Announce func(ctx context.Context, namespace string, covers Covers) error
	// Count returns how many events of a namespace there are, and how many of them fail.
	Count func(ctx context.Context, namespace string, covers Covers) (events, failing int, err error)
	// Remind sends a reminder.
	Remind func(ctx context.Context, r *Reminder) error
	// Failing reports whether the newest result of a check is a failure.
	Failing func(namespace, entity, check string) bool
	// Acts reports whether this backend reminds and deletes. Default: it does.
	Acts       func() bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Watcher follows silences as they begin and end: it notifies live streams, reminds before the end, and deletes
// acknowledgements of checks that no longer fail, in case the end of the incident was missed.
type Watcher struct {
	opts    WatcherOptions
	rare    *rarelog.Log // for messages that may come for each silence
	metrics watcherMetrics
	known   map[resource.Name]*watched
	wake    chan struct{} // has room for one

	stop context.CancelFunc
	done chan struct{}
}

// watched is a Watcher's knowledge of a silence.
type watched struct {
	silence  *resource.Silenced
	rule     *Rule
	holds    bool
	reminded int64 // the reminded end, Unix seconds
}

type watcherMetrics struct {
	sent, failed, dropped prometheus.Counter
}

func newWatcherMetrics(r prometheus.Registerer) watcherMetrics {
	reminders := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_silence_reminders_total", Help: "Reminders that a silence ends soon, by result."}, []string{"result"})
	dropped := prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_acknowledgements_dropped_total", Help: "Acknowledgements deleted because what they were about fails no longer, other than by a result that ended it."})
	if r != nil {
		r.MustRegister(reminders, dropped)
	}
	return watcherMetrics{sent: reminders.WithLabelValues("sent"), failed: reminders.WithLabelValues("failed"), dropped: dropped}
}

// NewWatcher checks the options.
func NewWatcher(opts WatcherOptions) (*Watcher, error) {
	if opts.Config == nil || opts.Matcher == nil || opts.Announce == nil || opts.Count == nil || opts.Remind == nil || opts.Failing == nil {
		return nil, errors.New("silence: an option of the watcher is missing")
	}
	if opts.Acts == nil {
		opts.Acts = func() bool { return true }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watcher{
		opts: opts, rare: rarelog.New(opts.Logger.With("component", "silence")), metrics: newWatcherMetrics(opts.Registerer),
		known: map[resource.Name]*watched{}, wake: make(chan struct{}, 1),
	}, nil
}

// Start begins to watch.
func (w *Watcher) Start(ctx context.Context) error {
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.done = make(chan struct{})
	cancel := w.opts.Config.OnChange(func(c config.Change) {
		if c.Kind == config.Silences.String() || c.Kind == config.Calendars.String() {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	})
	go func() {
		defer close(w.done)
		defer cancel()
		w.run(ctx)
	}()
	return nil
}

// Stop ends it and waits.
func (w *Watcher) Stop() error {
	if w.stop != nil {
		w.stop()
		<-w.done
		w.stop = nil
	}
	return nil
}

func (w *Watcher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer is set for the changes
	for {
		select {
		case <-timer.C:
			timer.Reset(max(w.look(ctx, time.Now()), gather))
			soon = false
		case <-w.wake:
			if !soon {
				timer.Reset(gather)
			}
			soon = true
		case <-ctx.Done():
			return
		}
	}
}

// look goes through all silences, and returns when to do so again.
func (w *Watcher) look(ctx context.Context, now time.Time) time.Duration {
	next := now.Add(atLeast)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	seen := make(map[resource.Name]struct{}, len(w.known))
	for one, rule := range w.opts.Matcher.Rules(w.opts.Config.Snapshot(), "") {
		id := resource.NameOf(&one.Metadata)
		seen[id] = struct{}{}
		was := w.known[id]
		is := &watched{silence: one, rule: rule, holds: rule.Holds(now)}
		w.known[id] = is
		if was == nil {
			was = &watched{}
		}
		is.reminded = was.reminded
		switch {
		case was.silence == one && was.holds == is.holds:
		case was.holds && is.holds:
			// It may cover other events now.
			w.announce(ctx, id, func(s *resource.Silenceable) bool { return was.rule.Covers(s, now) != rule.Covers(s, now) })
		case was.holds:
			w.announce(ctx, id, covers(was.rule, now))
		case is.holds:
			w.announce(ctx, id, covers(rule, now))
		}
		sooner(rule.Changes(now))
		if is.holds && one.Remind > 0 {
			sooner(w.remind(ctx, is, now))
		}
		if one.Acknowledgement {
			w.review(ctx, is, now)
		}
	}
	for id, was := range w.known {
		if _, ok := seen[id]; ok {
			continue
		}
		delete(w.known, id)
		if was.holds {
			w.announce(ctx, id, covers(was.rule, now))
		}
	}
	return time.Until(next)
}

func covers(r *Rule, now time.Time) Covers {
	return func(s *resource.Silenceable) bool { return r.Covers(s, now) }
}

func (w *Watcher) announce(ctx context.Context, id resource.Name, covers Covers) {
	if err := w.opts.Announce(ctx, id.Namespace, covers); err != nil && ctx.Err() == nil {
		w.rare.Warn("cannot announce a silence to live streams", id.Namespace, "namespace", id.Namespace, "silence", id.Name, "err", err)
	}
}

// remind sends a reminder if it is time, and returns when to look again.
func (w *Watcher) remind(ctx context.Context, one *watched, now time.Time) time.Time {
	ends := one.rule.Period(now)
	if ends.IsZero() || one.reminded == ends.Unix() {
		return time.Time{}
	}
	due := ends.Add(-time.Duration(one.silence.Remind) * time.Second)
	if due.After(now) {
		return due
	}
	if !w.opts.Acts() {
		if now.Sub(due) < takeover {
			return now.Add(retry) // the backend that acts may have stopped before it sent this
		}
		one.reminded = ends.Unix()
		return time.Time{}
	}
	r := &Reminder{Silence: one.silence, Ends: ends}
	var err error
	if r.Events, r.Failing, err = w.opts.Count(ctx, one.silence.Metadata.Namespace, covers(one.rule, now)); err == nil {
		err = w.opts.Remind(ctx, r)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.metrics.failed.Inc()
			w.rare.Warn("cannot send a reminder of a silence's end", one.silence.Metadata.Namespace, "namespace",
				one.silence.Metadata.Namespace, "silence", one.silence.Metadata.Name, "err", err)
		}
		return now.Add(retry)
	}
	one.reminded = ends.Unix()
	w.metrics.sent.Inc()
	return time.Time{}
}

// review deletes an acknowledgement whose check does not fail.
func (w *Watcher) review(ctx context.Context, one *watched, now time.Time) {
	m := &one.silence.Metadata
	entity, check, ok := acknowledged(one.silence)
	if !ok || !w.opts.Acts() || now.Sub(time.Unix(one.silence.Begin, 0)) < unacknowledged || w.opts.Failing(m.Namespace, entity, check) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	begin := one.silence.Begin
	err := config.DeleteIf(ctx, w.opts.Config, config.Silences, m.Namespace, m.Name, func(s *resource.Silenced) bool { return s.Acknowledgement && s.Begin == begin })
	switch {
	case err == nil:
		w.metrics.dropped.Inc()
	case !errors.Is(err, config.ErrNotFound) && ctx.Err() == nil:
		w.rare.Warn("cannot delete an acknowledgement whose check no longer fails", m.Namespace, "namespace", m.Namespace,
			"silence", m.Name, "err", err)
	}
}
