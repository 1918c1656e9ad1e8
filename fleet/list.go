package fleet

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/view"
)

// list is a live list of entities, which readers share.
type list struct {
	query Query
	timed bool // answers of the selector change with the time

	// Guarded by Fleet.mu.
	readers int
	unused  time.Time // since when there are no readers

	size    atomic.Int64 // entities; -1 until the list is made
	mu      sync.Mutex   // guards content; held while it is brought up to date
	content *Content
}

func newList(query Query) *list {
	l := &list{query: query}
	l.size.Store(-1)
	for _, t := range query.Selector.Terms() {
		l.timed = l.timed || t.Timed()
	}
	return l
}

// at returns the list as of a snapshot. Readers of a list that changes with the time are woken after each refresh, and then
// find it older than half of that.
func (l *list) at(s *snapshot, now time.Time, refresh time.Duration) *Content {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.content; c == nil || c.of.version < s.version || l.timed && now.Sub(c.at) >= refresh/2 {
		l.content = l.next(c, s, now)
		l.size.Store(int64(len(l.content.rows)))
	}
	return l.content
}

// next returns the content as of a snapshot, made from the one before; that may be nil. It looks at all rows, but asks the
// selector only about those that changed, and sorts only those.
func (l *list) next(old *Content, s *snapshot, now time.Time) *Content {
	if old == nil {
		old = &Content{of: &snapshot{}, worth: new(worth)}
	}
	c := &Content{query: &l.query, of: s, at: now, selected: make([]bool, len(s.rows))}
	var came []*Row
	changed := old.query == nil
	for slot, row := range s.rows {
		was := slot < len(old.selected) && old.selected[slot]
		if row == nil {
			changed = changed || was
			continue
		}
		same := row.version <= old.of.version
		if same && !l.timed {
			c.selected[slot] = was
			continue
		}
		is := l.selects(row, now)
		c.selected[slot] = is
		changed = changed || is != was || is && row.changed > old.of.version
		if is && !(same && was) {
			came = append(came, row)
		}
	}
	slices.SortFunc(came, l.query.compare)
	c.rows = make([]*Row, 0, len(old.rows)+len(came))
	for _, row := range old.rows {
		if s.rows[row.slot] != row || !c.selected[row.slot] {
			continue
		}
		for len(came) > 0 && l.query.compare(came[0], row) < 0 {
			c.rows, came = append(c.rows, came[0]), came[1:]
		}
		c.rows = append(c.rows, row)
	}
	c.rows = append(c.rows, came...)
	if c.worth = old.worth; changed {
		c.worth = &worth{rows: c.rows, query: &l.query}
	}
	return c
}

func (l *list) selects(row *Row, now time.Time) bool {
	if l.query.Namespace != "" && row.Config.Metadata.Namespace != l.query.Namespace {
		return false
	}
	if !l.query.has(row) {
		return false
	}
	return l.query.Selector == nil ||
		l.query.Selector.MatchAt(selector.Entity(row.Config, func() any { return row.entity() }), now)
}

// Content is a list at one moment. It never changes.
type Content struct {
	query    *Query
	of       *snapshot
	at       time.Time
	selected []bool // by slot
	rows     []*Row // in order
	worth    *worth
}

// worth is what is computed from the entities of a list when a reader first asks. Contents share it while nothing but times
// differs.
type worth struct {
	rows  []*Row
	query *Query

	mu      sync.Mutex // guards the fields below, and is held while they are computed
	counts  *Counts
	groups  map[Group][]GroupCounts
	facets  map[Group][]GroupCounts
	derived map[string]*derived
}

// GroupCounts has the number of entities in one group.
type GroupCounts struct {
	Value  string
	Counts Counts
}

// Rows returns the entities from a place in the order on, limit at most. The caller must not change them.
func (c *Content) Rows(offset, limit int) []*Row {
	first := min(offset, len(c.rows))
	return c.rows[first:min(first+limit, len(c.rows))]
}

// Place returns the place of an entity in the order; false if the list does not have it.
func (c *Content) Place(name resource.Name) (place int, ok bool) {
	slot, known := c.of.table.slotOf(name)
	if !known || slot >= len(c.selected) || !c.selected[slot] || resource.NameOf(&c.of.rows[slot].Config.Metadata) != name {
		return 0, false
	}
	return slices.BinarySearchFunc(c.rows, c.of.rows[slot], c.query.compare)
}

// Counts returns the number of entities.
func (c *Content) Counts() Counts {
	w := c.worth
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts = new(Counts)
		for _, row := range w.rows {
			w.counts.add(row, w.query.worst(row))
		}
	}
	return *w.counts
}

// Groups returns all groups, those with the worst entities first. The caller must not change them.
func (c *Content) Groups(by Group) []GroupCounts {
	w := c.worth
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.group(by)
}

func (w *worth) group(by Group) []GroupCounts {
	if found, ok := w.groups[by]; ok {
		return found
	}
	places := map[string]int{}
	found := []GroupCounts{}
	for _, row := range w.rows {
		worst := w.query.worst(row)
		by.each(row, func(value string) {
			place, ok := places[value]
			if !ok {
				place = len(found)
				places[value] = place
				found = append(found, GroupCounts{Value: value})
			}
			found[place].Counts.add(row, worst)
		})
	}
	slices.SortFunc(found, worse)
	keep(&w.groups, by, found)
	return found
}

// Facet returns all groups, those with the most entities first. The caller must not change them.
func (c *Content) Facet(by Group) []GroupCounts {
	w := c.worth
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.facets[by]
	if !ok {
		found = slices.Clone(w.group(by))
		slices.SortFunc(found, larger)
		keep(&w.facets, by, found)
	}
	return found
}

// worse orders groups by their number of entities with critical events, then of the next classes, and then by name.
func worse(x, y GroupCounts) int {
	for class := range view.OK {
		if c := cmp.Compare(y.Counts.Worst[class], x.Counts.Worst[class]); c != 0 {
			return c
		}
	}
	return strings.Compare(x.Value, y.Value)
}

func larger(x, y GroupCounts) int {
	return cmp.Or(cmp.Compare(y.Counts.Total(), x.Counts.Total()), strings.Compare(x.Value, y.Value))
}

// Cells are the entities of a group and a namespace in columns, in the order of the list.
type Cells struct {
	Value, Namespace string
	Names            []string
	Worst            []view.Class
}

// Cells returns all entities, ordered by group and namespace.
func (c *Content) Cells(by Group) []*Cells {
	type key struct{ value, namespace string }
	places := map[key]*Cells{}
	var found []*Cells
	w := c.worth
	for _, row := range w.rows {
		m, worst := &row.Config.Metadata, w.query.worst(row)
		by.each(row, func(value string) {
			at := key{value, m.Namespace}
			one := places[at]
			if one == nil {
				one = &Cells{Value: value, Namespace: m.Namespace}
				places[at] = one
				found = append(found, one)
			}
			one.Names, one.Worst = append(one.Names, m.Name), append(one.Worst, worst)
		})
	}
	slices.SortFunc(found, func(x, y *Cells) int {
		return cmp.Or(strings.Compare(x.Value, y.Value), strings.Compare(x.Namespace, y.Namespace))
	})
	return found
}

// Once returns what the first call with a key made, as long as nothing but times differs in the list. make must compute it
// from Cells, and from nothing else that changes.
func (c *Content) Once(key string, make func() ([]byte, error)) ([]byte, error) {
	w := c.worth
	w.mu.Lock()
	one := w.derived[key]
	if one == nil {
		one = &derived{err: errUnmade}
		keep(&w.derived, key, one)
	}
	w.mu.Unlock()
	one.once.Do(func() {
		defer func() {
			if one.err != nil { // the next call tries again
				w.mu.Lock()
				delete(w.derived, key)
				w.mu.Unlock()
			}
		}()
		one.data, one.err = make()
	})
	return one.data, one.err
}

var errUnmade = errors.New("what another request made of the list has failed")

// mostKept bounds what is kept of a list under the keys of clients, for each kind.
const mostKept = 32

// keep puts a value into a map, and forgets the others if there are too many.
func keep[K comparable, V any](kept *map[K]V, key K, value V) {
	if *kept == nil || len(*kept) >= mostKept {
		*kept = map[K]V{}
	}
	(*kept)[key] = value
}

// derived is what Once keeps.
type derived struct {
	once sync.Once
	data []byte
	err  error
}
