package whisper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// python returns an interpreter that has Graphite's whisper, and skips the test if there is none. The environment
// variable LAPWING_PYTHON names one.
func python(t testing.TB) string {
	t.Helper()
	path := os.Getenv("LAPWING_PYTHON")
	if path == "" {
		path = "python3"
	}
	if out, err := exec.Command(path, "-c", "import whisper; whisper.update_many").CombinedOutput(); err != nil {
		t.Skipf("%s has no whisper library of Graphite: %s", path, out)
	}
	return path
}

// runPython runs a program with the value as JSON on its standard input, and decodes its output into result.
func runPython(t testing.TB, program string, value, result any) {
	t.Helper()
	in, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), "-c", program)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, errs.String())
	}
	if err := json.Unmarshal(out, result); err != nil {
		t.Fatalf("python's output: %v\n%s", err, out)
	}
}

// readProgram prints what whisper reads from files: {path: {header, points of each archive within [from, until]}}.
const readProgram = `
import json, sys, whisper
request = json.load(sys.stdin)
out = {}
for path in request['paths']:
    info = whisper.info(path)
    points = []
    for a in info['archives']:
        now = request['now']
        with open(path, 'rb') as fh:
            (start, end, step), values = whisper.__dict__['__archive_fetch'](fh, a, now - a['retention'], now)
        points.append([[start + i * step, repr(v)] for i, v in enumerate(values) if v is not None])
    out[path] = {'method': info['aggregationMethod'], 'xff': info['xFilesFactor'], 'maxRetention': info['maxRetention'],
                 'archives': [[a['secondsPerPoint'], a['points']] for a in info['archives']], 'points': points}
json.dump(out, sys.stdout)
`

// pyFile is what whisper says about a file.
type pyFile struct {
	Now          int64       `json:"now"`
	Method       string      `json:"method"`
	XFF          float64     `json:"xff"`
	MaxRetention int64       `json:"maxRetention"`
	Archives     [][2]int64  `json:"archives"`
	Points       [][]pyPoint `json:"points"`
	Fetches      []struct {
		From   int64     `json:"from"`
		Until  int64     `json:"until"`
		None   bool      `json:"none"`
		Start  int64     `json:"start"`
		End    int64     `json:"end"`
		Step   int64     `json:"step"`
		Values []*string `json:"values"`
	} `json:"fetches"`
}

// pyPoint is [time, repr(value)].
type pyPoint Point

func (p *pyPoint) UnmarshalJSON(b []byte) error {
	var value string
	if err := json.Unmarshal(b, &[]any{&p.Time, &value}); err != nil {
		return err
	}
	var err error
	p.Value, err = strconv.ParseFloat(value, 64)
	return err
}

// pythonReads returns what whisper reads from files at the time now.
func pythonReads(t testing.TB, now int64, paths ...string) map[string]pyFile {
	t.Helper()
	got := map[string]pyFile{}
	runPython(t, readProgram, map[string]any{"now": now, "paths": paths}, &got)
	return got
}

// writeProgram makes files with whisper itself, and updates them in batches as time goes on.
const writeProgram = `
import json, sys, whisper
for f in json.load(sys.stdin):
    whisper.create(f['path'], [tuple(a) for a in f['archives']], f['xff'], f['method'])
    points = [tuple(p) for p in f['points']]
    for i in range(0, len(points), f['batch']):
        part = points[i:i + f['batch']]
        whisper.update_many(f['path'], part, part[-1][0])
json.dump(None, sys.stdout)
`

func TestPythonReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	python(t)
	dir := t.TempDir()
	const now = 1_700_000_065
	archives := []series.Archive{{Step: 10, Points: 36}, {Step: 60, Points: 2000}}
	points := [][]Point{nil, nil}
	for i := range int64(36) {
		if i%5 != 3 {
			points[0] = append(points[0], Point{now/10*10 - i*10, float64(i) / 3})
		}
	}
	for i := range int64(2000) {
		if i%7 != 3 && (i < 100 || i > 900) {
			points[1] = append(points[1], Point{now/60*60 - i*60, float64(i) / 7})
		}
	}
	var paths []string
	for m := series.Average; m <= series.AbsMin; m++ {
		path := filepath.Join(dir, m.String()+".wsp")
		if err := Write(path, archives, m, 0.3, points); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	for path, got := range pythonReads(t, now, paths...) {
		if got.Method+".wsp" != filepath.Base(path) || float32(got.XFF) != 0.3 || got.MaxRetention != 120_000 {
			t.Errorf("%s: whisper reads method %s, xff %v, retention %d", path, got.Method, got.XFF, got.MaxRetention)
		}
		for i := range archives {
			own, err := fit(archives[i], points[i])
			if err != nil {
				t.Fatal(err)
			}
			samePoints(t, path, plainPoints(got.Points[i]), own)
		}
	}
}

func plainPoints(points []pyPoint) []Point {
	out := make([]Point, len(points))
	for i, p := range points {
		out[i] = Point(p)
	}
	return out
}

// TestReadsWhatPythonWrites has whisper write files with archives and points by chance.
func TestReadsWhatPythonWrites(t *testing.T) {
	t.Parallel()
	python(t)
	type spec struct {
		Path     string       `json:"path"`
		Archives [][2]int64   `json:"archives"`
		XFF      float64      `json:"xff"`
		Method   string       `json:"method"`
		Batch    int          `json:"batch"`
		Points   [][2]float64 `json:"points"`
	}
	dir := t.TempDir()
	const now = 1_700_000_065
	var specs []spec
	var paths []string
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(3, seed))
		s := spec{Path: filepath.Join(dir, fmt.Sprint(seed, ".wsp")), XFF: float64(r.IntN(5)) / 4, Batch: 1 + r.IntN(20),
			Method: (series.Average + series.Method(r.IntN(8))).String()}
		archives := archivesOf(r)
		for _, a := range archives {
			s.Archives = append(s.Archives, [2]int64{a.Step, a.Points})
		}
		step := float64(archives[0].Step) * (0.5 + r.Float64())
		last := archives[len(archives)-1].Retention()
		for at := now - float64(min(last*2, 1000*archives[0].Step)); at < now; at += step {
			if r.IntN(4) > 0 {
				s.Points = append(s.Points, [2]float64{math.Floor(at), math.Round(r.NormFloat64()*1e4) / 100})
			}
		}
		specs, paths = append(specs, s), append(paths, s.Path)
	}
	runPython(t, writeProgram, specs, new(any))
	for path, want := range pythonReads(t, now, paths...) {
		f, err := Read(path, ReadOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if f.Header.Method.String() != want.Method || float32(f.Header.XFilesFactor) != float32(want.XFF) {
			t.Errorf("%s: header %+v", path, f.Header)
		}
		for i := range want.Archives {
			samePoints(t, path, f.Archives[i].Within(now), plainPoints(want.Points[i]))
			if n := f.Archives[i].Unreachable; n != 0 {
				t.Errorf("%s: archive %d has %d slots out of place", path, i, n)
			}
		}
	}
}
