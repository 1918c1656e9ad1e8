package handler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// grouped is a handler that groups entities by the part of their names before the dash.
func grouped(name string) *resource.Handler {
	h := hook(name)
	h.Group = &resource.HandlerGroup{By: []string{"entity.labels.rack"}, Wait: 10, Interval: 60}
	return h
}

func TestGroups(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var tr traces
		b := setup(t, Options{DB: db, Trace: tr.record}, grouped("a"))
		a := b.attempts(nil)
		b.start(t)
		b.Dispatch(incident("a", 1, "r1-1"))
		b.Dispatch(incident("a", 2, "r1-2"))
		b.Dispatch(incident("a", 3, "r2-1"))
		alone := incident("a", 4, "alone") // an event without a check joins no group
		alone.Event = (&resource.Event{
			Entity: event("alone", "").Entity, Metrics: &resource.Metrics{Points: []resource.MetricPoint{{Name: "m"}}},
		}).AppendProto(nil)
		b.Dispatch(alone)
		time.Sleep(5 * time.Second) // the bubble's time
		b.Dispatch(incident("a", 5, "r1-3"))
		b.Dispatch(incident("a", 6, "r1-1")) // a later one of the same pair
		synctest.Wait()
		if got := b.finished.wait(1); len(got) != 1 || got[0].Entity != "alone" {
			t.Errorf("finished at once: %v", got)
		}
		if got := tr.of("0-1-1/a"); got.Verdict != trace.Grouped {
			t.Errorf("meanwhile it is %+v", got)
		}
		if n, parked := b.metric(t, "lapwing_handler_groups"), b.metric(t, "lapwing_handler_parked"); n != 2 || parked != 5 {
			t.Errorf("%v groups and %v members, want 2 and 5", n, parked)
		}
		b.finished.wait(6)
		if len(a.order) != 3 {
			t.Fatalf("sent %v", a.order)
		}
		merged := ""
		for _, id := range a.order {
			if strings.Contains(id, "/group-") {
				merged = id
			}
		}
		if !strings.HasPrefix(merged, "0-2-1/a/group-") || a.data[merged] != "r1-1 r1-2 r1-3" ||
			!slices.Equal(a.times(merged), []time.Duration{10 * time.Second}) {
			t.Errorf("merged %q: %q at %v", merged, a.data[merged], a.times(merged))
		}
		if got := a.times("0-3-1/a"); !slices.Equal(got, []time.Duration{10 * time.Second}) || a.data["0-3-1/a"] != "data 3" {
			t.Errorf("the group of one: %v", got)
		}
		for _, id := range []string{"0-1-1/a", "0-2-1/a", "0-5-1/a", "0-6-1/a"} {
			if got := tr.of(id); got.Verdict != trace.Merged || got.Into != merged {
				t.Errorf("%s: %+v", id, got)
			}
		}

		// The next time the group goes out no sooner than a minute after the last.
		b.Dispatch(incident("a", 7, "r1-1"))
		b.Dispatch(incident("a", 8, "r1-4"))
		b.finished.wait(8)
		if last := a.order[len(a.order)-1]; !slices.Equal(a.times(last), []time.Duration{70 * time.Second}) {
			t.Errorf("%s at %v", last, a.times(last))
		}
		b.flush(t, 0)
		if keys := keysFrom(t, db, "d"); len(keys) != 1 {
			t.Errorf("still stored: %q", keys)
		}
		synctest.Wait()
		if !b.queues[resource.Name{Namespace: "default", Name: "a"}].empty() {
			t.Error("something is left")
		}
	})
}

func TestGroupIsTriedAgainAndDies(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := grouped("a")
		h.Retry = &resource.HandlerRetry{MaxAttempts: 3, Backoff: 5}
		h.Group.Interval = 0
		var tr traces
		b := setup(t, Options{DB: db, Trace: tr.record}, h)
		a := b.attempts(func(dl *delivery.Delivery, _ int) send.Result {
			if strings.Contains(dl.ID, "0-1-1") {
				return later
			}
			return send.Result{}
		})
		b.start(t)
		b.Dispatch(incident("a", 1, "r1-1"))
		b.Dispatch(incident("a", 2, "r1-2"))
		time.Sleep(12 * time.Second)         // the bubble's time
		b.Dispatch(incident("a", 3, "r1-1")) // behind the group
		b.Dispatch(incident("a", 4, "r1-5")) // in the next one
		synctest.Wait()
		if got := tr.of("0-2-1/a"); got.Verdict != trace.Waiting {
			t.Errorf("meanwhile it is %+v", got)
		}
		b.finished.wait(4)
		s := time.Second
		if got := a.times(a.order[0]); !slices.Equal(got, []time.Duration{10 * s, 15 * s, 25 * s}) {
			t.Errorf("%s tried at %v", a.order[0], got)
		}
		if len(a.order) != 5 {
			t.Fatalf("sent %v", a.order)
		}
		if got := a.times("0-4-1/a"); !slices.Equal(got, []time.Duration{22 * s}) {
			t.Errorf("the next group went out at %v", got)
		}
		if got := a.times("0-3-1/a"); !slices.Equal(got, []time.Duration{35 * s}) {
			t.Errorf("the one behind went out at %v", got)
		}
		b.flush(t, 0)
		letters, _, err := b.DeadLetters("default", "a", "", 10)
		if err != nil || len(letters) != 2 || letters[0].Attempts != 3 || letters[1].ID != "0-2-1.a" {
			t.Errorf("dead letters %+v %v", letters, err)
		}
	})
}

// TestGroupOfFewIsTriedAgain: the members go out one by one.
func TestGroupOfFewIsTriedAgain(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := grouped("a")
		h.Group.Fold = 5
		b := setup(t, Options{DB: db, Backoff: time.Second}, h)
		a := b.attempts(func(dl *delivery.Delivery, n int) send.Result {
			if dl.Seq == 2 && n < 3 {
				return later
			}
			return send.Result{}
		})
		b.start(t)
		for i := range 3 {
			b.Dispatch(incident("a", i+1, fmt.Sprint("r1-", i)))
		}
		b.finished.wait(3)
		s := time.Second
		if got := fmt.Sprint(a.at); got != fmt.Sprint(map[string][]time.Duration{
			"0-1-1/a": {10 * s}, "0-2-1/a": {10 * s, 11 * s, 13 * s}, "0-3-1/a": {13 * s},
		}) {
			t.Errorf("sent %v", got)
		}
	})
}

// TestGroupOfWhatIsOver: a resolution joins the group of its incident.
func TestGroupOfWhatIsOver(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := grouped("a")
		h.Resolve = &resource.HandlerResolve{OnlyAfterAlert: true}
		h.Group.Interval = 0
		var tr traces
		b := setup(t, Options{DB: db, Trace: tr.record}, h)
		a := b.attempts(nil)
		b.start(t)
		b.Dispatch(incident("a", 1, "r1-1"))
		b.Dispatch(incident("a", 2, "r1-2"))
		b.Dispatch(incident("a", 3, "r1-3"))
		b.Dispatch(resolution("a", 4, "r1-1"))
		b.finished.wait(4)
		if len(a.order) != 1 || a.data[a.order[0]] != "r1-2 r1-3" {
			t.Errorf("sent %v", a.data)
		}
		if tr.of("0-1-1/a").Verdict != trace.Filtered || tr.of("0-4-1/a").Verdict != trace.Filtered {
			t.Errorf("traces %+v %+v", tr.of("0-1-1/a"), tr.of("0-4-1/a"))
		}
		b.Dispatch(resolution("a", 5, "r1-2"))
		b.Dispatch(resolution("a", 6, "r1-3"))
		b.finished.wait(6)
		if last := a.order[len(a.order)-1]; a.data[last] != "r1-2 r1-3" {
			t.Errorf("then sent %q", a.data[last])
		}
	})
}

// TestGroupSurvivesARestart: after a crash while the group waits, its members are grouped again, and its ID is the
// same.
func TestGroupSurvivesARestart(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		ids := map[string]bool{}
		for range 2 {
			b := setup(t, Options{DB: db, QueueSize: 2, ParkSize: 100}, grouped("a"))
			a := b.attempts(func(*delivery.Delivery, int) send.Result { return later })
			b.start(t)
			for i := range 6 {
				b.Dispatch(incident("a", i+1, fmt.Sprint("r1-", i)))
			}
			b.flush(t, 0)
			time.Sleep(12 * time.Second) // the bubble's time
			synctest.Wait()
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
			if len(a.order) == 0 || len(strings.Fields(a.data[a.order[0]])) != 6 {
				t.Fatalf("sent %v", a.data)
			}
			ids[a.order[0]] = true
		}
		if len(ids) != 1 {
			t.Errorf("it went out as %v", ids)
		}
	})
}

// TestGroupIsBounded: of more members than may wait, the rest stay on disk, and join when there is room.
func TestGroupIsBounded(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := grouped("a")
		h.Group.Interval = 0
		b := setup(t, Options{DB: db, QueueSize: 5, ParkSize: 20}, h)
		a := b.attempts(nil)
		b.start(t)
		const n = 100
		for i := range n {
			b.Dispatch(incident("a", i+1, fmt.Sprint("r1-", i)))
			synctest.Wait()
		}
		if parked := b.metric(t, "lapwing_handler_parked"); parked > 25 {
			t.Errorf("%v are parked", parked)
		}
		b.finished.wait(n)
		seen := map[string]int{}
		for _, id := range a.order {
			for _, name := range strings.Fields(a.data[id]) {
				seen[name]++
			}
		}
		if len(seen) != n || len(a.order) > n/20+2 {
			t.Errorf("%d entities in %d groups", len(seen), len(a.order))
		}
	})
}

// TestPurgedBehindAGroupThatGoesOut: the partition is lost, and owned again, while a worker has a group and a later
// delivery of the pair is stopped behind it. The pair then has one turn: two at a time would run a delivery twice.
func TestPurgedBehindAGroupThatGoesOut(t *testing.T) {
	b := setup(t, Options{}, grouped("a")) // no worker runs
	b.Dispatch(incident("a", 1, "r1-1"))
	q := b.queues[resource.Name{Namespace: "default", Name: "a"}]
	class, _ := q.nextClass()
	c := q.ready[class].pop()
	first := c.head
	q.join(&resource.HandlerGroup{}, c, first, "r1")
	g := q.groups["r1"]
	q.seal(g)
	q.disarm()
	q.sealed, q.sending[g] = nil, struct{}{}
	b.Dispatch(incident("a", 2, "r1-1"))
	q.stop(q.ready[class].pop())

	b.Disown(0)
	if err := b.Own(0, 0); err != nil {
		t.Fatal(err)
	}
	b.Dispatch(incident("a", 3, "r1-1"))
	q.release(g.members[0])
	if got := q.ready[class].pop(); got != c || q.ready[class].head != nil || c.head.Seq != 3 {
		t.Errorf("the turns begin with %+v, then comes %+v", got, q.ready[class].head)
	}
}
