// Package asset installs archives of plugins on this host for the agent's checks and hooks and the backend's handlers,
// mutators and filters. Store fetches an archive, verifies its checksum, unpacks it into a shared cache and returns the
// environment (Environ) that commands need to find it. Mirror is the backend's part that serves archives to agents.
//
// An archive is identified by its SHA-512 and fetched once, whatever its name or URL. It is unpacked beside its final
// place and moved there when complete: every directory in the cache is usable. Running the commands is up to the
// callers.
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

// Options wires a Store. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// Dir is the cache. It is created when the first asset is unpacked. Required.
	Dir string
	// Applies reports whether all filters of an asset in a namespace match this host. Required.
	Applies func(namespace string, filters []string) (bool, error)
	// Client fetches archives. The default uses the proxy from the environment.
	Client *http.Client
	// Mirror, if set, returns a request for an archive to a mirror and the client to send it with; a nil request if no
	// mirror is reachable. The mirror is asked before the archive's origin.
	Mirror func(ctx context.Context, sum string) (*http.Client, *http.Request, error)
	// Timeout bounds one fetch including unpacking.
	Timeout time.Duration
	// Rate is how many fetches may begin per second in the long run, Burst how many at once. Further fetches wait.
	Rate  float64
	Burst int
	// MaxArchive and MaxUnpacked bound an archive and its unpacked content, in bytes.
	MaxArchive, MaxUnpacked int64
	Logger                  *slog.Logger
	Registerer              prometheus.Registerer
}

// Store is the cache. All methods are safe for concurrent use.
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

// New checks the options and removes what an earlier process left unfinished.
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

// sweep removes what an earlier process had not finished unpacking.
func (s *Store) sweep() {
	left, err := filepath.Glob(filepath.Join(s.opts.Dir, partial+"*"))
	if err != nil {
		return // the pattern is valid
	}
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > s.opts.Timeout {
			_ = os.RemoveAll(path)
		}
	}
}

// Get unpacks assets, in the order given, and leaves out assets that are not for this host. It fails if any cannot be
// installed.
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

// choose returns the first build for this host, or nil.
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

// builds returns the builds of an asset. A definition in the old form is one build itself.
func builds(a *resource.Asset) []*resource.AssetBuild {
	if len(a.Builds) > 0 {
		return a.Builds
	}
	return []*resource.AssetBuild{{URL: a.URL, Sha512: a.Sha512, Filters: a.Filters, Headers: a.Headers}}
}

// install returns the directory of an unpacked build. Concurrent calls for the same archive share one fetch.
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
		// Others may wait for the fetch after its first caller has given up.
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

// used reports whether dir exists, and marks it as used for Purge.
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

// partial begins the names of incomplete files and directories.
const partial = ".partial-"

// fetch downloads an archive and unpacks it as dir.
func (s *Store) fetch(ctx context.Context, b *resource.AssetBuild, sum, dir string) error {
	if used(dir) {
		return nil
	}
	if err := s.limit.Wait(ctx); err != nil {
		return fmt.Errorf("fetch: too many other fetches wait: %w", err)
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
	if err := os.Rename(tree, dir); err != nil && !used(dir) { // another process was faster
		return fmt.Errorf("unpack: %w", err)
	}
	s.log.Info("asset is unpacked", "sha512", sum, "bytes", size(archive))
	return nil
}

// awaitForks returns when no child process holds a file open that this process has closed. Between its fork and its
// exec a child holds all files that were open, and a program that is open for writing cannot be run ("text file busy").
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

// download writes an archive to the file, from the mirror or from its origin.
func (s *Store) download(ctx context.Context, b *resource.AssetBuild, sum string, archive *os.File) error {
	if s.opts.Mirror != nil {
		err := s.fromMirror(ctx, sum, archive)
		switch {
		case err == nil:
			s.metrics.mirrored.Inc()
			return nil
		case !errors.Is(err, errNoMirror):
			s.log.Warn("cannot get an archive from the mirror: asking its origin", "sha512", sum, "err", err)
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

// mostPatience bounds the pause between two requests to a busy mirror.
const mostPatience = 30 * time.Second

// fromMirror asks the mirror, repeatedly while it is busy, for at most half of the remaining time.
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
		select { // spreads the retries
		case <-time.After(wait/2 + rand.N(wait+1)):
		case <-ctx.Done():
			return status
		}
	}
}

// Purge removes assets that were not used for the given time, and returns how many.
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
		// A reader must not find it half removed.
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

// Environ returns the environment with which a command finds assets: PATH, LD_LIBRARY_PATH and CPATH, which go in front
// of existing values, and each asset's directory as NAME_PATH.
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
