package test

import (
	"bytes"
	"context"
	"errors"
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
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var updateDamage = flag.Bool("update-damage", false, "write the table of damage into docs/damage.md")

const (
	damagedChecks = 20
	damagedEvents = 30
)

// damage is one way to damage a file.
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
	{"cut in half", cut},
	{"deleted", os.RemoveAll},
}

// The streams' directories and marks, as a state directory has them.
const (
	definitionsDir  = "broker/jetstream/$G/streams/KV_config"
	eventLogDir     = "broker/jetstream/$G/streams/EVENTLOG_0"
	auditDir        = "broker/jetstream/$G/streams/audit"
	definitionsMark = "broker/marks/KV_config"
	eventLogMark    = "broker/marks/EVENTLOG_0"
	auditMark       = "broker/marks/audit"
)

// damagedPlaces are files of a state directory, by an operator's names for them. Of several files the largest is
// damaged.
var damagedPlaces = []struct{ name, pattern string }{
	{"definitions", definitionsDir + "/msgs/*.blk"},
	{"definitions, index", definitionsDir + "/msgs/index.db"},
	{"definitions, description", definitionsDir + "/meta.inf"},
	{"definitions, mark", definitionsMark},
	{"event log", eventLogDir + "/msgs/*.blk"},
	{"event log, index", eventLogDir + "/msgs/index.db"},
	{"event log, description", eventLogDir + "/meta.inf"},
	{"event log, mark", eventLogMark},
	{"audit log", auditDir + "/msgs/*.blk"},
	{"state, table", "state/*.sst"},
	{"state, newest writes", "state/*.log"},
	{"state, manifest", currentManifest},
	{"state, older manifest", olderManifest},
	{"state, marker", "state/marker.manifest.*"},
	{"state, options", "state/OPTIONS-*"},
	{"identity", "identity"},
	{"record of files", "files"},
	{"remembered sign-ins", "sign-ins"},
	{"all definitions", definitionsDir},
	{"whole event log", eventLogDir},
	{"all of the broker", "broker"},
	{"all of the state", "state"},
}

// The patterns that contain another file's name.
const (
	currentManifest = "the manifest that the marker names"
	olderManifest   = "the manifest before"
)

// damagedTogether are several files that are damaged together, and unusual damage.
var damagedTogether = []struct {
	place, damage string
	do            func(t *testing.T, dir string) error
}{
	{"definitions and their mark", "cut in half, and deleted", both(cut, definitionsDir+"/msgs/*.blk", os.RemoveAll, definitionsMark)},
	{"definitions and their mark", "cut in half, and first byte flipped", both(cut, definitionsDir+"/msgs/*.blk", firstByte, definitionsMark)},
	{"definitions and their mark", "both deleted", both(os.RemoveAll, definitionsDir, os.RemoveAll, definitionsMark)},
	{"event log and its mark", "cut in half, and deleted", both(cut, eventLogDir+"/msgs/*.blk", os.RemoveAll, eventLogMark)},
	{"event log and its mark", "block and mark deleted", both(os.RemoveAll, eventLogDir+"/msgs/*.blk", os.RemoveAll, eventLogMark)},
	{"audit log and its mark", "cut in half, and deleted", both(cut, auditDir+"/msgs/*.blk", os.RemoveAll, auditMark)},
	{"definitions, mark", "replaced by the event log's", func(t *testing.T, dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, eventLogMark))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, definitionsMark), text, 0o600)
	}},
	{"definitions", "replaced by a named pipe", pipe(definitionsDir + "/msgs/*.blk")},
	{"definitions, index", "replaced by a named pipe", pipe(definitionsDir + "/msgs/index.db")},
	{"definitions, mark", "replaced by a directory", only(directory, definitionsMark)},
	{"state, newest writes", "replaced by a named pipe", pipe("state/*.log")},
	{"state, manifest", "replaced by a named pipe", pipe(currentManifest)},
	{"broker, a file of no stream", "a named pipe", func(_ *testing.T, dir string) error {
		return syscall.Mkfifo(filepath.Join(dir, "broker/jetstream/$G/streams/pipe"), 0o600)
	}},
	{"identity", "replaced by a named pipe", pipe("identity")},
	{"identity", "replaced by a directory", only(directory, "identity")},
	{"record of files", "replaced by a named pipe", pipe("files")},
	{"remembered sign-ins", "replaced by a named pipe", pipe("sign-ins")},
	{"identity and all of the broker", "deleted", deleted("identity", "broker")},
	{"identity, record of files and all of the broker", "deleted", deleted("identity", "files", "broker")},
	{"identity and all of the state", "deleted", deleted("identity", "state")},
	{"identity, all of the broker and all of the state", "deleted", deleted("identity", "broker", "state")},
	{"all but the remembered sign-ins", "deleted", deleted("identity", "files", "broker", "state", "cache")},
	{"all but the identity", "deleted", deleted("files", "sign-ins", "broker", "state", "cache")},
	{"identity, all marks and all of the state", "deleted", deleted("identity", "broker/marks", "state")},
}

func firstByte(path string) error { return damages[0].do(path) }

// cut cuts a file in half, but not between two records of the same size: that would be a sound file.
func cut(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, max(0, st.Size()/2-1))
}

func directory(path string) error {
	return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700))
}

func only(do func(string) error, pattern string) func(*testing.T, string) error {
	return func(t *testing.T, dir string) error {
		path := largest(t, dir, pattern)
		if path == "" {
			return fmt.Errorf("there is no %s", pattern)
		}
		return do(path)
	}
}

func pipe(pattern string) func(*testing.T, string) error {
	return only(func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }, pattern)
}

func both(first func(string) error, a string, second func(string) error, b string) func(*testing.T, string) error {
	return func(t *testing.T, dir string) error {
		return errors.Join(only(first, a)(t, dir), only(second, b)(t, dir))
	}
}

func deleted(names ...string) func(*testing.T, string) error {
	return func(_ *testing.T, dir string) (err error) {
		for _, name := range names {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		}
		return err
	}
}

// TestDamage damages a state directory in every way and place, after a kill and after a stop, and starts a backend on
// it. The backend must report it, must not begin a new cluster, and must lose no more than it reports. The verify and
// repair commands must reach the same verdict as the start. The table is in docs/damage.md. Without the tag long, the test
// damages each place in one way and compares those rows.
func TestDamage(t *testing.T) {
	killed, stopped := damagedDirs(t)
	order := experiments(t, killed, stopped)
	if !longtest.Run {
		order = oneOfEach(order)
	}
	var mu sync.Mutex
	rows := map[rowKey]string{}
	t.Run("rows", func(t *testing.T) {
		for _, e := range order {
			t.Run(e.place+"/"+e.damage+"/"+e.end, func(t *testing.T) {
				t.Parallel()
				dir, twin := copyDir(t, e.whole), copyDir(t, e.whole)
				if err := errors.Join(e.do(t, dir), e.do(t, twin)); err != nil {
					t.Fatal(err)
				}
				row := tryDamaged(t, dir, twin)
				mu.Lock()
				defer mu.Unlock()
				rows[e.rowKey] = row
			})
		}
	})
	switch {
	case t.Failed() || len(rows) != len(order):
	case longtest.Run:
		compareTable(t, joinRows(order, rows))
	case *updateDamage:
		t.Error("the table is whole with -tags long only")
	default:
		compareRows(t, rows)
	}
}

// experiment is a row of the table of damage: harm to a copy of a directory.
type experiment struct {
	rowKey
	whole string
	do    func(t *testing.T, dir string) error
}

func experiments(t *testing.T, killed, stopped string) (all []experiment) {
	for _, place := range damagedPlaces {
		for _, d := range damages {
			for _, end := range []struct{ name, dir string }{{"killed", killed}, {"stopped", stopped}} {
				path := largest(t, end.dir, place.pattern)
				if path == "" || !applies(path, d.name) {
					continue
				}
				if end.name == "killed" && d.name == "deleted" && filepath.Base(path) == "index.db" {
					continue // after a kill it is discarded in any case
				}
				if end.name == "killed" && place.pattern == olderManifest {
					continue // nothing reads it, and after a kill there is no record of it
				}
				all = append(all, experiment{rowKey{place.name, d.name, end.name}, end.dir, only(d.do, place.pattern)})
			}
		}
	}
	for _, d := range damagedTogether {
		all = append(all, experiment{rowKey{d.place, d.damage, "killed"}, killed, d.do})
		all = append(all, experiment{rowKey{d.place, d.damage, "stopped"}, stopped, d.do})
	}
	return all
}

// oneOfEach keeps one experiment of each place. Together they have each damage and both ends.
func oneOfEach(all []experiment) (some []experiment) {
	var places []string
	of := map[string][]experiment{}
	for _, e := range all {
		if of[e.place] == nil {
			places = append(places, e.place)
		}
		of[e.place] = append(of[e.place], e)
	}
	for i, place := range places {
		some = append(some, of[place][i%len(of[place])])
	}
	return some
}

// joinRows makes one row of damages to a place that lead to the same message and loss.
func joinRows(order []experiment, rows map[rowKey]string) string {
	var table bytes.Buffer
	done := map[rowKey]bool{}
	for _, first := range order {
		if done[first.rowKey] {
			continue
		}
		ends := map[string][]string{}
		var damages []string
		for _, k := range order {
			if k.place == first.place && rows[k.rowKey] == rows[first.rowKey] {
				done[k.rowKey] = true
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
		fmt.Fprintf(&table, "| %s | %s | %s |\n", first.place, strings.Join(damages, ", "), rows[first.rowKey])
	}
	return table.String()
}

// rowKey is one experiment.
type rowKey struct{ place, damage, end string }

// applies excludes damage that is impossible for a file, or part of another row.
func applies(path, damage string) bool {
	st, err := os.Stat(path)
	return err == nil && (damage == "deleted" || !st.IsDir() && st.Size() > 0)
}

const damagePage = "../docs/damage.md"

// compareRows looks for experiments in the table.
func compareRows(t *testing.T, rows map[rowKey]string) {
	text, err := os.ReadFile(damagePage)
	if err != nil {
		t.Fatal(err)
	}
	for k, row := range rows {
		there := false
		for line := range strings.Lines(string(text)) {
			damages, ok := strings.CutPrefix(line, "| "+k.place+" | ")
			damages, ok2 := strings.CutSuffix(damages, " | "+row+" |\n")
			both := strings.Contains(damages, k.damage) && !strings.Contains(damages, k.damage+" (")
			there = there || ok && ok2 && (both || strings.Contains(damages, k.damage+" ("+k.end+")"))
		}
		if !there {
			t.Errorf("%s is not what happens: %s, %s (%s) leads to | %s |", damagePage, k.place, k.damage, k.end, row)
		}
	}
}

func compareTable(t *testing.T, table string) {
	const begin, end = "<!-- table of damage -->\n", "<!-- end of the table -->\n"
	text, err := os.ReadFile(damagePage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", damagePage)
	}
	want := head + begin + "\n| place | damage | it says | lost then |\n|---|---|---|---|\n" + table + "\n" + end + tail
	if *updateDamage {
		if err := os.WriteFile(damagePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the table in %s is not what happens; run this test with -tags long and -update-damage and look at the "+
			"difference. It is:\n%s", damagePage, table)
	}
}

// damagedDirs makes a state directory with definitions, stored results, and results that are only in the log, as after
// a kill and as after a stop.
func damagedDirs(t *testing.T) (killed, stopped string) {
	live := filepath.Join(t.TempDir(), "state")
	put := func(b *testbackend.Backend, from, to int) {
		for i := from; i < to; i++ {
			ev := testbackend.Event("host", fmt.Sprintf("check-%d", i), 1, time.Now().Unix())
			ev.Entity.EntityClass = resource.EntityProxyClass
			name := client.EventName("host", fmt.Sprintf("check-%d", i))
			if err := client.Put(t.Context(), b.Client, client.Events, "default", name, ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	change := func(o *backend.Options) { o.StateDir, o.Log.Partitions = live, 1 }
	t.Run("first run", func(t *testing.T) {
		b := testbackend.Start(t, change)
		for i := range damagedChecks {
			check := &resource.CheckConfig{
				Metadata: resource.ObjectMeta{Name: fmt.Sprintf("defined-%d", i), Namespace: "default"},
				Command:  "true", Interval: 60, Subscriptions: []string{"linux"},
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
	if pattern == currentManifest || pattern == olderManifest {
		return manifest(t, dir, pattern == currentManifest)
	}
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

// manifest is the manifest that the state database uses, or the one before.
func manifest(t *testing.T, dir string, current bool) string {
	t.Helper()
	marker := largest(t, dir, "state/marker.manifest.*")
	paths, err := filepath.Glob(filepath.Join(dir, "state", "MANIFEST-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(marker, filepath.Base(path)) == current {
			return path
		}
	}
	return ""
}

// lines collects log lines from level warn on, and those about an unclean stop.
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

// tryDamaged starts a backend on a damaged directory, repairs it if the backend waits for that, and returns the result.
// A second directory with the same damage is verified and repaired.
func tryDamaged(t *testing.T, dir, twin string) string {
	verified := verifyAndRepair(t, twin)
	b, said := startDamaged(t, dir)
	mended := b != nil && len(said) > 0 && strings.HasPrefix(said[0], "a damaged part")
	if b == nil && verified.lost == 0 || mended && (verified.lost > 0 || verified.anew == 0) {
		t.Errorf("the start says %q, but verify finds %d losses and %d parts to make anew", said, verified.lost, verified.anew)
	}
	waited := b == nil
	if waited {
		b, said = repairAndStart(t, dir, said)
	}
	defer func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	if len(said) == 0 {
		t.Error("the damage is silent")
		said = []string{"nothing"}
	}
	left := whatIsLeft(t, b, dir)
	if !waited && left != nothingLost {
		t.Errorf("it says %q and starts, but lost: %s", said, left)
	}
	return plain(said[0]) + " | " + left
}

// repairAndStart repairs a directory and starts a backend, which may report nothing more, except that no user is left.
func repairAndStart(t *testing.T, dir string, said []string) (*backend.Backend, []string) {
	done, err := backend.Repair(damagedOptions(dir, &lines{}), backend.RepairOptions{})
	if err != nil {
		t.Fatalf("it says %q, and cannot be repaired: %v", said, err)
	}
	if len(done.Lost) == 0 {
		t.Fatalf("it says %q, and a repair finds nothing", said)
	}
	b, again := startDamaged(t, dir)
	if b == nil {
		if !strings.Contains(again[0], "the definitions have no user") {
			t.Fatalf("after the repair it says %q", again)
		}
		said = append(said, again...)
		if _, err := backend.Repair(damagedOptions(dir, &lines{}), backend.RepairOptions{NewAdministrator: true}); err != nil {
			t.Fatal(err)
		}
		b, again = startDamaged(t, dir)
	}
	if b == nil || len(again) > 0 {
		t.Fatalf("after the repair it says %q", again)
	}
	return b, said
}

// verdict is how many findings of each kind the verify command has.
type verdict struct{ lost, anew int }

// verifyAndRepair verifies a directory and repairs it. Another verification must find nothing.
func verifyAndRepair(t *testing.T, dir string) verdict {
	t.Helper()
	opts := damagedOptions(dir, &lines{})
	found, err := backend.Verify(opts)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	if _, err := backend.Repair(opts, backend.RepairOptions{}); err != nil {
		t.Fatalf("repair: %v", err)
	}
	rest, err := backend.Verify(opts)
	if err != nil {
		t.Fatalf("verify after the repair: %v", err)
	}
	for _, f := range rest.Findings {
		t.Errorf("verify after the repair: %s", f)
	}
	lost := len(found.Lost())
	return verdict{lost, len(found.Findings) - lost}
}

func damagedOptions(dir string, l *lines) backend.Options {
	o := testbackend.OptionsIn(dir)
	o.Logger = slog.New(l)
	return o
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
	paths  = regexp.MustCompile(`(; put a backup|; stop the backend).*|\(state[^)]*\)|\(broker[^)]*\)|\((damage|identity)\)|/\S*/state`)
	sums   = regexp.MustCompile(`0x[0-9a-f]+|\b[0-9a-f]{6,8}\b`)
	keys   = regexp.MustCompile(`, among them .*`)
)

// plain is a message without the parts that differ from run to run.
func plain(s string) string {
	s = keys.ReplaceAllString(paths.ReplaceAllString(s, ""), ", among them …")
	s = sums.ReplaceAllString(s, "N")
	s = digits.ReplaceAllString(s, "N")
	s = strings.TrimPrefix(s, "the backend waits and does not start: ")
	return strings.TrimSpace(strings.ReplaceAll(s, "|", "/"))
}

const nothingLost = "no checks, no events"

// whatIsLeft compares a backend's data with the original.
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
