package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/metric/ring"
)

// options are of destinations that are never connected.
func options(t testing.TB, destinations ...string) (all []DestinationOptions) {
	t.Helper()
	for _, text := range destinations {
		d, err := ring.ParseDestination(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, DestinationOptions{Destination: d,
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nowhere") }})
	}
	return all
}

func routes(r *Relay, name string) string {
	var all []string
	for _, d := range r.Route(name, nil) {
		all = append(all, d.String())
	}
	return strings.Join(all, " ")
}

func TestRoute(t *testing.T) {
	rules, err := ParseRules(strings.NewReader("[d]\ndefault = yes\ndestinations = c:1\n" +
		"[1]\npattern = \\.cpu\\.\ndestinations = a:1, b:1, x:9\ncontinue = true\n" +
		"[2]\npattern = ^web\ndestinations = b:1\n" +
		"[3]\npattern = ^nowhere\ndestinations = x:9\n"))
	if err != nil {
		t.Fatal(err)
	}
	aggregate := func(name string, dst []string) []string {
		if strings.HasPrefix(name, "servers.") {
			return append(dst, "servers.h2.loadavg.01", "a")
		}
		return dst
	}
	three := options(t, "127.0.0.1:2003:a", "127.0.0.1:2004:b", "127.0.0.1:2005:c")
	abc := options(t, "a:1", "b:1", "c:1")
	const a, b, c = "127.0.0.1:2003:a", "127.0.0.1:2004:b", "127.0.0.1:2005:c"
	for _, tc := range []struct {
		o          Options
		name, want string
	}{
		{Options{Destinations: abc}, "x", "a:1 b:1 c:1"},
		{Options{Method: Rules, Rules: rules, Destinations: abc}, "web.cpu.x", "a:1 b:1"},
		{Options{Method: Rules, Rules: rules, Destinations: abc}, "WEB.mem", "b:1"},
		{Options{Method: Rules, Rules: rules, Destinations: abc}, "db.cpu.x", "a:1 b:1 c:1"},
		{Options{Method: Rules, Rules: rules, Destinations: abc}, "db.mem", "c:1"},
		{Options{Method: Rules, Rules: rules, Destinations: abc}, "nowhere.mem", ""},
		{Options{Method: Rules, Rules: []Rule{{Name: "m", Pattern: "^m", Destinations: rules[0].Destinations},
			{Default: true}},
			Destinations: abc}, "m", "c:1"},
		{Options{Method: ConsistentHashing, Destinations: three}, "servers.h1.cpu.total.idle", c},
		{Options{Method: ConsistentHashing, Replication: 2, Destinations: three}, "servers.h1.cpu.total.idle", c + " " + a},
		{Options{Method: ConsistentHashing, Replication: 2, Ring: ring.Options{Diverse: true}, Destinations: three},
			"servers.h1.cpu.total.idle", c},
		{Options{Method: ConsistentHashing, Ring: ring.Options{Method: ring.JumpFNV1aCH}, Replication: 3,
			Destinations: three}, "a", c + " " + a + " " + b},
		{Options{Method: AggregatedConsistentHashing, Destinations: three, AggregateNames: aggregate},
			"servers.h1.cpu.total.idle", a},
		{Options{Method: AggregatedConsistentHashing, Destinations: three, AggregateNames: aggregate},
			"carbon.agents.host-a.cpuUsage", b},
		{Options{Method: AggregatedConsistentHashing, Replication: 2, Destinations: three, AggregateNames: aggregate},
			"servers.h1.cpu.total.idle", a + " " + c},
	} {
		r, err := New(tc.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := routes(r, tc.name); got != tc.want {
			t.Errorf("%v: %s goes to %q, want %q", tc.o.Method, tc.name, got, tc.want)
		}
		stopNow(t, r)
	}
}

func TestOptions(t *testing.T) {
	a := options(t, "a:1")
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{}, "0 destinations"},
		{Options{Destinations: append(options(t, "a:1"), a...)}, "twice"},
		{Options{Method: 9, Destinations: a}, "unknown method 9"},
		{Options{Method: ConsistentHashing}, "without destinations"},
		{Options{Method: ConsistentHashing, Replication: -1, Destinations: a}, "replication"},
		{Options{Method: ConsistentHashing, Destinations: options(t, "a:1", "a:2")}, "cannot tell"},
		{Options{Method: AggregatedConsistentHashing, Destinations: a}, "names of aggregates"},
		{Options{Method: Rules, Destinations: a}, "exactly one"},
		{Options{Method: Rules, Destinations: a, Rules: []Rule{{Default: true}, {Name: "bad", Pattern: "("}}},
			"section [bad]"},
	} {
		r, err := New(tc.o)
		if err == nil {
			stopNow(t, r)
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	for m, name := range methodNames {
		if got, err := ParseMethod(name); err != nil || got != Method(m) || got.String() != name {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ParseMethod("fast-hashing"); err == nil {
		t.Error("fast-hashing is known")
	}
}

// TestStrangers: points of a destination that is configured no more are mentioned, and stay.
func TestStrangers(t *testing.T) {
	dir := t.TempDir()
	r, err := New(Options{SpillDir: dir, Destinations: options(t, "[::1]:2004:a_b", "b:1")})
	if err != nil {
		t.Fatal(err)
	}
	addPoints(r.Destinations()[0], 0, 10)
	stopNow(t, r)
	var log bytes.Buffer
	r, err = New(Options{SpillDir: dir, Destinations: options(t, "b:1"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	stopNow(t, r)
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.spill"))
	if want := "_5b_3a_3a1_5d_3a2004_3aa_5fb"; len(files) != 1 || !strings.Contains(log.String(), want) ||
		strings.Count(log.String(), "not configured") != 1 {
		t.Errorf("files %v, log %s", files, log.String())
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	r, err := New(Options{Destinations: options(t, "10.0.0.1:2004", "[::1]:2004:a"), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer stopNow(t, r)
	if _, err := New(Options{Destinations: options(t, "a:1"), Registerer: registry}); err == nil {
		t.Error("two relays register with one registry")
	}
	addPoints(r.Destinations()[0], 0, 10)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			found[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for key, want := range map[string]float64{
		"lapwing_metric_relay_points_total 10.0.0.1:2004":                    10,
		"lapwing_metric_relay_points_total [::1]:2004:a":                     0,
		"lapwing_metric_relay_queue_points 10.0.0.1:2004":                    10,
		"lapwing_metric_relay_queue_bytes 10.0.0.1:2004":                     batchBytes,
		"lapwing_metric_relay_dropped_points_total 10.0.0.1:2004 queue_full": 0,
		"lapwing_metric_relay_connected 10.0.0.1:2004":                       0,
	} {
		if got, ok := found[key]; !ok || got != want {
			t.Errorf("%s is %v, %t; want %v", key, got, ok, want)
		}
	}
	if n := len(families); n != 14 {
		t.Errorf("%d families: %v", n, slices.Sorted(maps.Keys(found)))
	}
	var names []string
	for _, d := range r.Destinations() {
		for name, value := range d.Stats().Carbon() {
			names = append(names, fmt.Sprintf("%s.%s %v", d.CarbonName(), name, value))
		}
	}
	want := "10_0_0_1:2004:None.attemptedRelays 10, 10_0_0_1:2004:None.sent 0, 10_0_0_1:2004:None.batchesSent 0, " +
		"10_0_0_1:2004:None.fullQueueDrops 0, 10_0_0_1:2004:None.queuedUntilConnected 10, " +
		"10_0_0_1:2004:None.relayMaxQueueLength 10, 10_0_0_1:2004:None.slowConnectionReset 0, ::1:2004:a.attemptedRelays 0, "
	if got := strings.Join(names, ", "); !strings.HasPrefix(got, want) || len(names) != 14 {
		t.Errorf("got %s", got)
	}
}
