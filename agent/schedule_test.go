package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// plan is a schedule in a bubble of synctest, whose clock begins in the year 2000. It notes the runs as "check@second
// of the start/second of issue", both counted from that beginning.
type plan struct {
	*schedule
	t      *testing.T
	log    *logged
	began  time.Time
	offset atomic.Int64 // of the wall clock, nanoseconds

	mutex   sync.Mutex // guards the fields below
	started []string
	runs    []*resource.CheckRequest
	answer  verdict
}

func newPlan(t *testing.T) *plan {
	t.Helper()
	p := &plan{t: t, log: new(logged), began: time.Now(), answer: accepted}
	p.schedule = newSchedule(func(req *resource.CheckRequest) verdict {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.runs = append(p.runs, req)
		p.started = append(p.started, fmt.Sprintf("%s@%g/%d", req.Config.Metadata.Name, time.Since(p.began).Seconds(), req.Issued-p.began.Unix()))
		return p.answer
	}, p.log.logger(), newScheduleMetrics(nil))
	p.now = func() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.loop(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

// want waits until a time and compares what was started by then.
func (p *plan) want(seconds float64, want ...string) {
	p.t.Helper()
	p.at(seconds)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !slices.Equal(p.started, want) {
		p.t.Errorf("up to %gs started %q, want %q", seconds, p.started, want)
	}
	p.started = nil
}

func (p *plan) at(seconds float64) {
	time.Sleep(time.Until(p.began.Add(time.Duration(seconds * float64(time.Second))))) // the bubble's time
	synctest.Wait()
}

// ticks counts the ticks with a result.
func (p *plan) ticks(result string) float64 {
	return value(p.t, p.metrics.ticks.WithLabelValues(result))
}

// every is an entry for a check with an interval, in seconds.
func every(name string, interval uint32, phaseMillis uint64, change ...func(*resource.CheckConfig)) wire.ScheduleEntry {
	c := &resource.CheckConfig{Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: "true", Interval: interval, Subscriptions: []string{"linux"}}
	for _, f := range change {
		f(c)
	}
	req := resource.CheckRequest{Config: c}
	return wire.ScheduleEntry{PhaseMillis: phaseMillis, Request: req.AppendProto(nil)}
}

// byCron is an entry for a check with a cron expression.
func byCron(name, spec string, phaseMillis uint64) wire.ScheduleEntry {
	return every(name, 0, phaseMillis, func(c *resource.CheckConfig) { c.Cron = spec })
}

func entries(e ...wire.ScheduleEntry) []wire.ScheduleEntry { return e }

func TestSchedule(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, p *plan)
	}{
		{"intervals", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 3250), every("b", 20, 11000)))
			p.want(3.249)
			p.want(40, "a@3.25/3", "b@11/11", "a@13.25/13", "a@23.25/23", "b@31/31", "a@33.25/33")
			if n := value(t, p.metrics.checks); n != 2 {
				t.Errorf("%v checks", n)
			}
		}},
		{"cron, with the agent's offset", func(t *testing.T, p *plan) {
			p.apply(true, entries(byCron("a", "*/2 * * * *", 250)))
			p.want(300, "a@0.25/0", "a@120.25/120", "a@240.25/240") // what was due at 0 is due at 0.25 here
		}},
		{"cron in a time zone", func(t *testing.T, p *plan) {
			p.apply(true, entries(byCron("a", "TZ=Asia/Kathmandu 0 6 * * *", 0))) // 5:45 before UTC
			p.want(2*86400, "a@900/900", "a@87300/87300")
		}},
		{"@every has a phase, as an interval has", func(t *testing.T, p *plan) {
			p.apply(true, entries(byCron("a", "@every 90s", 43_500)))
			first := timetable.Interval(43_500*time.Millisecond, 90*time.Second).Next(p.began.UnixNano() - 1)
			s := time.Unix(0, first).Sub(p.began).Seconds()
			p.want(s+100, fmt.Sprintf("a@%g/%g", s, s-.5), fmt.Sprintf("a@%g/%g", s+90, s+89.5))
			p.apply(false, entries(byCron("a", "@every 90s", 42_500))) // moves by a second
			p.want(s+200, fmt.Sprintf("a@%g/%g", s+179, s+178.5))
		}},
		{"a cron that never ticks", func(t *testing.T, p *plan) {
			p.apply(true, entries(byCron("never", "0 0 30 2 *", 10), every("a", 60, 0)))
			p.want(61, "a@60/60")
			p.apply(false, entries(byCron("never", "0 0 30 2 *", 20)))
			p.want(121, "a@120/120")
		}},
		{"the same again changes nothing", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 5000)))
			for i := range 40 { // twice a second, and at the moments of the ticks
				p.at(float64(i) / 2)
				p.apply(true, entries(every("a", 10, 5000)))
			}
			p.want(30, "a@5/5", "a@15/15", "a@25/25")
		}},
		{"a tick that is due when the same comes again is not lost", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 5000)))
			p.at(4.999)
			time.Sleep(time.Millisecond) // the bubble's time: the schedule's goroutine has not had its turn
			p.apply(true, entries(every("a", 10, 5000, func(c *resource.CheckConfig) { c.Command = "new" })))
			p.want(6, "a@5/5")
		}},
		{"another command takes effect at the next tick", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 5000)))
			p.at(7)
			p.apply(false, entries(every("a", 10, 5000, func(c *resource.CheckConfig) { c.Command = "new" })))
			p.want(20, "a@5/5", "a@15/15")
			if got := []string{p.runs[0].Config.Command, p.runs[1].Config.Command}; !slices.Equal(got, []string{"true", "new"}) {
				t.Errorf("ran %q", got)
			}
		}},
		{"changes", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 1000), every("b", 10, 2000), every("c", 10, 3000)))
			p.want(5, "a@1/1", "b@2/2", "c@3/3")
			p.apply(false, entries(wire.ScheduleEntry{Remove: "a"}, wire.ScheduleEntry{Remove: "unknown"}, every("b", 4, 2000), every("d", 10, 4000)))
			p.want(15, "b@6/6", "b@10/10", "c@13/13", "b@14/14", "d@14/14")
			p.apply(true, entries(every("d", 10, 4000)))
			p.want(30, "d@24/24")
			p.apply(true, nil)
			p.want(60)
			p.apply(false, entries(every("a", 10, 1000)))
			p.want(70, "a@61/61")
		}},
		{"interval to cron and back", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 7000)))
			p.want(8, "a@7/7")
			p.apply(false, entries(byCron("a", "* * * * *", 0)))
			p.want(61, "a@60/60")
			p.apply(false, entries(every("a", 10, 7000)))
			p.want(70, "a@67/67")
		}},
		{"the phase moves: the run due next comes along", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 5900)))
			p.at(5.5)
			p.apply(true, entries(every("a", 10, 5100))) // which is over
			p.want(6, "a@5.5/5")
			p.at(15.5)
			p.apply(true, entries(every("a", 10, 5900))) // the tick of this second has run
			p.want(26, "a@15.1/15", "a@25.9/25")
			p.apply(true, entries(every("a", 10, 9500)))
			p.want(40, "a@39.5/39")
		}},
		{"the phase moves over the edge of the interval", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 9800)))
			p.at(5)
			p.apply(true, entries(every("a", 10, 200)))
			p.want(15, "a@10.2/10")
			p.apply(true, entries(every("a", 10, 9800)))
			p.want(25, "a@19.8/19")
		}},
		{"the offset of a cron moves", func(t *testing.T, p *plan) {
			p.apply(true, entries(byCron("a", "* * * * *", 900)))
			p.want(1, "a@0.9/0")
			p.at(60.5)
			p.apply(true, entries(byCron("a", "* * * * *", 100)))
			p.want(130, "a@60.5/60", "a@120.1/120")
		}},
		{"subdued", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 0, func(c *resource.CheckConfig) {
				c.Subdues = []resource.TimeWindowRepeated{{Begin: "nonsense"}, {Begin: "2000-01-01T00:00:15Z", End: "2000-01-01T00:00:35Z"}}
			})))
			p.want(45, "a@10/10", "a@40/40")
			if p.ticks(tickSubdued) != 2 || p.log.count("subdue is ignored") != 1 {
				t.Errorf("%v subdued; log:\n%s", p.ticks(tickSubdued), p.log)
			}
		}},
		{"what cannot be run is left out, and said", func(t *testing.T, p *plan) {
			p.apply(true, entries(
				byCron("bad", "61 * * * *", 0), every("neither", 0, 0), wire.ScheduleEntry{Request: []byte{0xff}}, wire.ScheduleEntry{},
				byCron("nowhere", "TZ=Atlantis/Capital * * * * *", 0), every("a", 10, 0)))
			p.want(15, "a@10/10")
			if p.log.count("cannot be run") != 3 || p.log.count("cannot be read") != 1 { // the second one is skipped
				t.Errorf("log:\n%s", p.log)
			}
			p.apply(false, entries(byCron("a", "nonsense", 0))) // the old definition must not run any more
			p.want(60)
		}},
		{"after a sleep each runs once", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 0), every("b", 1, 500), byCron("c", "* * * * *", 0)))
			p.want(0.1)
			p.offset.Store(int64(time.Hour))                      // as if the machine had slept that long
			p.want(5.2, "b@0.5/3600", "a@0.5/3600", "c@0.5/3600", // found when the timer for b ends, or after 5 s at most
				"b@1.5/3601", "b@2.5/3602", "b@3.5/3603", "b@4.5/3604")
			if n := p.ticks(tickMissed); n != 3600+359+59 {
				t.Errorf("%v missed", n)
			}
		}},
		{"the clock is set back", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 0)))
			p.want(101, "a@10/10", "a@20/20", "a@30/30", "a@40/40", "a@50/50", "a@60/60", "a@70/70", "a@80/80", "a@90/90", "a@100/100")
			p.offset.Store(-int64(time.Minute))
			p.want(125, "a@110/101", "a@120/102") // issued grows all the same
			if p.log.count("set back") != 1 {
				t.Errorf("log:\n%s", p.log)
			}
		}},
		{"nothing to do", func(t *testing.T, p *plan) {
			p.clear()
			p.apply(true, nil)
			p.want(3600)
		}},
		{"dropped", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 0)))
			p.want(15, "a@10/10")
			p.clear()
			p.want(60)
			if n := value(t, p.metrics.checks); n != 0 || p.log.count("schedule dropped") != 1 {
				t.Errorf("%v checks; log:\n%s", n, p.log)
			}
		}},
		{"the answers are counted", func(t *testing.T, p *plan) {
			p.apply(true, entries(every("a", 10, 0)))
			p.at(15)
			p.mutex.Lock()
			p.answer = inProgress
			p.mutex.Unlock()
			p.at(35)
			if p.ticks("accepted") != 1 || p.ticks("in_progress") != 2 {
				t.Errorf("accepted %v, in progress %v", p.ticks("accepted"), p.ticks("in_progress"))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tt.run(t, newPlan(t)) })
		})
	}
}

// TestScheduleNeverDrifts replaces a schedule at odd moments for an hour, with the same checks and other phases: each
// TestSchedulePauses: a check does not run in a pause of its calendars, also after a restart, and does behind the last.
func TestSchedulePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlan(t)
		began := p.began.Unix()
		request := &resource.CheckRequest{
			Config: &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "a"}, Interval: 10},
			Pauses: []resource.CheckPause{{Begin: began + 10, End: began + 20}, {Begin: began + 30, End: began + 41}},
		}
		p.apply(true, []wire.ScheduleEntry{{Request: request.AppendProto(nil)}})
		p.want(60, "a@20/20", "a@50/50", "a@60/60")
		if n := p.ticks(tickSubdued); n != 3 {
			t.Errorf("%v ticks were left out", n)
		}
		for _, run := range p.runs {
			if run.Pauses != nil {
				t.Error("a run carries the pauses")
			}
		}
		kept := new(resource.CheckRequest)
		if err := kept.UnmarshalProto(p.remembered()[0].Request); err != nil || len(kept.Pauses) != 2 {
			t.Errorf("a restart knows %d pauses, %v", len(kept.Pauses), err)
		}
	})
}

// check runs once for each of its ticks.
func TestScheduleNeverDrifts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlan(t)
		for i := range uint64(2000) {
			offset := i % 7 * 130 // of the agent, below a second
			p.apply(true, entries(every("a", 3, 1000+offset), every("b", 10, 9000+offset), byCron("c", "* * * * *", offset)))
			p.at(float64(i+1) * 1.7)
		}
		issued := map[string][]int64{}
		for _, req := range p.runs {
			name := req.Config.Metadata.Name
			issued[name] = append(issued[name], req.Issued-p.began.Unix())
		}
		for name, want := range map[string]struct{ first, step int64 }{"a": {1, 3}, "b": {9, 10}, "c": {60, 60}} {
			for i, got := range issued[name] {
				if got != want.first+int64(i)*want.step {
					t.Fatalf("%s: run %d issued at %d, want %d", name, i, got, want.first+int64(i)*want.step)
				}
			}
			if n := len(issued[name]); int64(n) < 3400/want.step {
				t.Errorf("%s ran %d times", name, n)
			}
		}
	})
}

func TestRequestsAndTicks(t *testing.T) {
	t.Parallel()
	l := requestLog{checks: map[string]requested{}}
	for _, tt := range []struct {
		why    string
		tick   bool
		issued int64
		want   verdict
	}{
		{"the first request", false, 100, accepted},
		{"again", false, 100, duplicate},
		{"older", false, 99, outdated},
		{"a tick of the second of the request", true, 100, duplicate},
		{"a tick, by a clock that is late", true, 50, accepted},
		{"again", true, 50, duplicate},
		{"a request is measured against requests", false, 101, accepted},
		{"and so is an old one", false, 60, outdated},
		{"the next tick", true, 60, accepted},
		{"a tick of a clock that is early", true, 1000, accepted},
		{"a request after it", false, 102, accepted},
		{"a request of the tick's second", false, 1000, duplicate},
	} {
		request := func(check string, issued int64) verdict { return l.take(check, issued, turn{}) }
		take := request
		if tt.tick {
			take = l.tick
		}
		if got := take("a", tt.issued); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		} else if got == accepted {
			if l.tick("a", 5000) != inProgress || request("a", 5000) != inProgress {
				t.Errorf("%s: another was accepted while it ran", tt.why)
			}
			l.done("a")
		}
	}
}
