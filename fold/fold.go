// Package fold runs the loop between the event log and the actions that events cause. It reads each partition in
// order, has package state fold every message, and passes each event in its new state to the router, then to the other
// followers.
//
// The backend starts it once the state and the handlers exist, and stops it before the state. It promises an entity's
// events in order: one goroutine a partition does all of this, so none of the steps may block. When write-back
// commits, state, router and followers have all seen the same messages, so the stored position counts for the router
// too. What an event means is left to state, and where it goes to pipeline.
package fold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler"
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
	// Router routes this backend's events. Default none: events set off nothing.
	Router *pipeline.Router
	// Handlers have the deliveries that write-back stores with the state. Required with a Router.
	Handlers *handler.Dispatcher
	// Silences removes the silences that end with an incident. Default none.
	Silences *silence.Keeper
	// Quiet has, for each partition, the last message whose events set off nothing: neither the router nor Silences get
	// them. Default none.
	Quiet []uint64
	// Followers get all changes after that. The live streams of State always are among them.
	Followers []Follower
	// Failed is called when the log cannot be read any more: the state stays as it is from then on. Default: nothing.
	Failed     func(error)
	Registerer prometheus.Registerer
}

// Fold reads the log into the state.
type Fold struct {
	opts      Options
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
	folder *state.Folder
	quiet  uint64
	at     []atomic.Uint64 // the last message of the router, and of each follower
}

// New checks the options.
func New(opts Options) (*Fold, error) {
	if opts.Log == nil || opts.State == nil {
		return nil, errors.New("fold: log and state are required")
	}
	if (opts.Router == nil) != (opts.Handlers == nil) {
		return nil, errors.New("fold: a router needs its handlers, and handlers a router")
	}
	if opts.Failed == nil {
		opts.Failed = func(error) {}
	}
	f := &Fold{
		opts:      opts,
		followers: append([]Follower{opts.State.Tails()}, opts.Followers...),
	}
	names := f.names()
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("fold: follower %d needs a name of its own, %q is empty or taken", i, name)
		}
	}
	for i := range opts.Log.Partitions() {
		p := &partition{id: i, folder: opts.State.Folder(i), at: make([]atomic.Uint64, 1+len(f.followers))}
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
// that the log had when Start was called.
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
	if f.opts.Handlers == nil { // a nil *Dispatcher in the interface would not be nil
		f.opts.State.GoLive(begin, nil)
	} else {
		f.opts.State.GoLive(begin, f.opts.Handlers)
	}
	return nil
}

// replay starts a partition's loop, and returns when it has caught up.
func (f *Fold) replay(ctx, loops context.Context, p *partition) error {
	_, last, err := f.opts.Log.Bounds(ctx, p.id)
	if err != nil {
		return err
	}
	reader, err := f.opts.Log.Reader(ctx, p.id, p.folder.From())
	if err != nil {
		return err
	}
	f.done.Go(func() {
		defer reader.Stop()
		f.run(loops, p, reader)
	})
	if err := f.opts.State.WaitFolded(ctx, p.id, last); err != nil {
		return fmt.Errorf("replay event log: %w", err)
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

// run is the loop of a partition: from the log through the state to the router.
func (f *Fold) run(ctx context.Context, p *partition, reader *eventlog.Reader) {
	for {
		seq, msg, err := reader.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				f.opts.Failed(fmt.Errorf("read partition %d of the event log: %w", p.id, err))
			}
			return
		}
		if !p.folder.Open(seq, msg) {
			continue
		}
		for a := p.folder.Next(); a != nil; a = p.folder.Next() {
			if a.Own && seq > p.quiet {
				f.route(a)
			}
			for _, follower := range f.followers {
				follower.Follow(a)
			}
		}
		for i := range p.at {
			p.at[i].Store(seq)
		}
		p.folder.Close()
	}
}

// route passes an event of this backend to the router, and ends the silences that it resolves.
func (f *Fold) route(a *state.Applied) {
	if f.opts.Router != nil {
		f.opts.Router.Route(a)
	}
	if f.opts.Silences != nil && len(a.Ended) > 0 {
		f.opts.Silences.Resolved(a.Namespace, a.Ended, time.UnixMilli(a.Received))
	}
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
