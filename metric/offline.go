package metric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/dirlock"
	"github.com/lapwing-monitoring/lapwing/metric/index"
	"github.com/lapwing-monitoring/lapwing/metric/schema"
	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/store"
	"github.com/lapwing-monitoring/lapwing/metric/whisper"
)

// ErrInUse says that another process has the store open.
var ErrInUse = errors.New("another process has the metrics open: stop the server first")

// OfflineOptions say which store is opened while no server has it open.
type OfflineOptions struct {
	// Dir is Options.Dir of the server, or the state directory of a backend. Required.
	Dir string
	// SchemasFile and AggregationFile are those of the server.
	SchemasFile, AggregationFile string
	// Create makes the store if there is none. Default: that is an error.
	Create bool
	// StopTimeout bounds the closing of the store. Default 1 min.
	StopTimeout time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
}

// Offline is a store without a server, to move whisper files into it and out of it.
type Offline struct {
	dir     string
	lock    *dirlock.Lock
	store   *store.Store
	schemas *schema.Schemas
	timeout time.Duration
	now     func() time.Time
}

// OpenOffline opens a store. The error is ErrInUse if another process has it open.
func OpenOffline(o OfflineOptions) (*Offline, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = time.Minute
	}
	dir, err := offlineDir(o.Dir, o.Create)
	if err != nil {
		return nil, err
	}
	schemas, notes, err := schema.Load(o.SchemasFile, o.AggregationFile)
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		o.Logger.Warn("a part of the schemas was left out", "part", n.String())
	}
	lock, err := dirlock.Take(dir)
	if errors.Is(err, dirlock.ErrInUse) {
		return nil, fmt.Errorf("%w (%w)", ErrInUse, err)
	}
	if err != nil {
		return nil, err
	}
	off := &Offline{dir: dir, lock: lock, schemas: schemas, timeout: o.StopTimeout, now: o.Now}
	off.store, err = store.New(store.Options{Dir: filepath.Join(dir, tiersDir), Policy: off.storePolicy, Now: o.Now,
		Log: o.Logger})
	if err == nil {
		err = off.store.Start()
	}
	if err != nil {
		err = errors.Join(err, lock.Unlock())
		return nil, fmt.Errorf("open the metrics in %s: %w", dir, err)
	}
	return off, nil
}

// tiersDir is the store's directory in that of the server.
const tiersDir = "tiers"

// offlineDir finds the directory of the metrics half. A backend has it in its own.
func offlineDir(dir string, create bool) (string, error) {
	if dir == "" {
		return "", errors.New("open the metrics: Dir is required")
	}
	nested := filepath.Join(dir, "metrics")
	for _, d := range []string{dir, nested} {
		if info, err := os.Stat(filepath.Join(d, tiersDir)); err == nil && info.IsDir() {
			return d, nil
		}
	}
	if info, err := os.Stat(nested); err == nil && info.IsDir() {
		dir = nested
	}
	if !create {
		return "", fmt.Errorf("open the metrics: %s has no directory %s", dir, tiersDir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("open the metrics: %w", err)
	}
	return dir, nil
}

// Dir returns the directory of the metrics half.
func (o *Offline) Dir() string { return o.dir }

// Close closes the store.
func (o *Offline) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	return errors.Join(o.store.Stop(ctx), o.lock.Unlock())
}

func (o *Offline) storePolicy(name string) store.Policy {
	archives, method, xff, _ := o.schemas.Match(name)
	return store.Policy{Archives: archives, Method: method, XFilesFactor: xff}
}

// Import imports a tree of whisper files. It sets the Store and the clock of w.
func (o *Offline) Import(ctx context.Context, w whisper.ImportOptions) (whisper.Report, error) {
	w.Store, w.Now = &importer{o: o}, o.now
	return whisper.Import(ctx, w)
}

// Export exports series as whisper files: those that match one of the patterns, as /metrics/find knows them, and those
// with tags that satisfy all expressions, as seriesByTag knows them. Without either, it exports all series. It sets
// the Source, the Names and the clock of w.
func (o *Offline) Export(ctx context.Context, patterns, expressions []string,
	w whisper.ExportOptions) (whisper.ExportReport,
	error) {
	names, err := index.New(index.Options{})
	if err != nil {
		return whisper.ExportReport{}, err
	}
	if err := o.store.Names(ctx, func(name string) bool { names.Add(name); return true }); err != nil {
		return whisper.ExportReport{}, err
	}
	w.Source, w.Now = &importer{o: o}, o.now
	w.Names = func(ctx context.Context, visit func(string) bool) error {
		if len(patterns) == 0 && len(expressions) == 0 {
			return names.All(ctx, visit)
		}
		return selected(ctx, names, patterns, expressions, visit)
	}
	return whisper.Export(ctx, w)
}

// selected calls visit for the names that match, each once.
func selected(ctx context.Context, names *index.Index, patterns, expressions []string, visit func(string) bool) error {
	all := index.Budget{Nodes: 1 << 30, Results: 1 << 30}
	seen := map[string]bool{}
	each := func(found []string, err error) (more bool, _ error) {
		if err != nil {
			return false, err
		}
		for _, name := range found {
			if !seen[name] {
				seen[name] = true
				if !visit(name) {
					return false, nil
				}
			}
		}
		return true, nil
	}
	for _, p := range patterns {
		if more, err := each(names.Leaves(ctx, p, all)); err != nil || !more {
			return err
		}
	}
	if len(expressions) == 0 {
		return nil
	}
	_, err := each(names.FindTagged(ctx, expressions, all))
	return err
}

// importer is the store as package whisper wants it.
type importer struct {
	o  *Offline
	im *store.Import
}

// Policy implements whisper.Importer.
func (i *importer) Policy(name string) whisper.Policy {
	p := i.o.storePolicy(name)
	return whisper.Policy{Archives: p.Archives, Method: p.Method, XFilesFactor: p.XFilesFactor}
}

// Import implements whisper.Importer.
func (i *importer) Import(ctx context.Context, name string, archives []series.Archive, points [][]whisper.Point,
	_ series.Method, _ float64) error {
	if i.im == nil {
		i.im = i.o.store.NewImport()
	}
	for k, a := range archives {
		own := make([]store.Point, len(points[k]))
		for n, p := range points[k] {
			own[n] = store.Point(p)
		}
		if err := i.im.Add(ctx, name, a, own); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements whisper.Importer.
func (i *importer) Commit(ctx context.Context) error {
	if i.im == nil {
		return nil
	}
	if i.o.store.Stats().DiskFull {
		return errors.New("the disk is almost full")
	}
	err := i.im.Commit(ctx)
	i.im = nil
	return err
}

// Fetch implements whisper.Importer.
func (i *importer) Fetch(ctx context.Context, name string, from, until, now int64) (series.Range, bool, error) {
	return i.o.store.Fetch(ctx, name, from, until, now)
}
