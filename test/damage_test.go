package test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/api/client"
	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

var updateDamage = flag.Bool("update-damage", false, "write the table of damage into docs/recovery.md")

const (
	damagedChecks = 20
	damagedEvents = 30
)

// damage is one way to harm a file.
type damage struct {
	name string
	do   func(path string) error
}

func flip(at func(size int64) int64) func(string) error {
	return func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		st, err := f.Stat()
		if err != nil || st.Size() == 0 {
			return err
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], at(st.Size())); err != nil {
			return err
		}
		b[0] ^= 0x10
		_, err = f.WriteAt(b[:], at(st.Size()))
		return err
	}
}

var damages = []damage{
	{"first byte flipped", flip(func(int64) int64 { return 0 })},
	{"middle byte flipped", flip(func(n int64) int64 { return n / 2 })},
	{"last byte flipped", flip(func(n int64) int64 { return n - 1 })},
	{"cut in half", func(path string) error {
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, st.Size()/2)
	}},
	{"deleted", os.RemoveAll},
}

// damagedPlaces are files of a state directory, by what an operator would call them. Of several files the largest is meant.
var damagedPlaces = []struct{ name, pattern string }{
	{"definitions", "broker/jetstream/$G/streams/KV_config/msgs/*.blk"},
	{"definitions, index", "broker/jetstream/$G/streams/KV_config/msgs/index.db"},
	{"definitions, description", "broker/jetstream/$G/streams/KV_config/meta.inf"},
	{"definitions, mark", "broker/marks/KV_config"},
	{"event log", "broker/jetstream/$G/streams/EVENTLOG_0/msgs/*.blk"},
	{"event log, index", "broker/jetstream/$G/streams/EVENTLOG_0/msgs/index.db"},
	{"event log, description", "broker/jetstream/$G/streams/EVENTLOG_0/meta.inf"},
	{"event log, mark", "broker/marks/EVENTLOG_0"},
	{"audit log", "broker/jetstream/$G/streams/audit/msgs/*.blk"},
	{"state, table", "state/*.sst"},
	{"state, newest writes", "state/*.log"},
	{"state, manifest", "state/MANIFEST-*"},
	{"state, marker", "state/marker.manifest.*"},
	{"state, options", "state/OPTIONS-*"},
	{"identity", "identity"},
	{"record of files", "files"},
	{"all definitions", "broker/jetstream/$G/streams/KV_config"},
	{"whole event log", "broker/jetstream/$G/streams/EVENTLOG_0"},
	{"all of the broker", "broker"},
	{"all of the state", "state"},
}

// TestDamage harms a state directory in every way and place, after a kill and after a stop, and starts a backend on it. It must
// say so, must not begin a new cluster, and must lose no more than it says. The table stands in docs/recovery.md.
func TestDamage(t *testing.T) {
	killed, stopped := damagedDirs(t)
	var mu sync.Mutex
	rows := map[rowKey]string{}
	var order []rowKey
	t.Run("rows", func(t *testing.T) {
		for _, place := range damagedPlaces {
			for _, d := range damages {
				for _, end := range []struct{ name, dir string }{{"killed", killed}, {"stopped", stopped}} {
					path := largest(t, end.dir, place.pattern)
					if path == "" || !applies(path, d.name) {
						continue
					}
					if end.name == "killed" && d.name == "deleted" && filepath.Base(path) == "index.db" {
						continue // after a kill it is thrown away in any case
					}
					key := rowKey{place.name, d.name, end.name}
					order = append(order, key)
					t.Run(place.name+"/"+d.name+"/"+end.name, func(t *testing.T) {
						t.Parallel()
						dir := copyDir(t, end.dir)
						rel, err := filepath.Rel(end.dir, path)
						if err != nil {
							t.Fatal(err)
						}
						if err := d.do(filepath.Join(dir, rel)); err != nil {
							t.Fatal(err)
						}
						row := tryDamaged(t, dir)
						mu.Lock()
						defer mu.Unlock()
						rows[key] = row
					})
				}
			}
		}
	})
	if t.Failed() || len(rows) != len(order) {
		return
	}
	compareTable(t, joinRows(order, rows))
}

// joinRows makes one row of what a place says and loses alike, after whatever damage.
func joinRows(order []rowKey, rows map[rowKey]string) string {
	var table bytes.Buffer
	done := map[rowKey]bool{}
	for _, first := range order {
		if done[first] {
			continue
		}
		ends := map[string][]string{}
		var damages []string
		for _, k := range order {
			if k.place == first.place && rows[k] == rows[first] {
				done[k] = true
				if len(ends[k.damage]) == 0 {
					damages = append(damages, k.damage)
				}
				ends[k.damage] = append(ends[k.damage], k.end)
			}
		}
		for i, d := range damages {
			if len(ends[d]) == 1 {
				damages[i] += " (" + ends[d][0] + ")"
			}
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", first.place, strings.Join(damages, ", "), rows[first])
	}
	return table.String()
}

// rowKey is one experiment.
type rowKey struct{ place, damage, end string }

// applies leaves out what cannot be done to a file, or is done by another row.
func applies(path, damage string) bool {
	st, err := os.Stat(path)
	return err == nil && (damage == "deleted" || !st.IsDir() && st.Size() > 0)
}

func compareTable(t *testing.T, table string) {
	const page, begin, end = "../docs/recovery.md", "<!-- table of damage -->\n", "<!-- end of the table -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	want := head + begin + "\n| place | damage | it says | lost then |\n|---|---|---|---|\n" + table + "\n" + end + tail
	if *updateDamage {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the table in %s is not what happens; run this test with -update-damage and look at the difference. It is:\n%s", page, table)
	}
}

// damagedDirs makes a state directory with definitions, results that are stored and results that are only in the log, as it is
// after a kill and after a stop.
func damagedDirs(t *testing.T) (killed, stopped string) {
	live := filepath.Join(t.TempDir(), "state")
	put := func(b *testbackend.Backend, from, to int) {
		for i := from; i < to; i++ {
			ev := testbackend.Event("host", fmt.Sprintf("check-%d", i), 1, time.Now().Unix())
			ev.Entity.EntityClass = resource.EntityProxyClass
			if err := client.Put(t.Context(), b.Client, client.Events, "default", client.EventName("host", fmt.Sprintf("check-%d", i)), ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	change := func(o *backend.Options) { o.StateDir, o.Partitions = live, 1 }
	t.Run("first run", func(t *testing.T) {
		b := testbackend.Start(t, change)
		for i := range damagedChecks {
			check := &resource.CheckConfig{
				Metadata: resource.ObjectMeta{Name: fmt.Sprintf("defined-%d", i), Namespace: "default"}, Command: "true", Interval: 60, Subscriptions: []string{"linux"},
			}
			if err := client.Post(t.Context(), b.Client, client.Checks, "default", check); err != nil {
				t.Fatal(err)
			}
		}
		put(b, 0, damagedEvents/2)
	})
	t.Run("second run", func(t *testing.T) {
		b := testbackend.Start(t, change)
		put(b, damagedEvents/2, damagedEvents)
		killed = copyDir(t, live)
		kept := filepath.Join(filepath.Dir(live), "killed")
		if err := os.CopyFS(kept, os.DirFS(killed)); err != nil {
			t.Fatal(err)
		}
		killed = kept
	})
	return killed, live
}

func copyDir(t *testing.T, from string) string {
	to := filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func largest(t *testing.T, dir, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	size := func(path string) int64 {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	if len(paths) == 0 {
		return ""
	}
	return slices.MaxFunc(paths, func(a, b string) int { return int(size(a) - size(b)) })
}

// lines collects log lines from level warn on, and those that tell of an unclean stop.
type lines struct {
	mu    sync.Mutex
	all   []string
	every []string // messages of every level
	waits func()
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.every = append(l.every, text)
	switch {
	case strings.HasPrefix(text, "recovered after"):
		if attrs["unfinished_bytes"] != "0" {
			l.all = append(l.all, text+", "+attrs["unfinished_bytes"]+" unfinished bytes cut off")
		}
	case strings.HasPrefix(r.Message, "agents can sign in with the default password"): // it says nothing of damage
	case r.Level >= slog.LevelWarn:
		for _, key := range []string{"part", "what", "reason", "err", "text"} {
			if attrs[key] != "" {
				text += ": " + attrs[key]
			}
		}
		l.all = append(l.all, text)
	}
	if strings.HasPrefix(r.Message, "the backend waits") && l.waits != nil {
		l.waits()
	}
	return nil
}

// tryDamaged starts a backend on a harmed directory, repairs it if that is what it waits for, and says what came of it.
func tryDamaged(t *testing.T, dir string) string {
	b, said := startDamaged(t, dir)
	if b == nil {
		opts := damagedOptions(dir, &lines{})
		done, err := backend.Repair(opts, backend.RepairOptions{})
		if err != nil {
			t.Fatalf("it says %q, and cannot be repaired: %v", said, err)
		}
		if len(done.Lost) == 0 {
			t.Fatalf("it says %q, and a repair finds nothing", said)
		}
		var again []string
		if b, again = startDamaged(t, dir); b == nil {
			opts := damagedOptions(dir, &lines{})
			if _, err := backend.Repair(opts, backend.RepairOptions{NewAdministrator: true}); err != nil {
				t.Fatal(err)
			}
			said = append(said, again...)
			if b, again = startDamaged(t, dir); b == nil {
				t.Fatalf("after the repair it says %q", again)
			}
		}
	}
	defer func() {
		if err := b.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	if len(said) == 0 {
		t.Error("the damage is silent")
		said = []string{"nothing"}
	}
	return plain(said[0]) + " | " + whatIsLeft(t, b, dir)
}

func damagedOptions(dir string, l *lines) backend.Options {
	return backend.Options{
		StateDir: dir, APIListenAddress: "127.0.0.1:0", AgentHost: "127.0.0.1", AgentPort: -1, AdminUsername: testbackend.User,
		AdminPassword: testbackend.Password, MinFreeDisk: 1 << 20, Registry: telemetry.Registry(), Logger: slog.New(l),
	}
}

// startDamaged returns no backend if it does not start.
func startDamaged(t *testing.T, dir string) (*backend.Backend, []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := &lines{waits: cancel}
	b, err := backend.New(damagedOptions(dir, l))
	if err != nil {
		t.Fatal(err)
	}
	err = b.Start(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		return b, slices.Clone(l.all)
	}
	if len(l.all) == 0 {
		return nil, []string{"the process ends: " + err.Error()}
	}
	return nil, slices.Clone(l.all)
}

var (
	digits = regexp.MustCompile(`\d[\d.]*`)
	paths  = regexp.MustCompile(`(; put a backup|; stop the backend).*|\(state[^)]*\)|\(broker[^)]*\)|\(damage\)|/\S*/state`)
	sums   = regexp.MustCompile(`0x[0-9a-f]+|\b[0-9a-f]{6,8}\b`)
	keys   = regexp.MustCompile(`, among them .*`)
)

// plain is a message without what differs from run to run.
func plain(s string) string {
	s = keys.ReplaceAllString(paths.ReplaceAllString(s, ""), ", among them …")
	s = sums.ReplaceAllString(s, "N")
	s = digits.ReplaceAllString(s, "N")
	s = strings.TrimPrefix(s, "the backend waits and does not start: ")
	return strings.TrimSpace(strings.ReplaceAll(s, "|", "/"))
}

// whatIsLeft compares what a backend knows with what it knew.
func whatIsLeft(t *testing.T, b *backend.Backend, dir string) string {
	c, err := client.New(client.Options{URL: "http://" + b.APIAddr().String(), Username: testbackend.User, Password: testbackend.Password})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	checks, events := 0, 0
	for i := range damagedChecks {
		if _, err := client.Get(t.Context(), c, client.Checks, "default", fmt.Sprintf("defined-%d", i)); err == nil {
			checks++
		}
	}
	for i := range damagedEvents {
		if _, err := client.Get(t.Context(), c, client.Events, "default", client.EventName("host", fmt.Sprintf("check-%d", i))); err == nil {
			events++
		}
	}
	left := fmt.Sprintf("%s, %s", amount(damagedChecks-checks, damagedChecks, "checks"), amount(damagedEvents-events, damagedEvents, "events"))
	if resp, err := http.Get("http://" + b.APIAddr().String() + "/ready"); err == nil {
		if resp.StatusCode != 200 {
			left += ", not ready"
		}
		_ = resp.Body.Close()
	}
	return left
}

func amount(n, all int, what string) string {
	switch n {
	case 0:
		return "no " + what
	case 1:
		return "one of the " + what
	case all:
		return "all " + what
	}
	return "some " + what
}
