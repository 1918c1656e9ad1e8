package auth

import (
	"log/slog"
	"sync"

	"github.com/lapwing-monitoring/lapwing/selector"
)

// Permission is what the roles say to a request: yes, no, or yes for objects with certain labels.
type Permission struct {
	whole bool
	limit *selector.Selector // unless whole; nil = no
	texts []string           // of limit: what the rules say
	by    Source
}

// Whole says that it is allowed whatever the object's labels.
func (p Permission) Whole() bool { return p.whole }

// Denied says that it is allowed for no object.
func (p Permission) Denied() bool { return !p.whole && p.limit == nil }

// Selector selects the objects that it is allowed for, if it is not denied; nil for all.
func (p Permission) Selector() *selector.Selector {
	if p.whole {
		return nil
	}
	return p.limit
}

// Labels are the label selectors one of which an object must fit; none if it is allowed for all objects or for no one.
func (p Permission) Labels() []string { return p.texts }

// Allows says whether it is allowed for an object.
func (p Permission) Allows(f selector.Fields) bool {
	return p.whole || p.limit != nil && p.limit.Match(f)
}

// By is a binding that allows it; the zero Source if none does.
func (p Permission) By() Source { return p.by }

// limits are the parsed selectors of rules. There are as many as roles have texts, and few; the map starts anew when
// changes of roles have made it large.
type limits struct {
	log *slog.Logger

	mu     sync.Mutex                    // guards parsed
	parsed map[string]*selector.Selector // nil for those that cannot be parsed
}

const maxLimits = 10_000

// selector is the parsed form of a rule's selector; nil if it cannot be parsed and so allows nothing.
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
