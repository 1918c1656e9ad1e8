// Package asset brings archives of plugins to this host: it fetches them, verifies their checksums, unpacks them into a cache
// that checks, hooks, handlers, mutators and filters share, and says what a command's environment needs to find them.
//
// An archive is known by its SHA-512, so one that is unpacked is never fetched again, whatever it is called and wherever it
// comes from. It is unpacked beside its place and moved there when it is whole: what is there can be used.
package asset

import (
	"cmp"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Options wires a Store. A setting that is 0, and cannot be 0, is taken from DefaultOptions.
type Options struct {
	// Dir is the cache. It is made when something comes into it. Required.
	Dir string
	// Applies reports whether all filters of an asset of a namespace hold for this host. Required.
	Applies func(namespace string, filters []string) (bool, error)
	// Client fetches. Default one that goes through the proxy of the environment.
	Client *http.Client
	// Mirror, if set, is asked for an archive before its origin: it returns a request for it and a client to send it, nil if
	// there is nobody to ask at the moment.
	Mirror func(ctx context.Context, sum string) (*http.Client, *http.Request, error)
	// Timeout bounds one fetch with unpacking.
	Timeout time.Duration
	// Rate is how many fetches may begin in a second in the long run, Burst how many at once. Later ones
	// wait.
	Rate  float64
	Burst int
	// MaxArchive and MaxUnpacked bound an archive and what comes out of it, in bytes.
	MaxArchive, MaxUnpacked int64
	Logger                  *slog.Logger
	Registerer              prometheus.Registerer
}

// Store is the cache. All methods may be called at the same time.
type Store struct {
	opts    Options
	log     *slog.Logger
	metrics metrics
	limit   *rate.Limiter
	flights singleflight.Group // by checksum
}

type metrics struct {
	fetches  *prometheus.CounterVec
	mirrored prometheus.Counter
	seconds  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_asset_fetches_total", Help: "Archives of assets that were fetched, by result."}, []string{"result"}),
		mirrored: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_asset_mirrored_total", Help: "Archives of assets that came from a backend and not from their origin.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_asset_fetch_seconds", Help: "Fetching, verifying and unpacking an archive.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		}),
	}
	for _, result := range []string{"ok", "error"} {
		m.fetches.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(m.fetches, m.mirrored, m.seconds)
	}
	return m
}

// Installed is an asset that is unpacked on this host.
type Installed struct {
	Name string
	Dir  string
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{Timeout: 10 * time.Minute, Rate: 1.39, Burst: 100, MaxArchive: 1 << 30, MaxUnpacked: 4 << 30}
}

// New removes from the cache what an earlier process left unfinished.
func New(opts Options) (*Store, error) {
	if opts.Dir == "" || opts.Applies == nil {
		return nil, errors.New("asset: directory and Applies are required")
	}
	if opts.Client == nil {
		opts.Client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	defaults := DefaultOptions()
	opts.Timeout = cmp.Or(opts.Timeout, defaults.Timeout)
	opts.Rate = cmp.Or(opts.Rate, defaults.Rate)
	opts.Burst = cmp.Or(opts.Burst, defaults.Burst)
	opts.MaxArchive = cmp.Or(opts.MaxArchive, defaults.MaxArchive)
	opts.MaxUnpacked = cmp.Or(opts.MaxUnpacked, defaults.MaxUnpacked)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("asset cache: %w", err)
	}
	opts.Dir = dir
	s := &Store{
		opts: opts, log: opts.Logger.With("component", "asset"), metrics: newMetrics(opts.Registerer),
		limit: rate.NewLimiter(rate.Limit(opts.Rate), opts.Burst),
	}
	s.sweep()
	return s, nil
}

// sweep removes what an earlier process had begun to unpack.
func (s *Store) sweep() {
	left, err := filepath.Glob(filepath.Join(s.opts.Dir, partial+"*"))
	if err != nil {
		return // the pattern has no mistake
	}
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > s.opts.Timeout {
			_ = os.RemoveAll(path)
		}
	}
}

// Get sees to it that assets are unpacked, in the order given, and leaves out those that are not for this host. Any that
// cannot be had is an error.
func (s *Store) Get(ctx context.Context, assets []*resource.Asset) ([]Installed, error) {
	var installed []Installed
	for _, a := range assets {
		b, err := s.choose(a)
		if err != nil {
			return nil, fmt.Errorf("asset %s: %w", a.Metadata.Name, err)
		}
		if b == nil {
			s.log.Debug("asset is not for this host", "asset", a.Metadata.Name)
			continue
		}
		dir, err := s.install(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("asset %s: %w", a.Metadata.Name, err)
		}
		installed = append(installed, Installed{Name: a.Metadata.Name, Dir: dir})
	}
	return installed, nil
}

// choose is the first build that is for this host, nil if none is.
func (s *Store) choose(a *resource.Asset) (*resource.AssetBuild, error) {
	for _, b := range builds(a) {
		applies, err := s.opts.Applies(a.Metadata.Namespace, b.Filters)
		if err != nil {
			return nil, err
		}
		if applies {
			return b, nil
		}
	}
	return nil, nil
}

// builds are what there is of an asset: an old definition has only one, in itself.
func builds(a *resource.Asset) []*resource.AssetBuild {
	if len(a.Builds) > 0 {
		return a.Builds
	}
	return []*resource.AssetBuild{{URL: a.URL, Sha512: a.Sha512, Filters: a.Filters, Headers: a.Headers}}
}

// install returns where a build is unpacked. Those who want the same at the same time wait for one fetch.
func (s *Store) install(ctx context.Context, b *resource.AssetBuild) (string, error) {
	sum, err := checksum(b.Sha512)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(s.opts.Dir, sum)
	if used(dir) {
		return dir, nil
	}
	flight := s.flights.DoChan(sum, func() (any, error) {
		// Others may wait for it when the one who began has gone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
		defer cancel()
		begin := time.Now()
		err := s.fetch(ctx, b, sum, dir)
		s.metrics.seconds.Observe(time.Since(begin).Seconds())
		if err != nil {
			s.metrics.fetches.WithLabelValues("error").Inc()
			return nil, err
		}
		s.metrics.fetches.WithLabelValues("ok").Inc()
		return nil, nil
	})
	select {
	case done := <-flight:
		return dir, done.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// used says whether dir is there, and notes that it is in use, for Purge.
func used(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if now := time.Now(); now.Sub(info.ModTime()) > time.Hour {
		_ = os.Chtimes(dir, now, now)
	}
	return true
}

// partial begins the names of what is not whole yet.
const partial = ".partial-"

// fetch downloads an archive and unpacks it as dir.
func (s *Store) fetch(ctx context.Context, b *resource.AssetBuild, sum, dir string) error {
	if used(dir) {
		return nil
	}
	if err := s.limit.Wait(ctx); err != nil {
		return fmt.Errorf("fetch: too many others are wanted: %w", err)
	}
	if err := os.MkdirAll(s.opts.Dir, 0o755); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	scratch, err := os.MkdirTemp(s.opts.Dir, partial)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	archive, err := os.Create(filepath.Join(scratch, "archive"))
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer archive.Close()
	if err := s.download(ctx, b, sum, archive); err != nil {
		return err
	}
	if err := rewind(archive); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	tree := filepath.Join(scratch, "tree")
	if err := unpack(ctx, archive, tree, s.opts.MaxUnpacked); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	awaitForks()
	if err := os.Rename(tree, dir); err != nil && !used(dir) { // another process may have been faster
		return fmt.Errorf("unpack: %w", err)
	}
	s.log.Info("asset is unpacked", "sha512", sum, "bytes", size(archive))
	return nil
}

// awaitForks returns when no child process has files open that this one has closed: between its fork and its exec a child has
// all that were open, and what is open for writing cannot be run ("text file busy").
func awaitForks() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}

func size(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// download writes an archive to the file, from the mirror or else from its origin.
func (s *Store) download(ctx context.Context, b *resource.AssetBuild, sum string, archive *os.File) error {
	if s.opts.Mirror != nil {
		err := s.fromMirror(ctx, sum, archive)
		switch {
		case err == nil:
			s.metrics.mirrored.Inc()
			return nil
		case !errors.Is(err, errNoMirror):
			s.log.Warn("the mirror does not give an archive, its origin is asked", "sha512", sum, "err", err)
		}
		if err := errors.Join(archive.Truncate(0), rewind(archive)); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
	}
	req, err := request(ctx, b)
	if err != nil {
		return err
	}
	return download(s.opts.Client, req, sum, s.opts.MaxArchive, archive)
}

func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

var errNoMirror = errors.New("there is no mirror")

// mostPatience bounds what is waited for a mirror that is busy, from one question to the next.
const mostPatience = 30 * time.Second

// fromMirror asks the mirror, again and again while it is busy, in half of the time that there is.
func (s *Store) fromMirror(ctx context.Context, sum string, archive *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout/2)
	defer cancel()
	for {
		client, req, err := s.opts.Mirror(ctx, sum)
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		if req == nil {
			return errNoMirror
		}
		err = download(client, req, sum, s.opts.MaxArchive, archive)
		status, ok := errors.AsType[*statusError](err)
		if !ok || status.code != http.StatusServiceUnavailable || status.after == "" {
			return err
		}
		pause, err := strconv.Atoi(status.after)
		if err != nil {
			return status
		}
		wait := min(time.Duration(pause)*time.Second, mostPatience)
		select { // not all at the same time
		case <-time.After(wait/2 + rand.N(wait+1)):
		case <-ctx.Done():
			return status
		}
	}
}

// Purge removes what nobody has used for so long, and says how many assets that were.
func (s *Store) Purge(unused time.Duration) (removed int, err error) {
	entries, err := os.ReadDir(s.opts.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("purge assets: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || len(entry.Name()) != 2*sha512.Size || time.Since(info.ModTime()) <= unused {
			continue
		}
		// It must not be found half removed.
		old := filepath.Join(s.opts.Dir, partial+entry.Name())
		if err := os.Rename(filepath.Join(s.opts.Dir, entry.Name()), old); err != nil {
			return removed, fmt.Errorf("purge assets: %w", err)
		}
		if err := os.RemoveAll(old); err != nil {
			return removed, fmt.Errorf("purge assets: %w", err)
		}
		removed++
	}
	return removed, nil
}

// Environ is what a command needs in its environment to find assets: PATH, LD_LIBRARY_PATH and CPATH, which go in front of
// those it has, and for each asset its directory as NAME_PATH.
func Environ(installed []Installed) []string {
	if len(installed) == 0 {
		return nil
	}
	env := make([]string, 0, 3+len(installed))
	for _, v := range []struct{ name, sub string }{{"PATH", "bin"}, {"LD_LIBRARY_PATH", "lib"}, {"CPATH", "include"}} {
		dirs := make([]string, len(installed))
		for i, a := range installed {
			dirs[i] = filepath.Join(a.Dir, v.sub)
		}
		env = append(env, v.name+"="+strings.Join(dirs, string(os.PathListSeparator)))
	}
	for _, a := range installed {
		env = append(env, resource.AssetVariable(a.Name)+"="+a.Dir)
	}
	return env
}
