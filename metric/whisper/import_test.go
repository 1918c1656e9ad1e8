package whisper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// fixtureNow is the time of all files in testdata.
const fixtureNow = 1_700_000_065

var fixtureArchives = []series.Archive{{Step: 10, Points: 36}, {Step: 60, Points: 48}, {Step: 300, Points: 60}}

func fixtureClock() time.Time { return time.Unix(fixtureNow, 0) }

// memory is a store in memory. What was imported is lost unless a Commit follows.
type memory struct {
	policy func(name string) Policy

	mu        sync.Mutex
	pending   map[string][][]Point
	committed map[string][][]Point
	imports   map[string]int // successful commits of a series
	spoil     string         // a series of which a value is changed
	calls     int
	before    func(call int) error // called before each Import, Commit and Fetch
}

func newMemory(policy func(string) Policy) *memory {
	return &memory{policy: policy, pending: map[string][][]Point{}, committed: map[string][][]Point{},
		imports: map[string]int{}}
}

func (m *memory) Policy(name string) Policy { return m.policy(name) }

func (m *memory) step() error {
	m.calls++
	if m.before != nil {
		return m.before(m.calls)
	}
	return nil
}

func (m *memory) Import(ctx context.Context, name string, archives []series.Archive, points [][]Point, _ series.Method,
	_ float64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.step(), ctx.Err()); err != nil {
		return err
	}
	if strings.Contains(name, "refused") {
		return errors.New("this name is refused")
	}
	if len(archives) != len(points) {
		return fmt.Errorf("%d archives, points of %d", len(archives), len(points))
	}
	m.pending[name] = points
	return nil
}

func (m *memory) Commit(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.step(), ctx.Err()); err != nil {
		return err
	}
	for name, points := range m.pending {
		m.imports[name]++
		m.committed[name] = slices.Clone(points)
		if name == m.spoil {
			spoiled := slices.Clone(points[0])
			spoiled[len(spoiled)/2].Value++
			m.committed[name][0] = spoiled
		}
	}
	clear(m.pending)
	return nil
}

func (m *memory) Fetch(ctx context.Context, name string, from, until, now int64) (series.Range, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.step(), ctx.Err()); err != nil {
		return series.Range{}, false, err
	}
	points, ok := m.committed[name]
	if !ok {
		return series.Range{}, false, nil
	}
	f := &File{}
	for i, a := range m.policy(name).Archives {
		f.Archives = append(f.Archives, Archive{Archive: a, points: points[i]})
	}
	r, ok := fetch(f, from, until, now)
	return r, ok, nil
}

// names calls visit for the names of all series.
func (m *memory) names(_ context.Context, visit func(string) bool) error {
	for _, name := range slices.Sorted(maps.Keys(m.committed)) {
		if !visit(name) {
			break
		}
	}
	return nil
}

// filePolicies returns the policy that each file has itself.
func filePolicies(t testing.TB, files map[string]pyFile) func(string) Policy {
	t.Helper()
	policies := map[string]Policy{}
	for file, want := range files {
		p := Policy{XFilesFactor: want.XFF}
		var err error
		if p.Method, err = series.ParseMethod(want.Method); err != nil {
			t.Fatal(err)
		}
		for _, a := range want.Archives {
			p.Archives = append(p.Archives, series.Archive{Step: a[0], Points: a[1]})
		}
		policies[fixtureName(t, file)] = p
	}
	return func(name string) Policy {
		if p, ok := policies[name]; ok {
			return p
		}
		return Policy{Archives: fixtureArchives, Method: series.Average, XFilesFactor: 0.5}
	}
}

func fixtureName(t testing.TB, file string) string {
	t.Helper()
	name, err := NameOf("testdata", filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestImportFixtures(t *testing.T) {
	t.Parallel()
	files := expected(t)
	m := newMemory(filePolicies(t, files))
	state := filepath.Join(t.TempDir(), "sub", "journal")
	var last Progress
	o := ImportOptions{Dir: "testdata", Store: m, StateFile: state, Verify: true, BatchFiles: 3, Now: fixtureClock,
		Progress: func(p Progress) { last = p }}
	r, err := Import(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var points int64
	for file, want := range files {
		name := fixtureName(t, file)
		for i := range want.Archives {
			if m.committed[name] == nil {
				if len(want.Points[i]) > 0 {
					t.Errorf("%s was not imported", name)
				}
				continue
			}
			points += int64(len(want.Points[i]))
			samePoints(t, name, m.committed[name][i], plainPoints(want.Points[i]))
		}
	}
	if r.Files != len(files) || r.Imported != len(files)-2 || r.Empty != 2 || r.Done != 0 || r.FailedCount != 0 ||
		r.SkippedCount != 0 || r.Converted != 0 || len(r.Differences) != 0 {
		t.Errorf("report %+v for %d files", r, len(files))
	}
	if r.Points != points || r.Verified != points || r.NaN != 1 || r.Future == 0 || r.TooOld == 0 || r.Unreachable != 0 {
		t.Errorf("report %+v for %d points", r, points)
	}
	if last.Files != len(files) || last.Points != points || last.Errors != 0 {
		t.Errorf("progress %+v", last)
	}

	// A second import has nothing to do.
	r, err = Import(t.Context(), o)
	if err != nil || r.Done != len(files) || r.Imported+r.Empty != 0 {
		t.Errorf("second import: %+v, %v", r, err)
	}
	for name, n := range m.imports {
		if n != 1 {
			t.Errorf("%s was imported %d times", name, n)
		}
	}
}

func TestImportTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fixture := filepath.Join("testdata", "uneven.wsp")
	in := func(path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
	tagged := "disk.used;dc=dc1;host=web01"
	hashed := func(name string) string {
		path, err := PathOf(dir, name, true)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, path := range []string{in("servers/a/cpu.wsp"), in("servers/b/cpu.wsp"), in("servers/b/refused.wsp"),
		in("x.wsp"), in("elsewhere/notes.txt"), in("_tagged/aaa/bbb/m_DOT_x;a=b.wsp"), hashed(tagged), hashed("unknown;a=b"),
		in("servers/a/half.wsp" + tempSuffix)} {
		copyFile(t, fixture, path)
	}
	copyFile(t, filepath.Join("testdata", "zipped.wsp.gz"), in("zip/a.wsp.gz"))
	copyFile(t, filepath.Join("testdata", "zipped.wsp.gz"), in("x.wsp.gz"))
	for path, text := range map[string]string{"bad/zero.wsp": "", "bad/gocarbon.wsp": compressedMagic + "\x01...",
		"bad/short.wsp": "\x00\x00\x00\x01"} {
		if err := os.MkdirAll(in("bad"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"servers/a": "linked", "x.wsp": "servers/a/link.wsp",
		"nowhere": "servers/dangling.wsp"} {
		if err := os.Symlink(in(from), in(to)); err != nil {
			t.Skip(err) // it needs rights on some systems
		}
	}
	names, err := ReadTaggedNames(strings.NewReader("plain.name\n" + tagged + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory(func(string) Policy {
		return Policy{Archives: fixtureArchives, Method: series.Sum, XFilesFactor: 0.25}
	})
	o := ImportOptions{Dir: dir, Store: m, Verify: true, TaggedNames: names, Now: fixtureClock}
	r, err := Import(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(m.committed))
	want := []string{tagged, "m.x;a=b", "servers.a.cpu", "servers.a.link", "servers.b.cpu", "x", "zip.a"}
	if !slices.Equal(got, want) {
		t.Errorf("series %v, want %v", got, want)
	}
	for path, reason := range map[string]string{"bad/zero.wsp": "the file is empty", "bad/gocarbon.wsp": "go-carbon",
		"bad/short.wsp": "4 bytes", "servers/b/refused.wsp": "this name is refused", "servers/dangling.wsp": "no such file"} {
		if !slices.ContainsFunc(r.Failed, func(e FileError) bool {
			return e.Path == in(path) && strings.Contains(e.Reason, reason)
		}) {
			t.Errorf("no error %q of %s in %v", reason, path, r.Failed)
		}
	}
	for path, reason := range map[string]string{hashed("unknown;a=b"): "hash", in("x.wsp.gz"): "not compressed",
		in("linked"): "symbolic link"} {
		if !slices.ContainsFunc(r.Skipped, func(e FileError) bool {
			return e.Path == path && strings.Contains(e.Reason, reason)
		}) {
			t.Errorf("%s was not skipped for %q: %v", path, reason, r.Skipped)
		}
	}
	if r.FailedCount != 5 || r.SkippedCount != 3 || r.Imported != len(want) {
		t.Errorf("report %+v", r)
	}
	for _, d := range []Difference{{"aggregation", "average", "sum", 7}, {"xFilesFactor", "0.5", "0.25", 8}} {
		if !slices.Contains(r.Differences, d) {
			t.Errorf("no difference %+v in %+v", d, r.Differences)
		}
	}

	m = newMemory(m.policy)
	o.Store, o.Match = m, regexp.MustCompile(`^servers\.[ac]\.`)
	r, err = Import(t.Context(), o)
	got = slices.Sorted(maps.Keys(m.committed))
	if err != nil || !slices.Equal(got, []string{"servers.a.cpu", "servers.a.link"}) || r.Unmatched != 9 {
		t.Errorf("with a match: series %v, report %+v, %v", got, r, err)
	}
}

func TestImportTakesChangedFilesAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.wsp")
	copyFile(t, filepath.Join("testdata", "uneven.wsp"), path)
	copyFile(t, path, filepath.Join(dir, "b.wsp"))
	m := newMemory(func(string) Policy {
		return Policy{Archives: fixtureArchives, Method: series.Average, XFilesFactor: 0.5}
	})
	o := ImportOptions{Dir: dir, Store: m, StateFile: filepath.Join(t.TempDir(), "journal"), Now: fixtureClock}
	for i, want := range []int{2, 1, 0} {
		if i == 1 {
			if err := os.Chtimes(path, time.Time{}, fixtureClock()); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := Import(t.Context(), o); err != nil || r.Imported != want {
			t.Errorf("import %d: %+v, %v; want %d imported", i, r, err, want)
		}
	}
}

func TestVerifyFindsDifferences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		copyFile(t, filepath.Join("testdata", "uneven.wsp"), filepath.Join(dir, name+".wsp"))
	}
	m := newMemory(func(string) Policy {
		return Policy{Archives: fixtureArchives, Method: series.Average, XFilesFactor: 0.5}
	})
	m.spoil = "b"
	o := ImportOptions{Dir: dir, Store: m, StateFile: filepath.Join(t.TempDir(), "journal"), Verify: true,
		Now: fixtureClock}
	r, err := Import(t.Context(), o)
	if err != nil || r.Imported != 2 || len(r.Failed) != 1 || r.Failed[0].Path != filepath.Join(dir, "b.wsp") ||
		!strings.Contains(r.Failed[0].Reason, "1 of 35 values of 10s differ") {
		t.Errorf("report %+v, %v", r, err)
	}
	// The file is not in the journal.
	m.spoil = ""
	if r, err := Import(t.Context(), o); err != nil || r.Done != 2 || r.Imported != 1 {
		t.Errorf("import again: %+v, %v", r, err)
	}
}

// TestInterruptedImport ends imports at all kinds of points, by a cancel or by an error of the store, some with a
// journal that was cut in its last line, and goes on until one is complete.
func TestInterruptedImport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files = 23
	for i := range files {
		copyFile(t, filepath.Join("testdata", "uneven.wsp"), filepath.Join(dir, fmt.Sprintf("s/%02d.wsp", i)))
	}
	broken := errors.New("the disk is gone")
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(7, seed))
		m := newMemory(func(string) Policy {
			return Policy{Archives: fixtureArchives, Method: series.Average, XFilesFactor: 0.5}
		})
		state := filepath.Join(t.TempDir(), "journal")
		batch := 1 + r.IntN(6)
		o := ImportOptions{Dir: dir, Store: m, StateFile: state, Verify: r.IntN(2) == 0, BatchFiles: batch, Workers: 2,
			Now: fixtureClock}
		runs := 0
		for ; ; runs++ {
			ctx, cancel := context.WithCancel(t.Context())
			end, fail := m.calls+1+r.IntN(40), r.IntN(2) == 0
			m.before = func(call int) error {
				switch {
				case call < end:
				case fail:
					return broken
				default:
					cancel()
				}
				return nil
			}
			if runs > 100 {
				m.before = nil
			}
			done := map[string]bool{}
			for _, e := range journaled(t, state) {
				done[e.Path] = true
			}
			before := maps.Clone(m.imports)
			_, err := Import(ctx, o)
			cancel()
			for name, n := range m.imports {
				if path := strings.ReplaceAll(name, ".", "/") + ".wsp"; done[path] && n != before[name] {
					t.Fatalf("seed %d: %s was finished, and imported again", seed, name)
				}
			}
			clear(m.pending) // the process is gone
			if err == nil && len(journaled(t, state)) == files {
				break
			}
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, broken) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if b, err := os.ReadFile(state); err == nil && len(b) > 0 && r.IntN(3) == 0 {
				if err := os.WriteFile(state, append(b, "12 345 \"s/0"...), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name, n := range m.imports {
			// Each end can have one batch that was committed and is not in the journal.
			if n > 1+runs {
				t.Errorf("seed %d: %s was imported %d times in %d runs", seed, name, n, runs)
			}
		}
		f, err := Read(filepath.Join("testdata", "uneven.wsp"), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.committed) != files {
			t.Fatalf("seed %d: %d series", seed, len(m.committed))
		}
		for name, points := range m.committed {
			for i := range points {
				samePoints(t, name, points[i], f.Archives[i].Within(fixtureNow))
			}
		}
	}
}

// journaled returns the whole lines of a journal.
func journaled(t testing.TB, path string) (entries []entry) {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if e, ok := parseEntry(string(line)); ok && bytes.HasSuffix(line, []byte("\n")) {
			entries = append(entries, e)
		}
	}
	return entries
}

func TestJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	all := []entry{{"a/b.wsp", 1, -2}, {"odd \" \n\x00\xff ü.wsp", 3, 4}, {strings.Repeat("\x01", 4096), 5, 6}}
	for i := range all {
		j, err := openJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		for k, e := range all {
			if j.has(e) != (k < i) {
				t.Errorf("after %d: has(%q) is %v", i, e.Path, j.has(e))
			}
		}
		j.add(all[i])
		if err := errors.Join(j.save(), j.save(), j.close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte("what is this?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is no journal: %v", err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add("12 345 \"a/b.wsp\"\n")
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := parseEntry(line)
		if !ok {
			return
		}
		if again, ok := parseEntry(string(e.appendTo(nil))); !ok || again != e {
			t.Errorf("%+v is read again as %+v", e, again)
		}
	})
}

func TestTaggedNames(t *testing.T) {
	t.Parallel()
	want := map[string]string{NameHash("a;b=c"): "a;b=c", NameHash("d;e=f"): "d;e=f"}
	for text, ok := range map[string]bool{
		"a;b=c\r\nplain\n\n  d;e=f": true, `["a;b=c","plain","d;e=f"]`: true, "\n [ \"a;b=c\", \"d;e=f\" ]\n": true,
		`["a;b=c", 1]`: false, `["a;b=c"`: false, strings.Repeat("x", maxNameBytes+1): false,
	} {
		got, err := ReadTaggedNames(strings.NewReader(text))
		if (err == nil) != ok || ok && !maps.Equal(got, want) {
			t.Errorf("%.40q: %v, %v", text, got, err)
		}
	}
}

// fileOf returns a file in memory whose archives have all their points, with the times as values.
func fileOf(now int64, archives ...series.Archive) *File {
	f := &File{Header: Header{Archives: archives}}
	for _, a := range archives {
		own := Archive{Archive: a}
		for t := series.Floor(now-a.Retention(), a.Step) + a.Step; t <= now; t += a.Step {
			own.points = append(own.points, Point{t, float64(t)})
		}
		f.Archives = append(f.Archives, own)
	}
	return f
}

func TestConvertToOtherArchives(t *testing.T) {
	t.Parallel()
	const now = 100_005
	// The file's values are times, so each shows where it comes from.
	f := fileOf(now, series.Archive{Step: 10, Points: 60}, series.Archive{Step: 60, Points: 100},
		series.Archive{Step: 300, Points: 100})
	for _, tc := range []struct {
		name    string
		archive series.Archive
		// at has times and the values that they must have; NaN for none.
		at    map[int64]float64
		count int
	}{
		{"the same", series.Archive{Step: 60, Points: 100},
			map[int64]float64{99960: 99960, 94020: 94020, 94019: math.NaN()}, 100},
		{"shorter", series.Archive{Step: 60, Points: 10},
			map[int64]float64{99960: 99960, 99420: 99420, 99360: math.NaN()}, 10},
		// Before 99410, the 10 s come from the file's 60 s, and before 94020 from its 300 s.
		{"finest longer", series.Archive{Step: 10, Points: 1000},
			map[int64]float64{99410: 99410, 99400: math.NaN(), 99360: 99360, 99350: math.NaN(), 94020: 94020, 93900: 93900,
				93840: math.NaN(), 93600: 93600}, 60 + 90 + 13},
		// 30 s are made of the file's 10 s; the slot that has not ended is not.
		{"between", series.Archive{Step: 30, Points: 1000},
			map[int64]float64{99960: 99970, 99990: math.NaN(), 99420: 99430, 99360: 99360, 99390: math.NaN()}, 0},
		// 120 s are made of the file's 60 s, which reach further back than 10 s; before that, of its 300 s.
		{"coarser", series.Archive{Step: 120, Points: 200}, map[int64]float64{99840: 99870, 99960: math.NaN(), 94080: 94110,
			93840: 93900, 93600: 93600}, 0},
		{"finer than all", series.Archive{Step: 1, Points: 100},
			map[int64]float64{100000: 100000, 99990: 99990, 99991: math.NaN()}, 10},
		{"no fit", series.Archive{Step: 7, Points: 10}, map[int64]float64{99995: 100000, 99988: 99990}, 7},
	} {
		p := Policy{Archives: []series.Archive{tc.archive}, Method: series.Average, XFilesFactor: 0.5}
		points := convert(f, p, now)[0]
		got := map[int64]float64{}
		for i, p := range points {
			if i > 0 && points[i-1].Time >= p.Time || p.Time%tc.archive.Step != 0 {
				t.Errorf("%s: time %d is out of order", tc.name, p.Time)
			}
			got[p.Time] = p.Value
		}
		for at, want := range tc.at {
			if v, ok := got[at]; ok == math.IsNaN(want) || ok && v != want {
				t.Errorf("%s: at %d is %v (%v), want %v", tc.name, at, v, ok, want)
			}
		}
		if tc.count > 0 && len(points) != tc.count {
			t.Errorf("%s: %d points, want %d", tc.name, len(points), tc.count)
		}
	}
}

// TestConvertKeepsFiles checks that a policy with the file's own archives gets the file's own points.
func TestConvertKeepsFiles(t *testing.T) {
	t.Parallel()
	for name, want := range expected(t) {
		f, err := Read(filepath.Join("testdata", name), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		own := Policy{Archives: f.Header.Archives, Method: f.Header.Method, XFilesFactor: f.Header.XFilesFactor}
		got := convert(f, own, want.Now)
		for i := range got {
			samePoints(t, name, got[i], plainPoints(want.Points[i]))
		}
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	files := expected(t)
	m := newMemory(filePolicies(t, files))
	if _, err := Import(t.Context(), ImportOptions{Dir: "testdata", Store: m, Now: fixtureClock}); err != nil {
		t.Fatal(err)
	}
	m.committed["m;a=b"] = m.committed["uneven"]
	m.committed["bad..name"] = m.committed["uneven"]
	m.committed["hollow"] = [][]Point{nil, nil, nil}
	dir := t.TempDir()
	var last Progress
	o := ExportOptions{Dir: dir, Source: m, Names: m.names, Now: fixtureClock, Progress: func(p Progress) { last = p }}
	r, err := Export(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Series != len(m.committed) || r.Written != len(m.committed)-2 || r.Empty != 1 || r.FailedCount != 1 ||
		r.Failed[0].Name != "bad..name" || last.Files != r.Series {
		t.Errorf("report %+v, progress %+v", r, last)
	}
	for file, want := range files {
		name := fixtureName(t, file)
		path, err := PathOf(dir, name, true)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Read(path, ReadOptions{})
		if errors.Is(err, os.ErrNotExist) && m.committed[name] == nil {
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if f.Header.Method.String() != want.Method || float32(f.Header.XFilesFactor) != float32(want.XFF) {
			t.Errorf("%s: header %+v", name, f.Header)
		}
		for i := range want.Archives {
			samePoints(t, name, f.Archives[i].Points(), plainPoints(want.Points[i]))
		}
	}
	// Files stay, unless told otherwise.
	if r, err := Export(t.Context(), o); err != nil || r.Kept != len(m.committed)-2 || r.Written != 0 {
		t.Errorf("second export: %+v, %v", r, err)
	}
	o.Overwrite, o.PlainTagged = true, true
	if r, err := Export(t.Context(), o); err != nil || r.Written != len(m.committed)-2 {
		t.Errorf("third export: %+v, %v", r, err)
	}
	hash := NameHash("m;a=b")
	if _, err := os.Stat(filepath.Join(dir, "_tagged", hash[:3], hash[3:6], "m;a=b.wsp")); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Export(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	m := newMemory(nil)
	for want, o := range map[string]ImportOptions{
		"Dir and Store":  {Dir: t.TempDir()},
		"Workers is -1":  {Dir: t.TempDir(), Store: m, Workers: -1},
		"no such file":   {Dir: filepath.Join(t.TempDir(), "missing"), Store: m},
		"is no director": {Dir: filepath.Join("testdata", "vector.wsp"), Store: m},
	} {
		if _, err := Import(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
