package calendar

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Calendars has the compiled calendars of the present snapshot. Use New.
type Calendars struct {
	log     *slog.Logger
	rare    *rarelog.Log // for messages that may come for each event
	current atomic.Pointer[index]
	mu      sync.Mutex // one at a time makes an index
}

// index has the calendars of a snapshot.
type index struct {
	snapshot *config.Snapshot
	all      map[resource.Name]*Calendar
	compiled map[*resource.Calendar]*definition // nil for one that cannot be read
}

// New makes a Calendars. It logs calendars with a problem, once for each of their changes; logger may be nil.
func New(logger *slog.Logger) *Calendars {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	log := logger.With("component", "calendar")
	return &Calendars{log: log, rare: rarelog.New(log)}
}

// Find returns a calendar. One that is not defined has a problem. The answer for a name is the same until a calendar changes.
func (c *Calendars) Find(sn *config.Snapshot, namespace, name string) *Calendar {
	if config.Len(sn, config.Calendars) == 0 {
		return missing(name)
	}
	if found := c.index(sn).all[resource.Name{Namespace: namespace, Name: name}]; found != nil {
		return found
	}
	return missing(name)
}

// Active reports whether a calendar is active at a time, and why not: that it counts as missing, which it logs, or the name of
// an exception.
func (c *Calendars) Active(sn *config.Snapshot, namespace, name string, at time.Time) (active bool, why string) {
	found := c.Find(sn, namespace, name)
	if found.Problem != "" {
		c.rare.Warn("a filter or mutator asks for a calendar that counts as missing", namespace+"/"+name,
			"namespace", namespace, "calendar", name, "err", found.Problem)
	}
	if found.Problem != "" {
		return false, "it counts as missing: " + found.Problem
	}
	active, exception := found.ActiveOr(at)
	if exception != "" {
		why = "excepted: " + exception
	}
	return active, why
}

func missing(name string) *Calendar {
	return &Calendar{Problem: fmt.Sprintf("the calendar %s is not defined", name)}
}

// In returns the function that finds calendars of a namespace.
func (c *Calendars) In(sn *config.Snapshot, namespace string) func(name string) *Calendar {
	return func(name string) *Calendar { return c.Find(sn, namespace, name) }
}

// Draft compiles a definition that may not be stored. Calendars that it names come from the snapshot.
func (c *Calendars) Draft(sn *config.Snapshot, def *resource.Calendar) (*Calendar, error) {
	own, err := compile(def)
	if err != nil {
		return nil, err
	}
	ix := c.index(sn)
	l := &linking{defs: map[resource.Name]*resource.Calendar{}, compiled: map[*resource.Calendar]*definition{def: own},
		all: map[resource.Name]*Calendar{}}
	for one := range config.List(sn, config.Calendars, def.Metadata.Namespace) {
		l.defs[resource.NameOf(&one.Metadata)], l.compiled[one] = one, ix.compiled[one]
	}
	id := resource.NameOf(&def.Metadata)
	l.defs[id] = def
	return l.link(id), nil
}

func (c *Calendars) index(sn *config.Snapshot) *index {
	if ix := c.current.Load(); ix != nil && config.Same(ix.snapshot, sn, config.Calendars) {
		return ix
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.current.Load()
	if before == nil {
		before = new(index)
	} else if config.Same(before.snapshot, sn, config.Calendars) {
		return before
	}
	l := &linking{defs: map[resource.Name]*resource.Calendar{}, compiled: map[*resource.Calendar]*definition{},
		all: map[resource.Name]*Calendar{}}
	for def := range config.List(sn, config.Calendars, "") {
		id := resource.NameOf(&def.Metadata)
		d, known := before.compiled[def]
		if !known {
			var err error
			if d, err = compile(def); err != nil { // the API refuses such a calendar
				c.log.Error("calendar cannot be read and counts as missing", "namespace", id.Namespace, "calendar", id.Name, "err", err)
			}
		}
		l.defs[id], l.compiled[def] = def, d
	}
	for id := range l.defs {
		made := l.link(id)
		if old := before.all[id]; made.Problem != "" && (old == nil || old.Problem != made.Problem) {
			c.log.Warn("calendar counts as missing", "namespace", id.Namespace, "calendar", id.Name, "err", made.Problem)
		}
	}
	ix := &index{snapshot: sn, all: l.all, compiled: l.compiled}
	c.current.Store(ix)
	return ix
}

// linking connects calendars with those that they name.
type linking struct {
	defs     map[resource.Name]*resource.Calendar
	compiled map[*resource.Calendar]*definition
	all      map[resource.Name]*Calendar // nil for those that are being linked
}

// link returns a calendar with those that it names. Calendars in a circle have a problem.
func (l *linking) link(id resource.Name) *Calendar {
	if made, known := l.all[id]; known {
		if made == nil {
			return &Calendar{Circular: true, Problem: fmt.Sprintf("the calendar %s includes itself, by way of others", id.Name)}
		}
		return made
	}
	def := l.defs[id]
	if def == nil {
		return missing(id.Name)
	}
	l.all[id] = nil
	made := new(Calendar)
	if d := l.compiled[def]; d != nil {
		made.own, made.except, made.perYear = d.own, d.except, d.perYear
	} else {
		made.Problem = fmt.Sprintf("the calendar %s cannot be read", id.Name)
	}
	other := func(name string) *Calendar {
		found := l.link(resource.Name{Namespace: id.Namespace, Name: name})
		if found.Problem != "" && made.Problem == "" {
			made.Circular, made.Problem = found.Circular, fmt.Sprintf("the calendar %s needs another: %s", id.Name, found.Problem)
		}
		made.perYear = min(made.perYear+found.perYear, maxPerYearInAll+1)
		return found
	}
	for _, name := range def.Include {
		made.include = append(made.include, other(name))
	}
	for i := range def.Except {
		if name := def.Except[i].Calendar; name != "" {
			made.less = append(made.less, other(name))
		}
	}
	if made.perYear > maxPerYearInAll && made.Problem == "" {
		made.Problem = fmt.Sprintf("the calendar %s names more than %d times a year, with those that it includes", id.Name, maxPerYearInAll)
	}
	l.all[id] = made
	return made
}
