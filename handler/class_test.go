package handler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// of returns a delivery of a class.
func of(c delivery.Class, seq int, entity string) *delivery.Delivery {
	dl := incident("a", seq, entity)
	dl.Incident, dl.Status = c <= delivery.Failing, 2
	if dl.Repeats = c != delivery.Change; c >= delivery.Unchanged {
		dl.Status = 0
	}
	if c == delivery.MetricsOnly {
		ev := event(entity, "")
		dl.Check, ev.Check, ev.Metrics = "", nil, &resource.Metrics{}
		dl.Event = ev.AppendProto(nil)
	}
	return dl
}

// steps lets one attempt after the other end, and records the entity of each.
type steps struct {
	order []string
	goOn  chan struct{}
}

func (b *bundle) steps() *steps {
	s := &steps{goOn: make(chan struct{})}
	b.send = func(ctx context.Context, _ *resource.Handler, dl *delivery.Delivery, _ send.Job) send.Result {
		select {
		case <-s.goOn:
			s.order = append(s.order, dl.Entity)
			return send.Result{}
		case <-ctx.Done():
			return send.Result{Err: ctx.Err()}
		}
	}
	return s
}

func (s *steps) run(n int) []string {
	s.order = nil
	for range n {
		s.goOn <- struct{}{}
		synctest.Wait()
	}
	return s.order
}

func TestClass(t *testing.T) {
	for c := range delivery.Class(delivery.Classes) {
		dl := of(c, 1, "e")
		dl.Hops = maxHops
		if dl.Class() != c {
			t.Errorf("%v has the class %v", c, dl.Class())
		}
		got, err := decodeDelivery(resource.Name{Namespace: "default", Name: "a"}, 0, position{1, 1}, appendDelivery(nil, dl))
		if err != nil || got.Class() != c || got.Hops != maxHops {
			t.Errorf("%v was stored and is now %v, with %d hops: %v", c, got.Class(), got.Hops, err)
		}
	}
}

// TestIncidentOvertakes: an incident goes out within the next turns although 10,000 deliveries with metrics only wait,
// most of them on disk.
func TestIncidentOvertakes(t *testing.T) {
	for name, opts := range map[string]Options{
		"in memory": {Workers: 1, QueueSize: 20_000},
		"on disk":   {Workers: 1, QueueSize: 100},
	} {
		t.Run(name, func(t *testing.T) {
			fakeTime(t, func(t *testing.T, db *pebble.DB) {
				opts.DB = db
				b := setup(t, opts, pipe("a", "true"))
				s := b.steps()
				b.start(t)
				const n = 10_000
				for i := range n {
					b.Dispatch(of(delivery.MetricsOnly, i+1, fmt.Sprint("m", i)))
				}
				b.Dispatch(of(delivery.Change, n+1, "incident"))
				synctest.Wait()
				if got := s.run(2); !slices.Equal(got, []string{"m0", "incident"}) {
					t.Errorf("first turns: %q", got)
				}
				close(s.goOn)
				b.finished.wait(n + 1)
			})
		})
	}
}

// TestPairIsPromoted: a state change takes the earlier deliveries of its pair with it, in their order, even from disk.
func TestPairIsPromoted(t *testing.T) {
	for name, size := range map[string]int{"in memory": 1000, "on disk": 2} {
		t.Run(name, func(t *testing.T) {
			fakeTime(t, func(t *testing.T, db *pebble.DB) {
				b := setup(t, Options{DB: db, Workers: 1, QueueSize: size}, pipe("a", "true"))
				s := b.steps()
				b.start(t)
				seq := 0
				put := func(c delivery.Class, entity string) {
					seq++
					b.Dispatch(of(c, seq, entity))
				}
				for i := range 50 {
					put(delivery.Unchanged, fmt.Sprint("other", i))
				}
				put(delivery.Unchanged, "host")
				put(delivery.Unchanged, "host")
				put(delivery.Change, "host")
				put(delivery.Failing, "host")
				synctest.Wait()
				turns := s.run(8) // at most the first ones, and a turn of the lower classes, come before
				host := 0
				for _, entity := range turns {
					if entity == "host" {
						host++
					}
				}
				if host < 3 {
					t.Errorf("first turns: %q", turns)
				}
				close(s.goOn)
				var order []uint64
				for _, dl := range b.finished.wait(seq) {
					if dl.Entity == "host" {
						order = append(order, dl.Seq)
					}
				}
				if !slices.Equal(order, []uint64{51, 52, 53, 54}) {
					t.Errorf("order of the pair: %v", order)
				}
			})
		})
	}
}

// TestPromotedPairIsBounded: deliveries that are read with a state change of their pair count as state changes, so they
// do not fill the memory.
func TestPromotedPairIsBounded(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		const size, n = 10, 200
		b := setup(t, Options{DB: db, Workers: 1, QueueSize: size}, pipe("a", "true"))
		s := b.steps()
		for i := range n {
			b.Dispatch(of(delivery.Unchanged, i+1, "host"))
		}
		b.Dispatch(of(delivery.Change, n+1, "host"))
		b.start(t)
		synctest.Wait()
		s.run(size)
		if depth := b.metric(t, "lapwing_handler_queue_depth"); depth > 2*size {
			t.Errorf("%v deliveries are in memory, want at most %d", depth, 2*size)
		}
		close(s.goOn)
		b.finished.wait(n + 1)
	})
}

// TestNoClassStarves: each class has its share of turns although higher ones always have something.
func TestNoClassStarves(t *testing.T) {
	for name, size := range map[string]int{"in memory": 10_000, "on disk": 40} {
		t.Run(name, func(t *testing.T) {
			fakeTime(t, func(t *testing.T, db *pebble.DB) {
				b := setup(t, Options{DB: db, Workers: 1, QueueSize: size}, pipe("a", "true"))
				s := b.steps()
				seq := 0
				for i := range 300 {
					for c := range delivery.Class(delivery.Classes) {
						seq++
						b.Dispatch(of(c, seq, fmt.Sprint(c, i)))
					}
				}
				b.start(t)
				synctest.Wait()
				const turns = 240
				counts := map[byte]int{}
				for _, entity := range s.run(turns) {
					counts[entity[0]]++
				}
				for c := range delivery.Class(delivery.Classes) {
					least := turns/shareEvery/(delivery.Classes-1) - 2
					if c == delivery.Change {
						least = turns * 3 / 4
					}
					if n := counts[c.String()[0]]; n < least {
						t.Errorf("%v had %d turns, want at least %d", c, n, least)
					}
				}
				close(s.goOn)
				b.finished.wait(seq)
			})
		})
	}
}

// TestShed: at the bounds of the disk, deliveries are shed by class, and counted; state changes never.
func TestShed(t *testing.T) {
	b := setup(t, Options{QueueSize: 1, QueueDisk: 100}, pipe("a", "true"))
	seq, shed := 0, map[delivery.Class]float64{}
	put := func(c delivery.Class, n int) {
		for range n {
			seq++
			b.Dispatch(of(c, seq, fmt.Sprint("e", seq)))
		}
	}
	check := func(c delivery.Class, want float64) {
		t.Helper()
		shed[c] = want
		for c := range delivery.Class(delivery.Classes) {
			if got := b.metric(t, "lapwing_handler_shed_total", c.String()); got != shed[c] {
				t.Errorf("after %d deliveries %v of %v are shed, want %v", seq, got, c, shed[c])
			}
		}
	}
	put(delivery.Change, 1)       // in memory
	put(delivery.MetricsOnly, 61) // one of them in memory
	check(delivery.MetricsOnly, 10)
	put(delivery.Unchanged, 30)
	check(delivery.Unchanged, 5)
	put(delivery.Failing, 30)
	check(delivery.Failing, 5)
	put(delivery.Change, 30)
	check(delivery.Change, 0)
	if n := b.metric(t, "lapwing_handler_queue_spilled"); n != 130 {
		t.Errorf("%v are on disk, want 130", n)
	}
	if w, want := b.waitingFor(t, "a", 1), (delivery.ClassCounts{Total: 20, Failing: 5, Unchanged: 5, Metrics: 10}); w.Shed != want {
		t.Errorf("%+v are told as shed, want %+v", w.Shed, want)
	}
	failing := 0
	for _, dl := range b.finished.wait(20) {
		if b.result(dl.ID) != trace.Dropped {
			t.Errorf("%s ended as %v", dl.ID, b.result(dl.ID))
		}
		if dl.Class() == delivery.Failing {
			failing++
		}
	}
	if failing != 5 {
		t.Errorf("%d failing ones were shed, want 5", failing)
	}
	b.start(t)
	b.finished.wait(seq) // nothing else is lost
	b.flush(t, 0)
	eventually(t, "the handler is listed with what was shed alone", func() bool {
		w := b.waitingFor(t, "a", 1)
		return w.Memory.Total+w.Disk.Total+w.Running == 0 && w.Shed.Total == 20
	})
	if keys := stored(t, b.db); len(keys) != 0 {
		t.Errorf("still stored: %d", len(keys))
	}
	b.handlers.delete("default", "a")
	if w := b.waitingFor(t, "a", 1); w.Shed.Total != 0 {
		t.Errorf("the handler is deleted and still listed: %+v", w)
	}
}

// TestClassesOutlastTheOwner: the next process, and the next owner of a partition, read the same classes from disk.
func TestClassesOutlastTheOwner(t *testing.T) {
	for name, again := range map[string]bool{"restart": false, "takeover": true} {
		t.Run(name, func(t *testing.T) {
			fakeTime(t, func(t *testing.T, db *pebble.DB) {
				opts := Options{DB: db, Workers: 1, QueueSize: 4, StopTimeout: 1}
				b := setup(t, opts, pipe("a", "true"))
				const n = 100
				for i := range n {
					b.Dispatch(of(delivery.MetricsOnly, i+1, fmt.Sprint("m", i)))
				}
				b.Dispatch(of(delivery.Unchanged, n+1, "host"))
				b.Dispatch(of(delivery.Change, n+2, "host"))
				b.Dispatch(of(delivery.Failing, n+3, "failing"))
				b.flush(t, 0)
				var s *steps
				if again {
					s = b.steps()
					b.Disown(0)
					if err := b.Own(0, 0); err != nil {
						t.Fatal(err)
					}
				} else {
					if err := b.Stop(); err != nil {
						t.Fatal(err)
					}
					b = setup(t, opts, pipe("a", "true"))
					s = b.steps()
				}
				b.start(t)
				synctest.Wait()
				if got := s.run(3); !slices.Equal(got, []string{"host", "host", "failing"}) {
					t.Errorf("first turns: %q", got)
				}
				close(s.goOn)
				b.finished.wait(n + 3)
			})
		})
	}
}
