package ingest

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/name"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Tags of the series of events' points. A point's own tags of these names are replaced: the rights of users follow from
// the namespace.
const (
	NamespaceTag = "namespace"
	EntityTag    = "entity"
	CheckTag     = "check"
)

const (
	eventLanes = 8
	// eventFlush is how long a point of an event waits for others.
	eventFlush = 200 * time.Millisecond
)

// Events takes the points of events. It is intake's Sink: it never waits, and drops points when the store has no room.
type Events struct {
	table *Table
	seed  maphash.Seed
	now   func() time.Time
	lanes [eventLanes]eventLane

	mu   sync.Mutex         // guards the fields below
	stop context.CancelFunc // nil unless it runs
	done chan struct{}
}

type eventLane struct {
	mu     sync.Mutex // guards the fields below
	writer *Writer
	name   []byte
	tags   []name.Tag
}

// NewEvents returns a sink for the table.
func NewEvents(t *Table, now func() time.Time) *Events {
	e := &Events{table: t, seed: maphash.MakeSeed(), now: now}
	for i := range e.lanes {
		e.lanes[i].writer = t.Dropper()
	}
	return e
}

// Start hands gathered points over a few times a second, until Stop.
func (e *Events) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		return errors.New("start the sink of events: it runs")
	}
	ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	e.done = done
	go func() {
		defer close(done)
		tick := time.NewTicker(eventFlush)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				e.flush()
			case <-ctx.Done():
				e.flush()
				return
			}
		}
	}()
	return nil
}

// Stop hands over what is gathered. It may be called twice, and before Start.
func (e *Events) Stop(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		e.stop()
		<-e.done
		e.stop = nil
	}
	return nil
}

func (e *Events) flush() {
	for i := range e.lanes {
		l := &e.lanes[i]
		l.mu.Lock()
		_ = l.writer.Flush() // it drops instead of failing
		e.table.metrics.dropped.Add(float64(l.writer.Dropped()))
		l.mu.Unlock()
	}
}

// Put takes the points of an event.
func (e *Events) Put(namespace, entity, check string, points []resource.MetricPoint) {
	var h maphash.Hash
	h.SetSeed(e.seed)
	_, _ = h.WriteString(namespace) // it never fails
	_, _ = h.WriteString(entity)
	l := &e.lanes[h.Sum64()%eventLanes]
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range points {
		p := &points[i]
		if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) || p.Name == "" {
			e.table.metrics.refused[badName].Inc()
			continue
		}
		l.name = l.series(namespace, entity, check, p)
		_ = l.writer.Add(l.name, pointMilli(p.Timestamp, e.now()), p.Value) // it drops instead of failing
	}
}

// series writes the name of a point's series.
func (l *eventLane) series(namespace, entity, check string, p *resource.MetricPoint) []byte {
	l.tags = append(l.tags[:0], name.Tag{Name: NamespaceTag, Value: tagValue(namespace)},
		name.Tag{Name: EntityTag, Value: tagValue(entity)})
	if check != "" {
		l.tags = append(l.tags, name.Tag{Name: CheckTag, Value: tagValue(check)})
	}
	for _, t := range p.Tags {
		if t.Name == NamespaceTag || t.Name == EntityTag || t.Name == CheckTag || t.Name == "" || t.Value == "" {
			continue
		}
		l.tags = append(l.tags, name.Tag{Name: tagName(t.Name), Value: tagValue(t.Value)})
	}
	return name.Append(l.name[:0], metricName(p.Name), l.tags)
}

// metricName makes a point's name one that a series can have: without blanks, semicolons and tags of its own.
func metricName(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == ';' {
			return '_'
		}
		return r
	}, strings.TrimLeft(s, "~"))
}

func tagName(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || strings.ContainsRune(";!^=", r) {
			return '_'
		}
		return r
	}, s)
}

func tagValue(s string) string {
	if strings.HasPrefix(s, "~") {
		s = "_" + s[1:]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == ';' {
			return '_'
		}
		return r
	}, s)
}

// pointMilli returns a point's time in Unix milliseconds. Its unit follows from its size: seconds are as large as
// milliseconds of 1973 in the year 5138. A point without a time is of now.
func pointMilli(t int64, now time.Time) int64 {
	switch {
	case t <= 0:
		return now.Unix() * 1000
	case t < 1e11:
		return t * 1000
	case t < 1e14:
		return t
	case t < 1e17:
		return t / 1e3
	default:
		return t / 1e6
	}
}
