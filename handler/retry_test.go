package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

var (
	errRefused = errors.New("refused")
	later      = send.Result{Err: errRefused, Temporary: true, Kind: send.KindError}
	never      = send.Result{Err: errors.New("status 404"), Status: 404, Kind: send.KindFailed, Output: []byte("no such place")}
)

func hook(name string) *resource.Handler {
	return &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "webhook"}
}

func TestPolicy(t *testing.T) {
	d := &Dispatcher{opts: Options{Backoff: time.Second}}
	now := time.UnixMilli(1e12)
	// f makes attempts that all end the same way, until there are no more.
	f := func(name string, h *resource.Handler, res send.Result, want ...time.Duration) {
		t.Helper()
		var got []time.Duration
		p := progress{first: now.UnixMilli()}
		for at := now; len(got) < 20; {
			p.attempts++
			wait, again, reason := d.policy(h).next(&p, now.UnixMilli(), res, at)
			if reason == "" {
				t.Errorf("%s: no reason", name)
			}
			if !again {
				break
			}
			got = append(got, wait)
			at = at.Add(wait)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: waits %v, want %v", name, got, want)
		}
	}
	s := time.Second
	retry := func(h *resource.Handler, r resource.HandlerRetry) *resource.Handler {
		h.Retry = &r
		return h
	}
	f("gone for good", hook("a"), never)
	f("doubles up to five minutes", retry(hook("a"), resource.HandlerRetry{MaxAttempts: 12}), later,
		s, 2*s, 4*s, 8*s, 16*s, 32*s, 64*s, 128*s, 256*s, 300*s, 300*s)
	f("own waits", retry(hook("a"), resource.HandlerRetry{MaxAttempts: 5, Backoff: 10, MaxBackoff: 25}), later, 10*s, 20*s, 25*s, 25*s)
	f("too old, but tried five times", retry(hook("a"), resource.HandlerRetry{MaxAge: 1}), later, s, 2*s, 4*s, 8*s)
	f("own age", retry(hook("a"), resource.HandlerRetry{MaxAge: 40}), later, s, 2*s, 4*s, 8*s, 16*s, 32*s)
	f("waits as told", retry(hook("a"), resource.HandlerRetry{MaxAttempts: 3}),
		send.Result{Err: errRefused, Temporary: true, RetryAfter: 90 * s}, 90*s, 90*s)
	f("but not for ever", retry(hook("a"), resource.HandlerRetry{MaxAttempts: 2}),
		send.Result{Err: errRefused, Temporary: true, RetryAfter: time.Hour}, 300*s)
	f("command, as Sensu", pipe("a", "x"), send.Result{Err: errRefused, Status: 1})
	f("command that says so", retry(pipe("a", "x"), resource.HandlerRetry{MaxAttempts: 2}), later, s)
}

// attempts records when each delivery was tried, and returns the given results.
type attempts struct {
	mu     sync.Mutex
	begin  time.Time
	at     map[string][]time.Duration // by delivery ID
	order  []string
	data   map[string]string
	answer func(dl *delivery.Delivery, n int) send.Result
}

func (b *bundle) attempts(answer func(dl *delivery.Delivery, n int) send.Result) *attempts {
	a := &attempts{begin: time.Now(), at: map[string][]time.Duration{}, data: map[string]string{}, answer: answer}
	b.send = func(_ context.Context, _ *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at[dl.ID] = append(a.at[dl.ID], time.Since(a.begin).Round(time.Millisecond))
		a.order = append(a.order, dl.ID)
		a.data[dl.ID] = shaped(job)
		if a.answer == nil {
			return send.Result{Kind: send.KindOK}
		}
		return a.answer(dl, job.Attempt)
	}
	return a
}

func (a *attempts) times(id string) []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at[id])
}

// traces collects reports, put together.
type traces struct {
	mu sync.Mutex
	m  map[string]*trace.Delivery
}

func (tr *traces) record(d *trace.Delivery) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.m == nil {
		tr.m = map[string]*trace.Delivery{}
	}
	if before := tr.m[d.ID]; before != nil {
		before.Merge(d)
		return
	}
	tr.m[d.ID] = d
}

func (tr *traces) of(id string) trace.Delivery {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if d := tr.m[id]; d != nil {
		one := *d
		one.Steps = slices.Clone(d.Steps) // the next report changes them in place
		return one
	}
	return trace.Delivery{}
}

// fakeTime runs f in a synctest bubble. The database is closed at its end.
func fakeTime(t *testing.T, f func(t *testing.T, db *pebble.DB)) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t, "db", vfs.NewMem())
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		f(t, db)
	})
}

func TestRetryWaitsAndBlocksNobody(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var tr traces
		b := setup(t, Options{DB: db, Workers: 1, Backoff: time.Second, Trace: tr.record}, hook("a"))
		a := b.attempts(func(dl *delivery.Delivery, n int) send.Result {
			if dl.Seq == 1 && n < 4 {
				return later
			}
			return send.Result{Kind: send.KindOK}
		})
		b.start(t)
		b.Dispatch(incident("a", 1, "bad"))
		b.Dispatch(incident("a", 2, "bad")) // must wait for the first
		b.Dispatch(incident("a", 3, "good"))
		synctest.Wait()
		if got := a.times("0-3-1/a"); !slices.Equal(got, []time.Duration{0}) {
			t.Errorf("another pair had to wait for the failing one: %v", got)
		}
		if n := b.metric(t, "lapwing_handler_parked"); n != 2 {
			t.Errorf("%v are parked, want 2", n)
		}
		if got := tr.of("0-1-1/a"); got.Verdict != trace.Waiting || len(got.Attempts) != 1 || got.Attempts[0].Next == 0 ||
			got.Reason != "refused" {
			t.Errorf("the trace says %+v", got)
		}
		b.finished.wait(3)
		if got, want := a.times("0-1-1/a"), []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("tried at %v, want %v", got, want)
		}
		if got := a.times("0-2-1/a"); !slices.Equal(got, []time.Duration{7 * time.Second}) {
			t.Errorf("the one behind was tried at %v", got)
		}
		if got := tr.of("0-1-1/a"); got.Verdict != trace.Delivered || len(got.Attempts) != 4 {
			t.Errorf("the trace says %+v", got)
		}
		b.flush(t, 0)
		if keys := keysFrom(t, db, "d"); len(keys) != 1 {
			t.Errorf("still stored: %q", keys)
		}
	})
}

// keysFrom returns the keys under a prefix.
func keysFrom(t testing.TB, db *pebble.DB, prefix string) []string {
	t.Helper()
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte(prefix), UpperBound: []byte{prefix[0], prefix[len(prefix)-1] + 1}[:len(prefix)],
	})
	if len(prefix) == 1 {
		it.SetBounds([]byte(prefix), []byte{prefix[0] + 1})
	}
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

// TestRetrySurvivesARestart: after a restart the attempts continue, and their number goes on.
func TestRetrySurvivesARestart(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := hook("a")
		h.Retry = &resource.HandlerRetry{MaxAttempts: 4, Backoff: 10}
		b := setup(t, Options{DB: db}, h)
		fail := func(*delivery.Delivery, int) send.Result { return later }
		a := b.attempts(fail)
		b.start(t)
		b.Dispatch(incident("a", 1, "e"))
		time.Sleep(11 * time.Second) // the bubble's time
		synctest.Wait()
		if got := a.times("0-1-1/a"); len(got) != 2 {
			t.Fatalf("tried at %v", got)
		}
		b.flush(t, 0)
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		b = setup(t, Options{DB: db}, h)
		a = b.attempts(fail)
		b.start(t)
		b.finished.wait(1)
		if got := a.times("0-1-1/a"); !slices.Equal(got, []time.Duration{19 * time.Second, 59 * time.Second}) {
			t.Errorf("after the restart tried at %v", got)
		}
		b.flush(t, 0)
		letters, next, err := b.DeadLetters("default", "", "", 10)
		if err != nil || len(letters) != 1 || next != "" || letters[0].Attempts != 4 || letters[0].Last-letters[0].First != 70_000 {
			t.Errorf("dead letters %+v %q %v", letters, next, err)
		}
	})
}

// TestStoredWaitAfterTheClockWasSetBack: the time of the next attempt was stored while the clock was an hour ahead.
func TestStoredWaitAfterTheClockWasSetBack(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := hook("a")
		h.Retry = &resource.HandlerRetry{Backoff: 10, MaxBackoff: 60}
		b := setup(t, Options{DB: db}, h)
		a := b.attempts(func(*delivery.Delivery, int) send.Result { return later })
		b.start(t)
		b.Dispatch(incident("a", 1, "e"))
		synctest.Wait()
		if got := a.times("0-1-1/a"); len(got) != 1 {
			t.Fatalf("tried at %v", got)
		}
		b.flush(t, 0)
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		ahead := time.Now().Add(time.Hour)
		p := progress{attempts: 1, first: ahead.UnixMilli(), due: ahead.Add(10 * time.Second).UnixMilli()}
		key := deliveryKey(resource.Name{Namespace: "default", Name: "a"}, 0, position{1, 1})
		key[1] = 'r'
		if _, closer, err := db.Get(key); err != nil || closer.Close() != nil {
			t.Fatalf("there is no stored progress to change: %v", err)
		}
		if err := db.Set(key, p.encode(), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		b = setup(t, Options{DB: db}, h)
		a = b.attempts(nil)
		b.start(t)
		b.finished.wait(1)
		if got := a.times("0-1-1/a"); !slices.Equal(got, []time.Duration{time.Minute}) {
			t.Errorf("after the restart tried at %v, want after the longest wait", got)
		}
	})
}

func TestDeadLetters(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var tr traces
		b := setup(t, Options{DB: db, Trace: tr.record}, hook("a"), hook("b"))
		good := false
		b.attempts(func(dl *delivery.Delivery, _ int) send.Result {
			if !good && dl.Seq%2 == 0 {
				return never
			}
			return send.Result{}
		})
		b.start(t)
		for i := range 20 {
			dl := incident([]string{"a", "b"}[i/10], i+1, fmt.Sprint("e", i))
			dl.Received = time.Now().UnixMilli()
			b.Dispatch(dl)
		}
		b.finished.wait(20)
		if letters, _, err := b.DeadLetters("", "", "", 100); err != nil || len(letters) != 0 {
			t.Errorf("before a report there are %v %v", letters, err)
		}
		b.flush(t, 0)
		all := func(namespace, handler string, page int) (ids []string) {
			for after := ""; ; {
				letters, next, err := b.DeadLetters(namespace, handler, after, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range letters {
					ids = append(ids, l.ID)
				}
				if after = next; next == "" {
					return ids
				}
			}
		}
		if got := all("default", "", 3); len(got) != 10 || !slices.Equal(got, all("", "", 1)) ||
			len(all("default", "b", 2)) != 5 || len(all("other", "", 5)) != 0 {
			t.Errorf("found %v, %v, %v", got, all("", "", 1), all("default", "b", 2))
		}
		l, found, err := b.DeadLetter("default", "0-2-1.a")
		if err != nil || !found || l.Reason != "status 404" || l.Output != "no such place" || l.Attempts != 1 ||
			l.Entity != "e1" || l.Check != "cpu" || l.Status != 2 {
			t.Errorf("dead letter %+v %v", l, err)
		}
		if l.Event == nil || l.Event.Check.Output != "data 2" {
			t.Errorf("its event %+v", l.Event)
		}
		if kept, err := b.readLetter(letterKey("default", "0-2-1.a")); err != nil || kept.dl.ID != "0-2-1/a" || !kept.dl.Incident {
			t.Errorf("its delivery %+v %v", kept, err)
		}
		if got := tr.of("0-2-1/a"); got.Verdict != trace.Dead || got.Attempts[0].Status != 404 || got.Attempts[0].Output != "no such place" {
			t.Errorf("its trace %+v", got)
		}
		if _, found, err := b.DeadLetter("default", "none"); found || err != nil {
			t.Errorf("found what is not there: %v, %v", found, err)
		}
		if n := b.metric(t, "lapwing_handler_dead_letters"); n != 10 {
			t.Errorf("%v are counted", n)
		}
		for _, tc := range []struct {
			ids     []string
			handler string
			want    string
		}{
			{nil, "", "10 0-10-1.a"}, {nil, "b", "5 0-12-1.b"}, {[]string{"0-2-1.a", "none", "0-2-1.a"}, "", "1 0-2-1.a"},
		} {
			n, first, err := b.CountDeadLetters(t.Context(), "default", tc.ids, tc.handler)
			if err != nil || len(first) != n || fmt.Sprint(n, " ", first[0].ID) != tc.want || first[0].Event != nil {
				t.Errorf("%v %s: counted %d %+v, %v", tc.ids, tc.handler, n, first, err)
			}
		}
		if n, err := b.DeleteDeadLetters(t.Context(), "default", []string{"0-2-1.a", "none"}, ""); n != 1 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		good = true
		if n, err := b.redrive(t, delivery.Redrive{IDs: []string{"0-4-1.a"}}); n != 1 || err != nil {
			t.Errorf("sent again %d, %v", n, err)
		}
		if got := b.finished.wait(21)[20]; got.ID != "0-4-1/a" || b.result("0-4-1/a") != trace.Delivered {
			t.Errorf("%s came again: %s", got.ID, b.result("0-4-1/a"))
		}
		if n, err := b.redrive(t, delivery.Redrive{Handler: "b"}); n != 5 || err != nil {
			t.Errorf("sent again %d, %v", n, err)
		}
		b.finished.wait(26)
		if n, err := b.DeleteDeadLetters(t.Context(), "", nil, ""); n != 3 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		if n := b.metric(t, "lapwing_handler_dead_letters"); n != 0 {
			t.Errorf("%v are counted", n)
		}
		b.flush(t, 0)
		if keys := keysFrom(t, db, "d"); len(keys) != 1 {
			t.Errorf("still stored: %q", keys)
		}
	})
}

// TestRedriveSurvivesACrash sends a dead letter again and crashes the process before its delivery, and after.
func TestRedriveSurvivesACrash(t *testing.T) {
	db := openDB(t, "db", vfs.NewMem())
	t.Cleanup(func() { db.Close() }) // after the Stop of setup
	b := setup(t, Options{DB: db}, hook("a"))
	b.attempts(func(*delivery.Delivery, int) send.Result { return never })
	b.start(t)
	b.Dispatch(incident("a", 1, "e"))
	b.finished.wait(1)
	b.flush(t, 0)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.redrive(t, delivery.Redrive{}); n != 1 || err != nil { // nothing runs any more
		t.Fatalf("sent again %d, %v", n, err)
	}
	b = setup(t, Options{DB: db}, hook("a"))
	b.attempts(nil)
	b.start(t)
	if got := b.finished.wait(1); got[0].ID != "0-1-1/a" || b.result("0-1-1/a") != trace.Delivered {
		t.Errorf("%s: %s", got[0].ID, b.result("0-1-1/a"))
	}
	b.flush(t, 0)
	if keys := stored(t, db); len(keys) != 0 {
		t.Errorf("still stored: %q", keys)
	}
	// Numbers go on, so that a new delivery is not mistaken for an old one.
	if !b.ledger(0).addLocal([]*delivery.Delivery{incident("a", 0, "e"), incident("a", 0, "e")}) {
		t.Fatal("not taken")
	}
	if got := b.finished.wait(3); got[1].Seq >= got[2].Seq {
		t.Errorf("numbers %d and %d", got[1].Seq, got[2].Seq)
	}
}

func TestTooManyDeadLetters(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db, DeadLetters: 3, DeadLetterAge: time.Hour}, hook("a"))
		b.attempts(func(*delivery.Delivery, int) send.Result { return never })
		b.start(t)
		for i := range 5 {
			b.Dispatch(incident("a", i+1, fmt.Sprint("e", i)))
		}
		b.finished.wait(5)
		b.flush(t, 0)
		if n, dropped := len(keysFrom(t, db, "dx")), b.metric(t, "lapwing_handler_dead_dropped_total"); n != 3 || dropped != 2 {
			t.Errorf("%d are kept and %v dropped", n, dropped)
		}
		time.Sleep(2 * time.Hour) // the bubble's time
		b.Dispatch(incident("a", 9, "e9"))
		b.finished.wait(6)
		b.flush(t, 0)
		if keys := keysFrom(t, db, "dx"); len(keys) != 1 {
			t.Errorf("kept: %q", keys)
		}
	})
}

// TestFallback: a check falls back through more pipelines than a delivery may have fallbacks.
func TestFallback(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db}, hook("a"), hook("b"), hook("c"))
		reference := func(kind, name string) *resource.ResourceReference {
			return &resource.ResourceReference{APIVersion: "core/v2", Type: kind, Name: name}
		}
		meta := func(name string) resource.ObjectMeta { return resource.ObjectMeta{Namespace: "default", Name: name} }
		chain := &resource.FallbackPipeline{Metadata: meta("chain")}
		for i := range maxHops + 5 {
			name := fmt.Sprint("p", i)
			define(b.handlers, config.Pipelines, &resource.Pipeline{Metadata: meta(name), Workflows: []resource.PipelineWorkflow{
				{Name: "w", Handler: reference("Handler", []string{"a", "b", "c"}[i%3])},
			}})
			chain.Pipelines = append(chain.Pipelines, reference("Pipeline", name))
		}
		define(b.handlers, config.FallbackPipelines, chain)
		define(b.handlers, config.Checks, &resource.CheckConfig{
			Metadata: meta("cpu"), FallbackPipeline: reference("FallbackPipeline", "chain"),
		})
		b.attempts(func(*delivery.Delivery, int) send.Result { return never })
		b.start(t)
		first := incident("a", 1, "e")
		first.Pipeline, first.Workflow = "p0", "w"
		b.Dispatch(first)
		all := b.finished.wait(maxHops + 1) // it ends there, although there are more pipelines
		synctest.Wait()
		if len(b.finished.wait(0)) != maxHops+1 || all[1].Handler != "b" || all[2].Handler != "c" || !isLocal(all[2].Partition) {
			t.Errorf("went %v", all)
		}
		b.flush(t, 0)
		if n := len(keysFrom(t, db, "dx")); n != maxHops+1 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// silenced returns an incident that a silence mutes.
func silenced(handler string, seq int, entity string) *delivery.Delivery {
	dl := incident(handler, seq, entity)
	ev := event(entity, fmt.Sprint("data ", seq))
	ev.Check.Silenced, ev.Check.IsSilenced = []string{"entity:e:*"}, true
	dl.Event = ev.AppendProto(nil)
	return dl
}

func TestVerdictsEndDeliveries(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var tr traces
		a, broken, output := hook("a"), hook("broken"), hook("output")
		a.Filters = []string{"not_silenced"}
		broken.Mutator, output.Mutator = "none", "only_check_output"
		b := setup(t, Options{DB: db, Trace: tr.record}, a, broken, output)
		at := b.attempts(nil)
		b.start(t)
		b.Dispatch(silenced("a", 1, "e0"))
		b.Dispatch(incident("broken", 3, "e2"))
		b.Dispatch(incident("output", 4, "e3"))
		b.finished.wait(3)
		if got := tr.of("0-1-1/a"); got.Verdict != trace.Silenced || got.Reason != "it is silenced by entity:e:*" || len(got.Steps) != 1 ||
			got.Steps[0].Kind != trace.StepSilence || len(at.times("0-1-1/a")) != 0 {
			t.Errorf("silenced: %+v", got)
		}
		if got := tr.of("0-3-1/broken"); got.Verdict != trace.Dead || got.Reason != "mutate with none: there is no such mutator" ||
			len(at.times("0-3-1/broken")) != 0 {
			t.Errorf("mutator fails: %+v", got)
		}
		if at.data["0-4-1/output"] != "data 4" {
			t.Errorf("sent %q", at.data["0-4-1/output"])
		}
	})
}

func TestConcurrencyAndRate(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		narrow, slow := hook("narrow"), hook("slow")
		narrow.Concurrency = 2
		slow.RateLimit = &resource.HandlerRate{PerSecond: 0.5, Burst: 2}
		slow.Filters = []string{"not_silenced"}
		b := setup(t, Options{DB: db, Workers: 8}, narrow, slow)
		running, most := 0, 0
		var mu sync.Mutex
		a := b.attempts(nil)
		note := b.send
		b.send = func(ctx context.Context, h *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result {
			if h.Metadata.Name == "slow" {
				return note(ctx, h, dl, job)
			}
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second) // the bubble's time
			mu.Lock()
			running--
			mu.Unlock()
			return send.Result{}
		}
		b.start(t)
		for i := range 6 {
			b.Dispatch(incident("narrow", 10+i, fmt.Sprint("e", i)))
			dl := incident("slow", 1+i, fmt.Sprint("e", i))
			if i == 1 {
				dl = silenced("slow", 1+i, fmt.Sprint("e", i))
			}
			b.Dispatch(dl)
		}
		b.finished.wait(12)
		if most != 2 {
			t.Errorf("%d ran at a time, want 2", most)
		}
		var times []time.Duration
		for _, id := range a.order {
			times = append(times, a.times(id)...)
		}
		s := time.Second
		if !slices.Equal(times, []time.Duration{0, 0, 2 * s, 4 * s, 6 * s}) { // the one that is filtered costs no token
			t.Errorf("sent at %v", times)
		}
	})
}

func resolution(handler string, seq int, entity string) *delivery.Delivery {
	dl := incident(handler, seq, entity)
	dl.Incident, dl.Resolution, dl.Status = false, true, 0
	ev := event(entity, fmt.Sprint("data ", seq))
	ev.Check.Status = 0
	dl.Event = ev.AppendProto(nil)
	return dl
}

func TestResolveOnlyAfterAlert(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := hook("a")
		h.Resolve = &resource.HandlerResolve{OnlyAfterAlert: true}
		h.Retry = &resource.HandlerRetry{MaxAttempts: 1}
		var tr traces
		b := setup(t, Options{DB: db, Trace: tr.record}, h)
		a := b.attempts(func(dl *delivery.Delivery, _ int) send.Result {
			if dl.Entity == "unheard" && dl.Incident {
				return later
			}
			return send.Result{}
		})
		b.start(t)
		b.Dispatch(incident("a", 1, "unheard"))
		b.Dispatch(resolution("a", 2, "unheard"))
		b.Dispatch(incident("a", 3, "heard"))
		b.Dispatch(resolution("a", 4, "heard"))
		b.Dispatch(resolution("a", 5, "heard")) // only sent once
		b.finished.wait(5)
		if got := tr.of("0-2-1/a"); got.Verdict != trace.Filtered || len(a.times("0-2-1/a")) != 0 || len(got.Steps) != 1 ||
			got.Steps[0].Kind != trace.StepResolve {
			t.Errorf("resolution of what nobody heard: %+v", got)
		}
		if tr.of("0-4-1/a").Verdict != trace.Delivered || tr.of("0-5-1/a").Verdict != trace.Filtered {
			t.Errorf("resolutions: %+v, %+v", tr.of("0-4-1/a"), tr.of("0-5-1/a"))
		}
	})
}

func TestResolveDelay(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		h := hook("a")
		h.Resolve = &resource.HandlerResolve{Delay: 60}
		var tr traces
		b := setup(t, Options{DB: db, Trace: tr.record}, h)
		a := b.attempts(nil)
		b.start(t)
		send := func(dl *delivery.Delivery) {
			dl.Received = time.Now().UnixMilli()
			b.Dispatch(dl)
		}
		send(resolution("a", 1, "calm"))
		send(resolution("a", 2, "flaps"))
		time.Sleep(30 * time.Second) // the bubble's time
		if got := tr.of("0-2-1/a"); got.Verdict != trace.Held {
			t.Errorf("meanwhile it is %s", got.Verdict)
		}
		send(incident("a", 3, "flaps"))
		synctest.Wait()
		if got := tr.of("0-2-1/a"); got.Verdict != trace.Filtered || len(a.times("0-2-1/a")) != 0 {
			t.Errorf("the resolution of what fails again: %+v", got)
		}
		if got := a.times("0-3-1/a"); !slices.Equal(got, []time.Duration{30 * time.Second}) {
			t.Errorf("the new incident went out at %v", got)
		}
		b.finished.wait(3)
		if got := a.times("0-1-1/a"); !slices.Equal(got, []time.Duration{60 * time.Second}) {
			t.Errorf("the other resolution went out at %v", got)
		}
	})
}
