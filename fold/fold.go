// Package fold runs the loop between the event log and the actions that events cause. It reads each partition in
// order, has package state fold every message, and passes each event in its new state to the router, then to the other
// followers.
//
// The backend starts it once the state and the handlers exist, and stops it before the state. It promises an entity's
// events in order: one goroutine a partition does all of this, so none of the steps may block. The replay after a start
// routes nothing before the partition has reached the end of the log. Until then fold holds the events that may have
// deliveries, and drops those whose deliveries the log has: package handler records them there. What an event means is
// left to state, and where it goes to pipeline.
package fold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

// RouterName is the router's name among the followers.
const RouterName = "router"

// Follower gets the changes of all pairs after the router, on the goroutine of their partition and in the order of the
// log. It must not block, and must not keep the Applied. After a crash it gets some changes again.
type Follower interface {
	// Name identifies the follower in Position and in the metrics.
	Name() string
	Follow(a *state.Applied)
}

// Options configures a Fold.
type Options struct {
	// Log is read and folded into State. Required.
	Log   *eventlog.Log
	State *state.State
	// Cluster says for which partitions this backend acts. Default: for all of them.
	Cluster *cluster.Cluster
	// Router routes the events of these partitions. Default none: events set off nothing.
	Router *pipeline.Router
	// Handlers run the deliveries that the Router makes, and fold their records. Required with a Router.
	Handlers *handler.Dispatcher
	// Silences removes the silences that end with an incident. Default none.
	Silences *silence.Keeper
	// Quiet has, for each partition, the last message whose events set off nothing: neither the router nor Silences get
	// them. Default none.
	Quiet []uint64
	// Followers get all changes after that. The live streams of State always are among them.
	Followers []Follower
	Logger    *slog.Logger
	// Failed is called when the log cannot be read any more: the state stays as it is from then on. Default: nothing.
	Failed     func(error)
	Registerer prometheus.Registerer
}

// Fold reads the log into the state.
type Fold struct {
	opts      Options
	log       *slog.Logger
	parts     []*partition
	followers []Follower

	lifecycle sync.Mutex // guards the fields below
	started   bool
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// partition is one loop.
type partition struct {
	id     int
	lane   string // of the cluster
	folder *state.Folder
	quiet  uint64
	end    uint64          // the last message that the log had at the start
	begun  chan error      // capacity 1; gets nil when the replay has ended, or why it never will
	live   bool            // the replay has ended
	acting bool            // this backend routes the events; if not, it may have to route the events of held
	held   []held          // events whose deliveries the log does not have, in their order
	marked time.Time       // when the handlers were last given a position
	at     []atomic.Uint64 // the last message of the router, and of each follower
}

// held is an event that another backend routes if this one stops to act, or this one if another stops.
type held struct {
	seq   uint64
	event *state.Applied // nil if no other backend can take over
}

// New checks the options.
func New(opts Options) (*Fold, error) {
	if opts.Log == nil || opts.State == nil {
		return nil, errors.New("fold: log and state are required")
	}
	if (opts.Router == nil) != (opts.Handlers == nil) {
		return nil, errors.New("fold: a router needs its handlers, and handlers a router")
	}
	if opts.Cluster == nil {
		opts.Cluster = cluster.Alone("")
	}
	if opts.Failed == nil {
		opts.Failed = func(error) {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Fold{
		opts:      opts,
		log:       opts.Logger.With("component", "fold"),
		followers: append([]Follower{opts.State.Tails()}, opts.Followers...),
	}
	names := f.names()
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("fold: follower %d needs a name of its own, %q is empty or taken", i, name)
		}
	}
	for i := range opts.Log.Partitions() {
		p := &partition{
			id: i, lane: cluster.PartitionLane(i), folder: opts.State.Folder(i), begun: make(chan error, 1),
			at: make([]atomic.Uint64, 1+len(f.followers)),
		}
		if i < len(opts.Quiet) {
			p.quiet = opts.Quiet[i]
		}
		f.parts = append(f.parts, p)
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(positions{f})
	}
	return f, nil
}

// Start loads the state, replays the rest of the log, and keeps reading. It returns once the state has reached the end
// that the log had when Start was called, and events are routed. Until then only the handlers may append to the log.
func (f *Fold) Start(ctx context.Context) error {
	f.lifecycle.Lock()
	defer f.lifecycle.Unlock()
	if f.started {
		return errors.New("started before")
	}
	f.started = true
	begin := time.Now()
	if err := f.opts.State.Load(ctx); err != nil {
		return err
	}
	loops, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	var replays sync.WaitGroup
	errs := make([]error, len(f.parts))
	for i, p := range f.parts {
		replays.Go(func() { errs[i] = f.replay(ctx, loops, p) })
	}
	replays.Wait()
	if err := errors.Join(errs...); err != nil {
		f.stop()
		return err
	}
	f.opts.State.GoLive(time.Now().Add(-time.Since(begin))) // by the clock as it is now: it may have been set meanwhile
	return nil
}

// replay starts a partition's loop, and returns when it has caught up and acts, if it is to act.
func (f *Fold) replay(ctx, loops context.Context, p *partition) error {
	_, last, err := f.opts.Log.Bounds(ctx, p.id)
	if err != nil {
		return err
	}
	p.end = last
	reader, err := f.opts.Log.Reader(ctx, p.id, p.folder.From())
	if err != nil {
		return err
	}
	f.done.Go(func() {
		defer reader.Stop()
		f.follow(loops, p, reader)
	})
	select {
	case err = <-p.begun:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("replay partition %d of the event log up to message %d: %w", p.id, last, err)
	}
	return nil
}

// Stop ends the loops, each after a whole message.
func (f *Fold) Stop() error {
	f.lifecycle.Lock()
	defer f.lifecycle.Unlock()
	f.stop()
	return nil
}

func (f *Fold) stop() {
	if f.cancel != nil {
		f.cancel()
		f.done.Wait()
	}
}

// follow replays a partition, and goes on until ctx ends or the log cannot be read.
func (f *Fold) follow(ctx context.Context, p *partition, reader *eventlog.Reader) {
	err := f.run(ctx, p, reader)
	switch {
	case !p.live:
		p.begun <- err
	case ctx.Err() == nil:
		f.opts.Failed(err)
	}
}

// run is the loop of a partition: from the log through the state to the router.
func (f *Fold) run(ctx context.Context, p *partition, reader *eventlog.Reader) error {
	seq := p.folder.From() - 1
	for {
		if seq >= p.end {
			if err := f.turn(p); err != nil {
				return err
			}
		}
		var msg []byte
		var err error
		seq, msg, err = reader.Next(ctx)
		if err != nil {
			return fmt.Errorf("read partition %d of the event log: %w", p.id, err)
		}
		if !p.folder.Open(seq, msg) {
			continue
		}
		events, routed := false, false
		for a := p.folder.Next(); a != nil; a = p.folder.Next() {
			switch a.Kind {
			case eventlog.KindDeliveries:
				f.reported(p, a)
				continue
			case eventlog.KindRoster:
				f.rostered(p, a)
				continue
			}
			events = true
			if seq > p.quiet {
				routed = f.route(p, a) || routed
			}
			for _, follower := range f.followers {
				follower.Follow(a)
			}
		}
		if err := p.folder.Refused(); err != nil {
			return fmt.Errorf("fold message %d of partition %d of the event log: %w", seq, p.id, err)
		}
		if p.acting && f.opts.Handlers != nil && (routed || events && time.Since(p.marked) > markEvery) {
			p.hold(seq, nil)
			f.opts.Handlers.Routed(p.id, seq)
			p.marked = time.Now()
		}
		p.folder.ReturnAgain(p.unrecorded())
		for i := range p.at {
			p.at[i].Store(seq)
		}
		p.folder.Close()
	}
}

// markEvery is how often the handlers are given the position of an event that has no deliveries. They pass it to the
// other members, which hold events until then: their definitions may differ for a moment, and with them what a router
// lets through.
const markEvery = 5 * time.Second

// turn begins or ends to act for a partition, behind its replay and whenever its owner changes. The first turn lets the
// start go on: from then on the log takes records of this backend.
func (f *Fold) turn(p *partition) error {
	if !p.live {
		f.opts.Log.NumberFrom(p.id, p.folder.Number(f.opts.Log.Origin())) // before the handlers append
		f.opts.Log.SetRoster(p.id, f.opts.Cluster.Number(p.id))
	}
	if owns := f.opts.Cluster.Owns(p.id, p.lane); owns && !p.acting {
		if err := f.act(p); err != nil {
			return err
		}
	} else if !owns && p.acting {
		p.acting = false
		if f.opts.Handlers != nil {
			f.opts.Handlers.Disown(p.id)
		}
	}
	if !p.live {
		p.live = true
		p.begun <- nil
	}
	return nil
}

// unrecorded returns the first message with events whose deliveries the log does not have; 0 for none. A replay routes
// these events again.
func (p *partition) unrecorded() uint64 {
	if len(p.held) == 0 {
		return 0
	}
	return p.held[0].seq
}

// hold notes an event, or only that a message was routed.
func (p *partition) hold(seq uint64, event *state.Applied) {
	if n := len(p.held); event != nil || n == 0 || p.held[n-1].seq < seq {
		p.held = append(p.held, held{seq, event})
	}
}

// act begins to route events, first the events that were held back.
func (f *Fold) act(p *partition) error {
	if f.opts.Handlers != nil {
		if err := f.opts.Handlers.Own(p.id, f.opts.Cluster.Number(p.id)); err != nil {
			return err
		}
	}
	for _, h := range p.held {
		if h.event != nil {
			f.opts.Router.Route(h.event)
		}
	}
	if n := len(p.held); n > 0 {
		f.opts.Handlers.Routed(p.id, p.held[n-1].seq)
	}
	p.acting = true
	return nil
}

// route passes an event to the router, and ends the silences that it resolves. It reports whether the event may have
// deliveries.
func (f *Fold) route(p *partition, a *state.Applied) (routed bool) {
	switch {
	case f.opts.Router == nil:
	case p.acting:
		if routed = f.opts.Router.Route(a); routed && !f.opts.Cluster.Alone() {
			p.hold(a.Seq, a.Keep())
		}
	case f.opts.Router.MayPass(a):
		p.hold(a.Seq, a.Keep())
	}
	if f.opts.Silences != nil && len(a.Ended) > 0 {
		f.opts.Silences.Resolved(a.Namespace, a.Ended, time.UnixMilli(a.Received))
	}
	return routed
}

// failed takes an error of a record that another package folds. A record that is damaged is skipped. After any other
// error, of the database or because a newer release has written the record, nothing behind it may be folded.
func (f *Fold) failed(p *partition, a *state.Applied, err error) {
	if unreadable := (*fields.UnreadableError)(nil); errors.As(err, &unreadable) {
		f.log.Error("a record of the event log could not be folded", "partition", p.id, "seq", a.Seq, "err", err)
		return
	}
	p.folder.Refuse(err)
}

// rostered folds who the members are from now on.
func (f *Fold) rostered(p *partition, a *state.Applied) {
	if err := f.opts.Cluster.Fold(p.id, a.Seq, a.Record); err != nil {
		f.failed(p, a, err)
	}
	f.opts.Log.SetRoster(p.id, f.opts.Cluster.Number(p.id))
}

// reported has the handlers fold a record of deliveries, and drops the held events whose deliveries the log has.
func (f *Fold) reported(p *partition, a *state.Applied) {
	if f.opts.Handlers == nil {
		return
	}
	known, err := f.opts.Handlers.Fold(p.id, a.Seq, a.Sub, a.Record, func(roster uint64) bool {
		return f.opts.Cluster.OwnedAt(p.id, a.Seq, p.lane, a.Origin, roster)
	})
	if err != nil {
		f.failed(p, a, err)
	}
	n := 0
	for n < len(p.held) && p.held[n].seq <= known {
		n++
	}
	p.held = slices.Delete(p.held, 0, n)
}

// Position returns the newest message of a partition that a follower, or RouterName, has seen since the start; 0 if it
// has seen none, or if there is no such follower.
func (f *Fold) Position(follower string, partition int) uint64 {
	for i, name := range f.names() {
		if name == follower && partition < len(f.parts) {
			return f.parts[partition].at[i].Load()
		}
	}
	return 0
}

// names returns the names of a partition's positions, in their order.
func (f *Fold) names() []string {
	names := []string{RouterName}
	for _, follower := range f.followers {
		names = append(names, follower.Name())
	}
	return names
}

var positionDesc = prometheus.NewDesc("lapwing_fold_position",
	"Sequence number of the newest message that a follower of the fold has had since the start, by follower and partition.",
	[]string{"follower", "partition"}, nil)

// positions reads the followers' positions when metrics are collected.
type positions struct{ f *Fold }

func (c positions) Describe(ch chan<- *prometheus.Desc) { ch <- positionDesc }

func (c positions) Collect(ch chan<- prometheus.Metric) {
	for i, name := range c.f.names() {
		for _, p := range c.f.parts {
			ch <- prometheus.MustNewConstMetric(
				positionDesc, prometheus.GaugeValue, float64(p.at[i].Load()), name, strconv.Itoa(p.id))
		}
	}
}
