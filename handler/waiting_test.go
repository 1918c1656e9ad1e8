package handler

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// waitingFor returns what waits for a handler.
func (b *bundle) waitingFor(t *testing.T, handler string, limit int) delivery.Waiting {
	t.Helper()
	list, err := b.Waiting("default", handler, limit)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		return delivery.Waiting{}
	}
	if len(list) > 1 || list[0].Handler != handler {
		t.Fatalf("of %s: %+v", handler, list)
	}
	return list[0]
}

// lines describes parked deliveries: what, its state, for what, attempts, the time until its turn, and the error.
func lines(list []delivery.Parked) (all []string) {
	for _, p := range list {
		all = append(all, fmt.Sprintf("%s %d %s %s%s %d %s %s", p.Entity, p.Status, p.Class, p.For, p.Group, p.Attempts,
			time.Until(time.UnixMilli(p.Next)), p.Error))
	}
	return all
}

// TestWaiting has a handler whose receiver is down, one with groups, one that delays resolutions, and a slow one.
func TestWaiting(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		down, calm, rack := hook("down"), hook("calm"), grouped("rack")
		down.Retry = &resource.HandlerRetry{Backoff: 60, MaxBackoff: 600}
		calm.Resolve = &resource.HandlerResolve{Delay: 90}
		b := setup(t, Options{DB: db, QueueSize: 2, Workers: 1}, down, calm, rack, hook("slow"))
		up, release := false, make(chan struct{})
		b.attempts(func(dl *delivery.Delivery, _ int) send.Result {
			if dl.Handler == "down" && !up {
				return send.Result{
					Temporary: true, Kind: send.KindFailed, Err: errors.New("status 75"),
					Output: []byte("\nno route to " + strings.Repeat("ä", 150) + "\nmore\n"),
				}
			}
			return send.Result{Kind: send.KindOK}
		})
		quick := b.send
		b.send = func(ctx context.Context, h *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result {
			if h.Metadata.Name == "slow" {
				<-release
			}
			return quick(ctx, h, dl, job)
		}
		b.start(t)
		dispatch := func(dl *delivery.Delivery) {
			dl.Received = time.Now().UnixMilli()
			b.Dispatch(dl)
			synctest.Wait()
		}
		began := time.Now()
		for i := range 4 {
			dispatch(incident("down", 10+i, fmt.Sprint("e", i)))
			time.Sleep(time.Second) // the bubble's time
		}
		reminder := incident("down", 20, "e0")
		reminder.Repeats = true
		dispatch(reminder)
		dispatch(incident("rack", 30, "r1-1"))
		dispatch(resolution("calm", 40, "web"))
		for i := range 5 {
			dispatch(incident("slow", 50+i, fmt.Sprint("e", i)))
		}
		points := incident("slow", 60, "e9")
		points.Check, points.Incident, points.Status = "", false, 0
		dispatch(points)
		b.flush(t, 0)

		w := b.waitingFor(t, "down", 2)
		failed := "status 75: no route to " + strings.Repeat("ä", 87) + "…"
		if w.Parked != (delivery.ClassCounts{Total: 5, Change: 4, Failing: 1}) || w.Retrying != 4 || w.Running != 0 ||
			w.Memory.Total != 0 || w.Disk.Total != 0 || w.Oldest != began.UnixMilli() ||
			w.Next != began.Add(time.Minute).UnixMilli() || w.LastError != failed ||
			w.LastFailed != began.Add(3*time.Second).UnixMilli() {
			t.Errorf("down: %+v", w)
		}
		if got, want := lines(w.Deliveries), []string{
			"e0 2 change attempt 1 56s " + failed, "e1 2 change attempt 1 57s " + failed,
		}; !slices.Equal(got, want) {
			t.Errorf("of down the first two are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got := b.waitingFor(t, "down", 100).Deliveries; len(got) != 4 || got[3].Entity != "e3" {
			t.Errorf("all that wait for a time: %v", lines(got))
		}
		if got := b.metric(t, "lapwing_handler_retrying", "down"); got != 4 {
			t.Errorf("%v wait for their next attempt in the metrics", got)
		}
		w = b.waitingFor(t, "rack", 10)
		if got := lines(w.Deliveries); w.Parked.Total != 1 || w.Retrying != 0 ||
			w.Next != began.Add(14*time.Second).UnixMilli() ||
			!slices.Equal(got, []string{"r1-1 2 change groupentity.labels.rack=r1 0 10s "}) {
			t.Errorf("rack: %+v %q", w, got)
		}
		w = b.waitingFor(t, "calm", 10)
		if got := lines(w.Deliveries); !slices.Equal(got, []string{"web 0 change resolution 0 1m30s "}) {
			t.Errorf("calm: %+v %q", w, got)
		}
		w = b.waitingFor(t, "slow", 10)
		if w.Memory != (delivery.ClassCounts{Total: 2, Change: 2}) || w.Running != 1 || w.Parked.Total != 0 ||
			w.Disk != (delivery.ClassCounts{Total: 4, Change: 3, Metrics: 1}) || w.Next != 0 || len(w.Deliveries) != 0 {
			t.Errorf("slow: %+v", w)
		}
		up = true
		all, err := b.Waiting("", "", 0)
		if err != nil || len(all) != 4 || all[0].Handler != "calm" || all[3].Handler != "slow" || all[1].Deliveries != nil {
			t.Errorf("of all handlers: %+v %v", all, err)
		}
		if other, err := b.Waiting("other", "", 0); err != nil || len(other) != 0 {
			t.Errorf("of another namespace: %+v %v", other, err)
		}

		close(release)
		b.finished.wait(13)
		synctest.Wait()
		if all, err := b.Waiting("", "", 0); err != nil || len(all) != 0 {
			t.Errorf("in the end there are %+v %v", all, err)
		}
		for name, q := range b.queues {
			if q.whole != (counts{}) || q.parked != (counts{}) || q.spilled != (counts{}) || q.running+q.retrying != 0 {
				t.Errorf("in the end the counts of %s are %v %v %v %d %d", name, q.whole, q.parked, q.spilled, q.running,
					q.retrying)
			}
		}
	})
}

// TestWaitingOfOthers: what another backend has got is neither counted nor looked at.
func TestWaitingOfOthers(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db, QueueSize: 1, Workers: 1}, hook("slow"))
		release := make(chan struct{})
		b.send = func(context.Context, *resource.Handler, *delivery.Delivery, send.Job) send.Result {
			<-release
			return send.Result{Kind: send.KindOK}
		}
		b.start(t)
		var received []int64
		for i, partition := range []int{0, 1, 1, 0} {
			dl := incident("slow", 1+i, fmt.Sprint("e", i))
			dl.ID, dl.Partition, dl.Received = fmt.Sprintf("%d-%d-1/slow", partition, 1+i), partition, time.Now().UnixMilli()
			received = append(received, dl.Received)
			b.Dispatch(dl)
			synctest.Wait()
			time.Sleep(time.Second) // the bubble's time
		}
		b.flush(t, 0)
		b.flush(t, 1)
		if w := b.waitingFor(t, "slow", 1); w.Disk.Change != 3 || w.Memory.Total != 1 || w.Oldest != received[0] {
			t.Errorf("of both partitions %+v", w)
		}
		b.Disown(0)
		if w := b.waitingFor(t, "slow", 1); w.Disk.Change != 2 || w.Disk.Total != 2 || w.Oldest != received[1] {
			t.Errorf("without partition 0, whose first delivery runs: %+v", w)
		}
		close(release)
	})
}

// TestWaitingForAWorker: the receiver takes 12 seconds to fail, and one worker has two deliveries. What is due stays in
// the figures while it waits for the worker, and while it runs, and after a restart.
func TestWaitingForAWorker(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := hook("stuck")
		h.Retry = &resource.HandlerRetry{Backoff: 2, MaxBackoff: 2}
		var up atomic.Bool
		begin := func() *bundle {
			b := setup(t, Options{DB: db, Workers: 1}, h)
			b.send = func(ctx context.Context, _ *resource.Handler, _ *delivery.Delivery, _ send.Job) send.Result {
				if up.Load() {
					return send.Result{Kind: send.KindOK}
				}
				select {
				case <-time.After(12 * time.Second):
				case <-ctx.Done():
				}
				return later
			}
			b.start(t)
			return b
		}
		b := begin()
		for i := range 2 {
			dl := incident("stuck", 1+i, fmt.Sprint("e", i))
			dl.Received = time.Now().UnixMilli()
			b.Dispatch(dl)
		}
		time.Sleep(13 * time.Second) // the bubble's time: one has failed and waits, the other one runs
		if w := b.waitingFor(t, "stuck", 9); w.Retrying != 1 || w.Parked.Total != 1 || w.Memory.Total != 1 || w.Running != 1 {
			t.Errorf("after one attempt: %+v", w)
		}
		time.Sleep(15 * time.Second) // the bubble's time: the first one runs again, the second one is due
		w := b.waitingFor(t, "stuck", 9)
		if w.Retrying != 2 || w.Parked.Total != 2 || w.Running != 1 || w.Next != time.Now().UnixMilli() {
			t.Errorf("both have failed: %+v", w)
		}
		want := []string{"e1 2 change worker 1 0s " + later.Err.Error()}
		if got := lines(w.Deliveries); !slices.Equal(got, want) {
			t.Errorf("due are %q, want %q", got, want)
		}
		if all, err := b.Waiting("", "", 0); err != nil || len(all) != 1 || all[0].Next != w.Next || all[0].Deliveries != nil {
			t.Errorf("of all handlers: %+v %v", all, err)
		}
		if n := b.metric(t, "lapwing_handler_retrying", "stuck"); n != 2 {
			t.Errorf("%v have failed in the metrics", n)
		}
		b.flush(t, 0)
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		b = begin()
		synctest.Wait()
		if w := b.waitingFor(t, "stuck", 9); w.Retrying != 2 {
			t.Errorf("after a restart: %+v", w)
		}
		up.Store(true)
		b.finished.wait(2)
		synctest.Wait()
		if n := b.metric(t, "lapwing_handler_retrying", "stuck"); n != 0 {
			t.Errorf("in the end %v have failed in the metrics", n)
		}
	})
}

// TestWaitingInALateGroup: a group whose attempt has failed waits as a whole. If its members go out one by one, those
// behind the one that failed have had no attempt.
func TestWaitingInALateGroup(t *testing.T) {
	for _, c := range []struct {
		name string
		fold uint32
		want []string // without their times and errors
	}{
		{"merged", 2, []string{"r1-0 attempt 1", "r1-1 attempt 1"}},
		{"one by one", 9, []string{"r1-0 attempt 1", "r1-1 group 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeTime(t, func(t *testing.T, db *pebble.DB) {
				h := grouped("rack")
				h.Group.Fold = c.fold
				h.Retry = &resource.HandlerRetry{Backoff: 60, MaxBackoff: 60}
				b := setup(t, Options{DB: db}, h)
				b.send = func(context.Context, *resource.Handler, *delivery.Delivery, send.Job) send.Result {
					time.Sleep(3 * time.Second) // the bubble's time
					return later
				}
				b.start(t)
				for i := range 3 {
					b.Dispatch(incident("rack", 1+i, fmt.Sprint("r1-", i)))
				}
				time.Sleep(15 * time.Second) // the bubble's time
				synctest.Wait()
				retrying := 3
				if c.name == "one by one" {
					retrying = 1
				}
				failed := func(w delivery.Waiting) {
					t.Helper()
					if w.Parked.Total != 3 || w.Retrying != retrying || b.metric(t, "lapwing_handler_retrying") != float64(retrying) {
						t.Errorf("a late group: %+v", w)
					}
				}
				w := b.waitingFor(t, "rack", 2)
				failed(w)
				var got []string
				for _, p := range w.Deliveries {
					got = append(got, fmt.Sprintf("%s %s %d", p.Entity, p.For, p.Attempts))
					if (p.Error == later.Err.Error()) != (p.Attempts == 1) || p.Group == "" ||
						time.Until(time.UnixMilli(p.Next)) != 58*time.Second {
						t.Errorf("a member: %+v", p)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("the first members are %q, want %q", got, c.want)
				}
				if n := b.metric(t, "lapwing_handler_groups"); n != 1 {
					t.Errorf("%v groups", n)
				}
				time.Sleep(59 * time.Second) // the bubble's time: a worker has the group again
				w = b.waitingFor(t, "rack", 2)
				if failed(w); w.Running != 1 || len(w.Deliveries) != 0 || w.Next != 0 {
					t.Errorf("a group that goes out: %+v", w)
				}
				time.Sleep(10 * time.Second) // the bubble's time
				b.Disown(0)
				w = b.waitingFor(t, "rack", 2)
				if n := b.metric(t, "lapwing_handler_retrying"); w.Parked.Total != 0 || n != 0 {
					t.Errorf("after another backend has the partition: %+v %v", w, n)
				}
				if n := b.metric(t, "lapwing_handler_groups"); n != 0 {
					t.Errorf("%v groups of another backend", n)
				}
			})
		})
	}
}

// TestWaitingInManyGroups: of many large groups no more members are described than are listed. Those for which no worker
// is free come first, then the groups that go out first.
func TestWaitingInManyGroups(t *testing.T) {
	b := setup(t, Options{}, grouped("rack"))
	begin := time.Now()
	q := newQueue(b.Dispatcher, resource.Name{Namespace: "default", Name: "rack"})
	for i := range 40 {
		g := &group{key: fmt.Sprint("g", i)}
		for j := range 30 {
			dl := incident("rack", 100*i+j, fmt.Sprintf("r%d-%d", i, j))
			g.members = append(g.members, &member{item: &item{Delivery: dl}})
		}
		q.groups[g.key] = g
		q.waitGroup(g, begin.Add(time.Hour+time.Duration(i*17%40)*time.Second))
	}
	q.seal(q.groups["g5"])
	defer q.disarm()
	for _, c := range []struct {
		limit int
		want  map[string]int // members by group
	}{
		{0, map[string]int{}}, {20, map[string]int{"g5": 20}},
		{100, map[string]int{"g5": 30, "g0": 30, "g33": 30, "g26": 10}}, // 33*17%40 is 1, 26*17%40 is 2
	} {
		got := map[string]int{}
		w := q.waiting(c.limit)
		for _, p := range w.Deliveries {
			got[p.Group]++
			if due := p.Next <= time.Now().UnixMilli(); due != (p.For == delivery.ForWorker) || due != (p.Group == "g5") {
				t.Errorf("a member: %+v", p)
			}
		}
		if !maps.Equal(got, c.want) || w.Next > time.Now().UnixMilli() {
			t.Errorf("with the limit %d the next is %d, and the members are of %v, want %v", c.limit, w.Next, got, c.want)
		}
	}
}

// walked returns what a walk over all deliveries of a queue counts.
func (q *queue) walked() (whole, parked counts, retrying int) {
	see := func(it *item, tried bool) {
		if it.parked {
			parked[it.Class()]++
		} else {
			whole[it.Class()]++
		}
		if tried {
			retrying++
		}
	}
	for _, c := range q.chains {
		for it := c.head; it != nil; it = it.next {
			if it.begin.IsZero() {
				see(it, it.attempts > 0)
			} else { // its worker changes its attempts without the lock
				see(it, it.tried)
			}
		}
	}
	for _, g := range slices.Concat(q.sealed, q.groupWaits) {
		for _, m := range g.members {
			see(m.item, g.tries(m) > 0)
		}
	}
	return whole, parked, retrying
}

// TestCountsAreThoseOfAWalk compares the counts that are kept with a walk, while attempts fail at random, groups come and
// go, and the partition goes and returns.
func TestCountsAreThoseOfAWalk(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		rnd := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex // guards rnd
		roll := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rnd.IntN(n)
		}
		down, rack := hook("down"), grouped("rack")
		down.Retry = &resource.HandlerRetry{Backoff: 2, MaxBackoff: 5}
		rack.Group.Wait, rack.Group.Interval, rack.Group.Fold, rack.Retry = 2, 0, 3, down.Retry
		b := setup(t, Options{DB: db, QueueSize: 5, ParkSize: 30, Workers: 2}, down, rack)
		b.send = func(context.Context, *resource.Handler, *delivery.Delivery, send.Job) send.Result {
			time.Sleep(time.Duration(roll(900)) * time.Millisecond) // the bubble's time
			switch roll(8) {
			case 0, 1, 2:
				return send.Result{Kind: send.KindOK}
			case 3:
				return never
			}
			return later
		}
		b.start(t)
		compared := map[string]int{}
		seq := 0
		for step := range 600 {
			for range roll(3) {
				seq++
				dl := incident([]string{"down", "rack"}[roll(2)], seq, fmt.Sprintf("r%d-%d", roll(3), roll(6)))
				dl.Received, dl.Repeats = time.Now().UnixMilli(), roll(2) == 0
				b.Dispatch(dl)
			}
			if step%200 == 199 {
				b.flush(t, 0)
				b.Disown(0)
				if err := b.Own(0, 0); err != nil {
					t.Fatal(err)
				}
				seq += 1000
			}
			time.Sleep(100 * time.Millisecond) // the bubble's time
			synctest.Wait()
			for name, q := range b.queues {
				q.mu.Lock()
				quiet := len(q.sending) == 0 // a worker changes its group without the lock
				kept := fmt.Sprint(q.whole, q.parked, q.retrying)
				whole, parked, retrying := q.walked()
				q.mu.Unlock()
				if walked := fmt.Sprint(whole, parked, retrying); quiet && kept != walked {
					t.Fatalf("step %d: the counts of %s are %s, a walk finds %s", step, name, kept, walked)
				}
				if quiet && retrying > 0 {
					compared[name.Name]++
				}
			}
		}
		if compared["down"] < 50 || compared["rack"] < 20 {
			t.Errorf("attempts had failed in %v comparisons only", compared)
		}
	})
}

// TestSoonest compares the first of a heap with the sorted times.
func TestSoonest(t *testing.T) {
	var q queue
	begin := time.Now()
	var want []time.Duration
	for i := range 200 {
		wait := time.Duration(i*7919%211) * time.Second
		c := &chain{head: &item{}, slot: slot{due: begin.Add(wait)}}
		q.waits.Push(c)
		want = append(want, wait)
	}
	heap.Init(&q.waits)
	slices.Sort(want)
	for _, limit := range []int{0, 1, 20, 200, 300} {
		var got []time.Duration
		for _, c := range q.waits.soonest(limit) {
			got = append(got, c.due.Sub(begin))
		}
		if !slices.Equal(got, want[:min(limit, len(want))]) {
			t.Errorf("the first %d are %v", limit, got)
		}
	}
}

func TestJoinWaiting(t *testing.T) {
	one := []delivery.Waiting{
		{Namespace: "b", Handler: "mail", Parked: delivery.ClassCounts{Total: 1, Change: 1}},
		{Namespace: "a", Handler: "mail", Memory: delivery.ClassCounts{Total: 3, Change: 1, Metrics: 2}, Running: 1,
			Next: 9, LastError: "old", LastFailed: 5, Deliveries: []delivery.Parked{{ID: "1", Next: 9}, {ID: "2", Next: 20}}},
	}
	two := []delivery.Waiting{{Namespace: "a", Handler: "mail", Memory: delivery.ClassCounts{Total: 1, Failing: 1}, Retrying: 2,
		Oldest: 3, Next: 11, LastError: "new", LastFailed: 6, Deliveries: []delivery.Parked{{ID: "3", Next: 11}}}}
	got := JoinWaiting(2, one, two)
	if len(got) != 2 || got[1].Namespace != "b" {
		t.Fatalf("joined %+v", got)
	}
	mail := got[0]
	if mail.Memory != (delivery.ClassCounts{Total: 4, Change: 1, Failing: 1, Metrics: 2}) || mail.Running != 1 ||
		mail.Retrying != 2 || mail.Oldest != 3 || mail.Next != 9 || mail.LastError != "new" || len(mail.Deliveries) != 2 ||
		mail.Deliveries[0].ID != "1" || mail.Deliveries[1].ID != "3" {
		t.Errorf("joined %+v", mail)
	}
}

// TestRetryNow: deliveries that wait for their next attempt are tried at once, alone and in groups, and those behind them
// follow. What waits for another time keeps it.
func TestRetryNow(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		down, rack := hook("down"), grouped("rack")
		down.Retry = &resource.HandlerRetry{Backoff: 600, MaxBackoff: 600}
		down.Resolve = &resource.HandlerResolve{Delay: 3600}
		rack.Retry, rack.Group.Wait = down.Retry, 5
		b := setup(t, Options{DB: db, Workers: 2}, down, rack)
		up := false
		a := b.attempts(func(*delivery.Delivery, int) send.Result {
			if !up {
				return later
			}
			return send.Result{Kind: send.KindOK}
		})
		if n := b.RetryNow("default", "down"); n != 0 {
			t.Errorf("without a queue %d are tried", n)
		}
		b.start(t)
		for i := range 5 {
			b.Dispatch(incident("down", i+1, fmt.Sprint("e", i)))
		}
		b.Dispatch(incident("down", 6, "e0"))
		calm := resolution("down", 7, "calm")
		calm.Received = time.Now().UnixMilli()
		b.Dispatch(calm)
		b.Dispatch(incident("rack", 8, "r1-1"))
		b.Dispatch(incident("rack", 9, "r1-2"))
		time.Sleep(time.Minute) // the bubble's time
		b.Dispatch(incident("rack", 10, "r2-1"))
		synctest.Wait()
		if n := b.RetryNow("default", "down"); n != 5 {
			t.Errorf("%d of down are tried, want 5", n)
		}
		synctest.Wait()
		if w := b.waitingFor(t, "down", 9); w.Retrying != 5 || w.Parked.Total != 7 || len(a.times("0-1-1/down")) != 2 {
			t.Errorf("while it is down: %+v", w)
		}
		up = true
		if n, m := b.RetryNow("default", "down"), b.RetryNow("default", "rack"); n != 5 || m != 2 {
			t.Errorf("%d of down and %d of rack are tried, want 5 and 2", n, m)
		}
		synctest.Wait()
		b.finished.wait(8)
		if w := b.waitingFor(t, "down", 9); w.Retrying != 0 || w.Parked.Total != 1 {
			t.Errorf("only the resolution is left: %+v", w)
		}
		if w := b.waitingFor(t, "rack", 9); w.Parked.Total != 1 || w.Deliveries[0].Entity != "r2-1" {
			t.Errorf("only the group that was never tried is left: %+v", w)
		}
		if n := b.RetryNow("default", "down") + b.RetryNow("other", "down"); n != 0 {
			t.Errorf("then %d are tried", n)
		}
	})
}

// TestBehind: what waits behind an earlier delivery of its check is told.
func TestBehind(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		rack := grouped("rack")
		b := setup(t, Options{DB: db}, hook("down"), hook("calm"), rack)
		b.attempts(func(dl *delivery.Delivery, _ int) send.Result {
			if dl.Handler == "down" {
				return later
			}
			return send.Result{Kind: send.KindOK}
		})
		b.start(t)
		for i := range 4 {
			b.Dispatch(incident("down", i+1, "r1-1"))
		}
		b.Dispatch(incident("calm", 5, "r1-1"))
		b.Dispatch(incident("rack", 6, "r1-1")) // the first of its chain leaves it for the group
		synctest.Wait()
		told := func(entity string, limit int) (ids []string) {
			for _, d := range b.Queued("default", entity, "cpu", limit) {
				ids = append(ids, fmt.Sprint(d.ID, " ", d.Verdict))
			}
			return ids
		}
		want := []string{"0-2-1/down waiting", "0-3-1/down waiting", "0-4-1/down waiting"}
		if got := told("r1-1", 100); !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if got := told("r1-1", 2); len(got) != 2 {
			t.Errorf("of two it told %v", got)
		}
		if got := append(told("other", 100), fmt.Sprint(len(b.Queued("other", "r1-1", "cpu", 9)))); len(got) != 1 || got[0] != "0" {
			t.Errorf("of others: %v", got)
		}
	})
}

// TestRetryNowKeepsTheOrder: those that are tried go in the order of their times, in which the heap does not have them.
func TestRetryNowKeepsTheOrder(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		down := hook("down")
		down.Retry = &resource.HandlerRetry{Backoff: 600, MaxBackoff: 600}
		b := setup(t, Options{DB: db, Workers: 1}, down)
		a := b.attempts(func(*delivery.Delivery, int) send.Result { return later })
		b.start(t)
		for i := range 5 {
			b.Dispatch(incident("down", i+1, fmt.Sprint("e", i)))
			time.Sleep(10 * time.Second) // the bubble's time
		}
		time.Sleep(555 * time.Second) // the bubble's time: the first one has failed again, and is the last one
		synctest.Wait()
		before := len(a.order)
		if n := b.RetryNow("default", "down"); n != 5 {
			t.Errorf("%d are tried, want 5", n)
		}
		synctest.Wait()
		want := []string{"0-2-1/down", "0-3-1/down", "0-4-1/down", "0-5-1/down", "0-1-1/down"}
		if got := a.order[before:]; before != 6 || !slices.Equal(got, want) {
			t.Errorf("after %d attempts %v are tried, want %v", before, got, want)
		}
	})
}

// TestRetryNowOfSome: of a group that goes out one by one, only the member that failed counts.
func TestRetryNowOfSome(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		rack := grouped("rack")
		rack.Group.Fold, rack.Retry = 9, &resource.HandlerRetry{Backoff: 600, MaxBackoff: 600}
		b := setup(t, Options{DB: db}, rack)
		a := b.attempts(func(*delivery.Delivery, int) send.Result { return later })
		b.start(t)
		for i := range 3 {
			b.Dispatch(incident("rack", 1+i, fmt.Sprint("r1-", i)))
		}
		time.Sleep(15 * time.Second) // the bubble's time
		synctest.Wait()
		w := b.waitingFor(t, "rack", 9)
		if n := b.RetryNow("default", "rack"); n != w.Retrying || n != 1 {
			t.Errorf("%d are tried, want 1; %d had failed", n, w.Retrying)
		}
		synctest.Wait()
		if len(a.order) != 2 {
			t.Errorf("the attempts are %v", a.order)
		}
	})
}

// TestQueued: deliveries that have had no turn are told while they run, wait for a worker, and wait on disk, but only incidents
// and resolutions. What has its turn meanwhile keeps what its trace says.
func TestQueued(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db, Workers: 1, QueueSize: 2, QueueDisk: 4}, pipe("a", "true"))
		s := b.steps()
		b.start(t)
		b.Dispatch(of(delivery.Failing, 1, "running"))
		synctest.Wait()
		b.Dispatch(of(delivery.Failing, 2, "ready"))
		b.Dispatch(of(delivery.Failing, 3, "stored"))
		b.Dispatch(of(delivery.Unchanged, 4, "passing"))
		b.Dispatch(of(delivery.Change, 5, "web"))
		b.Dispatch(of(delivery.Failing, 6, "web")) // on disk, behind the one in memory
		b.Dispatch(of(delivery.Failing, 7, "stored"))
		b.Dispatch(of(delivery.Failing, 8, "stored")) // shed
		for entity, want := range map[string][]string{
			"running": {"0-1-1/a " + runReason}, "ready": {"0-2-1/a " + turnReason}, "passing": nil, "shed": nil,
			"stored": {"0-3-1/a " + diskReason, "0-7-1/a " + diskReason}, "web": {"0-5-1/a " + turnReason, "0-6-1/a " + diskReason},
		} {
			var got []string
			for _, d := range b.Queued("default", entity, "cpu", 9) {
				got = append(got, d.ID+" "+d.Reason)
				if d.Verdict != trace.Waiting || d.Updated > d.Received {
					t.Errorf("%s: %+v would replace a trace", entity, d)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("of %s it told %q, want %q", entity, got, want)
			}
		}
		if got := len(b.Queued("default", "web", "cpu", 1)); got != 1 {
			t.Errorf("of one of web it told %d", got)
		}
		close(s.goOn)
		b.finished.wait(8)
		synctest.Wait()
		for _, entity := range []string{"running", "ready", "stored", "web"} {
			if got := b.Queued("default", entity, "cpu", 9); len(got) > 0 {
				t.Errorf("at the end of %s: %+v", entity, got)
			}
		}
	})
}

// TestBehindOneThatIsRun: what waits behind a delivery is told while it is run, and while its retry waits for a worker.
func TestBehindOneThatIsRun(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		slow := hook("slow")
		slow.Retry = &resource.HandlerRetry{Backoff: 1, MaxBackoff: 1}
		b := setup(t, Options{DB: db, Workers: 1}, slow)
		b.send = func(ctx context.Context, _ *resource.Handler, dl *delivery.Delivery, _ send.Job) send.Result {
			wait := time.Second
			if dl.Entity == "long" {
				wait = time.Minute
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			return later
		}
		b.start(t)
		b.Dispatch(incident("slow", 1, "e1"))
		b.Dispatch(incident("slow", 2, "e1"))
		behind := func() (n int) {
			for _, d := range b.Queued("default", "e1", "cpu", 9) {
				if d.Reason == behindReason {
					n++
				}
			}
			return n
		}
		time.Sleep(500 * time.Millisecond) // the bubble's time
		if n := behind(); n != 1 {
			t.Errorf("while the first one runs, %d wait behind it, want 1", n)
		}
		b.Dispatch(incident("slow", 3, "long"))
		time.Sleep(10 * time.Second) // the bubble's time: the first one is due, and the only worker has another one
		if n := behind(); n != 1 {
			t.Errorf("while the first one is due, %d wait behind it, want 1", n)
		}
	})
}

// TestBehindAGroup: what waits behind the group of an earlier delivery of its check is told, also if it could go out alone.
func TestBehindAGroup(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db}, grouped("rack"))
		b.attempts(nil)
		b.start(t)
		b.Dispatch(incident("rack", 1, "r1-1"))
		moved := incident("rack", 2, "r1-1")
		ev := event("r1-1", "moved")
		ev.Entity.Metadata.Labels["rack"] = "r2"
		moved.Event = ev.AppendProto(nil)
		b.Dispatch(moved)
		synctest.Wait()
		if all := b.Queued("default", "r1-1", "cpu", 9); len(all) != 1 || all[0].ID != "0-2-1/rack" {
			t.Errorf("behind the group are %v", all)
		}
	})
}

// TestWaitingEscalation: an escalation waits for its next step.
func TestWaitingEscalation(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation())
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		l.after(time.Second)
		w := l.waitingFor(t, "page", 9)
		if len(w.Deliveries) != 1 || w.Deliveries[0].For != delivery.ForEscalation || w.Retrying != 0 {
			t.Errorf("what waits is %+v", w)
		}
		if n := l.RetryNow("default", "page"); n != 0 {
			t.Errorf("%d steps are taken before their time", n)
		}
	})
}

// TestErrorText: the reason and what the receiver said are there once if one has the other.
func TestErrorText(t *testing.T) {
	for _, tc := range []struct{ reason, output, want string }{
		{"", "done", ""},
		{"status 75", "", "status 75"},
		{"status 75", "try again\nlater", "status 75: try again"},
		{`451 "try later"`, `recipient anna@example.org: 451 "try later"`, `recipient anna@example.org: 451 "try later"`},
		{"recipient a@b: 451 later", "recipient a@b: 451 later\nrecipient c@d: 451 later", "recipient a@b: 451 later"},
	} {
		at := attempt{reason: tc.reason, res: send.Result{Output: []byte(tc.output)}}
		if got := at.errorText(); got != tc.want {
			t.Errorf("%q, %q: got %q, want %q", tc.reason, tc.output, got, tc.want)
		}
	}
}
