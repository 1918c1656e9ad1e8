// Package member shares the series of a cluster among its members: it says which of them own a series, passes points on
// to the others, and takes theirs.
//
// The ingest path asks Owners and Computes once for each new name, and calls Peer.Add for its points. A Peer gathers
// points for 100 ms, sends them in batches, and counts a batch as delivered when the member has answered that its store
// has taken it. What a member does not take waits on disk and is sent in order when the member is back. A point may
// come twice, which is harmless: it has the same time and the same value.
//
// Placement counts members that are away: their points wait for them. A member leaves the placement when Forget is
// called, and the members tell each other. The package knows nothing of package cluster: members are what
// Options.Members returns.
package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// PointsQuestion is the name of the question that carries a batch of points. Receive answers it.
const PointsQuestion = "metric-points"

// Info is a member as the cluster knows it.
type Info struct {
	ID, Name string
	// Away says that it is not heard at present.
	Away bool
}

// Sink takes the points of other members. It is for one goroutine.
type Sink interface {
	// Add does not keep name. It may wait for room.
	Add(name []byte, use Use, unixMilli int64, value float64) error
	// Flush returns when the store has taken all points.
	Flush() error
	Close() error
}

// Options configures a Group. Zero values are the defaults.
type Options struct {
	// Self is this member's id. Required.
	Self string
	// Factor is how many members own a series, from 1 to 3. Default 2.
	Factor int
	// Dir has the queues on disk and the list of members. Required.
	Dir string
	// SpillBytes bounds the queue on disk for one member. Default 4 GiB.
	SpillBytes int64
	// Members returns the members that are known now; this one may be among them. Required.
	Members func() []Info
	// Ask sends a question to a member and returns its answer. Required.
	Ask func(ctx context.Context, id, question string, payload []byte) ([]byte, error)
	// NewSink returns what takes the points of other members. Required.
	NewSink func(ctx context.Context) Sink
	// Changed is called after the owners of series have changed, or who computes aggregates. Default: not.
	Changed func()
	// Every is the time between two looks at Members. Default 500 ms.
	Every time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

func (o *Options) complete() error {
	if o.Factor == 0 {
		o.Factor = 2
	}
	if o.SpillBytes == 0 {
		o.SpillBytes = 4 << 30
	}
	if o.Every == 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Self == "":
		return errors.New("the option Self is empty")
	case o.Dir == "":
		return errors.New("the option Dir is empty")
	case o.Members == nil, o.Ask == nil, o.NewSink == nil:
		return errors.New("the options Members, Ask and NewSink are required")
	case o.Factor < 1 || o.Factor > 3:
		return fmt.Errorf("the option Factor is %d, it must be from 1 to 3", o.Factor)
	case o.Every < 0:
		return fmt.Errorf("the option Every is %s, it must not be negative", o.Every)
	}
	return nil
}

// Group is all members as this one sees them.
type Group struct {
	opts    Options
	rare    *rarelog.Log
	metrics *metrics
	now     atomic.Pointer[view]
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and is held while the view changes
	known   map[string]known
	peers   map[string]*Peer
	started bool
	stopped bool
}

// view is the members at one moment. It does not change.
type view struct {
	placement *Placement
	members   []Info  // by index of the placement
	peers     []*Peer // the same, nil for this member
	self      int
}

// known is what is kept about a member.
type known struct {
	Name string `json:"name"`
	// Removed says that it is gone for good, unless it is heard again.
	Removed bool `json:"removed,omitempty"`
}

const listFile = "members.json"

// New reads the list of members, and opens the queues for them.
func New(opts Options) (*Group, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("metric members: %w", err)
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of members: %w", err)
	}
	g := &Group{opts: opts, rare: rarelog.New(opts.Logger), known: map[string]known{}, peers: map[string]*Peer{}}
	g.metrics = newMetrics(opts.Registerer, g)
	g.life, g.end = context.WithCancel(context.Background())
	raw, err := os.ReadFile(g.path(listFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the list of members: %w", err)
	default:
		if err := json.Unmarshal(raw, &g.known); err != nil {
			opts.Logger.Error("the list of members cannot be read, it is made anew", "file", g.path(listFile), "err", err)
			g.known = map[string]known{}
		}
	}
	delete(g.known, opts.Self)
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err = g.refresh()
	return g, err
}

func (g *Group) path(name string) string { return filepath.Join(g.opts.Dir, name) }

// refresh looks at the members, and reports whether the owners or the computing members of series may be others. mu is
// locked.
func (g *Group) refresh() (changed bool, err error) {
	before := maps.Clone(g.known)
	v := &view{}
	heard := map[string]bool{}
	for _, m := range g.opts.Members() {
		if m.ID == g.opts.Self {
			continue
		}
		if k, ok := g.known[m.ID]; !ok || m.Name != "" && m.Name != m.ID || !m.Away && k.Removed {
			removed := ok && k.Removed && m.Away
			g.known[m.ID] = known{m.Name, removed}
		}
		heard[m.ID] = !m.Away
	}
	ids := []string{g.opts.Self}
	for id, k := range g.known {
		if !k.Removed {
			ids = append(ids, id)
		}
	}
	v.placement = NewPlacement(ids)
	for i, id := range v.placement.IDs() {
		m := Info{ID: id, Name: g.known[id].Name, Away: !heard[id]}
		if m.Name == "" {
			m.Name = id
		}
		var p *Peer
		if id == g.opts.Self {
			v.self, m.Away = i, false
		} else if p, err = g.peer(id); err != nil {
			return false, err
		} else {
			p.away.Store(m.Away)
		}
		v.members, v.peers = append(v.members, m), append(v.peers, p)
	}
	if !maps.Equal(before, g.known) {
		if err := g.save(); err != nil {
			return false, err
		}
	}
	old := g.now.Swap(v)
	return old == nil || !slices.Equal(old.members, v.members), nil
}

func (g *Group) save() error {
	raw, err := json.Marshal(g.known)
	if err != nil {
		return fmt.Errorf("encode the list of members: %w", err)
	}
	if err := os.WriteFile(g.path(listFile+".new"), raw, 0o600); err != nil {
		return fmt.Errorf("write the list of members: %w", err)
	}
	if err := os.Rename(g.path(listFile+".new"), g.path(listFile)); err != nil {
		return fmt.Errorf("write the list of members: %w", err)
	}
	return nil
}

// peer returns the Peer of a member, which it makes if there is none. mu is locked.
func (g *Group) peer(id string) (*Peer, error) {
	if p := g.peers[id]; p != nil {
		return p, nil
	}
	p, err := newPeer(g, id, g.path(filepath.Join("waiting", filepath.Base(id))))
	if err != nil {
		return nil, err
	}
	g.peers[id] = p
	if g.started {
		p.start()
	}
	return p, nil
}

func (g *Group) all() []*Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.peers))
}

// Start begins to send, and to look at the members.
func (g *Group) Start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started || g.stopped {
		return
	}
	g.started = true
	for _, p := range g.peers {
		p.start()
	}
	g.running.Go(func() {
		tick := time.NewTicker(g.opts.Every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.look()
			case <-g.life.Done():
				return
			}
		}
	})
}

// look takes note of changed members.
func (g *Group) look() {
	g.mu.Lock()
	changed, err := g.refresh()
	gone := g.gone()
	g.mu.Unlock()
	if err != nil {
		g.rare.Error("a change of the members is not taken over for metrics", "", "err", err)
		return
	}
	if changed {
		g.opts.Changed()
	}
	for _, p := range gone {
		g.drop(p)
	}
}

// gone takes the Peers of members out that are gone for good. mu is locked.
func (g *Group) gone() (gone []*Peer) {
	for id, p := range g.peers {
		if g.known[id].Removed && g.started {
			delete(g.peers, id)
			gone = append(gone, p)
		}
	}
	return gone
}

// drop ends the Peer of a member that is gone for good. The points that wait for it are dropped: their other owners
// have them.
func (g *Group) drop(p *Peer) {
	p.away.Store(true)
	ctx, cancel := context.WithTimeout(g.life, lastSends)
	defer cancel()
	err := p.stop(ctx)
	if err = errors.Join(err, os.RemoveAll(g.path(filepath.Join("waiting", filepath.Base(p.id))))); err != nil {
		g.rare.Error("the points for a removed member cannot be deleted", p.id, "member", p.id, "err", err)
	}
}

// Forget takes members out of the placement that are gone for good. A member that is heard again comes back.
func (g *Group) Forget(ids ...string) error {
	g.mu.Lock()
	changed := false
	for _, id := range ids {
		if k, ok := g.known[id]; ok && !k.Removed {
			k.Removed = true
			g.known[id] = k
			changed = true
		}
	}
	if !changed {
		g.mu.Unlock()
		return nil
	}
	err := g.save()
	g.mu.Unlock()
	g.look()
	return err
}

// Removed returns the ids of the members that are gone for good.
func (g *Group) Removed() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, k := range g.known {
		if k.Removed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Stop sends what it can within a short time, and leaves the rest on disk. The ingest path must have ended. It may be
// called twice, and before Start.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	stopped := g.stopped
	g.stopped = true
	g.mu.Unlock()
	if stopped {
		return nil
	}
	g.end()
	g.running.Wait()
	var mu sync.Mutex
	var errs []error
	var under sync.WaitGroup
	for _, p := range g.all() {
		under.Go(func() {
			var err error
			if g.started {
				err = p.stop(ctx)
			} else {
				err = p.spill.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	under.Wait()
	return errors.Join(errs...)
}

// Members returns all members of the placement, in the order of their ids, and the index of this one.
func (g *Group) Members() (all []Info, self int) {
	v := g.now.Load()
	return v.members, v.self
}

// Placement returns the placement of now.
func (g *Group) Placement() *Placement { return g.now.Load().placement }

// Factor returns how many members own a series.
func (g *Group) Factor() int { return g.opts.Factor }

func (g *Group) nameOf(id string) string {
	for _, m := range g.now.Load().members {
		if m.ID == id {
			return m.Name
		}
	}
	return id
}

// Owners reports whether this member owns a series, and returns the Peers of the others that do.
func (g *Group) Owners(name string) (here bool, others []*Peer) {
	v := g.now.Load()
	var buf [maxOwners]int
	for _, i := range v.placement.Owners(name, g.opts.Factor, buf[:0]) {
		if i == v.self {
			here = true
		} else {
			others = append(others, v.peers[i])
		}
	}
	return here, others
}

// Computes returns the Peer that computes an output of aggregation rules, nil for this member: the first of all members
// in the order of the series' owners that is not away. All inputs of an output must meet there.
func (g *Group) Computes(output string) *Peer {
	v := g.now.Load()
	var buf [maxOwners]int
	for _, i := range v.placement.Owners(output, maxOwners, buf[:0]) {
		if !v.members[i].Away {
			return v.peers[i]
		}
	}
	return nil
}

// Receive takes a batch of another member. It returns when the store has taken the points, so a full store makes the
// other member wait.
func (g *Group) Receive(ctx context.Context, batch []byte) error {
	if len(batch) > 0 && batch[0] > batchVersion {
		return Decode(batch, nil) // it says which version it knows; the sender keeps the batch
	}
	sink := g.opts.NewSink(ctx)
	var failed error
	points := 0
	err := Decode(batch, func(name []byte, use Use, unixMilli int64, value float64) error {
		points++
		failed = sink.Add(name, use, unixMilli, value)
		return failed
	})
	failed = errors.Join(failed, sink.Flush(), sink.Close())
	if failed != nil {
		g.metrics.refused.Inc()
		return fmt.Errorf("take points of a member: %w", failed)
	}
	g.metrics.received.Add(float64(points))
	if err != nil { // sent again it would be the same
		g.metrics.refused.Inc()
		g.rare.Error("a batch of points of another member cannot be read, its rest is left out", "", "err", err)
	}
	return nil
}

// Settle waits until all points that were added before are delivered or on disk.
func (g *Group) Settle(ctx context.Context) error {
	peers := g.now.Load().peers
	for _, p := range peers {
		if p != nil {
			p.settling.Add(1)
			defer p.settling.Add(-1)
			p.flushIdle()
		}
	}
	var errs []error
	for _, p := range peers {
		if p != nil {
			errs = append(errs, p.settle(ctx))
		}
	}
	return errors.Join(errs...)
}

// Wait returns when memory and disk have room for the points of all members, or ctx ends.
func (g *Group) Wait(ctx context.Context) error {
	for {
		full := ""
		for _, p := range g.now.Load().peers {
			if p != nil && p.full.Load() {
				full = p.id
			}
		}
		if full == "" {
			return nil
		}
		select {
		case <-time.After(flushEvery):
		case <-ctx.Done():
			return fmt.Errorf("pass points on to member %s: memory and disk for it are full: %w", g.nameOf(full), ctx.Err())
		}
	}
}
