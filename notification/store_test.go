package notification

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func openDB(t testing.TB, fs vfs.FS) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// clock is a time that a test sets.
type clock struct{ now time.Time }

func (c *clock) get() time.Time { return c.now }

type bundle struct {
	*Store
	db    *pebble.DB
	clock *clock
}

// setup returns a store that a test writes by hand, with flush and trim.
func setup(t testing.TB, opts Options) *bundle {
	t.Helper()
	b := &bundle{clock: &clock{time.Unix(1_700_000_000, 0)}}
	if opts.DB == nil {
		opts.DB = openDB(t, vfs.NewMem())
		t.Cleanup(func() { must(t, opts.DB.Close()) })
	}
	opts.Now = b.clock.get
	s, err := New(opts)
	must(t, err)
	b.Store, b.db = s, opts.DB
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes what was recorded, and bounds what is kept.
func (b *bundle) write(t testing.TB) {
	t.Helper()
	b.writeMu.Lock()
	defer b.writeMu.Unlock()
	must(t, b.flush())
	must(t, b.trim())
}

// record records an attempt that is over now.
func (b *bundle) record(entity string, change ...func(*Notification)) {
	n := &Notification{
		At: b.clock.now.UnixMilli() - 5, Millis: 5, Type: "email", Recipients: []string{"ops@example.com"}, Result: "ok", Attempt: 1,
		Final: true, Events: 1,
		Header: delivery.Header{ID: "0-1-0/mail", Namespace: "default", Entity: entity, Check: "disk", Handler: "mail"},
	}
	for _, f := range change {
		f(n)
	}
	b.Record(n)
}

func numbers(list []Notification) (out []uint64) {
	for _, n := range list {
		out = append(out, n.Number)
	}
	return out
}

func (b *bundle) list(t testing.TB, q Query) []uint64 {
	t.Helper()
	page, err := b.List(t.Context(), q)
	must(t, err)
	return numbers(page.Notifications)
}

func TestFilters(t *testing.T) {
	b := setup(t, Options{})
	begin := b.clock.now
	b.record("web1")
	b.clock.now = begin.Add(time.Hour)
	b.record("web2", func(n *Notification) { n.Handler, n.Recipients = "chat", []string{"#Ops", "#dev"} })
	b.record("web3", func(n *Notification) { n.Result, n.Namespace = "timeout", "prod" })
	b.clock.now = begin.Add(2 * time.Hour)
	b.record("group", func(n *Notification) {
		n.Events, n.Merged = 2, []Merged{{Entity: "web1", Check: "cpu"}, {Entity: "web4", Check: "disk"}}
	})
	for _, tc := range []struct {
		name string
		q    Query
		want []uint64
	}{
		{"all", Query{}, []uint64{4, 3, 2, 1}},
		{"limit", Query{Limit: 2}, []uint64{4, 3}},
		{"before", Query{Before: 3}, []uint64{2, 1}},
		{"namespace", Query{Namespace: "prod"}, []uint64{3}},
		{"entity, also of a member", Query{Entity: "web1"}, []uint64{4, 1}},
		{"entity and check of different members", Query{Entity: "web1", Check: "disk"}, []uint64{1}},
		{"handler", Query{Handler: "chat"}, []uint64{2}},
		{"part of a recipient", Query{Recipient: "opS"}, []uint64{4, 3, 2, 1}},
		{"recipient", Query{Recipient: "#dev"}, []uint64{2}},
		{"result", Query{Result: "timeout"}, []uint64{3}},
		{"since", Query{Since: begin.Add(time.Hour)}, []uint64{4, 3, 2}},
		{"until", Query{Until: begin.Add(time.Hour)}, []uint64{3, 2, 1}},
		{"between", Query{Since: begin.Add(time.Minute), Until: begin.Add(time.Hour)}, []uint64{3, 2}},
	} {
		if got := b.list(t, tc.q); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestPages(t *testing.T) {
	b := setup(t, Options{})
	for i := range 10 {
		b.record(fmt.Sprint("web", i%2))
	}
	var got []uint64
	q := Query{Entity: "web1", Limit: 2}
	for calls := 0; ; calls++ {
		page, err := b.List(t.Context(), q)
		must(t, err)
		got = append(got, numbers(page.Notifications)...)
		if q.Before = page.Next; page.Next == 0 || calls > 10 {
			break
		}
	}
	if want := []uint64{10, 8, 6, 4, 2}; !slices.Equal(got, want) {
		t.Errorf("pages have %v, want %v", got, want)
	}
}

// TestRestart: what is kept, and the numbers, go on in the next process, also after all of it was removed for its age.
func TestRestart(t *testing.T) {
	fs := vfs.NewMem()
	db := openDB(t, fs)
	b := setup(t, Options{DB: db})
	b.record("web1", func(n *Notification) { n.Output, n.Final = "said", false })
	b.record("web2")
	must(t, b.Stop())
	must(t, b.Stop())
	must(t, db.Close())

	db = openDB(t, fs)
	b = setup(t, Options{DB: db})
	page, err := b.List(t.Context(), Query{Entity: "web1"})
	must(t, err)
	if n := page.Notifications; len(n) != 1 || n[0].Output != "said" || n[0].Number != 1 || n[0].Final || n[0].Recipients[0] != "ops@example.com" {
		t.Errorf("after a restart: %+v", n)
	}
	if b.Newest() != 2 || b.Oldest() != 1 {
		t.Errorf("numbers %d to %d", b.Oldest(), b.Newest())
	}
	b.clock.now = b.clock.now.Add(200 * 24 * time.Hour)
	b.write(t) // begins a generation
	b.write(t)
	if got := b.list(t, Query{}); len(got) > 0 || b.Oldest() != 3 {
		t.Errorf("after their age: %v, oldest %d", got, b.Oldest())
	}
	must(t, b.Stop())
	must(t, db.Close())

	db = openDB(t, fs)
	defer func() { must(t, db.Close()) }()
	b = setup(t, Options{DB: db})
	b.record("web3")
	if got := b.list(t, Query{}); !slices.Equal(got, []uint64{3}) {
		t.Errorf("numbers begin anew: %v", got)
	}
}

func TestRetention(t *testing.T) {
	b := setup(t, Options{MaxBytes: 64 << 10, MaxAge: 32 * time.Hour})
	stored := func() (bytes int64, records int) {
		it, err := b.db.NewIter(&pebble.IterOptions{LowerBound: recordKey(0), UpperBound: recordKey(1 << 63)})
		must(t, err)
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			bytes += int64(len(it.Key()) + len(it.Value()))
			records++
		}
		return bytes, records
	}
	for range 1000 {
		b.record("web1")
		b.write(t)
	}
	bytes, records := stored()
	if bytes > 66<<10 || bytes < 50<<10 {
		t.Errorf("%d bytes are kept of at most %d", bytes, 64<<10)
	}
	got := b.list(t, Query{})
	if len(got) != records || got[0] != 1000 || got[len(got)-1] != b.Oldest() {
		t.Errorf("%d records are listed of %d, from %d, oldest %d", len(got), records, got[0], b.Oldest())
	}
	b.clock.now = b.clock.now.Add(31 * time.Hour)
	b.record("web2")
	b.write(t)
	if got := b.list(t, Query{Entity: "web1"}); len(got) == 0 {
		t.Error("notifications are gone before their age")
	}
	b.clock.now = b.clock.now.Add(2 * time.Hour)
	b.write(t)
	if got := b.list(t, Query{}); !slices.Equal(got, []uint64{1001}) {
		t.Errorf("kept after 33 of 32 hours: %v", got)
	}
}

// TestQueueIsFull: Record does not wait, and what finds no room is counted.
func TestQueueIsFull(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := setup(t, Options{Queue: 3, Registerer: registry})
	for range 5 {
		b.record("web1")
	}
	if got := b.list(t, Query{}); len(got) != 3 {
		t.Errorf("%v are kept, want 3", got)
	}
	if got := testutil.ToFloat64(b.metrics.dropped); got != 2 {
		t.Errorf("%v dropped, want 2", got)
	}
	if got := testutil.ToFloat64(b.metrics.written); got != 3 {
		t.Errorf("%v written, want 3", got)
	}
}

// TestFollow: a follower gets what is synced, and every number once.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t, vfs.NewMem())
		s, err := New(Options{DB: db})
		must(t, err)
		must(t, s.Start(context.Background()))
		b := &bundle{Store: s, db: db, clock: &clock{time.Now()}}
		for range 5 {
			b.record("web1")
		}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if _, closer, err := db.Get(recordKey(5)); err != nil {
			t.Error("not written after 250 ms: ", err)
		} else {
			closer.Close()
		}
		if list, err := s.After(0, 10); err != nil || len(list) > 0 {
			t.Errorf("before the sync: %v, %v", list, err)
		}
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		var got []uint64
		for {
			last := uint64(0)
			if len(got) > 0 {
				last = got[len(got)-1]
			}
			list, err := s.After(last, 2)
			must(t, err)
			if len(list) == 0 {
				break
			}
			got = append(got, numbers(list)...)
		}
		if !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) || s.Newest() != 5 {
			t.Errorf("followed %v, newest %d", got, s.Newest())
		}
		must(t, s.Stop())
		must(t, db.Close())
	})
}

func TestClamp(t *testing.T) {
	b := setup(t, Options{})
	b.record("web1", func(n *Notification) {
		n.Output, n.Error = strings.Repeat("ä", 300), "\xff"+strings.Repeat("e", 5000)
		n.Recipients, n.Merged = make([]string, 300), make([]Merged, 300)
	})
	page, err := b.List(t.Context(), Query{})
	must(t, err)
	n := page.Notifications[0]
	if len(n.Output) != 256 || len(n.Error) != 1023 || len(n.Recipients) != maxRecipients || len(n.Merged) != MaxMerged {
		t.Errorf("%d bytes of output, %d of the error, %d recipients, %d merged",
			len(n.Output), len(n.Error), len(n.Recipients), len(n.Merged))
	}
}

func TestJoin(t *testing.T) {
	page := func(next uint64, reached int64, ends ...int64) Page {
		p := Page{Next: next, Reached: reached}
		for _, at := range ends {
			p.Notifications = append(p.Notifications, Notification{Number: uint64(at), At: at})
		}
		return p
	}
	for _, tc := range []struct {
		name  string
		limit int
		pages map[string]Page
		want  string
		next  string
	}{
		{"none", 5, map[string]Page{"a": {}}, "[]", "map[a:0]"},
		{"two members", 5, map[string]Page{"a": page(0, 0, 9, 7), "b": page(0, 0, 8)}, "[9 8 7]", "map[a:0 b:0]"},
		{"limit", 2, map[string]Page{"a": page(0, 0, 9, 5), "b": page(6, 7, 8, 7)}, "[9 8]", "map[a:6 b:8]"},
		{"one has looked at less", 5, map[string]Page{"a": page(0, 0, 9, 5), "b": page(6, 7, 8)}, "[9 8]", "map[a:6 b:6]"},
		{"one has found nothing yet", 5, map[string]Page{"a": page(0, 0, 9, 5), "b": page(6, 9)}, "[9]", "map[a:6 b:6]"},
	} {
		list, next := Join(tc.limit, tc.pages)
		if fmt.Sprint(numbers(list)) != tc.want || fmt.Sprint(next) != tc.next {
			t.Errorf("%s: %v %v, want %s %s", tc.name, numbers(list), next, tc.want, tc.next)
		}
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a store without a database")
	}
	if _, err := New(Options{DB: new(pebble.DB), MaxAge: -1}); err == nil {
		t.Error("a store with a negative age")
	}
}

func FuzzGeneration(f *testing.F) {
	g := generation{first: 5, last: 9, began: 1, newest: 2, bytes: 3}
	f.Add(generationKey(5), g.value())
	f.Add([]byte("wg"), []byte{1})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		g, err := decodeGeneration(key, value)
		if err != nil {
			return
		}
		if again, err := decodeGeneration(generationKey(g.first), g.value()); err != nil || again != g {
			t.Errorf("%+v, then %+v: %v", g, again, err)
		}
	})
}
