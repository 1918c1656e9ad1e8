package trace

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// bench is a store with a clock that stands still.
type bench struct {
	*Store
	t   testing.TB
	db  *pebble.DB
	now time.Time
}

func newBench(t testing.TB, opts Options) *bench {
	t.Helper()
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := &bench{t: t, db: db, now: time.Date(2030, 1, 1, 3, 0, 0, 0, time.UTC)}
	b.open(opts)
	return b
}

// open makes a store on the same database.
func (b *bench) open(opts Options) {
	b.t.Helper()
	opts.DB, opts.Now = b.db, func() time.Time { return b.now }
	var err error
	if b.Store, err = New(opts); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) tick(d time.Duration) { b.now = b.now.Add(d) }

// incident returns a delivery of an event that is received now.
func (b *bench) incident(event, handler string, verdict Verdict) *Delivery {
	return &Delivery{
		Header: delivery.Header{
			ID: event + "/" + handler, EventID: event, Namespace: "default", Entity: "web1", Check: "disk", Status: 2,
			Incident: true, Received: b.now.UnixMilli(), Handler: handler,
		},
		Verdict: verdict,
	}
}

func disk(entity string, limit int) Query {
	return Query{Namespace: "default", Entity: entity, Check: "disk", Limit: limit}
}

func (b *bench) of(limit int) []Outcome {
	b.t.Helper()
	events, err := b.Of(disk("web1", limit))
	if err != nil {
		b.t.Fatal(err)
	}
	return events
}

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(string, ...any)        {}
func (quiet) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

// TestPieces reports on one delivery in pieces, before and after a restart.
func TestPieces(t *testing.T) {
	b := newBench(t, Options{})
	d := b.incident("0-1-0", "mail", Held)
	d.Pipeline, d.Workflow = "alerts", "mail"
	d.Steps = []Step{
		{Kind: StepFilter, Name: "hours", Expression: "hour(event.timestamp) > 8", Verdict: Pass, Saw: []Value{{"event.timestamp", "5"}}},
	}
	b.Record(d)
	b.Record(b.incident("0-1-0", "pager", Filtered))
	next := b.incident("0-1-0", "mail", Waiting)
	next.Reason = "exit status 75"
	next.Steps = []Step{{Kind: StepMutator, Name: "short", Verdict: Pass}}
	next.Attempts = []Attempt{{At: 10, Result: "failed", Status: 75, Next: 20}}
	b.Record(next)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(Options{})
	last := b.incident("0-1-0", "mail", Delivered)
	last.Attempts = []Attempt{{At: 20, Result: "ok"}}
	b.Record(last)
	again := b.incident("0-1-0", "mail", Delivered) // a report may be repeated
	again.Steps = []Step{{Kind: StepMutator, Name: "short", Verdict: Pass, Micros: 7}}
	again.Attempts = []Attempt{{At: 20, Result: "ok", Status: 0, Millis: 3}}
	b.Record(again)

	events := b.of(0)
	if len(events) != 1 || len(events[0].Deliveries) != 2 {
		t.Fatalf("events %+v", events)
	}
	got := events[0].Deliveries[0]
	if got.Verdict != Delivered || got.Reason != "" || got.Pipeline != "alerts" || !got.Incident {
		t.Errorf("delivery %+v", got)
	}
	if len(got.Steps) != 2 || got.Steps[0].Saw[0].Value != "5" || got.Steps[1].Micros != 7 {
		t.Errorf("steps %+v", got.Steps)
	}
	if len(got.Attempts) != 2 || got.Attempts[0].Status != 75 || got.Attempts[1].Millis != 3 {
		t.Errorf("attempts %+v", got.Attempts)
	}
	if other := events[0].Deliveries[1]; other.Verdict != Filtered || other.Handler != "pager" {
		t.Errorf("other delivery %+v", other)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestNewestFirst: checks are kept apart, their events are ordered and their number is limited.
func TestNewestFirst(t *testing.T) {
	b := newBench(t, Options{})
	for i := range 5 {
		b.Record(b.incident(fmt.Sprintf("0-%d-0", i), "mail", Delivered))
		other := b.incident(fmt.Sprintf("1-%d-0", i), "mail", Delivered)
		other.Check = "disk2"
		b.Record(other)
		b.tick(time.Second)
	}
	events := b.of(2)
	if len(events) != 2 || events[0].Event != "0-4-0" || events[1].Event != "0-3-0" {
		t.Errorf("newest %+v", events)
	}
	if n := len(b.of(0)); n != 5 {
		t.Errorf("%d events, want 5", n)
	}
}

// TestRepeats: the same filter denies a check's events for a day.
func TestRepeats(t *testing.T) {
	b := newBench(t, Options{Queue: 10_000})
	deny := func(i int, filter string) *Delivery {
		d := b.incident(fmt.Sprintf("0-%d-0", i), "mail", Filtered)
		d.Reason = fmt.Sprint("it saw ", i)
		d.Steps = []Step{{Kind: StepFilter, Name: filter, Verdict: Deny, Saw: []Value{{"event.check.occurrences", fmt.Sprint(i)}}}}
		return d
	}
	const events = 24 * 360
	for i := range events {
		b.Record(deny(i, "occurrences"))
		b.tick(10 * time.Second)
	}
	got := b.of(0)
	if len(got) < 10 || len(got) > 60 {
		t.Errorf("%d events were kept whole", len(got))
	}
	total := 0
	for _, e := range got {
		total += 1 + e.Deliveries[0].Repeats
	}
	if total != events {
		t.Errorf("%d events are accounted for, want %d", total, events)
	}
	newest := got[0].Deliveries[0]
	if want := b.now.Add(-10 * time.Second).UnixMilli(); newest.Last != want || newest.Repeats == 0 {
		t.Errorf("newest repeats %d times until %d, want until %d", newest.Repeats, newest.Last, want)
	}
	if got := testutil.ToFloat64(b.metrics.repeated); got < events*0.9 {
		t.Errorf("%v repeats counted", got)
	}
	// Another filter makes another end. The repeats so far survive a restart.
	b.Record(deny(events, "hours"))
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(Options{})
	after := b.of(0)
	if len(after) != len(got)+1 || after[0].Deliveries[0].Steps[0].Name != "hours" || after[1].Deliveries[0].Repeats != newest.Repeats {
		t.Errorf("after a restart %+v", after[:2])
	}
}

// TestDeliveredRepeats: more repeats are stored whole if they were delivered.
func TestDeliveredRepeats(t *testing.T) {
	b := newBench(t, Options{Queue: 10_000})
	const events = 24 * 360
	for i := range events {
		d := b.incident(fmt.Sprintf("0-%d-0", i), "mail", Delivered)
		d.Attempts = []Attempt{{At: b.now.UnixMilli(), Result: "ok"}}
		b.Record(d)
		b.tick(10 * time.Second)
	}
	got := b.of(0)
	total := 0
	for _, e := range got {
		total += 1 + e.Deliveries[0].Repeats
	}
	if len(got) < 100 || len(got) > 250 || total != events {
		t.Errorf("%d events were kept whole, %d are accounted for", len(got), total)
	}
	first := got[len(got)-20:]
	for _, e := range first {
		if e.Deliveries[0].Repeats > 0 {
			t.Errorf("one of the first stands for others: %+v", e)
		}
	}
}

// TestEndsAreTold: deliveries that waited end like others before them. They must not count as repeats.
func TestEndsAreTold(t *testing.T) {
	b := newBench(t, Options{})
	for i := range 50 {
		event := fmt.Sprintf("0-%d-0", i)
		b.Record(b.incident(event, "mail", Filtered))
		b.Record(b.incident(event, "pager", Delivered))
		b.tick(time.Second)
	}
	for i := range 5 {
		event := fmt.Sprintf("1-%d-0", i)
		b.Record(b.incident(event, "mail", Held))
		b.Record(b.incident(event, "pager", Waiting))
		b.of(1)
		b.Record(b.incident(event, "mail", Filtered))
		b.Record(b.incident(event, "pager", Delivered))
	}
	for _, e := range b.of(5) {
		if len(e.Deliveries) != 2 || e.Deliveries[0].Verdict != Filtered || e.Deliveries[1].Verdict != Delivered {
			t.Errorf("%s ended as %+v", e.Event, e.Deliveries)
		}
	}
	if n := len(b.Store.open); n != 0 {
		t.Errorf("%d deliveries are thought to be open", n)
	}
}

// FuzzGeneration reads any bytes as a stored generation.
func FuzzGeneration(f *testing.F) {
	g := generation{id: 7, began: 1, newest: 2, bytes: 3, number: 4}
	f.Add(generationKey(7), g.value())
	f.Add([]byte("tg"), []byte{generationVersion})
	f.Add(generationKey(1), []byte{generationVersion, 0x80})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		var g, again generation
		if g.decode(key, value) != nil {
			return
		}
		if err := again.decode(generationKey(g.id), g.value()); err != nil || again != g {
			t.Errorf("%+v became %+v: %v", g, again, err)
		}
	})
}

func TestSample(t *testing.T) {
	b := newBench(t, Options{Sample: 10, Queue: 100_000})
	plain := func(event string, verdict Verdict) {
		d := b.incident(event, "graphite", verdict)
		d.Incident, d.Status = false, 0
		b.Record(d)
	}
	const events = 2000
	for i := range events {
		event := fmt.Sprintf("0-%d-0", i)
		plain(event, Waiting)
		plain(event, Delivered)
		b.tick(time.Second)
	}
	sampled := testutil.ToFloat64(b.metrics.unsampled)
	if sampled < 2*events*0.85 || sampled > 2*events*0.95 {
		t.Errorf("%v of %d pieces were left out", sampled, 2*events)
	}
	for _, e := range b.of(0) {
		if e.Deliveries[0].Verdict != Delivered {
			t.Errorf("half of %s is known", e.Event)
		}
	}
	plain("0-1-0", Dead)
	plain("0-2-0", Dead)
	if got := testutil.ToFloat64(b.metrics.unsampled); got != sampled {
		t.Error("a dead letter was left out")
	}
	b.opts.Sample = 0
	if b.Wants("0-7-0", false, false) || !b.Wants("0-7-0", true, false) || !b.Wants("0-7-0", false, true) {
		t.Error("without a sample only incidents and resolutions are wanted")
	}
}

// TestBounds fills a store and checks what is left.
func TestBounds(t *testing.T) {
	t.Run("per check", func(t *testing.T) {
		b := newBench(t, Options{PerCheck: 10})
		for i := range 1000 {
			b.Record(b.incident(fmt.Sprintf("0-%d-0", i), "mail", Dead))
			b.tick(time.Millisecond)
			if i%7 == 0 {
				b.of(1)
			}
		}
		events := b.of(0)
		if len(events) < 10 || len(events) > 20 || events[0].Event != "0-999-0" {
			t.Errorf("%d events from %s on", len(events), events[0].Event)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		const limit = 1 << 20
		b := newBench(t, Options{MaxBytes: limit, Queue: 100})
		for i := range 20_000 {
			d := b.incident(fmt.Sprintf("0-%d-0", i), "mail", Delivered)
			d.Entity = fmt.Sprint("web", i)
			b.Record(d)
			if i%50 == 0 {
				b.of(1)
			}
		}
		b.of(1)
		got := testutil.ToFloat64(b.metrics.bytes)
		if got > limit || got < limit/2 {
			t.Errorf("%v bytes are kept, want up to %d", got, limit)
		}
		if stored := b.stored(); stored > limit || stored < limit/2 {
			t.Errorf("%d bytes are stored", stored)
		}
		// The count is right after a restart, too.
		b.open(Options{MaxBytes: limit})
		if again := testutil.ToFloat64(b.metrics.bytes); again != got {
			t.Errorf("%v bytes after a restart, want %v", again, got)
		}
		if events, err := b.Of(disk("web19999", 0)); err != nil || len(events) != 1 {
			t.Errorf("newest: %v, %v", events, err)
		}
		if events, err := b.Of(disk("web1", 0)); err != nil || len(events) != 0 {
			t.Errorf("oldest: %v, %v", events, err)
		}
	})
	t.Run("age", func(t *testing.T) {
		b := newBench(t, Options{MaxAge: 8 * time.Hour})
		for i := range 20 {
			b.Record(b.incident(fmt.Sprintf("0-%d-0", i), "mail", Delivered))
			b.of(1)
			b.tick(time.Hour)
		}
		for _, e := range b.of(0) {
			if age := b.now.Sub(time.UnixMilli(e.Received)); age > 10*time.Hour {
				t.Errorf("%s is kept after %v", e.Event, age)
			}
		}
		if n := len(b.of(0)); n < 7 {
			t.Errorf("%d events are left", n)
		}
		b.tick(20 * time.Hour)
		b.of(0)
		if got := b.of(0); len(got) != 0 || b.stored() != 0 {
			t.Errorf("%d events, %d bytes are left after a day", len(got), b.stored())
		}
	})
	t.Run("size of one", func(t *testing.T) {
		b := newBench(t, Options{})
		d := b.incident("0-1-0", "mail", Dead)
		long := strings.Repeat("ä", 1<<20)
		d.Reason = long
		for range 1000 {
			st := Step{Kind: StepFilter, Name: "f", Expression: long, Error: long}
			for range 100 {
				st.Saw = append(st.Saw, Value{long, long})
			}
			d.Steps = append(d.Steps, st)
		}
		for i := range 1000 {
			d.Attempts = append(d.Attempts, Attempt{At: int64(i), Output: long, Error: long})
		}
		b.Record(d)
		got := b.of(0)[0].Deliveries[0]
		if b.stored() > 4<<20 {
			t.Errorf("%d bytes", b.stored())
		}
		if len(got.Attempts) != maxAttempts || got.Attempts[0].At != 0 || got.Attempts[maxAttempts-1].At != 999 {
			t.Errorf("%d attempts", len(got.Attempts))
		}
		if !strings.HasSuffix(got.Reason, "ä…") || len(got.Reason) > maxText {
			t.Errorf("reason %q", got.Reason)
		}
	})
}

// stored returns how many bytes of records are in the database.
func (b *bench) stored() (n int) {
	b.t.Helper()
	it, err := b.db.NewIter(&pebble.IterOptions{LowerBound: []byte("tr"), UpperBound: []byte("ts")})
	if err != nil {
		b.t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		n += len(it.Key()) + len(it.Value())
	}
	return n
}

// TestFull records more than the queue takes. Record does not wait, and dropped records are counted.
func TestFull(t *testing.T) {
	b := newBench(t, Options{Queue: 100})
	for i := range 1000 {
		b.Record(b.incident(fmt.Sprintf("0-%d-0", i), "mail", Dead))
	}
	if got := testutil.ToFloat64(b.metrics.dropped); got != 900 {
		t.Errorf("%v dropped, want 900", got)
	}
	if n := len(b.of(0)); n != 100 {
		t.Errorf("%d events, want 100", n)
	}
	broken := b.incident("0-1-0", "mail", Delivered)
	broken.Check = "a\x00b"
	b.Record(broken)
	if got := testutil.ToFloat64(b.metrics.dropped); got != 901 {
		t.Errorf("a name that no key can have was not dropped")
	}
}

// TestWriter: a running store writes recorded traces by itself.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{Delay: time.Second})
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var senders sync.WaitGroup
		for i := range 4 {
			senders.Go(func() {
				for j := range 100 {
					b.Record(b.incident(fmt.Sprintf("%d-%d-0", i, j), "mail", Dead))
				}
			})
		}
		senders.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := testutil.ToFloat64(b.metrics.written); got != 400 {
			t.Errorf("%v written, want 400", got)
		}
		if err := b.Start(t.Context()); err == nil {
			t.Error("a second start is allowed")
		}
		b.Record(b.incident("9-9-9", "mail", Delivered))
		if err := errors.Join(b.Stop(), b.Stop()); err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(b.metrics.written); got != 401 {
			t.Errorf("%v written at the end, want 401", got)
		}
	})
}

// TestCrash: records survive a crash some seconds after they were made.
func TestCrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var now atomic.Int64
	clock := func() time.Time { return time.Unix(1893466800+now.Load(), 0) }
	s, err := New(Options{DB: db, Delay: time.Millisecond, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	left := func() int {
		t.Helper()
		after, err := pebble.Open("db", &pebble.Options{FS: fs.CrashClone(vfs.CrashCloneCfg{}), Logger: quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		defer after.Close()
		again, err := New(Options{DB: after, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		events, err := again.Of(disk("web1", 0))
		if err != nil {
			t.Fatal(err)
		}
		return len(events)
	}
	s.Record(&Delivery{
		Header:  delivery.Header{ID: "0-1-0/mail", Namespace: "default", Entity: "web1", Check: "disk", Incident: true},
		Verdict: Delivered,
	})
	for testutil.ToFloat64(s.metrics.written) == 0 {
		runtime.Gosched()
	}
	if n := left(); n != 0 {
		t.Errorf("%d events survive at once: each is synced", n)
	}
	now.Add(3)
	for deadline := time.Now().Add(time.Minute); left() != 1; {
		if time.Now().After(deadline) {
			t.Fatal("the event is not there after the sync")
		}
	}
}

// TestDamage reads a database with corrupt values.
func TestDamage(t *testing.T) {
	b := newBench(t, Options{})
	b.Record(b.incident("0-1-0", "mail", Delivered))
	b.of(0)
	for key, value := range map[string]string{
		"tg": "x", "tg\x00\x00\x00\x09": "nonsense",
		string(pairKey(1, pairName{"default", "web1", "disk"})) + "12345678": "{", "tr\x00\x00\x00\x09default": "",
	} {
		if err := b.db.Set([]byte(key), []byte(value), nil); err != nil {
			t.Fatal(err)
		}
	}
	b.open(Options{})
	if n := len(b.of(0)); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no database is needed")
	}
	b := newBench(t, Options{})
	for _, opts := range []Options{{MaxAge: -1}, {MaxBytes: -1}, {PerCheck: -1}, {Queue: -1}, {Delay: -1}, {SyncDelay: -1}} {
		opts.DB = b.db
		if _, err := New(opts); err == nil {
			t.Errorf("%+v is accepted", opts)
		}
	}
	if _, err := New(Options{DB: b.db, Registerer: prometheus.NewRegistry()}); err != nil {
		t.Error(err)
	}
}

// BenchmarkRecord measures a delivery with two filters: what the worker pays to record it, and the writer to write it.
func BenchmarkRecord(b *testing.B) {
	s := newBench(b, Options{Queue: 1 << 20})
	b.ReportAllocs()
	for i := range b.N {
		d := s.incident(fmt.Sprintf("0-%d-0", i), "mail", Delivered)
		d.Entity = fmt.Sprint("web", i%1000)
		d.Steps = []Step{
			{Kind: StepFilter, Name: "is_incident", Verdict: Pass},
			{
				Kind: StepFilter, Name: "occurrences", Expression: "event.check.occurrences == 3", Verdict: Pass,
				Saw: []Value{{"event.check.occurrences", "3"}},
			},
		}
		d.Attempts = []Attempt{{At: 1, Millis: 12, Result: "ok"}}
		s.Record(d)
		if i%4096 == 4095 {
			s.of(1)
		}
	}
}

// BenchmarkRecordRepeat is the same for a delivery that is denied like the one before it.
func BenchmarkRecordRepeat(b *testing.B) {
	s := newBench(b, Options{Queue: 1 << 20})
	b.ReportAllocs()
	for i := range b.N {
		d := s.incident("0-1-0", "mail", Filtered)
		d.ID = "x"
		d.Steps = []Step{
			{Kind: StepFilter, Name: "is_incident", Verdict: Pass},
			{Kind: StepFilter, Name: "occurrences", Expression: "event.check.occurrences == 3", Verdict: Deny},
		}
		d.ID = fmt.Sprint(i)
		s.Record(d)
		if i%4096 == 4095 {
			s.of(1)
		}
	}
}

// TestNewest: of a check with very many records the newest are read, and the answer says that there are more.
func TestNewest(t *testing.T) {
	b := newBench(t, Options{PerCheck: newestRecords * 2})
	for i := range newestRecords {
		b.tick(time.Second)
		d := b.incident(fmt.Sprintf("0-%04d-0", i), fmt.Sprint("h", i), Delivered)
		d.Attempts = []Attempt{{At: 1, Output: strings.Repeat("x", newestOutput+1)}}
		b.Record(d)
	}
	first, err := b.Newest(disk("web1", 0))
	if err != nil || first.Cut || len(first.Outcomes) != newestRecords || len(first.Outcomes[0].Deliveries[0].Attempts[0].Output) > newestOutput {
		t.Fatalf("%d outcomes, cut %v: %v", len(first.Outcomes), first.Cut, err)
	}
	b.tick(time.Second)
	b.Record(b.incident("0-9999-0", "last", Delivered))
	then, err := b.Newest(disk("web1", 0))
	if err != nil || !then.Cut || len(then.Outcomes) != newestRecords || then.Outcomes[0].Event != "0-9999-0" {
		t.Errorf("with one more: %d outcomes, cut %v: %v", len(then.Outcomes), then.Cut, err)
	}
}

func BenchmarkNewest(b *testing.B) {
	s := newBench(b, Options{})
	for i := range 20 {
		d := s.incident(fmt.Sprintf("0-%04d-0", i), fmt.Sprint("h", i), Delivered)
		d.Attempts = []Attempt{{At: 1, Result: "ok", Output: "sent"}}
		d.Steps = []Step{{Kind: StepFilter, Name: "is_incident", Verdict: Pass}, {Kind: StepFilter, Name: "hours", Verdict: Pass}}
		s.Record(d)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Newest(disk("web1", 0)); err != nil {
			b.Fatal(err)
		}
	}
}
