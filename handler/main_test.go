package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// memTable returns a size that is small for tests, so that stored data reaches the tables, and normal for benchmarks.
func memTable(t testing.TB) uint64 {
	if _, ok := t.(*testing.B); ok {
		return 64 << 20
	}
	return 256 << 10
}

func openDB(t testing.TB, dir string, fs vfs.FS) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, Logger: quiet{}, MemTableSize: memTable(t)})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// handlers are definitions that a test may change.
type handlers struct {
	mu sync.Mutex
	m  map[resource.Name]*resource.Handler
	sn *config.Snapshot
}

func newHandlers(defs ...*resource.Handler) *handlers {
	h := &handlers{m: map[resource.Name]*resource.Handler{}}
	h.put(defs...)
	return h
}

func (h *handlers) put(hs ...*resource.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, def := range hs {
		h.m[resource.NameOf(&def.Metadata)] = def
	}
	h.publish()
}

func (h *handlers) delete(namespace, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.m, resource.Name{Namespace: namespace, Name: name})
	h.publish()
}

// publish makes the snapshot. The caller holds mu.
func (h *handlers) publish() {
	h.sn = config.Empty()
	for _, def := range h.m {
		h.sn = config.With(h.sn, config.Handlers, def)
	}
}

// define adds a definition of another kind, which lasts until handlers change.
func define[T any](h *handlers, k config.Kind[T], obj *T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sn = config.With(h.sn, k, obj)
}

func (h *handlers) snapshot() *config.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sn
}

// sendFunc makes an attempt of a delivery in a test.
type sendFunc func(ctx context.Context, h *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result

// newSender returns a sender whose pipe and webhook handlers are a test's function.
func newSender(t testing.TB, f sendFunc) *send.Sender {
	t.Helper()
	kind := func(ctx context.Context, h *resource.Handler, job send.Job) send.Result {
		return f(ctx, h, deliveryOf(h, job), job)
	}
	s, err := send.New(send.Options{Kinds: map[string]send.Kind{"pipe": kind, "webhook": kind}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// deliveryOf returns what a receiver sees of a delivery.
func deliveryOf(h *resource.Handler, job send.Job) *delivery.Delivery {
	dl := &delivery.Delivery{Header: delivery.Header{
		ID: job.ID, EventID: delivery.EventIDOf(job.ID), Namespace: h.Metadata.Namespace, Handler: h.Metadata.Name,
	}}
	_, _ = fmt.Sscanf(job.ID, "%d-%d-%d/", &dl.Partition, &dl.Seq, &dl.Sub) // some tests have other IDs
	if ev := job.Event; ev != nil {
		dl.Event = ev.AppendProto(nil)
		dl.Entity = ev.Entity.Metadata.Name
		if ev.Check != nil {
			dl.Check, dl.Status, dl.Incident = ev.Check.Metadata.Name, ev.Check.Status, ev.Check.Status != 0
		}
	}
	return dl
}

// newWorkflows decides and shapes by the definitions.
func newWorkflows(t testing.TB, h *handlers) *workflow.Workflows {
	t.Helper()
	w, err := workflow.New(workflow.Options{Config: h.snapshot})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// finished collects the calls of onFinish.
type finished struct {
	mu      sync.Mutex
	cond    *sync.Cond
	all     []*delivery.Delivery
	results map[string]trace.Verdict // by delivery ID, the last one
}

func newFinished() *finished {
	f := &finished{results: map[string]trace.Verdict{}}
	f.cond = sync.NewCond(&f.mu)
	return f
}

func (f *finished) add(dl *delivery.Delivery, result trace.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, dl)
	f.results[dl.ID] = result
	f.cond.Broadcast()
}

// wait returns when n deliveries have finished. The test binary's own timeout is the limit.
func (f *finished) wait(n int) []*delivery.Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.all) < n {
		f.cond.Wait()
	}
	return f.all[:len(f.all):len(f.all)]
}

func (f *finished) result(id string) trace.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.results[id]
}

// loopback is a log with one partition, whose records of deliveries are folded at once.
type loopback struct {
	d    *Dispatcher
	mu   sync.Mutex // held while a record is folded; guards seq
	seq  uint64
	gate sync.Mutex // guards shut
	shut chan struct{}
}

// close has the log take nothing until open.
func (l *loopback) close() {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.shut = make(chan struct{})
}

func (l *loopback) open() {
	l.gate.Lock()
	defer l.gate.Unlock()
	close(l.shut)
	l.shut = nil
}

func (l *loopback) Partition(string, string) int { return 0 }

func (l *loopback) AppendTo(ctx context.Context, partition int, r *eventlog.Record, acker eventlog.Acker, token uint64) error {
	l.gate.Lock()
	shut := l.shut
	l.gate.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	_, err := l.d.Fold(partition, l.seq, 1, r.Body, nil)
	if acker != nil {
		acker.Logged(token, partition, 1, err)
	}
	return nil
}

// bundle is a dispatcher with the parts that tests use.
type bundle struct {
	*Dispatcher
	db       *pebble.DB
	log      *loopback // unless the test has its own
	handlers *handlers
	finished *finished
	registry *prometheus.Registry
	send     sendFunc // what handlers do; a test sets it before the start

	newestMu sync.Mutex
	newest   map[int]uint64 // the newest dispatched message, by partition
}

// Dispatch dispatches a delivery, and says that all messages before are routed.
func (b *bundle) Dispatch(dl *delivery.Delivery) {
	b.Dispatcher.Dispatch(dl)
	b.newestMu.Lock()
	b.newest[dl.Partition] = max(b.newest[dl.Partition], dl.Seq)
	b.newestMu.Unlock()
	b.Routed(dl.Partition, dl.Seq-1)
}

// eventually polls for a state that must come and gives no signal.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Microsecond) { // between checks
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// setup makes a dispatcher, not started, on a database that is closed when the test ends.
func setup(t testing.TB, opts Options, defs ...*resource.Handler) *bundle {
	t.Helper()
	if opts.DB == nil {
		db := openDB(t, t.TempDir(), vfs.Default)
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		opts.DB = db
	}
	b := &bundle{
		db: opts.DB, handlers: newHandlers(defs...), finished: newFinished(), registry: prometheus.NewRegistry(), send: noSend,
		newest: map[int]uint64{},
	}
	opts.Config, opts.Workflows = b.handlers.snapshot, newWorkflows(t, b.handlers)
	if opts.OnCall == nil {
		opts.Present, opts.OnCall = new(present).Event, oncall.New(b.handlers.snapshot, calendar.New(nil))
	}
	if opts.Sender == nil {
		opts.Sender = newSender(t, func(
			ctx context.Context, h *resource.Handler, dl *delivery.Delivery, job send.Job,
		) send.Result {
			return b.send(ctx, h, dl, job)
		})
	}
	log, _ := opts.Log.(*loopback)
	if opts.Log == nil {
		log = new(loopback)
		opts.Log = log
	}
	opts.Registerer = b.registry
	if opts.Backoff == 0 {
		opts.Backoff = time.Millisecond
	}
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if log != nil {
		log.d, b.log = d, log
	}
	b.Dispatcher, d.onFinish = d, b.finished.add
	for p := range 8 {
		if err := d.Own(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bundle) start(t testing.TB) {
	t.Helper()
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// flush reports everything that was dispatched and every end, and returns when that is folded.
func (b *bundle) flush(t testing.TB, partition int) {
	t.Helper()
	b.newestMu.Lock()
	newest := b.newest[partition]
	b.newestMu.Unlock()
	b.Routed(partition, newest)
	if err := b.ledger(partition).flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stored returns the keys of the deliveries in Pebble.
func stored(t testing.TB, db *pebble.DB) []string {
	t.Helper()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte("dq"), UpperBound: []byte("dr")})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	var keys []string
	for ok := it.First(); ok; ok = it.Next() {
		keys = append(keys, string(it.Key()))
	}
	return keys
}

// metric returns the sum of a metric's series that have all the given label values.
func (b *bundle) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			for _, want := range labels {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetValue() == want
				}
				if !found {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func incident(handler string, seq int, entity string) *delivery.Delivery {
	id := fmt.Sprintf("0-%d-1", seq)
	return &delivery.Delivery{
		Header: delivery.Header{
			ID: id + "/" + handler, EventID: id, Incident: true, Status: 2,
			Namespace: "default", Handler: handler, Entity: entity, Check: "cpu",
		},
		Seq: uint64(seq), Sub: 1, Event: event(entity, fmt.Sprint("data ", seq)).AppendProto(nil),
	}
}

// event returns an incident of an entity. The part of the entity's name before a dash is its rack.
func event(entity, output string) *resource.Event {
	rack, _, _ := strings.Cut(entity, "-")
	return &resource.Event{
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{
			Namespace: "default", Name: entity, Labels: map[string]string{"rack": rack},
		}},
		Check: &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: "cpu"}, Status: 2, Output: output},
	}
}

// output returns the output of the delivery's event.
func output(t testing.TB, dl *delivery.Delivery) string {
	t.Helper()
	ev := new(resource.Event)
	if err := ev.UnmarshalProto(dl.Event); err != nil {
		t.Fatal(err)
	}
	return ev.Check.Output
}

func pipe(name, command string) *resource.Handler {
	return &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "pipe", Command: command}
}

func noSend(context.Context, *resource.Handler, *delivery.Delivery, send.Job) send.Result {
	return send.Result{}
}

// shaped returns what a handler got: the members of a merged event, the output of another one, or a mutator's result.
func shaped(job send.Job) string {
	if job.Mutated || job.Event == nil || job.Event.Check == nil {
		return string(job.Data)
	}
	ev := new(resource.Event)
	if err := json.Unmarshal(job.Data, ev); err != nil {
		return err.Error()
	}
	list, ok := ev.Metadata.Annotations[workflow.MergedAnnotation]
	if !ok {
		return ev.Check.Output
	}
	var members []workflow.MergedMember
	if err := json.Unmarshal([]byte(list), &members); err != nil {
		return err.Error()
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Entity
	}
	return strings.Join(names, " ")
}

// awaitKnown returns when the log has the deliveries of all messages up to seq.
func (l *ledger) awaitKnown(ctx context.Context, seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for goal := min(seq, l.top); l.known < goal; {
		if l.over || l.err != nil {
			return fmt.Errorf("the log does not have the deliveries of partition %d up to message %d", l.partition, goal)
		}
		l.ask(0)
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
