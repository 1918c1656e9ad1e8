package intake

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// lastResultAnnotation is when an event that reports a missing result last had one, in Unix seconds. Only entities
// with a TTL need it, because a missing result must not keep them alive.
const lastResultAnnotation = "lapwing.io/last-result"

func rememberResult(ev *resource.Event, received int64) {
	if _, ok := ev.Metadata.Annotations[lastResultAnnotation]; ok {
		return // an earlier event already has it
	}
	annotations := maps.Clone(ev.Metadata.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[lastResultAnnotation] = strconv.FormatInt(received/1000, 10)
	ev.Metadata.Annotations = annotations
}

// entityTTL returns how long an entity may go without a result before it is removed; 0 for ever.
func (i *Intake) entityTTL(cfg *resource.EntityConfig) time.Duration {
	switch {
	case cfg.EntityClass == resource.EntityAgentClass || cfg.EntityClass == resource.EntityBackendClass || cfg.TTL < 0:
		return 0
	case cfg.Metadata.Name == resource.BackendEntity:
		return 0 // the backend resolves its alarms, and does not repeat them
	case cfg.TTL > 0:
		return time.Duration(cfg.TTL) * time.Second
	}
	return i.opts.ProxyTTL
}

// HousekeeperOptions wires a Housekeeper. If the comment of a field does not say what 0 means, 0 is replaced by the
// value of DefaultHousekeeperOptions.
type HousekeeperOptions struct {
	Intake *Intake
	// Acts reports whether this backend removes what is to be removed. Default: it does.
	Acts func() bool
	// OrphanTTL is after how long events are removed whose entity or check is not defined any more. 0 is never.
	OrphanTTL time.Duration
	// Every is how often it looks.
	Every      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Housekeeper removes what has had no report for too long: entities without an agent when their TTL has passed, and,
// with an OrphanTTL, events of entities and checks that are not defined any more.
type Housekeeper struct {
	opts    HousekeeperOptions
	log     *slog.Logger
	orphans prometheus.Counter
	began   time.Time
	// silent is since when an entity without any event is known.
	silent map[resource.Name]time.Time
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// maxUnheard is how long a backend must have listened before the silence of an entity may count.
const maxUnheard = time.Hour

// DefaultHousekeeperOptions returns the default settings.
func DefaultHousekeeperOptions() HousekeeperOptions {
	return HousekeeperOptions{Every: 10 * time.Second}
}

// NewHousekeeper checks the options.
func NewHousekeeper(opts HousekeeperOptions) (*Housekeeper, error) {
	if opts.Intake == nil {
		return nil, errors.New("housekeeper: Intake is required")
	}
	if opts.Acts == nil {
		opts.Acts = func() bool { return true }
	}
	opts.Every = cmp.Or(opts.Every, DefaultHousekeeperOptions().Every)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Housekeeper{
		opts: opts, log: opts.Logger.With("component", "housekeeper"), silent: map[resource.Name]time.Time{},
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_orphans_removed_total", Help: "Events removed because their entity or check was not defined for long.",
		}),
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(h.orphans)
	}
	return h, nil
}

// Start checks all entities periodically, until Stop.
func (h *Housekeeper) Start(ctx context.Context) error {
	ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	h.began = time.Now()
	h.done.Go(func() {
		tick := time.NewTicker(h.opts.Every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				h.look(ctx)
			}
		}
	})
	return nil
}

func (h *Housekeeper) Stop() error {
	if h.cancel != nil {
		h.cancel()
		h.done.Wait()
	}
	return nil
}

func (h *Housekeeper) look(ctx context.Context) {
	i, now := h.opts.Intake, time.Now()
	if i.hearing.Load() == deaf {
		return
	}
	empty := map[resource.Name]time.Time{}
	for cfg := range config.List(i.opts.Config.Snapshot(), config.Entities, "") {
		if ctx.Err() != nil {
			return
		}
		ttl := i.entityTTL(cfg)
		if ttl <= 0 || now.Sub(h.began) < min(ttl, maxUnheard) || i.Unheard(min(ttl, maxUnheard).Milliseconds(), now) != 0 {
			continue
		}
		k := resource.NameOf(&cfg.Metadata)
		last, ok := h.lastResult(k, now.Add(-ttl))
		if !ok {
			since, known := h.silent[k]
			if !known {
				since = now
			}
			empty[k], last = since, since
		}
		if now.Sub(last) < ttl || !h.opts.Acts() {
			continue
		}
		if err := h.expire(ctx, k); err != nil {
			h.opts.Intake.rare.Error("entity was not removed, although its TTL has passed", k.Namespace,
				"namespace", k.Namespace, "entity", k.Name, "err", err)
		}
	}
	h.silent = empty
	if h.opts.OrphanTTL > 0 && h.opts.Acts() && now.Sub(h.began) >= min(h.opts.OrphanTTL, maxUnheard) {
		h.removeOrphans(ctx, now)
	}
}

// lastResult returns when an entity last had a result, if it has events. It decodes only events newer than after,
// because they may report a missing result.
func (h *Housekeeper) lastResult(k resource.Name, after time.Time) (last time.Time, ok bool) {
	st := h.opts.Intake.opts.State
	for _, pair := range st.PairsOf(k.Namespace, k.Name) {
		at := time.UnixMilli(pair.Received)
		if ok = true; at.After(after) {
			if ev, err := st.Event(k.Namespace, k.Name, pair.Check); err == nil {
				if seconds, err := strconv.ParseInt(ev.Metadata.Annotations[lastResultAnnotation], 10, 64); err == nil {
					at = time.Unix(seconds, 0)
				}
			}
		}
		if at.After(last) {
			last = at
		}
	}
	return last, ok
}

// expire resolves an entity's failing events, and removes it.
func (h *Housekeeper) expire(ctx context.Context, k resource.Name) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	i := h.opts.Intake
	if err := i.Resolve(ctx, failing(i.readable(k.Namespace, k.Name)), "Resolving because the entity's TTL has passed"); err != nil {
		return err
	}
	return i.remove(ctx, k.Namespace, k.Name, removedExpired)
}

// forgetResult removes the annotation of rememberResult from an incoming event, which is a result.
func forgetResult(ev *resource.Event) {
	if _, ok := ev.Metadata.Annotations[lastResultAnnotation]; ok {
		ev.Metadata.Annotations = maps.Clone(ev.Metadata.Annotations)
		delete(ev.Metadata.Annotations, lastResultAnnotation)
	}
}

func failing(events []*resource.Event) (out []*resource.Event) {
	for _, ev := range events {
		if ev.Check != nil && ev.Check.Status != 0 {
			out = append(out, ev)
		}
	}
	return out
}

func (h *Housekeeper) removeOrphans(ctx context.Context, now time.Time) {
	i := h.opts.Intake
	orphans, err := i.Orphans(ctx, "", now.Add(-h.opts.OrphanTTL))
	for _, o := range orphans {
		if err = i.DeleteEvent(ctx, o.Namespace, o.Entity, o.Check); err != nil {
			break
		}
		h.orphans.Inc()
		h.opts.Intake.rare.Info("orphan removed", o.Namespace+"/"+o.Entity,
			"namespace", o.Namespace, "entity", o.Entity, "check", o.Check, "reason", o.Missing)
	}
	if err != nil && ctx.Err() == nil {
		h.log.Error("orphans were not removed", "err", err)
	}
}

// Orphans returns the events of a namespace, or of all for "", whose entity or check is not defined any more and that
// have not changed since before. It assumes that a check was defined if its event has the publish flag: events through
// the APIs need no definition. It does not find results of checks that were only run by hand.
func (i *Intake) Orphans(ctx context.Context, namespace string, before time.Time) ([]resource.Orphan, error) {
	sn := i.opts.Config.Snapshot()
	var out []resource.Orphan
	for o := range i.opts.State.Pairs(namespace) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if o.Received > before.UnixMilli() {
			continue
		}
		missing := ""
		if _, ok := config.Get(sn, config.Entities, o.Namespace, o.Entity); !ok {
			missing = resource.OrphanOfEntity
		} else if o.Published && o.Check != state.KeepaliveCheck {
			if _, ok := config.Get(sn, config.Checks, o.Namespace, o.Check); !ok {
				missing = resource.OrphanOfCheck
			}
		}
		if missing != "" {
			out = append(out, resource.Orphan{
				Namespace: o.Namespace, Entity: o.Entity, Check: o.Check, Missing: missing, Received: o.Received / 1000,
			})
		}
	}
	return out, nil
}
