// Package eventfile writes events to a file, one line of JSON for each, for programs that collect logs (a SIEM).
//
// The backend adds a Writer to the followers of the fold if a file is named. A line is the event as the API shows it, in
// the state after it. The Writer copies an event, and encodes it on a goroutine of its own: no event waits for the
// file. If the queue is full the event is left out and counted. While the file cannot be written the queue waits, and
// the Writer tries again each second. The lines of a partition are in the order of the log; after a crash some come
// again. The file is rotated by size and age, and opened again when another program has moved or removed it.
//
// In a cluster each member writes the events that it has taken itself (Options.Origin): each event has one origin for
// ever, so a change of the partitions' owners leaves no event out and repeats none.
//
// Platform writes the backend's own metrics to another such file, at each interval.
package eventfile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	// maxWaiting bounds the memory of events that wait, in bytes.
	maxWaiting = 64 << 20
	// overhead is what the copy of an event takes beside its body: an Applied, and a pair with its history.
	overhead = 1 << 10
	// batchBytes is how much is written at once if more waits.
	batchBytes = 256 << 10
	// retryEvery is the time between attempts to write the same lines.
	retryEvery = time.Second
)

// Options configures a Writer. Callers begin with DefaultOptions. If the comment of a field does not say what 0 means,
// 0 is replaced by the value of DefaultOptions.
type Options struct {
	// Path is the file. Required. Its directory must be there.
	Path string
	// Queue is the number of events that may wait to be written.
	Queue int
	// Parallel encodes on half of the processors, and on two at least. Else one goroutine encodes.
	Parallel bool
	// MaxBytes and MaxAge bound a file: then it is renamed, and another one begun. 0 is no bound.
	MaxBytes int64
	MaxAge   time.Duration
	// Keep is the number of renamed files that stay.
	Keep int
	// Origin is the id of this backend: events that others have taken are theirs to write. Default: all are written.
	Origin     string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings. Path has none.
func DefaultOptions() Options {
	return Options{Queue: 100_000, MaxBytes: 1 << 30, MaxAge: 24 * time.Hour, Keep: 7}
}

// Writer writes events to a file.
type Writer struct {
	opts    Options
	rare    *rarelog.Log
	log     *slog.Logger
	metrics metrics
	file    *file
	// queues have the events that wait, by partition modulo their number: a partition's events stay in order.
	queues  []chan *state.Applied
	waiting atomic.Int64 // bytes of these events, and of those being written
	failing atomic.Bool  // the file could not be written, and the log says so

	start, stop sync.Once
	stopping    chan struct{}
	done        sync.WaitGroup
}

// New checks the options.
func New(opts Options) (*Writer, error) {
	defaults := DefaultOptions()
	opts.Queue, opts.Keep = cmp.Or(opts.Queue, defaults.Queue), cmp.Or(opts.Keep, defaults.Keep)
	switch {
	case opts.Path == "":
		return nil, errors.New("event log file: no path")
	case opts.Queue < 0 || opts.Keep < 0 || opts.MaxBytes < 0 || opts.MaxAge < 0:
		return nil, fmt.Errorf("event log file %s: queue (%d), files to keep (%d), size (%d) and age (%v) must not be negative",
			opts.Path, opts.Queue, opts.Keep, opts.MaxBytes, opts.MaxAge)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Writer{opts: opts, log: opts.Logger.With("component", "eventfile"), stopping: make(chan struct{})}
	w.rare = rarelog.New(w.log)
	w.file = &file{path: opts.Path, maxBytes: opts.MaxBytes, maxAge: opts.MaxAge, keep: opts.Keep, warn: func(err error) {
		w.metrics.errors.Inc()
		w.rare.Warn("the event log file cannot be rotated; it grows", "", "err", err)
	}}
	encoders := 1
	if opts.Parallel {
		encoders = max(2, runtime.GOMAXPROCS(0)/2)
	}
	for range encoders {
		w.queues = append(w.queues, make(chan *state.Applied, (opts.Queue+encoders-1)/encoders))
	}
	w.metrics = newMetrics(opts.Registerer, &w.waiting)
	return w, nil
}

// Start opens the file and begins to write. A file that cannot be opened is no error: Start logs it, and the Writer
// tries again.
func (w *Writer) Start(context.Context) error {
	w.start.Do(func() {
		w.Reopen()
		for _, queue := range w.queues {
			w.done.Go(func() { w.run(queue) })
		}
	})
	return nil
}

// Stop writes the events that wait, and closes the file. What cannot be written at once is given up. No Follow may come
// after it.
func (w *Writer) Stop() (err error) {
	w.stop.Do(func() {
		close(w.stopping)
		for _, queue := range w.queues {
			close(queue)
		}
		w.done.Wait()
		err = w.file.close()
	})
	return err
}

// Reopen closes the file and opens its name again, after a program has renamed the file.
func (w *Writer) Reopen() {
	if err := w.file.reopen(); err != nil { // that it can be opened does not mean that it can be written
		w.report(err)
	}
}

// Name is part of fold.Follower.
func (w *Writer) Name() string { return "eventfile" }

// shares are the eighths of the queue that each class of events may fill: the rest is for the higher ones.
var shares = [delivery.Classes]int{delivery.Change: 8, delivery.Failing: 7, delivery.Unchanged: 6, delivery.MetricsOnly: 4}

// Follow is part of fold.Follower. It puts a copy of an event into the queue, or counts it if there is no room for its
// class.
func (w *Writer) Follow(a *state.Applied) {
	if a.Deleted || w.opts.Origin != "" && a.Origin != w.opts.Origin {
		return
	}
	queue, size := w.queues[a.Partition%len(w.queues)], int64(overhead+len(a.Body()))
	class := delivery.ClassOf(a.Check, a.Repeats(), a.Status)
	share := shares[class]
	// Without room there is no copy either.
	if w.waiting.Add(size)*8 <= int64(maxWaiting*share) && len(queue)*8 < cap(queue)*share {
		select {
		case queue <- a.Keep():
			return
		default: // another partition took the last place
		}
	}
	w.waiting.Add(-size)
	w.metrics.leftOut.Inc()
	w.metrics.shed[class].Inc()
}

// run writes the events of a queue until it is closed and empty.
func (w *Writer) run(queue <-chan *state.Applied) {
	var lines []byte
	for a := range queue {
		size := int64(0)
		for lines = lines[:0]; a != nil; {
			size += int64(overhead + len(a.Body()))
			lines = w.encode(lines, a)
			a = nil
			if len(lines) < batchBytes {
				select {
				case a = <-queue: // nil if it is closed
				default:
				}
			}
		}
		w.write(lines)
		w.waiting.Add(-size)
		if cap(lines) > 4*batchBytes {
			lines = nil // one large event must not keep its memory
		}
	}
}

// encode appends the line of an event.
func (w *Writer) encode(lines []byte, a *state.Applied) []byte {
	event, err := a.Event()
	var line []byte
	if err == nil {
		line, err = event.MarshalJSON()
	}
	if err != nil {
		w.metrics.failed.Inc()
		w.rare.Error("an event cannot be encoded for the event log file", "", "event", a.ID(), "err", err)
		return lines
	}
	return append(append(lines, line...), '\n')
}

// write writes lines, and tries until it can. When the Writer stops it gives up.
func (w *Writer) write(lines []byte) {
	for len(lines) > 0 {
		n, err := w.file.append(lines)
		w.metrics.written.Add(float64(bytes.Count(lines[:n], newline)))
		lines = lines[n:]
		w.report(err)
		if err == nil {
			return
		}
		select {
		case <-time.After(retryEvery):
		case <-w.stopping:
			w.metrics.failed.Add(float64(bytes.Count(lines, newline)))
			return
		}
	}
}

// report counts an error of the file. The log gets the first of several, and that they are over.
func (w *Writer) report(err error) {
	switch {
	case err != nil:
		w.metrics.errors.Inc()
		if !w.failing.Swap(true) {
			w.log.Error("the event log file cannot be written; events wait, and are left out when the queue is full",
				"err", err)
		}
	case w.failing.Swap(false):
		w.log.Info("the event log file is written again", "path", w.opts.Path)
	}
}

// metrics has the events by what became of them, and the errors of the file.
type metrics struct {
	written, leftOut, failed, errors prometheus.Counter
	shed                             [delivery.Classes]prometheus.Counter // of leftOut
}

func newMetrics(r prometheus.Registerer, waiting *atomic.Int64) metrics {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_event_log_file_events_total",
		Help: "Events for the event log file, by result: written; left_out because the queue was full; failed because they " +
			"could not be encoded, or not be written before the stop.",
	}, []string{"result"})
	m := metrics{
		written: events.WithLabelValues("written"), leftOut: events.WithLabelValues("left_out"),
		failed: events.WithLabelValues("failed"),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_event_log_file_errors_total",
			Help: "Attempts to open, write or rotate the event log file that failed.",
		}),
	}
	shed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lapwing_event_log_file_left_out_total",
		Help: "Events that were left out of the event log file because the queue was full, by class.",
	}, []string{"class"})
	for c := range delivery.Class(delivery.Classes) {
		m.shed[c] = shed.WithLabelValues(c.String())
	}
	if r != nil {
		r.MustRegister(events, shed, m.errors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_event_log_file_waiting_bytes",
			Help: "Bytes of memory of the events that wait to be written to the event log file; 64 MiB at most.",
		}, func() float64 { return float64(waiting.Load()) }))
	}
	return m
}
