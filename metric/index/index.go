// Package index finds series by name: it keeps the names of all series in memory, as dotted paths that globs match, and
// by their tags. The store adds the name of a series when it first sees it and removes it when the series has expired;
// find, render and the tag requests ask here first.
//
// A name costs 10 to 15 bytes, and one with tags some bytes more for each tag: names lie in the order of their nodes in
// blocks that keep of each name only what differs from the one before (see keyset). A glob walks the names in that
// order and leaps over all those that cannot match.
//
// All methods may be called at once from many goroutines. There is one lock for paths and one for tags. A query gives
// its lock back every 64 steps (about 0.1 ms) and continues from the name it was at, so it delays an
// Add only that long; it sees the names that were there all the time, and may or may not see those that come or go
// meanwhile. Copies on write would make reads free of locks, but each Add would leave garbage along its path.
package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are what an Index needs. The zero value is good.
type Options struct {
	// MaxSeries is how many names the index takes (50 million if 0).
	MaxSeries int
	// MaxName is the longest name in bytes (65,535 if 0).
	MaxName int
	// MaxNodes and MaxResults are the Budget of queries that have none (2 million and 100,000 if 0).
	MaxNodes, MaxResults int
	// MatchTimeout bounds one match of a regular expression that needs backtracking (10 ms if 0).
	MatchTimeout time.Duration
	// Registerer takes the index's metrics; it may be nil.
	Registerer prometheus.Registerer
}

func (o *Options) check() error {
	if o.MaxSeries < 0 || o.MaxName < 0 || o.MaxNodes < 0 || o.MaxResults < 0 || o.MatchTimeout < 0 {
		return errors.New("index: MaxSeries, MaxName, MaxNodes, MaxResults and MatchTimeout must not be negative")
	}
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.MaxSeries, 50_000_000)
	def(&o.MaxName, 65_535)
	def(&o.MaxNodes, 2_000_000)
	def(&o.MaxResults, 100_000)
	if o.MatchTimeout == 0 {
		o.MatchTimeout = 10 * time.Millisecond
	}
	if o.MaxSeries > 1<<31 {
		return fmt.Errorf("index: MaxSeries %d is above %d", o.MaxSeries, 1<<31)
	}
	return nil
}

// Index has the names of all series.
type Index struct {
	opts    Options
	metrics metrics

	mu    sync.RWMutex // guards paths
	paths keyset       // names without tags, in the order of nodes

	tags tagIndex // has its own lock; never held together with mu
}

// New returns an empty index. It has no goroutines, so it needs no Stop.
func New(opts Options) (*Index, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	x := &Index{opts: opts}
	x.tags.init()
	x.metrics = newMetrics(opts.Registerer, x)
	return x, nil
}

// order returns a path with its bytes in an order in which the dot is the least. In the order of these keys all nodes
// below a path follow it at once.
func order[T []byte | string](path T) string { return string(appendOrder(nil, path)) }

func appendOrder[T []byte | string](dst []byte, path T) []byte {
	for i := range len(path) {
		switch c := path[i]; {
		case c > '.':
			dst = append(dst, c)
		case c == '.':
			dst = append(dst, 0)
		default:
			dst = append(dst, c+1)
		}
	}
	return dst
}

// appendPath is the reverse of appendOrder.
func appendPath(dst, key []byte) []byte {
	for _, c := range key {
		switch {
		case c > '.':
			dst = append(dst, c)
		case c == 0:
			dst = append(dst, '.')
		default:
			dst = append(dst, c-1)
		}
	}
	return dst
}

// good reports whether the index takes name: it is not empty, not too long, and has no NUL byte.
func (x *Index) good(name string) bool {
	return name != "" && len(name) <= x.opts.MaxName && strings.IndexByte(name, 0) < 0
}

func tagged(name string) bool { return strings.IndexByte(name, ';') >= 0 }

// Add adds the canonical name of a series and reports whether it is new. It refuses, and counts, names that are empty,
// too long or have a NUL byte, and all new names above MaxSeries. A name with a ';' whose tags cannot be read is found
// by its full name only.
func (x *Index) Add(name string) bool {
	if !x.good(name) {
		x.metrics.refused.Inc()
		return false
	}
	if x.Len() >= x.opts.MaxSeries {
		if !x.Has(name) {
			x.metrics.refused.Inc()
		}
		return false
	}
	if tagged(name) {
		added, _ := x.tags.add([]string{name}, x.opts.MaxSeries)
		return added > 0
	}
	key := appendOrder(make([]byte, 0, 128), name)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.paths.insert(key) > 0
}

// batch is how many names AddMany sorts at once, and group how many it adds under one lock.
const (
	batch = 1 << 15
	group = 256
)

// AddMany adds names and returns how many are new; it is several times as fast as Add, above all if names are sorted.
// It refuses the names that Add refuses.
func (x *Index) AddMany(names []string) (added int) {
	var keys keylist
	var paths [][]byte
	var withTags []string
	for len(names) > 0 {
		n := min(len(names), batch)
		now := names[:n]
		names = names[n:]
		keys.reset()
		paths, withTags = paths[:0], withTags[:0]
		for _, name := range now {
			switch {
			case !x.good(name):
				x.metrics.refused.Inc()
			case tagged(name):
				withTags = append(withTags, name)
			default:
				keys.buf = appendOrder(keys.buf, name)
				keys.ends = append(keys.ends, len(keys.buf))
			}
		}
		for i := range keys.len() {
			paths = append(paths, keys.at(i))
		}
		if !slices.IsSortedFunc(paths, bytes.Compare) {
			slices.SortFunc(paths, bytes.Compare)
		}
		for g := range slices.Chunk(paths, group) {
			room := x.opts.MaxSeries - x.tags.len()
			x.mu.Lock()
			for len(g) > 0 { // near MaxSeries in smaller steps: some of g may be there already
				take := min(len(g), room-x.paths.keys)
				if take <= 0 {
					break
				}
				added += x.paths.insert(g[:take]...)
				g = g[take:]
			}
			x.mu.Unlock()
			x.metrics.refused.Add(float64(len(g)))
		}
		slices.Sort(withTags)
		for g := range slices.Chunk(withTags, group) {
			x.mu.RLock()
			room := x.opts.MaxSeries - x.paths.keys
			x.mu.RUnlock()
			n, refused := x.tags.add(g, room)
			added += n
			x.metrics.refused.Add(float64(refused))
		}
	}
	return added
}

// Remove takes a name out and reports whether it was there.
func (x *Index) Remove(name string) bool {
	if !x.good(name) {
		return false
	}
	if tagged(name) {
		return x.tags.remove(name)
	}
	key := appendOrder(make([]byte, 0, 128), name)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.paths.remove(key)
}

// Has reports whether a name is in the index.
func (x *Index) Has(name string) bool {
	if !x.good(name) {
		return false
	}
	if tagged(name) {
		return x.tags.has(name)
	}
	key := appendOrder(make([]byte, 0, 128), name)
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.paths.has(key)
}

// Len returns how many names the index has.
func (x *Index) Len() int {
	x.mu.RLock()
	n := x.paths.keys
	x.mu.RUnlock()
	return n + x.tags.len()
}

// Bytes returns an estimate of the index's memory; it is within a fifth of what the runtime reports.
func (x *Index) Bytes() int64 {
	x.mu.RLock()
	n := x.paths.size()
	x.mu.RUnlock()
	return n + x.tags.size()
}

// All calls fn with each name until fn returns false: first those without tags in the order of their nodes, then those
// with tags in the order of their bytes. No lock is held while fn runs.
func (x *Index) All(ctx context.Context, fn func(name string) bool) error {
	m := &meter{ctx: ctx, query: "the list of all names", allowed: Budget{Nodes: 1 << 62, Results: 1 << 62}}
	more, err := all(m, &x.mu, &x.paths, func(key []byte) string { return string(appendPath(nil, key)) }, fn)
	if err != nil || !more {
		return x.metrics.failed(err)
	}
	_, err = all(m, &x.tags.mu, &x.tags.names, func(key []byte) string { return string(key[:len(key)-idLen]) }, fn)
	return x.metrics.failed(err)
}

func all(m *meter, lock locker, s *keyset, name func(key []byte) string, fn func(string) bool) (more bool, err error) {
	var from []byte
	names := make([]string, 0, chunk)
	for {
		m.lock = lock
		if err := m.begin(); err != nil {
			return false, err
		}
		names = names[:0]
		c := cursor{s: s}
		for ok := c.seek(from); ok && len(names) < chunk; ok = c.next() {
			names = append(names, name(c.key))
			from = append(append(from[:0], c.key...), 0) // the least key behind this one
		}
		m.end()
		if len(names) == 0 {
			return true, nil
		}
		m.visited += len(names)
		for _, n := range names {
			if !fn(n) {
				return false, nil
			}
		}
	}
}

func (x *Index) budget(b Budget) Budget {
	if b.Nodes <= 0 {
		b.Nodes = x.opts.MaxNodes
	}
	if b.Results <= 0 {
		b.Results = x.opts.MaxResults
	}
	return b
}
