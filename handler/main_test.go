package handler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/handler/send"
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

// memTable is small for tests, so that what is stored reaches the tables, and usual for benchmarks.
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
}

func (h *handlers) put(hs ...*resource.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, def := range hs {
		h.m[resource.NameOf(&def.Metadata)] = def
	}
}

func (h *handlers) delete(namespace, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.m, resource.Name{Namespace: namespace, Name: name})
}

func (h *handlers) get(namespace, name string) (*resource.Handler, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	def, ok := h.m[resource.Name{Namespace: namespace, Name: name}]
	return def, ok
}

// finished collects what onFinish tells.
type finished struct {
	mu      sync.Mutex
	cond    *sync.Cond
	all     []*Delivery
	results map[string]trace.Verdict // by delivery ID, the last one
}

func newFinished() *finished {
	f := &finished{results: map[string]trace.Verdict{}}
	f.cond = sync.NewCond(&f.mu)
	return f
}

func (f *finished) add(dl *Delivery, result trace.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, dl)
	f.results[dl.ID] = result
	f.cond.Broadcast()
}

// wait returns when n deliveries have finished. The test binary's own timeout is the limit.
func (f *finished) wait(n int) []*Delivery {
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

// bundle is a dispatcher with what the tests reach for.
type bundle struct {
	*Dispatcher
	db       *pebble.DB
	handlers *handlers
	finished *finished
	registry *prometheus.Registry
}

// eventually waits for what must come and gives no signal.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Microsecond) { // between looks
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// setup makes a dispatcher, which is not started, over a database that is closed when the test ends.
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
	b := &bundle{db: opts.DB, handlers: &handlers{m: map[resource.Name]*resource.Handler{}}, finished: newFinished(), registry: prometheus.NewRegistry()}
	b.handlers.put(defs...)
	opts.Config = func() *config.Snapshot { panic("tests look up elsewhere") }
	if opts.Workflow == nil {
		opts.Workflow = new(workflow)
	}
	if opts.Send == nil {
		opts.Send = func(context.Context, *resource.Handler, send.Job) send.Result { return send.Result{} }
	}
	opts.Registerer = b.registry
	if opts.Backoff == 0 {
		opts.Backoff = time.Millisecond
	}
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	d.lookup = b.handlers.get
	d.onFinish = b.finished.add
	b.Dispatcher = d
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

// checkpoint does what package state does.
func (b *bundle) checkpoint(t testing.TB, partition int) {
	t.Helper()
	batch := b.db.NewBatch()
	defer batch.Close()
	if err := b.Checkpoint(partition, batch); err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

// stored is the keys of the deliveries in Pebble.
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

// metric is the sum of a metric's series that have all the given label values.
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

func delivery(handler string, seq int, entity string) *Delivery {
	return &Delivery{
		ID: fmt.Sprintf("0-%d-1/%s", seq, handler), Seq: uint64(seq), Sub: 1, Incident: true, Status: 2,
		Namespace: "default", Handler: handler, Entity: entity, Check: "cpu", Event: event(entity, fmt.Sprint("data ", seq)).AppendProto(nil),
	}
}

func event(entity, output string) *resource.Event {
	return &resource.Event{
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Namespace: "default", Name: entity}},
		Check:  &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: "cpu"}, Status: 2, Output: output},
	}
}

// output is that of the delivery's event.
func output(t testing.TB, dl *Delivery) string {
	t.Helper()
	ev := new(resource.Event)
	if err := ev.UnmarshalProto(dl.Event); err != nil {
		t.Fatal(err)
	}
	return ev.Check.Output
}

// workflow lets everything go on, unless a test sets what it does instead.
type workflow struct {
	decide   func(*Delivery, *resource.Event) Decision
	shape    func(*Delivery, *resource.Event) ([]byte, error)
	fallback func(*Delivery) []*Delivery
}

func (w *workflow) Decide(_ context.Context, dl *Delivery, ev *resource.Event) Decision {
	if w.decide == nil {
		return Decision{}
	}
	return w.decide(dl, ev)
}

func (w *workflow) Shape(_ context.Context, dl *Delivery, ev *resource.Event) ([]byte, []trace.Step, error) {
	if w.shape == nil {
		return []byte(ev.Check.Output), nil, nil
	}
	data, err := w.shape(dl, ev)
	return data, nil, err
}

func (w *workflow) Fold(_ *Delivery, key string, events []*resource.Event) *resource.Event {
	names := []string{}
	for _, ev := range events {
		names = append(names, ev.Entity.Metadata.Name)
	}
	return event(key, strings.Join(names, " "))
}

func (w *workflow) Fallback(dl *Delivery, _ *resource.Event) []*Delivery {
	if w.fallback == nil {
		return nil
	}
	return w.fallback(dl)
}

func pipe(name, command string) *resource.Handler {
	return &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "pipe", Command: command}
}

func noSend(context.Context, *resource.Handler, send.Job) send.Result { return send.Result{} }
