package handler

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// hold makes every delivery wait until it is released, and signals each that has begun.
type hold struct {
	begun chan *delivery.Delivery
	goOn  chan struct{}
}

func (b *bundle) hold() hold {
	h := hold{make(chan *delivery.Delivery, 10000), make(chan struct{})}
	b.send = func(ctx context.Context, _ *resource.Handler, dl *delivery.Delivery, _ send.Job) send.Result {
		h.begun <- dl
		select {
		case <-h.goOn:
			return send.Result{}
		case <-ctx.Done():
			return send.Result{Err: ctx.Err()}
		}
	}
	return h
}

func TestPairsRunInOrderAndTogether(t *testing.T) {
	b := setup(t, Options{Workers: 4}, pipe("a", "true"))
	h := b.hold()
	b.start(t)
	// Three of one pair, then one each of five others: four may run at a time, but only one of a pair.
	for i := range 3 {
		b.Dispatch(incident("a", i+1, "one"))
	}
	for i := range 5 {
		b.Dispatch(incident("a", i+4, fmt.Sprint("other", i)))
	}
	seen := map[string]int{}
	for range 4 {
		seen[(<-h.begun).Entity]++
	}
	if len(seen) != 4 || seen["one"] != 1 {
		t.Errorf("running at the same time: %v", seen)
	}
	close(h.goOn)
	var order []uint64
	for _, dl := range b.finished.wait(8) {
		if dl.Entity == "one" {
			order = append(order, dl.Seq)
		}
	}
	if !slices.Equal(order, []uint64{1, 2, 3}) {
		t.Errorf("order of one pair: %v", order)
	}
}

func TestBusyPairTakesTurns(t *testing.T) {
	b := setup(t, Options{Workers: 1}, pipe("a", "true"))
	h := b.hold()
	for i := range 10 {
		b.Dispatch(incident("a", i+1, "busy"))
	}
	b.Dispatch(incident("a", 11, "calm"))
	close(h.goOn)
	b.start(t)
	all := b.finished.wait(11)
	if all[1].Entity != "calm" {
		t.Errorf("the pair with one delivery had to wait for the pair with ten: %v", all)
	}
}

func TestSlowHandlerDelaysNoOther(t *testing.T) {
	b := setup(t, Options{QueueSize: 2, Workers: 1}, pipe("slow", "true"), pipe("fast", "true"))
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	b.send = func(_ context.Context, h *resource.Handler, _ *delivery.Delivery, _ send.Job) send.Result {
		if h.Metadata.Name == "slow" {
			begun <- struct{}{}
			<-goOn
		}
		return send.Result{}
	}
	b.start(t)
	b.Dispatch(incident("slow", 1, "e"))
	<-begun
	for i := range 100 { // both queues overflow; only one drains
		b.Dispatch(incident("slow", i+2, "e"))
		b.Dispatch(incident("fast", i+2, "e"))
	}
	b.finished.wait(100)
	if n := b.metric(t, "lapwing_handler_queue_spilled", "slow"); n != 99 {
		t.Errorf("%v deliveries of the slow handler are spilled, want 99", n)
	}
	if n := b.metric(t, "lapwing_handler_queue_depth", "slow"); n != 2 {
		t.Errorf("depth %v of the slow handler, want 2", n)
	}
	go func() {
		for range begun {
		}
	}()
	close(goOn)
	b.finished.wait(201)
	close(begun)
}

func TestSpillAndDrain(t *testing.T) {
	for name, opts := range map[string]Options{
		"by number": {QueueSize: 10, Workers: 3},
		"by bytes":  {QueueBytes: 100, Workers: 3},
		"one":       {QueueSize: 1, Workers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, opts, pipe("a", "true"))
			h := b.hold()
			b.start(t)
			const n = 500
			for i := range n {
				dl := incident("a", i/3+1, fmt.Sprint("e", i%7))
				dl.Partition, dl.Sub = i%2, i
				dl.ID = fmt.Sprint(i)
				b.Dispatch(dl)
			}
			if got := b.metric(t, "lapwing_handler_queue_spilled") + b.metric(t, "lapwing_handler_queue_depth"); got != n {
				t.Errorf("depth and spilled make %v, want %v", got, n)
			}
			if got := b.metric(t, "lapwing_handler_spilled_total"); got < n-20 || float64(len(stored(t, b.db))) < got {
				t.Errorf("%d are stored, %v were spilled", len(stored(t, b.db)), got)
			}
			b.flush(t, 0)
			b.flush(t, 1)
			if got := len(stored(t, b.db)); got != n {
				t.Errorf("%d unfinished ones are stored after a report, want %d", got, n)
			}
			close(h.goOn)
			last := map[string]int{}
			for _, dl := range b.finished.wait(n) {
				if was, ok := last[dl.Entity+fmt.Sprint(dl.Partition)]; ok && was >= dl.Sub {
					t.Fatalf("delivery %d ran behind %d", dl.Sub, was)
				}
				last[dl.Entity+fmt.Sprint(dl.Partition)] = dl.Sub
			}
			if got := b.metric(t, "lapwing_handler_queue_spilled"); got != 0 {
				t.Errorf("%v are still spilled", got)
			}
			b.flush(t, 0)
			b.flush(t, 1)
			if got := len(stored(t, b.db)); got != 0 {
				t.Errorf("%d finished ones are stored after the report", got)
			}
		})
	}
}

func TestUnfinishedRunAfterTheNextStart(t *testing.T) {
	db := openDB(t, t.TempDir(), vfs.Default)
	t.Cleanup(func() { db.Close() }) // after the Stop of setup
	b := setup(t, Options{DB: db, QueueSize: 4, Workers: 2, StopTimeout: time.Millisecond}, pipe("a", "true"), pipe("b", "true"))
	h := b.hold()
	b.start(t)
	for i := range 20 {
		b.Dispatch(incident([]string{"a", "b"}[i%2], i+1, "e"))
	}
	b.Routed(0, 20)
	<-h.begun
	<-h.begun
	if err := b.Stop(); err != nil { // kills running deliveries
		t.Fatal(err)
	}
	b.Dispatch(incident("a", 21, "e")) // the log may still bring some, which it brings again
	b.flush(t, 0)
	if len(b.finished.wait(0)) != 0 {
		t.Fatal("something finished")
	}

	b = setup(t, Options{DB: db, QueueSize: 4, Workers: 2}, pipe("a", "true"), pipe("b", "true"))
	h = b.hold()
	close(h.goOn)
	b.Dispatch(incident("a", 20, "e")) // replayed, and known
	b.Dispatch(incident("a", 21, "e")) // replayed, and not known
	b.Dispatch(incident("a", 22, "e")) // new
	b.start(t)
	var got []string
	for _, dl := range b.finished.wait(22) {
		if output(t, dl) != fmt.Sprint("data ", dl.Seq) || dl.Check != "cpu" || dl.Namespace != "default" {
			t.Errorf("came back as %+v", dl)
		}
		if dl.Handler == "a" {
			got = append(got, dl.ID)
		}
	}
	want := []string{
		"0-1-1/a", "0-3-1/a", "0-5-1/a", "0-7-1/a", "0-9-1/a", "0-11-1/a", "0-13-1/a", "0-15-1/a", "0-17-1/a",
		"0-19-1/a", "0-21-1/a", "0-22-1/a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("ran after the restart: %v", got)
	}
	b.flush(t, 0)
	if keys := stored(t, db); len(keys) != 0 {
		t.Errorf("still stored: %q", keys)
	}
}

func TestStopLetsRunningDeliveriesFinish(t *testing.T) {
	b := setup(t, Options{StopTimeout: time.Hour}, pipe("a", "true"))
	h := b.hold()
	b.start(t)
	b.Dispatch(incident("a", 1, "e"))
	<-h.begun
	var stop sync.WaitGroup
	stop.Go(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	for b.running.Load() {
		runtime.Gosched()
	}
	b.Dispatch(incident("a", 2, "f")) // must not start any more
	close(h.goOn)
	stop.Wait()
	if all := b.finished.wait(1); len(all) != 1 || all[0].Seq != 1 || b.result("0-1-1/a") != trace.Delivered {
		t.Errorf("finished: %v", all)
	}
	b.flush(t, 0)
	if keys := stored(t, b.db); len(keys) != 1 {
		t.Errorf("stored: %q", keys)
	}
}

func (b *bundle) result(id string) trace.Verdict { return b.finished.result(id) }

func TestLifecycle(t *testing.T) {
	b := setup(t, Options{}, pipe("a", "true"))
	b.start(t)
	if err := b.Start(context.Background()); err == nil {
		t.Error("started twice")
	}
	for range 2 {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := b.Start(context.Background()); err == nil {
		t.Error("started after Stop")
	}
	b = setup(t, Options{})
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if err := b.Start(context.Background()); err == nil {
		t.Error("started after Stop")
	}
	if _, err := New(Options{}); err == nil {
		t.Error("made without a database")
	}
	if _, err := New(Options{
		DB: b.db, Log: b.opts.Log, Config: b.opts.Config, Workflows: b.opts.Workflows, Sender: b.opts.Sender,
		Present: b.opts.Present, OnCall: b.opts.OnCall, Workers: -1,
	}); err == nil || !strings.Contains(err.Error(), "Workers") {
		t.Errorf("made with -1 workers: %v", err)
	}
}

// TestStartAndStopUnderLoad is for the race detector and the leak check.
func TestStartAndStopUnderLoad(t *testing.T) {
	b := setup(t, Options{QueueSize: 5, Workers: 2}, pipe("a", "true"), pipe("b", "true"))
	of := func(p, i int) *delivery.Delivery {
		dl := incident([]string{"a", "b"}[i%2], i+1, fmt.Sprint("e", i%5))
		dl.Partition = p
		dl.ID = fmt.Sprintf("%d %s", p, dl.ID)
		return dl
	}
	var load sync.WaitGroup
	for p := range 3 {
		load.Go(func() {
			for i := range 300 {
				b.Dispatch(of(p, i))
				if i%10 == 0 {
					b.flush(t, p)
					b.metric(t, "lapwing_handler_queue_depth")
				}
			}
		})
	}
	b.start(t)
	b.finished.wait(100)
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	load.Wait()
	for p := range 3 {
		b.flush(t, p)
	}
	done := map[string]int{}
	for _, dl := range b.finished.wait(0) {
		done[dl.ID]++
	}
	b2 := setup(t, Options{DB: b.db}, pipe("a", "true"), pipe("b", "true"))
	b2.start(t)
	for i := range 300 { // the replay; what is known is passed over
		for p := range 3 {
			b2.Dispatch(of(p, i))
		}
	}
	eventually(t, "all deliveries have run", func() bool {
		ran := maps.Clone(done)
		for _, dl := range b2.finished.wait(0) {
			ran[dl.ID]++
		}
		return len(ran) == 900
	})
	if err := b2.Stop(); err != nil {
		t.Error(err)
	}
	for _, dl := range b2.finished.wait(0) {
		done[dl.ID]++
	}
	// A message counts as routed only after the next one is dispatched. If Stop comes before, what has run of it runs again:
	// two deliveries of each partition at most.
	twice := map[byte]int{}
	for id, n := range done {
		if n == 2 {
			twice[id[0]]++
		} else if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	for partition, n := range twice {
		if n > 2 {
			t.Errorf("%d deliveries of partition %c ran twice", n, partition)
		}
	}
}

func TestDeletedHandler(t *testing.T) {
	b := setup(t, Options{QueueSize: 2, Workers: 1}, pipe("a", "true"))
	h := b.hold()
	b.start(t)
	for i := range 10 {
		b.Dispatch(incident("a", i+1, "e"))
	}
	<-h.begun
	b.handlers.delete("default", "a")
	close(h.goOn)
	b.finished.wait(10)
	if n := b.metric(t, "lapwing_handler_dropped_total"); n != 9 {
		t.Errorf("%v dropped, want 9", n)
	}
	eventually(t, "the worker has ended", func() bool { return b.metric(t, "lapwing_handler_queue_spilled") == 0 })
	b.flush(t, 0)
	if keys := stored(t, b.db); len(keys) > 0 {
		t.Errorf("still stored: %q", keys)
	}
}

func (b *bundle) hasQueue(handler string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.queues[resource.Name{Namespace: "default", Name: handler}] != nil
}

// TestNameUsedAgain: a queue is dropped while its finished deliveries are still stored, and its name is used again.
func TestNameUsedAgain(t *testing.T) {
	b := setup(t, Options{QueueSize: 1, Workers: 1}, pipe("a", "true"), pipe("other", "true"))
	h := b.hold()
	b.Dispatch(incident("a", 1, "e"))
	b.Dispatch(incident("a", 2, "e"))
	b.flush(t, 0)
	b.log.close()
	close(h.goOn)
	b.start(t)
	b.finished.wait(2)
	eventually(t, "the worker has ended", b.queues[resource.Name{Namespace: "default", Name: "a"}].empty)
	b.handlers.delete("default", "a")
	b.Dispatch(incident("other", 3, "e"))
	if b.hasQueue("a") {
		t.Fatal("the queue of a deleted handler is kept")
	}
	if n := len(stored(t, b.db)); n != 2 {
		t.Fatalf("%d are stored, want 2", n)
	}
	b.handlers.put(pipe("a", "true"))
	for i := range 20 {
		b.Dispatch(incident("a", 4+i, "e"))
	}
	count := map[uint64]int{}
	for _, dl := range b.finished.wait(23) {
		count[dl.Seq]++
	}
	for seq, n := range count {
		if n > 1 {
			t.Errorf("delivery %d ran %d times", seq, n)
		}
	}
	if len(count) != 23 {
		t.Errorf("%d deliveries ran, want 23", len(count))
	}
	b.log.open()
	b.flush(t, 0)
	if keys := stored(t, b.db); len(keys) != 0 {
		t.Errorf("still stored: %q", keys)
	}
}

func TestUnreadableRecords(t *testing.T) {
	b := setup(t, Options{QueueSize: 2, Workers: 1}, pipe("a", "true"))
	h := b.hold()
	for i := range 12 {
		b.Dispatch(incident("a", i+1, "e"))
	}
	b.flush(t, 0) // the next report is of the ends
	for _, seq := range []uint64{3, 7, 8, 12} {
		if err := b.db.Set(deliveryKey(resource.Name{Namespace: "default", Name: "a"}, 0, position{seq, 1}),
			[]byte{version, 200}, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.db.Delete(deliveryKey(resource.Name{Namespace: "default", Name: "a"}, 0, position{10, 1}), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	if err := b.db.Set([]byte("dqdefault\x00a\x00\x00\x00short"), nil, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	close(h.goOn)
	b.start(t)
	var got []uint64
	for _, dl := range b.finished.wait(7) {
		got = append(got, dl.Seq)
	}
	if !slices.Equal(got, []uint64{1, 2, 4, 5, 6, 9, 11}) {
		t.Errorf("ran: %v", got)
	}
	eventually(t, "the last page, with nothing to run, is read", func() bool { return b.metric(t, "lapwing_handler_queue_spilled") == 0 })
	if n := b.metric(t, "lapwing_handler_store_errors_total"); n != 4 {
		t.Errorf("%v errors, want 4", n)
	}
	b.flush(t, 0)
	if keys := stored(t, b.db); len(keys) != 1 || !strings.HasSuffix(keys[0], "short") {
		t.Errorf("still stored: %q", keys)
	}
	opts := b.opts
	opts.Registerer = nil
	again, err := New(opts)
	if err == nil {
		err = again.Own(0, 0)
	}
	if err != nil || again.queues[resource.Name{Namespace: "default", Name: "a"}] != nil {
		t.Errorf("a key that cannot be read is in the way: %v", err)
	}
	if err := b.db.Set(markerKey(3), []byte("bad"), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	if _, err := New(opts); err == nil {
		t.Error("a bad marker is passed over")
	}
}

// TestSpillFails: the database takes no writes, so deliveries stay in memory.
func TestSpillFails(t *testing.T) {
	dir := t.TempDir()
	if err := openDB(t, dir, vfs.Default).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(dir, &pebble.Options{ReadOnly: true, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	h, log := newHandlers(pipe("a", "true")), new(loopback)
	d, err := New(Options{
		DB: db, Log: log, Config: h.snapshot, QueueSize: 2, Workflows: newWorkflows(t, h), Sender: newSender(t, noSend),
		Present: new(present).Event, OnCall: oncall.New(h.snapshot, calendar.New(nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	f := newFinished()
	d.onFinish, log.d = f.add, d
	if err := d.Own(0, 0); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		d.Dispatch(incident("a", i+1, "e"))
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wait(10)
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeDelivery(f *testing.F) {
	it := item{Delivery: incident("a", 1, "e")}
	it.Received = 1_700_000_000_123
	f.Add(it.value())
	it.Event, it.Data = nil, []byte("data")
	f.Add(it.value())
	f.Add([]byte{})
	f.Add([]byte{version, 0, 0, 0})
	f.Add([]byte{version, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{1, 0, 0, 0})
	f.Add([]byte{version + 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		dl, err := decodeDelivery(resource.Name{Namespace: "default", Name: "a"}, 1, position{2, 3}, b)
		if err != nil {
			return
		}
		again, err := decodeDelivery(resource.Name{Namespace: "default", Name: "a"}, 1, position{2, 3}, (&item{Delivery: dl}).value())
		if err != nil || again.ID != dl.ID || again.Entity != dl.Entity || again.Check != dl.Check ||
			again.Received != dl.Received || string(again.Data) != string(dl.Data) || string(again.Event) != string(dl.Event) ||
			again.Status != dl.Status || again.Incident != dl.Incident {
			t.Errorf("%+v became %+v, %v", dl, again, err)
		}
	})
}

func FuzzParseDeliveryKey(f *testing.F) {
	f.Add(string(deliveryKey(resource.Name{Namespace: "default", Name: "a"}, 1, position{2, 3})))
	f.Add("dq\x00\x00")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		name, partition, pos, err := parseDeliveryKey([]byte(s))
		if err == nil && string(deliveryKey(name, partition, pos)) != s {
			t.Errorf("%q is not the key of %v %d %v", s, name, partition, pos)
		}
	})
}

// BenchmarkDispatch measures a delivery on its way through a queue that does not overflow.
func BenchmarkDispatch(b *testing.B) {
	bd := setup(b, Options{QueueSize: 1 << 30, QueueBytes: 1 << 40}, pipe("a", "true"))
	bd.onFinish = nil
	bd.start(b)
	b.ReportAllocs()
	entities := [64]string{}
	for i := range entities {
		entities[i] = fmt.Sprint("e", i)
	}
	i := 0
	nothing := event("e", "o").AppendProto(nil)
	for b.Loop() {
		i++
		bd.Dispatcher.Dispatch(&delivery.Delivery{
			Header: delivery.Header{ID: "1-1-1/a", EventID: "1-1-1", Namespace: "default", Handler: "a", Entity: entities[i%64], Check: "c"},
			Seq:    uint64(i), Event: nothing,
		})
	}
}

// BenchmarkSpill measures a delivery of 2 KB that finds its queue full.
func BenchmarkSpill(b *testing.B) {
	bd := setup(b, Options{QueueSize: 1}, pipe("a", "true"))
	data := make([]byte, 2048)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		bd.Dispatcher.Dispatch(&delivery.Delivery{
			Header: delivery.Header{ID: "1-1-1/a", EventID: "1-1-1", Namespace: "default", Handler: "a", Entity: "e", Check: "c"},
			Seq:    uint64(i), Event: data,
		})
	}
}
