// Package cluster knows which backends there are, and decides which one of them acts.
//
// What must have one actor is a lane: the deliveries of a partition, a handler that groups, an aggregate. The owner of a
// lane follows from the lane's name and the roster, the numbered list of members that the event log has (see Roster).
// Parts ask before they do what only one backend may do. A backend that runs alone owns everything (Alone).
//
// Members send each other heartbeats. A member that is not heard, or not ready to act, is taken off the rosters by a
// record of the log, and a member that comes is added by one. So a majority that can write to the log decides, exactly
// one member owns a lane at each position of the log, and no clocks are compared. A member that does not hear a majority,
// or is not heard by it, has no lease: it does not act until it has one again (lease.go). A cluster may also be open, with
// any number of members: then the lease comes from the log (renewal.go).
//
// Package fold passes the records of rosters to Fold. The package does not know what the lanes are for.
package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Bus carries messages between the members; *broker.Broker.
type Bus interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, f func(reply string, data []byte)) (cancel func(), err error)
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
}

// Log is the event log; *eventlog.Log.
type Log interface {
	AppendTo(ctx context.Context, partition int, r *eventlog.Record, acker eventlog.Acker, token uint64) error
	Partitions() int
}

// Options configures a Cluster. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// ID is this member's id for ever. Required.
	ID string
	// Name is this member's name for people. Required.
	Name string
	// Size is how many members the cluster has when all are there. 0 is an open cluster: a member belongs to it while it
	// writes to the log. The log must then have a majority of its own.
	Size int
	// Log takes proposals of rosters. Required.
	Log Log
	// Bus carries heartbeats. Required.
	Bus Bus
	// Describe returns what the other members are to know of this one. It must not block. Required.
	Describe func() Info
	// Beat is the time between two heartbeats.
	Beat time.Duration
	// Suspect is how long a member may be silent, or not ready, before it is taken off the rosters.
	Suspect time.Duration
	// Lease is how long a member may act after it last heard a majority that hears it, or after it began the newest
	// renewal that it has folded. It must be shorter than Suspect: a member stops to act before another one begins.
	Lease      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings of a cluster with a size.
func DefaultOptions() Options {
	return Options{Beat: 500 * time.Millisecond, Suspect: 3 * time.Second, Lease: 2500 * time.Millisecond}
}

// OpenOptions returns the default settings of an open cluster. Renewals pass through the log and its fold, so they take
// longer than heartbeats.
func OpenOptions() Options {
	return Options{Beat: 500 * time.Millisecond, Suspect: 5 * time.Second, Lease: 4 * time.Second}
}

// Cluster is one member's view of all members.
type Cluster struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log
	lifeID  string // of this process
	alone   bool
	metrics metrics
	db      *pebble.DB          // set by Load
	asked   *semaphore.Weighted // questions that are being answered
	life    context.Context     // ends with Stop
	end     context.CancelFunc

	mu      sync.RWMutex // guards the fields below
	began   time.Time    // when Start was called
	lease   lease
	ready   bool
	leaving bool
	peers   map[string]*peer // the other members, by id
	mixed   time.Time        // since when the members that are heard run different versions; zero if they run the same
	parts   []partition
	changed chan struct{} // closed when a roster has changed

	lifecycle sync.Mutex // guards the fields below
	started   bool
	stops     []func() // of subscriptions
	done      sync.WaitGroup
}

// partition is what the cluster knows of one partition of the log.
type partition struct {
	rosters   history
	folded    time.Time // when the newest one was folded
	wanted    time.Time // since when another roster is wanted than the newest; zero if none is
	proposing bool      // a proposal is on its way to the log
	proposal  uint64    // its number
	removing  []string  // the members that it takes off
	renewals  renewals
}

// Alone returns the cluster of a backend that has no other members. It owns everything, and needs no Start.
func Alone(id string) *Cluster { return &Cluster{opts: Options{ID: id}, alone: true} }

// New checks the options.
func New(opts Options) (*Cluster, error) {
	if opts.ID == "" || opts.Name == "" || opts.Size < 0 || opts.Log == nil || opts.Bus == nil || opts.Describe == nil {
		return nil, errors.New("cluster: id, name, log, bus and description are required, and a size is not negative")
	}
	defaults := DefaultOptions()
	if opts.Size == 0 {
		defaults = OpenOptions()
	}
	opts.Beat = cmp.Or(opts.Beat, defaults.Beat)
	opts.Suspect = cmp.Or(opts.Suspect, defaults.Suspect)
	opts.Lease = cmp.Or(opts.Lease, defaults.Lease)
	if opts.Beat <= 0 || opts.Lease < 2*opts.Beat || opts.Suspect < opts.Lease {
		return nil, errors.New("cluster: Lease must be at least twice Beat, and at most Suspect")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	var life [8]byte
	_, _ = rand.Read(life[:]) // never fails
	log := opts.Logger.With("component", "cluster")
	c := &Cluster{
		opts: opts, log: log, rare: rarelog.New(log), lifeID: hex.EncodeToString(life[:]), asked: semaphore.NewWeighted(maxAsked),
		peers: map[string]*peer{}, parts: make([]partition, opts.Log.Partitions()), changed: make(chan struct{}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.metrics = newMetrics(opts.Registerer, c)
	return c, nil
}

// Start begins to send and hear heartbeats. Until Ready the member does not act.
func (c *Cluster) Start(context.Context) error {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	if c.alone || c.started || c.life.Err() != nil {
		return errors.New("start cluster: alone, or started or stopped before")
	}
	c.started = true
	c.mu.Lock()
	c.began = time.Now()
	c.mu.Unlock()
	stop, err := c.opts.Bus.Subscribe(beatSubject, func(_ string, body []byte) { c.hear(body) })
	if err != nil {
		return fmt.Errorf("start cluster: %w", err)
	}
	c.stops = append(c.stops, stop)
	c.done.Go(c.run)
	return nil
}

// Load reads the rosters that earlier processes have folded. New ones are stored in the same database, under keys that
// begin with 'c'. It must be called before Fold and Ready.
func (c *Cluster) Load(db *pebble.DB) error {
	if c.alone {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.db = db
	return c.load()
}

// Ready says that this backend has folded the log and may act from now on.
func (c *Cluster) Ready() {
	if c.alone {
		return
	}
	c.mu.Lock()
	c.ready = true
	c.mu.Unlock()
	c.beat()
	c.renew(time.Now())
}

// Leave has this member taken off all rosters, so that others act at once, and returns when that is folded here. It gives
// up when ctx ends: the others then take over as if the process had been killed.
func (c *Cluster) Leave(ctx context.Context) error {
	if c.alone {
		return nil
	}
	c.mu.Lock()
	c.leaving = true
	c.mu.Unlock()
	c.beat()
	for {
		c.propose()
		c.mu.RLock()
		changed, member := c.changed, c.member()
		c.mu.RUnlock()
		if !member {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(c.opts.Beat):
		case <-ctx.Done():
			return fmt.Errorf("leave the cluster: %w", ctx.Err())
		}
	}
}

// member reports whether this backend is on any roster. The caller holds mu.
func (c *Cluster) member() bool {
	return slices.ContainsFunc(c.parts, func(p partition) bool { return p.rosters.newest().Has(c.opts.ID) })
}

// Stop ends the heartbeats. It does not leave.
func (c *Cluster) Stop() error {
	if c.alone {
		return nil
	}
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.mu.Lock()
	c.end() // with mu held: nothing is begun behind it
	c.mu.Unlock()
	for _, stop := range c.stops {
		stop()
	}
	c.stops = nil
	c.done.Wait()
	return nil
}

func (c *Cluster) run() {
	tick := time.NewTicker(c.opts.Beat)
	defer tick.Stop()
	for {
		c.mu.RLock()
		changed := c.changed
		c.mu.RUnlock()
		select {
		case <-c.life.Done():
			return
		case <-changed:
			c.beat() // an owner may wait for it, see handing
			continue
		case <-tick.C:
		}
		now := time.Now()
		c.look(now)
		c.beat()
		c.renew(now)
		c.propose()
		c.compareVersions(now)
	}
}

// compareVersions notes since when the members run different versions.
func (c *Cluster) compareVersions(now time.Time) {
	own := c.opts.Describe().Version
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		if now.Sub(p.heard) < c.opts.Suspect && p.beat.Version != own {
			if c.mixed.IsZero() {
				c.mixed = now
			}
			return
		}
	}
	c.mixed = time.Time{}
}

// Revision returns the newest revision of the definitions that a member that is heard has said it has.
func (c *Cluster) Revision() (newest uint64) {
	if c.alone {
		return 0
	}
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.peers {
		if now.Sub(p.heard) < c.opts.Suspect {
			newest = max(newest, p.beat.Revision)
		}
	}
	return newest
}

// Trim returns below which message of a partition nothing is needed any more by the members, if this one has stored all
// below next. It is false if another member trims, or if a member's position is not known.
func (c *Cluster) Trim(partition int, next uint64) (below uint64, ok bool) {
	if c.alone {
		return next, true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	r := c.parts[partition].rosters.newest()
	if r.owner(PartitionLane(partition)) != c.opts.ID {
		return 0, false
	}
	for _, id := range r.Members {
		if id == c.opts.ID {
			continue
		}
		p := c.peers[id]
		if p == nil || partition >= len(p.beat.Replay) {
			return 0, false
		}
		next = min(next, p.beat.Replay[partition])
	}
	return next, next > 0
}

// Alone reports whether there are no other members, and never will be.
func (c *Cluster) Alone() bool { return c.alone }

// Size returns how many members the cluster has when all are there. In an open cluster these are all that are known and
// not gone for good.
func (c *Cluster) Size() int {
	switch {
	case c.alone:
		return 1
	case c.opts.Size == 0:
		return 1 + len(c.Others())
	}
	return c.opts.Size
}

// Self returns this member's id.
func (c *Cluster) Self() string { return c.opts.ID }

// Life returns what the heartbeats of this process have as Life.
func (c *Cluster) Life() string { return c.lifeID }

// Acts reports whether this backend acts for a lane: it owns the lane by the newest roster that it has folded, and has
// its lease.
func (c *Cluster) Acts(lane string) bool {
	if c.alone {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.parts[0].rosters.newest().owner(lane) == c.opts.ID && c.leased(time.Now())
}

// Owns reports whether this backend owns a lane of a partition by the newest roster that it has folded.
func (c *Cluster) Owns(partition int, lane string) bool {
	if c.alone {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.parts[partition].rosters.newest().owner(lane) == c.opts.ID
}

// Owner returns the id of the member that owns a lane of a partition by the newest folded roster, "" if there is no
// roster yet.
func (c *Cluster) Owner(partition int, lane string) string {
	if c.alone {
		return c.opts.ID
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.parts[partition].rosters.newest().owner(lane)
}

// OwnedAt reports whether a backend owned a lane of a partition at a message of the log, and without a break since the
// roster with a number. A log without rosters belongs to the backends that wrote it, and so does what a backend wrote
// while it was alone, under no roster.
func (c *Cluster) OwnedAt(partition int, seq uint64, lane, id string, since uint64) bool {
	if c.alone {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	h := c.parts[partition].rosters
	now := h.at(seq)
	if now.Number == 0 || since == 0 {
		return true
	}
	if now.Number < since || now.owner(lane) != id {
		return false
	}
	for _, r := range h {
		if since <= r.Number && r.Number < now.Number && r.owner(lane) != id {
			return false
		}
	}
	return true
}

// Number returns the number of the newest folded roster of a partition.
func (c *Cluster) Number(partition int) uint64 {
	if c.alone {
		return 0
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.parts[partition].rosters.newest().Number
}

// Late reports whether a batch of an origin counts as late at a message of the log: its origin was not a member there,
// or became one only after it had begun the batch, under the roster with a number. What it reports may be older than
// what others have reported since.
func (c *Cluster) Late(partition int, seq uint64, origin string, number uint64) bool {
	if c.alone || number == 0 {
		return false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	h := c.parts[partition].rosters
	now := h.at(seq)
	if now.Number <= number {
		return false
	}
	for _, r := range h {
		if r.Number >= number && r.Number <= now.Number && !r.Has(origin) {
			return true
		}
	}
	return false
}

// Watches reports whether this backend watches the deadlines of pairs of a partition that were last heard through an
// origin: the origin does it while it is a member, because it knows its agents' sessions, else the partition's owner.
// What was heard before this process began has the origin "". Its true origin may be this member, and then no other one
// watches: so each member watches it, the owner first. since is when the origin, or this member, was last away, the zero
// time for never: what could have been heard since then counts anew.
func (c *Cluster) Watches(partition int, origin string) (watches bool, since time.Time) {
	if c.alone {
		return true, time.Time{}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	r := c.parts[partition].rosters.newest()
	if !c.leased(time.Now()) {
		return false, time.Time{}
	}
	since = c.lease.back
	if p := c.peers[origin]; p != nil {
		since = latest(since, p.left)
	}
	owns := r.owner(PartitionLane(partition)) == c.opts.ID
	switch {
	case origin == "":
		if !owns {
			since = since.Add(ownerFirst)
		}
		return true, since
	case r.Has(origin):
		return origin == c.opts.ID, since
	}
	return owns, since
}

// LastAway returns when this backend, or any other member, was last away, the zero time for never. The agents of such a
// member must connect again.
func (c *Cluster) LastAway() time.Time {
	if c.alone {
		return time.Time{}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	away := c.lease.back
	for _, p := range c.peers {
		away = latest(away, p.left)
	}
	return away
}

// ownerFirst is how much later than the owner of a partition the other members report what each member watches.
const ownerFirst = 10 * time.Second

// MayAct reports whether this backend may go on with what it owns: it has its lease, no other member has folded a newer
// roster, which may name another owner, and no owner before this one may still act because it has not folded the newest.
func (c *Cluster) MayAct() bool {
	if c.alone {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range c.parts {
		number := c.parts[i].rosters.newest().Number
		for _, p := range c.peers {
			if i < len(p.beat.Rosters) && p.beat.Rosters[i] > number {
				return false
			}
		}
		if c.handing(i, time.Now()) {
			return false
		}
	}
	return c.leased(time.Now())
}

// handing reports whether a partition comes from a member that lives and has not folded yet that it owns the partition no
// more. What it does until then would come behind what this member does. Members send a heartbeat when they have folded a
// roster; after two of the usual ones it is not waited for any longer. The caller holds mu.
func (c *Cluster) handing(partition int, now time.Time) bool {
	p := &c.parts[partition]
	n := len(p.rosters)
	if n < 2 || now.Sub(p.folded) > 2*c.opts.Beat {
		return false
	}
	newest, lane := p.rosters[n-1].Roster, PartitionLane(partition)
	before := p.rosters[n-2].owner(lane)
	if before == c.opts.ID || newest.owner(lane) != c.opts.ID {
		return false
	}
	o := c.peers[before]
	return o != nil && now.Sub(o.heard) < c.opts.Suspect && o.beat.Leased &&
		partition < len(o.beat.Rosters) && o.beat.Rosters[partition] < newest.Number
}

// numbers returns the numbers of the newest rosters. The caller holds mu.
func (c *Cluster) numbers() []uint64 {
	numbers := make([]uint64, len(c.parts))
	for i := range c.parts {
		numbers[i] = c.parts[i].rosters.newest().Number
	}
	return numbers
}

// PartitionLane names the lane of a partition's deliveries.
func PartitionLane(partition int) string { return fmt.Sprintf("p/%d", partition) }

// AggregateLane names the lane of an aggregate.
func AggregateLane(namespace, name string) string { return "a/" + namespace + "/" + name }

// MetricCheckLane names the lane of a metric check.
func MetricCheckLane(namespace, name string) string { return "m/" + namespace + "/" + name }

// QueueLane names the lane of a round-robin check.
func QueueLane(namespace, name string) string { return "q/" + namespace + "/" + name }

// Lanes that there is one of.
const (
	HousekeepingLane = "housekeeping"
	RemindersLane    = "reminders"
	LatenessLane     = "lateness"
	HandlersLane     = "handlers"
	RulesLane        = "rules"
	DefinitionsLane  = "definitions"
	PostgresLane     = "postgres"
)
