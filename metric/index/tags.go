package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

// idLen is how many bytes end a key of names or postings: 0 and a series' number.
const idLen = 5

// tagIndex has the series with tags. Each has a number. Numbers of removed series are used again.
type tagIndex struct {
	mu sync.RWMutex // guards the rest
	// names has keys of a canonical name, a 0, and the series' number.
	names keyset
	// postings has keys of a tag, a 0, a value, a 0, and a series' number.
	postings keyset
	// blocks has for each number the block of names that has its name, in slabs.
	blocks [][]*block
	next   uint32 // the least number that was never used
	free   []uint32
}

const slab = 4096

func (t *tagIndex) init() {
	t.names.moved = func(key []byte, b *block) {
		id := number(key)
		t.blocks[id/slab][id%slab] = b
	}
}

// number returns the number at the end of a key.
func number(key []byte) uint32 { return binary.BigEndian.Uint32(key[len(key)-4:]) }

func appendNumber(key []byte, id uint32) []byte {
	return binary.BigEndian.AppendUint32(append(key, 0), id)
}

// tag is a tag of a series.
type tag struct{ name, value string }

// splitTags returns the tags of a canonical name, its name as the tag "name" first. It returns none for a name that
// cannot be read.
func splitTags(dst []tag, series string) []tag {
	name, rest, _ := strings.Cut(series, ";")
	name = strings.TrimLeft(name, "~")
	if name == "" {
		return dst[:0]
	}
	dst = append(dst[:0], tag{"name", name})
	for more := true; more; {
		var part string
		part, rest, more = strings.Cut(rest, ";")
		k, v, ok := strings.Cut(part, "=")
		if !ok || k == "" || v == "" || v[0] == '~' || strings.ContainsAny(k, "!^ ") {
			return dst[:0]
		}
		if k != "name" { // carbon writes the series' name over a tag of that name
			dst = append(dst, tag{k, v})
		}
	}
	return dst
}

// find moves to the key of name in names and returns its number.
func (t *tagIndex) find(name string) (id uint32, ok bool) {
	key := append(append(make([]byte, 0, 256), name...), 0)
	c := cursor{s: &t.names}
	// Names have no 0, so the first key of this name and a 0 is the name's own.
	if !c.seek(key) || len(c.key) != len(name)+idLen || !bytes.HasPrefix(c.key, key) {
		return 0, false
	}
	return number(c.key), true
}

// add adds names, which are in order, up to a total of room, and returns how many were new and how many had no room.
func (t *tagIndex) add(names []string, room int) (added, refused int) {
	var tags []tag
	var keys, postings keylist
	last := ""
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if name == last {
			continue
		}
		last = name
		if _, ok := t.find(name); ok {
			continue
		}
		if t.names.keys+added >= room {
			refused++
			continue
		}
		added++
		id := t.take()
		keys.buf = appendNumber(append(keys.buf, name...), id)
		keys.ends = append(keys.ends, len(keys.buf))
		tags = splitTags(tags, name)
		for _, tg := range tags {
			postings.buf = appendNumber(appendPair(postings.buf, tg.name, tg.value), id)
			postings.ends = append(postings.ends, len(postings.buf))
		}
	}
	t.names.insert(keys.sorted()...)
	t.postings.insert(postings.sorted()...)
	return added, refused
}

func appendPair(dst []byte, name, value string) []byte {
	return append(append(append(dst, name...), 0), value...)
}

func (l *keylist) sorted() [][]byte {
	keys := make([][]byte, l.len())
	for i := range keys {
		keys[i] = l.at(i)
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// take returns an unused number.
func (t *tagIndex) take() uint32 {
	if n := len(t.free); n > 0 {
		id := t.free[n-1]
		t.free = t.free[:n-1]
		return id
	}
	if t.next%slab == 0 {
		t.blocks = append(t.blocks, make([]*block, slab))
	}
	t.next++
	return t.next - 1
}

func (t *tagIndex) remove(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.find(name)
	if !ok {
		return false
	}
	key := appendNumber(append(make([]byte, 0, 256), name...), id)
	t.names.remove(key)
	for _, tg := range splitTags(nil, name) {
		t.postings.remove(appendNumber(appendPair(key[:0], tg.name, tg.value), id))
	}
	t.blocks[id/slab][id%slab] = nil
	if t.names.keys == 0 {
		t.blocks, t.next, t.free = nil, 0, nil
		return true
	}
	t.free = append(t.free, id)
	return true
}

func (t *tagIndex) has(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.find(name)
	return ok
}

func (t *tagIndex) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.names.keys
}

func (t *tagIndex) size() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.names.size() + t.postings.size() + int64(len(t.blocks))*(slab*8+24) + int64(cap(t.free))*4
}

// resolver finds the names of numbers. It is valid until the lock is given back.
type resolver struct {
	t     *tagIndex
	b     *block
	i, at int // of the next key in b
	key   []byte
}

// name returns the name of a number, valid until the next call, or nil if it is not used. Numbers that follow each
// other often have names that do, so it goes on from the last name.
func (r *resolver) name(id uint32) []byte {
	if int(id/slab) >= len(r.t.blocks) {
		return nil
	}
	b := r.t.blocks[id/slab][id%slab]
	if b == nil {
		return nil
	}
	if b != r.b {
		r.b, r.i, r.at = b, 0, 0
	}
	for range b.keys {
		if r.i == b.keys {
			r.i, r.at = 0, 0
		}
		n, at := uvarint(b.data, r.at)
		length, at := uvarint(b.data, at)
		r.key = append(r.key[:n], b.data[at:at+length]...)
		r.i, r.at = r.i+1, at+length
		if number(r.key) == id {
			return r.key[:len(r.key)-idLen]
		}
	}
	return nil
}

// FindTagged returns the canonical names of the series that all expressions select, sorted. An expression is tag=value,
// tag!=value, tag=~regexp or tag!=~regexp; a regular expression must match from the start of the value, not up to its
// end. The tag "name" is the series' name. A series that lacks a tag has it with an empty value; at least one
// expression must not select that. Series without tags are not found.
//
// The error is a *BudgetError if the query needs more than budget or ctx allow, and an *ExprError if an expression is
// not right.
func (x *Index) FindTagged(ctx context.Context, exprs []string, budget Budget) ([]string, error) {
	var names []string
	m := x.tagMeter(ctx, exprs, budget)
	err := x.selectTagged(m, exprs, func(name string, _ []tag) error {
		names = append(names, name)
		return m.result()
	})
	if err != nil {
		return nil, x.metrics.failed(err)
	}
	slices.Sort(names)
	// A series that was removed and added again while the query ran can be in it twice.
	return slices.Compact(names), nil
}

func (x *Index) tagMeter(ctx context.Context, exprs []string, budget Budget) *meter {
	x.metrics.tags.Inc()
	text := strings.Join(exprs, " ")
	if len(exprs) == 0 {
		return &meter{ctx: ctx, query: "the list of tags", allowed: x.budget(budget), lock: &x.tags.mu}
	}
	return &meter{ctx: ctx, query: query("tag query", text), allowed: x.budget(budget), lock: &x.tags.mu}
}

// selectTagged calls emit for each series that the expressions select, with the lock held.
//
// It takes the expression with the fewest series, reads their numbers, keeps of them only those that the other
// expressions of the form tag=value have too, and tests the names of the rest.
func (x *Index) selectTagged(m *meter, exprs []string, emit func(name string, tags []tag) error) error {
	conds, err := parseExprs(exprs, x.opts.MatchTimeout)
	if err != nil {
		return err
	}
	for _, c := range conds {
		c.meter = m
	}
	t := &x.tags
	if err := m.begin(); err != nil {
		return err
	}
	defer m.end()

	best, fewest := -1, 0
	for i, c := range conds {
		if c.empty {
			continue
		}
		n := 0
		if c.exact() {
			n = t.count(appendPair(nil, c.tag, c.value))
		} else {
			// Its values must be read one by one, so it is the base only if there is none with a value.
			n = t.countBelow(append([]byte(c.tag), 0)) + 1<<40
		}
		if best < 0 || n < fewest {
			best, fewest = i, n
		}
	}
	ids, err := t.numbers(m, conds[best])
	if err != nil {
		return err
	}
	if err := t.narrow(m, conds, best, &ids); err != nil {
		return err
	}

	r := resolver{t: t}
	var tags []tag
	for _, id := range ids {
		if paused, err := m.pause(); err != nil {
			return err
		} else if paused {
			r.b = nil
		}
		before := r.b
		key := r.name(id)
		work := 1
		if r.b != before {
			work = 2
		}
		if err := m.visit(1, work); err != nil {
			return err
		}
		if key == nil {
			continue
		}
		name := string(key)
		tags = splitTags(tags, name)
		ok, err := matchAll(conds, tags)
		if err != nil {
			return err
		}
		if ok {
			if err := emit(name, tags); err != nil {
				return err
			}
		}
	}
	return nil
}

func matchAll(conds []*cond, tags []tag) (bool, error) {
	for _, c := range conds {
		value := ""
		for _, tg := range tags {
			if tg.name == c.tag {
				value = tg.value
			}
		}
		if ok, err := c.match(value); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// count returns how many series have a tag with a value.
func (t *tagIndex) count(pair []byte) int { return t.countBelow(append(pair, 0)) }

// countBelow returns how many postings begin with prefix, which ends in 0.
func (t *tagIndex) countBelow(prefix []byte) int {
	from, to := cursor{s: &t.postings}, cursor{s: &t.postings}
	if !from.seek(prefix) {
		return 0
	}
	behind := slices.Clone(prefix)
	behind[len(behind)-1] = 1
	to.seek(behind)
	return from.distance(&to)
}

// numbers returns the numbers of the series that c selects, sorted, not all of which need to be in use still.
func (t *tagIndex) numbers(m *meter, c *cond) (ids []uint32, err error) {
	if c.exact() {
		return t.posting(m, nil, appendPair(nil, c.tag, c.value))
	}
	values := 0
	err = t.values(m, c.tag, "", func(value string) (bool, error) {
		ok, err := c.match(value)
		if !ok || err != nil {
			return true, err
		}
		values++
		ids, err = t.posting(m, ids, appendPair(nil, c.tag, value))
		return true, err
	})
	if values > 1 {
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	return ids, err
}

// posting appends the numbers of the series that have a tag with a value.
func (t *tagIndex) posting(m *meter, ids []uint32, pair []byte) ([]uint32, error) {
	prefix := append(pair, 0)
	target := slices.Clone(prefix)
	c := cursor{s: &t.postings}
	for ok := c.seek(target); ok && bytes.HasPrefix(c.key, prefix); {
		if len(c.key) == len(prefix)+4 {
			ids = append(ids, number(c.key))
		}
		// A key of a posting is read in some 20 ns: 16 of them are one step of work.
		work := 0
		if len(ids)%16 == 0 {
			work = 1
		}
		if err := m.visit(1, work); err != nil {
			return nil, err
		}
		target = append(append(target[:0], c.key...), 0)
		if paused, err := m.pause(); err != nil {
			return nil, err
		} else if paused {
			ok = c.seek(target)
		} else {
			ok = c.next()
		}
	}
	return ids, nil
}

// narrow takes out of ids the numbers that other expressions tag=value do not have. A posting much longer than ids is
// not worth reading: the names of ids are tested in any case.
func (t *tagIndex) narrow(m *meter, conds []*cond, base int, ids *[]uint32) error {
	for i, c := range conds {
		if i == base || !c.exact() || len(*ids) < 64 {
			continue
		}
		pair := appendPair(nil, c.tag, c.value)
		if t.count(slices.Clone(pair)) > 16*len(*ids) {
			continue
		}
		other, err := t.posting(m, nil, pair)
		if err != nil {
			return err
		}
		both := (*ids)[:0]
		j := 0
		for _, id := range *ids {
			for j < len(other) && other[j] < id {
				j++
			}
			if j < len(other) && other[j] == id {
				both = append(both, id)
			}
		}
		*ids = both
	}
	return nil
}

// values calls fn with each value of a tag that begins with prefix, in order, until it returns false.
func (t *tagIndex) values(m *meter, name, prefix string, fn func(value string) (bool, error)) error {
	head := append([]byte(name), 0)
	return t.distinct(m, head, prefix, fn)
}

// distinct calls fn with each part of the postings' keys behind head, up to its 0, that begins with prefix.
func (t *tagIndex) distinct(m *meter, head []byte, prefix string, fn func(part string) (bool, error)) error {
	target := append(slices.Clone(head), prefix...)
	c := cursor{s: &t.postings}
	ok := c.seek(target)
	for ok && bytes.HasPrefix(c.key, head) {
		part, _, _ := bytes.Cut(c.key[len(head):], []byte{0})
		if !bytes.HasPrefix(part, []byte(prefix)) {
			return nil
		}
		target = append(append(append(target[:0], head...), part...), 1)
		if err := m.visit(1, 1); err != nil {
			return err
		}
		before := m.pauses
		if more, err := fn(string(part)); !more || err != nil {
			return err
		}
		paused, err := m.pause()
		if err != nil {
			return err
		}
		if paused || m.pauses > before { // fn may have paused as well
			ok = c.seek(target)
		} else {
			ok = c.forward(target)
		}
	}
	return nil
}

// Value is a value of a tag, and how many series have it.
type Value struct {
	Value string
	Count int
}

// errTag is the error of a call without a tag.
var errTag = errors.New("index: no tag is given")

// Tags returns the names of tags that the regular expression filter matches from their start, in order, at most limit
// (Options.MaxResults if 0). An empty filter matches all.
func (x *Index) Tags(ctx context.Context, filter string, limit int) ([]string, error) {
	m := x.tagMeter(ctx, nil, Budget{Results: limit})
	f, err := parseFilter(filter, x.opts.MatchTimeout)
	if err != nil {
		return nil, err
	}
	f.meter = m
	var names []string
	if err := m.begin(); err != nil {
		return nil, x.metrics.failed(err)
	}
	defer m.end()
	err = x.tags.distinct(m, nil, "", func(name string) (bool, error) {
		ok, err := f.match(name)
		if ok && err == nil {
			names = append(names, name)
		}
		return len(names) < m.allowed.Results, err
	})
	return names, x.metrics.failed(err)
}

// TagValues returns the values of a tag that the regular expression filter matches from their start, in order, at most
// limit (Options.MaxResults if 0), and how many series have each.
func (x *Index) TagValues(ctx context.Context, name, filter string, limit int) ([]Value, error) {
	if name == "" {
		return nil, errTag
	}
	m := x.tagMeter(ctx, nil, Budget{Results: limit})
	m.query = query("the list of values of tag", name)
	f, err := parseFilter(filter, x.opts.MatchTimeout)
	if err != nil {
		return nil, err
	}
	f.meter = m
	var values []Value
	if err := m.begin(); err != nil {
		return nil, x.metrics.failed(err)
	}
	defer m.end()
	err = x.tags.values(m, name, "", func(value string) (bool, error) {
		ok, err := f.match(value)
		if ok && err == nil {
			n := x.tags.count(appendPair(nil, name, value))
			m.work += 2 + n/(blockFill*64)
			values = append(values, Value{value, n})
		}
		return len(values) < m.allowed.Results, err
	})
	return values, x.metrics.failed(err)
}

// AutoCompleteTags returns the tags that begin with prefix, are not in exprs, and that a series has which exprs select;
// in order, at most limit (Options.MaxResults if 0). Without exprs these are the tags of all series.
func (x *Index) AutoCompleteTags(ctx context.Context, exprs []string, prefix string, limit int) ([]string, error) {
	used := map[string]bool{}
	for _, e := range exprs {
		if c, err := parseExpr(e, x.opts.MatchTimeout); err == nil {
			used[c.tag] = true
		}
	}
	return x.complete(ctx, exprs, limit, func(m *meter, fn func(string) (bool, error)) error {
		return x.tags.distinct(m, nil, prefix, fn)
	}, func(tags []tag, add func(string)) {
		for _, t := range tags {
			if strings.HasPrefix(t.name, prefix) && !used[t.name] {
				add(t.name)
			}
		}
	})
}

// AutoCompleteValues returns the values of a tag that begin with prefix and that a series has which exprs select; in
// order, at most limit (Options.MaxResults if 0). Without exprs these are the values of all series.
func (x *Index) AutoCompleteValues(ctx context.Context, exprs []string, name, prefix string, limit int) ([]string,
	error) {
	if name == "" {
		return nil, errTag
	}
	return x.complete(ctx, exprs, limit, func(m *meter, fn func(string) (bool, error)) error {
		return x.tags.values(m, name, prefix, fn)
	}, func(tags []tag, add func(string)) {
		for _, t := range tags {
			if t.name == name && strings.HasPrefix(t.value, prefix) {
				add(t.value)
			}
		}
	})
}

// complete returns up to limit strings: without exprs those that list gives in order, else the least of those that pick
// takes from the series that exprs select.
func (x *Index) complete(ctx context.Context, exprs []string, limit int,
	list func(m *meter, fn func(string) (bool, error)) error, pick func(tags []tag, add func(string))) ([]string,
	error) {
	m := x.tagMeter(ctx, exprs, Budget{Results: limit})
	limit = m.allowed.Results
	if len(exprs) == 0 {
		var found []string
		if err := m.begin(); err != nil {
			return nil, x.metrics.failed(err)
		}
		defer m.end()
		err := list(m, func(s string) (bool, error) {
			found = append(found, s)
			return len(found) < limit, nil
		})
		return found, x.metrics.failed(err)
	}
	// Of more strings than are needed the least are kept now and then, so that a tag with a million values needs
	// little memory. cut is the greatest that is needed since.
	seen := map[string]bool{}
	cut, full := "", false
	least := func() []string {
		found := slices.Sorted(maps.Keys(seen))
		return found[:min(len(found), limit)]
	}
	add := func(s string) {
		if seen[s] || full && s > cut {
			return
		}
		seen[strings.Clone(s)] = true
		if len(seen) < 2*limit+1000 {
			return
		}
		found := least()
		clear(seen)
		for _, s := range found {
			seen[s] = true
		}
		cut, full = found[len(found)-1], true
	}
	err := x.selectTagged(m, exprs, func(_ string, tags []tag) error {
		pick(tags, add)
		return nil
	})
	if err != nil {
		return nil, x.metrics.failed(err)
	}
	return least(), nil
}
