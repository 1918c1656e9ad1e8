package handler

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestHandOverIsLoggedFirst: a member dies when its report is in the log and its hand-over is not. The delivery is not
// finished by then, so the next owner hands it over.
func TestHandOverIsLoggedFirst(t *testing.T) {
	c := newCluster(t, 1, 2, 2)
	a, b := c.members[0], c.members[1]
	c.append(clusterRecord{partition: 0, owner: a})
	c.append(clusterRecord{partition: 1, owner: b})
	c.append(clusterRecord{partition: 0, pair: 0}) // message 2
	b.fold(10)
	a.foldPart(1, 10)
	a.foldPart(0, 10)
	buffered := func(p int) func() bool {
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(a.parts[p].buffer) > 0
		}
	}
	eventually(t, "the delivery of c is on its way", buffered(1))
	a.report(0)
	eventually(t, "the report is on its way", buffered(0))
	a.foldPart(0, 10)
	if n := len(stored(t, a.db)); n != 3 {
		t.Errorf("%d deliveries are in the log, want 3", n)
	}
	a.kill()
	c.append(clusterRecord{partition: 0, owner: b})
	c.drain()
	c.check()
}

// handOverOf makes a hand-over of deliveries from partition 1.
func handOverOf(floorSeq uint64, dls ...*delivery.Delivery) []byte {
	body := appendHandOver(nil, resource.Name{Namespace: "default", Name: "a"}, []floor{{1, floorSeq}})
	for _, dl := range dls {
		body = appendHanded(body, handed{lane: 1, seq: dl.Seq, id: dl.ID, value: appendDelivery(nil, dl)})
	}
	return body
}

// TestHandedOverAgain: a delivery that was handed over does not run again, whether it waits, has ended, or ended so
// long ago that the log of its partition has its end.
func TestHandedOverAgain(t *testing.T) {
	b := setup(t, Options{}, limited("a"))
	a := b.attempts(nil)
	b.start(t)
	seq := uint64(100)
	fold := func(body []byte) {
		t.Helper()
		b.log.mu.Lock()
		defer b.log.mu.Unlock()
		seq++
		if _, err := b.Fold(0, seq, 1, body, nil); err != nil {
			t.Fatal(err)
		}
	}
	one, two, three := incident("a", 5, "e"), incident("a", 6, "e"), incident("a", 7, "e")
	fold(handOverOf(5, one, one, two))
	fold(handOverOf(5, two, one))
	b.finished.wait(2)
	b.flush(t, 0)
	fold(handOverOf(5, one))
	fold(handOverOf(7, three))
	fold(handOverOf(5, one, two)) // of an owner that is late
	b.finished.wait(3)
	b.flush(t, 0)
	if want := []string{one.ID, two.ID, three.ID}; !slices.Equal(a.order, want) {
		t.Errorf("ran %v, want %v", a.order, want)
	}
	if keys := keysFrom(t, b.db, "dh"); len(keys) != 1 || !bytes.HasSuffix([]byte(keys[0]), []byte(three.ID)) {
		t.Errorf("remembered: %q", keys)
	}
	if keys := stored(t, b.db); len(keys) != 0 {
		t.Errorf("stored: %q", keys)
	}
}

// TestHandOver: a delivery of another partition, which has failed and is too large for a part of a report, comes to the
// home partition with its attempts. Its dead letter can be sent again from there.
func TestHandOver(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := hook("a")
		h.Retry = &resource.HandlerRetry{MaxAttempts: 3, Backoff: 10}
		b := setup(t, Options{DB: db}, h)
		heal := false
		a := b.attempts(func(*delivery.Delivery, int) send.Result {
			if heal {
				return send.Result{}
			}
			return later
		})
		b.start(t)
		dl := incident("a", 1, "e")
		dl.Partition = 3
		dl.Event = event("e", string(bytes.Repeat([]byte("long "), 20_000))).AppendProto(nil)
		b.Dispatch(dl)
		b.flush(t, 3)
		eventually(t, "it is tried", func() bool { return len(a.times(dl.ID)) == 1 })
		h2 := *h
		h2.RateLimit = &resource.HandlerRate{PerSecond: 1000}
		b.handlers.put(&h2)
		b.finished.wait(1)
		b.flush(t, 3)
		b.flush(t, 0)
		letters, _, err := b.DeadLetters("default", "a", "", 10)
		if want := fmt.Sprintf("%d-", handedLane(0)); err != nil || len(letters) != 1 || letters[0].Attempts != 3 ||
			letters[0].ID[:len(want)] != want {
			t.Fatalf("dead letters %+v, %v", letters, err)
		}
		if n := b.metric(t, "lapwing_handler_handed_over_total", "a"); n != 1 {
			t.Errorf("%v were handed over", n)
		}
		heal = true
		if n, err := b.redrive(t, delivery.Redrive{Handler: "a"}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		b.finished.wait(2)
		b.flush(t, 0)
		if keys := append(stored(t, db), keysFrom(t, db, "dr")...); len(keys) != 0 {
			t.Errorf("stored: %q", keys)
		}
	})
}

// TestNotLimitedAnyMore: a handler is not limited any more, but another member still has deliveries of it. Later ones
// do not overtake them.
func TestNotLimitedAnyMore(t *testing.T) {
	b := setup(t, Options{}, limited("a"))
	b.Disown(0)
	a := b.attempts(nil)
	b.start(t)
	dispatch := func(seq int) {
		dl := incident("a", seq, "e")
		dl.Partition = 3
		b.Dispatch(dl)
	}
	handed := func(n float64) {
		t.Helper()
		eventually(t, "a delivery is handed over", func() bool {
			return b.metric(t, "lapwing_handler_handed_over_total", "a") == n
		})
	}
	dispatch(1)
	handed(1)
	b.handlers.put(pipe("a", "x"))
	dispatch(2)
	handed(2)
	b.flush(t, 3)
	keys := stored(t, b.db)
	if len(keys) != 2 || len(a.order) != 0 {
		t.Fatalf("stored %q, ran %v", keys, a.order)
	}
	ends := appendReportHeader(nil, &report{term: 1 << 62, upto: 1})
	for _, key := range keys {
		ends = appendOp(ends, op{[]byte(key), opDelete, 0, nil})
	}
	if _, err := b.Fold(0, 1000, 1, ends, nil); err != nil {
		t.Fatal(err)
	}
	dispatch(3)
	b.finished.wait(1)
	if len(a.order) != 1 || a.order[0] != "0-3-1/a" {
		t.Errorf("ran %v", a.order)
	}
}

// TestHandOverReplayed: a replay of hand-overs of local deliveries adds none again, though their ends are reports of
// earlier terms, and counts none twice.
func TestHandOverReplayed(t *testing.T) {
	name, lane := resource.Name{Namespace: "default", Name: "a"}, localLane(1)
	for _, ended := range []bool{true, false} {
		b := setup(t, Options{}, limited("a"))
		b.Disown(0)
		var records [][]byte
		fold := func(i int) {
			b.log.mu.Lock()
			defer b.log.mu.Unlock()
			if _, err := b.Fold(0, uint64(100+i), 1, records[i], nil); err != nil {
				t.Fatal(err)
			}
		}
		add := func(body []byte) {
			records = append(records, body)
			fold(len(records) - 1)
		}
		for i := range 2 {
			dl := incident("a", 1000*(i+1), "e")
			body := appendHandOver(nil, name, []floor{{lane, uint64(dl.Seq)}})
			add(appendHanded(body, handed{lane: lane, seq: uint64(dl.Seq), id: dl.ID, value: appendDelivery(nil, dl)}))
			if !ended {
				continue
			}
			report := appendReportHeader(nil, &report{term: 1<<62 + uint64(i), upto: 1})
			for _, key := range stored(t, b.db) {
				report = appendOp(report, op{[]byte(key), opDelete, 0, nil})
			}
			add(report)
		}
		keys, count := len(stored(t, b.db)), b.handed.of[name]
		for i := range records {
			fold(i)
		}
		if k, n := len(stored(t, b.db)), b.handed.of[name]; k != keys || n != count {
			t.Errorf("ended %v: %d stored and %d counted, before the replay %d and %d", ended, k, n, keys, count)
		}
	}
}
