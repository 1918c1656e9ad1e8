// Package handler delivers events to commands, webhooks, sockets and mail servers, as users define it.
//
// Package pipeline calls Dispatch with deliveries: an event for one handler each. Each handler has a bounded queue and
// workers of its own, so a slow one delays no other. A worker asks package workflow whether a delivery goes out, and
// with which data; package send then makes one attempt. After a temporary failure the delivery is tried again, after a
// wait that occupies no worker and outlasts a restart. After a permanent one it becomes a dead letter, which users can
// read and have sent again. Deliveries of one (namespace, entity, check) to a handler go out one after the other, in
// the order of the event log. When a queue is full, further deliveries are stored in Pebble and read back as it
// drains. State changes go first, and at a bound the other classes are shed (docs/overload.md).
//
// Every delivery runs at least once, even if the process or its disk is lost: the owner of a partition reports
// its deliveries, and what became of them, to the event log, and every backend folds these records (Fold). A backend
// that begins to act for a partition (Own) runs what is unfinished, and package fold routes again what the log does not
// have. A repeat has the same ID. A handler that groups or limits its rate has a home partition, whose owner runs all
// its deliveries: other owners hand theirs over. DESIGN.md explains the rules.
package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Options configures a Dispatcher. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// DB stores deliveries under keys that begin with 'd'. Required.
	DB *pebble.DB
	// Log takes the records about deliveries, which come back with Fold. Required.
	Log Log
	// Origin is this backend's id. Two backends of a cluster must not have the same.
	Origin string
	// Config is the present definitions. They must be loaded when Start is called: a delivery without a handler among
	// them is dropped. Required.
	Config func() *config.Snapshot
	// Workflows decides what goes out, and as what. Required.
	Workflows *workflow.Workflows
	// Sender makes the attempts. Required.
	Sender *send.Sender
	// Present returns a check's event as it is now, with the silences that apply to it; nil if there is none. Escalations
	// ask it. Required.
	Present func(namespace, entity, check string) (*resource.Event, error)
	// OnCall says whom the steps of escalations notify. Required.
	OnCall *oncall.Directory
	// AcknowledgeURL returns the link with which the contact of a step's delivery acknowledges its event, or "". Default:
	// there are none.
	AcknowledgeURL func(*delivery.Delivery, *resource.Event) (string, error)
	// Trace receives what becomes of deliveries. It must not block. Default none.
	Trace func(*trace.Delivery)
	// Notify receives each attempt that was made, except those that count for nothing and are made again. It must not
	// block. Default none.
	Notify func(*notification.Notification)
	// MayRun reports whether this backend may make attempts now. It is asked several times a second. Attempts that are
	// under way when it returns false are ended, and made again later. Default: always.
	MayRun func() bool
	// QueueSize is how many deliveries of a handler are in memory.
	QueueSize int
	// QueueBytes bounds the same in bytes of data.
	QueueBytes int
	// QueueDisk bounds how many deliveries of a handler are on disk because memory has no room. From half of it on those
	// with metrics only are shed, from three quarters on unchanged ones, and at the bound those that fail as before. State
	// changes never are. 0 means no bound.
	QueueDisk int
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

// Log is the event log; *eventlog.Log.
type Log interface {
	AppendTo(ctx context.Context, partition int, r *eventlog.Record, acker eventlog.Acker, token uint64) error
	Partition(namespace, entity string) int
}

const (
	// lastReportTimeout bounds how long Stop waits for the log.
	lastReportTimeout = 5 * time.Second
	// maxOwed is how much workers may have changed that the log has not taken, in bytes. Then they pause.
	maxOwed = 64 << 20
	// maxEnded is how many deliveries may have ended that the log does not know. Then the workers pause, too: a crash
	// repeats at most these and the running ones, however slow the log is.
	maxEnded = 48
)

// Dispatcher owns the queues of all handlers.
type Dispatcher struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for lines that each delivery may cause
	metrics metrics

	// onFinish, if not nil, is called with a delivery and its end once both are recorded, so that tests can wait for
	// it.
	onFinish func(*delivery.Delivery, trace.Verdict)

	local    sync.Mutex // guards localSeq, the number of the newest local delivery
	localSeq uint64
	localSub uint32
	letters  letterCount
	handed   handedCount

	// mu guards the maps. Dispatch holds it for reading until its delivery is queued, so that its queue is not
	// dropped. Order of locks: mu, queue.mu, ledger.mu, letterCount.mu.
	mu      sync.RWMutex
	queues  map[resource.Name]*queue
	ledgers map[int]*ledger

	lifecycle sync.Mutex // guards the two below
	started   bool
	stopped   bool

	owed    atomic.Int64 // bytes of what workers have changed and the log has not taken
	maxOwed int64        // more than that, and workers pause

	running atomic.Bool // workers may take deliveries
	workers sync.WaitGroup
	ctx     context.Context // of running deliveries
	cancel  context.CancelFunc

	permit   atomic.Pointer[permit] // of the attempts that begin now
	watching sync.WaitGroup
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		QueueSize: 1000, QueueBytes: 32 << 20, QueueDisk: 1_000_000, ParkSize: 100_000, Workers: 8, Backoff: time.Second,
		DeadLetters: 250_000, DeadLetterAge: 30 * 24 * time.Hour, StopTimeout: 10 * time.Second,
	}
}

// New reads how far the log has the deliveries. Fold works from now on, so it must be called before the event log is
// replayed. Own begins to take the deliveries of a partition, and nothing runs before Start.
func New(opts Options) (*Dispatcher, error) {
	if opts.DB == nil || opts.Log == nil || opts.Config == nil || opts.Workflows == nil || opts.Sender == nil ||
		opts.Present == nil || opts.OnCall == nil {
		return nil, errors.New("handler: database, log, configuration, workflows, sender, events and contacts are required")
	}
	if opts.QueueSize < 0 || opts.QueueBytes < 0 || opts.Workers < 0 || opts.ParkSize < 0 || opts.DeadLetters < 0 ||
		opts.QueueDisk < 0 {
		return nil, errors.New("handler: QueueSize, QueueBytes, QueueDisk, ParkSize, Workers and DeadLetters must not be negative")
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
		maxOwed: maxOwed, localSub: localSub(opts.Origin),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.permit.Store(newPermit(d.ctx))
	if err := d.load(); err != nil {
		d.cancel()
		return nil, fmt.Errorf("read stored deliveries: %w", err)
	}
	d.metrics = newMetrics(opts.Registerer, d)
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
	if d.opts.MayRun != nil {
		d.watching.Go(d.watchAttempts)
	}
	d.wakeAll()
	return nil
}

// Stop lets running deliveries finish for StopTimeout, ends the others, reports what is left to the log, and returns
// when that is folded. The unfinished deliveries run after the next start. So call it while the log is still folded.
// Dispatch and Fold may still be called afterwards: the next start gets those deliveries from the log.
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
	d.watching.Wait()
	d.lastReports()
	return nil
}

// lastReports reports everything. While the log takes nothing, for example on a full disk, that is given up: the next
// start repeats what is not reported.
func (d *Dispatcher) lastReports() {
	ctx, cancel := context.WithTimeout(context.Background(), lastReportTimeout)
	defer cancel()
	d.mu.RLock()
	ledgers := slices.Collect(maps.Values(d.ledgers))
	d.mu.RUnlock()
	var all sync.WaitGroup
	for _, l := range ledgers {
		all.Go(func() {
			if err := l.flush(ctx); err != nil {
				d.log.Warn("the log did not take the ends of the last deliveries: the next start repeats them",
					"partition", l.partition, "err", err)
			}
			l.end()
		})
	}
	all.Wait()
}

// behind reports whether the log has not taken so much of what workers did that they pause. It bounds memory, and what
// a crash repeats.
func (d *Dispatcher) behind() bool { return d.owed.Load() >= d.maxOwed }

// owesMuch reports whether workers are about to pause.
func (d *Dispatcher) owesMuch() bool { return d.owed.Load() >= d.maxOwed/2 }

// release records that the log has taken a report with changes of workers. If they paused for it, they go on.
func (d *Dispatcher) release(owed int64) {
	if was := d.owed.Add(-owed) + owed; was < d.maxOwed || d.behind() {
		return
	}
	d.wakeAll()
}

// wakeAll wakes the workers of all handlers.
func (d *Dispatcher) wakeAll() {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, q := range d.queues {
		q.mu.Lock()
		q.wake()
		q.mu.Unlock()
	}
}

// lookup returns a handler's present definition.
func (d *Dispatcher) lookup(namespace, name string) (*resource.Handler, bool) {
	return config.Get(d.opts.Config(), config.Handlers, namespace, name)
}

// Routed says that all events of a partition up to a message are dispatched. Package fold calls it behind each message
// with events that could have deliveries.
func (d *Dispatcher) Routed(partition int, seq uint64) {
	d.ledger(partition).routed(seq)
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
	d.queueOf(name)
}

// queueOf returns a handler's queue, and makes it if there is none. The caller holds mu.
func (d *Dispatcher) queueOf(name resource.Name) *queue {
	q := d.queues[name]
	if q == nil {
		q = newQueue(d, name)
		d.queues[name] = q
		d.metrics.know(name.Name)
	}
	return q
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
