package metric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/whisper"
)

// whisperNow is the time of the files in whisper's testdata.
const whisperNow = 1_700_000_065

// whisperTestdata has files that Graphite's whisper wrote.
var whisperTestdata = filepath.Join("whisper", "testdata")

// whisperFile is a file of whisperTestdata, and what the whisper library reads from it.
type whisperFile struct {
	Method   string
	XFF      float64
	Archives [][2]int64
	Points   [][][2]any
}

func whisperFiles(t *testing.T) map[string]whisperFile {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(whisperTestdata, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	byFile := map[string]whisperFile{}
	if err := json.Unmarshal(b, &byFile); err != nil {
		t.Fatal(err)
	}
	all := map[string]whisperFile{}
	for file, f := range byFile {
		name, err := whisper.NameOf("d", filepath.Join("d", file))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = f
	}
	return all
}

// whisperSchemas writes carbon's two files, so that each series has the archives of its whisper file.
func whisperSchemas(t *testing.T, files map[string]whisperFile) OfflineOptions {
	t.Helper()
	var schemas, aggregation strings.Builder
	for name, f := range files {
		quoted := strings.ReplaceAll(name, ".", `\.`)
		var retentions []string
		for _, a := range f.Archives {
			retentions = append(retentions, fmt.Sprintf("%d:%d", a[0], a[1]))
		}
		fmt.Fprintf(&schemas, "[%s]\npattern = ^%s$\nretentions = %s\n", name, quoted, strings.Join(retentions, ","))
		fmt.Fprintf(&aggregation, "[%s]\npattern = ^%s$\nxFilesFactor = %v\naggregationMethod = %s\n", name, quoted, f.XFF,
			f.Method)
	}
	dir := t.TempDir()
	o := OfflineOptions{Dir: t.TempDir(), SchemasFile: filepath.Join(dir, "schemas.conf"),
		AggregationFile: filepath.Join(dir, "aggregation.conf"), Create: true,
		Now: func() time.Time { return time.Unix(whisperNow, 0) }}
	for path, text := range map[string]string{o.SchemasFile: schemas.String(), o.AggregationFile: aggregation.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// TestWhisperInAndOut imports files that whisper wrote, opens the store anew, and exports them: whisper must read the
// same.
func TestWhisperInAndOut(t *testing.T) {
	t.Parallel()
	files := whisperFiles(t)
	o := whisperSchemas(t, files)
	off, err := OpenOffline(o)
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "journal")
	r, err := off.Import(t.Context(), whisper.ImportOptions{Dir: whisperTestdata, Verify: true, BatchFiles: 12,
		StateFile: state})
	if err != nil {
		t.Fatal(err)
	}
	if r.FailedCount+r.SkippedCount+r.Converted > 0 || len(r.Differences) > 0 || r.Imported != len(files)-2 ||
		r.Verified != r.Points {
		t.Errorf("report %+v", r)
	}
	if _, err := OpenOffline(o); !errors.Is(err, ErrInUse) {
		t.Errorf("open it twice: error %v", err)
	}
	if err := errors.Join(off.Close(), off.Close()); err != nil {
		t.Fatal(err)
	}

	if off, err = OpenOffline(o); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := off.Close(); err != nil {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	out, err := off.Export(t.Context(), nil, nil, whisper.ExportOptions{Dir: dir})
	if err != nil || out.Written != len(files)-2 || out.FailedCount != 0 {
		t.Fatalf("export: %+v, %v", out, err)
	}
	var paths []string
	for name, want := range files {
		path, err := whisper.PathOf(dir, name, true)
		if err != nil {
			t.Fatal(err)
		}
		f, err := whisper.Read(path, whisper.ReadOptions{})
		if errors.Is(err, os.ErrNotExist) && len(slices.Concat(want.Points...)) == 0 {
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		paths = append(paths, path)
		if f.Header.Method.String() != want.Method || float32(f.Header.XFilesFactor) != float32(want.XFF) {
			t.Errorf("%s: header %+v, want %s and %v", name, f.Header, want.Method, want.XFF)
		}
		for i := range want.Archives {
			sameWhisperPoints(t, name, i, f.Archives[i].Points(), want.Points[i])
		}
	}
	for path, points := range pythonWhisper(t, paths) {
		name, err := whisper.NameOf(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range points {
			var got []whisper.Point
			for _, p := range points[i] {
				got = append(got, whisperPoint(t, p))
			}
			sameWhisperPoints(t, "python: "+name, i, got, files[name].Points[i])
		}
	}
}

func whisperPoint(t *testing.T, p [2]any) whisper.Point {
	t.Helper()
	var v float64
	if _, err := fmt.Sscan(p[1].(string), &v); err != nil {
		t.Fatal(err)
	}
	return whisper.Point{Time: int64(p[0].(float64)), Value: v}
}

// sameWhisperPoints compares the points of an archive. The store computes open and missing slots at the edges itself,
// so it may have more of them than whisper; none may be missing or different.
func sameWhisperPoints(t *testing.T, name string, archive int, got []whisper.Point, want [][2]any) {
	t.Helper()
	values := map[int64]float64{}
	for _, p := range got {
		values[p.Time] = p.Value
	}
	for _, w := range want {
		p := whisperPoint(t, w)
		if v, ok := values[p.Time]; !ok || math.Float64bits(v) != math.Float64bits(p.Value) {
			t.Errorf("%s, archive %d: at %d is %v (%v), want %v", name, archive, p.Time, v, ok, p.Value)
		}
		delete(values, p.Time)
	}
	if len(values) > 0 {
		t.Errorf("%s, archive %d: more than whisper has: %v", name, archive, values)
	}
}

// pythonWhisper returns what the whisper library reads from files, by path, archive and time; nothing if there is no
// Python with it. The environment variable LAPWING_PYTHON names one.
func pythonWhisper(t *testing.T, paths []string) map[string][][][2]any {
	t.Helper()
	python := os.Getenv("LAPWING_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import whisper; whisper.update_many").CombinedOutput(); err != nil {
		t.Logf("%s has no whisper library of Graphite: %s", python, out)
		return nil
	}
	const program = `
import json, sys, whisper
out = {}
for path in sys.argv[2:]:
    now, points = int(sys.argv[1]), []
    for a in whisper.info(path)['archives']:
        with open(path, 'rb') as fh:
            (start, end, step), values = whisper.__dict__['__archive_fetch'](fh, a, now - a['retention'], now)
        points.append([[start + i * step, repr(v)] for i, v in enumerate(values) if v is not None])
    out[path] = points
json.dump(out, sys.stdout)
`
	cmd := exec.Command(python, append([]string{"-c", program, fmt.Sprint(whisperNow)}, paths...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, errs.String())
	}
	var points map[string][][][2]any
	if err := json.Unmarshal(text, &points); err != nil {
		t.Fatal(err)
	}
	return points
}

// TestWhisperImportIsKilled cancels imports, and goes on with a store that is opened anew.
func TestWhisperImportIsKilled(t *testing.T) {
	t.Parallel()
	files := whisperFiles(t)
	o := whisperSchemas(t, files)
	state := filepath.Join(t.TempDir(), "journal")
	for round := 0; ; round++ {
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		o.Now = func() time.Time { // the import looks at the clock for each file and each comparison
			if calls.Add(1) > int64(20+30*round) {
				cancel()
			}
			return time.Unix(whisperNow, 0)
		}
		off, err := OpenOffline(o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := off.Import(ctx, whisper.ImportOptions{Dir: whisperTestdata, Verify: true, BatchFiles: 8, StateFile: state})
		cancel()
		if err := off.Close(); err != nil {
			t.Fatal(err)
		}
		if r.FailedCount > 0 {
			t.Fatalf("round %d: %+v", round, r)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) || round > 100 {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	o.Now = func() time.Time { return time.Unix(whisperNow, 0) }
	off, err := OpenOffline(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := off.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, want := range files {
		for i, a := range want.Archives {
			r, ok, err := off.store.Fetch(t.Context(), name, whisperNow-a[0]*a[1], whisperNow, whisperNow)
			if err != nil || !ok && len(want.Points[i]) > 0 {
				t.Errorf("%s: fetch archive %d: %v, %v", name, i, ok, err)
				continue
			}
			sameWhisperPoints(t, name, i, known(r), want.Points[i])
		}
	}
}

func known(r series.Range) (points []whisper.Point) {
	for i, v := range r.Values {
		if !math.IsNaN(v) {
			points = append(points, whisper.Point{Time: r.Start + int64(i)*r.Step, Value: v})
		}
	}
	return points
}

// TestWhisperExportOfSome exports by pattern and by tag.
func TestWhisperExportOfSome(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	archives := []series.Archive{{Step: 10, Points: 8640}}
	for _, name := range []string{"a.b.c", "a.x.c", "a.b", "disk;dc=x;host=h", "disk;dc=y;host=h"} {
		path, err := whisper.PathOf(src, name, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := whisper.Write(path, archives, series.Average, 0.5,
			[][]whisper.Point{{{Time: whisperNow - 100, Value: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	o := OfflineOptions{Dir: t.TempDir(), Now: func() time.Time { return time.Unix(whisperNow, 0) }}
	if _, err := OpenOffline(o); err == nil || !strings.Contains(err.Error(), o.Dir) {
		t.Errorf("no store: error %v", err)
	}
	o.Create = true
	off, err := OpenOffline(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := off.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := off.Import(t.Context(), whisper.ImportOptions{Dir: src, Verify: true})
	if err != nil || r.Imported != 5 || r.Converted != 5 || r.FailedCount > 0 {
		t.Fatalf("import: %+v, %v", r, err)
	}
	for _, tc := range []struct {
		patterns, tags []string
		want           int
		fails          string
	}{
		{nil, nil, 5, ""},
		{[]string{"a.*.c", "a.b.*"}, nil, 2, ""},
		{nil, []string{"dc=x"}, 1, ""},
		{[]string{"a.b", "disk;dc=x;host=h"}, []string{"name=disk", "host=~h"}, 3, ""},
		{[]string{"no.such"}, nil, 0, ""},
		{nil, []string{"what?"}, 0, "what?"},
	} {
		dir := t.TempDir()
		out, err := off.Export(t.Context(), tc.patterns, tc.tags, whisper.ExportOptions{Dir: dir})
		if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) ||
			out.Written != tc.want {
			t.Errorf("%v %v: %+v, %v", tc.patterns, tc.tags, out, err)
		}
	}
}
