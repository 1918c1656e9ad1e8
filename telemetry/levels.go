package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Levels decides which lines are logged while a program runs: those of the configured level, and for some time those that
// a user asks for, of all components or of one. A component is the attribute "component" of a logger. The zero value is not
// ready: use NewLevels.
type Levels struct {
	base    slog.Leveler
	current atomic.Pointer[levelTable]

	mu         sync.Mutex // guards the fields below, and stores into current
	changes    map[string]levelChange
	components map[string]bool
}

// levelTable is what is in effect. Nil levels are the configured one.
type levelTable struct {
	all       *slog.Level
	component map[string]slog.Level
}

type levelChange struct {
	level slog.Level
	until time.Time
	timer *time.Timer
}

// NewLevels makes a Levels over a configured level, which may change.
func NewLevels(base slog.Leveler) *Levels {
	l := &Levels{base: base, changes: map[string]levelChange{}, components: map[string]bool{}}
	l.current.Store(new(levelTable))
	return l
}

// enabled reports whether a component's lines of a level are logged.
func (l *Levels) enabled(component string, level slog.Level) bool {
	t := l.current.Load()
	if own, ok := t.component[component]; ok {
		return level >= own
	}
	if t.all != nil {
		return level >= *t.all
	}
	return level >= l.base.Level()
}

// Set changes the level of a component, or of all for "", for some time. A later change of the same replaces it.
func (l *Levels) Set(component, level string, lasts time.Duration) error {
	parsed, err := ParseLevel(level)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if component != "" && !l.components[component] {
		known := slices.Sorted(maps.Keys(l.components))
		near := optionerr.Nearest(component, known)
		if near != "" {
			near = fmt.Sprintf(" (%s?)", near)
		}
		return fmt.Errorf("there is no component %q%s: it must be one of %s", component, near, strings.Join(known, ", "))
	}
	if old, ok := l.changes[component]; ok {
		old.timer.Stop()
	}
	until := time.Now().Add(lasts)
	l.changes[component] = levelChange{parsed, until, time.AfterFunc(lasts, func() { l.end(component, until) })}
	l.publish()
	return nil
}

// end ends a change, unless another one has replaced it.
func (l *Levels) end(component string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.changes[component]; ok && c.until.Equal(until) {
		delete(l.changes, component)
		l.publish()
	}
}

// Reset ends all changes.
func (l *Levels) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.changes {
		c.timer.Stop()
	}
	clear(l.changes)
	l.publish()
}

// publish puts the changes into effect. The caller holds mu.
func (l *Levels) publish() {
	t := new(levelTable)
	for component, c := range l.changes {
		if component == "" {
			t.all = &c.level
			continue
		}
		if t.component == nil {
			t.component = map[string]slog.Level{}
		}
		t.component[component] = c.level
	}
	l.current.Store(t)
}

// Show returns the levels in effect.
func (l *Levels) Show() resource.LogLevels {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := resource.LogLevels{Level: LevelName(l.base.Level()), Changed: []resource.LogLevel{}, Components: slices.Sorted(maps.Keys(l.components))}
	for _, component := range slices.Sorted(maps.Keys(l.changes)) {
		c := l.changes[component]
		out.Changed = append(out.Changed, resource.LogLevel{Component: component, Level: LevelName(c.level), Until: c.until.Unix()})
	}
	return out
}

func (l *Levels) know(component string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.components[component] = true
}

// LoggerOf is Logger for levels that change, also for single components.
func LoggerOf(w io.Writer, levels *Levels, format string) (*slog.Logger, error) {
	log, err := LoggerAt(w, LevelTrace, format)
	if err != nil {
		return nil, err
	}
	return slog.New(&levelHandler{Handler: log.Handler(), levels: levels}), nil
}

// levelHandler is a handler whose level is that of its component.
type levelHandler struct {
	slog.Handler
	levels    *Levels
	component string
	grouped   bool
}

// Enabled implements slog.Handler.
func (h *levelHandler) Enabled(_ context.Context, level slog.Level) bool {
	return h.levels.enabled(h.component, level)
}

// WithAttrs implements slog.Handler.
func (h *levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == "component" && !h.grouped {
			next.component = a.Value.String()
			h.levels.know(next.component)
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *levelHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.Handler, next.grouped = h.Handler.WithGroup(name), true
	return &next
}
