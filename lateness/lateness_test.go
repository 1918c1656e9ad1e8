package lateness

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// bed is a running Watcher over definitions and events in memory.
type bed struct {
	*Watcher
	t     *testing.T
	began time.Time
	reg   *prometheus.Registry

	mu       sync.Mutex // guards the fields below
	snapshot *config.Snapshot
	written  map[resource.Name]time.Time
	pairs    map[state.Key]state.Pair
	without  []string      // subscriptions that no agent has
	heard    time.Time     // since when this backend hears
	others   time.Duration // what the other members answer
	idle     bool          // no entity matches
	unsure   bool          // it is not known how many entities match
	asked    int           // questions about agents
	acts     bool
	refused  string // the names of events with this are refused
	reports  []string
}

// newBed makes a Watcher and starts it. It must be called in a synctest bubble.
func newBed(t *testing.T, checks ...*resource.CheckConfig) *bed {
	b := &bed{
		t: t, began: time.Now(), snapshot: config.Empty(), written: map[resource.Name]time.Time{}, pairs: map[state.Key]state.Pair{},
		others: 1000 * time.Hour, acts: true,
	}
	b.heard = b.began.Add(-1000 * time.Hour)
	for _, ns := range []string{"default", "other"} {
		b.snapshot = config.With(b.snapshot, config.Namespaces, &resource.Namespace{Name: ns})
	}
	for _, c := range checks {
		b.put(c)
	}
	b.restart()
	t.Cleanup(func() { _ = b.Watcher.Stop() })
	return b
}

// restart replaces the Watcher with that of another process.
func (b *bed) restart() {
	if b.Watcher != nil {
		_ = b.Watcher.Stop()
	}
	b.reg = prometheus.NewRegistry()
	var err error
	b.Watcher, err = New(Options{
		Snapshot: func() *config.Snapshot { b.mu.Lock(); defer b.mu.Unlock(); return b.snapshot },
		Written: func(namespace, check string) time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.written[resource.Name{Namespace: namespace, Name: check}]
		},
		Runs: NewRuns(1), State: b, HeardFor: func(now time.Time) time.Duration { b.mu.Lock(); defer b.mu.Unlock(); return now.Sub(b.heard) },
		Agents: b.agents, Proxies: func(*resource.CheckConfig) (int, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.idle || b.unsure {
				return 0, !b.unsure
			}
			return 1, true
		},
		Acts:   func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.acts },
		Report: b.report, Registerer: b.reg,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

func (b *bed) agents(_ context.Context, subscriptions []resource.Name) Agents {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	a := Agents{HeardFor: b.others}
	for _, s := range subscriptions {
		if slices.Contains(b.without, s.Name) {
			a.Without = append(a.Without, s)
		}
	}
	return a
}

func (b *bed) report(_ context.Context, namespace, check string, status uint32, output string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused != "" && strings.Contains(check, b.refused) {
		return errors.New("the disk is full")
	}
	k := state.Key{Namespace: namespace, Entity: resource.BackendEntity, Check: check}
	b.pairs[k] = state.Pair{Namespace: namespace, Entity: k.Entity, Check: check, Status: status}
	b.reports = append(b.reports, fmt.Sprintf("%s/%s %d %s", namespace, check, status, output))
	return nil
}

func (b *bed) Pairs(namespace string) iter.Seq[state.Pair] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []state.Pair
	for k, pair := range b.pairs {
		if namespace == "" || k.Namespace == namespace {
			list = append(list, pair)
		}
	}
	return slices.Values(list)
}

func (b *bed) PairsOf(namespace, entity string) (list []state.Pair) {
	for pair := range b.Pairs(namespace) {
		if pair.Entity == entity {
			list = append(list, pair)
		}
	}
	return list
}

// set changes the bed.
func (b *bed) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bed) put(c *resource.CheckConfig) {
	b.set(func() {
		b.snapshot = config.With(b.snapshot, config.Checks, c)
		b.written[resource.NameOf(&c.Metadata)] = time.Now()
	})
}

// keepOnly deletes all checks but some.
func (b *bed) keepOnly(checks ...*resource.CheckConfig) {
	b.set(func() {
		sn := config.Empty()
		for ns := range config.List(b.snapshot, config.Namespaces, "") {
			sn = config.With(sn, config.Namespaces, ns)
		}
		for _, c := range checks {
			sn = config.With(sn, config.Checks, c)
		}
		b.snapshot = sn
	})
}

// ran folds the result of a run on an entity.
func (b *bed) ran(entity string, c *resource.CheckConfig) {
	now := time.Now()
	ns, name := c.Metadata.Namespace, c.Metadata.Name
	b.set(func() {
		b.pairs[state.Key{Namespace: ns, Entity: entity, Check: name}] = state.Pair{
			Namespace: ns, Entity: entity, Check: name, Published: c.Publish, Ran: now.Unix(), Executed: now.Unix(),
			Traits: resource.TraitsOfEvent(&resource.Event{Check: resource.CheckOf(c)}),
		}
	})
	b.opts.Runs.Follow(&state.Applied{Namespace: ns, Entity: entity, Check: name, Received: now.UnixMilli(), Ran: true})
}

// runsUntil has a check run in its interval up to a time since the begin.
func (b *bed) runsUntil(end time.Duration, c *resource.CheckConfig) {
	for time.Since(b.began) < end {
		b.ran("web1", c)
		time.Sleep(min(time.Duration(c.Interval)*time.Second, end-time.Since(b.began))) // on the clock of the bubble
	}
}

// until sleeps until a time since the begin, and a little longer, so that the look at that time has ended.
func (b *bed) until(at time.Duration) {
	time.Sleep(at + time.Millisecond - time.Since(b.began)) // on the clock of the bubble
	synctest.Wait()
}

// wantReports compares the events that were made since the last call, each with the begin of its text.
func (b *bed) wantReports(when string, want ...string) {
	b.t.Helper()
	b.mu.Lock()
	got := b.reports
	b.reports = nil
	b.mu.Unlock()
	if len(got) != len(want) {
		b.t.Errorf("%s: events %q, want %q", when, got, want)
		return
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			b.t.Errorf("%s: event %q, want %q", when, got[i], want[i])
		}
	}
}

func (b *bed) wantSummary(when string, c *resource.CheckConfig, overdue int, summary string) {
	b.t.Helper()
	l := b.Of()(c)
	if l.Overdue != overdue || l.Summary != summary || (l.Since > 0) != (overdue > 0) {
		b.t.Errorf("%s: %+v, want overdue by %d: %s", when, l, overdue, summary)
	}
}

func (b *bed) wantMetrics(when, want string) {
	b.t.Helper()
	help := `# HELP lapwing_check_lateness_seconds How long ago the first run of a published check was due that is missing; 0 if none is. By namespace and check.
# TYPE lapwing_check_lateness_seconds gauge
# HELP lapwing_checks_late Published checks of which at least one run is missing.
# TYPE lapwing_checks_late gauge
# HELP lapwing_check_without_agent 1 for each published check none of whose subscriptions a connected agent has, on any member. By namespace and check.
# TYPE lapwing_check_without_agent gauge
`
	if err := testutil.GatherAndCompare(b.reg, strings.NewReader(help+want)); err != nil {
		b.t.Errorf("%s: %v", when, err)
	}
}

// minutely is a check that runs each minute, for 10 s at most.
func minutely(name string, change ...func(*resource.CheckConfig)) *resource.CheckConfig {
	c := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Command: "true", Interval: 60, Timeout: 10, Publish: true,
		Subscriptions: []string{"web"},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// TestStops: a check runs for five minutes, stops, and runs again.
func TestStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := minutely("disk")
		b := newBed(t, c)
		b.wantSummary("before the first run", c, 0, "never ran")
		b.runsUntil(5*time.Minute, c)
		b.wantReports("while it runs")
		b.wantSummary("while it runs", c, 0, "")
		last := b.began.Add(4 * time.Minute)
		b.until(5*time.Minute + 10*time.Second)
		b.wantSummary("after the timeout of a run", c, 1, "overdue by 1 interval")
		b.wantMetrics("late by a run", `lapwing_check_lateness_seconds{check="disk",namespace="default"} 10.001
lapwing_checks_late 1
`)
		b.until(7 * time.Minute)
		b.wantReports("two runs are missing")
		b.until(7*time.Minute + 10*time.Second)
		b.wantReports("three runs are missing", "default/late-check-disk 1 No agent has run the check disk since "+clock(last.UnixNano())+
			": it is overdue by 3 intervals. Agents with the subscription web are connected, and none has sent a result. Run it once with")
		b.until(14 * time.Minute)
		b.wantReports("as before")
		b.until(14*time.Minute + 10*time.Second)
		b.wantReports("ten runs are missing", "default/late-check-disk 2 No agent has run the check disk since")
		b.ran("web2", c)
		b.until(14*time.Minute + 20*time.Second)
		b.wantReports("it runs", "default/late-check-disk 0 The check disk runs again: its newest result came at 2000-01-01 00:14:10 UTC.")
		b.wantSummary("it runs", c, 0, "")
		b.wantMetrics("it runs", `lapwing_check_lateness_seconds{check="disk",namespace="default"} 0
lapwing_checks_late 0
`)
	})
}

// TestNeverRan: the reasons why no agent runs a check.
func TestNeverRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := minutely("one", func(c *resource.CheckConfig) { c.Subscriptions = []string{"gone"} })
		two := minutely("two", func(c *resource.CheckConfig) { c.Subscriptions = []string{"gone", "lost"} })
		some := minutely("some", func(c *resource.CheckConfig) { c.Subscriptions = []string{"gone", "web"} })
		none := minutely("none", func(c *resource.CheckConfig) { c.Subscriptions = nil })
		off := minutely("off", func(c *resource.CheckConfig) { c.Publish = false })
		b := newBed(t, one, two, some, none, off)
		b.set(func() { b.without = []string{"gone", "lost"} })
		b.until(11 * time.Second)
		b.wantSummary("at once", one, 0, "never ran: no agent has subscription gone")
		b.wantSummary("at once", two, 0, "never ran: no agent has one of the subscriptions gone, lost")
		b.wantSummary("at once", some, 0, "never ran")
		b.wantSummary("at once", none, 0, "never ran: it has no subscriptions")
		b.wantSummary("at once", off, 0, "not published")
		if l := b.Of()(two); !slices.Equal(l.WithoutAgent, two.Subscriptions) {
			t.Errorf("%+v", l)
		}
		b.until(3*time.Minute + 10*time.Second)
		b.wantReports("three runs are missing",
			"default/late-check-none 1 No agent has ever run the check none, as far as its events show: it is overdue by 3 intervals. It has no subscriptions",
			"default/late-check-one 1 No agent has ever run the check one, as far as its events show: it is overdue by 3 intervals. No connected agent has the "+
				"subscription gone. Start an agent with that, or give the check a subscription that agents have: lapwing check set-subscriptions one NAME",
			"default/late-check-some 1 No agent has ever run the check some, as far as its events show: it is overdue by 3 intervals. Agents with one of the "+
				"subscriptions gone, web are connected",
			"default/late-check-two 1 No agent has ever run the check two, as far as its events show: it is overdue by 3 intervals. No connected agent has one "+
				"of the subscriptions gone, lost.")
		b.wantSummary("late", one, 3, "never ran: no agent has subscription gone")
		b.wantSummary("late", some, 3, "never ran, overdue by 3 intervals")
		b.wantMetrics("late", `lapwing_check_lateness_seconds{check="none",namespace="default"} 130.001
lapwing_check_lateness_seconds{check="one",namespace="default"} 130.001
lapwing_check_lateness_seconds{check="some",namespace="default"} 130.001
lapwing_check_lateness_seconds{check="two",namespace="default"} 130.001
lapwing_check_without_agent{check="one",namespace="default"} 1
lapwing_check_without_agent{check="two",namespace="default"} 1
lapwing_checks_late 4
`)
		b.set(func() { b.without = []string{"lost"} })
		b.until(8 * time.Minute)
		b.wantReports("the reason has changed a moment ago")
		b.until(9 * time.Minute)
		b.wantReports("the reason has changed",
			"default/late-check-one 1 No agent has ever run the check one, as far as its events show: it is overdue by 8 intervals. Agents with",
			"default/late-check-two 1 No agent has ever run the check two, as far as its events show: it is overdue by 8 intervals. Agents with")
		b.keepOnly(one)
		b.until(9*time.Minute + 10*time.Second)
		b.wantReports("most are deleted", "default/late-check-none 0 The check is not defined any more", "default/late-check-some 0 ", "default/late-check-two 0 ")
		b.put(minutely("one", func(c *resource.CheckConfig) { c.Publish = false }))
		b.until(9*time.Minute + 20*time.Second)
		b.wantReports("not published any more", "default/late-check-one 0 The check is not defined any more, or not published.")
	})
}

// TestChanged: another schedule begins anew, and another command does not.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := minutely("disk")
		b := newBed(t, c)
		b.runsUntil(time.Minute, c)
		b.until(4 * time.Minute)
		c = minutely("disk", func(c *resource.CheckConfig) { c.Command = "false" })
		b.put(c)
		b.until(4*time.Minute + time.Second)
		b.wantSummary("another command", c, 3, "overdue by 3 intervals")
		b.until(4*time.Minute + 10*time.Second)
		b.wantReports("another command", "default/late-check-disk 1 ")
		c = minutely("disk", func(c *resource.CheckConfig) { c.Interval = 30 })
		b.put(c)
		b.until(4*time.Minute + 15*time.Second)
		b.wantSummary("another interval", c, 0, "")
		b.until(4*time.Minute + 20*time.Second)
		b.wantReports("another interval", "default/late-check-disk 0 The schedule of the check disk was changed at 2000-01-01 00:04:10 UTC")
		b.until(4*time.Minute + 51*time.Second)
		b.wantSummary("another interval has passed", c, 1, "overdue by 1 interval")
		c = minutely("disk", func(c *resource.CheckConfig) { c.Interval, c.Subscriptions = 30, []string{"db"} })
		b.put(c)
		b.until(5 * time.Minute)
		b.wantSummary("other subscriptions", c, 0, "")
	})
}

// TestSilenceOfTheBackend: nothing is late while the backend cannot hear, nor soon after it.
func TestSilenceOfTheBackend(t *testing.T) {
	deaf := func(b *bed) { b.set(func() { b.heard = b.began.Add(1000 * time.Hour) }) }
	hears := func(b *bed) { b.set(func() { b.heard = time.Now() }) }
	synctest.Test(t, func(t *testing.T) {
		c := minutely("disk")
		b := newBed(t, c)
		b.runsUntil(time.Minute, c)
		deaf(b)
		b.until(time.Hour)
		b.wantSummary("deaf", c, 0, "")
		b.wantMetrics("deaf", "lapwing_checks_late 0\n")
		hears(b)
		b.until(time.Hour + 179*time.Second)
		b.wantSummary("agents connect", c, 0, "")
		b.wantMetrics("agents connect", "lapwing_checks_late 0\n")
		b.wantReports("agents connect")
		b.until(time.Hour + 3*time.Minute)
		b.wantSummary("all agents are connected", c, 62, "overdue by 62 intervals")
		b.until(time.Hour + 3*time.Minute + 10*time.Second)
		b.wantReports("all agents are connected", "default/late-check-disk 2 ")
	})
	for _, cron := range []string{"", "TZ=UTC 0 */2 * * *"} { // a run of two hours
		synctest.Test(t, func(t *testing.T) {
			c := minutely("backup", func(c *resource.CheckConfig) { c.Interval, c.Cron = 2*3600, cron })
			b := newBed(t, c)
			b.ran("web1", c)
			b.until(time.Minute)
			deaf(b)
			b.until(6*time.Hour + 20*time.Minute)
			hears(b)
			b.until(7*time.Hour + 59*time.Minute)
			b.wantSummary("no tick has passed yet", c, 0, "")
			b.until(8*time.Hour + time.Second)
			b.wantReports("no tick has passed yet")
			b.until(8*time.Hour + 21*time.Minute)
			what := "interval"
			if cron != "" {
				what = "run"
			}
			b.wantSummary("a tick has passed", c, 4, "overdue by 4 "+what+"s")
			b.wantReports("a tick has passed", "default/late-check-backup 1 ")
		})
	}
	synctest.Test(t, func(t *testing.T) { // another member does not hear
		c := minutely("disk")
		b := newBed(t, c)
		b.set(func() { b.others = 0 })
		b.ran("web1", c)
		b.until(20 * time.Minute)
		b.wantSummary("another member does not hear", c, 0, "")
		b.wantMetrics("another member does not hear", "lapwing_checks_late 0\n")
		if late, err := b.Events(t.Context(), ""); err != nil || len(late) > 0 {
			t.Errorf("another member does not hear: %v, %v", late, err)
		}
		b.wantReports("another member does not hear")
		b.set(func() { b.others = time.Hour })
		b.until(21 * time.Minute)
		b.wantReports("all hear", "default/late-check-disk 2 ")
		b.wantSummary("all hear", c, 20, "overdue by 20 intervals")
	})
}

// TestAgentsConnectAfterAStart: short intervals are not late while agents connect, but those whose results came may be.
func TestAgentsConnectAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		often := func(c *resource.CheckConfig) { c.Interval, c.Timeout = 5, 1 }
		silent, back := minutely("silent", often), minutely("back", often)
		b := newBed(t, silent, back)
		b.ran("web1", silent)
		b.until(10 * time.Second)
		b.restart()
		b.until(time.Minute)
		b.ran("web2", back)
		b.until(2 * time.Minute)
		b.wantSummary("agents connect", silent, 0, "")
		b.wantSummary("its result has come", back, 10, "overdue by 10 intervals")
		b.until(3 * time.Minute)
		b.wantReports("agents connect")
		b.until(3*time.Minute + 30*time.Second)
		b.wantReports("agents are connected", "default/late-check-back 2 ", "default/late-check-silent 2 ")
	})
}

// TestRestart: another process knows from the state when checks last ran, and which events fail.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, fine := minutely("disk"), minutely("fine", func(c *resource.CheckConfig) { c.Interval = 3600 })
		b := newBed(t, c, fine)
		b.ran("web1", c)
		b.ran("web1", fine)
		b.until(5 * time.Minute)
		b.wantReports("late", "default/late-check-disk 1 ")
		b.restart()
		if l := b.Of()(fine); l.LastRun != b.began.Unix() {
			t.Errorf("last run %d, want %d", l.LastRun, b.began.Unix())
		}
		b.until(7*time.Minute + 50*time.Second)
		b.wantReports("it is not known yet")
		b.wantMetrics("it is not known yet", `lapwing_check_lateness_seconds{check="fine",namespace="default"} 0
lapwing_checks_late 0
`)
		b.until(8*time.Minute + 30*time.Second)
		b.wantSummary("known", c, 8, "overdue by 8 intervals")
		b.until(9 * time.Minute)
		b.wantReports("as before")
		b.set(func() { b.acts = false })
		b.ran("web1", c)
		b.until(9*time.Minute + 20*time.Second)
		b.wantReports("another member acts")
		b.set(func() { b.acts = true })
		b.until(9*time.Minute + 30*time.Second)
		b.wantReports("this one acts", "default/late-check-disk 0 The check disk runs again")
	})
	synctest.Test(t, func(t *testing.T) { // the reason changes after a restart
		b := newBed(t, minutely("disk"))
		b.until(4 * time.Minute)
		b.restart()
		b.until(8 * time.Minute)
		b.wantReports("late", "default/late-check-disk 1 ")
		b.set(func() { b.without = []string{"web"} })
		b.until(9*time.Minute + 50*time.Second)
		b.wantReports("the reason has changed a moment ago")
		b.until(13 * time.Minute)
		b.wantReports("the reason has changed", "default/late-check-disk 2 No agent has ever run the check disk, as far as its events show: it is "+
			"overdue by 10 intervals. No connected agent has the subscription web.")
	})
	synctest.Test(t, func(t *testing.T) { // it was not published for days
		b := newBed(t)
		c := minutely("daily", func(c *resource.CheckConfig) { c.Interval, c.Publish = 24*3600, false })
		b.put(c)
		b.ran("web1", c)
		b.until(11 * 24 * time.Hour)
		c = minutely("daily", func(c *resource.CheckConfig) { c.Interval = 24 * 3600 })
		b.put(c)
		b.until(11*24*time.Hour + 12*time.Hour)
		b.restart()
		b.until(11*24*time.Hour + 25*time.Hour)
		b.wantSummary("no interval has passed since the restart", c, 0, "")
		b.until(11*24*time.Hour + 37*time.Hour)
		b.wantSummary("published again", c, 1, "overdue by 1 interval")
		b.wantReports("published again")
	})
}

// TestProxies: a check without matching entities is not late, and one of which the first begins to match has a whole
// interval.
func TestProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := minutely("ping", func(c *resource.CheckConfig) { c.ProxyRequests = &resource.ProxyRequests{} })
		b := newBed(t, c)
		b.set(func() { b.idle = true })
		b.until(10 * time.Minute)
		b.wantSummary("no entity", c, 0, "no entity matches its proxy requests")
		b.set(func() { b.idle = false })
		b.until(11 * time.Minute)
		b.wantSummary("an entity", c, 0, "never ran")
		b.until(11*time.Minute + 20*time.Second)
		b.wantSummary("late", c, 1, "never ran, overdue by 1 interval")
		b.until(14 * time.Minute)
		b.wantReports("late", "default/late-check-ping 1 ")
		b.set(func() { b.idle = true })
		b.until(14*time.Minute + 10*time.Second)
		b.wantReports("no entity", "default/late-check-ping 0 No entity matches the proxy requests of the check ping.")
	})
	synctest.Test(t, func(t *testing.T) { // before the first tick
		c := minutely("ping", func(c *resource.CheckConfig) { c.ProxyRequests = &resource.ProxyRequests{} })
		b := newBed(t, c)
		b.set(func() { b.unsure = true })
		b.ran("router", c)
		b.until(20 * time.Minute)
		b.wantSummary("not known", c, 0, "")
		b.wantMetrics("not known", "lapwing_checks_late 0\n")
		b.wantReports("not known")
		if late, err := b.Events(t.Context(), ""); err != nil || len(late) > 0 {
			t.Errorf("not known: %v, %v", late, err)
		}
		b.set(func() { b.unsure = false })
		b.until(21 * time.Minute)
		b.wantReports("known", "default/late-check-ping 2 ")
		b.set(func() { b.unsure = true })
		b.until(22 * time.Minute)
		b.wantReports("not known again")
	})
}

// TestMany: after a power cut, one event counts the late checks of a namespace.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, other := minutely("first"), minutely("other", func(c *resource.CheckConfig) { c.Metadata.Namespace = "other" })
		b := newBed(t, first, other)
		var many []*resource.CheckConfig
		for i := range 10_000 {
			many = append(many, minutely(fmt.Sprintf("c%04d", i)))
		}
		b.until(time.Minute)
		for _, c := range many {
			b.put(c)
		}
		b.set(func() { b.without = []string{"web"} })
		b.until(3*time.Minute + 10*time.Second)
		b.wantReports("two are late", "default/late-check-first 1 ", "other/late-check-other 1 ")
		b.until(10 * time.Minute)
		b.wantReports("all are late", "default/late-checks 1 10001 of 10001 published checks are late: no agent has run them for 3 or more of their "+
			"intervals. For 10001 of them no agent with their subscriptions is connected. Late are: c0000, c0001, c0002, c0003, c0004, c0005, c0006, "+
			"c0007, c0008, c0009, and 9991 more. See with")
		b.until(15 * time.Minute)
		b.wantReports("ten runs are missing", "default/late-check-first 2 ", "default/late-checks 2 ", "other/late-check-other 2 ")
		for _, c := range many[:6000] {
			b.ran("web1", c)
		}
		b.until(15*time.Minute + 30*time.Second)
		b.wantReports("more than half run", "default/late-checks 2 4001 of 10001 ")
		for _, c := range many[:9988] {
			b.ran("web1", c)
		}
		b.until(15*time.Minute + 40*time.Second)
		b.wantReports("fewer are late than begin the count, and more than end it")
		for _, c := range many {
			b.ran("web1", c)
		}
		b.until(15*time.Minute + 50*time.Second)
		b.wantReports("nearly all run", "default/late-checks 0 There are few late checks")
		b.ran("web1", first)
		b.ran("web1", other)
		b.until(16 * time.Minute)
		b.wantReports("all run", "default/late-check-first 0 ", "other/late-check-other 0 ")
	})
}

// TestShortInterval: a check that runs often is silent for a minute before it is reported.
func TestShortInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := minutely("fast", func(c *resource.CheckConfig) { c.Interval, c.Timeout = 2, 1 })
		b := newBed(t)
		b.until(10 * time.Minute)
		b.put(c)
		b.until(10*time.Minute + 50*time.Second)
		b.wantSummary("late", c, 20, "never ran, overdue by 20 intervals")
		b.wantReports("late for less than a minute")
		b.until(11*time.Minute + 10*time.Second)
		b.wantReports("late for a minute", "default/late-check-fast 2 ")
	})
}

// TestOperatorResolves: an event that an operator has resolved comes again when it gets worse, and for the next time.
func TestOperatorResolves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := minutely("disk")
		b := newBed(t, c)
		b.until(4 * time.Minute)
		b.wantReports("late", "default/late-check-disk 1 ")
		resolve := func() {
			k := state.Key{Namespace: "default", Entity: resource.BackendEntity, Check: "late-check-disk"}
			b.set(func() { b.pairs[k] = state.Pair{Namespace: k.Namespace, Entity: k.Entity, Check: k.Check} })
		}
		resolve()
		b.until(10 * time.Minute)
		b.wantReports("resolved")
		b.until(11 * time.Minute)
		b.wantReports("it is worse", "default/late-check-disk 2 ")
		resolve()
		b.until(20 * time.Minute)
		b.wantReports("resolved again")
		b.ran("web1", c)
		b.until(24 * time.Minute)
		b.wantReports("it ran and is late again", "default/late-check-disk 1 ")
	})
}

// TestRefusedReport: an event that could not be made is tried again, and stops no other one.
func TestRefusedReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, minutely("disk"), minutely("load"))
		b.set(func() { b.refused = "disk" })
		b.until(5 * time.Minute)
		b.wantReports("one is refused", "default/late-check-load 1 ")
		b.set(func() { b.refused = "" })
		b.until(5*time.Minute + 10*time.Second)
		b.wantReports("taken", "default/late-check-disk 1 ")
	})
}

// TestClockAhead: a result that another backend has received in the future counts as received now.
func TestClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := minutely("disk")
		b := newBed(t, c)
		b.opts.Runs.Follow(&state.Applied{Namespace: "default", Check: "disk", Ran: true, Received: b.began.Add(time.Hour).UnixMilli()})
		b.until(3 * time.Minute)
		b.wantSummary("late", c, 2, "overdue by 2 intervals")
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := minutely("disk")
		turns := minutely("turns", func(c *resource.CheckConfig) { c.RoundRobin = true })
		named := minutely("named", func(c *resource.CheckConfig) { c.RoundRobin, c.ProxyEntityName = true, "router" })
		paused, gone := minutely("paused"), minutely("gone")
		cron := minutely("cron", func(c *resource.CheckConfig) { c.Interval, c.Cron, c.Timeout = 0, "TZ=UTC * * * * *", 20 })
		longer := minutely("longer")
		adHoc := minutely("ad-hoc", func(c *resource.CheckConfig) { c.Publish = false })
		b := newBed(t, disk, turns, named, paused, cron, longer)
		b.Watcher.mu.Lock()
		b.Watcher.began = b.began.Add(-time.Hour)
		b.Watcher.mu.Unlock()
		for _, c := range []*resource.CheckConfig{disk, turns, named, paused, gone, cron, longer, adHoc} {
			b.ran("web1", c)
		}
		b.put(minutely("paused", func(c *resource.CheckConfig) { c.Publish = false }))
		b.put(minutely("longer", func(c *resource.CheckConfig) { c.Interval = 3600 }))
		want := func(when string, want ...string) {
			t.Helper()
			var got []string
			late, err := b.Events(t.Context(), "default")
			if err != nil {
				t.Fatal(err)
			}
			for k, l := range late {
				got = append(got, fmt.Sprintf("%s/%s %s", k.Entity, k.Check, l.Summary))
				if one := b.Event(k); one != l || l.Since == 0 || l.LastRun == 0 {
					t.Errorf("%s: %+v alone is %+v", when, l, one)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		b.until(time.Minute + 9*time.Second)
		want("on time")
		b.ran("web2", disk)
		b.ran("web2", turns)
		b.ran("router", named)
		b.until(2*time.Minute + 11*time.Second)
		want("late", "web1/cron overdue by 1 run", "web1/disk overdue by 2 intervals", "web1/named overdue by 2 intervals")
		if other, err := b.Events(t.Context(), "other"); err != nil || len(other) > 0 {
			t.Errorf("%v, %v", other, err)
		}
		b.until(2*time.Minute + 30*time.Second)
		want("late, by the check", "router/named overdue by 1 interval", "web1/cron overdue by 2 runs", "web1/disk overdue by 2 intervals",
			"web1/named overdue by 2 intervals", "web1/turns overdue by 1 interval", "web2/disk overdue by 1 interval",
			"web2/turns overdue by 1 interval")
		b.set(func() { b.heard = time.Now() })
		b.until(2*time.Minute + 32*time.Second)
		want("deaf")
		if l := b.Event(state.Key{Namespace: "default", Entity: "web1", Check: "none"}); l.Overdue != 0 || l.LastRun != 0 {
			t.Errorf("an event that is not there: %+v", l)
		}
	})
}

// TestCancelledRequests: the lists ask no member, and a search ends with its request.
func TestCancelledRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := minutely("disk")
		b := newBed(t, c)
		b.ran("web1", c)
		b.set(func() { b.without = []string{"web"} })
		b.until(5 * time.Minute)
		asked := b.asked
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if late, err := b.Events(ctx, ""); !errors.Is(err, context.Canceled) || len(late) > 0 {
			t.Errorf("%v, %v", late, err)
		}
		b.wantSummary("late", c, 4, "overdue by 4 intervals: no agent has subscription web")
		b.Event(state.Key{Namespace: "default", Entity: "web1", Check: "disk"})
		if b.asked != asked {
			t.Error("a request has asked the members")
		}
	})
}

// TestStateIsReadAtTheStart: only a start reads all events, and not under the lock of the lists.
func TestStateIsReadAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, minutely("disk"))
		reads := 0
		b.opts.State = counting{b, func() {
			if reads++; !b.Watcher.mu.TryLock() {
				t.Error("the state is read with the lock held")
				return
			}
			b.Watcher.mu.Unlock()
		}}
		b.put(minutely("load"))
		b.Of()
		b.until(time.Minute)
		if reads > 0 {
			t.Errorf("a new check has read all events %d times", reads)
		}
		if _, err := b.Events(t.Context(), ""); err != nil || reads != 1 {
			t.Errorf("%v, %d reads", err, reads)
		}
	})
}

// counting is a State that counts the reads of all events.
type counting struct {
	State
	read func()
}

func (c counting) Pairs(namespace string) iter.Seq[state.Pair] {
	c.read()
	return c.State.Pairs(namespace)
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("options without anything are taken")
	}
	o := Options{
		Snapshot: config.Empty, Written: func(_, _ string) time.Time { return time.Time{} }, Runs: NewRuns(1), State: &bed{},
		HeardFor: func(time.Time) time.Duration { return 0 }, Agents: func(context.Context, []resource.Name) Agents { return Agents{} },
		Proxies: func(*resource.CheckConfig) (int, bool) { return 0, false },
		Report:  func(context.Context, string, string, uint32, string) error { return nil },
	}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(); err != nil { // before Start
		t.Error(err)
	}
	o.Every = -1
	if _, err := New(o); err == nil {
		t.Error("a negative time is taken")
	}
}
