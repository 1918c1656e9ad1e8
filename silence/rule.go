package silence

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Rule is a silence with parsed selectors and windows. It never changes and is safe for concurrent use.
type Rule struct {
	silence  *resource.Silenced
	selector *selector.Selector // nil if it has none
	terms    []*selector.Term
	limit    *selector.Selector // the parsed LimitedTo; nil if there is none
	passing  []bool             // by term: its answer differs between events or over time
	varies   bool               // there are such terms
	windows  []window
	// calendars are those that the silence names, without missing ones.
	calendars []*calendar.Calendar
	phase     atomic.Pointer[phase]
	asking    sync.Mutex // one caller at a time computes the windows, which may take a while
}

// phase is a time over which the windows have one answer.
type phase struct {
	from, until int64 // Unix seconds
	open        bool
}

func (p *phase) has(t int64) bool { return p != nil && p.from <= t && t < p.until }

// Compile parses a silence's selectors and windows. Its errors are for the author of the silence. find returns a calendar
// of the silence's namespace.
func Compile(s *resource.Silenced, find func(name string) *calendar.Calendar) (*Rule, error) {
	r := &Rule{silence: s}
	if s.Selects() {
		sel, err := selector.Parse(s.LabelSelector, s.FieldSelector)
		if err != nil {
			if _, label := selector.Parse(s.LabelSelector, ""); label != nil {
				return nil, resource.InField("label_selector", err)
			}
			return nil, resource.InField("field_selector", err)
		}
		if sel == nil {
			return nil, errors.New("the selectors of a silence are empty")
		}
		r.selector, r.terms = sel, sel.Terms()
		for _, t := range r.terms {
			if !t.Label && !answerable(t.Name) {
				err := events.Check(sel)
				if err == nil {
					err = fmt.Errorf("field selector: a silence cannot ask for %s: only for labels, the fields of the entity's "+
						"definition, event.check.status, event.is_incident, and the name, handlers, pipelines, subscriptions, "+
						"runtime_assets, publish and round_robin of the check", t.Name)
				}
				return nil, resource.InField("field_selector", err)
			}
			passing := t.Timed() || t.Name == fieldStatus || t.Name == fieldIncident
			r.passing = append(r.passing, passing)
			r.varies = r.varies || passing
		}
	}
	var limits []*selector.Selector
	for _, text := range s.LimitedTo {
		sel, err := selector.Parse(text, "")
		if err != nil {
			return nil, fmt.Errorf("limited_to: %w", err)
		}
		if sel == nil {
			return nil, errors.New("limited_to has a label selector that is empty")
		}
		limits = append(limits, sel)
	}
	if limits != nil {
		r.limit = selector.Any(limits...)
	}
	for i := range s.Windows {
		w, err := newWindow(&s.Windows[i], time.Unix(s.Begin, 0))
		if err != nil {
			return nil, resource.InField(fmt.Sprintf("windows[%d]", i), fmt.Errorf("window %d: %w", i+1, err))
		}
		r.windows = append(r.windows, w)
	}
	for _, name := range s.Calendars {
		if c := find(name); c.Problem == "" {
			r.calendars = append(r.calendars, c)
		}
	}
	return r, nil
}

// Holds reports whether the silence counts at a time.
func (r *Rule) Holds(now time.Time) bool {
	if r.silence.Begin > now.Unix() || r.silence.Expired(now) {
		return false
	}
	return !timed(r.silence) || r.open(now)
}

// timed reports whether a silence acts only in windows and calendars.
func timed(s *resource.Silenced) bool { return len(s.Windows)+len(s.Calendars) > 0 }

// open reports whether a time is in one of the windows or calendars.
func (r *Rule) open(now time.Time) bool {
	t := now.Unix()
	p := r.phase.Load()
	if p.has(t) {
		return p.open
	}
	if p != nil && t >= p.until && !r.asking.TryLock() {
		return p.open // the answer of a moment ago: thousands must not wait, nor all compute it
	} else if p == nil || t < p.until {
		r.asking.Lock()
	}
	defer r.asking.Unlock()
	if p = r.phase.Load(); !p.has(t) {
		open, until := r.at(time.Unix(t, 0))
		p = &phase{from: t, until: until.Unix(), open: open}
		r.phase.Store(p)
	}
	return p.open
}

// Period returns when a silence that counts at a time ends: the silence or its window. It is the zero time if it does
// not end by itself, or not for long.
func (r *Rule) Period(now time.Time) (ends time.Time) {
	if timed(r.silence) {
		ends = r.end(now.Truncate(time.Second))
	}
	if at := r.silence.ExpireAt; at != 0 && (ends.IsZero() || at < ends.Unix()) {
		ends = time.Unix(at, 0)
	}
	return ends
}

// Span is a time in which a silence counts. Its end is the zero time if it does not end by itself.
type Span struct{ Begins, Ends time.Time }

// Spans returns at most n times in which the silence counts, beginning with the present one.
func (r *Rule) Spans(now time.Time, n int) (spans []Span) {
	t := now.Truncate(time.Second)
	if begin := time.Unix(r.silence.Begin, 0); begin.After(t) {
		t = begin
	}
	limit := t.Add(horizon)
	for len(spans) < n && !r.silence.Expired(t) && t.Before(limit) {
		if timed(r.silence) {
			if open, until := r.at(t); !open {
				t = until
				continue
			}
		}
		span := Span{Begins: t, Ends: r.Period(t)}
		spans = append(spans, span)
		if span.Ends.IsZero() {
			break
		}
		t = span.Ends
	}
	return spans
}

// Changes returns when the answer of Holds changes next, by windows, beginning and end; the zero time if it stays for
// long.
func (r *Rule) Changes(now time.Time) time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	sooner(time.Unix(r.silence.Begin, 0))
	if r.silence.ExpireAt != 0 {
		sooner(time.Unix(r.silence.ExpireAt, 0))
	}
	if timed(r.silence) && !r.silence.Expired(now) {
		r.open(now)
		sooner(time.Unix(r.phase.Load().until, 0))
	}
	return next
}

// Covers reports whether the silence is about a subject, whatever the time in its windows.
func (r *Rule) Covers(s *resource.Silenceable, now time.Time) bool {
	return r.about(s, now) && r.within(s, now)
}

// within reports whether a subject is within the silence's limits.
func (r *Rule) within(s *resource.Silenceable, now time.Time) bool {
	return r.limit == nil || r.limit.MatchAt(view{s}, now)
}

func (r *Rule) about(s *resource.Silenceable, now time.Time) bool {
	if r.selector != nil {
		return r.selects(s, now)
	}
	one := r.silence
	if one.Check != "" && one.Check != "*" && one.Check != s.Check {
		return false
	}
	if one.Subscription == "" || one.Subscription == "*" || strings.HasPrefix(one.Subscription, entityPrefix) && one.Subscription[len(entityPrefix):] == s.Entity {
		return true
	}
	for subscription := range common(s) {
		if subscription == one.Subscription {
			return true
		}
	}
	return false
}

// selects evaluates the selectors.
func (r *Rule) selects(s *resource.Silenceable, now time.Time) bool {
	v := view{s}
	seconds := now.Unix()
	return r.selector.Decide(func(i int) selector.Verdict { return verdict(r.terms[i].Match(v, seconds)) }) == selector.Yes
}

// lasting evaluates the selectors for all events with the same names and traits.
func (r *Rule) lasting(s *resource.Silenceable) selector.Verdict {
	v := view{s}
	return r.selector.Decide(func(i int) selector.Verdict {
		if r.passing[i] {
			return selector.Unknown
		}
		return verdict(r.terms[i].Match(v, 0))
	})
}

func verdict(yes bool) selector.Verdict {
	if yes {
		return selector.Yes
	}
	return selector.No
}

const (
	fieldStatus   = "event.check.status"
	fieldIncident = "event.is_incident"
	ofEntity      = "event.entity"
)

// view shows a subject to selectors.
type view struct{ *resource.Silenceable }

// fields are the fields other than labels and the entity's.
var fields = map[string]func(*resource.Silenceable) selector.Value{
	"event.name":                 func(s *resource.Silenceable) selector.Value { return selector.Text(s.Entity + "/" + s.Check) },
	"event.namespace":            func(s *resource.Silenceable) selector.Value { return selector.Text(s.Namespace) },
	"event.check.namespace":      func(s *resource.Silenceable) selector.Value { return selector.Text(s.Namespace) },
	"event.check.name":           func(s *resource.Silenceable) selector.Value { return selector.Text(s.Check) },
	"event.entity.name":          func(s *resource.Silenceable) selector.Value { return selector.Text(s.Entity) },
	"event.entity.namespace":     func(s *resource.Silenceable) selector.Value { return selector.Text(s.Namespace) },
	fieldStatus:                  func(s *resource.Silenceable) selector.Value { return selector.Number(int64(s.Status)) },
	fieldIncident:                func(s *resource.Silenceable) selector.Value { return selector.Bool(s.Status != 0) },
	"event.check.handlers":       func(s *resource.Silenceable) selector.Value { return selector.List(s.Traits.Handlers) },
	"event.check.pipelines":      func(s *resource.Silenceable) selector.Value { return selector.List(s.Traits.Pipelines) },
	"event.check.subscriptions":  func(s *resource.Silenceable) selector.Value { return selector.List(s.Traits.Subscriptions) },
	"event.check.runtime_assets": func(s *resource.Silenceable) selector.Value { return selector.List(s.Traits.RuntimeAssets) },
	"event.check.publish":        func(s *resource.Silenceable) selector.Value { return selector.Bool(s.Traits.Publish) },
	"event.check.round_robin":    func(s *resource.Silenceable) selector.Value { return selector.Bool(s.Traits.RoundRobin) },
}

const (
	eventLabels = "event.labels."
	checkLabels = "event.check.labels."
)

// events are the fields of events. Those of which a silence can ask are some of them.
var events = selector.NamesOf((*resource.Event)(nil))

// CheckValues returns an error, for the author of a silence, if its field selector compares a field with a value that
// the field cannot have. Compile accepts that: a stored silence may have it.
func (r *Rule) CheckValues() error {
	return resource.InField("field_selector", events.Check(r.selector))
}

// answerable reports whether a view has a field.
func answerable(name string) bool {
	return fields[name] != nil || strings.HasPrefix(name, eventLabels) || strings.HasPrefix(name, checkLabels) ||
		selector.Knows(ofEntity, (*resource.EntityConfig)(nil), name)
}

func (v view) Field(name string) selector.Value {
	if f := fields[name]; f != nil {
		return f(v.Silenceable)
	}
	if key, ok := strings.CutPrefix(name, eventLabels); ok {
		return v.Label(key)
	}
	if key, ok := strings.CutPrefix(name, checkLabels); ok {
		return label(v.Traits.CheckLabels, key)
	}
	if v.Config == nil {
		return selector.Value{}
	}
	return selector.Of(ofEntity, v.Config).Field(name)
}

func (v view) Label(key string) selector.Value {
	for _, labels := range [...]map[string]string{v.Traits.EventLabels, v.Traits.CheckLabels} {
		if found := label(labels, key); !found.Missing() {
			return found
		}
	}
	if v.Config == nil {
		return selector.Value{}
	}
	return selector.LabelOf(&v.Config.Metadata, v.Config, key)
}

func label(labels map[string]string, key string) selector.Value {
	if v, ok := labels[key]; ok {
		return selector.Text(v)
	}
	return selector.Value{}
}
