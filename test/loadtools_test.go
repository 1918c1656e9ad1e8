package test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/points"
	"github.com/lapwing-monitoring/lapwing/client/load/queries"
)

// TestLoadTools has the load tools send points and open dashboards, and notice a server that lacks points.
func TestLoadTools(t *testing.T) {
	o := points.Options{Hosts: 20, Metrics: 30, Interval: time.Second, Duration: 4 * time.Second, Aggregates: 5}
	rules, err := o.AggregationRules()
	if err != nil {
		t.Fatal(err)
	}
	c := newCarbon(t)
	c.extra = []string{
		"--storage-schemas-file", c.file("schemas.conf", "[all]\npattern = .*\nretentions = 1s:1h\n"),
		"--aggregation-rules-file", c.file("rules.conf", rules),
	}
	c.start()
	o.Address = c.line
	r, err := points.Run(t.Context(), o)
	if err != nil || r.Failed > 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	var check *points.Check
	eventually(t, time.Minute, "the server has all points and sums", func() bool {
		check, err = points.Verify(t.Context(), c.url, r)
		return err == nil && check.OK()
	})
	if check.Series != 20*30+5 || check.Expected != r.Points+5*int64(slices.Min(r.Rounds)) {
		t.Errorf("%v of %d points", check, r.Points)
	}
	r.Rounds[3]++
	if check, err = points.Verify(t.Context(), c.url, r); err != nil || check.OK() || check.Missing != 30 {
		t.Errorf("a missing round is not seen: %v, %v", check, err)
	}

	text, err := os.ReadFile("../bench/dashboards/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queries.Parse(text); err != nil {
		t.Error(err)
	}
	f, err := queries.Parse([]byte(`
hosts: 20
dashboards:
  - name: host
    from: -5min
    find: ["load.host{host}.*"]
    panels: [["load.host{host}.g00.*", "load.all.m000"], ["sumSeries(load.host{host}.g01.*)"]]
heavy: ["sumSeries(load.*.*.*)"]
from: -5min
`))
	if err != nil {
		t.Fatal(err)
	}
	q, err := queries.Run(t.Context(), queries.Options{File: f, URL: c.url, Viewers: 3, Every: 100 * time.Millisecond, Heavy: 1, Duration: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(q.Times["find"]) == 0 || len(q.Times["render"]) == 0 || len(q.Times["heavy"]) == 0 || q.Failed > 0 {
		t.Errorf("got %d finds, %d renders, %d heavy answers; %d failed, %v", len(q.Times["find"]), len(q.Times["render"]), len(q.Times["heavy"]), q.Failed, q.Err)
	}
	c.kill(syscall.SIGKILL)
	q, err = queries.Run(t.Context(), queries.Options{File: f, URL: c.url, Viewers: 1, Every: 10 * time.Millisecond, Duration: 100 * time.Millisecond})
	if err != nil || q.Failed == 0 {
		t.Errorf("no failure is counted without a server: %v, %+v", err, q)
	}
}
