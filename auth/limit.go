package auth

import (
	"log/slog"
	"sync"

	"github.com/lapwing-monitoring/lapwing/selector"
)

// Permission is the roles' answer to a request: yes, no, or yes for objects with certain labels.
type Permission struct {
	whole bool
	limit *selector.Selector // unless whole; nil = no
	texts []string           // the selectors of limit as texts
	by    Source
}

// Whole reports whether the request is allowed for all objects.
func (p Permission) Whole() bool { return p.whole }

// Denied reports whether the request is allowed for no object.
func (p Permission) Denied() bool { return !p.whole && p.limit == nil }

// Selector selects the objects for which the request is allowed, if it is not denied; nil for all.
func (p Permission) Selector() *selector.Selector {
	if p.whole {
		return nil
	}
	return p.limit
}

// Labels are the label selectors of which an object must match one; none if the request is allowed for all objects or
// for none.
func (p Permission) Labels() []string { return p.texts }

// Allows reports whether the request is allowed for an object.
func (p Permission) Allows(f selector.Fields) bool {
	return p.whole || p.limit != nil && p.limit.Match(f)
}

// By is a binding that allows the request; the zero Source if none does.
func (p Permission) By() Source { return p.by }

// limits caches the parsed selectors of rules. There are few, one for each text in a role. The map is emptied when
// changes of roles have made it large.
type limits struct {
	log *slog.Logger

	mu     sync.Mutex                    // guards parsed
	parsed map[string]*selector.Selector // nil for invalid selectors
}

const maxLimits = 10_000

// selector returns a rule's parsed selector; nil if it is invalid and so allows nothing.
func (l *limits) selector(text string) *selector.Selector {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, known := l.parsed[text]; known {
		return s
	}
	s, err := selector.Parse(text, "")
	if err != nil {
		l.log.Warn("a role's label selector cannot be read, so its rule allows nothing", "selector", text, "err", err)
	}
	if l.parsed == nil || len(l.parsed) >= maxLimits {
		l.parsed = map[string]*selector.Selector{}
	}
	l.parsed[text] = s
	return s
}
