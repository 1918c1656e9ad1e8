package metric

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var churn = flag.Int("churn-series", 300, "new series a minute of TestChurn; many take minutes of real time")

// TestChurn plays four hours in which series come and go, each has points for five minutes. What a server has of them
// stays the same once the first have passed their retention.
func TestChurn(t *testing.T) {
	dir := t.TempDir()
	schemas := filepath.Join(t.TempDir(), "storage-schemas.conf")
	if err := os.WriteFile(schemas, []byte("[all]\npattern = .*\nretentions = 10s:20m,1m:30m\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	type state struct{ series, heap, disk int }
	var states []state
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Dir, o.SchemasFile, o.SelfInterval, o.Store.MinFreeBytes, o.Store.SyncInterval = dir, schemas, -1, -1, time.Minute
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := s.table.Writer(t.Context())
		for minute := range 240 {
			for second := 0; second < 60; second += 10 {
				now := time.Now().UnixMilli()
				for i := max(0, minute-4) * *churn; i < (minute+1)**churn; i++ {
					if err := w.Add(fmt.Appendf(nil, "pods.web-%07d.cpu", i), now, float64(second)); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
			}
			if minute%20 != 19 {
				continue
			}
			runtime.GC()
			var mem runtime.MemStats
			runtime.ReadMemStats(&mem)
			now := state{s.index.Len(), int(mem.HeapInuse), diskOf(t, dir)}
			states = append(states, now)
			t.Logf("minute %d: %d series in the index, %d MiB of heap, %d MiB on disk", minute+1, now.series, now.heap>>20,
				now.disk>>20)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
	before, after := state{}, state{} // the most of the third and the fourth hour
	for i, s := range states[6:] {
		most := &before
		if i >= 3 {
			most = &after
		}
		most.series, most.heap, most.disk = max(most.series, s.series), max(most.heap, s.heap), max(most.disk, s.disk)
	}
	grown := func(now, then int) bool { return float64(now) > 1.2*float64(then) }
	if grown(after.series, before.series) || grown(after.heap, before.heap) || grown(after.disk, before.disk) {
		t.Errorf("in the third hour %+v, in the fourth %+v", before, after)
	}
	if most := 240 * *churn / 2; after.series > most {
		t.Errorf("%d series in the index, more than half of all that there ever were", after.series)
	}
}

func diskOf(t *testing.T, dir string) (size int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				size += int(info.Size())
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has gone since the walk listed it
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}
