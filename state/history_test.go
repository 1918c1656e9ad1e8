package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// story returns changes as one line each, oldest first.
func story(changes []StateChange) []string {
	var lines []string
	for _, c := range slices.Backward(changes) {
		line := fmt.Sprintf("%d %d", c.Executed, c.Status)
		for word, is := range map[string]bool{"flapping": c.Flapping, "silenced": c.Silenced, "missing": c.Missing, "deleted": c.Deleted} {
			if is {
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (b *bench) history(entity, check string) []StateChange {
	b.t.Helper()
	changes, next, err := b.state.History("default", entity, check, 0, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	if next != 0 {
		b.t.Errorf("there is more than all: %d", next)
	}
	return changes
}

func TestHistory(t *testing.T) {
	b := newBench(t, 2)
	put := func(executed int64, status uint32, flags eventlog.Flags) {
		b.put(eventlog.Record{Entity: "web1", Check: "disk", Executed: executed, Received: executed * 1000, Status: status, Flags: flags})
	}
	put(1, 0, 0)
	put(2, 0, 0)
	put(3, 2, 0)
	put(4, 2, 0)
	put(5, 2, eventlog.FlagSilenced)
	put(6, 2, eventlog.FlagSilenced)
	put(7, 2, 0)
	b.put(eventlog.Record{Entity: "web1", Check: "disk2", Executed: 7, Status: 1})
	b.put(eventlog.Record{Entity: "web", Check: "disk", Executed: 8, Status: 1})
	put(9, 0, 0)
	want := []string{"1 0", "3 2", "5 2 silenced", "7 2", "9 0"}
	check := func(when string) {
		t.Helper()
		changes := b.history("web1", "disk")
		if got := story(changes); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		if c := changes[0]; !c.Deleted && c.Time.UnixMilli() != c.Executed*1000 || c.Deleted && c.Time.IsZero() ||
			!c.Deleted && c.Output != fmt.Sprint("out ", c.Executed) {
			t.Errorf("%s: newest is %+v", when, c)
		}
	}
	check("in memory")
	restart := func() {
		t.Helper()
		if err := b.state.Stop(); err != nil {
			t.Fatal(err)
		}
		b.open(nil)
	}
	restart()
	check("stored")
	put(10, 1, 0)
	want = append(want, "10 1")
	check("half of each")
	b.crash()
	b.open(nil)
	check("after a crash")

	// In pages.
	var pages []StateChange
	for before := uint64(0); ; {
		changes, next, err := b.state.History("default", "web1", "disk", before, 4)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, changes...)
		if before = next; next == 0 {
			break
		}
	}
	if got := story(pages); !slices.Equal(got, want) {
		t.Errorf("pages: %q, want %q", got, want)
	}

	// A deletion is a change, and earlier changes stay.
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "web1", Check: "disk", Received: 10_000})
	want = append(want, "0 0 deleted")
	check("deleted")
	restart()
	check("deleted and stored")
	put(12, 1, 0)
	want = append(want, "12 1")
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "web1", Received: 12_000})
	want = append(want, "0 0 deleted")
	check("the entity is deleted")
	if got := story(b.history("web", "disk")); !slices.Equal(got, []string{"8 1"}) {
		t.Errorf("another entity's history is %q", got)
	}
	if got := story(b.history("nobody", "disk")); len(got) != 0 {
		t.Errorf("history of nothing: %q", got)
	}
}

// TestHistorySurvivesCrashes compares with a model over crashes and partial write-backs.
func TestHistorySurvivesCrashes(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 2))
			b := newBench(t, 2)
			model := map[string][]string{}
			last := map[string]uint32{}
			for n := int64(1); n <= 200; n++ {
				entity := fmt.Sprint("e", rng.IntN(3))
				switch k := rng.IntN(100); {
				case k < 75:
					status := uint32(rng.IntN(2))
					b.put(eventlog.Record{Entity: entity, Check: "c", Status: status, Executed: n})
					if old, ok := last[entity]; !ok || old != status {
						model[entity] = append(model[entity], fmt.Sprintf("%d %d", n, status))
					}
					last[entity] = status
				case k < 78:
					b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: entity, Check: "c"})
					if _, ok := last[entity]; ok {
						model[entity] = append(model[entity], "deleted")
						delete(last, entity)
					}
				case k < 90:
					if _, err := b.state.parts[rng.IntN(2)].writeSome(nowMilli() - int64(rng.IntN(3))); err != nil {
						t.Fatal(err)
					}
				case k < 96:
					b.crash()
					b.open(nil)
				default:
					if err := b.state.Stop(); err != nil {
						t.Fatal(err)
					}
					b.open(nil)
				}
			}
			b.crash()
			b.open(nil)
			for entity, want := range model {
				got := story(b.history(entity, "c"))
				for i, line := range got {
					if strings.HasSuffix(line, "deleted") {
						got[i] = "deleted"
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", entity, got, want)
				}
			}
		})
	}
}

func TestHistoryIsTrimmed(t *testing.T) {
	b := newBench(t, 1)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(func(o *Options) { o.HistoryLimit = 5 })
	day := func(n int64) int64 { return n * 86400 }
	put := func(entity string, n int64, status uint32) {
		b.put(eventlog.Record{Entity: entity, Check: "c", Executed: n, Received: day(n) * 1000, Status: status})
	}
	for n := range int64(9) {
		put("busy", n, uint32(n%2))
	}
	put("calm", 1, 0)
	put("calm", 2, 1)
	put("calm", 3, 2)
	put("calm", 8, 0)
	put("quiet", 1, 1)
	put("gone", 1, 1)
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "gone", Check: "c", Received: day(2) * 1000})
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(func(o *Options) { o.HistoryLimit = 5 })
	if err := b.state.parts[0].trimHistory(t.Context(), time.Unix(day(5), 0)); err != nil {
		t.Fatal(err)
	}
	for entity, want := range map[string][]string{
		"busy":  {"4 0", "5 1", "6 0", "7 1", "8 0"},
		"calm":  {"3 2", "8 0"}, // the state at the cutoff stays
		"quiet": {"1 1"},
		"gone":  nil,
	} {
		if got := story(b.history(entity, "c")); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", entity, got, want)
		}
	}
}

func TestNoHistory(t *testing.T) {
	b := newBench(t, 1)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(func(o *Options) { o.HistoryAge = 0 })
	b.put(eventlog.Record{Entity: "web1", Check: "disk", Executed: 1, Status: 1})
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "web1", Check: "disk"})
	if got := b.history("web1", "disk"); len(got) != 0 {
		t.Errorf("kept %+v", got)
	}
}

func FuzzDecodeChange(f *testing.F) {
	f.Add(appendChange(nil, 1_700_000_000_000, 1_700_000_000, 2, changeSilenced, []byte("disk is full")))
	f.Add([]byte{changeVersion, 0})
	f.Add([]byte{changeVersion, 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeChange(b)
		if err != nil {
			return
		}
		var flags byte
		for flag, is := range map[byte]bool{
			changeFlapping: c.Flapping, changeSilenced: c.Silenced, changeMissing: c.Missing,
			changeDeleted: c.Deleted,
		} {
			if is {
				flags |= flag
			}
		}
		again, err := decodeChange(appendChange(nil, c.Time.UnixMilli(), c.Executed, c.Status, flags, []byte(c.Output)))
		if err != nil || len(c.Output) <= changeOutput && again != c {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}

func TestChangeCutsBetweenCharacters(t *testing.T) {
	output := strings.Repeat("x", changeOutput-1) + "é and more"
	c, err := decodeChange(appendChange(nil, 0, 0, 0, 0, []byte(output)))
	if err != nil || c.Output != output[:changeOutput-1] {
		t.Errorf("%q, %v", c.Output, err)
	}
}

// TestHistoryOfADeletedPairHoldsTheLogBack: a pair is deleted while dirty. The test crashes between the commit that
// skips the pair and the one that removes it.
func TestHistoryOfADeletedPairHoldsTheLogBack(t *testing.T) {
	b := newBench(t, 1)
	put := func(executed int64, status uint32) {
		b.put(eventlog.Record{Entity: "web1", Check: "disk", Executed: executed, Status: status})
	}
	put(1, 0)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	put(2, 1)
	put(3, 0)
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "web1", Check: "disk"})
	p := b.state.parts[0]
	p.mu.Lock()
	for i := p.dirty.head + 1; i < len(p.dirty.queue); i++ {
		p.dirty.queue[i].since += 1 << 40 // not due
	}
	p.mu.Unlock()
	if n, err := p.writeSome(nowMilli() + 1); n != 1 || err != nil {
		t.Fatalf("wrote %d items, %v", n, err)
	}
	b.crash()
	b.open(nil)
	if got, want := story(b.history("web1", "disk")), []string{"1 0", "2 1", "3 0", "0 0 deleted"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestChangeDuringItsPairsCommit changes a pair while it is being written.
func TestChangeDuringItsPairsCommit(t *testing.T) {
	b := newBench(t, 1)
	put := func(executed int64, status uint32) {
		b.put(eventlog.Record{Entity: "web1", Check: "disk", Executed: executed, Status: status})
	}
	p := b.state.parts[0]
	for _, failure := range []error{nil, errors.New("the disk is full")} {
		base := int64(len(b.history("web1", "disk")))
		put(base+1, 1)
		batch := b.db.NewBatch()
		items, err := p.gather(batch, nowMilli()+1)
		if err != nil || len(items) != 1 {
			t.Fatalf("gathered %d items, %v", len(items), err)
		}
		put(base+2, 0)
		if failure == nil {
			if err := batch.Commit(pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		p.written(items, failure)
		_ = batch.Close()
	}
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	if got, want := story(b.history("web1", "disk")), []string{"1 1", "2 0", "3 1", "4 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := p.dirty.bytes; n != 0 {
		t.Errorf("%d bytes are said to wait after all was written", n)
	}
}
