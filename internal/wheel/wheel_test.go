package wheel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/internal/wheel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner is a plain map of deadlines and a record of the fired ids.
type owner struct {
	*wheel.Wheel
	mu    sync.Mutex
	due   map[uint64]int64
	fired []string // "id@milliseconds since the owner was made", in order
	asked int
	began time.Time
	// after is called for each id that fired, with the lock held. The default disarms it.
	after func(id uint64)
	// racing, if set, runs once, after Due has read the time and before the wheel gets it.
	racing func()
}

func newOwner(t *testing.T, edit func(*owner, *wheel.Options)) *owner {
	t.Helper()
	o := &owner{due: map[uint64]int64{}, began: time.Now()}
	o.after = func(id uint64) { delete(o.due, id) }
	opts := wheel.Options{
		Due: func(id uint64) (int64, bool) {
			o.mu.Lock()
			o.asked++
			due, armed := o.due[id]
			racing := o.racing
			o.racing = nil
			o.mu.Unlock()
			if racing != nil {
				racing()
			}
			return due, armed
		},
		Fire: func(id uint64) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.fired = append(o.fired, fmt.Sprintf("%d@%d", id, time.Since(o.began).Milliseconds()))
			o.after(id)
		},
	}
	if edit != nil {
		edit(o, &opts)
	}
	w, err := wheel.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	o.Wheel = w
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

// set gives an id a deadline in milliseconds after the owner's begin, and calls Arm if arm is set.
func (o *owner) set(id uint64, ms int64, arm bool) {
	due := o.began.UnixMilli() + ms
	o.mu.Lock()
	o.due[id] = due
	o.mu.Unlock()
	if arm {
		o.Arm(id, due)
	}
}

func (o *owner) disarm(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.due, id)
}

func (o *owner) want(t *testing.T, fired ...string) {
	t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.fired, fired) {
		t.Errorf("fired %v, want %v", o.fired, fired)
	}
}

func until(o *owner, ms int64) {
	time.Sleep(time.Until(o.began.Add(time.Duration(ms) * time.Millisecond))) // the bubble's time
}

func TestFires(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, o *owner)
	}{
		{"at the first tick not before the due time", func(t *testing.T, o *owner) {
			o.set(1, 1000, true)
			o.set(2, 1001, true)
			o.set(3, 1250, true)
			until(o, 999)
			o.want(t)
			until(o, 2000)
			o.want(t, "1@1000", "2@1250", "3@1250")
		}},
		{"past due times at the next tick", func(t *testing.T, o *owner) {
			until(o, 600)
			o.set(1, 100, true)
			o.set(2, -1e15, true)
			until(o, 800)
			o.want(t, "1@750", "2@750")
		}},
		{"later when it was put off without a word", func(t *testing.T, o *owner) {
			o.set(1, 1000, true)
			for ms := int64(500); ms < 5000; ms += 500 {
				until(o, ms)
				o.set(1, ms+1000, false)
			}
			until(o, 9000)
			o.want(t, "1@5500")
			if o.asked > 11 {
				t.Errorf("asked %d times, want about once a second", o.asked)
			}
		}},
		{"not when called off", func(t *testing.T, o *owner) {
			o.set(1, 1000, true)
			o.disarm(1)
			until(o, 5000)
			o.want(t)
			if n := o.Len(); n != 0 {
				t.Errorf("%d ids left in the wheel", n)
			}
		}},
		{"once when moved earlier", func(t *testing.T, o *owner) {
			o.set(1, 4000, true)
			o.set(1, 2000, true)
			o.set(1, 1000, true)
			until(o, 9000)
			o.want(t, "1@1000")
		}},
		{"once when called off and armed again", func(t *testing.T, o *owner) {
			o.set(1, 1000, true)
			o.disarm(1)
			o.set(1, 3000, true)
			until(o, 9000)
			o.want(t, "1@3000")
		}},
		{"again for the next deadline", func(t *testing.T, o *owner) {
			o.after = func(id uint64) {
				o.due[id] += 1500
				o.Arm(id, o.due[id])
			}
			o.set(1, 2000, true)
			o.set(1, 1000, true) // leaves an entry at 2000
			until(o, 4100)
			o.want(t, "1@1000", "1@2500", "1@4000")
			if o.asked != 6 {
				t.Errorf("asked %d times, want twice for each: the entry at 2000 counts no more", o.asked)
			}
		}},
		{"in time when armed while it is asked for", func(t *testing.T, o *owner) {
			o.set(1, 1000, true)
			o.set(1, 5000, false)
			o.mu.Lock()
			o.racing = func() { o.set(1, 3000, true) }
			o.mu.Unlock()
			until(o, 9000)
			o.want(t, "1@3000")
		}},
		{"again when the deadline moved while it fired", func(t *testing.T, o *owner) {
			o.after = func(id uint64) {
				if len(o.fired) == 1 {
					o.due[id] += 2000 // without Arm
				} else {
					delete(o.due, id)
				}
			}
			o.set(1, 1000, true)
			until(o, 9000)
			o.want(t, "1@1000", "1@3000")
		}},
		{"once though the owner is slow to see it", func(t *testing.T, o *owner) {
			o.after = func(uint64) {} // Due still returns the old time
			o.set(1, 2000, true)
			o.set(1, 1000, true)
			until(o, 3000)
			o.want(t, "1@1000")
			o.set(1, 4000, true)
			until(o, 9000)
			o.want(t, "1@1000", "1@4000")
		}},
		{"far beyond the wheel", func(t *testing.T, o *owner) {
			hour := int64(3600 * 1000)
			o.set(1, 3*hour, true)
			o.set(2, math.MaxInt64-time.Now().UnixMilli(), true)
			until(o, 3*hour+1000)
			o.want(t, fmt.Sprintf("1@%d", 3*hour))
			if n := o.Len(); n != 1 {
				t.Errorf("%d ids in the wheel, want the one due never", n)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOwner(t, nil)
				defer o.Stop()
				tc.run(t, o)
			})
		})
	}
}

func TestClockSteps(t *testing.T) {
	// wall is the clock with a step that the test changes; set's times are on it.
	start := func(t *testing.T) (o *owner, step *atomic.Int64) {
		step = new(atomic.Int64)
		o = newOwner(t, func(_ *owner, opts *wheel.Options) {
			opts.Now = func() time.Time { return time.Now().Add(time.Duration(step.Load()) * time.Millisecond) }
		})
		return o, step
	}
	t.Run("forward fires what is due then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, step := start(t)
			defer o.Stop()
			day := int64(24 * 3600 * 1000) // longer than the wheel
			o.set(1, 10_000, true)
			o.set(2, day+2000, true)
			o.set(3, 900_000, true)
			o.set(3, 2*day, false)
			o.set(5, 900_000, true)
			until(o, 1100)
			step.Store(day)
			until(o, 1300)
			o.want(t, "1@1250", "5@1250")
			until(o, 3000)
			o.want(t, "1@1250", "5@1250", "2@2000")
			o.set(4, day+4000, true)
			until(o, 5000)
			o.want(t, "1@1250", "5@1250", "2@2000", "4@4000")
			until(o, day+1000)
			o.want(t, "1@1250", "5@1250", "2@2000", "4@4000", fmt.Sprintf("3@%d", day))
		})
	})
	t.Run("back fires neither early nor late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, step := start(t)
			defer o.Stop()
			o.set(1, 5000, true)
			until(o, 2100)
			step.Store(-60_000)
			until(o, 3000)
			o.set(2, -60_000+4000, true) // one second from now, by the present clock
			until(o, 64_500)
			o.want(t, "2@4000")
			until(o, 66_000)
			o.want(t, "2@4000", "1@65000")
		})
	})
}

// TestModel compares the wheel with its promise, over random deadlines: each fires once, never early, at most a tick
// late, and nothing else fires.
func TestModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const tick = 100
			rng := rand.New(rand.NewPCG(seed, 1))
			type firing struct {
				id          uint64
				due, by, at int64 // by: the latest moment to fire at, a tick apart
			}
			var (
				mu    sync.Mutex
				due   = map[uint64]int64{} // the owner's deadlines
				got   []firing
				known = map[uint64]int64{} // due times that the wheel learnt so late that they may fire late too
				w     *wheel.Wheel
				now   = func() int64 { return time.Now().UnixMilli() }
			)
			var err error
			w, err = wheel.New(wheel.Options{
				Tick: tick * time.Millisecond,
				Due: func(id uint64) (int64, bool) {
					mu.Lock()
					defer mu.Unlock()
					d, ok := due[id]
					return d, ok
				},
				Fire: func(id uint64) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, firing{id, due[id], max(due[id], known[id]), now()})
					delete(due, id)
					delete(known, id)
					if rng.IntN(3) == 0 {
						due[id] = now() + 1 + rng.Int64N(3000)
						w.Arm(id, due[id])
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			check := func() {
				t.Helper()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				for _, f := range got {
					if f.due == 0 || f.at < f.due || f.at > f.by+tick {
						t.Fatalf("seed %d: id %d due %d fired at %d", seed, f.id, f.due, f.at)
					}
				}
				got = got[:0]
				for id, d := range due {
					if now() > max(d, known[id])+tick {
						t.Fatalf("seed %d: id %d due %d has not fired at %d", seed, id, d, now())
					}
				}
			}
			for range 5000 {
				mu.Lock()
				id := rng.Uint64N(40)
				if rng.IntN(4) == 0 {
					id += 1 << 40 // another partition
				}
				old, armed := due[id]
				switch op := rng.IntN(10); {
				case !armed || op < 2:
					// Armed, or moved to any time: Arm is called unless it is later.
					d := now() - 200 + rng.Int64N(4000)
					if rng.IntN(20) == 0 {
						d += 4096 * tick // beyond the wheel
					}
					due[id] = d
					if d < now() {
						known[id] = now()
					}
					if !armed || d < old {
						w.Arm(id, d)
					}
				case op < 8:
					due[id] = max(old, now()+rng.Int64N(2000))
				default:
					delete(due, id)
					delete(known, id)
				}
				pause := time.Duration(rng.Int64N(30)) * time.Millisecond
				mu.Unlock()
				time.Sleep(pause)
				check()
			}
			time.Sleep(4200 * tick * time.Millisecond)
			check()
			mu.Lock()
			if len(due) != 0 {
				t.Errorf("seed %d: %d deadlines left", seed, len(due))
			}
			mu.Unlock()
		})
	}
}

// TestConcurrent arms from many goroutines while the wheel turns in real time; each id must fire once per deadline.
func TestConcurrent(t *testing.T) {
	const goroutines, each, rounds = 8, 500, 5
	var (
		due  [goroutines * each]atomic.Int64 // 0 is not armed
		left atomic.Int64
		over = make(chan struct{})
		w    *wheel.Wheel
	)
	left.Store(goroutines * each * rounds)
	var count [goroutines * each]atomic.Int64
	w, err := wheel.New(wheel.Options{
		Tick: time.Millisecond,
		Due:  func(id uint64) (int64, bool) { d := due[id].Load(); return d, d != 0 },
		Fire: func(id uint64) {
			if d := due[id].Swap(0); d == 0 || d > time.Now().UnixMilli() {
				t.Errorf("id %d fired at %d, due %d", id, time.Now().UnixMilli(), d)
			}
			if n := count[id].Add(1); n < rounds {
				d := time.Now().UnixMilli() + int64(id%20)
				due[id].Store(d)
				w.Arm(id, d)
			}
			if left.Add(-1) == 0 {
				close(over)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				id := uint64(i*goroutines + g)
				d := time.Now().UnixMilli() + 50
				due[id].Store(d)
				w.Arm(id, d)
				if due[id].CompareAndSwap(d, d-40) { // earlier, unless it fired already
					w.Arm(id, d-40)
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatalf("%d deadlines have not fired", left.Load())
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	for id := range count {
		if n := count[id].Load(); n != rounds {
			t.Errorf("id %d fired %d times, want %d", id, n, rounds)
		}
	}
}

func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100_000
		fired := make([]uint8, n)
		due := time.Now().UnixMilli() + 1000
		w, err := wheel.New(wheel.Options{
			Due:  func(id uint64) (int64, bool) { return due, fired[id] == 0 },
			Fire: func(id uint64) { fired[id]++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint64(n) {
			w.Arm(id, due)
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for id, times := range fired {
			if times != 1 {
				t.Fatalf("id %d fired %d times", id, times)
			}
		}
		if err := w.Stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestStopInABurst stops the wheel from another goroutine while it fires: the rest stays unfired and Stop waits.
func TestStopInABurst(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	var fired atomic.Int64
	w, err := wheel.New(wheel.Options{
		Tick: time.Millisecond,
		Due:  func(uint64) (int64, bool) { return 1, true },
		Fire: func(uint64) {
			if fired.Add(1) == 1 {
				close(reached)
				<-release
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	for id := range uint64(n) {
		w.Arm(id, 1)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-reached
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _ = w.Stop() })
	}
	go func() { wg.Wait(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("Stop returned while Fire ran")
	case <-time.After(10 * time.Millisecond):
	}
	close(release)
	<-stopped
	if f := fired.Load(); f == n {
		t.Error("Stop waited for the whole burst")
	}
}

func TestLifecycle(t *testing.T) {
	due := func(uint64) (int64, bool) { return 0, false }
	fire := func(uint64) {}
	for _, opts := range []wheel.Options{
		{}, {Due: due}, {Fire: fire},
		{Due: due, Fire: fire, Tick: -time.Second},
		{Due: due, Fire: fire, Tick: 1500 * time.Microsecond},
	} {
		if _, err := wheel.New(opts); err == nil {
			t.Errorf("options %+v were accepted", opts)
		}
	}
	w, err := wheel.New(wheel.Options{Due: due, Fire: fire})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(); err != nil {
		t.Errorf("stop before start: %v", err)
	}
	if err := w.Start(t.Context()); err == nil {
		t.Error("start after stop succeeded")
	}
	if w, err = wheel.New(wheel.Options{Due: due, Fire: fire}); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err == nil {
		t.Error("second start succeeded")
	}
	for range 2 {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(t, nil)
		defer o.Stop()
		o.set(1, 1000, true)
		o.set(2, 5000, true)
		o.set(2, 1000, true)
		o.set(3, 2000, true)
		if v := o.Len(); v != 3 {
			t.Errorf("armed %v, want 3", v)
		}
		until(o, 1100)
		synctest.Wait()
		if a, f := o.Len(), o.Fired(); a != 1 || f != 2 {
			t.Errorf("armed %v fired %v, want 1 and 2", a, f)
		}
	})
}

func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(t, func(_ *owner, opts *wheel.Options) {
			fire := opts.Fire
			opts.Fire = func(id uint64) { time.Sleep(3 * time.Second); fire(id) }
		})
		defer o.Stop()
		late := func() float64 { return o.Late().Seconds() }
		o.set(1, 1000, true)
		until(o, 900)
		synctest.Wait()
		if v := late(); v != 0 {
			t.Errorf("%v s late with nothing to do", v)
		}
		until(o, 3000) // in the middle of Fire
		if v := late(); v < 1.7 || v > 2 {
			t.Errorf("%v s late, want nearly 2", v)
		}
		until(o, 4500)
		synctest.Wait()
		if v := late(); v != 0 {
			t.Errorf("%v s late after all was handled", v)
		}
	})
}

// TestMemory limits the wheel to 16 bytes an id, with ids and due times like a fleet's.
func TestMemory(t *testing.T) {
	const n = 1_000_000
	w, err := wheel.New(wheel.Options{
		Due:  func(uint64) (int64, bool) { return 0, false },
		Fire: func(uint64) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, now := heap(), time.Now().UnixMilli()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(n) {
		w.Arm(i%4<<32|i/4, now+rng.Int64N(120_000)) // four partitions, deadlines in the next two minutes
	}
	perID := float64(heap()-before) / n
	runtime.KeepAlive(w)
	t.Logf("%.1f bytes an id", perID)
	if perID > 16 {
		t.Errorf("%.1f bytes an id, want at most 16", perID)
	}
}
