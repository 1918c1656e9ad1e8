// Package calendar answers at which times a named calendar is active. Package schedule asks which checks may run, silence
// when silences act, the intake and lateness which results are excused, the API for previews, and filters whether an event
// is in a calendar.
//
// A definition is compiled once (Compile), and Calendars keeps the compiled ones of the present snapshot. A Calendar
// remembers its times of some weeks, so Active costs a search in a short list. Days and times of day are in the calendar's
// time zone, whatever its clocks do.
//
// A calendar that is missing, cannot be read, or needs such a calendar has a problem (Calendar.Problem). Callers then do
// what is safe: a check runs, a silence does not act, a filter's question is answered with no.
package calendar

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Window is a time in which a calendar is active. End does not belong to it. Begin and End are cut to the range of the
// question.
type Window struct {
	Begin, End time.Time
	Name       string // of the day or event; "" if it has none
}

// span is a Window in Unix seconds.
type span struct {
	begin, end int64
	name       string
}

// source yields the spans that overlap a range, in any order.
type source func(from, to int64) []span

const (
	// pageBefore and pageAfter are what a Calendar remembers around the time of a question.
	pageBefore, pageAfter = 8 * 24 * 3600, 32 * 24 * 3600
	// maxLength bounds the length of one window. Spans of events that are longer are cut.
	maxLength = 400 * 24 * 3600
	// maxName bounds the name of a window, in bytes.
	maxName = 100
)

// Calendar is a compiled calendar. It is safe for concurrent use.
type Calendar struct {
	Problem  string // why it counts as missing; "" if it does not
	Circular bool   // the problem is that it includes itself

	own, except   []source
	include, less []*Calendar // of other calendars
	perYear       int         // times that a search of a year goes through, about, with those of other calendars

	page    atomic.Pointer[page]
	filling sync.Mutex // one caller computes a page
}

// page has the times of a calendar in a range.
type page struct {
	from, to int64
	spans    []span // in order, apart from each other
	would    []span // as spans, but without the exceptions; nil if the calendar has none
	except   []span // the exceptions, in any order
}

// covers reports whether one of some spans has a time. The spans are in order, and apart from each other.
func covers(spans []span, t int64) bool {
	i := endsAfter(spans, t)
	return i < len(spans) && spans[i].begin <= t
}

// endsAfter returns the index of the first of some spans that ends after a time. The spans are in order, and apart from each
// other.
func endsAfter(spans []span, t int64) int {
	return sort.Search(len(spans), func(i int) bool { return spans[i].end > t })
}

// Active reports whether the calendar is active at a time. One with a problem never is.
func (c *Calendar) Active(at time.Time) bool {
	return c.Problem == "" && covers(c.pageOf(at.Unix()).spans, at.Unix())
}

// ActiveOr reports whether the calendar is active at a time, and else the name of its exception without which it would be, such
// as a holiday; "" if there is none.
func (c *Calendar) ActiveOr(at time.Time) (active bool, exception string) {
	if c.Problem != "" {
		return false, ""
	}
	t := at.Unix()
	p := c.pageOf(t)
	if covers(p.spans, t) {
		return true, ""
	}
	if !covers(p.would, t) {
		return false, ""
	}
	for _, s := range p.except {
		if s.begin <= t && t < s.end && s.name != "" && (exception == "" || s.name < exception) {
			exception = s.name
		}
	}
	return false, exception
}

// pageOf returns a page with a time.
func (c *Calendar) pageOf(t int64) *page {
	p := c.page.Load()
	if p != nil && p.from <= t && t < p.to {
		return p
	}
	// A question about another time must not replace the present, nor have others wait: the times of a far year take long.
	if now := time.Now().Unix(); p != nil && t < p.from || t < now-pageBefore || t > now+pageBefore {
		return c.fill(t-pageBefore, t+pageAfter)
	}
	c.filling.Lock()
	defer c.filling.Unlock()
	if p = c.page.Load(); p == nil || t >= p.to {
		p = c.fill(t-pageBefore, t+pageAfter)
		c.page.Store(p)
	}
	return p
}

func (c *Calendar) fill(from, to int64) *page {
	p := &page{from: from, to: to}
	known := map[*Calendar][]span{}
	would := joined(collect(c.own, c.include, from, to, known))
	if len(c.except)+len(c.less) == 0 {
		p.spans = merged(would)
		return p
	}
	p.except = collect(c.except, c.less, from, to, known)
	p.would, p.spans = merged(would), merged(subtract(would, merged(p.except)))
	return p
}

// Next returns when the answer of Active changes next after a time; the zero time if not until Horizon.
func (c *Calendar) Next(from time.Time) time.Time {
	if c.Problem != "" {
		return time.Time{}
	}
	t := from.Unix()
	active := c.Active(from)
	p := c.pageOf(t)
	end := t + int64(Horizon/time.Second)
	for step := int64(pageAfter); ; step *= 2 {
		if i := endsAfter(p.spans, t); i == len(p.spans) {
			if active { // the span before ended with its page
				return time.Unix(t, 0)
			}
		} else if s := p.spans[i]; active && s.begin > t {
			return time.Unix(t, 0)
		} else if active && s.end < p.to {
			return time.Unix(s.end, 0)
		} else if !active {
			return time.Unix(max(s.begin, from.Unix()+1), 0)
		}
		if t = p.to; t >= end {
			return time.Time{}
		}
		p = c.fill(t, t+step)
	}
}

// Windows returns the times in a range in which the calendar is active, by begin: at most limit, and whether there are more.
// Times with different names are apart.
func (c *Calendar) Windows(from, to time.Time, limit int) (windows []Window, more bool) {
	if c.Problem != "" {
		return nil, false
	}
	for _, s := range c.spans(from.Unix(), to.Unix(), map[*Calendar][]span{}) {
		if len(windows) == limit {
			return windows, true
		}
		windows = append(windows, Window{time.Unix(s.begin, 0), time.Unix(s.end, 0), s.name})
	}
	return windows, false
}

// spans returns the spans in a range, by begin. Those of one name are apart. known has the answers so far, because
// calendars may be included on several ways.
func (c *Calendar) spans(from, to int64, known map[*Calendar][]span) []span {
	if got, ok := known[c]; ok {
		return got
	}
	out := joined(collect(c.own, c.include, from, to, known))
	if len(c.except)+len(c.less) > 0 {
		out = subtract(out, merged(collect(c.except, c.less, from, to, known)))
	}
	known[c] = out
	return out
}

// collect returns the spans of sources and of other calendars in a range, cut to it, in any order.
func collect(sources []source, others []*Calendar, from, to int64, known map[*Calendar][]span) (out []span) {
	for _, f := range sources {
		for _, s := range f(from, to) {
			if s.begin, s.end = max(s.begin, from), min(s.end, to); s.begin < s.end {
				out = append(out, s)
			}
		}
	}
	for _, other := range others {
		out = append(out, other.spans(from, to, known)...)
	}
	return out
}

// Excepted returns the times with a name that the calendar excepts in a range, by begin, limit at most: those because of
// which it is not active although it would be.
func (c *Calendar) Excepted(from, to time.Time, limit int) (windows []Window) {
	if c.Problem != "" || len(c.except)+len(c.less) == 0 {
		return nil
	}
	p := c.fill(from.Unix(), to.Unix())
	for _, s := range joined(p.except) {
		i := endsAfter(p.would, s.begin)
		if s.name == "" || i == len(p.would) || p.would[i].begin >= s.end {
			continue
		}
		if windows = append(windows, Window{time.Unix(s.begin, 0), time.Unix(s.end, 0), s.name}); len(windows) == limit {
			break
		}
	}
	return windows
}

// joined returns spans by begin, and joins those of one name that touch.
func joined(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int {
		if a.begin != b.begin {
			return int(min(1, max(-1, a.begin-b.begin)))
		}
		return strings.Compare(a.name, b.name)
	})
	last := map[string]int{}
	out := spans[:0]
	for _, s := range spans {
		if i, ok := last[s.name]; ok && out[i].end >= s.begin {
			out[i].end = max(out[i].end, s.end)
			continue
		}
		last[s.name] = len(out)
		out = append(out, s)
	}
	return out
}

// merged returns the same times without names.
func merged(spans []span) []span {
	bare := slices.Clone(spans)
	for i := range bare {
		bare[i].name = ""
	}
	return joined(bare)
}

// subtract takes spans that are apart and in order out of others.
func subtract(spans, out []span) (left []span) {
	for _, s := range spans {
		i := endsAfter(out, s.begin)
		for ; i < len(out) && out[i].begin < s.end; i++ {
			if out[i].begin > s.begin {
				left = append(left, span{s.begin, out[i].begin, s.name})
			}
			s.begin = out[i].end
		}
		if s.begin < s.end {
			left = append(left, s)
		}
	}
	slices.SortStableFunc(left, func(a, b span) int { return int(min(1, max(-1, a.begin-b.begin))) })
	return left
}

// Gate lets something happen only at the times of some calendars, and not at those of others. A nil Gate is always open.
// It is safe for concurrent use.
type Gate struct{ within, without []*Calendar }

// NewGate makes the gate of a check. find returns a calendar of the check's namespace. missing says what is wrong with
// calendars; the gate acts as if they let the check run. It is nil if the check has no calendars.
func NewGate(c *resource.CheckCalendars, find func(name string) *Calendar) (g *Gate, missing []string) {
	if c.Empty() {
		return nil, nil
	}
	g = new(Gate)
	known := func(name string) *Calendar {
		found := find(name)
		if found.Problem != "" {
			missing = append(missing, found.Problem)
			return nil
		}
		return found
	}
	safe := true
	for _, name := range c.RunWithin {
		if found := known(name); found != nil {
			g.within = append(g.within, found)
		} else {
			safe = false
		}
	}
	if !safe {
		g.within = nil
	}
	for _, name := range c.NotWithin {
		if found := known(name); found != nil {
			g.without = append(g.without, found)
		}
	}
	return g, missing
}

// Open reports whether it may happen at a time.
func (g *Gate) Open(at time.Time) bool {
	if g == nil {
		return true
	}
	active := func(c *Calendar) bool { return c.Active(at) }
	return (len(g.within) == 0 || slices.ContainsFunc(g.within, active)) && !slices.ContainsFunc(g.without, active)
}

// Next returns when the answer of Open may change next; the zero time if not until Horizon.
func (g *Gate) Next(from time.Time) (next time.Time) {
	if g == nil {
		return next
	}
	for _, list := range [][]*Calendar{g.within, g.without} {
		for _, c := range list {
			if at := c.Next(from); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// Closed returns the times in a range at which it may not happen, at most limit. Beyond the last of them, when they are that
// many, the gate is not described.
func (g *Gate) Closed(from, to time.Time, limit int) (closed []Window) {
	if g == nil {
		return nil
	}
	begin, end := from.Unix(), to.Unix()
	known := map[*Calendar][]span{}
	all := func(of []*Calendar) (out []span) {
		for _, c := range of {
			out = append(out, c.spans(begin, end, known)...)
		}
		return merged(out)
	}
	shut := all(g.without)
	if len(g.within) > 0 {
		shut = merged(append(subtract([]span{{begin: begin, end: end}}, all(g.within)), shut...))
	}
	for _, s := range shut[:min(len(shut), limit)] {
		closed = append(closed, Window{Begin: time.Unix(s.begin, 0), End: time.Unix(s.end, 0)})
	}
	return closed
}

// ClosedUntil returns when the last time ended, or will end, that was closed at any moment of a range; the zero time if it
// was open throughout.
func (g *Gate) ClosedUntil(from, to time.Time) time.Time {
	if g == nil {
		return time.Time{}
	}
	closed := g.Closed(from, to.Add(time.Second), 1<<20)
	if len(closed) == 0 {
		return time.Time{}
	}
	last := closed[len(closed)-1].End
	if !last.After(to) {
		return last
	}
	for step := 24 * time.Hour; step < 2*Horizon; step *= 4 { // it is closed now
		if ahead := g.Closed(to, to.Add(step), 1); len(ahead) == 0 || ahead[0].End.Before(to.Add(step)) {
			if len(ahead) > 0 {
				return ahead[0].End
			}
			return to
		}
	}
	return to.Add(Horizon)
}
