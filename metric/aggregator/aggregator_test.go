package aggregator

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

func TestMain(m *testing.M) {
	// The clock of the backtracking engine ends a second after the last match.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// bundle is an aggregator whose results are kept as texts: seconds after the begin, name, start and value.
type bundle struct {
	*Aggregator
	t     *testing.T
	begin time.Time

	mu      sync.Mutex
	results []string
}

// newBundle starts an aggregator. It must be called in a synctest bubble.
func newBundle(t *testing.T, rules string, change func(*Options)) *bundle {
	t.Helper()
	b := &bundle{t: t, begin: time.Now()}
	options := Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Emit: func(name string, unixSeconds int64, value float64) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.results = append(b.results, fmt.Sprintf("%g %s %d %g", time.Since(b.begin).Seconds(), name,
				unixSeconds-b.begin.Unix(), value))
		}}
	if change != nil {
		change(&options)
	}
	a, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	b.Aggregator = a
	if rules != "" {
		b.set(rules)
	}
	a.Start()
	a.Start()
	return b
}

func (b *bundle) set(rules string) {
	b.t.Helper()
	parsed, warnings, err := Parse("rules", strings.NewReader(rules))
	if err != nil || len(warnings) > 0 {
		b.t.Fatal(err, warnings)
	}
	b.SetRules(parsed)
}

func (b *bundle) stop() {
	b.t.Helper()
	for range 2 {
		if err := b.Stop(context.Background()); err != nil {
			b.t.Error(err)
		}
	}
}

// until waits until a number of seconds after the begin.
func (b *bundle) until(seconds float64) {
	// All tests with a bundle run in synctest bubbles, so no real time passes.
	time.Sleep(time.Until(b.begin.Add(time.Duration(seconds * float64(time.Second)))))
	synctest.Wait()
}

// one returns the only input of a series.
func (b *bundle) one(name string) *Input {
	b.t.Helper()
	inputs := b.Match(name)
	if len(inputs) != 1 {
		b.t.Fatalf("%s has %d inputs", name, len(inputs))
	}
	return inputs[0]
}

func (b *bundle) add(in *Input, seconds int64, value float64) { in.Add(b.begin.Unix()+seconds, value) }

// want checks and forgets the results.
func (b *bundle) want(results ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.results)
	if !slices.Equal(b.results, results) {
		b.t.Errorf("got %q, want %q", b.results, results)
	}
	b.results = nil
}

func (b *bundle) dropped(r reason) float64 { return testutil.ToFloat64(b.metrics.dropped[r]) }

// The time of a bubble begins at midnight, which is a multiple of every frequency here.
func TestAligned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "all.<m> (10) = sum s.*.<m>", nil)
		defer b.stop()
		x, y := b.one("s.x.cpu"), b.one("s.y.cpu")
		if x.Output() != "all.cpu" {
			t.Error(x.Output())
		}
		b.until(3)
		b.add(x, 3, 1)
		b.add(y, 3, 10)
		b.add(x, 8, 2) // replaces the 1
		b.add(x, 8, math.NaN())
		b.until(12)
		b.add(y, 9, 20) // within the grace
		b.add(x, 12, 3)
		b.want()
		b.until(16)
		b.want("15 all.cpu 0 22")
		b.until(23)
		b.add(y, 9, 20) // not another value
		b.until(26)
		b.want("25 all.cpu 10 3")
		b.add(y, 0, 30) // late
		b.until(36)
		b.want("35 all.cpu 0 32")
		b.until(59)
		b.add(x, 1, 5) // the interval is kept for 50 s behind its begin
		b.until(64)
		b.add(x, 2, 6) // its last computation is at 65 s
		b.until(66)
		b.want("65 all.cpu 0 36")
		b.add(x, 5, 7) // dropped
		b.add(x, -1, 7)
		b.add(x, 130, 7)
		x.Add(-1, 7)
		x.Add(math.MaxInt64, 7)
		x.Add(math.MinInt64, 7)
		b.until(140)
		b.want()
		if l, f := b.dropped(late), b.dropped(future); l != 4 || f != 2 {
			t.Errorf("%g late, %g in the future", l, f)
		}
		if s := b.Stats(); s.Outputs != 0 || s.Inputs != 0 || s.Points != 0 || s.Sent != 4 || s.Received != 9 {
			t.Errorf("%+v", s)
		}
		if c := testutil.ToFloat64(b.metrics.corrected); c != 2 {
			t.Errorf("%g corrected", c)
		}
	})
}

// An output that comes while the goroutine waits for later ones is not late.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "all (1) = sum s.*", nil)
		defer b.stop()
		b.until(0.2)
		b.add(b.one("s.x"), -1, 1)
		b.until(0.6)
		b.want("0.5 all -1 1")
	})
}

// A clock that is set back by an hour leaves a task that is due an hour later than it should.
func TestClockSetBack(t *testing.T) {
	for _, carbon := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBundle(t, "all (10) = sum s.*", func(o *Options) { o.Carbon = carbon })
			defer b.stop()
			b.add(b.one("s.x"), 1, 1)
			b.Aggregator.mu.Lock()
			b.queue[0].due += int64(time.Hour)
			b.Aggregator.mu.Unlock()
			b.until(16)
			if len(b.results) != 1 {
				t.Errorf("with carbon %v: %q", carbon, b.results)
			}
		})
	}
}

func TestFutureIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "all (10) = sum s.*", nil)
		defer b.stop()
		b.add(b.one("s.x"), 55, 1)
		b.until(70)
		b.want("65 all 50 1")
	})
}

// Sources and outputs without values are freed, and come back.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "all (10) = count s.*", nil)
		defer b.stop()
		x, y := b.one("s.x"), b.one("s.y")
		b.add(x, 0, 1)
		for i := range int64(10) {
			b.add(y, 10*i, float64(i))
			b.until(float64(10 * (i + 1)))
		}
		if s := b.Stats(); s.Outputs != 1 || s.Inputs != 1 {
			t.Errorf("%+v", s)
		}
		b.add(x, 100, 1)            // its slot was freed, so it takes one again
		b.add(b.one("s.x"), 100, 2) // the same source
		b.add(b.one("s.z"), 100, 1)
		if s := b.Stats(); s.Inputs != 3 {
			t.Errorf("%+v", s)
		}
		b.until(116)
		if got := b.results[len(b.results)-1]; got != "115 all 100 2" {
			t.Error(got)
		}
		b.until(300)
		if s := b.Stats(); s.Outputs != 0 || s.Inputs != 0 || s.Points != 0 {
			t.Errorf("%+v", s)
		}
		b.mu.Lock()
		b.results = nil
		b.mu.Unlock()
		b.add(y, 300, 1)
		b.add(x, 300, 1)
		b.until(316)
		b.want("315 all 300 2")
	})
}

func TestGraceAndFrequencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := "second (1) = sum s\nfive (5) = avg s\nhour (3600) = max s\nodd (90) = min s"
		b := newBundle(t, rules, nil)
		add := func(b *bundle, at int64, value float64) {
			for _, in := range b.Match("s") {
				b.add(in, at, value)
			}
		}
		add(b, 0, 4)
		b.until(3700)
		b.want("1.5 second 0 4", "3605 hour 0 4", "7.5 five 0 4", "95 odd 0 4")
		// The result of an hour is corrected after a minute, not an hour.
		add(b, 1, 5)
		b.until(3800)
		b.want("3725 hour 0 5")
		b.stop()

		b = newBundle(t, rules, func(o *Options) { o.Grace = -1; o.MaxIntervals = 1 })
		b.begin = time.Now().Truncate(time.Hour).Add(time.Hour)
		b.until(0)
		add(b, 0, 4)
		b.until(100)
		b.want("1 second 0 4", "5 five 0 4", "90 odd 0 4")
		b.stop()
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "all (10) = sum s.*", nil)
		x := b.one("s.x")
		b.until(9)
		b.add(x, 9, 1)
		b.until(11)
		b.add(x, 11, 2)
		b.stop()
		b.want("11 all 0 1")
		b.Start()
		b.add(x, 12, 2)
		b.until(100)
		b.want()

		b = newBundle(t, "", nil)
		b.stop()
		a, err := New(Options{Emit: func(string, int64, float64) {}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		a.Start()
	})
}

// Stop waits no longer than its context for an Emit that blocks.
func TestStopBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		b := newBundle(t, "all (1) = sum s", func(o *Options) { o.Emit = func(string, int64, float64) { <-block } })
		b.add(b.one("s"), 0, 1)
		b.until(2)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.Stop(ctx); err == nil {
			t.Error("Stop did not wait")
		}
		close(block)
		b.stop()
	})
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "rules.conf")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("kept (10) = sum s.*\ngone (10) = sum s.*\nother (20) = sum s.*\n<nosuch> (1) = sum s\n")
		changes := 0
		b := newBundle(t, "", func(o *Options) {
			o.RulesFile, o.Every = file, 12*time.Second
			o.Changed = func() { changes++ }
		})
		defer b.stop()
		inputs := b.Match("s.x")
		generation := b.Generation()
		b.until(9)
		for _, in := range inputs {
			b.add(in, 9, 1)
		}
		b.until(11)
		for _, in := range inputs {
			b.add(in, 11, 2)
		}
		write("# gone is gone, other is new\nother (10) = max s.*\nkept  (10) =  sum s.*")
		b.until(13)
		if changes != 1 || b.Generation() == generation || b.Stats().Outputs != 1 {
			t.Errorf("%d changes, %+v", changes, b.Stats())
		}
		b.want("12 gone 0 1") // complete, though not for long enough
		for _, in := range inputs {
			b.add(in, 13, 4)
		}
		if b.dropped(stale) != 2 {
			t.Errorf("%g dropped", b.dropped(stale))
		}
		inputs = b.Match("s.x")
		if len(inputs) != 2 || inputs[0].Output() != "other" || inputs[1].Output() != "kept" {
			t.Fatal(inputs)
		}
		for _, in := range inputs {
			b.add(in, 14, 5)
		}
		b.until(26)
		b.want("15 kept 0 1", "25 kept 10 5", "25 other 10 5")
		write("bad")
		b.until(37)
		if changes != 1 || b.Match("s.x") == nil {
			t.Error("a bad file replaced the rules")
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		b.until(61)
		if changes != 2 || b.Match("s.x") != nil || b.Stats() != (Stats{Sent: 4, Received: 9}) {
			t.Errorf("%d changes, %+v", changes, b.Stats())
		}
	})
}

// The same rules may be used by two aggregators, and twice.
func TestSameRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, _, err := Parse("rules", strings.NewReader("a (10) = sum s\na (10) = sum s\na (20) = max s"))
		if err != nil {
			t.Fatal(err)
		}
		one, two := newBundle(t, "", nil), newBundle(t, "", nil)
		defer one.stop()
		defer two.stop()
		for _, b := range []*bundle{one, two} {
			b.SetRules(rules)
			b.add(b.one("s"), 1, 1)
			b.SetRules(rules)
			b.add(b.one("s"), 2, 2)
		}
		one.SetRules(&Rules{})
		two.until(16)
		one.want()
		two.want("15 a 0 2")
		if got := two.OutputNames("s"); !slices.Equal(got, []string{"a"}) {
			t.Error(got)
		}
	})
}

func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, only := range []bool{false, true} {
			b := newBundle(t, "s.<x> (10) = sum s.<x>\nt (10) = sum t.<x>", func(o *Options) { o.AggregatesOnly = only })
			for name, want := range map[string]bool{"s.a": false, "t.a": true, "u": true} {
				if got := b.Forward(name, b.Match(name)); got != (want && !only) {
					t.Errorf("%s with only %v: %v", name, only, got)
				}
			}
			if b.Match("u") != nil || b.Match("") != nil {
				t.Error("a series without rules has inputs")
			}
			b.stop()
		}
	})
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "o.<x> (10) = sum s.<x>.*", func(o *Options) { o.MaxOutputs, o.MaxInputs = 2, 3 })
		defer b.stop()
		one, two := b.one("s.a.1"), b.one("s.b.1")
		if b.Match("s.c.1") != nil {
			t.Error("a third output")
		}
		b.add(one, 1, 1)
		b.add(two, 1, 1)
		b.add(b.one("s.a.2"), 1, 1)
		b.add(b.one("s.a.3"), 1, 1) // refused
		b.add(one, 1, 2)
		b.until(16)
		b.want("15 o.a 0 3", "15 o.b 0 1")
		o, i := testutil.ToFloat64(b.metrics.refusedOutputs), testutil.ToFloat64(b.metrics.refusedInputs)
		if o != 1 || i != 1 || b.dropped(full) != 1 {
			t.Errorf("refused %g outputs, %g inputs, %g values", o, i, b.dropped(full))
		}
		b.until(100)
		b.add(b.one("s.c.1"), 100, 1) // there is room again
		b.until(120)
		b.want("115 o.c 100 1")
	})
}

// Infinite values that cancel each other have no result.
func TestNoResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "o (10) = sum s.*", nil)
		defer b.stop()
		b.add(b.one("s.a"), 1, math.Inf(1))
		b.add(b.one("s.b"), 1, math.Inf(-1))
		b.until(20)
		b.want()
	})
}

func TestCarbon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "all (10) = sum s.*\nall (10) = sum *.x", func(o *Options) { o.Carbon = true })
		b.until(3) // the phase of the computations
		x := b.Match("s.x")
		y := b.one("s.y")
		if len(x) != 2 {
			t.Fatal(x)
		}
		for _, in := range x {
			b.add(in, 3, 1)
		}
		b.add(y, 4, 10)
		b.add(y, 5, 20) // both count
		b.until(14)
		b.want("13 all 0 32") // at the right time by chance
		b.add(y, 12, 1)
		b.add(y, 13, 1)
		b.add(y, 14, 1)
		b.until(22)
		b.add(y, 22, 5)
		b.until(24)
		b.want("23 all 10 3", "23 all 20 5") // half filled
		b.add(y, 25, 6)
		b.until(34)
		b.want("33 all 20 11")
		b.add(y, 2, 100) // late, and kept since the interval was last touched at 24 s
		b.until(44)
		b.want("43 all 0 132")
		b.until(130)
		b.want()
		if s := b.Stats(); s.Outputs != 0 {
			t.Errorf("%+v", s)
		}
		b.add(y, 2, 7) // overwrites the good result
		b.until(141)
		b.want("140 all 0 7")
		b.stop()
	})
}

func TestCarbonBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "all (10) = count s.*", func(o *Options) {
			o.Carbon, o.MaxPoints, o.MaxIntervals = true, 3, 1
		})
		y := b.one("s.y")
		for range 5 {
			b.add(y, 1000, 1)
		}
		b.until(10)
		b.want("10 all 1000 3")
		for i := range int64(6) {
			b.add(y, 1000+10*i, 1)
		}
		b.until(20)
		b.want("20 all 1010 1", "20 all 1020 1", "20 all 1030 1", "20 all 1040 1", "20 all 1050 1")
		if s := b.Stats(); s.Points != 3 || b.dropped(full) != 3 {
			t.Errorf("%+v, %g dropped", s, b.dropped(full))
		}
		for i := range int64(2 * maxCarbonIntervals) {
			b.add(y, 1000+10*i, 1)
		}
		if s := b.Stats(); s.Points > maxCarbonIntervals+3 {
			t.Errorf("%+v", s)
		}
		b.until(21)
		b.stop()
		b.want() // no interval has ended
	})
}

// TestExact compares 5 outputs of 1,000 sources each with a simple model: values come up to 40 s late, some twice with
// another value, so some are corrections and some are too late.
func TestExact(t *testing.T) {
	const sources, intervals, frequency = 1000, 24, 5
	names := []string{"sum", "avg", "max", "p95", "count"}
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		var rules strings.Builder
		for _, n := range names {
			fmt.Fprintf(&rules, "o.%s (%d) = %s s.*\n", n, frequency, n)
		}
		type place struct {
			output string
			start  int64
		}
		got, firsts := map[place]float64{}, map[place]time.Time{}
		b := newBundle(t, rules.String(), func(o *Options) {
			o.Emit = func(name string, unixSeconds int64, value float64) {
				p := place{name, unixSeconds}
				if _, ok := got[p]; !ok {
					firsts[p] = time.Now()
				}
				got[p] = value
			}
		})
		defer b.stop()
		inputs := make([][]*Input, sources)
		for i := range inputs {
			inputs[i] = b.Match(fmt.Sprintf("s.%d", i))
			if len(inputs[i]) != len(names) {
				t.Fatal(len(inputs[i]))
			}
		}
		type event struct {
			at     time.Time
			source int
			time   int64
			value  float64
		}
		var events []event
		for i := range intervals {
			for s := range sources {
				for range 1 + random.IntN(10)/9 {
					at := int64(i*frequency + random.IntN(frequency))
					delay := random.IntN(6000)
					if random.IntN(20) == 0 {
						delay = random.IntN(40_000)
					}
					// Never at the time of a computation.
					events = append(events, event{b.begin.Add(time.Duration(at)*time.Second + time.Duration(delay)*time.Millisecond +
						300*time.Microsecond), s, b.begin.Unix() + at, float64(random.IntN(1_000_000))})
				}
			}
		}
		slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })

		model := map[int64]map[int]float64{} // by start and source
		there := map[int64]bool{}
		nextComputation := b.begin.Add(2500 * time.Millisecond)
		tooLate := 0
		for _, e := range events {
			time.Sleep(time.Until(e.at))
			synctest.Wait()
			for _, in := range inputs[e.source] {
				in.Add(e.time, e.value)
			}
			for nextComputation.Before(e.at) {
				for start := range there {
					if start < series.Floor(nextComputation.Unix(), frequency)-5*frequency {
						delete(there, start)
					}
				}
				nextComputation = nextComputation.Add(frequency * time.Second)
			}
			start := series.Floor(e.time, frequency)
			if !there[start] && start < series.Floor(e.at.Unix(), frequency)-5*frequency {
				tooLate++
				continue
			}
			there[start] = true
			if model[start] == nil {
				model[start] = map[int]float64{}
			}
			model[start][e.source] = e.value
		}
		b.until(intervals*frequency + 60)

		if len(got) != intervals*len(names) || len(model) != intervals {
			t.Fatalf("%d results of %d intervals", len(got), len(model))
		}
		for start, values := range model {
			var all []float64
			total := 0.0
			for _, v := range values {
				all = append(all, v)
				total += v
			}
			slices.Sort(all)
			rank := 0.95 * float64(len(all)-1)
			low, part := int(rank), rank-math.Floor(rank)
			p95 := all[low]
			if part > 0 {
				p95 = all[low]*(math.Ceil(rank)-rank) + all[low+1]*part
			}
			want := map[string]float64{"sum": total, "avg": total / float64(len(all)), "max": all[len(all)-1], "p95": p95,
				"count": float64(len(all))}
			for _, n := range names {
				p := place{"o." + n, start}
				if got[p] != want[n] {
					t.Errorf("%s of %d: got %v, want %v", n, start, got[p], want[n])
				}
				if after := firsts[p].Sub(time.Unix(start, 0)); after != 7500*time.Millisecond {
					t.Errorf("%s of %d came after %s", n, start, after)
				}
			}
		}
		if d := b.dropped(late); tooLate < 100 || d != float64(tooLate*len(names)) {
			t.Errorf("%g values dropped, want %d × %d", d, tooLate, len(names))
		}
		corrected := testutil.ToFloat64(b.metrics.corrected)
		t.Logf("%d points, %d too late, %d first results, %g corrected", len(events), tooLate, len(got), corrected)
		if corrected < intervals {
			t.Errorf("%g corrected", corrected)
		}
	})
}

// TestConcurrent is for the race detector: sources come and go while rules change and results are emitted.
func TestConcurrent(t *testing.T) {
	for _, carbon := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sets := []string{"a.<x> (1) = sum s.<x>.*\nb (2) = p99 s.*.*", "b (2) = p99 s.*.*\nc (3) = max s.*.1"}
			b := newBundle(t, sets[0], func(o *Options) { o.Carbon, o.MaxInputs = carbon, 50 })
			var adders sync.WaitGroup
			for g := range 8 {
				adders.Go(func() {
					random := rand.New(rand.NewPCG(uint64(g), 0))
					kept := map[string][]*Input{}
					for range 300 {
						name := fmt.Sprintf("s.%d.%d", random.IntN(5), random.IntN(9))
						if kept[name] == nil || random.IntN(10) == 0 {
							kept[name] = b.Match(name)
						}
						for _, in := range kept[name] {
							in.Add(time.Now().Unix()-random.Int64N(8), random.Float64())
						}
						b.Forward(name, kept[name])
						time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
						if random.IntN(50) == 0 {
							time.Sleep(20 * time.Second)
						}
					}
				})
			}
			adders.Go(func() {
				for i := range 40 {
					time.Sleep(700 * time.Millisecond)
					rules, _, err := Parse("rules", strings.NewReader(sets[i%2]))
					if err != nil {
						t.Error(err)
					}
					b.SetRules(rules)
					b.Stats()
				}
			})
			adders.Wait()
			b.until(1000)
			if s := b.Stats(); s.Outputs != 0 || s.Inputs != 0 || s.Points != 0 || s.Sent == 0 {
				t.Errorf("%+v", s)
			}
			b.Aggregator.mu.Lock()
			if len(b.queue) != 0 || len(b.groups) != 0 {
				t.Errorf("%d tasks", len(b.queue))
			}
			b.Aggregator.mu.Unlock()
			b.stop()
		})
	}
}

func TestOptions(t *testing.T) {
	f := func(want string, change func(*Options)) {
		t.Helper()
		o := Options{Emit: func(string, int64, float64) {}, Logger: slog.New(slog.DiscardHandler)}
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("Emit", func(o *Options) { o.Emit = nil })
	f("Logger", func(o *Options) { o.Logger = nil })
	f("Every", func(o *Options) { o.Every = -1 })
	f("Future", func(o *Options) { o.Future = 25 * time.Hour })
	f("Grace", func(o *Options) { o.Grace = 25 * time.Hour })
	f("MaxIntervals", func(o *Options) { o.MaxIntervals = -1 })
	f("MaxOutputs", func(o *Options) { o.MaxOutputs = -1 })
	f("MaxInputs", func(o *Options) { o.MaxInputs = -1 })
	f("MaxPoints", func(o *Options) { o.MaxPoints = -1 })
	f("aggregation rules", func(o *Options) { o.RulesFile = "testdata" })
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		b := newBundle(t, "o (10) = sum s.*", func(o *Options) { o.Registerer = registry })
		defer b.stop()
		b.add(b.one("s.a"), 1, 1)
		b.add(b.one("s.b"), 1, 1)
		want := `
# HELP lapwing_metric_aggregator_buffered_points Values kept for results to come or to be corrected.
# TYPE lapwing_metric_aggregator_buffered_points gauge
lapwing_metric_aggregator_buffered_points 2
# HELP lapwing_metric_aggregator_inputs Sources of all outputs, each counted once per output.
# TYPE lapwing_metric_aggregator_inputs gauge
lapwing_metric_aggregator_inputs 2
# HELP lapwing_metric_aggregator_outputs Outputs of aggregation rules with inputs or values.
# TYPE lapwing_metric_aggregator_outputs gauge
lapwing_metric_aggregator_outputs 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "lapwing_metric_aggregator_buffered_points",
			"lapwing_metric_aggregator_inputs", "lapwing_metric_aggregator_outputs"); err != nil {
			t.Error(err)
		}
	})
}

// Adding to sources that are known allocates nothing, also when a new interval begins.
func TestAddAllocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, "o (10) = sum s.*", func(o *Options) { o.Emit = func(string, int64, float64) {} })
		defer b.stop()
		inputs := make([]*Input, 100)
		for i := range inputs {
			inputs[i] = b.one(fmt.Sprintf("s.%d", i))
		}
		round := func() {
			now := time.Now().Unix()
			for _, in := range inputs {
				in.Add(now, float64(now))
			}
		}
		for range 20 {
			round()
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		for range 10 {
			if got := testing.AllocsPerRun(1, round); got != 0 {
				t.Errorf("%g allocations", got)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
	})
}
