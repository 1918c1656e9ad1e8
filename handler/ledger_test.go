package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestEarlierRelease opens what a release before the records of deliveries has stored.
func TestEarlierRelease(t *testing.T) {
	db := openDB(t, "db", vfs.NewMem())
	t.Cleanup(func() { db.Close() }) // after the Stop of setup
	b := db.NewBatch()
	set := func(key, value []byte) {
		if err := b.Set(key, value, nil); err != nil {
			t.Fatal(err)
		}
	}
	name := resource.Name{Namespace: "default", Name: "a"}
	put := func(lane int, pos position, dl *delivery.Delivery) []byte {
		key := deliveryKey(name, lane, pos)
		set(key, appendDelivery(nil, dl))
		return key
	}
	// Everything up to message 7 is known; the third delivery of message 7 was the last.
	set(markerKey(0), appendPosition([]byte{0, 0, 0, 0, 0, 0, 0, 12}, position{7, 3}))
	put(0, position{5, 1}, incident("a", 5, "e1"))
	put(0, position{8, 1}, incident("a", 8, "e1")) // spilled, and routed again
	redriven := incident("a", 3, "e2")
	key := put(oldLocal, position{2, 0}, redriven)
	set(progressKeyOf(key), progress{attempts: 2, first: 1, due: 1}.encode())
	put(oldLocal, position{4, 0}, incident("a", 4, "e3"))
	set(deliveryKey(name, oldLocal, position{9, 0}), []byte{version, 200}) // cannot be read
	dead := *redriven
	dead.Partition, dead.Seq, dead.Sub = oldLocal, 1, 0
	set(letterKey("default", letterID(&dead)), encodeLetter(&dead, progress{attempts: 1}, 1, "why", ""))
	if err := b.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}

	bd := setup(t, Options{DB: db}, pipe("a", "true"))
	tries := make(chan int, 10)
	bd.send = func(_ context.Context, _ *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result {
		if dl.ID == "0-3-1/a" {
			tries <- job.Attempt
		}
		return send.Result{}
	}
	bd.Dispatch(incident("a", 7, "e1")) // replayed, and known
	bd.Dispatch(incident("a", 8, "e1"))
	bd.start(t)
	var ids []string
	for _, dl := range bd.finished.wait(4) {
		ids = append(ids, dl.ID)
	}
	slices.Sort(ids)
	if want := []string{"0-3-1/a", "0-4-1/a", "0-5-1/a", "0-8-1/a"}; !slices.Equal(ids, want) {
		t.Errorf("ran %v, want %v", ids, want)
	}
	if n := <-tries; n != 3 {
		t.Errorf("attempt %d, want 3", n)
	}
	if n, err := bd.redrive(t, delivery.Redrive{IDs: []string{"65535-1-0.a"}}); n != 1 || err != nil {
		t.Errorf("sent again %d, %v", n, err)
	}
	bd.finished.wait(5)
	bd.flush(t, 0)
	if keys := keysFrom(t, db, "d"); len(keys) != 1 || keys[0] != string(markerKey(0)) {
		t.Errorf("still stored: %q", keys)
	}
}

// recorder is a log that keeps the records, and folds the ones that the test wants.
type recorder struct {
	loopback
	bodies [][]byte
}

func (r *recorder) AppendTo(ctx context.Context, partition int, rec *eventlog.Record, acker eventlog.Acker, token uint64) error {
	r.bodies = append(r.bodies, bytes.Clone(rec.Body))
	return r.loopback.AppendTo(ctx, partition, rec, acker, token)
}

// TestLargeDelivery: a delivery that is too large for a record comes in parts. A backend that has not all of them has
// none of it, and a replay from any of them on ends the same way.
func TestLargeDelivery(t *testing.T) {
	log := new(recorder)
	b := setup(t, Options{Log: log}, pipe("a", "true"))
	log.d = b.Dispatcher
	dl := incident("a", 1, "e")
	dl.Event = event("e", strings.Repeat("long ", 60_000)).AppendProto(nil)
	b.Dispatch(dl)
	b.Dispatch(incident("a", 2, "e"))
	b.flush(t, 0)
	if len(log.bodies) < 5 {
		t.Fatalf("%d records", len(log.bodies))
	}
	for i, body := range log.bodies {
		if len(body) > 64<<10 {
			t.Errorf("record %d has %d bytes", i, len(body))
		}
	}
	want := keysFrom(t, b.db, "d")
	other := setup(t, Options{}, pipe("a", "true"))
	other.Disown(0)
	for from := range log.bodies {
		for i, body := range log.bodies[from:] {
			if _, err := other.Fold(0, uint64(from+i+1), 1, body, nil); err != nil {
				t.Fatal(err)
			}
			if _, ok := find(t, other.db, string(deliveryKey(resource.Name{Namespace: "default", Name: "a"}, 0, position{1, 1}))); ok &&
				from == 0 && i < 5 {
				t.Errorf("the delivery is there after %d parts", i+1)
			}
		}
		if got := keysFrom(t, other.db, "d"); !slices.Equal(got, want) {
			t.Fatalf("after a replay from record %d there are %q, want %q", from, got, want)
		}
		key := string(deliveryKey(resource.Name{Namespace: "default", Name: "a"}, 0, position{1, 1}))
		if value, ok := find(t, other.db, key); !ok || !bytes.Equal(value, appendDelivery(nil, dl)) {
			t.Errorf("the delivery has %d bytes", len(value))
		}
	}
}

func find(t *testing.T, db *pebble.DB, key string) ([]byte, bool) {
	t.Helper()
	value, closer, err := db.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	return bytes.Clone(value), true
}

// TestLogTakesNothing: workers go on for a while, then they pause until the log takes records again.
func TestLogTakesNothing(t *testing.T) {
	b := setup(t, Options{Workers: 2}, hook("a"))
	b.maxOwed = 10_000
	b.attempts(func(*delivery.Delivery, int) send.Result { return never })
	b.log.close()
	const n = 500
	for i := range n {
		b.Dispatch(incident("a", i+1, fmt.Sprint("e", i)))
	}
	b.start(t)
	eventually(t, "the workers pause", func() bool {
		q := b.queues[resource.Name{Namespace: "default", Name: "a"}]
		q.mu.Lock()
		defer q.mu.Unlock()
		return b.behind() && q.workers == 0
	})
	if ran := len(b.finished.wait(0)); ran == 0 || ran == n {
		t.Errorf("%d of %d ran meanwhile", ran, n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := b.ledger(0).awaitKnown(ctx, n); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("awaitKnown: %v", err)
	}
	b.log.open()
	b.finished.wait(n)
	b.flush(t, 0)
	if err := b.ledger(0).awaitKnown(t.Context(), n); err != nil {
		t.Error(err)
	}
	eventually(t, "nothing is owed", func() bool { return b.owed.Load() == 0 }) // a report's bytes are released last
}

// TestStopWhileTheLogTakesNothing: Stop gives up after a while, and the next start repeats what is not in the log.
func TestStopWhileTheLogTakesNothing(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db}, hook("a"))
		b.attempts(nil)
		b.start(t)
		b.Dispatch(incident("a", 1, "e"))
		b.finished.wait(1)
		b.flush(t, 0)
		b.log.close()
		b.Dispatch(incident("a", 2, "e"))
		b.finished.wait(2)
		b.Routed(0, 2)
		time.Sleep(time.Second) // the bubble's time: a report is under way
		begin := time.Now()
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != lastReportTimeout {
			t.Errorf("Stop took %v", took)
		}
		b = setup(t, Options{DB: db}, hook("a"))
		a := b.attempts(nil)
		b.start(t)
		b.Dispatch(incident("a", 1, "e")) // the replay
		b.Dispatch(incident("a", 2, "e"))
		b.finished.wait(1)
		synctest.Wait()
		if len(a.times("0-1-1/a")) != 0 || len(a.times("0-2-1/a")) != 1 {
			t.Errorf("ran again: %v", a.order)
		}
	})
}

// TestDisown gives a partition away with deliveries in every state, and takes it back.
func TestDisown(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		grouped, busy := hook("grouped"), hook("busy")
		grouped.Group = &resource.HandlerGroup{By: []string{"entity.labels.rack"}, Wait: 30}
		b := setup(t, Options{DB: db, QueueSize: 4, Workers: 1, Backoff: time.Hour}, grouped, busy, hook("failing"))
		goOn := make(chan struct{})
		ran := make(chan string, 100)
		b.send = func(_ context.Context, h *resource.Handler, dl *delivery.Delivery, _ send.Job) send.Result {
			ran <- h.Metadata.Name
			switch h.Metadata.Name {
			case "busy":
				<-goOn
			case "failing":
				return later
			}
			return send.Result{}
		}
		b.start(t)
		seq := 0
		for i := range 8 {
			for _, h := range []string{"grouped", "busy", "failing"} {
				seq++
				b.Dispatch(incident(h, seq, fmt.Sprint("r1-", i/2)))
			}
		}
		synctest.Wait()
		b.flush(t, 0)
		before := len(stored(t, db))
		b.Disown(0)
		close(goOn)
		synctest.Wait()
		for _, name := range []string{"queue_depth", "parked", "queue_spilled", "waiting", "groups", "running"} {
			if n := b.metric(t, "lapwing_handler_"+name); n != 0 {
				t.Errorf("%s is %v", name, n)
			}
		}
		for len(ran) > 0 {
			<-ran
		}
		time.Sleep(2 * time.Hour) // the bubble's time
		if len(ran) != 0 || len(stored(t, db)) != before {
			t.Errorf("%d ran, and %d of %d are stored", len(ran), len(stored(t, db)), before)
		}
		b.handlers.put(hook("failing"), hook("grouped"))
		b.send = noSend
		if err := b.Own(0, 0); err != nil {
			t.Fatal(err)
		}
		if err := b.Own(0, 0); err == nil {
			t.Error("owned twice")
		}
		time.Sleep(2 * time.Hour) // the bubble's time
		if len(stored(t, db)) != 0 {
			t.Errorf("still stored: %q", stored(t, db))
		}
	})
}

func TestRecordsThatCannotBeFolded(t *testing.T) {
	b := setup(t, Options{}, pipe("a", "true"))
	header := appendReportHeader(nil, &report{term: 1 << 62, upto: 9})
	for name, body := range map[string][]byte{
		"nothing":      nil,
		"other kind":   {9},
		"other key":    appendOp(bytes.Clone(header), op{[]byte("p0"), opSet, 0, []byte("x")}),
		"a marker":     appendOp(bytes.Clone(header), op{markerKey(0), opSet, 0, []byte("x")}),
		"other op":     append(bytes.Clone(header), 2, 'd', 'q', 7),
		"cut":          appendOp(bytes.Clone(header), op{[]byte("dx"), opSet, 0, []byte("x")})[:len(header)+4],
		"other letter": encodeRequest(1, []wish{{key: []byte("dq")}}),
		"no handler":   appendHandOver(nil, resource.Name{Namespace: "default"}, nil),
		"no delivery":  appendHanded(handOverOf(1), handed{lane: 1, seq: 1, id: "1"}),
		"other lane":   appendHanded(handOverOf(1), handed{lane: -1, seq: 1, id: "1", value: []byte("x")}),
	} {
		if known, err := b.Fold(0, 1, 1, body, nil); err == nil || known != 0 {
			t.Errorf("%s: known %d, %v", name, known, err)
		}
	}
	if keys := keysFrom(t, b.db, "d"); len(keys) != 0 {
		t.Errorf("stored: %q", keys)
	}
}

// TestNewerRecords: a record that only newer releases can read is refused as such, and changes nothing.
func TestNewerRecords(t *testing.T) {
	b := setup(t, Options{}, pipe("a", "true"))
	it := item{Delivery: incident("a", 1, "e"), pos: position{1, 1}}
	head := appendReportHeader(nil, &report{term: 1 << 62, upto: 9})
	value := it.value()
	value[0] = escalatedVersion + 1
	for name, body := range map[string][]byte{
		"kind":     {kindHandOver + 1},
		"op":       appendOp(bytes.Clone(head), op{it.key(), opLastPart + 1, 0, nil}),
		"delivery": appendOp(bytes.Clone(head), op{it.key(), opSet, 0, value}),
		"handed": appendHanded(appendHandOver(nil, resource.Name{Namespace: "default", Name: "a"}, nil),
			handed{lane: 1, seq: 1, id: "1", value: value}),
		"letter": appendOp(bytes.Clone(head), op{letterKey("default", "1"), opSet, 0, []byte{escalatedLetter + 1}}),
	} {
		newer := (*fields.NewerError)(nil)
		if known, err := b.Fold(0, 1, 1, body, nil); known != 0 || !errors.As(err, &newer) {
			t.Errorf("%s: known up to %d, %v", name, known, err)
		}
	}
	if got := stored(t, b.opts.DB); len(got) > 0 {
		t.Errorf("stored are %q", got)
	}
}

func FuzzRecord(f *testing.F) {
	it := item{Delivery: incident("a", 1, "e"), pos: position{1, 1}}
	b := appendReportHeader(nil, &report{term: 3, begins: true, from: 7, upto: 9})
	f.Add(b)
	b = appendOp(b, op{it.key(), opSet, 0, it.value()})
	b = appendOp(b, op{it.progressKey(), opDelete, 0, nil})
	b = appendOp(b, op{it.key(), opPart, 0, []byte("begin")})
	f.Add(appendOp(b, op{it.key(), opLastPart, 5, []byte("end")}))
	f.Add(encodeRequest(5, []wish{{key: []byte("dxdefault\x000-1-1.a")}, {[]byte("dxdefault\x000-1-2.a"), true, position{8, 9}}}))
	f.Add([]byte{kindReport})
	f.Add(handOverOf(5, incident("a", 6, "e")))
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := decodeReport(body); err == nil && len(body) > 0 && body[0] == kindReport {
			again := appendReportHeader(nil, r)
			for _, o := range r.ops {
				again = appendOp(again, o)
			}
			if r2, err := decodeReport(again); err != nil || fmt.Sprint(r2) != fmt.Sprint(r) {
				t.Errorf("%+v became %+v, %v", r, r2, err)
			}
		}
		if id, wishes, err := decodeRequest(body); err == nil {
			id2, again, err := decodeRequest(encodeRequest(id, wishes))
			if err != nil || id2 != id || fmt.Sprint(again) != fmt.Sprint(wishes) {
				t.Errorf("%v became %v, %v", wishes, again, err)
			}
		}
		if name, floors, all, err := decodeHandOver(body); err == nil {
			again := appendHandOver(nil, name, floors)
			for _, h := range all {
				again = appendHanded(again, h)
			}
			if name2, floors2, all2, err := decodeHandOver(again); err != nil ||
				fmt.Sprint(name2, floors2, all2) != fmt.Sprint(name, floors, all) {
				t.Errorf("%v became %v, %v", all, all2, err)
			}
		}
	})
}
