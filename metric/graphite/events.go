package graphite

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

// Event is a note about a moment, which dashboards show as a line. Tags are words.
type Event struct {
	ID   int64    `json:"id"`
	When int64    `json:"when"`
	What string   `json:"what"`
	Data string   `json:"data,omitempty"`
	Tags []string `json:"tags,omitempty"`
}

// EventStore keeps events.
type EventStore interface {
	// Add keeps e and returns its ID. The ID in e is ignored.
	Add(e Event) (int64, error)
	// Range returns the events from one time to another (Unix seconds, both included), by time. All tags must match, or
	// one of them if union is set. Without tags all events match.
	Range(from, until int64, tags []string, union bool) []Event
	// Get returns an event.
	Get(id int64) (Event, bool)
}

const (
	defaultMaxEvents = 100_000
	eventsFile       = "events.jsonl"
	// maxEventLine bounds a line of the file. Longer lines are damaged.
	maxEventLine = 1 << 20
)

// EventOptions configure Events.
type EventOptions struct {
	// Dir is where the file events.jsonl is. It is made if it is missing. Required.
	Dir string
	// Max bounds the events. The oldest ones make room for new ones. Default: 100,000.
	Max int
	// Logger. Default: none.
	Logger *slog.Logger
	// Registerer for the metrics. Default: none.
	Registerer prometheus.Registerer
}

// Events is an EventStore in a file with one event a line. New events are appended, and are on the disk when Add
// returns. The file is rewritten when it holds twice as many lines as events may be kept.
type Events struct {
	path string
	max  int
	log  *slog.Logger

	mu sync.Mutex // guards the fields below
	// events are in the order of their IDs.
	events []Event
	file   *os.File
	// size is the length of the file that is known to be good, lines the number of lines in it.
	size   int64
	lines  int
	lastID int64
	bytes  int64 // of the texts of events
}

// OpenEvents reads the events in opts.Dir. Lines that are damaged are left out, and counted.
func OpenEvents(opts EventOptions) (*Events, error) {
	if opts.Dir == "" {
		return nil, errors.New("metric/graphite: EventOptions.Dir is missing")
	}
	if opts.Max < 0 {
		return nil, errors.New("metric/graphite: EventOptions.Max must not be negative")
	}
	if opts.Max == 0 {
		opts.Max = defaultMaxEvents
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opts.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of events: %w", err)
	}
	e := &Events{path: filepath.Join(opts.Dir, eventsFile), max: opts.Max, log: opts.Logger}
	damaged, err := e.load()
	if err != nil {
		return nil, err
	}
	if damaged > 0 {
		e.log.Warn("some lines of the events file are damaged and were left out", "file", e.path, "lines", damaged)
	}
	if e.file, err = os.OpenFile(e.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640); err != nil {
		return nil, fmt.Errorf("open the events file: %w", err)
	}
	if err := e.register(opts.Registerer, damaged); err != nil {
		return nil, errors.Join(err, e.file.Close())
	}
	return e, nil
}

func (e *Events) register(r prometheus.Registerer, damaged int) error {
	if r == nil {
		return nil
	}
	skipped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_metric_graphite_event_lines_damaged_total",
		Help: "Lines of the events file that could not be read at the start.",
	})
	skipped.Add(float64(damaged))
	kept := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapwing_metric_graphite_events", Help: "Graphite events that are kept.",
	}, func() float64 {
		e.mu.Lock()
		defer e.mu.Unlock()
		return float64(len(e.events))
	})
	for _, c := range []prometheus.Collector{skipped, kept} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register a metric of the events: %w", err)
		}
	}
	return nil
}

// load reads the file and returns the number of damaged lines.
func (e *Events) load() (damaged int, err error) {
	f, err := plainfile.Open(e.path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open the events file: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, length, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read the events file: %w", err)
		}
		if err != nil {
			if length > 0 { // the last write was cut off; the next one replaces it
				damaged++
			}
			break
		}
		e.size += length
		e.lines++
		if !e.take(line) {
			damaged++
		}
	}
	slices.SortStableFunc(e.events, func(a, b Event) int { return cmp.Compare(a.ID, b.ID) })
	e.dropOldest()
	return damaged, nil
}

// readLine returns a line without its end, and its length in the file. A line that is longer than maxEventLine is
// returned as no text.
func readLine(r *bufio.Reader) (line []byte, length int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		length += int64(len(part))
		if length <= maxEventLine {
			line = append(line, part...)
		} else {
			line = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSuffix(line, []byte{'\n'}), length, err
	}
}

// take keeps the event of a line, and reports whether the line is good.
func (e *Events) take(line []byte) bool {
	var event Event
	if err := json.Unmarshal(line, &event); err != nil || event.ID <= 0 || event.ID == math.MaxInt64 {
		return false
	}
	e.keep(event)
	e.lastID = max(e.lastID, event.ID)
	// The file may hold more lines than events may be kept. Their order is that of the IDs, unless a person edited it.
	if len(e.events) >= 2*e.max+1000 {
		e.dropOldest()
	}
	return true
}

// maxEventsBytes bounds the texts of all events that are kept.
const maxEventsBytes = 64 << 20

func (e *Events) keep(event Event) {
	e.events = append(e.events, event)
	e.bytes += event.size()
}

// size is the memory of an event's texts.
func (e *Event) size() int64 {
	n := len(e.What) + len(e.Data)
	for _, t := range e.Tags {
		n += len(t)
	}
	return int64(n)
}

func (e *Events) dropOldest() {
	n := max(0, len(e.events)-e.max)
	for i := range n {
		e.bytes -= e.events[i].size()
	}
	for n < len(e.events) && e.bytes > maxEventsBytes {
		e.bytes -= e.events[n].size()
		n++
	}
	if n > 0 {
		e.events = slices.Delete(e.events, 0, n)
	}
}

// Add implements EventStore.
func (e *Events) Add(event Event) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		return 0, errors.New("add an event: the store is closed")
	}
	event.ID = e.lastID + 1
	line, err := json.Marshal(event)
	if err != nil {
		return 0, fmt.Errorf("add an event: %w", err)
	}
	line = append(line, '\n')
	if len(line) > maxEventLine {
		return 0, badRequest("the event is larger than %d bytes", maxEventLine)
	}
	if err := e.append(line); err != nil {
		return 0, fmt.Errorf("add an event: %w", err)
	}
	e.lastID = event.ID
	e.keep(event)
	e.dropOldest()
	if e.lines >= 2*e.max || e.size >= 2*maxEventsBytes {
		if err := e.rewrite(); err != nil {
			// The event is safe. The file is only longer than it must be, and the next Add tries again.
			e.log.Error("cannot shorten the events file", "file", e.path, "err", err)
		}
	}
	return event.ID, nil
}

// append writes a line behind the good part of the file.
func (e *Events) append(line []byte) error {
	// A part of a line may be left over from a write that failed, or from the end of an earlier process.
	if err := e.file.Truncate(e.size); err != nil {
		return err
	}
	if _, err := e.file.Write(line); err != nil {
		return err
	}
	if err := e.file.Sync(); err != nil {
		return err
	}
	e.size += int64(len(line))
	e.lines++
	return nil
}

// rewrite replaces the file by one that has only the events that are kept.
func (e *Events) rewrite() error {
	name := e.path + ".new"
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	var size int64
	for _, event := range e.events {
		line, err := json.Marshal(event)
		if err != nil {
			return errors.Join(err, f.Close())
		}
		size += int64(len(line)) + 1
		_, _ = w.Write(append(line, '\n')) // Flush returns the error
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := os.Rename(name, e.path); err != nil {
		return errors.Join(err, f.Close())
	}
	_ = e.file.Close() // the old file, which has no name any more
	e.file, e.size, e.lines = f, size, len(e.events)
	return syncDir(filepath.Dir(e.path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Range implements EventStore.
func (e *Events) Range(from, until int64, tags []string, union bool) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []Event
	for _, event := range e.events {
		if event.When >= from && event.When <= until && event.matches(tags, union) {
			list = append(list, event)
		}
	}
	slices.SortStableFunc(list, func(a, b Event) int { return cmp.Compare(a.When, b.When) })
	return list
}

func (e *Event) matches(tags []string, union bool) bool {
	for _, tag := range tags {
		if slices.Contains(e.Tags, tag) == union {
			return union
		}
	}
	return len(tags) == 0 || !union
}

// Get implements EventStore.
func (e *Events) Get(id int64) (Event, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, found := slices.BinarySearchFunc(e.events, id, func(event Event, id int64) int { return cmp.Compare(event.ID, id) })
	if !found {
		return Event{}, false
	}
	return e.events[i], true
}

// Close closes the file. It is safe to call it twice.
func (e *Events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		return nil
	}
	err := e.file.Close()
	e.file = nil
	if err != nil {
		return fmt.Errorf("close the events file: %w", err)
	}
	return nil
}
