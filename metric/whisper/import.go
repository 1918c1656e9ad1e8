package whisper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Importer is a store that takes old points. Import and Commit are called by one goroutine at a time. Policy and Fetch
// are called by several, Fetch only after a Commit and before the next Import.
type Importer interface {
	// Policy returns how the store keeps a series.
	Policy(name string) Policy
	// Import takes the points of each archive of the series' policy, in the order of time. The caller does not change them
	// later.
	Import(ctx context.Context, name string, archives []series.Archive, points [][]Point, method series.Method,
		xff float64) error
	// Commit makes what was imported durable and readable. An error of it ends the whole import.
	Commit(ctx context.Context) error
	// Fetch returns the values of a series in (from, until] with whisper's rules.
	Fetch(ctx context.Context, name string, from, until, now int64) (series.Range, bool, error)
}

// ImportOptions are the settings of an Import.
type ImportOptions struct {
	// Dir is the root of the tree, as carbon's LOCAL_DATA_DIR. Required.
	Dir string
	// Store takes the points. Required.
	Store Importer
	// Match leaves out series whose name it does not match. Default nil: all series are imported.
	Match *regexp.Regexp
	// TaggedNames has names of tagged series by their hash, as ReadTaggedNames returns them. Files of other hashes are
	// skipped.
	TaggedNames map[string]string
	// StateFile is a journal of the files that are finished, so that a further import goes on where this one ended, and
	// takes only files that have changed. It belongs to one store. Default "": none.
	StateFile string
	// Verify reads back what was imported and compares all values.
	Verify bool
	// Workers is how many files are read at a time. Default GOMAXPROCS.
	Workers int
	// BatchPoints and BatchFiles bound what is imported between two commits. The points of a batch are in memory. Default
	// 3,000,000 and 10,000.
	BatchPoints, BatchFiles int
	// Read is how files are read.
	Read ReadOptions
	// Progress, if set, is called from time to time, and at the end, by the goroutine that called Import.
	Progress func(Progress)
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (o *ImportOptions) setDefaults() error {
	if o.Dir == "" || o.Store == nil {
		return errors.New("import whisper files: Dir and Store are required")
	}
	for _, n := range []struct {
		name  string
		value *int
		def   int
		most  int
	}{
		{"Workers", &o.Workers, runtime.GOMAXPROCS(0), 1024},
		{"BatchPoints", &o.BatchPoints, 3_000_000, math.MaxInt32},
		{"BatchFiles", &o.BatchFiles, 10_000, math.MaxInt32},
	} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < 1 || *n.value > n.most {
			return fmt.Errorf("import whisper files: %s is %d: it must be from 1 to %d", n.name, *n.value, n.most)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Progress is how far an import or an export is.
type Progress struct {
	// Files and Bytes are finished; TotalFiles and TotalBytes are all of them, or 0 as long as they are not known.
	Files, TotalFiles int
	Bytes, TotalBytes int64
	Points            int64
	Errors            int
	Elapsed           time.Duration
	PointsPerSecond   float64
	// Left is an estimate of the time until the end, or 0 as long as there is none.
	Left time.Duration
}

// Report is what an import has done.
type Report struct {
	Files     int `json:"files"`     // whisper files in the tree
	Imported  int `json:"imported"`  // files whose points were imported
	Empty     int `json:"empty"`     // files without points within the retention
	Done      int `json:"done"`      // files that an earlier import has finished
	Unmatched int `json:"unmatched"` // files whose name ImportOptions.Match leaves out

	Points    int64 `json:"points"`    // imported, all archives together
	Verified  int64 `json:"verified"`  // of them read back and found equal
	Converted int   `json:"converted"` // files whose archives are not those of the store's policy

	// TooOld and Future are points of files that whisper would not return either: slots that are waiting to be written
	// again, and times that have not come.
	TooOld      int64 `json:"too_old"`
	Future      int64 `json:"future"`
	NaN         int64 `json:"nan"`
	Unreachable int64 `json:"unreachable"` // slots with a time that does not belong there

	// Skipped are files whose series is not known, and symbolic links to directories; Failed are files that could not be
	// imported. Both have the first few thousand only.
	Skipped      []FileError `json:"skipped"`
	SkippedCount int         `json:"skipped_count"`
	Failed       []FileError `json:"failed"`
	FailedCount  int         `json:"failed_count"`
	// Differences are the differences between files and the store's policies.
	Differences []Difference `json:"differences"`

	Elapsed time.Duration `json:"elapsed_ns"`
}

// FileError is a file that was left out, and why.
type FileError struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Difference is a setting that files and the policies of their series do not have in common.
type Difference struct {
	Setting string `json:"setting"` // archives, aggregation or xFilesFactor
	File    string `json:"file"`
	Store   string `json:"store"`
	Files   int    `json:"files"`
}

// Bounds of the lists in a Report.
const (
	maxFileErrors  = 5000
	maxDifferences = 100
)

func (r *Report) fail(path string, err error) {
	r.FailedCount++
	if len(r.Failed) < maxFileErrors {
		r.Failed = append(r.Failed, FileError{path, err.Error()})
	}
}

func (r *Report) skip(path, reason string) {
	r.SkippedCount++
	if len(r.Skipped) < maxFileErrors {
		r.Skipped = append(r.Skipped, FileError{path, reason})
	}
}

// differ counts a difference. When there are too many, the further ones count as one.
func (r *Report) differ(setting, file, store string) {
	for i := range r.Differences {
		if d := &r.Differences[i]; d.Setting == setting && (d.File == file && d.Store == store || d.File == "others") {
			d.Files++
			return
		}
	}
	if len(r.Differences) >= maxDifferences {
		file, store = "others", "others"
	}
	r.Differences = append(r.Differences, Difference{setting, file, store, 1})
}

// outcome is a file of the tree after a worker has read it.
type outcome struct {
	path  string
	entry entry
	name  string
	done  bool // by an earlier import
	other bool // the name does not match
	skip  string
	err   error

	header      Header
	policy      Policy
	points      [][]Point
	tooOld      int64
	future      int64
	nan         int64
	unreachable int64
}

func (oc *outcome) count() (n int) {
	for _, p := range oc.points {
		n += len(p)
	}
	return n
}

// importRun is a running import.
type importRun struct {
	ImportOptions
	root    string
	journal *journal
	begin   time.Time
	report  Report
	shown   time.Time

	totalFiles, totalBytes atomic.Int64 // 0 until they are known
	bytes                  int64        // of the files that are finished
	doneBytes              int64        // of those that an earlier import has finished

	batch  []*outcome
	points int // of the batch
}

// Import imports a tree of whisper files into a store. A file that cannot be imported does not end it: the report
// lists it. An error says why the import ended before all files were looked at; then, too, the report is about what
// was done. If it is killed at any time, the files since the last commit are imported again by the next import with
// the same StateFile, with the same values.
func Import(ctx context.Context, o ImportOptions) (Report, error) {
	if err := o.setDefaults(); err != nil {
		return Report{}, err
	}
	root, err := filepath.EvalSymlinks(o.Dir)
	if err != nil {
		return Report{}, fmt.Errorf("import whisper files: %w", err)
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return Report{}, errors.Join(fmt.Errorf("import whisper files: %s is no directory", o.Dir), err)
	}
	j, err := openJournal(o.StateFile)
	if err != nil {
		return Report{}, err
	}
	run := &importRun{ImportOptions: o, root: root, journal: j, begin: o.Now()}
	err = errors.Join(run.run(ctx), j.close())
	run.report.Elapsed = o.Now().Sub(run.begin)
	return run.report, err
}

func (r *importRun) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	found, results := make(chan *outcome, 256), make(chan *outcome)
	wg.Go(func() { r.countFiles(ctx) })
	wg.Go(func() {
		defer close(found)
		r.walk(ctx, found)
	})
	var workers sync.WaitGroup
	for range r.Workers {
		workers.Go(func() {
			for oc := range found {
				r.read(oc)
				select {
				case results <- oc:
				case <-ctx.Done():
				}
			}
		})
	}
	wg.Go(func() {
		workers.Wait()
		close(results)
	})
	for oc := range results {
		if err := r.take(ctx, oc); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("import whisper files: %w", err)
	}
	if err := r.commit(ctx); err != nil {
		return err
	}
	r.progress(true)
	return nil
}

// files calls visit for each whisper file of the tree, and for what cannot be looked at with an error.
func (r *importRun) files(ctx context.Context, visit func(path string, info fs.FileInfo, err error)) {
	_ = filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil {
			visit(path, nil, err)
			return nil // a directory that cannot be read has no entries
		}
		link := d.Type()&fs.ModeSymlink != 0
		if d.IsDir() || !link && !IsWhisper(path) {
			return nil
		}
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || IsWhisper(path) {
			visit(path, info, err)
		}
		return nil
	})
}

func (r *importRun) countFiles(ctx context.Context) {
	var files, bytes int64
	r.files(ctx, func(_ string, info fs.FileInfo, err error) {
		if err == nil && !info.IsDir() {
			files++
			bytes += info.Size()
		}
	})
	if ctx.Err() == nil {
		r.totalBytes.Store(bytes)
		r.totalFiles.Store(files)
	}
}

func (r *importRun) walk(ctx context.Context, found chan<- *outcome) {
	r.files(ctx, func(path string, info fs.FileInfo, err error) {
		oc := &outcome{path: path, err: err}
		if err == nil && info.IsDir() {
			oc.skip = "a symbolic link to a directory is not followed: import the directory itself"
		} else if err == nil {
			if plain := strings.TrimSuffix(path, gzSuffix); plain != path {
				if _, err := os.Lstat(plain); err == nil {
					oc.skip = "the series has a file that is not compressed, too"
				}
			}
			rel, _ := filepath.Rel(r.root, path) // the path is below the root
			oc.entry = entry{Path: filepath.ToSlash(rel), Size: info.Size(), ModTime: info.ModTime().UnixNano()}
		}
		select {
		case found <- oc:
		case <-ctx.Done():
		}
	})
}

// read reads a file and converts it to what the store keeps.
func (r *importRun) read(oc *outcome) {
	if oc.err != nil || oc.skip != "" {
		return
	}
	if oc.done = r.journal.has(oc.entry); oc.done {
		return
	}
	name, err := NameOf(r.root, oc.path)
	if errors.Is(err, ErrHashedName) {
		name, err = r.TaggedNames[HashOf(oc.path)], nil
		if name == "" {
			oc.skip = ErrHashedName.Error()
			return
		}
	}
	if err == nil {
		name, err = canonical(name)
	}
	if err != nil {
		oc.skip = err.Error()
		return
	}
	oc.name = name
	if oc.other = r.Match != nil && !r.Match.MatchString(name); oc.other {
		return
	}
	f, err := Read(oc.path, r.Read)
	if err != nil {
		oc.err = err
		return
	}
	oc.header, oc.policy = f.Header, r.Store.Policy(name)
	now := r.Now().Unix()
	oc.points = convert(f, oc.policy, now)
	for i := range f.Archives {
		a := &f.Archives[i]
		future := len(between(a.points, now+1, math.MaxInt64-1))
		oc.future += int64(future)
		oc.tooOld += int64(len(a.points) - future - len(a.Within(now)))
		oc.nan += int64(a.NaNs)
		oc.unreachable += int64(a.Unreachable)
	}
}

// take imports one file. Only an error of the store as a whole is returned.
func (r *importRun) take(ctx context.Context, oc *outcome) error {
	rep := &r.report
	if oc.entry.Path != "" {
		rep.Files++
		r.bytes += oc.entry.Size
	}
	switch {
	case oc.err != nil:
		rep.fail(oc.path, oc.err)
	case oc.skip != "":
		rep.skip(oc.path, oc.skip)
	case oc.done:
		rep.Done++
		r.doneBytes += oc.entry.Size
	case oc.other:
		rep.Unmatched++
	default:
		rep.TooOld += oc.tooOld
		rep.Future += oc.future
		rep.NaN += oc.nan
		rep.Unreachable += oc.unreachable
		r.compare(oc)
		if oc.count() > 0 {
			p := oc.policy
			if err := r.Store.Import(ctx, oc.name, p.Archives, oc.points, p.Method, p.XFilesFactor); err != nil {
				if ctx.Err() != nil {
					return fmt.Errorf("import whisper files: %w", ctx.Err())
				}
				rep.fail(oc.path, fmt.Errorf("import series %s: %w", oc.name, err))
				break
			}
		}
		r.batch = append(r.batch, oc)
		r.points += oc.count()
		if r.points >= r.BatchPoints || len(r.batch) >= r.BatchFiles {
			if err := r.commit(ctx); err != nil {
				return err
			}
		}
	}
	r.progress(false)
	return nil
}

// compare notes how a file differs from the policy of its series.
func (r *importRun) compare(oc *outcome) {
	h, p := &oc.header, &oc.policy
	if !slices.Equal(h.Archives, p.Archives) {
		r.report.Converted++
		r.report.differ("archives", archivesText(h.Archives), archivesText(p.Archives))
	}
	if h.Method != p.Method {
		r.report.differ("aggregation", h.MethodName(), p.Method.String())
	}
	if float32(h.XFilesFactor) != float32(p.XFilesFactor) {
		r.report.differ("xFilesFactor", fmt.Sprint(h.XFilesFactor), fmt.Sprint(p.XFilesFactor))
	}
}

// archivesText writes archives as storage-schemas.conf does.
func archivesText(archives []series.Archive) string {
	var b []byte
	for i, a := range archives {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, seconds(a.Step)...), ':'), seconds(a.Retention())...)
	}
	return string(b)
}

// seconds writes a time with the largest unit that needs no fraction.
func seconds(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"y", 365 * 86400}, {"d", 86400}, {"h", 3600}, {"m", 60}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprint(n/u.size, u.name)
		}
	}
	return fmt.Sprint(n, "s")
}

// commit makes the batch durable, verifies it, and notes its files in the journal.
func (r *importRun) commit(ctx context.Context) error {
	if len(r.batch) == 0 {
		return nil
	}
	if err := r.Store.Commit(ctx); err != nil {
		return fmt.Errorf("import whisper files: commit %d files: %w", len(r.batch), err)
	}
	errs := make([]error, len(r.batch))
	if r.Verify {
		r.verify(ctx, errs)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("import whisper files: verify: %w", err)
		}
	}
	for i, oc := range r.batch {
		n := oc.count()
		switch {
		case errs[i] != nil:
			r.report.fail(oc.path, errs[i])
			continue
		case n == 0:
			r.report.Empty++
		default:
			r.report.Imported++
			r.report.Points += int64(n)
			if r.Verify {
				r.report.Verified += int64(n)
			}
		}
		r.journal.add(oc.entry)
	}
	clear(r.batch) // let go of the points
	r.batch, r.points = r.batch[:0], 0
	return r.journal.save()
}

// verify reads the series of the batch back.
func (r *importRun) verify(ctx context.Context, errs []error) {
	next := atomic.Int64{}
	var wg sync.WaitGroup
	for range r.Workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(r.batch) || ctx.Err() != nil {
					return
				}
				errs[i] = r.verifyOne(ctx, r.batch[i])
			}
		})
	}
	wg.Wait()
}

// verifyOne compares each archive of a series with what was imported into it.
func (r *importRun) verifyOne(ctx context.Context, oc *outcome) error {
	now := r.Now().Unix()
	for i, a := range oc.policy.Archives {
		// What has become too old since it was read may be gone.
		from := now - a.Retention()
		want := between(oc.points[i], series.Floor(from, a.Step)+1, now)
		if len(want) == 0 {
			continue
		}
		got, ok, err := r.Store.Fetch(ctx, oc.name, from, want[len(want)-1].Time, now)
		switch {
		case err != nil:
			return fmt.Errorf("read series %s back: %w", oc.name, err)
		case !ok:
			return fmt.Errorf("read series %s back: the store does not have it", oc.name)
		case got.Step != a.Step:
			return fmt.Errorf("read series %s back: the archive of %s is one of %s", oc.name, seconds(a.Step), seconds(got.Step))
		}
		wrong := 0
		var first Point
		var instead float64
		for _, p := range want {
			v := math.NaN()
			if k := (p.Time - got.Start) / a.Step; p.Time >= got.Start && k < int64(len(got.Values)) {
				v = got.Values[k]
			}
			if v != p.Value {
				if wrong == 0 {
					first, instead = p, v
				}
				wrong++
			}
		}
		if wrong > 0 {
			return fmt.Errorf("read series %s back: %d of %d values of %s differ, the first at %d: %v instead of %v", oc.name,
				wrong, len(want), seconds(a.Step), first.Time, instead, first.Value)
		}
	}
	return nil
}

// progressPause is the time between two calls of Progress.
const progressPause = 200 * time.Millisecond

func (r *importRun) progress(end bool) {
	now := r.Now()
	if r.ImportOptions.Progress == nil || !end && now.Sub(r.shown) < progressPause {
		return
	}
	r.shown = now
	p := Progress{Files: r.report.Files, Bytes: r.bytes, Points: r.report.Points + int64(r.points),
		Errors: r.report.FailedCount, TotalFiles: int(r.totalFiles.Load()), TotalBytes: r.totalBytes.Load(),
		Elapsed: now.Sub(r.begin)}
	p.estimate(r.bytes - r.doneBytes)
	r.ImportOptions.Progress(p)
}

// estimate computes the rate and the time left. Work is the bytes that took the time.
func (p *Progress) estimate(work int64) {
	if p.Elapsed < time.Second {
		return
	}
	p.PointsPerSecond = float64(p.Points) / p.Elapsed.Seconds()
	if left := p.TotalBytes - p.Bytes; left > 0 && work > 0 {
		p.Left = time.Duration(float64(p.Elapsed) * (float64(left) / float64(work)))
	}
}
