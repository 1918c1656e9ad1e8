package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/lapwing-monitoring/lapwing/internal/testcomputed"
	"github.com/lapwing-monitoring/lapwing/metric/promname"
	"github.com/lapwing-monitoring/lapwing/metric/rulefile"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// ruled is a world whose series are in a TSDB that rules are evaluated over.
type ruled struct {
	*world
	t    *testing.T
	db   *tsdb.DB
	file string
	load map[string]float64 // by host
	full error              // of Submit
	hang bool               // Submit waits for the end of its context
	// takes is how long Submit takes, and underWay how many calls run.
	takes    time.Duration
	underWay int
}

func newRuled(t *testing.T, rules string) *ruled {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &ruled{world: newWorld(), t: t, db: db, file: filepath.Join(t.TempDir(), "rules.yml"), load: map[string]float64{}}
	w.write(rules)
	return w
}

func (w *ruled) write(rules string) {
	w.t.Helper()
	if err := os.WriteFile(w.file, []byte(rules), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// Add implements rulefile.Writer.
func (w *ruled) Add(name []byte, milli int64, v float64) error {
	app := w.db.Appender(context.Background())
	if _, err := app.Append(0, promname.ToLabels(string(name)), milli, v); err != nil {
		return errors.Join(err, app.Rollback())
	}
	return app.Commit()
}

func (w *ruled) Flush() error { return nil }

func (w *ruled) Submit(ctx context.Context, ev *resource.Event) error {
	w.Lock()
	full, hang, takes := w.full, w.hang, w.takes
	w.underWay++
	w.Unlock()
	defer w.Set(func() { w.underWay-- })
	if hang {
		<-ctx.Done()
	}
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	if full != nil {
		return full
	}
	return w.world.Submit(ctx, ev)
}

// member returns the rules of a member with a snapshot of its own.
func (w *ruled) member(acts func() bool) *Rules {
	w.t.Helper()
	r, err := newRules(RulesOptions{
		Patterns: []string{w.file}, Snapshot: filepath.Join(w.t.TempDir(), "alerts.json"), Namespace: "default",
		Engine:    promql.NewEngine(promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, LookbackDelta: time.Minute}),
		Queryable: w.db, Writer: w, Intake: w, Acts: acts, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	}, w)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// run stores the load of the hosts every 5 s for a time.
func (w *ruled) run(d time.Duration) {
	w.t.Helper()
	for range d / (5 * time.Second) {
		for host, v := range w.load {
			if err := w.Add([]byte("load;host="+host), time.Now().UnixMilli(), v); err != nil {
				w.t.Fatal(err)
			}
		}
		testcomputed.Pass(5 * time.Second)
	}
}

func (w *ruled) status(entity, check string) string {
	ev, err := w.Event(state.Key{Namespace: "default", Entity: entity, Check: check})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(ev.Check.Status)
}

func (w *ruled) want(what, entity, check, status string) {
	w.t.Helper()
	if got := w.status(entity, check); got != status {
		w.t.Errorf("%s: %s/%s has status %s, want %s", what, entity, check, got, status)
	}
}

const loadRules = `
groups:
- name: hosts
  interval: 10s
  rules:
  - alert: High
    expr: load > 10
    annotations: {summary: 'load of {{ $labels.host }}'}
  - alert: Long
    expr: load > 10
    for: 2m
    labels: {severity: warning}
`

// TestRulesTakeOver has a second member go on where the first stopped, without its states.
func TestRulesTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuled(t, loadRules+"  - {alert: Gone, expr: load > 10}\n")
		w.load = map[string]float64{"web1": 20, "web2": 20, "web3": 20}
		stop := testcomputed.Start(t, w.member(nil))
		w.run(3 * time.Minute)
		stop()
		for _, check := range []string{"High", "Gone"} {
			w.want("at first", "web1", check, "2")
		}
		w.want("at first", "web1", "Long", "1")
		other := *w.Events[state.Key{Namespace: "default", Entity: "web1", Check: "High"}]
		other.Metadata.Annotations = nil
		stranger := state.Key{Namespace: "default", Entity: "web9", Check: "High"}
		w.Events[stranger] = &other

		w.write(loadRules)
		w.load["web1"] = 1
		w.run(2 * time.Minute)
		second := w.member(nil)
		testcomputed.Start(t, second)
		w.want("before an evaluation", "web1", "High", "2")
		w.run(30 * time.Second)
		for _, check := range []string{"High", "Long", "Gone"} {
			w.want("it has ended", "web1", check, "0")
		}
		w.want("its rule is gone", "web2", "Gone", "0")
		w.want("it goes on", "web2", "High", "2")
		w.want("it is pending", "web2", "Long", "1")
		w.want("a client's event", "web9", "High", "2")
		w.load["web2"] = 1
		w.run(90 * time.Second) // the first value has to leave the lookback
		w.want("it ended while it was pending", "web2", "Long", "0")
		w.want("it ended", "web2", "High", "0")
		w.run(time.Minute)
		w.want("it fires again", "web3", "Long", "1")
		if out := w.Output("web3", "High"); out != "load of web3 (host=web3)" {
			t.Errorf("the output is %q", out)
		}
	})
}

// TestRulesRestart has two alerts in one event. The restart must not resolve it in between.
func TestRulesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuled(t, "groups: [{name: g, interval: 10s, rules: [{alert: High, expr: '{__name__=~\"load|zone\"} > 10'}]}]")
		zone := func(v float64) {
			if err := w.Add([]byte("zone;host=web1;zone=a"), time.Now().UnixMilli(), v); err != nil {
				t.Fatal(err)
			}
		}
		w.load["web1"] = 20
		r := w.member(nil)
		stop := testcomputed.Start(t, r)
		for range 6 {
			zone(20)
			w.run(10 * time.Second)
		}
		w.want("both fire", "web1", "High", "2")
		stop()
		w.Took()
		zone(1)
		next := w.member(nil)
		next.opts.Snapshot = r.opts.Snapshot
		testcomputed.Start(t, next)
		w.run(time.Minute)
		if got := w.Took(); got == "" || strings.Contains(got, "High 0") {
			t.Errorf("after the restart came %q", got)
		}
		if out := w.Output("web1", "High"); out != "host=web1" {
			t.Errorf("the output is %q", out)
		}
	})
}

// TestRulesForAPI shows the groups on a member that evaluates them, and on one that does not.
func TestRulesForAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuled(t, loadRules)
		w.load["web1"] = 20
		acts := false
		r := w.member(func() bool { w.Lock(); defer w.Unlock(); return acts })
		testcomputed.Start(t, r)
		shown := func() string {
			var b strings.Builder
			for _, g := range r.RuleGroups() {
				fmt.Fprintf(&b, "%s %v:", g.Name(), g.Interval())
				for _, a := range r.AlertingRules() {
					fmt.Fprintf(&b, " %s %s %d", a.Name(), a.Health(), len(a.ActiveAlerts()))
				}
			}
			return b.String()
		}
		w.run(time.Minute)
		if got := shown(); got != "hosts 10s: High unknown 0 Long unknown 0" {
			t.Errorf("while another member evaluates: %q", got)
		}
		w.Set(func() { acts = true })
		w.run(time.Minute)
		if got := shown(); got != "hosts 10s: High ok 1 Long ok 1" {
			t.Errorf("while it evaluates: %q", got)
		}
		w.write(strings.Replace(loadRules, "alert: Long", "alert: Longer", 1))
		w.run(time.Minute)
		if got := shown(); got != "hosts 10s: High ok 1 Longer ok 1" {
			t.Errorf("after a change: %q", got)
		}
		w.Set(func() { acts = false })
		w.run(10 * time.Second)
		if got := shown(); got != "hosts 10s: High unknown 0 Longer unknown 0" {
			t.Errorf("when another member has taken over: %q", got)
		}
		w.write(loadRules)
		w.run(time.Minute)
		if got := shown(); got != "hosts 10s: High unknown 0 Long unknown 0" {
			t.Errorf("after a change there: %q", got)
		}
		w.write("groups: 7")
		w.run(time.Minute)
		if got := shown(); got != "hosts 10s: High unknown 0 Long unknown 0" {
			t.Errorf("with a file that is not right: %q", got)
		}
	})
}

// TestRulesAreSentAgain has a log that takes nothing for a while.
func TestRulesAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuled(t, loadRules)
		w.load["web1"], w.full = 20, errors.New("the log takes nothing")
		testcomputed.Start(t, w.member(nil))
		w.run(20 * time.Second)
		w.Set(func() { w.full = nil })
		w.run(5 * time.Second)
		if got := w.Took(); !strings.HasPrefix(got, "web1/High 2") {
			t.Errorf("came %q", got)
		}
	})
}

func TestNewRules(t *testing.T) {
	if _, err := NewRules(RulesOptions{}); err == nil {
		t.Error("it needs nothing")
	}
	r := newRuled(t, loadRules).member(nil)
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// A damaged file of states is passed over.
func TestDamagedSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuled(t, loadRules)
		w.load["web1"] = 20
		r := w.member(nil)
		if err := os.WriteFile(r.opts.Snapshot, []byte("{torn"), 0o600); err != nil {
			t.Fatal(err)
		}
		testcomputed.Start(t, r)
		w.run(20 * time.Second)
		if got := w.Took(); !strings.HasPrefix(got, "web1/High 2") {
			t.Errorf("came %q", got)
		}
	})
}

// A log that takes nothing for long must keep the rules neither from noticing that another member acts, nor from Stop.
func TestSendAgainGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuled(t, loadRules)
		w.Set(func() { w.hang = true })
		r := w.member(nil)
		r.begin(nil)
		for i := range 50 {
			key := eventKey{fmt.Sprint("web", i), "High"}
			r.unsent[key] = r.event(key, rulefile.AlertState{At: time.Now(), Labels: map[string]string{"alertname": "High"}},
				nil)
		}
		begin := time.Now()
		r.sendAgain(t.Context())
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := len(r.unsent); n != 50 {
			t.Errorf("%d events are left", n)
		}
	})
}

// TestStopWithAStuckLog has a log that takes nothing while many alerts fire. Stop must not wait for each of them, and
// their events come after the restart.
func TestStopWithAStuckLog(t *testing.T) {
	const hosts = 20
	for name, wait := range map[string]time.Duration{
		"in an evaluation":                  15 * time.Second,
		"while an event is submitted again": 2 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRuled(t, loadRules)
				for i := range hosts {
					w.load[fmt.Sprint("web", i)] = 20
				}
				w.hang = true
				r := w.member(nil)
				stop := testcomputed.Start(t, r)
				w.run(wait)
				begin := time.Now()
				stop()
				if took := time.Since(begin); took > stopTime {
					t.Errorf("Stop took %v", took)
				}
				if got := w.Took(); got != "" {
					t.Errorf("the log is stuck, and came %q", got)
				}
				w.Set(func() { w.hang = false })
				next := w.member(nil)
				next.opts.Snapshot = r.opts.Snapshot
				testcomputed.Start(t, next)
				w.run(2 * time.Minute)
				for i := range hosts {
					w.want("after the restart", fmt.Sprint("web", i), "High", "2")
				}
			})
		})
	}
}

// TestLastEvents has a slow log: Stop waits for the events of an evaluation that runs.
func TestLastEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuled(t, loadRules)
		w.load["web1"], w.takes = 20, 2*time.Second
		w.run(5 * time.Second)
		stop := testcomputed.Start(t, w.member(nil))
		submits := func() bool { w.Lock(); defer w.Unlock(); return w.underWay > 0 }
		for range 20 {
			if testcomputed.Pass(time.Second); submits() {
				break
			}
		}
		stop()
		w.want("after Stop", "web1", "High", "2")
	})
}
