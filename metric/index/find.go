package index

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Node is a node of the tree of paths. It can be a series (Leaf), have nodes below it (Branch), or both.
type Node struct {
	Path         string
	Leaf, Branch bool
}

// Find returns the nodes that a pattern matches, sorted by path. A pattern is a path of nodes with dots between them: *
// is any run of characters, ? one, [a-z] and [!a] classes, {a,b} alternatives (also within each other), a backslash
// makes the next character ordinary, and a node ** is any number of levels. Wildcards never match a dot. A pattern with
// a ';' is the full name of a series with tags.
//
// The error is a *BudgetError if the query needs more than budget or ctx allow, and a *PatternError if the pattern is
// too large.
func (x *Index) Find(ctx context.Context, pattern string, budget Budget) ([]Node, error) {
	var nodes []Node
	var buf []byte
	err := x.find(ctx, pattern, budget, func(key []byte, leaf, branch bool) bool {
		buf = appendPath(buf[:0], key)
		nodes = append(nodes, Node{string(buf), leaf, branch})
		return true
	}, func() { nodes = append(nodes, Node{Path: pattern, Leaf: true}) })
	if err != nil {
		return nil, x.metrics.failed(err)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	return nodes, nil
}

// Leaves is Find for series only: it returns their names, sorted.
func (x *Index) Leaves(ctx context.Context, pattern string, budget Budget) ([]string, error) {
	var names []string
	var buf []byte
	err := x.find(ctx, pattern, budget, func(key []byte, leaf, _ bool) bool {
		if leaf {
			buf = appendPath(buf[:0], key)
			names = append(names, string(buf))
		}
		return leaf
	}, func() { names = append(names, pattern) })
	if err != nil {
		return nil, x.metrics.failed(err)
	}
	slices.Sort(names)
	return names, nil
}

// find calls emit for each node that matches; emit reports whether it counts as a result. For a series with tags it
// calls exact.
func (x *Index) find(ctx context.Context, text string, budget Budget, emit func(key []byte, leaf, branch bool) bool,
	exact func()) error {
	x.metrics.globs.Inc()
	m := &meter{ctx: ctx, query: query("pattern", text), allowed: x.budget(budget), lock: &x.mu}
	if tagged(text) {
		if err := ctx.Err(); err != nil {
			return m.late(err)
		}
		if x.Has(text) {
			exact()
		}
		return nil
	}
	if isLiteral(text) {
		return x.findLiteral(m, text, emit)
	}
	p, err := parsePattern(text)
	if err != nil {
		return err
	}
	if err := m.begin(); err != nil {
		return err
	}
	defer m.end()
	return x.walk(m, p, emit)
}

// query names a query in errors; a long one is cut.
func query(kind, text string) string {
	if len(text) > 256 {
		return fmt.Sprintf("%s %q (%d bytes)", kind, strings.ToValidUTF8(text[:256], "")+"…", len(text))
	}
	return fmt.Sprintf("%s %q", kind, text)
}

func (x *Index) findLiteral(m *meter, path string, emit func(key []byte, leaf, branch bool) bool) error {
	key := appendOrder(make([]byte, 0, 128), path)
	if err := m.begin(); err != nil {
		return err
	}
	defer m.end()
	c := cursor{s: &x.paths}
	if !c.seek(key) {
		return nil
	}
	// In the order of keys a path's own key is first, and the nodes below it follow at once.
	leaf := string(c.key) == string(key)
	branch := (!leaf || c.next()) && below(c.key, key)
	if (leaf || branch) && emit(key, leaf, branch) {
		return m.result()
	}
	return nil
}

// below reports whether key is of a node below path.
func below(key, path []byte) bool {
	return len(key) > len(path) && key[len(path)] == 0 && string(key[:len(path)]) == string(path)
}

// level is one node of the key that a walk is at.
type level struct {
	start, end int    // of the node in the key
	states     states // before the node
}

// walk looks at the keys in order. For each it follows the pattern node by node as long as that can match. Where it
// cannot, walk computes the least key that can match behind it and leaps there. Keys share their first nodes with the
// key before, so walk keeps the states of those.
func (x *Index) walk(m *meter, p *pattern, emit func(key []byte, leaf, branch bool) bool) error {
	end := p.end()
	var levels []level // of key, as far as they were followed
	var key, target []byte
	start := p.closure(1)
	target, _ = p.candidate(nil, start, nil, true)
	c := cursor{s: &x.paths}
	fresh := true
	for {
		if paused, err := m.pause(); err != nil {
			return err
		} else if paused {
			fresh = true
		}
		if err := m.visit(1, p.work); err != nil {
			return err
		}
		if fresh {
			if !c.seek(target) {
				return nil
			}
			fresh = false
		} else if !c.forward(target) {
			return nil
		}
		// Keep the levels that the new key has in common with the last one.
		same := shared(key, c.key)
		keep := 0
		for keep < len(levels) && (levels[keep].end < same || levels[keep].end == same &&
			(same == len(c.key) || c.key[same] == 0)) {
			keep++
		}
		key = append(key[:0], c.key...)
		levels = levels[:keep]
		at, now := 0, start
		if keep > 0 {
			l := levels[keep-1]
			at = l.end + 1
			var work int
			now, work = p.step(l.states, key[l.start:l.end])
			m.work += work
		}
		dead := false
		for {
			// now are the states before the node at at
			stop := at
			for stop < len(key) && key[stop] != 0 {
				stop++
			}
			levels = append(levels, level{at, stop, now})
			next, work := p.step(now, key[at:stop])
			m.work += work
			if next&end != 0 {
				leaf := stop == len(key)
				branch := !leaf || c.next() && below(c.key, key)
				if emit(key[:stop], leaf, branch) {
					if err := m.result(); err != nil {
						return err
					}
				}
			}
			now = next &^ end
			if now == 0 {
				dead = true
				break
			}
			if stop == len(key) {
				break
			}
			at = stop + 1
		}
		if !dead {
			// The key ends here and may have matches below it.
			target = append(append(target[:0], key...), 0)
			target, _ = p.candidate(target, now, nil, true)
			continue
		}
		found := false
		for i := len(levels) - 1; i >= 0 && !found; i-- {
			l := levels[i]
			target = append(target[:0], key[:l.start]...)
			target, found = p.candidate(target, l.states, key[l.start:l.end], false)
		}
		if !found {
			return nil
		}
	}
}
