package view

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidwall/btree"

	"github.com/lapwing-monitoring/lapwing/state"
)

// item is an event in a view. It is replaced and not changed, but for version.
type item struct {
	key     state.Key
	since   int64
	status  uint32
	class   Class
	version uint64 // of the view, in which the event came or changed last
	group   *group
}

// group has the number of events of each class in one group.
type group struct {
	value  string
	counts Counts
}

// content is what a view has: its events in order, counted.
type content struct {
	query  Query
	items  map[state.Key]*item
	tree   *btree.BTreeG[*item]
	counts Counts
	groups map[string]*group // nil for a query without groups
}

func newContent(query Query, size int) *content {
	c := &content{
		query: query, items: make(map[state.Key]*item, size),
		tree: btree.NewBTreeGOptions(query.Order.less, btree.Options{NoLocks: true}),
	}
	if query.Group.Grouped() {
		c.groups = map[string]*group{}
	}
	return c
}

// survey makes the content from all events.
func survey(ctx context.Context, of *state.State, query Query, version uint64) (*content, error) {
	viewer := of.Viewer(query.Namespace, query.Selector, query.Group.labels())
	found := make([][]*item, viewer.Partitions())
	values := make([][]string, viewer.Partitions())
	errs := make([]error, viewer.Partitions())
	var working sync.WaitGroup
	for i := range found {
		working.Go(func() {
			errs[i] = viewer.All(ctx, i, func(g state.Glance) {
				found[i] = append(found[i], newItem(&g, version))
				if query.Group.Grouped() {
					values[i] = append(values[i], query.Group.of(&g))
				}
			})
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	size := 0
	for _, some := range found {
		size += len(some)
	}
	c := newContent(query, size)
	// The map takes about as long as sorting, so do both at once.
	indexed := make(chan struct{})
	all := slices.Concat(found...)
	go func() {
		defer close(indexed)
		for _, it := range all {
			c.items[it.key] = it
		}
	}()
	for i, some := range found {
		for k, it := range some {
			if c.groups != nil {
				it.group = c.groupOf(values[i][k])
			}
			c.count(it, 1)
		}
		working.Go(func() { slices.SortFunc(some, query.Order.compare) })
	}
	working.Wait()
	for len(found) > 0 {
		first := -1
		for i, some := range found {
			if len(some) > 0 && (first < 0 || query.Order.less(some[0], found[first][0])) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		c.tree.Load(found[first][0])
		found[first] = found[first][1:]
	}
	<-indexed
	return c, nil
}

// inherit gives the events that are as they were before their versions, so that no reader gets them again.
func (c *content) inherit(before *content) {
	for key, it := range c.items {
		if was, ok := before.items[key]; ok && was.since == it.since && was.status == it.status && was.class == it.class {
			it.version = was.version
		}
	}
}

func newItem(g *state.Glance, version uint64) *item {
	return &item{key: g.Key, since: g.Since, status: g.Status, class: ClassOf(g), version: version}
}

// set takes an event in, or its change.
func (c *content) set(g *state.Glance, version uint64) {
	it := newItem(g, version)
	c.remove(g.Key)
	if c.groups != nil {
		it.group = c.groupOf(c.query.Group.of(g))
	}
	c.items[g.Key] = it
	c.tree.Set(it)
	c.count(it, 1)
}

// remove takes an event out, and reports whether it was there.
func (c *content) remove(key state.Key) bool {
	it, ok := c.items[key]
	if !ok {
		return false
	}
	delete(c.items, key)
	c.tree.Delete(it)
	c.count(it, -1)
	return true
}

func (c *content) count(it *item, by int) {
	c.counts[it.class] += by
	if it.group == nil {
		return
	}
	it.group.counts[it.class] += by
	if it.group.counts == (Counts{}) {
		delete(c.groups, it.group.value)
	}
}

func (c *content) groupOf(value string) *group {
	g, ok := c.groups[value]
	if !ok {
		g = &group{value: value}
		c.groups[value] = g
	}
	return g
}
