package whisper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Source is a store whose series are exported. Its methods are called by several goroutines.
type Source interface {
	// Policy returns how the store keeps a series.
	Policy(name string) Policy
	// Fetch returns the values of a series in (from, until] with whisper's rules.
	Fetch(ctx context.Context, name string, from, until, now int64) (series.Range, bool, error)
}

// ExportOptions are the settings of an Export.
type ExportOptions struct {
	// Dir is the root of the tree to write, as carbon's LOCAL_DATA_DIR. Required.
	Dir string
	// Source has the series. Required.
	Source Source
	// Names calls visit for the name of each series to export, until visit returns false. Required.
	Names func(ctx context.Context, visit func(name string) bool) error
	// PlainTagged names the files of tagged series by their names, as carbon does with TAG_HASH_FILENAMES = False.
	// Default: by their hashes, from which the names cannot be found again.
	PlainTagged bool
	// Overwrite replaces files that are there. Default: they stay, so that an export that was interrupted can go on.
	Overwrite bool
	// Workers is how many files are written at a time. Default GOMAXPROCS.
	Workers int
	// Progress, if set, is called from time to time, and at the end. There are no totals.
	Progress func(Progress)
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// ExportReport is what an export has done.
type ExportReport struct {
	Series  int   `json:"series"`
	Written int   `json:"written"`
	Kept    int   `json:"kept"`  // files that were there
	Empty   int   `json:"empty"` // series without points within their retention
	Points  int64 `json:"points"`
	Bytes   int64 `json:"bytes"` // size of the files written; slots without values need less on the disk

	// Failed are series that could not be exported, the first few thousand only.
	Failed      []SeriesError `json:"failed"`
	FailedCount int           `json:"failed_count"`

	Elapsed time.Duration `json:"elapsed_ns"`
}

// SeriesError is a series that could not be exported, and why.
type SeriesError struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// exportRun is a running export.
type exportRun struct {
	ExportOptions
	begin time.Time

	mu     sync.Mutex // guards the fields below
	report ExportReport
	shown  time.Time
}

// Export writes series as whisper files with all their retentions. A file is complete as soon as it has its name. A
// series that cannot be exported does not end it: the report lists it. Files are not synced to the disk one by one:
// after a power cut, export again with Overwrite.
func Export(ctx context.Context, o ExportOptions) (ExportReport, error) {
	if o.Dir == "" || o.Source == nil || o.Names == nil {
		return ExportReport{}, errors.New("export whisper files: Dir, Source and Names are required")
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Workers < 1 || o.Workers > 1024 {
		return ExportReport{}, fmt.Errorf("export whisper files: Workers is %d: it must be from 1 to 1024", o.Workers)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return ExportReport{}, fmt.Errorf("export whisper files: %w", err)
	}
	r := &exportRun{ExportOptions: o, begin: o.Now()}
	names := make(chan string, 256)
	var wg sync.WaitGroup
	for range o.Workers {
		wg.Go(func() {
			for name := range names {
				if ctx.Err() == nil {
					r.note(name, r.one(ctx, name))
				}
			}
		})
	}
	err := o.Names(ctx, func(name string) bool {
		select {
		case names <- name:
			return true
		case <-ctx.Done():
			return false
		}
	})
	close(names)
	wg.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		err = fmt.Errorf("export whisper files: %w", err)
	}
	r.progress(true)
	r.report.Elapsed = o.Now().Sub(r.begin)
	return r.report, err
}

// exported is what one came to.
type exported struct {
	kept   bool
	points int
	bytes  int64
	err    error
}

// one exports a series.
func (r *exportRun) one(ctx context.Context, name string) (out exported) {
	path, err := PathOf(r.Dir, name, !r.PlainTagged)
	if err != nil {
		return exported{err: err}
	}
	if !r.Overwrite {
		if _, err := os.Lstat(path); err == nil {
			return exported{kept: true}
		}
	}
	p := r.Source.Policy(name)
	points := make([][]Point, len(p.Archives))
	now := r.Now().Unix()
	for i, a := range p.Archives {
		got, ok, err := r.Source.Fetch(ctx, name, now-a.Retention(), now, now)
		if err != nil {
			return exported{err: err}
		}
		if !ok {
			continue
		}
		if got.Step != a.Step {
			return exported{err: fmt.Errorf("the archive of %s is one of %s", seconds(a.Step), seconds(got.Step))}
		}
		for k, v := range got.Values {
			if !math.IsNaN(v) {
				points[i] = append(points[i], Point{got.Start + int64(k)*got.Step, v})
			}
		}
		out.points += len(points[i])
	}
	if out.points == 0 {
		return out
	}
	out.bytes = fileSize(p.Archives)
	out.err = write(path, p.Archives, p.Method, p.XFilesFactor, points, false)
	return out
}

func (r *exportRun) note(name string, out exported) {
	r.mu.Lock()
	rep := &r.report
	rep.Series++
	switch {
	case out.err != nil:
		rep.FailedCount++
		if len(rep.Failed) < maxFileErrors {
			rep.Failed = append(rep.Failed, SeriesError{name, out.err.Error()})
		}
	case out.kept:
		rep.Kept++
	case out.points == 0:
		rep.Empty++
	default:
		rep.Written++
		rep.Points += int64(out.points)
		rep.Bytes += out.bytes
	}
	r.mu.Unlock()
	r.progress(false)
}

func (r *exportRun) progress(end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	if r.ExportOptions.Progress == nil || !end && now.Sub(r.shown) < progressPause {
		return
	}
	r.shown = now
	p := Progress{Files: r.report.Series, Bytes: r.report.Bytes, Points: r.report.Points, Errors: r.report.FailedCount,
		Elapsed: now.Sub(r.begin)}
	p.estimate(0)
	r.ExportOptions.Progress(p)
}
