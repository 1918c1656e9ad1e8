package silence

import (
	"hash/maphash"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Matcher finds the silences that apply to events. Those of a subscription or check are looked up by name. Those with
// selectors must be evaluated; their answer for a check of an entity is cached until a silence, the entity, or the
// check's definition changes. Use NewMatcher.
type Matcher struct {
	calendars *calendar.Calendars

	log     *slog.Logger
	seed    maphash.Seed
	current atomic.Pointer[index]
	mu      sync.Mutex // one at a time makes an index

	endingMu sync.Mutex
	// silences that a resolution has ended and that are not deleted yet, with the Unix second of the event's receipt
	ending map[resource.Name]int64
}

// NewMatcher makes a Matcher. It logs invalid silences, which apply to nothing; both arguments may be nil.
func NewMatcher(calendars *calendar.Calendars, logger *slog.Logger) *Matcher {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if calendars == nil {
		calendars = calendar.New(logger)
	}
	return &Matcher{calendars: calendars, log: logger.With("component", "silence"), seed: maphash.MakeSeed(), ending: map[resource.Name]int64{}}
}

// Subject is a result of a check of an entity that may be silenced.
type Subject struct {
	resource.Silenceable
	// Body is the encoded event, if there are no Traits.
	Body []byte
}

// index holds the silences of a snapshot, prepared for matching.
type index struct {
	snapshot  *config.Snapshot
	special   map[*resource.Silenced]*Rule
	calendars bool               // silences name calendars
	selecting map[string][]*Rule // by namespace, in the order of their names
	memory    memory
}

// memory caches which silences with selectors may apply to a check of an entity.
type memory struct {
	mu    sync.RWMutex
	known map[place]uint32 // index into sets
	sets  [][]*Rule
	byKey map[string]uint32 // of sets
}

// place identifies an entity's definition, and a hash of the check's name and the event's traits.
type place struct {
	entity *resource.EntityConfig
	sum    uint64
}

// maxRemembered bounds a memory, which is then emptied. It takes some 60 MiB.
const maxRemembered = 1 << 20

// Any reports whether there are silences.
func (m *Matcher) Any(sn *config.Snapshot) bool { return config.Len(sn, config.Silences) > 0 }

// Rules returns the valid silences of a namespace, or of all for "".
func (m *Matcher) Rules(sn *config.Snapshot, namespace string) iter.Seq2[*resource.Silenced, *Rule] {
	return func(yield func(*resource.Silenced, *Rule) bool) {
		ix := m.index(sn)
		for one := range config.List(ix.snapshot, config.Silences, namespace) {
			r := ix.special[one]
			if r == nil {
				if special(one) {
					continue
				}
				r = &Rule{silence: one}
			}
			if !yield(one, r) {
				return
			}
		}
	}
}

// Present is for callers that ask of many events what silences them now. It returns a function that names the silences
// of one event, or nil while there are no silences at all.
func (m *Matcher) Present(store *config.Store) func() func(*resource.Silenceable) []string {
	return func() func(*resource.Silenceable) []string {
		sn, now := store.Snapshot(), time.Now()
		if !m.Any(sn) {
			return nil
		}
		return func(s *resource.Silenceable) (names []string) {
			for _, one := range m.Match(sn, now, &Subject{Silenceable: *s}, nil) {
				names = append(names, one.Metadata.Name)
			}
			return names
		}
	}
}

// index returns the index of a snapshot. It is the same until a silence changes.
func (m *Matcher) index(sn *config.Snapshot) *index {
	if ix := m.current.Load(); ix.is(sn) {
		return ix
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.current.Load()
	if before.is(sn) {
		return before
	}
	moved := before != nil && !config.Same(before.snapshot, sn, config.Calendars)
	ix := &index{snapshot: sn, special: map[*resource.Silenced]*Rule{}, selecting: map[string][]*Rule{}}
	ix.memory.clear()
	for one := range config.List(sn, config.Silences, "") {
		if !special(one) {
			continue
		}
		var r *Rule
		ix.calendars = ix.calendars || len(one.Calendars) > 0
		if before != nil && (!moved || len(one.Calendars) == 0) {
			r = before.special[one]
		}
		if r == nil {
			var err error
			if r, err = Compile(one, m.find(sn, one)); err != nil { // the API refuses such a silence
				m.log.Error("silence cannot be read and applies to nothing", "namespace", one.Metadata.Namespace, "silence", one.Metadata.Name, "err", err)
				continue
			}
			if err := r.CheckValues(); err != nil { // the API refuses that now
				m.log.Warn("silence has a selector that matches nothing", "namespace", one.Metadata.Namespace, "silence", one.Metadata.Name,
					"err", err)
			}
		}
		ix.special[one] = r
		if r.selector != nil {
			ix.selecting[one.Metadata.Namespace] = append(ix.selecting[one.Metadata.Namespace], r)
		}
	}
	m.current.Store(ix)
	return ix
}

// is reports whether the index is the one of a snapshot.
func (ix *index) is(sn *config.Snapshot) bool {
	return ix != nil && config.Same(ix.snapshot, sn, config.Silences) &&
		(!ix.calendars || config.Same(ix.snapshot, sn, config.Calendars))
}

// find returns the function that finds the calendars of a silence. It logs those that are missing.
func (m *Matcher) find(sn *config.Snapshot, one *resource.Silenced) func(string) *calendar.Calendar {
	return func(name string) *calendar.Calendar {
		c := m.calendars.Find(sn, one.Metadata.Namespace, name)
		if c.Problem != "" {
			m.log.Warn("silence does not act by a calendar", "namespace", one.Metadata.Namespace, "silence", one.Metadata.Name,
				"calendar", name, "err", c.Problem)
		}
		return c
	}
}

// Match returns the silences that apply to a subject, in the order of their names. They belong to the snapshot.
// subscriptions are those that may silence it, beside the entity's own: see Common. If they are nil, they come from
// Config and Traits.
func (m *Matcher) Match(sn *config.Snapshot, now time.Time, s *Subject, subscriptions [][]byte) []*resource.Silenced {
	if config.Len(sn, config.Silences) == 0 {
		return nil
	}
	ix := m.index(sn)
	// The name of a silence consists of its subscription and check. So only few can apply, and each is looked up.
	var room [160]byte
	key := append(room[:0], s.Namespace...)
	key = append(key, 0)
	prefix := len(key)
	var found []*resource.Silenced
	look := func(subscription []byte, check string) {
		key = append(key[:prefix], subscription...)
		key = append(key, ':')
		key = append(key, check...)
		one, ok := config.Lookup(sn, config.Silences, key)
		if !ok || one.Begin > now.Unix() || one.Expired(now) || slices.Contains(found, one) {
			return
		}
		// "a:b" with "c" and "a" with "b:c" have one name.
		if fits(one.Subscription, string(subscription)) && fits(one.Check, check) && !one.Selects() && ix.open(one, now) && !m.over(one) && m.within(ix, one, s, now) {
			found = append(found, one)
		}
	}
	var entityRoom [80]byte
	entity := append(append(entityRoom[:0], entityPrefix...), s.Entity...)
	look(asterisk, s.Check)
	look(entity, s.Check)
	look(entity, "*")
	for _, subscription := range subscriptions {
		look(subscription, s.Check)
		look(subscription, "*")
	}
	if subscriptions == nil && s.Traits != nil {
		for subscription := range common(&s.Silenceable) {
			look([]byte(subscription), s.Check)
			look([]byte(subscription), "*")
		}
	}
	if rules := ix.selecting[s.Namespace]; rules != nil {
		own := *s // only here it goes to the heap
		for _, r := range m.candidates(ix, rules, &own) {
			if r.Holds(now) && (!r.varies || r.selects(&own.Silenceable, now)) && !m.over(r.silence) && m.within(ix, r.silence, &own, now) {
				found = append(found, r.silence)
			}
		}
	}
	if len(found) > 1 {
		slices.SortFunc(found, func(a, b *resource.Silenced) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	}
	return found
}

// special reports whether a silence has conditions beyond its name: there is a Rule for it.
func special(one *resource.Silenced) bool {
	return one.Selects() || timed(one) || len(one.LimitedTo) > 0
}

// within reports whether a subject is within a silence's limits. Only then the event is decoded, and the subject goes
// to the heap.
func (m *Matcher) within(ix *index, one *resource.Silenced, s *Subject, now time.Time) bool {
	if len(one.LimitedTo) == 0 {
		return true
	}
	r := ix.special[one]
	own := *s
	if r == nil || !m.decode(&own) {
		return false
	}
	s.Traits = own.Traits
	return r.within(&own.Silenceable, now)
}

// open reports whether a silence that is looked up by name is at one of its times, or has none.
func (ix *index) open(one *resource.Silenced, now time.Time) bool {
	if !timed(one) {
		return true
	}
	r := ix.special[one]
	return r != nil && r.open(now)
}

// over reports whether a resolution has ended a silence that still exists.
func (m *Matcher) over(one *resource.Silenced) bool {
	if !one.ExpireOnResolve {
		return false
	}
	m.endingMu.Lock()
	defer m.endingMu.Unlock()
	received, ok := m.ending[resource.NameOf(&one.Metadata)]
	return ok && one.Begin <= received
}

// end makes a silence not apply any more that will be deleted because of a resolution; forget is for after the
// deletion.
func (m *Matcher) end(one resource.Name, received time.Time) {
	m.endingMu.Lock()
	defer m.endingMu.Unlock()
	m.ending[one] = received.Unix()
}

func (m *Matcher) forget(one resource.Name) {
	m.endingMu.Lock()
	defer m.endingMu.Unlock()
	delete(m.ending, one)
}

const entityPrefix = "entity:"

var asterisk = []byte("*")

// fits reports whether a silence's field is the name that was looked up; "" fits any.
func fits(field, name string) bool { return field == name || field == "" && name == "*" }

// candidates returns the silences with selectors that may apply to a subject, at some time or with some result.
func (m *Matcher) candidates(ix *index, rules []*Rule, s *Subject) []*Rule {
	sum := s.Sum
	if sum == 0 {
		if s.Traits != nil {
			sum = s.Traits.Sum(m.seed)
		} else {
			view, err := resource.PeekTraits(m.seed, s.Body)
			if err != nil {
				return nil // the event will be refused
			}
			sum = view.Sum
		}
	}
	// The name of an entity that is not defined is not in its definition.
	at := place{s.Config, sum ^ maphash.String(m.seed, s.Check)}
	if s.Config != nil {
		if set, ok := ix.memory.find(at); ok {
			return m.ready(set, s)
		}
	}
	if !m.decode(s) {
		return nil
	}
	var set []*Rule
	for _, r := range rules {
		if r.lasting(&s.Silenceable) != selector.No {
			set = append(set, r)
		}
	}
	if s.Config != nil {
		ix.memory.keep(at, set)
	}
	return set
}

// ready decodes the traits if one of the silences needs them.
func (m *Matcher) ready(set []*Rule, s *Subject) []*Rule {
	for _, r := range set {
		if r.varies {
			if !m.decode(s) {
				return nil
			}
			break
		}
	}
	return set
}

func (m *Matcher) decode(s *Subject) bool {
	if s.Traits == nil {
		s.Traits, _ = resource.TraitsOf(s.Body)
	}
	return s.Traits != nil
}

func (mem *memory) clear() {
	mem.known, mem.sets, mem.byKey = map[place]uint32{}, [][]*Rule{nil}, map[string]uint32{}
}

func (mem *memory) find(at place) ([]*Rule, bool) {
	mem.mu.RLock()
	defer mem.mu.RUnlock()
	i, ok := mem.known[at]
	if !ok {
		return nil, false
	}
	return mem.sets[i], true
}

func (mem *memory) keep(at place, set []*Rule) {
	var names strings.Builder
	for _, r := range set {
		names.WriteString(r.silence.Metadata.Name)
		names.WriteByte(0)
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if len(mem.known) >= maxRemembered {
		mem.clear()
	}
	i := uint32(0)
	if len(set) > 0 {
		// Names are unique within a namespace: an entity is in one.
		key := set[0].silence.Metadata.Namespace + "\x00" + names.String()
		var ok bool
		if i, ok = mem.byKey[key]; !ok {
			i = uint32(len(mem.sets))
			mem.sets, mem.byKey[key] = append(mem.sets, set), i
		}
	}
	mem.known[at] = i
}

// common yields the subscriptions that the check and the entity of a subject share, or all of the entity's if the check
// names it.
func common(s *resource.Silenceable) iter.Seq[string] {
	return func(yield func(string) bool) {
		if s.Config == nil {
			return
		}
		if s.Traits.Named {
			slices.Values(s.Config.Subscriptions)(yield)
			return
		}
		for _, one := range s.Traits.Subscriptions {
			if slices.Contains(s.Config.Subscriptions, one) && !yield(one) {
				return
			}
		}
	}
}
