package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
)

// readAll reads all pages.
func (b *bed) readAll(q EventQuery) (all []StoredEvent, pages int) {
	b.t.Helper()
	r, err := b.writer.Events(b.t.Context(), q)
	check(b.t, err)
	defer func() { check(b.t, r.Close()) }()
	for more := true; more; {
		var page []StoredEvent
		page, more, err = r.Next(b.t.Context())
		check(b.t, err)
		if len(page) > eventPage {
			b.t.Errorf("a page has %d events", len(page))
		}
		if len(page) > 0 && r.ReadUpTo().Before(page[len(page)-1].Received) {
			b.t.Errorf("read up to %v, and returned one of %v", r.ReadUpTo(), page[len(page)-1].Received)
		}
		all = append(all, page...)
		pages++
	}
	return all, pages
}

// TestRealEventsInPages reads events of which many were received in the same millisecond, and some hours later.
func TestRealEventsInPages(t *testing.T) {
	b := newBed(t)
	b.start(testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN(), nil)
	begin := time.Now().Add(-40 * time.Hour).Truncate(time.Millisecond)
	n := 0
	put := func(after time.Duration, count int, change ...func(i int) (entity, check string, status uint32)) {
		for i := range count {
			entity, name, status := fmt.Sprint("web", i%5), "c", uint32(0)
			for _, f := range change {
				entity, name, status = f(i)
			}
			r := event(entity, name, status, int64(n), fmt.Sprint(n))
			r.Received = begin.Add(after).UnixMilli()
			b.put(r)
			n++
		}
	}
	put(0, 5*eventPage/2)
	put(time.Second, 10)
	put(30*time.Hour, 3)
	put(31*time.Hour, 4, func(i int) (string, string, uint32) { return "db", "disk", []uint32{2, 2, 0, 0}[i] })
	b.settled()
	all, pages := b.readAll(EventQuery{Namespace: "default", Since: begin, Until: time.Now()})
	if len(all) != n || pages < 4 || pages > 100 {
		t.Fatalf("%d of %d events in %d pages", len(all), n, pages)
	}
	ids := map[string]bool{}
	for i := range all {
		ids[all[i].ID()] = true
		if i > 0 && all[i].Received.Before(all[i-1].Received) {
			t.Errorf("event %d comes before an older one", i)
		}
	}
	if len(ids) != n {
		t.Errorf("%d different events of %d", len(ids), n)
	}
	for _, tc := range []struct {
		name string
		q    EventQuery
		want int
	}{
		{"entity", EventQuery{Entity: "web1"}, eventPage/2 + 2 + 1},
		{"entity and check", EventQuery{Entity: "db", Check: "disk"}, 4},
		{"check of another entity", EventQuery{Entity: "db", Check: "c"}, 0},
		{"another namespace", EventQuery{Namespace: "other"}, 0},
		{"since is in it", EventQuery{Since: begin.Add(time.Second)}, 17},
		{"until is not", EventQuery{Until: begin.Add(time.Second)}, 5 * eventPage / 2},
		{"nothing there", EventQuery{Since: begin.Add(2 * time.Second), Until: begin.Add(29 * time.Hour)}, 0},
	} {
		if tc.q.Namespace == "" {
			tc.q.Namespace = "default"
		}
		if tc.q.Since.IsZero() {
			tc.q.Since = begin
		}
		if tc.q.Until.IsZero() {
			tc.q.Until = time.Now()
		}
		if got, _ := b.readAll(tc.q); len(got) != tc.want {
			t.Errorf("%s: %d events, want %d", tc.name, len(got), tc.want)
		}
	}
	turns, _ := b.readAll(EventQuery{Namespace: "default", Entity: "db", Since: begin, Until: time.Now()})
	var got []string
	for _, e := range turns {
		ev, err := b.state.Rebuild("default", e.Entity, e.Body)
		check(t, err)
		got = append(got, fmt.Sprint(e.Status, " ", e.Occurrences, " ", e.Incident, e.Resolution, e.Metric, " ", ev.Entity.Metadata.Name, " ", ev.Check.Status))
	}
	want(t, "numbers", strings.Join(got, "\n"), `2 1 true false false db 2
2 2 true false false db 2
0 1 false true false db 0
0 2 false false false db 0`)
}

// TestRealEventsOfManyBytes: a page ends early if its events are large.
func TestRealEventsOfManyBytes(t *testing.T) {
	b := newBed(t)
	b.start(testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN(), nil)
	begin := time.Now()
	for i := range 9 {
		b.put(event("web1", "c", 0, int64(i), strings.Repeat("x", eventPageBytes/4)))
	}
	b.settled()
	all, pages := b.readAll(EventQuery{Namespace: "default", Since: begin.Add(-time.Minute), Until: time.Now().Add(time.Minute)})
	if len(all) != 9 || pages < 3 {
		t.Errorf("%d events in %d pages, want 9 in 3 or more", len(all), pages)
	}
	if !slices.IsSortedFunc(all, func(x, y StoredEvent) int { return x.Received.Compare(y.Received) }) {
		t.Error("they are not in order")
	}
}

func TestEventsWithoutPostgres(t *testing.T) {
	b := newBed(t)
	b.start("", func(*journal.Options, *Options, *Settings) {})
	if _, err := b.writer.Events(t.Context(), EventQuery{}); !errors.Is(err, ErrNotConfigured) {
		t.Error(err)
	}
}
