package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/report/reporttest"
)

// TestReports runs the suite of all sources. Some changes are stored, and some are pending in each of the places where
// they can be.
func TestReports(t *testing.T) {
	reporttest.Suite(t, func(t *testing.T, fixtures []reporttest.Fixture) report.Source {
		b := newBench(t, 2)
		if err := b.state.Stop(); err != nil {
			t.Fatal(err)
		}
		b.open(func(o *Options) { o.HistoryAge = time.Since(time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)) })
		pos := uint64(0)
		for i, f := range fixtures {
			p := b.state.parts[b.log.Partition(f.Namespace, f.Entity)]
			for j, c := range f.Changes {
				var flags byte
				for flag, is := range map[byte]bool{
					changeFlapping: c.Flapping, changeSilenced: c.Silenced, changeMissing: c.Missing, changeDeleted: c.Deleted,
				} {
					if is {
						flags |= flag
					}
				}
				pos++
				key := historyKey(p.id, f.Namespace, f.Entity, f.Check, position(pos, 1))
				value := appendChange(nil, c.Time.UnixMilli(), 0, c.Status, flags, []byte("output"))
				pending := i%3 == 1 || i%3 == 2 && j >= len(f.Changes)/2
				if !pending || j%5 == 0 { // a change may be in both
					if err := b.db.Set(key, value, pebble.NoSync); err != nil {
						t.Fatal(err)
					}
				}
				if !pending {
					continue
				}
				p.mu.Lock()
				ent, _ := p.findEntity(f.Namespace, f.Entity, true)
				slot, _ := p.findPair(ent, f.Check, true)
				switch i % 4 {
				case 0:
					p.dirty.set(position(pos, 1), key, value)
				case 1:
					ref := orphanKey{slot, position(pos, 1)}
					p.dirty.orphans[ref] = append(p.dirty.orphans[ref], keyed{key, value})
				default:
					p.dirty.keepChange(slot, position(pos, 1), value)
				}
				p.mu.Unlock()
			}
		}
		return b.state.Histories()
	})
}

// TestHistoriesFollowTheFold compares the histories with those of single checks, before and after they are stored.
func TestHistoriesFollowTheFold(t *testing.T) {
	b := newBench(t, 2)
	for i := range int64(200) {
		b.put(eventlog.Record{Entity: fmt.Sprint("web", i%7), Check: fmt.Sprint("disk", i%3), Executed: i, Received: 1000 * i,
			Status: uint32(i/5) % 3})
	}
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "web1", Check: "disk1", Received: 200_000})
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "web2", Received: 200_000})
	everything := report.Range{Namespace: "default", Since: time.UnixMilli(0), Until: time.UnixMilli(1 << 40)}
	all := func(string, string, string) bool { return true }
	check := func(when string) {
		t.Helper()
		seen := map[string]bool{}
		for h, err := range b.state.Histories().Changes(t.Context(), everything, all) {
			if err != nil {
				t.Fatal(err)
			}
			name := h.Entity + "/" + h.Check
			if seen[name] {
				t.Errorf("%s: %s comes twice", when, name)
			}
			seen[name] = true
			var got []string
			for _, c := range h.Changes {
				got = append(got, fmt.Sprintf("%d %d %v", c.Time.UnixMilli(), c.Status, c.Deleted))
			}
			var want []string
			for _, c := range slices.Backward(b.history(h.Entity, h.Check)) {
				want = append(want, fmt.Sprintf("%d %d %v", c.Time.UnixMilli(), c.Status, c.Deleted))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s is %q, want %q", when, name, got, want)
			}
		}
		if len(seen) != 21 {
			t.Errorf("%s: %d histories, want 21", when, len(seen))
		}
	}
	check("pending")
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	check("stored")
	b.open(nil)

	// A caller that wants some or no more is not given others.
	n := 0
	for h := range b.state.Histories().Changes(t.Context(), everything, func(_, entity, _ string) bool { return entity == "web3" }) {
		if n++; h.Entity != "web3" {
			t.Errorf("%s was not wanted", h.Entity)
		}
	}
	if n != 3 {
		t.Errorf("%d histories of web3, want 3", n)
	}
	for range b.state.Histories().Changes(t.Context(), everything, all) {
		break
	}
}

// TestHistoriesSkipWhatCannotBeRead has a damaged value and a damaged key among the changes of a check.
func TestHistoriesSkipWhatCannotBeRead(t *testing.T) {
	b := newBench(t, 1)
	for key, value := range map[string][]byte{
		string(historyKey(0, "default", "web1", "disk", 5)):  {99},
		string(historyKey(0, "default", "web1", "disk", 6)):  appendChange(nil, 6000, 6, 2, 0, nil),
		"h\x00default\x00short":                              nil,
		"h\x00default\x00" + strings.Repeat("no names ", 10): nil,
		string(historyKey(0, "default2", "web1", "disk", 7)): appendChange(nil, 7000, 7, 1, 0, nil),
	} {
		if err := b.db.Set([]byte(key), value, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	in := report.Range{Namespace: "default", Since: time.UnixMilli(0), Until: time.UnixMilli(10_000)}
	var got []string
	for h, err := range b.state.Histories().Changes(t.Context(), in, func(string, string, string) bool { return true }) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(h.Entity, h.Check, len(h.Changes), h.Changes[0].Status))
	}
	if want := []string{fmt.Sprint("web1", "disk", 1, 2)}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzHistoryOf(f *testing.F) {
	f.Add(historyKey(1, "default", "web1", "disk", 1<<40))
	f.Add([]byte("h\x00default\x00web1"))
	f.Fuzz(func(t *testing.T, key []byte) {
		group, ok := historyOf(key)
		if !ok {
			return
		}
		namespace, entity, check := namesOf(group)
		pos := binary.BigEndian.Uint64(key[len(group):])
		if again := historyKey(int(key[1]), namespace, entity, check, pos); !bytes.Equal(again[1:], key[1:]) {
			t.Errorf("%q became %q", key, again)
		}
	})
}
