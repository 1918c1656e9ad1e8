package whisper

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// expected is what the whisper library reads from the files of testdata.
func expected(t testing.TB) map[string]pyFile {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]pyFile
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d files in expected.json", len(all))
	}
	return all
}

// samePoints compares points bit by bit.
func samePoints(t testing.TB, what string, got, want []Point) {
	t.Helper()
	same := func(a, b Point) bool {
		return a.Time == b.Time && math.Float64bits(a.Value) == math.Float64bits(b.Value)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: points %v, want %v", what, got, want)
	}
}

func TestReadsAsWhisperDoes(t *testing.T) {
	t.Parallel()
	for name, want := range expected(t) {
		path := filepath.Join("testdata", name)
		f, err := Read(path, ReadOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		h := f.Header
		if h.Method.String() != want.Method || h.XFilesFactor != factor(float32(want.XFF)) ||
			h.MaxRetention != want.MaxRetention {
			t.Errorf("%s: header %+v, whisper reads %s, %v, %d", name, h, want.Method, want.XFF, want.MaxRetention)
		}
		for i, a := range want.Archives {
			if got := f.Archives[i].Archive; got.Step != a[0] || got.Points != a[1] {
				t.Errorf("%s: archive %d is %+v, whisper reads %v", name, i, got, a)
			}
			if n := f.Archives[i].Unreachable; n != 0 {
				t.Errorf("%s: archive %d has %d slots out of place", name, i, n)
			}
			samePoints(t, name, f.Archives[i].Within(want.Now), plainPoints(want.Points[i]))
		}
		for _, w := range want.Fetches {
			got, ok := fetch(f, w.From, w.Until, want.Now)
			if ok == w.None {
				t.Errorf("%s: fetch from %d until %d gives %v, whisper none: %v", name, w.From, w.Until, got, w.None)
				continue
			}
			if !ok {
				continue
			}
			if got.Start != w.Start || got.End() != w.End || got.Step != w.Step {
				t.Errorf("%s: fetch from %d until %d gives %d to %d by %d, whisper %d to %d by %d", name, w.From, w.Until,
					got.Start, got.End(), got.Step, w.Start, w.End, w.Step)
				continue
			}
			for i, v := range got.Values {
				text := "nan"
				if w.Values[i] != nil {
					text = *w.Values[i]
				}
				if wv, _ := strconv.ParseFloat(text, 64); wv != v && !(math.IsNaN(v) && math.IsNaN(wv)) {
					t.Errorf("%s: fetch from %d until %d: value %d is %v, whisper has %s", name, w.From, w.Until, i, v, text)
				}
			}
		}
	}
}

// TestVector has the bytes of a small file as whisper writes it.
func TestVector(t *testing.T) {
	t.Parallel()
	text := `00000001 00000078 3f000000 00000002  00000028 0000000a 00000006  00000070 0000001e 00000004
		6553f10a4000000000000000 6553f1144008000000000000 000000000000000000000000
		000000000000000000000000 6553f132401a000000000000 6553f13c401c000000000000
		6553f128401b000000000000 000000000000000000000000 6553f0ec3ff0000000000000 6553f10a4004000000000000`
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	f, err := parse(bytes.NewReader(b), int64(len(b)), false, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	samePoints(t, "10 s", f.Archives[0].Points(),
		[]Point{{1700000010, 2}, {1700000020, 3}, {1700000050, 6.5}, {1700000060, 7}})
	samePoints(t, "30 s", f.Archives[1].Points(), []Point{{1699999980, 1}, {1700000010, 2.5}, {1700000040, 6.75}})
	r, ok := fetch(f, 1700000000, 1700000065, 1700000065)
	if !ok || r.Start != 1700000010 || r.End() != 1700000070 || r.Step != 30 ||
		!slices.Equal(r.Values, []float64{2.5, 6.75}) {
		t.Errorf("fetch gives %+v, %v", r, ok)
	}
}

// file returns the bytes of a good file, for tests that damage it.
func file(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "vector.wsp"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	put := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[at:], v)
			return b
		}
	}
	text := func(s string) func([]byte) []byte { return func([]byte) []byte { return []byte(s) } }
	for _, tc := range []struct {
		name string
		make func(b []byte) []byte
		want string
	}{
		{"zero length", text(""), "the file is empty"},
		{"short", func(b []byte) []byte { return b[:15] }, "the file has 15 bytes, and a header needs 16"},
		{"short archives", func(b []byte) []byte { return b[:39] }, "ends in the header of archive 1 of 2"},
		{"cut off", func(b []byte) []byte { return b[:159] }, "the file has 159 bytes, and its header stands for 160"},
		{"too long", func(b []byte) []byte { return append(b, 0) }, "the file has 161 bytes, and its header stands for 160"},
		{"type 0", put(0, 0), "aggregation type 0 is not known"},
		{"type 9", put(0, 9), "aggregation type 9 is not known"},
		{"old whisper", put(0, 1_300_000_000), "whisper before 0.9.10"},
		{"xff above 1", put(8, math.Float32bits(1.01)), "xFilesFactor is 1.01"},
		{"xff NaN", put(8, math.Float32bits(float32(math.NaN()))), "xFilesFactor is NaN"},
		{"no archives", put(12, 0), "0 archives"},
		{"too many archives", put(12, math.MaxUint32), "4294967295 archives"},
		{"offset", put(16, 41), "archive 0 begins at byte 41, and should begin at 40"},
		{"second offset", put(28, 113), "archive 1 begins at byte 113, and should begin at 112"},
		{"step 0", put(20, 0), "step 0"},
		{"points 0", func(b []byte) []byte { return put(24, 0)(put(28, 40)(b)) }, "0 points"},
		{"same step", put(32, 10), "not longer than 10"},
		{"no multiple", put(32, 25), "no multiple of 10"},
		{"short retention", put(36, 2), "reaches back 60 s, which is not longer than 60 s"},
		{"few points", put(32, 70), "made of 7"},
		{"huge", put(36, math.MaxUint32), "its header stands for 51539607652 bytes, and the bound is"},
		{"compressed", text("whisper_compressed\x02 and more of it"), "go-carbon's compressed format"},
		{"text", text(strings.Repeat("hello, this is no whisper file. ", 10)), "is not known"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "bad.wsp")
		if err := os.WriteFile(path, tc.make(slices.Clone(file(t))), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(path, ReadOptions{})
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with %q and the path", tc.name, err, tc.want)
		}
		if tc.name == "compressed" != errors.Is(err, ErrCompressed) {
			t.Errorf("%s: ErrCompressed is wrong for %v", tc.name, err)
		}
		if tc.name != "compressed" && !errors.Is(err, ErrNotWhisper) {
			t.Errorf("%s: %v is not ErrNotWhisper", tc.name, err)
		}
	}
	for _, path := range []string{"testdata", filepath.Join(t.TempDir(), "missing.wsp")} {
		if _, err := Read(path, ReadOptions{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("reading %s: error %v", path, err)
		}
	}
}

func TestBadZippedFiles(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(filepath.Join("testdata", "zipped.wsp.gz"))
	if err != nil {
		t.Fatal(err)
	}
	sum := slices.Clone(good)
	sum[len(sum)-8]++
	for name, b := range map[string][]byte{"empty": nil, "cut": good[:len(good)/2], "end cut": good[:len(good)-4],
		"checksum": sum, "not gzip": file(t)} {
		path := filepath.Join(t.TempDir(), "bad.wsp.gz")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, ReadOptions{}); !errors.Is(err, ErrNotWhisper) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestAggregationNumbers has the numbers that Graphite and go-carbon read differently.
func TestAggregationNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		number   byte
		goCarbon bool
		want     string // "" for an error
	}{
		{5, false, "min"}, {5, true, "min"}, {6, false, "avg_zero"}, {7, false, "absmax"}, {8, false, "absmin"},
		{6, true, "first"}, {7, true, ""}, {8, true, ""},
	} {
		b := file(t)
		b[3] = tc.number
		f, err := parse(bytes.NewReader(b), int64(len(b)), false, ReadOptions{GoCarbon: tc.goCarbon})
		got := ""
		if err == nil {
			got = f.Header.MethodName()
		}
		if got != tc.want {
			t.Errorf("type %d with GoCarbon %v is %q (%v), want %q", tc.number, tc.goCarbon, got, err, tc.want)
		}
	}
}

// TestSlotsOutOfPlace has slots that whisper does not find.
func TestSlotsOutOfPlace(t *testing.T) {
	t.Parallel()
	b := file(t)
	binary.BigEndian.PutUint32(b[52:], 1700000023) // no multiple of the step
	binary.BigEndian.PutUint32(b[64:], 1700000050) // the time of another slot
	f, err := parse(bytes.NewReader(b), int64(len(b)), false, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a := f.Archives[0]; a.Unreachable != 2 || len(a.Points()) != 3 {
		t.Errorf("%d slots out of place, points %v", a.Unreachable, a.Points())
	}
	b = file(t)
	binary.BigEndian.PutUint32(b[40:], 0) // no base: the archive is empty
	f, err = parse(bytes.NewReader(b), int64(len(b)), false, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a := f.Archives[0]; a.Unreachable != 3 || len(a.Points()) != 0 {
		t.Errorf("%d slots out of place, points %v", a.Unreachable, a.Points())
	}
}

// archivesOf makes archives that obey the rules.
func archivesOf(r *rand.Rand) []series.Archive {
	archives := []series.Archive{{Step: 1 + r.Int64N(60), Points: 1 + r.Int64N(200)}}
	for len(archives) < 4 && r.IntN(3) > 0 {
		last := &archives[len(archives)-1]
		ratio := 2 + r.Int64N(10)
		last.Points = max(last.Points, ratio)
		archives = append(archives, series.Archive{Step: last.Step * ratio, Points: last.Points/ratio + 1 + r.Int64N(100)})
	}
	return archives
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "x.wsp")
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(15, seed))
		archives := archivesOf(r)
		points := make([][]Point, len(archives))
		want := make([][]Point, len(archives))
		for i, a := range archives {
			newest := series.Floor(1_700_000_000+r.Int64N(1_000_000), a.Step)
			for k := range a.Points {
				if r.IntN(3) > 0 {
					want[i] = append(want[i], Point{newest - k*a.Step, r.NormFloat64() * 1e6})
				}
			}
			slices.Reverse(want[i])
			points[i] = slices.Clone(want[i])
			// What must not matter: the order, times within the step, points that were written before, points too old, NaN.
			if n := len(want[i]); n > 0 {
				old := Point{want[i][n-1].Time - a.Retention(), 1}
				points[i] = append([]Point{old, {want[i][0].Time, 7}}, points[i]...)
				points[i] = append(points[i], Point{want[i][n-1].Time, math.NaN()})
				p := &points[i][2+r.IntN(n)]
				p.Time += r.Int64N(a.Step)
			}
		}
		before := slices.Clone(points[0])
		method := series.Average + series.Method(r.IntN(8))
		xff := math.Round(r.Float64()*100) / 100
		if err := Write(path, archives, method, xff, points); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.EqualFunc(before, points[0], func(a, b Point) bool { return a == b || math.IsNaN(a.Value) }) {
			t.Fatalf("seed %d: Write changed the points", seed)
		}
		f, err := Read(path, ReadOptions{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if f.Header.Method != method || f.Header.XFilesFactor != xff || !slices.Equal(f.Header.Archives, archives) {
			t.Fatalf("seed %d: header %+v", seed, f.Header)
		}
		for i := range archives {
			samePoints(t, "archive", f.Archives[i].Points(), want[i])
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("the directory has %v (%v), want one file", left, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	good := []series.Archive{{Step: 10, Points: 6}, {Step: 30, Points: 4}}
	none := [][]Point{nil, nil}
	for _, tc := range []struct {
		name     string
		archives []series.Archive
		method   series.Method
		xff      float64
		points   [][]Point
		want     string
	}{
		{"no archives", nil, series.Average, 0.5, nil, "0 archives"},
		{"method", good, 9, 0.5, none, "method 9"},
		{"xff", good, series.Average, math.NaN(), none, "xFilesFactor is NaN"},
		{"points", good, series.Average, 0.5, [][]Point{nil}, "points of 1 archives for 2 archives"},
		{"negative time", good, series.Average, 0.5, [][]Point{{{-1, 1}}, nil}, "archive 0: a point has the time -1"},
		{"late time", good, series.Average, 0.5, [][]Point{{{1 << 33, 1}}, nil}, "has the time 8589934592"},
		{"rules", []series.Archive{good[1], good[0]}, series.Average, 0.5, none, "archive 1 has step 10"},
		{"size", []series.Archive{{Step: 1, Points: 1 << 29}}, series.Average, 0.5, [][]Point{nil}, "it may have at most"},
		{"retention", []series.Archive{{Step: 1 << 20, Points: 1 << 13}}, series.Average, 0.5, [][]Point{nil}, "longest"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.wsp")
		err := Write(path, tc.archives, tc.method, tc.xff, tc.points)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with %q and the path", tc.name, err, tc.want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: %v is left", tc.name, left)
		}
	}
}

// TestWriteKeepsTheOldFile has a file that cannot be replaced.
func TestWriteKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.wsp")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []series.Archive{{Step: 1, Points: 1}}, series.Last, 0, [][]Point{{{1, 1}}}); err == nil {
		t.Error("no error")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	tagged := "disk.used;dc=dc1;host=web01"
	hash, odd := NameHash(tagged), NameHash("m_DOT_x;a=b")
	for _, tc := range []struct {
		path, name, fails string
	}{
		{"a.wsp", "a", ""},
		{"servers/h1/cpu.wsp", "servers.h1.cpu", ""},
		{"servers/h1/cpu.wsp.gz", "servers.h1.cpu", ""},
		{"_tagged/abc/def/" + strings.ReplaceAll(tagged, ".", "_DOT_") + ".wsp", tagged, ""},
		{"_tagged/" + hash[:3] + "/" + hash[3:6] + "/" + hash + ".wsp", "", "hash"},
		{"_tagged/abc/def/what.wsp", "", "neither tags nor a hash"},
		{"a/b.txt", "", "does not end in .wsp"},
		{"a/.wsp", "", "does not end in .wsp"},
		{"../x.wsp", "", "not below"},
	} {
		path := filepath.Join("root", filepath.FromSlash(tc.path))
		got, err := NameOf("root", path)
		if got != tc.name || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("NameOf(%s) is %q, %v; want %q, %q", tc.path, got, err, tc.name, tc.fails)
		}
		if errors.Is(err, ErrHashedName) != (tc.fails == "hash") {
			t.Errorf("NameOf(%s): ErrHashedName is wrong for %v", tc.path, err)
		}
	}
	for _, tc := range []struct {
		name   string
		hashed bool
		path   string // "" for an error
	}{
		{"a", true, "a.wsp"},
		{"servers.h1.cpu", true, "servers/h1/cpu.wsp"},
		{tagged, true, "_tagged/" + hash[:3] + "/" + hash[3:6] + "/" + hash + ".wsp"},
		{tagged, false, "_tagged/" + hash[:3] + "/" + hash[3:6] + "/disk_DOT_used;dc=dc1;host=web01.wsp"},
		{"m_DOT_x;a=b", false, ""},
		{"m_DOT_x;a=b", true, "_tagged/" + odd[:3] + "/" + odd[3:6] + "/" + odd + ".wsp"},
		{"_tagged", true, "_tagged.wsp"},
		{"_tagged.x", true, ""},
		{"", true, ""}, {".", true, ""}, {"..", true, ""}, {"a..b", true, ""}, {".a", true, ""}, {"a.", true, ""},
		{"a/../../b", true, ""}, {"a\\b", true, ""}, {"a\x00b", true, ""}, {"m;a=/../../x", false, ""},
	} {
		got, err := PathOf("root", tc.name, tc.hashed)
		want := ""
		if tc.path != "" {
			want = filepath.Join("root", filepath.FromSlash(tc.path))
		}
		if got != want || (err != nil) != (want == "") {
			t.Errorf("PathOf(%q, %v) is %q, %v; want %q", tc.name, tc.hashed, got, err, want)
		}
		if err != nil || tc.hashed && strings.Contains(tc.name, ";") {
			continue
		}
		if back, err := NameOf("root", got); back != tc.name || err != nil {
			t.Errorf("NameOf(PathOf(%q)) is %q, %v", tc.name, back, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for name := range expected(f) {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, strings.HasSuffix(name, gzSuffix), false)
	}
	f.Add([]byte("whisper_compressed\x01"), false, true)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, zip, goCarbon bool) {
		path := "x.wsp"
		if zip {
			path += gzSuffix
		}
		file, err := readFile(path, bytes.NewReader(b), int64(len(b)), ReadOptions{GoCarbon: goCarbon, MaxBytes: 1 << 20})
		if err != nil {
			return
		}
		points := make([][]Point, len(file.Archives))
		for i := range file.Archives {
			a := &file.Archives[i]
			points[i] = a.Points()
			if int64(len(points[i])+a.Unreachable+a.NaNs) > a.Archive.Points {
				t.Fatalf("archive %d has more values than slots", i)
			}
			for k, p := range points[i] {
				if p.Time%a.Step != 0 || math.IsNaN(p.Value) || k > 0 && points[i][k-1].Time >= p.Time {
					t.Fatalf("archive %d: point %d is %v after %v", i, k, p, points[i][max(0, k-1)])
				}
			}
		}
		if file.Header.Method == 0 || file.Header.Archives[len(points)-1].Retention() > math.MaxUint32 {
			return
		}
		if len(points[0])%8 != 3 {
			return // the disk is slow
		}
		// What was read can be written, and read again.
		out := filepath.Join(dir, "again.wsp")
		if err := write(out, file.Header.Archives, file.Header.Method, file.Header.XFilesFactor, points, false); err != nil {
			t.Fatal(err)
		}
		again, err := Read(out, ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range points {
			want, err := fit(file.Header.Archives[i], p)
			if err != nil {
				t.Fatal(err)
			}
			samePoints(t, "read again", again.Archives[i].Points(), want)
		}
	})
}

// fetch returns the values in (from, until] with whisper's rules, where now is the present time. It reports false if
// the file can have no values there.
func fetch(f *File, from, until, now int64) (series.Range, bool) {
	oldest := now
	for _, a := range f.Archives {
		oldest = min(oldest, now-a.Retention())
	}
	if from > until || from > now || until < oldest {
		return series.Range{}, false
	}
	from, until = max(from, oldest), min(until, now)
	a := &f.Archives[len(f.Archives)-1]
	if i := slices.IndexFunc(f.Archives, func(a Archive) bool { return a.Retention() >= now-from }); i >= 0 {
		a = &f.Archives[i]
	}
	start, end := series.Floor(from, a.Step)+a.Step, series.Floor(until, a.Step)+a.Step
	if start == end {
		end += a.Step
	}
	r := series.Range{Start: start, Step: a.Step, Values: make([]float64, (end-start)/a.Step),
		Aggregation: f.Header.Method, XFilesFactor: f.Header.XFilesFactor}
	for i := range r.Values {
		r.Values[i] = math.NaN()
	}
	for _, p := range between(a.points, start, end-1) {
		r.Values[(p.Time-start)/a.Step] = p.Value
	}
	return r, true
}
