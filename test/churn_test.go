package test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// TestChurn registers and removes entities in rounds, each entity with a name of its own, and compares what is left
// after each round with an earlier one. The backend restarts after the first round and after the last, with the
// leftovers of their rounds. LAPWING_CHURN is the total number of entities. With 200,000 the test is a soak; its table
// of memory, disk and start times is for reading:
//
//	LAPWING_CHURN=200000 go test ./test -run 'TestChurn$' -v -timeout 2h
func TestChurn(t *testing.T) {
	t.Parallel()
	all := longtest.Size(2000, 600)
	if s := os.Getenv("LAPWING_CHURN"); s != "" {
		var err error
		if all, err = strconv.Atoi(s); err != nil {
			t.Fatalf("LAPWING_CHURN: %v", err)
		}
	}
	const rounds = 6
	c := newChurn(t)
	t.Logf("empty: start %v, %s", c.begin.Round(time.Millisecond), c.measure())
	var first churned
	for round := range rounds {
		c.round(round, all/rounds)
		now := c.measure()
		t.Logf("round %d: %s", round+1, now)
		if round == 0 {
			c.stop()
			c.start()
			t.Logf("started again: start %v, %s", c.begin.Round(time.Millisecond), c.measure())
			continue
		}
		if round == 1 {
			first = now
			continue
		}
		// A partition has more of one round's names than of another's.
		for what, n := range now.slots {
			if most := first.slots[what] + first.slots[what]/4 + 50; n > most {
				t.Errorf("places for %s after round %d: %v, after the second %v", what, round+1, n, first.slots[what])
			}
		}
		if now.pairs != first.pairs || now.objects != first.objects || now.tombstones != 0 {
			t.Errorf("after round %d there are %v pairs, %v definitions and %v marks, after the second %v and %v, and no marks",
				round+1, now.pairs, now.objects, now.tombstones, first.pairs, first.objects)
		}
		if most := first.names + first.names/2 + 500; now.names > most {
			t.Errorf("%v names after round %d, %v after the second", now.names, round+1, first.names)
		}
	}
	c.stop()
	c.start()
	t.Logf("started again: start %v, %s", c.begin.Round(time.Millisecond), c.measure())
}

// churn is a backend that restarts on the same directory.
type churn struct {
	t        *testing.T
	dir      string
	backend  *backend.Backend
	client   *client.Client
	registry *prometheus.Registry
	begin    time.Duration // how long the last start took
}

// churned is the state after a round.
type churned struct {
	slots                             map[string]float64
	pairs, objects, tombstones, names float64
	heap, rss, bucket                 int64
	unflushed                         int64 // changes that wait in memory until they fill a table of 128 MiB
}

func (c churned) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("heap %.1f MiB, RSS %.1f MiB with %.1f MiB of changes, bucket %.2f MiB, pairs %v, definitions %v, marks %v, names %v, places %v",
		float64(c.heap)/mib, float64(c.rss)/mib, float64(c.unflushed)/mib, float64(c.bucket)/mib, c.pairs, c.objects, c.tombstones, c.names, c.slots)
}

func newChurn(t *testing.T) *churn {
	c := &churn{t: t, dir: t.TempDir()}
	c.start()
	t.Cleanup(c.stop)
	return c
}

func (c *churn) start() {
	c.t.Helper()
	c.registry = telemetry.Registry()
	opts := testbackend.OptionsIn(c.dir)
	opts.Registry, opts.Config.TombstoneGrace = c.registry, time.Nanosecond
	b, err := backend.New(opts)
	if err != nil {
		c.t.Fatal(err)
	}
	begin := time.Now()
	if err := b.Start(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.begin, c.backend = time.Since(begin), b
	c.client, err = client.New(client.Options{URL: "http://" + b.APIAddr().String(), Username: testbackend.User, Password: testbackend.Password})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *churn) stop() {
	c.client.Close()
	if err := c.backend.Stop(context.Background()); err != nil {
		c.t.Errorf("stop backend: %v", err)
	}
}

// round registers entities by their events, and removes them.
func (c *churn) round(round, n int) {
	name := func(i int) string { return fmt.Sprintf("host-%d-%d", round, i) }
	c.each(n, func(i int) error {
		ev := &resource.Event{
			Entity: &resource.Entity{Metadata: meta(name(i)), EntityClass: resource.EntityProxyClass},
			Check:  &resource.Check{Metadata: meta(fmt.Sprintf("check-%d-%d", round, i%20)), Interval: 10, Executed: time.Now().Unix(), TTL: 600},
		}
		return client.Post(c.t.Context(), c.client, client.Events, "default", ev)
	})
	c.each(n, func(i int) error {
		return client.Delete(c.t.Context(), c.client, client.Entities, "default", name(i))
	})
	deadline := 2*time.Minute + time.Duration(n)*10*time.Millisecond
	eventually(c.t, deadline, "the marks of deleted definitions are removed", func() bool { return c.gauge("lapwing_config_tombstones") == 0 })
}

// each calls f for each number below n, many at a time.
func (c *churn) each(n int, f func(i int) error) {
	c.t.Helper()
	var workers sync.WaitGroup
	next := make(chan int)
	for range 64 {
		workers.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					c.t.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// measure returns the backend's present state.
func (c *churn) measure() (now churned) {
	c.t.Helper()
	now.slots = c.gauges("lapwing_state_slots", "of")
	now.names, now.tombstones = c.gauge("lapwing_state_names"), c.gauge("lapwing_config_tombstones")
	debug.FreeOSMemory()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	now.heap, now.rss, now.unflushed = int64(mem.HeapAlloc), rss(), int64(c.gauge("lapwing_database_wal_bytes"))
	now.pairs = c.gauge("lapwing_state_pairs")
	for kind, n := range c.gauges("lapwing_config_objects", "kind") {
		if kind != config.Sessions.String() { // a long run renews its sign-in
			now.objects += n
		}
	}
	now.bucket = bytesBelow(filepath.Join(c.dir, "broker"), "KV_config")
	return now
}

func (c *churn) gauge(name string) (sum float64) {
	c.t.Helper()
	for _, v := range c.gauges(name, "") {
		sum += v
	}
	return sum
}

// gauges returns a metric's values by one of its labels, or their sum.
func (c *churn) gauges(name, label string) map[string]float64 {
	c.t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					key = l.GetValue()
				}
			}
			values[key] += m.GetGauge().GetValue()
		}
	}
	if len(values) == 0 {
		c.t.Fatalf("there is no metric %s", name)
	}
	return values
}

// rss returns the resident memory of this process, or 0 if the system does not report it.
func rss() int64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// bytesBelow returns the size of the files below a directory with part in their path.
func bytesBelow(dir, part string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, part) {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
