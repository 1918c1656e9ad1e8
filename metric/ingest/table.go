// Package ingest is the way of a point from a listener to the store: parse → Writer.Add → route → store.
//
// A route is what happens to the points of one name: rewrite rules give the series, aggregation rules the outputs that
// it is part of, placement the other members and relay rules the destinations that get it too. All rules are applied
// once, when the name is new; the table keeps the result. Writer.Add finds the route without a lock in the common case,
// since a sender sends the same names in the same order again and again: each route knows the one that came after it.
//
// Listeners (metric/carbon, remote write, events) get a Writer each. A Writer gathers samples by shard of the store and
// hands them over in batches; a full shard blocks Flush, which is the back pressure that TCP passes on. Droppers, for
// UDP and events, drop and count instead.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/metric/aggregator"
	"github.com/lapwing-monitoring/lapwing/metric/allow"
	"github.com/lapwing-monitoring/lapwing/metric/member"
	"github.com/lapwing-monitoring/lapwing/metric/name"
	"github.com/lapwing-monitoring/lapwing/metric/relay"
	"github.com/lapwing-monitoring/lapwing/metric/remote"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// stripes of the table, a power of two.
const stripes = 256

// Options configures a Table. Store may be nil if there is a Relay.
type Options struct {
	// Store keeps the points. Default: none, points only go to the relay's destinations.
	Store *store.Store
	// Allow refuses names. Default: all are taken.
	Allow func(name string) allow.Verdict
	// Refused is told how many points a list has refused. Default: it is not told.
	Refused func(v allow.Verdict, points int)
	// Pre and Post rewrite names before and after the aggregation rules. Default: they stay.
	Pre, Post func(name string) string
	// Aggregator gets the points of names that its rules match. Default: none.
	Aggregator *aggregator.Aggregator
	// Relay gets points for other carbon servers. Default: none.
	Relay *relay.Relay
	// Remote get each sample that is stored here. Default: none.
	Remote []*remote.Sender
	// Place returns the members that store a name: whether this one does, and the others. Default: only this one.
	Place func(name string) (here bool, others []Member)
	// Computes returns the member that computes an output of the aggregator, nil for this one. Default: this one.
	Computes func(output string) Member
	// Settle returns when the members have the points that were added before, or they are on disk for them. Default: at
	// once.
	Settle func(ctx context.Context) error
	// Room returns when all members have room for points. Default: at once.
	Room func(ctx context.Context) error
	// Known is called with each new name that is stored here.
	Known func(name string)
	// Own reports whether a name is that of a figure that only this server makes. When a sender has it, the relay's points
	// come back, which is logged. Default: none is.
	Own func(name string) bool
	// MaxNames bounds the names in the table, and MaxBytes its memory. Names beyond them are refused. Default 20,000,000
	// names and 4 GiB.
	MaxNames int
	MaxBytes int64

	Metrics *Metrics
	Logger  *slog.Logger
}

// Member is another member of the cluster. It takes points for its store or its aggregator, and must not wait.
type Member interface {
	Add(name string, use member.Use, unixMilli int64, value float64)
}

// forward is what another member gets of a route's points.
type forward struct {
	to   Member
	name string
	use  member.Use
}

// route is what happens to the points of a name.
type route struct {
	name       string // as senders write it
	kind       kind
	series     *store.Series
	inputs     []*aggregator.Input
	dests      []*relay.Destination
	members    []forward
	stored     string        // the series' name
	kept       bool          // here or at another member
	wire       []byte        // the same, for destinations and remote stores
	generation atomic.Uint32 // of the rules that the route is made of; dead once the table has forgotten it
	refused    refusal
	seen       atomic.Uint32         // the epoch of the table in which its last point came
	next       atomic.Pointer[route] // what came after it last time
}

// kind is where a point comes from. Each has routes of its own.
type kind uint8

const (
	fromSender kind = iota
	fromHere        // made by the server itself
	fromMember      // plus the member.Use
	kinds      = fromMember + kind(member.Store|member.Aggregate) + 1
)

// dead is the generation of a forgotten route: the route before it may still know it.
const dead = math.MaxUint32

// refusal is why points of a name are not taken.
type refusal uint8

const (
	taken refusal = iota
	blacklisted
	notWhitelisted
	badName
	tooMany
	refusals
)

var refusalNames = [refusals]string{blacklisted: "blacklisted", notWhitelisted: "not_whitelisted", badName: "bad_name",
	tooMany: "too_many_series"}

// Table has the routes of all names.
type Table struct {
	opts       Options
	metrics    *Metrics
	rare       *rarelog.Log
	seed       maphash.Seed
	generation atomic.Uint32
	epoch      atomic.Uint32 // counts the calls of Sweep
	names      atomic.Int64
	bytes      atomic.Int64
	stripes    [stripes]stripe
	others     [kinds]stripe // names of points that are not from senders, by kind
}

type stripe struct {
	mu     sync.RWMutex // guards the fields below
	routes map[string]*route
	// full has names that had no room lately, at most fullNames, so that their points cost no rules and no lock of the
	// store.
	full      map[string]struct{}
	fullSince time.Time
}

const (
	fullNames = 512
	// fullFor is how long a name that had no room is refused without another look.
	fullFor = 10 * time.Second
)

// refusedRoute is the route of names that have no room. It is shared, so it has no name and no successor.
var refusedRoute = &route{refused: tooMany}

// routeBytes is the memory of a route beside its name, which is there twice.
const routeBytes = 400

// New checks the options.
func New(opts Options) (*Table, error) {
	if opts.Store == nil && opts.Relay == nil {
		return nil, errors.New("ingest: a store or a relay is required")
	}
	if opts.MaxNames < 0 || opts.MaxBytes < 0 {
		return nil, fmt.Errorf("ingest: MaxNames (%d) and MaxBytes (%d) must not be negative", opts.MaxNames, opts.MaxBytes)
	}
	opts.MaxNames = cmp.Or(opts.MaxNames, 20_000_000)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, 4<<30)
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics(nil)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Table{opts: opts, metrics: opts.Metrics, rare: rarelog.New(opts.Logger.With("component", "metric ingest")),
		seed: maphash.MakeSeed()}
	for i := range t.stripes {
		t.stripes[i].routes = map[string]*route{}
	}
	for i := range t.others {
		t.others[i].routes = map[string]*route{}
	}
	return t, nil
}

// Changed has the rules applied anew to every name, at its next point: they or the members have changed.
func (t *Table) Changed() { t.generation.Add(1) }

// Len returns the number of names.
func (t *Table) Len() int { return int(t.names.Load()) }

// find returns the route of a name, which it makes if there is none.
func (t *Table) find(raw []byte, k kind) *route {
	s := &t.others[k]
	if k == fromSender {
		s = &t.stripes[maphash.Bytes(t.seed, raw)%stripes]
	}
	s.mu.RLock()
	r := s.routes[string(raw)]
	_, full := s.full[string(raw)]
	full = full && time.Since(s.fullSince) < fullFor
	s.mu.RUnlock()
	if r != nil && r.generation.Load() == t.generation.Load() {
		return r
	}
	if full {
		return refusedRoute
	}
	return t.make(s, string(raw), k)
}

// make applies the rules to a name. A name that is refused for want of room gets no place in the table, so that a flood
// of names costs no memory.
func (t *Table) make(s *stripe, raw string, k kind) *route {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation := t.generation.Load()
	old := s.routes[raw]
	if old != nil && old.generation.Load() == generation {
		return old
	}
	if old == nil && (t.names.Load() >= int64(t.opts.MaxNames) || t.bytes.Load() >= t.opts.MaxBytes) {
		return t.refuse(s, raw)
	}
	r := t.resolveKind(raw, k)
	r.kind = k
	r.generation.Store(generation)
	r.seen.Store(t.epoch.Load())
	if r.refused == tooMany {
		return t.refuse(s, raw)
	}
	if r.refused == badName {
		t.rare.Warn("points are refused: their name cannot be stored", "bad name", "name", rarelog.Short(raw))
	}
	if old == nil {
		t.count(raw, 1)
	}
	s.routes[raw] = r
	return r
}

// count counts a name that comes (1) or goes (-1).
func (t *Table) count(raw string, by int64) {
	t.names.Add(by)
	t.bytes.Add(by * int64(2*len(raw)+routeBytes))
}

// refuse notes that a name has no room, for a while. The caller has the stripe's lock.
func (t *Table) refuse(s *stripe, raw string) *route {
	t.rare.Warn("points of new series are refused: a bound of series, of new series a minute or of memory is reached",
		"too many", "name", rarelog.Short(raw))
	if now := time.Now(); s.full == nil || now.Sub(s.fullSince) >= fullFor {
		s.full, s.fullSince = map[string]struct{}{}, now
	}
	if len(s.full) < fullNames {
		s.full[raw] = struct{}{}
	}
	return refusedRoute
}

func (t *Table) resolveKind(raw string, k kind) *route {
	switch k {
	case fromSender:
		return t.resolve(raw)
	case fromHere:
		return t.resolveOwn(raw)
	}
	return t.resolveReceived(raw, member.Use(k-fromMember))
}

// resolve follows the rules in carbon's order: allow, rewrite, aggregate, rewrite, then store and relay.
func (t *Table) resolve(raw string) *route {
	r := &route{name: raw}
	if t.opts.Allow != nil {
		switch t.opts.Allow(raw) {
		case allow.Blacklisted:
			r.refused = blacklisted
			return r
		case allow.NotWhitelisted:
			r.refused = notWhitelisted
			return r
		}
	}
	if t.opts.Own != nil && t.opts.Own(raw) {
		t.rare.Warn("points that this server relays come back to it, so they may go round for ever: take it out of the "+
			"destinations of the servers that it relays to, or give servers with the same host name different ones",
			"loop", "name", rarelog.Short(raw))
	}
	rewritten := raw
	if t.opts.Pre != nil {
		rewritten = t.opts.Pre(rewritten)
	}
	stored, ok := canonical(rewritten)
	if !ok {
		r.refused = badName
		return r
	}
	if t.opts.Aggregator != nil {
		inputs := t.opts.Aggregator.Match(stored)
		if t.aggregate(r, stored, inputs); !t.opts.Aggregator.Forward(stored, inputs) {
			return r
		}
	}
	if t.opts.Post != nil {
		if stored, ok = canonical(t.opts.Post(stored)); !ok {
			r.refused = badName
			return r
		}
	}
	r.stored = stored
	t.place(r)
	return r
}

// resolveOwn is resolve for a point that the server has made itself, an aggregate or a figure about itself: rules do
// not apply to it, as with carbon.
func (t *Table) resolveOwn(raw string) *route {
	r := &route{name: raw}
	var ok bool
	if r.stored, ok = canonical(raw); !ok {
		r.refused = badName
		return r
	}
	t.place(r)
	return r
}

// aggregate gives the points of a name to the members that compute its outputs.
func (t *Table) aggregate(r *route, matched string, inputs []*aggregator.Input) {
	for _, in := range inputs {
		var m Member
		if t.opts.Computes != nil {
			m = t.opts.Computes(in.Output())
		}
		if m == nil {
			r.inputs = append(r.inputs, in)
		} else {
			r.pass(m, matched, member.Aggregate)
		}
	}
}

// pass has a member get the points of a route under a name.
func (r *route) pass(to Member, name string, use member.Use) {
	for i := range r.members {
		if f := &r.members[i]; f.to == to && f.name == name {
			f.use |= use
			return
		}
	}
	r.members = append(r.members, forward{to, name, use})
}

// resolveReceived is resolve for points of another member, which has followed the rules.
func (t *Table) resolveReceived(name string, use member.Use) *route {
	r := &route{name: name, stored: name}
	if use&member.Aggregate != 0 && t.opts.Aggregator != nil {
		for _, in := range t.opts.Aggregator.Match(name) {
			if t.opts.Computes == nil || t.opts.Computes(in.Output()) == nil {
				r.inputs = append(r.inputs, in)
			}
		}
	}
	if use&member.Store != 0 && t.opts.Store != nil {
		t.open(r)
	}
	return r
}

// canonical returns the name that the store has for a sender's name: tags in order, and a path without empty nodes, as
// carbon's files have it.
func canonical(sent string) (string, bool) {
	for i := range len(sent) {
		if sent[i] < ' ' || sent[i] == 0x7f {
			return "", false
		}
	}
	raw := []byte(sent)
	if !name.HasTags(raw) || strings.IndexByte(sent, ';') >= 0 { // in Prometheus' spelling the path ends at a brace
		raw = name.Clean(raw)
	}
	stored, err := name.Canonical(raw)
	return string(stored), err == nil && len(stored) > 0 && len(stored) <= maxStored
}

// maxStored is the longest name that the store takes, in bytes.
const maxStored = 4096

// place finds where the points of r.stored go.
func (t *Table) place(r *route) {
	if t.opts.Relay != nil || t.opts.Remote != nil {
		r.wire = []byte(r.stored)
	}
	if t.opts.Relay != nil {
		r.dests = t.opts.Relay.Route(r.stored, nil)
	}
	if t.opts.Store == nil {
		return
	}
	r.kept = true
	if t.opts.Place != nil {
		here, others := t.opts.Place(r.stored)
		for _, m := range others {
			r.pass(m, r.stored, member.Store)
		}
		if !here {
			return
		}
	}
	t.open(r)
}

// open has the points of r.stored stored here.
func (t *Table) open(r *route) {
	series, err := t.opts.Store.Open(r.stored)
	if errors.Is(err, store.ErrTooManySeries) || errors.Is(err, store.ErrStopped) {
		r.refused = tooMany
		return
	}
	if err != nil { // it has checked the name
		r.refused = badName
		return
	}
	r.series = series
	if t.opts.Known != nil {
		t.opts.Known(r.stored)
	}
}

// Sweep forgets names that had no point since the calls before the last one, and has the store forget series that had
// none for the time idle. Their data stays. The caller calls it at intervals of about half of idle.
func (t *Table) Sweep(idle time.Duration) (forgotten int) {
	epoch := t.epoch.Add(1)
	inUse := map[*store.Series]bool{}
	for i := range stripes + int(kinds) {
		s := &t.stripes[i%stripes]
		if i >= stripes {
			s = &t.others[i-stripes]
		}
		s.mu.Lock()
		for raw, r := range s.routes {
			if epoch-r.seen.Load() <= 2 {
				if r.series != nil {
					inUse[r.series] = true
				}
				continue
			}
			r.generation.Store(dead)
			delete(s.routes, raw)
			t.count(raw, -1)
			forgotten++
		}
		s.mu.Unlock()
	}
	if t.opts.Store == nil {
		return forgotten
	}
	for _, se := range t.opts.Store.Idle(idle) {
		if !inUse[se] {
			t.opts.Store.Close(se)
		}
	}
	return forgotten
}
