// Package handler delivers events to commands, webhooks, sockets and mail servers, as users define it.
//
// Package pipeline calls Dispatch with deliveries: an event for one handler each. Each handler has a bounded queue and
// workers of its own, so a slow one delays no other. A worker asks package workflow whether a delivery goes out, and
// with which data; package send then makes one attempt. After a temporary failure the delivery is tried again, after a
// wait that occupies no worker and outlasts a restart. After a permanent one it becomes a dead letter, which users can
// read and have sent again. Deliveries of one (namespace, entity, check) to a handler go out one after the other, in
// the order of the event log. When a queue is full, further deliveries are stored in Pebble and read back as it
// drains.
//
// Every delivery runs at least once, whatever happens to the process: package state stores the unfinished ones
// together with the log position from which a restart replays (Checkpoint). A repeat has the same ID. DESIGN.md
// explains the rules.
package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Options configures a Dispatcher. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// DB stores deliveries under keys that begin with 'd'. Required.
	DB *pebble.DB
	// Config is the present definitions. They must be loaded when Start is called: a delivery without a handler among
	// them is dropped. Required.
	Config func() *config.Snapshot
	// Workflows decides what goes out, and as what. Required.
	Workflows *workflow.Workflows
	// Sender makes the attempts. Required.
	Sender *send.Sender
	// Trace receives what becomes of deliveries. It must not block. Default none.
	Trace func(*trace.Delivery)
	// QueueSize is how many deliveries of a handler are in memory.
	QueueSize int
	// QueueBytes bounds the same in bytes of data.
	QueueBytes int
	// ParkSize is how many deliveries of a handler may wait besides: for another attempt, for a time, or for their group.
	// Memory has their names only.
	ParkSize int
	// Workers is how many deliveries of a handler run at a time, unless it says so itself.
	Workers int
	// Backoff is the wait before a second attempt, unless the handler says so itself; it doubles before each further
	// one.
	Backoff time.Duration
	// DeadLetters is how many dead letters are kept, of all handlers together. When there are more, those older than
	// DeadLetterAge go, and if there are none new ones are not kept.
	DeadLetters   int
	DeadLetterAge time.Duration
	// StopTimeout is how long Stop lets running deliveries go on.
	StopTimeout time.Duration
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Dispatcher owns the queues of all handlers.
type Dispatcher struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for lines that each delivery may cause
	metrics metrics

	trimAt int // finished deliveries after which Pebble is trimmed; tests change it
	// onFinish, if not nil, is called with a delivery and its end once both are recorded, so that tests can wait for
	// it.
	onFinish func(*delivery.Delivery, trace.Verdict)

	// local is held while deliveries that are not of the log are numbered, stored and queued. Taken before mu.
	local    sync.Mutex
	localSeq uint64

	lettersMu sync.Mutex // held while a dead letter is removed; taken before local
	letters   letterCount
	due       checkpointSignal

	// mu guards the maps. Dispatch holds it for reading until its delivery is queued, so that its queue is not
	// dropped. Order of locks: mu, queue.mu, ledger.mu.
	mu      sync.RWMutex
	queues  map[resource.Name]*queue
	ledgers map[int]*ledger

	lifecycle sync.Mutex // guards the two below
	started   bool
	stopped   bool

	running atomic.Bool // workers may take deliveries
	workers sync.WaitGroup
	ctx     context.Context // of running deliveries
	cancel  context.CancelFunc
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		QueueSize: 1000, QueueBytes: 32 << 20, ParkSize: 100_000, Workers: 8, Backoff: time.Second,
		DeadLetters: 250_000, DeadLetterAge: 30 * 24 * time.Hour, StopTimeout: 10 * time.Second,
	}
}

// New reads the unfinished deliveries of earlier processes. Dispatch and Checkpoint work from now on; nothing runs
// before Start. It must be called before the event log is replayed.
func New(opts Options) (*Dispatcher, error) {
	if opts.DB == nil || opts.Config == nil || opts.Workflows == nil || opts.Sender == nil {
		return nil, errors.New("handler: database, configuration, workflows and sender are required")
	}
	if opts.QueueSize < 0 || opts.QueueBytes < 0 || opts.Workers < 0 || opts.ParkSize < 0 || opts.DeadLetters < 0 {
		return nil, errors.New("handler: QueueSize, QueueBytes, ParkSize, Workers and DeadLetters must not be negative")
	}
	defaults := DefaultOptions()
	opts.QueueSize = cmp.Or(opts.QueueSize, defaults.QueueSize)
	opts.QueueBytes = cmp.Or(opts.QueueBytes, defaults.QueueBytes)
	opts.ParkSize = cmp.Or(opts.ParkSize, defaults.ParkSize)
	opts.Workers = cmp.Or(opts.Workers, defaults.Workers)
	opts.Backoff = cmp.Or(opts.Backoff, defaults.Backoff)
	opts.DeadLetters = cmp.Or(opts.DeadLetters, defaults.DeadLetters)
	opts.DeadLetterAge = cmp.Or(opts.DeadLetterAge, defaults.DeadLetterAge)
	opts.StopTimeout = cmp.Or(opts.StopTimeout, defaults.StopTimeout)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dispatcher{
		opts:    opts,
		log:     opts.Logger.With("component", "handler"),
		rare:    rarelog.New(opts.Logger.With("component", "handler")),
		queues:  map[resource.Name]*queue{},
		ledgers: map[int]*ledger{},
		trimAt:  1024,
	}
	d.due.init()
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := d.load(); err != nil {
		d.cancel()
		return nil, fmt.Errorf("read stored deliveries: %w", err)
	}
	d.metrics = newMetrics(opts.Registerer, d)
	for name := range d.queues {
		d.metrics.know(name.Name)
	}
	return d, nil
}

// Start lets deliveries run. It does not keep the context.
func (d *Dispatcher) Start(context.Context) error {
	d.lifecycle.Lock()
	defer d.lifecycle.Unlock()
	if d.started || d.stopped {
		return errors.New("start handlers: started or stopped before")
	}
	d.started = true
	d.running.Store(true)
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, q := range d.queues {
		q.mu.Lock()
		q.wake()
		q.mu.Unlock()
	}
	return nil
}

// Stop lets running deliveries finish for StopTimeout, ends the others, and returns when none runs. Checkpoint still
// works and stores the unfinished deliveries, which run after the next start. So stop this before package state writes
// for the last time, and close the database after both.
func (d *Dispatcher) Stop() error {
	d.lifecycle.Lock()
	defer d.lifecycle.Unlock()
	if d.stopped {
		return nil
	}
	d.stopped = true
	d.running.Store(false)
	// Workers start, and timers are set, under their queue's lock and only while running is true. So none starts after
	// these locks.
	d.mu.RLock()
	for _, q := range d.queues {
		q.disarm()
	}
	d.mu.RUnlock()

	timer := time.AfterFunc(d.opts.StopTimeout, d.cancel)
	d.workers.Wait()
	timer.Stop()
	d.cancel()
	d.due.stop()
	return nil
}

// lookup returns a handler's present definition.
func (d *Dispatcher) lookup(namespace, name string) (*resource.Handler, bool) {
	return config.Get(d.opts.Config(), config.Handlers, namespace, name)
}

// Checkpoint adds changes to a batch that store exactly the unfinished deliveries of a partition, and the position
// that they belong to. The batch must also contain the position from which the log is replayed. During the call no
// Dispatch of the partition may run. The batch must be committed, or given up, before the next call for the partition,
// which finds out which of the two happened.
func (d *Dispatcher) Checkpoint(partition int, b *pebble.Batch) error {
	if err := d.ledger(partition).checkpoint(b); err != nil {
		return fmt.Errorf("store unfinished deliveries of partition %d: %w", partition, err)
	}
	return nil
}

// makeQueue makes a handler's queue unless there is one, and drops empty queues of deleted handlers.
func (d *Dispatcher) makeQueue(name resource.Name) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues[name] != nil {
		return
	}
	for other, q := range d.queues {
		if _, ok := d.lookup(other.Namespace, other.Name); !ok && q.empty() {
			delete(d.queues, other)
		}
	}
	d.queues[name] = newQueue(d, name)
	d.metrics.know(name.Name)
}

func (d *Dispatcher) ledger(partition int) *ledger {
	d.mu.RLock()
	l := d.ledgers[partition]
	d.mu.RUnlock()
	if l != nil {
		return l
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l = d.ledgers[partition]; l == nil {
		l = newLedger(d, partition)
		d.ledgers[partition] = l
	}
	return l
}
