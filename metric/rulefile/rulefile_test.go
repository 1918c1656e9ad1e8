package rulefile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/metric/promapi"
	"github.com/lapwing-monitoring/lapwing/metric/promname"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store with rules. Its clock is that of a synctest bubble.
type world struct {
	t  *testing.T
	db *tsdb.DB
	o  Options
	e  *Evaluator

	mu     sync.Mutex
	alerts []string // what Alert got, with changes only
	repeat int      // what Alert got without a change
	last   map[string]AlertState
	full   error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db, last: map[string]AlertState{}}
	w.o = Options{Queryable: db, Writer: w, Alert: w.alert, Log: slog.New(slog.DiscardHandler), Interval: 15 * time.Second,
		Engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, LookbackDelta: time.Minute})}
	return w
}

// Add implements Writer: results of rules can be asked for by others.
func (w *world) Add(name []byte, milli int64, v float64) error {
	w.mu.Lock()
	full := w.full
	w.mu.Unlock()
	if full != nil {
		return full
	}
	app := w.db.Appender(context.Background())
	if _, err := app.Append(0, promname.ToLabels(string(name)), milli, v); err != nil {
		return errors.Join(err, app.Rollback())
	}
	return app.Commit()
}

func (w *world) Flush() error { return nil }

func (w *world) alert(s AlertState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[s.Labels["alertname"]] = s
	if !s.Changed {
		w.repeat++
		return
	}
	removed := ""
	if s.Removed {
		removed = " removed"
	}
	w.alerts = append(w.alerts, fmt.Sprintf("%s %s: %s to %s%s", s.Labels["alertname"], s.Labels["host"], s.Previous,
		s.State, removed))
}

// start starts the rules, with the states of the run before.
func (w *world) start(rules string) {
	w.t.Helper()
	w.o.Registerer = prometheus.NewRegistry()
	e, err := New(w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.e = e
	w.update(rules)
	if err := e.Start(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) update(rules string) {
	w.t.Helper()
	if err := w.e.Update([]File{{"rules.yml", []byte(rules)}}); err != nil {
		w.t.Fatal(err)
	}
}

// stop stops the rules and keeps their states.
func (w *world) stop() {
	w.t.Helper()
	for range 2 {
		if err := w.e.Stop(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
	text, err := w.e.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	w.o.Snapshot = text
}

func (w *world) close() {
	w.stop()
	if err := w.db.Close(); err != nil {
		w.t.Error(err)
	}
}

// run stores the load of hosts every 15 s for a time. load has "host=value" words.
func (w *world) run(d time.Duration, load string) {
	w.t.Helper()
	for range d / (15 * time.Second) {
		for word := range strings.FieldsSeq(load) {
			host, value, _ := strings.Cut(word, "=")
			var v float64
			if _, err := fmt.Sscan(value, &v); err != nil {
				w.t.Fatal(err)
			}
			if err := w.Add([]byte("load;host="+host), time.Now().UnixMilli(), v); err != nil {
				w.t.Fatal(err)
			}
		}
		time.Sleep(15 * time.Second) // in the bubble of the test, so it takes no time
		synctest.Wait()
	}
}

// want checks what Alert got since the last call.
func (w *world) want(what string, lines ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.alerts, lines) {
		w.t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(w.alerts, "\n"), strings.Join(lines, "\n"))
	}
	w.alerts = nil
}

func (w *world) query(expr string) string {
	w.t.Helper()
	q, err := w.o.Engine.NewInstantQuery(w.t.Context(), w.db, nil, expr, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	defer q.Close()
	r := q.Exec(w.t.Context())
	if r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return r.Value.String()
}

const highLoad = `
groups:
- name: hosts
  rules:
  - record: load:max
    expr: max(load)
    labels: {team: infra}
  - alert: HighLoad
    expr: load > 10
    for: 2m
    keep_firing_for: 1m
    labels:
      severity: '{{ if gt $value 50.0 }}critical{{ else }}warning{{ end }}'
    annotations:
      summary: 'load of {{ $labels.host }} is {{ $value | humanize }}'
`

// TestStory follows one alert through all its states.
func TestStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start(highLoad)
		defer w.close()
		w.run(2*time.Minute, "h1=1 h2=2")
		w.want("all is well")
		if got := w.query("load:max"); !strings.Contains(got, `{__name__="load:max", team="infra"} => 2`) {
			t.Errorf("recorded: %s", got)
		}
		w.run(time.Minute, "h1=20 h2=2")
		w.want("high load begins", "HighLoad h1: inactive to pending")
		w.run(time.Minute, "h1=1 h2=2")
		w.want("it was short", "HighLoad h1: pending to inactive")
		w.run(time.Minute, "h1=20 h2=2")
		w.want("high load begins again", "HighLoad h1: inactive to pending")
		w.run(2*time.Minute, "h1=1234 h2=2")
		// The severity is a label, so it is another alert.
		w.want("the load grows", "HighLoad h1: inactive to pending", "HighLoad h1: pending to inactive")
		w.run(2*time.Minute, "h1=1234 h2=2")
		w.want("it lasts", "HighLoad h1: pending to firing")
		s := w.last["HighLoad"]
		if s.Value != 1234 || s.Annotations["summary"] != "load of h1 is 1.234k" || s.Labels["severity"] != "critical" ||
			s.Group != "hosts" || s.Rule != "HighLoad" || s.File != "rules.yml" || s.FiredAt.Sub(s.ActiveAt) < 2*time.Minute {
			t.Errorf("alert %+v", s)
		}
		if got := w.query(`ALERTS`); !strings.Contains(got, `alertstate="firing"`) {
			t.Errorf("series: %s", got)
		}
		before := w.repeat
		w.run(5*time.Minute, "h1=1234 h2=2")
		if got := w.repeat - before; got != 5 {
			t.Errorf("%d repetitions in 5 min; want 5", got)
		}
		w.run(45*time.Second, "h1=1 h2=2")
		w.want("it is kept")
		w.run(time.Minute, "h1=1 h2=2")
		w.want("it ends", "HighLoad h1: firing to inactive")
		if got := testutil.ToFloat64(w.e.metrics.transitions.WithLabelValues("firing")); got != 1 {
			t.Errorf("%v transitions to firing", got)
		}
		if g := w.e.RuleGroups(); len(g) != 1 || len(w.e.AlertingRules()) != 1 {
			t.Errorf("groups %v", g)
		}
	})
}

// TestRestart stops the server while one alert is pending and another fires.
func TestRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		down time.Duration
		load string
		want []string
	}{
		{"both go on", time.Minute, "h1=20 h2=20 h3=1", []string{"HighLoad h2: pending to firing"}},
		{"the firing one has ended", time.Minute, "h1=1 h2=20 h3=1",
			[]string{"HighLoad h1: firing to inactive", "HighLoad h2: pending to firing"}},
		{"the pending one has ended", time.Minute, "h1=20 h2=1 h3=1", []string{"HighLoad h2: pending to inactive"}},
		{"after a long outage they begin anew", 15 * time.Minute, "h1=20 h2=1 h3=1",
			[]string{"HighLoad h1: firing to pending", "HighLoad h2: pending to inactive", "HighLoad h1: pending to firing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.o.OutageTolerance = 10 * time.Minute
				w.start(highLoad)
				defer w.close()
				w.run(2*time.Minute, "h1=20 h2=1 h3=1")
				w.run(90*time.Second, "h1=20 h2=20 h3=1")
				w.want("before", "HighLoad h1: inactive to pending", "HighLoad h1: pending to firing",
					"HighLoad h2: inactive to pending")
				w.stop()
				time.Sleep(c.down)
				w.start(highLoad)
				w.run(4*time.Minute, c.load)
				w.want("after", c.want...)
			})
		})
	}
}

// TestReload changes the rules while an alert fires.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start(highLoad)
		defer w.close()
		w.run(4*time.Minute, "h1=20")
		w.want("before", "HighLoad h1: inactive to pending", "HighLoad h1: pending to firing")
		w.update(highLoad)
		w.run(time.Minute, "h1=20")
		w.want("the same rules")
		w.update(strings.Replace(highLoad, "load > 10", "load > 15", 1))
		w.run(time.Minute, "h1=20")
		w.want("another limit")
		if err := w.e.Update([]File{{"rules.yml", []byte("groups: 1")}}); err == nil {
			t.Error("a bad file is taken")
		}
		w.run(time.Minute, "h1=20")
		w.want("a bad file changes nothing")
		w.update("groups: []")
		w.want("no rules", "HighLoad h1: firing to inactive removed")
		if got := w.e.Alerts(); len(got) != 0 {
			t.Errorf("alerts %v", got)
		}
		w.stop()
		w.start(highLoad)
		w.run(time.Minute, "h1=20")
		w.want("the rule is new again", "HighLoad h1: inactive to pending")
		w.stop()
		w.start("groups: []")
		w.want("removed over a restart", "HighLoad h1: pending to inactive removed")
	})
}

// TestTrouble has queries that fail, a store that is full, and a result that is too large.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = `
groups:
- name: bad
  rules:
  - {alert: Double, expr: 'label_replace(load, "host", "x", "", "") > 10'}
- name: good
  rules:
  - {alert: Up, expr: 'load > 10'}
`
		w := newWorld(t)
		w.o.MaxResults = 3
		w.start(text)
		defer w.close()
		w.run(time.Minute, "h1=20")
		w.want("both", "Double x: inactive to firing", "Up h1: inactive to firing")
		w.run(time.Minute, "h1=20 h2=20") // Double has one label set for two series
		w.want("a query fails", "Up h2: inactive to firing")
		for _, r := range w.e.AlertingRules() {
			if failed := r.LastError() != nil; failed != (r.Name() == "Double") {
				t.Errorf("%s: error %v", r.Name(), r.LastError())
			}
		}
		w.run(time.Minute, "h1=20 h2=20 h3=20 h4=20")
		w.want("the result is too large")
		w.mu.Lock()
		w.full = errors.New("the store is full")
		w.mu.Unlock()
		time.Sleep(2 * time.Minute) // the series end
		synctest.Wait()
		w.want("alerts go on without a store", "Double x: firing to inactive", "Up h1: firing to inactive",
			"Up h2: firing to inactive")
		w.mu.Lock()
		w.full = nil
		w.mu.Unlock()
	})
}

// TestLimit has a group whose limit clears its alerts: they go on when there are fewer again.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start(strings.Replace(highLoad, "- name: hosts", "- name: hosts\n  limit: 2", 1))
		defer w.close()
		w.run(4*time.Minute, "h1=20")
		w.want("before", "HighLoad h1: inactive to pending", "HighLoad h1: pending to firing")
		since := w.e.Alerts()[0].ActiveAt
		w.run(time.Minute, "h1=20 h2=20 h3=20")
		w.want("above the limit")
		w.run(3*time.Minute, "h1=20 h2=1 h3=1")
		w.want("below the limit")
		if a := w.e.Alerts(); len(a) != 1 || a[0].State != Firing || !a[0].ActiveAt.Equal(since) {
			t.Errorf("alerts %+v; want one that is active since %s", a, since)
		}
	})
}

// TestAPI checks what the Prometheus API says about the rules.
func TestAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start(highLoad)
		defer w.close()
		w.run(4*time.Minute, "h1=20")
		api, err := promapi.New(promapi.Options{Log: slog.New(slog.DiscardHandler),
			Queryable: func(*http.Request) (storage.Queryable, error) { return w.db, nil },
			Rules:     func(*http.Request) (v1.RulesRetriever, error) { return w.e, nil }})
		if err != nil {
			t.Fatal(err)
		}
		for target, want := range map[string]string{
			"/api/v1/rules?type=alert": `"state":"firing","name":"HighLoad","query":"load \u003e 10","duration":120,` +
				`"keepFiringFor":60`,
			"/api/v1/rules?type=record": `"name":"load:max","query":"max(load)","labels":{"team":"infra"},"health":"ok"`,
			"/api/v1/alerts":            `"annotations":{"summary":"load of h1 is 20"},"state":"firing"`,
		} {
			r := httptest.NewRecorder()
			api.ServeHTTP(r, httptest.NewRequest("GET", target, nil))
			if r.Code != 200 || !strings.Contains(r.Body.String(), want) {
				t.Errorf("%s: status %d: %s; want %s", target, r.Code, r.Body, want)
			}
		}
	})
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	good := Options{Engine: promql.NewEngine(promql.EngineOpts{}), Queryable: &tsdb.DB{}, Writer: &world{},
		Alert: func(AlertState) {}, Log: slog.New(slog.DiscardHandler)}
	for want, change := range map[string]func(*Options){
		"no Engine":      func(o *Options) { o.Engine = nil },
		"no Queryable":   func(o *Options) { o.Queryable = nil },
		"no Writer":      func(o *Options) { o.Writer = nil },
		"no Alert":       func(o *Options) { o.Alert = nil },
		"no Log":         func(o *Options) { o.Log = nil },
		"negative":       func(o *Options) { o.Repeat = -1 },
		"states of":      func(o *Options) { o.Snapshot = []byte("{") },
		"version is 7":   func(o *Options) { o.Snapshot = []byte(`{"version":7}`) },
		"is no state of": func(o *Options) { o.Snapshot = []byte(`{"version":1,"alerts":[{"state":"x"}]}`) },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	e, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Update([]File{{"a", []byte(highLoad)}}); err != nil {
		t.Error(err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if e.Start() == nil || e.Update(nil) == nil {
		t.Error("it goes on after the stop")
	}
}

// TestStopCancels checks that Stop ends a query that hangs.
func TestStopCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.o.Engine = hanging{w.o.Engine}
		w.start(highLoad)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := w.e.Stop(ctx); err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		w.close()
		w.want("no states are reported")
	})
}

type hanging struct{ promql.QueryEngine }

func (h hanging) NewInstantQuery(ctx context.Context, _ storage.Queryable, _ promql.QueryOpts, _ string, _ time.Time,
) (promql.Query, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.yml", highLoad)
	b := write("b.yml", "groups:\n- name: x\n  rules:\n  - alert: A\n    expr: sum(\n"+
		"  - record: 1bad\n    expr: up\n    for: 1m\n")
	files, err := ReadFiles(filepath.Join(dir, "*.yml"), a)
	if err != nil || len(files) != 2 || files[0].Name != a || files[1].Name != b {
		t.Fatalf("%v, %v", files, err)
	}
	if err := Check(files[:1]); err != nil {
		t.Error(err)
	}
	err = Check(files)
	for _, want := range []string{b + ": 5:", `group "x", rule 1, "A"`, "unclosed left parenthesis", b + ": 6:",
		"invalid field 'for' in recording rule"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	for want, files := range map[string][]File{
		"line 1":          {{"c.yml", []byte("groups: 1")}},
		"not found":       {{"c.yml", []byte("groups:\n- name: a\n  colour: red\n")}},
		"two rule files":  {{"c.yml", nil}, {"c.yml", nil}},
		"more than":       {{"c.yml", make([]byte, maxFileBytes+1)}},
		"the limit is":    make([]File, maxFiles+1),
		"repeated in the": {{"c.yml", []byte("groups:\n- name: a\n- name: a\n")}},
		"undefined variable": {{"c.yml", []byte(
			"groups:\n- name: a\n  rules:\n  - {alert: A, expr: up, annotations: {s: '{{ $x }}'}}\n")}},
	} {
		if err := Check(files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if _, err := ReadFiles(filepath.Join(dir, "none.yml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v; want that the file does not exist", err)
	}
	if files, err := ReadFiles(filepath.Join(dir, "none*.yml")); err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := ReadFiles("["); err == nil {
		t.Error("a bad pattern is taken")
	}
}

func TestWriterTakesNumbersOnly(t *testing.T) {
	t.Parallel()
	m := newMetrics(nil)
	w := &writer{metrics: &m, to: &world{}}
	if _, err := w.AppendHistogram(0, labels.EmptyLabels(), 0, nil, nil); err == nil || testutil.ToFloat64(m.lost) != 1 {
		t.Errorf("%v", err)
	}
}

// FuzzCheck checks that no rule file makes the parser panic.
func FuzzCheck(f *testing.F) {
	f.Add(highLoad)
	f.Add("groups:\n- name: x\n  interval: 1m\n  limit: 3\n" +
		"  query_offset: 1s\n  labels: {a: b}\n  rules:\n  - {record: a, expr: 1}\n")
	f.Add("groups: [{name: x, rules: [{alert: A, expr: '{\"a.b\"} > 1', for: 1d, labels: {x: '{{ $labels.y }}'}}]}]")
	f.Fuzz(func(t *testing.T, text string) { _ = Check([]File{{"x", []byte(text)}}) })
}

// FuzzSnapshot checks that a snapshot that can be read can be written.
func FuzzSnapshot(f *testing.F) {
	f.Add(`{"version":1,"at":"2026-01-01T00:00:00Z","alerts":[` +
		`{"state":"firing","key":"k","id":"i","labels":{"a":"b"},"value":1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s states
		if s.load([]byte(text), time.Hour, time.Now()) != nil {
			return
		}
		if _, err := s.snapshot(time.Unix(0, 0)); err != nil && !strings.Contains(err.Error(), "year") {
			t.Fatal(err)
		}
	})
}
