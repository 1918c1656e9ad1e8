package schedule

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// matches are the entities for which all of some expressions are true. All checks of a namespace whose proxy requests
// have the same expressions share one, so each expression is evaluated once for each definition of an entity.
type matches struct {
	key         matchKey
	users       int // checks and runs that have it; guarded by the table's mu
	expressions []*filter.EntityExpression
	invalid     []error // why others are left out

	mu     sync.Mutex // guards the fields below; held while expressions are evaluated
	known  []match    // by the entities' names
	list   []*resource.EntityConfig
	listOf any // the version of the entities for which list is complete; nil if it is for none
}

// match says whether an entity's definition, which never changes, matches.
type match struct {
	entity  *resource.EntityConfig
	matches bool
	again   bool // there was no answer
}

type matchKey struct{ namespace, expressions string }

func keyOf(c *resource.CheckConfig) matchKey {
	return matchKey{c.Metadata.Namespace, strings.Join(c.ProxyRequests.EntityAttributes, "\x00")}
}

// matchTable holds the matches that are in use.
type matchTable struct {
	mu  sync.Mutex
	all map[matchKey]*matches
}

// acquire returns the matches for a check with proxy requests, for one user, who must release them.
func (s *Scheduler) acquire(c *resource.CheckConfig) *matches {
	k := keyOf(c)
	s.matches.mu.Lock()
	defer s.matches.mu.Unlock()
	m := s.matches.all[k]
	if m == nil {
		m = &matches{key: k}
		for _, text := range c.ProxyRequests.EntityAttributes {
			if x, err := s.opts.Compile(c.Metadata.Namespace, c.Metadata.Name, text); err != nil {
				m.invalid = append(m.invalid, err)
			} else {
				m.expressions = append(m.expressions, x)
			}
		}
		s.matches.all[k] = m
	}
	m.users++
	return m
}

// Proxies returns how many entities the last tick of a check with proxy requests was for. It is not known before the
// first tick, nor while the expressions are evaluated.
func (s *Scheduler) Proxies(c *resource.CheckConfig) (n int, known bool) {
	s.matches.mu.Lock()
	m := s.matches.all[keyOf(c)]
	s.matches.mu.Unlock()
	if m == nil || !m.mu.TryLock() {
		return 0, false
	}
	defer m.mu.Unlock()
	return len(m.list), m.listOf != nil || len(m.expressions) == 0
}

// retain adds a user.
func (s *Scheduler) retain(m *matches) {
	s.matches.mu.Lock()
	defer s.matches.mu.Unlock()
	m.users++
}

func (s *Scheduler) release(m *matches) {
	if m == nil {
		return
	}
	s.matches.mu.Lock()
	defer s.matches.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(s.matches.all, m.key)
	}
}

// proxiesOf acquires the matches of a check, and tells its author which expressions are left out.
func (s *Scheduler) proxiesOf(c *resource.CheckConfig) *matches {
	m := s.acquire(c)
	for _, err := range m.invalid {
		s.metrics.proxyErrors.WithLabelValues("expression").Inc()
		s.rare.Warn("expression of proxy requests is ignored", c.Metadata.Namespace+"/"+c.Metadata.Name,
			"namespace", c.Metadata.Namespace, "check", c.Metadata.Name, "err", err)
	}
	return m
}

// matching returns the matching entities, in the order of their names; none if no expression is valid. It looks at the
// entities only when they have changed, and evaluates the expressions only for new definitions. The caller must not
// change the result.
func (s *Scheduler) matching(ctx context.Context, c *resource.CheckConfig, p *matches) []*resource.EntityConfig {
	if len(p.expressions) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	entities, version := s.defs.entities(c.Metadata.Namespace)
	if p.listOf != nil && p.listOf == version {
		return p.list
	}
	known, old := make([]match, 0, len(p.known)), p.known
	var ask []int // the entities without an answer
	for e := range entities {
		for len(old) > 0 && old[0].entity.Metadata.Name < e.Metadata.Name {
			old = old[1:]
		}
		m := match{entity: e, again: true}
		if len(old) > 0 && old[0].entity == e {
			m.matches, m.again = old[0].matches, false
		} else {
			ask = append(ask, len(known))
		}
		known = append(known, m)
	}
	all := s.matchNew(ctx, c, p, known, ask)
	// An answer that has come is kept, even if the time for the others was over.
	p.known = slices.DeleteFunc(slices.Clone(known), func(m match) bool { return m.again })
	if !all {
		return nil
	}
	var out []*resource.EntityConfig
	complete := true
	for _, m := range known {
		complete = complete && !m.again
		if m.matches {
			out = append(out, m.entity)
		}
	}
	if p.list, p.listOf = out, nil; complete {
		p.listOf = version
	}
	return out
}
