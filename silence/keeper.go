package silence

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// between is the least time between two passes over the silences.
	between = time.Second
	// atLeast is the longest time between two passes, even if the clock is set.
	atLeast = time.Minute
	// writeTimeout bounds one deletion.
	writeTimeout = 5 * time.Second
)

// Options configures a Keeper.
type Options struct {
	// Config holds the silences. Required; it must be running from Start to Stop.
	Config *config.Store
	// Matcher ignores ended silences until they are deleted. Default a new one.
	Matcher    *Matcher
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Keeper deletes silences that have ended. Each backend has one; several at a time do no harm.
type Keeper struct {
	opts    Options
	rare    *rarelog.Log // for messages that may come for each silence
	metrics metrics

	mu       sync.Mutex // guards resolved
	resolved map[resource.Name]time.Time
	wake     chan struct{} // has room for one

	stop context.CancelFunc
	done chan struct{}
}

type metrics struct {
	expired, resolved prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_silences_ended_total", Help: "Silences deleted because they were over, by why."}, []string{"reason"})
	if r != nil {
		r.MustRegister(ended)
	}
	return metrics{expired: ended.WithLabelValues("expired"), resolved: ended.WithLabelValues("resolved")}
}

// New checks the options.
func New(opts Options) (*Keeper, error) {
	if opts.Config == nil {
		return nil, errors.New("silence: no config")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Matcher == nil {
		opts.Matcher = NewMatcher(nil, opts.Logger)
	}
	return &Keeper{
		opts: opts, rare: rarelog.New(opts.Logger.With("component", "silence")), metrics: newMetrics(opts.Registerer),
		resolved: map[resource.Name]time.Time{}, wake: make(chan struct{}, 1),
	}, nil
}

// Start begins to delete.
func (k *Keeper) Start(ctx context.Context) error {
	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	k.done = make(chan struct{})
	cancel := k.opts.Config.OnChange(func(c config.Change) {
		if c.Kind == config.Silences.String() && !c.Deleted {
			k.notify()
		}
	})
	go func() {
		defer close(k.done)
		defer cancel()
		k.run(ctx)
	}()
	return nil
}

// Stop ends it and waits.
func (k *Keeper) Stop() error {
	if k.stop != nil {
		k.stop()
		<-k.done
		k.stop = nil
	}
	return nil
}

// Resolved ends silences that last until an incident is resolved, which has happened in an event received at the given
// time. It ignores silences that only let the resolution pass. A later silence of the same name stays. It does not
// block.
func (k *Keeper) Resolved(namespace string, names []string, received time.Time) {
	sn := k.opts.Config.Snapshot()
	some := false
	k.mu.Lock()
	for _, name := range names {
		if s, ok := config.Get(sn, config.Silences, namespace, name); ok && !s.ExpireOnResolve {
			continue
		}
		k.resolved[resource.Name{Namespace: namespace, Name: name}] = received
		k.opts.Matcher.end(resource.Name{Namespace: namespace, Name: name}, received)
		some = true
	}
	k.mu.Unlock()
	if some {
		k.notify()
	}
}

func (k *Keeper) notify() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *Keeper) run(ctx context.Context) {
	var scanned time.Time
	timer := time.NewTimer(0) // the first pass is for silences that expired while no backend ran
	defer timer.Stop()
	for {
		select {
		case <-k.wake:
		case <-timer.C:
		case <-ctx.Done():
			k.endResolved(ctx) // this is their last chance
			return
		}
		k.endResolved(ctx)
		next := between - time.Since(scanned)
		if next <= 0 {
			next = k.endExpired(ctx)
			scanned = time.Now()
		}
		if k.pending() {
			next = min(next, between)
		}
		timer.Reset(next)
	}
}

// pending reports whether resolved silences are still to be deleted.
func (k *Keeper) pending() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.resolved) > 0
}

// endResolved deletes the silences that Resolved ended, and keeps for later those that could not be deleted.
func (k *Keeper) endResolved(ctx context.Context) {
	k.mu.Lock()
	resolved := k.resolved
	k.resolved = map[resource.Name]time.Time{}
	k.mu.Unlock()
	for one, received := range resolved {
		err := k.delete(ctx, one, func(s *resource.Silenced) bool { return s.ExpireOnResolve && s.Begin <= received.Unix() })
		if err == nil || errors.Is(err, config.ErrNotFound) {
			k.opts.Matcher.forget(one)
		}
		switch {
		case err == nil:
			k.metrics.resolved.Inc()
		case !errors.Is(err, config.ErrNotFound):
			k.mu.Lock()
			if _, again := k.resolved[one]; !again {
				k.resolved[one] = received
			}
			k.mu.Unlock()
		}
	}
}

// endExpired deletes expired silences, and returns when to look again.
func (k *Keeper) endExpired(ctx context.Context) time.Duration {
	now := time.Now()
	next := now.Add(atLeast)
	for s := range config.List(k.opts.Config.Snapshot(), config.Silences, "") {
		switch {
		case s.ExpireAt == 0:
		case !s.Expired(now):
			if at := time.Unix(s.ExpireAt, 0); at.Before(next) {
				next = at
			}
		case k.delete(ctx, resource.NameOf(&s.Metadata), func(s *resource.Silenced) bool { return s.Expired(now) }) == nil:
			k.metrics.expired.Inc()
		}
	}
	return max(time.Until(next), between)
}

func (k *Keeper) delete(ctx context.Context, one resource.Name, meant func(*resource.Silenced) bool) error {
	// Stop waits for the deletion: an interrupted one may be done or not.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := config.DeleteIf(ctx, k.opts.Config, config.Silences, one.Namespace, one.Name, meant)
	if err != nil && !errors.Is(err, config.ErrNotFound) {
		k.rare.Warn("cannot delete a silence that has ended", one.Namespace, "namespace", one.Namespace, "silence", one.Name, "err", err)
	}
	return err
}
