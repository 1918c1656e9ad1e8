package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

func TestCursor(t *testing.T) {
	b := newBench(t, 3)
	put := func(entity string, n int64) { b.put(eventlog.Record{Entity: entity, Check: "c", Executed: n}) }
	since := func(c Cursor, namespace string) string {
		t.Helper()
		c, err := ParseCursor(c.String())
		if err != nil {
			t.Fatal(err)
		}
		changed, ok := b.state.ChangedSince(namespace, c)
		if !ok {
			return "unknown"
		}
		var names []string
		for _, u := range changed {
			name := u.Entity
			if u.Deleted {
				name = "-" + name
			}
			names = append(names, name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	expect := func(c Cursor, want string) {
		t.Helper()
		if got := since(c, ""); got != want {
			t.Errorf("since %s: %q, want %q", c, got, want)
		}
	}
	begin := b.state.Cursor()
	for i := range 6 {
		put(fmt.Sprint("e", i), 1)
	}
	six := b.state.Cursor()
	expect(begin, "e0 e1 e2 e3 e4 e5")
	expect(six, "")
	put("e1", 2)
	put("e1", 3)
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "e2", Check: "c"})
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "e3"})
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "e4", Check: "c"})
	put("e4", 4)
	expect(six, "-e2 -e3 e1 e4")
	now := b.state.Cursor()
	expect(now, "")
	if got := since(six, "elsewhere"); got != "" {
		t.Errorf("in another namespace: %q", got)
	}

	// Changes survive a restart; deletions only if the log replays them.
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	expect(now, "")
	expect(six, "unknown")
	put("e5", 5)
	expect(now, "e5")

	for what, c := range map[string]Cursor{
		"too few": now[1:], "too many": append(slices.Clone(now), 1), "ahead": {1 << 30, 1 << 30, 1 << 30},
	} {
		if got := since(c, ""); got != "unknown" {
			t.Errorf("%s: %q", what, got)
		}
	}
}

func TestDeletionsAreBounded(t *testing.T) {
	var d deletions
	for seq := range uint64(5 * maxDeletions) {
		d.add(seq, Update{})
		if len(d.list) > 2*maxDeletions || d.list[0].seq != 0 && d.floor != d.list[0].seq-1 {
			t.Fatalf("at %d: %d deletions from %d on, floor %d", seq, len(d.list), d.list[0].seq, d.floor)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("0")
	f.Add("1z.0.abc")
	f.Add("..")
	f.Add("zzzzzzzzzzzzzz")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err != nil {
			return
		}
		again, err := ParseCursor(c.String())
		if err != nil || !slices.Equal(again, c) {
			t.Errorf("%q became %v, then %v %v", s, c, again, err)
		}
	})
}
