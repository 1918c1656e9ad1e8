package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory holds the definitions of a test in memory: synctest could not wait for a broker.
type memory struct {
	mu   sync.Mutex
	defs map[resource.Name]*resource.CheckConfig
	tell func(config.Change)
	// calendars by name; others are not defined
	calendars map[string]*calendar.Calendar

	hooks    map[resource.Name]*resource.HookConfig
	archives map[resource.Name]*resource.Asset
	known    []*resource.EntityConfig // in order
	read     atomic.Int64             // how many of known were read
}

func (m *memory) hook(namespace, name string) (*resource.HookConfig, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.hooks[resource.Name{Namespace: namespace, Name: name}]
	return h, ok
}

func (m *memory) asset(namespace, name string) (*resource.Asset, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.archives[resource.Name{Namespace: namespace, Name: name}]
	return a, ok
}

func (m *memory) entities(namespace string) (all iter.Seq[*resource.EntityConfig], version any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := slices.Clone(m.known)
	return func(yield func(*resource.EntityConfig) bool) {
		for _, e := range known {
			m.read.Add(1)
			if e.Metadata.Namespace == namespace && !yield(e) {
				return
			}
		}
	}, fmt.Sprint(known) // the addresses
}

func (m *memory) check(namespace, name string) (*resource.CheckConfig, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.defs[resource.Name{Namespace: namespace, Name: name}]
	return c, ok
}

func (m *memory) checks() iter.Seq[*resource.CheckConfig] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Values(maps.Clone(m.defs))
}

func (m *memory) calendar(_, name string) *calendar.Calendar {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.calendars[name]; c != nil {
		return c
	}
	return &calendar.Calendar{Problem: "the calendar " + name + " is not defined"}
}

func (m *memory) OnChange(f func(config.Change)) func() {
	m.tell = f
	return func() { m.tell = nil }
}

// bed is a running scheduler with the requests that it published.
type bed struct {
	*Scheduler
	defs  memory
	reg   *prometheus.Registry
	log   bytes.Buffer
	began time.Time

	mu       sync.Mutex
	got      []published
	assigned [][]Assignment
	publish  func(Request) // called for each request, without lock
}

type published struct {
	Request
	at time.Duration // since the bed's begin
}

// newBed starts a scheduler over the checks. It must be called in a synctest bubble, where time begins at midnight,
// 1 January 2000 UTC.
func newBed(t *testing.T, now func() time.Time, checks ...*resource.CheckConfig) *bed {
	t.Helper()
	return newBedWith(t, Options{Now: now}, checks...)
}

// newBedWith is newBed with further options.
func newBedWith(t *testing.T, o Options, checks ...*resource.CheckConfig) *bed {
	t.Helper()
	b := &bed{reg: prometheus.NewRegistry(), began: time.Now(), publish: func(Request) {}}
	b.defs.defs = map[resource.Name]*resource.CheckConfig{}
	for _, c := range checks {
		b.defs.defs[resource.NameOf(&c.Metadata)] = c
	}
	var err error
	o.Publish = func(r Request) {
		b.mu.Lock()
		b.got = append(b.got, published{r, time.Since(b.began)})
		publish := b.publish
		b.mu.Unlock()
		publish(r)
	}
	o.Assign = func(a []Assignment) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.assigned = append(b.assigned, a)
	}
	o.Logger, o.Registerer, o.Compile = slog.New(slog.NewTextHandler(&b.log, nil)), b.reg, compileHere
	b.Scheduler, err = newScheduler(o, &b.defs)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop() })
	synctest.Wait()
	return b
}

func (b *bed) onPublish(f func(Request)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publish = f
}

func (b *bed) put(c *resource.CheckConfig) {
	k := resource.NameOf(&c.Metadata)
	b.defs.mu.Lock()
	b.defs.defs[k] = c
	b.defs.mu.Unlock()
	b.defs.tell(config.Change{Kind: "checks", Namespace: k.Namespace, Name: k.Name})
}

func (b *bed) delete(namespace, name string) {
	b.defs.mu.Lock()
	delete(b.defs.defs, resource.Name{Namespace: namespace, Name: name})
	b.defs.mu.Unlock()
	b.defs.tell(config.Change{Kind: "checks", Namespace: namespace, Name: name, Deleted: true})
}

// until waits until a time after the bed's begin and takes the requests published by then.
func (b *bed) until(at time.Duration) []published {
	time.Sleep(time.Until(b.began.Add(at))) // the bubble's time
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.got
	b.got = nil
	return got
}

// want compares the requests published until a time with "[namespace/]check@seconds" for each.
func (b *bed) want(t *testing.T, at time.Duration, want ...string) {
	t.Helper()
	var got []string
	for _, p := range b.until(at) {
		name := p.Request.Request.Config.Metadata.Name
		if p.Namespace != "default" {
			name = p.Namespace + "/" + name
		}
		got = append(got, fmt.Sprintf("%s@%.3f", name, p.at.Seconds()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("until %s published %v, want %v", at, got, want)
	}
}

// metric is the value of a metric, or the number of observations of a histogram.
func (b *bed) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	if i < 0 {
		t.Fatalf("no metric %s", name)
	}
	m := families[i].Metric[0]
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

func newCheck(name string, interval uint32, edit ...func(*resource.CheckConfig)) *resource.CheckConfig {
	c := &resource.CheckConfig{
		Metadata:      resource.ObjectMeta{Namespace: "default", Name: name},
		Command:       "true",
		Interval:      interval,
		Publish:       true,
		Subscriptions: []string{"linux", "web"},
	}
	for _, f := range edit {
		f(c)
	}
	return c
}

func cronCheck(name, spec string, edit ...func(*resource.CheckConfig)) *resource.CheckConfig {
	return newCheck(name, 0, append(edit, func(c *resource.CheckConfig) { c.Cron = spec })...)
}

// interval is the timetable of a check.
func interval(t *testing.T, c *resource.CheckConfig) timetable.Timetable {
	t.Helper()
	times, err := timetable.New(c, timetable.MD5)
	if err != nil {
		t.Fatal(err)
	}
	return times
}

func TestPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, newCheck("haproxy", 10), newCheck("check-disk", 10), newCheck("ntp", 20))
		b.want(t, 31*time.Second,
			"check-disk@6.000", "haproxy@7.000", "ntp@10.000",
			"check-disk@16.000", "haproxy@17.000",
			"check-disk@26.000", "haproxy@27.000", "ntp@30.000")
	})
}

// TestNoDrift handles every tick late by some milliseconds, for 10,000 ticks.
func TestNoDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, newCheck("haproxy", 1), newCheck("check-disk", 1))
		b.onPublish(func(Request) { time.Sleep(7 * time.Millisecond) })
		const ticks = 10_000
		counts := map[string]int64{}
		for _, p := range b.until(ticks*time.Second + 10*time.Millisecond) {
			name := p.Request.Request.Config.Metadata.Name
			// Both are due at the same moment, and the first to be handled makes the other late.
			if late := p.at - time.Duration(counts[name]+1)*time.Second; late < 0 || late > 7*time.Millisecond {
				t.Fatalf("%s: tick %d at %s", name, counts[name], p.at)
			}
			if want := b.began.Unix() + counts[name] + 1; p.Request.Request.Issued != want {
				t.Fatalf("%s: tick %d issued %d, want %d", name, counts[name], p.Request.Request.Issued, want)
			}
			counts[name]++
		}
		if counts["haproxy"] != ticks || counts["check-disk"] != ticks {
			t.Errorf("ticks: %v, want %d each", counts, ticks)
		}
		if n := b.metric(t, "lapwing_schedule_missed_total"); n != 0 {
			t.Errorf("%v ticks missed", n)
		}
	})
}

func TestChanges(t *testing.T) {
	command := func(s string) func(*resource.CheckConfig) {
		return func(c *resource.CheckConfig) { c.Command = s }
	}
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, b *bed)
	}{
		{"created while running", func(t *testing.T, b *bed) {
			b.want(t, 5*time.Second)
			b.put(newCheck("check-disk", 10))
			b.want(t, 10*time.Second, "check-disk@6.000", "haproxy@7.000")
			if n := b.metric(t, "lapwing_schedule_checks"); n != 2 {
				t.Errorf("%v checks, want 2", n)
			}
		}},
		{"deleted", func(t *testing.T, b *bed) {
			b.want(t, 8*time.Second, "haproxy@7.000")
			b.delete("default", "haproxy")
			b.want(t, 60*time.Second)
			if n := b.metric(t, "lapwing_schedule_checks"); n != 0 {
				t.Errorf("%v checks, want 0", n)
			}
		}},
		{"command changes, the phase stays", func(t *testing.T, b *bed) {
			b.until(8 * time.Second)
			b.put(newCheck("haproxy", 10, command("new")))
			got := b.until(20 * time.Second)
			if len(got) != 1 || got[0].at.Milliseconds() != 17_000 || got[0].Request.Request.Config.Command != "new" {
				t.Errorf("published %v", got)
			}
		}},
		{"changed at the very moment of the tick", func(t *testing.T, b *bed) {
			time.Sleep(7 * time.Second) // the bubble's time
			b.put(newCheck("haproxy", 10, command("new")))
			b.want(t, 20*time.Second, "haproxy@7.000", "haproxy@17.000")
		}},
		{"interval changes", func(t *testing.T, b *bed) {
			b.until(8 * time.Second)
			b.put(newCheck("haproxy", 4))
			b.want(t, 16*time.Second, "haproxy@9.000", "haproxy@13.000")
		}},
		{"interval to cron and back", func(t *testing.T, b *bed) {
			b.until(8 * time.Second)
			b.put(cronCheck("haproxy", "* * * * *"))
			b.want(t, 61*time.Second, "haproxy@60.000")
			b.put(newCheck("haproxy", 10))
			b.want(t, 70*time.Second, "haproxy@67.000")
		}},
		{"unpublished and published", func(t *testing.T, b *bed) {
			b.put(newCheck("haproxy", 10, func(c *resource.CheckConfig) { c.Publish = false }))
			b.want(t, 20*time.Second)
			if n := b.metric(t, "lapwing_schedule_checks"); n != 0 {
				t.Errorf("%v checks, want 0", n)
			}
			b.put(newCheck("haproxy", 10))
			b.want(t, 30*time.Second, "haproxy@27.000")
		}},
		{"namespaces and names that look alike when joined", func(t *testing.T, b *bed) {
			in := func(ns string) func(*resource.CheckConfig) {
				return func(c *resource.CheckConfig) { c.Metadata.Namespace = ns }
			}
			b.delete("default", "haproxy")
			b.put(newCheck("c1-a", 10, in("b")))
			b.put(newCheck("c1", 10, in("a-b")))
			if got := b.until(10 * time.Second); len(got) != 2 {
				t.Errorf("published %v, want one each", got)
			}
			b.delete("b", "c1-a")
			if got := b.until(20 * time.Second); len(got) != 1 || got[0].Namespace != "a-b" {
				t.Errorf("published %v, want that of namespace a-b", got)
			}
		}},
		{"cron that cannot be parsed", func(t *testing.T, b *bed) {
			b.put(cronCheck("haproxy", "61 * * * *"))
			b.want(t, time.Hour)
			if log := b.log.String(); !strings.Contains(log, `msg="check cannot be scheduled"`) || !strings.Contains(log, "check=haproxy") {
				t.Errorf("log: %s", log)
			}
			b.put(newCheck("haproxy", 3600))
			if got := b.until(2 * time.Hour); len(got) != 1 {
				t.Errorf("repaired: published %v", got)
			}
		}},
		{"another kind", func(t *testing.T, b *bed) {
			b.defs.mu.Lock()
			clear(b.defs.defs)
			b.defs.mu.Unlock()
			b.defs.tell(config.Change{Kind: "handlers", Namespace: "default", Name: "haproxy"})
			b.want(t, 10*time.Second, "haproxy@7.000")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.run(t, newBed(t, nil, newCheck("haproxy", 10)))
			})
		})
	}
}

func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheck("haproxy", 10)
		b := newBed(t, nil, c, newCheck("check-disk", 10, func(c *resource.CheckConfig) { c.RoundRobin = true }))
		got := b.until(20 * time.Second)
		rr, r := got[0], got[1]
		if r.Namespace != "default" || !slices.Equal(r.Subscriptions, []string{"linux", "web"}) || r.RoundRobin || r.Asked {
			t.Errorf("request: %+v", r)
		}
		q := r.Request.Request
		if q.Assets == nil || q.Hooks == nil || q.HookAssets == nil || len(q.Assets)+len(q.Hooks)+len(q.HookAssets) != 0 {
			t.Errorf("assets and hooks are not empty lists: %+v", q)
		}
		if q.Config == c || c.Scheduler != "" || q.Config.Scheduler != "memory" || q.Config.Command != "true" {
			t.Errorf("config: %+v, of the definition %+v", q.Config, c)
		}
		if want := b.began.Unix() + 7; q.Issued != want || r.Tick.UnixNano() != want*1e9 || !r.Due.Equal(r.Tick) || r.Every != 10*time.Second {
			t.Errorf("issued %d for the tick %s, due %s, every %s, want %d", q.Issued, r.Tick, r.Due, r.Every, want)
		}
		if !r.Assigned || rr.Assigned {
			t.Errorf("assigned %v, with round robin %v", r.Assigned, rr.Assigned)
		}
		next := got[2]
		if !rr.RoundRobin || rr.Every != 10*time.Second || next.Tick.Sub(rr.Tick) != 10*time.Second {
			t.Errorf("round robin: %+v, and then %+v", rr, next)
		}
		if s := rr.Request.Request.Config.Scheduler; s != "etcd" {
			t.Errorf("round robin: scheduler %q", s)
		}
	})
}

// TestRecall: ticks of round-robin checks that fell due before the start, or during a pause, are published too, as far as
// they are new enough. Other checks get the newest tick only.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := func(c *resource.CheckConfig) { c.RoundRobin = true }
		recall := func(every time.Duration) time.Duration { return 3 * every }
		b := newBedWith(t, Options{Recall: recall}, newCheck("turns", 2, turns), newCheck("plain", 2), newCheck("proxies", 2, turns, forProxies(nil, "true")))
		ticks := func(got []published) (of []string) {
			for _, p := range got {
				of = append(of, fmt.Sprintf("%s@%+.0f/%.0f", p.Request.Request.Config.Metadata.Name, p.Tick.Sub(b.began).Seconds(), p.Every.Seconds()))
			}
			slices.Sort(of)
			return of
		}
		if got := ticks(b.until(0)); !slices.Equal(got, []string{"turns@+0/2", "turns@-2/2", "turns@-4/2"}) {
			t.Errorf("at the start: %v", got)
		}
		var once sync.Once
		b.onPublish(func(r Request) {
			if r.Request.Config.Metadata.Name == "plain" {
				once.Do(func() { time.Sleep(10_500 * time.Millisecond) }) // from 2 on
			}
		})
		got := slices.DeleteFunc(ticks(b.until(13*time.Second)), func(tick string) bool { return !strings.HasPrefix(tick, "turns") })
		if !slices.Equal(got, []string{"turns@+10/2", "turns@+12/2", "turns@+2/2", "turns@+8/2"}) {
			t.Errorf("after a pause: %v", got)
		}
		b.put(newCheck("new", 2, turns))
		if got := ticks(b.until(13*time.Second + 100*time.Millisecond)); len(got) > 0 {
			t.Errorf("a new check has ticks from before: %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBedWith(t, Options{Recall: func(time.Duration) time.Duration { return time.Minute }})
		b.put(newCheck("new", 5, func(c *resource.CheckConfig) { c.RoundRobin = true }))
		for _, p := range b.until(6 * time.Second) {
			if p.Tick.Before(b.began) {
				t.Errorf("the first check of all has a tick from before: %v", p.Tick)
			}
		}
	})
}

// TestSecretsWithoutProvider: agents report that a check did not run, instead of running it with empty variables.
func TestSecretsWithoutProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheck("db", 10, func(c *resource.CheckConfig) { c.Secrets = []resource.Secret{{Name: "PASSWORD", Secret: "db"}} })
		q := newBed(t, nil, c).until(20 * time.Second)[0].Request.Request
		if q.Config.Command != noSecretsCommand || len(q.Config.Secrets) != 1 || c.Command != "true" {
			t.Errorf("asks for %q with secrets %v; the definition says %q", q.Config.Command, q.Config.Secrets, c.Command)
		}
		out, err := exec.Command("sh", "-c", q.Config.Command).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(string(out), "no secrets provider") {
			t.Errorf("the command answers %q, %v", out, err)
		}
	})
}

func TestSubduedTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, newCheck("haproxy", 10, func(c *resource.CheckConfig) {
			c.RoundRobin = true
			c.Subdues = []resource.TimeWindowRepeated{
				{Begin: "nonsense", End: "2000-01-01T00:00:25Z"},
				{Begin: "2000-01-01T00:00:10Z", End: "2000-01-01T00:00:36Z"},
			}
		}))
		got := b.until(59 * time.Second)
		var at []int64
		for _, p := range got {
			at = append(at, p.at.Milliseconds())
		}
		if !slices.Equal(at, []int64{7000, 37000, 47000, 57000}) {
			t.Fatalf("published at %v", at)
		}
		if n := b.metric(t, "lapwing_schedule_subdued_total"); n != 2 {
			t.Errorf("%v subdued, want 2", n)
		}
		if n := b.metric(t, "lapwing_schedule_requests_total"); n != 4 {
			t.Errorf("%v requests, want 4", n)
		}
		if n := b.metric(t, "lapwing_schedule_lateness_seconds"); n != 4 {
			t.Errorf("%v observations of lateness, want 4", n)
		}
		if !strings.Contains(b.log.String(), `msg="subdue is ignored"`) {
			t.Errorf("log: %s", &b.log)
		}
	})
}

// TestPause blocks the scheduler for longer than an interval.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, newCheck("haproxy", 10), newCheck("check-disk", 2))
		var once sync.Once
		b.onPublish(func(r Request) {
			if r.Request.Config.Metadata.Name == "haproxy" {
				once.Do(func() { time.Sleep(36_500 * time.Millisecond) }) // from 7 to 43.5
			}
		})
		// Of the ticks of haproxy at 17, 27 and 37 the newest runs, late; so does one of check-disk's 18.
		got := b.until(43_510 * time.Millisecond)
		late := got[len(got)-2:]
		slices.SortFunc(late, func(x, y published) int {
			return strings.Compare(x.Request.Request.Config.Metadata.Name, y.Request.Request.Config.Metadata.Name)
		})
		for i, want := range []struct {
			name   string
			issued int64
		}{{"check-disk", 43}, {"haproxy", 43}} {
			p := late[i]
			if p.Request.Request.Config.Metadata.Name != want.name || p.at.Milliseconds() != 43_500 || p.Request.Request.Issued != b.began.Unix()+want.issued {
				t.Errorf("late request %d: %s at %s issued %d", i, p.Request.Request.Config.Metadata.Name, p.at, p.Request.Request.Issued-b.began.Unix())
			}
		}
		if len(got) != 1+3+2 {
			t.Errorf("%d requests, want 4 before the pause and 2 right after", len(got))
		}
		if n := b.metric(t, "lapwing_schedule_missed_total"); n != 2+17 {
			t.Errorf("%v missed, want 19", n)
		}
		b.want(t, 47*time.Second, "check-disk@44.000", "check-disk@46.000", "haproxy@47.000")
	})
}

func TestClockSteps(t *testing.T) {
	for _, tc := range []struct {
		name   string
		step   time.Duration
		wake   bool // otherwise the scheduler looks at the clock within a second
		missed float64
		want   []string
	}{
		{"forward by less than the interval", 30 * time.Second, false, 0, []string{"haproxy@47.000"}},
		{"forward by days", 48 * time.Hour, false, 2879, []string{"haproxy@18.000", "haproxy@77.000"}},
		{"back", -48 * time.Hour, false, 0, []string{"haproxy@77.000"}},
		// A tick of a moment ago does not repeat, though the clock shows its time again.
		{"back by a bit", -900 * time.Millisecond, true, 0, []string{"haproxy@77.900"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var step time.Duration
				b := newBed(t, func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return time.Now().Add(step)
				}, newCheck("haproxy", 60))
				before := b.until(17_700 * time.Millisecond)
				if len(before) != 1 || before[0].at.Milliseconds() != 17_000 {
					t.Fatalf("published %v", before)
				}
				mu.Lock()
				step = tc.step
				mu.Unlock()
				if tc.wake {
					b.put(newCheck("unpublished", 1, func(c *resource.CheckConfig) { c.Publish = false }))
				}
				got := b.until(79 * time.Second)
				issued := before[0].Request.Request.Issued
				var at []string
				for _, p := range got {
					at = append(at, fmt.Sprintf("haproxy@%.3f", p.at.Seconds()))
					if p.Request.Request.Issued <= issued {
						t.Errorf("issued %d after %d", p.Request.Request.Issued, issued)
					}
					issued = p.Request.Request.Issued
				}
				if !slices.Equal(at, tc.want) {
					t.Errorf("published %v, want %v", at, tc.want)
				}
				if n := b.metric(t, "lapwing_schedule_missed_total"); n != tc.missed {
					t.Errorf("%v missed, want %v", n, tc.missed)
				}
			})
		})
	}
}

// TestClockBackWithManyChecks sets the clock back so that the order of the checks changes.
func TestClockBackWithManyChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var step time.Duration
		var checks []*resource.CheckConfig
		for n := range uint32(30) {
			checks = append(checks, newCheck(fmt.Sprintf("check-%d", n), 7+n))
		}
		b := newBed(t, func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(step)
		}, checks...)
		b.until(100 * time.Second)
		mu.Lock()
		step = -100_003 * time.Second
		mu.Unlock()
		b.until(110 * time.Second) // a second passes before it is noticed
		runs := map[string]uint32{}
		for _, p := range b.until(610 * time.Second) {
			c := p.Request.Request.Config
			runs[c.Metadata.Name]++
			at := b.began.Add(p.at + step).UnixNano()
			if next := interval(t, c).Next(at - 1); next != at {
				t.Errorf("%s ran %s before its time", c.Metadata.Name, time.Duration(next-at))
			}
		}
		for _, c := range checks {
			if n, least := runs[c.Metadata.Name], 500/c.Interval; n < least || n > least+1 {
				t.Errorf("%s with interval %d ran %d times in 500 s", c.Metadata.Name, c.Interval, n)
			}
		}
	})
}

// TestClockBackWhileFiring sets the clock back between two checks that are due together.
func TestClockBackWhileFiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var step time.Duration
		b := newBed(t, func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(step)
		}, newCheck("haproxy", 10), newCheck("haproxy", 10, func(c *resource.CheckConfig) { c.Metadata.Namespace = "other" }))
		b.onPublish(func(Request) {
			mu.Lock()
			defer mu.Unlock()
			step = -time.Hour
		})
		if got := b.until(30 * time.Second); len(got) != 6 {
			t.Errorf("%d requests in 30 s, want 6", len(got))
		}
		if n := b.metric(t, "lapwing_schedule_missed_total"); n != 0 {
			t.Errorf("%v missed", n)
		}
	})
}

func TestCronRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil,
			cronCheck("hourly", "@hourly"),
			cronCheck("tokyo", "CRON_TZ=Asia/Tokyo 30 10 * * *"),
			cronCheck("never", "0 0 31 2 *"),
			cronCheck("every", "@every 90m"))
		b.want(t, 3*time.Hour+time.Minute, "every@2108.000", "hourly@3600.000", "tokyo@5400.000", "hourly@7200.000", "every@7508.000", "hourly@10800.000")
		b.until(23*time.Hour + time.Minute)
		b.want(t, 26*time.Hour, "every@83108.000", "hourly@86400.000", "every@88508.000", "hourly@90000.000", "tokyo@91800.000", "hourly@93600.000")
	})
}

func TestLifecycle(t *testing.T) {
	if _, err := New(Options{Publish: func(Request) {}}); err == nil {
		t.Error("options without Config were accepted")
	}
	if _, err := newScheduler(Options{}, &memory{}); err == nil {
		t.Error("options without Publish were accepted")
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := newScheduler(Options{Publish: func(Request) {}}, &memory{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop before start: %v", err)
		}
		if err := s.Start(t.Context()); err == nil {
			t.Error("start after stop succeeded")
		}
		b := newBed(t, nil, newCheck("haproxy", 1))
		if err := b.Start(t.Context()); err == nil {
			t.Error("second start succeeded")
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _ = b.Stop() })
		}
		wg.Wait()
		b.want(t, time.Minute)
		if b.defs.tell != nil {
			t.Error("the stopped scheduler still listens to changes")
		}
	})
}

// TestStore runs the scheduler on a real store, in real time.
func TestStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := testconfig.Store(t)
	put := func(c *resource.CheckConfig) {
		t.Helper()
		if err := config.Put(ctx, cfg, config.Checks, c); err != nil {
			t.Fatal(err)
		}
	}
	requests := make(chan Request, 100)
	s, err := New(Options{Config: cfg, Publish: func(r Request) { requests <- r }})
	if err != nil {
		t.Fatal(err)
	}
	put(newCheck("before", 1))
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	await := func(name, command string) {
		t.Helper()
		for {
			select {
			case r := <-requests:
				if c := r.Request.Config; c.Metadata.Name == name && c.Command == command {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no request for %s %s", name, command)
			}
		}
	}
	await("before", "true")
	put(newCheck("after", 1))
	await("after", "true")
	put(newCheck("before", 1, func(c *resource.CheckConfig) { c.Command = "false" }))
	await("before", "false")
}
