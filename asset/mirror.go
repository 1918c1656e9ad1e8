package asset

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// MirrorPath is the path below which a Mirror serves archives, by checksum.
const MirrorPath = "/assets/"

// MirrorOptions configures a Mirror. If the comment of a field does not say what 0 means, 0 is replaced by the value
// of DefaultMirrorOptions.
type MirrorOptions struct {
	// Dir holds the archives. It is created for the first one. Required.
	Dir string
	// Sources returns the builds with a checksum that a namespace defines. Required.
	Sources func(namespace, sum string) []*resource.AssetBuild
	// Client fetches archives. The default uses the proxy from the environment.
	Client *http.Client
	// Timeout bounds one fetch, and one response. It should be less than an agent waits.
	Timeout time.Duration
	// Rate and Burst bound how many fetches begin, as in Options.
	Rate  float64
	Burst int
	// MaxArchive bounds one archive and MaxBytes all archives, in bytes; the least recently used goes first.
	MaxArchive, MaxBytes int64
	// MaxAge is how long an unused archive is kept.
	MaxAge time.Duration
	// Transfers bounds the responses at a time, Waiting the requests that wait for a response or a fetch. Further
	// requests are told to try again.
	Transfers, Waiting int
	Logger             *slog.Logger
	Registerer         prometheus.Registerer
}

// Mirror serves archives to agents. It fetches each archive once, for any number of agents.
type Mirror struct {
	opts    MirrorOptions
	log     *slog.Logger
	rare    *rarelog.Log // for messages that may come with each request
	metrics mirrorMetrics
	limit   *rate.Limiter
	flights singleflight.Group // by checksum
	slots   chan struct{}      // one for each response
	queue   chan struct{}      // one for each request

	ctx    context.Context // for the fetches; ends at Stop
	cancel context.CancelFunc

	mu       sync.Mutex // guards the fields below
	stopped  bool
	running  sync.WaitGroup         // requests, fetches, and the goroutine that tidies; none is added after Stop
	verified map[string]struct{}    // archives that this process has verified
	failed   map[string]failedFetch // archives that could not be fetched
}

// failedFetch is a fetch that failed and is not tried again before a time.
type failedFetch struct {
	until time.Time
	err   error
}

// retryAfter is how long a failed fetch is not tried again.
const retryAfter = 30 * time.Second

type mirrorMetrics struct {
	requests *prometheus.CounterVec
	fetches  *prometheus.CounterVec
	bytes    prometheus.Gauge
}

func newMirrorMetrics(r prometheus.Registerer) mirrorMetrics {
	m := mirrorMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_asset_mirror_requests_total", Help: "Requests of agents for archives of assets, by result."}, []string{"result"}),
		fetches:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_asset_mirror_fetches_total", Help: "Archives that were fetched from their origin for agents, by result."}, []string{"result"}),
		bytes:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_asset_mirror_bytes", Help: "Archives kept for agents."}),
	}
	for _, result := range []string{"ok", "error"} {
		m.fetches.WithLabelValues(result)
	}
	for _, result := range []string{"ok", "unknown", "busy", "error"} {
		m.requests.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(m.requests, m.fetches, m.bytes)
	}
	return m
}

// DefaultMirrorOptions returns the default settings.
func DefaultMirrorOptions() MirrorOptions {
	rates := DefaultOptions()
	return MirrorOptions{
		Timeout: 4 * time.Minute, Rate: rates.Rate, Burst: rates.Burst, MaxArchive: 1 << 30, MaxBytes: 10 << 30,
		MaxAge: 7 * 24 * time.Hour, Transfers: 64, Waiting: 2000,
	}
}

// NewMirror checks the options.
func NewMirror(opts MirrorOptions) (*Mirror, error) {
	if opts.Dir == "" || opts.Sources == nil {
		return nil, errors.New("asset mirror: directory and Sources are required")
	}
	if opts.Client == nil {
		opts.Client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	defaults := DefaultMirrorOptions()
	opts.Timeout = cmp.Or(opts.Timeout, defaults.Timeout)
	opts.Rate, opts.Burst = cmp.Or(opts.Rate, defaults.Rate), cmp.Or(opts.Burst, defaults.Burst)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaults.MaxBytes)
	opts.MaxArchive = min(cmp.Or(opts.MaxArchive, defaults.MaxArchive), opts.MaxBytes)
	opts.MaxAge = cmp.Or(opts.MaxAge, defaults.MaxAge)
	opts.Transfers, opts.Waiting = cmp.Or(opts.Transfers, defaults.Transfers), cmp.Or(opts.Waiting, defaults.Waiting)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Mirror{
		opts: opts, log: opts.Logger.With("component", "asset mirror"), rare: rarelog.New(opts.Logger.With("component", "asset mirror")), metrics: newMirrorMetrics(opts.Registerer),
		limit:    rate.NewLimiter(rate.Limit(opts.Rate), opts.Burst),
		slots:    make(chan struct{}, opts.Transfers),
		queue:    make(chan struct{}, opts.Transfers+opts.Waiting),
		verified: map[string]struct{}{}, failed: map[string]failedFetch{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Start begins to remove old archives. The context is not kept.
func (m *Mirror) Start(context.Context) error {
	if !m.enter() {
		return errors.New("start asset mirror: stopped before")
	}
	left, err := filepath.Glob(filepath.Join(m.opts.Dir, partial+"*"))
	if err == nil { // the pattern is valid
		for _, path := range left {
			_ = os.Remove(path)
		}
	}
	go func() {
		defer m.running.Done()
		tick := time.NewTicker(time.Hour)
		defer tick.Stop()
		for {
			m.tidy("")
			select {
			case <-tick.C:
			case <-m.ctx.Done():
				return
			}
		}
	}()
	return nil
}

// Stop cancels the fetches and waits for them and for the responses. The caller closes the connections.
func (m *Mirror) Stop() error {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
	m.opts.Client.CloseIdleConnections()
	return nil
}

// enter registers a request. The caller must call running.Done if it returns true.
func (m *Mirror) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.running.Add(1)
	return true
}

// Serve serves the archive below MirrorPath to an authenticated agent of a namespace.
func (m *Mirror) Serve(w http.ResponseWriter, r *http.Request, namespace string) {
	refuse := func(result string, status int, text string) {
		m.metrics.requests.WithLabelValues(result).Inc()
		http.Error(w, text, status)
	}
	busy := func() {
		w.Header().Set("Retry-After", "5")
		refuse("busy", http.StatusServiceUnavailable, "many others want archives")
	}
	if !m.enter() {
		busy()
		return
	}
	defer m.running.Done()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse("error", http.StatusMethodNotAllowed, "archives are available with GET only")
		return
	}
	sum, err := checksum(strings.TrimPrefix(r.URL.Path, MirrorPath))
	var sources []*resource.AssetBuild
	if err == nil {
		sources = m.opts.Sources(namespace, sum)
	}
	if len(sources) == 0 {
		refuse("unknown", http.StatusNotFound, "no asset has this checksum")
		return
	}
	select {
	case m.queue <- struct{}{}:
		defer func() { <-m.queue }()
	default:
		busy()
		return
	}
	if err := m.have(r.Context(), sum, sources); err != nil {
		refuse("error", http.StatusBadGateway, "the archive cannot be fetched from its origin")
		return
	}
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-r.Context().Done():
		return
	case <-m.ctx.Done():
		busy()
		return
	}
	f, err := os.Open(filepath.Join(m.opts.Dir, sum))
	if err != nil {
		m.rare.Error("archive cannot be read", sum, "sha512", sum, "err", err)
		refuse("error", http.StatusInternalServerError, "the archive cannot be read")
		return
	}
	defer f.Close()
	// A slow reader must not hold the slot for ever.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(m.opts.Timeout))
	m.metrics.requests.WithLabelValues("ok").Inc()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+sum+`"`)
	http.ServeContent(w, r, "", time.Time{}, f)
}

// have makes sure that an archive is here and complete.
func (m *Mirror) have(ctx context.Context, sum string, sources []*resource.AssetBuild) error {
	path := filepath.Join(m.opts.Dir, sum)
	m.mu.Lock()
	_, verified := m.verified[sum]
	failed := m.failed[sum]
	m.mu.Unlock()
	switch {
	case verified && used(path):
		return nil
	case time.Now().Before(failed.until):
		return failed.err
	}
	flight := m.flights.DoChan(sum, func() (any, error) {
		if !m.enter() {
			return nil, context.Canceled
		}
		defer m.running.Done()
		err := m.obtain(sum, path, sources)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err == nil {
			m.verified[sum] = struct{}{}
			delete(m.failed, sum)
			return nil, nil
		}
		if m.ctx.Err() == nil {
			m.rare.Error("cannot fetch an archive for agents", sum, "sha512", sum, "err", err)
			m.failed[sum] = failedFetch{time.Now().Add(retryAfter), err}
		}
		return nil, err
	})
	select {
	case done := <-flight:
		return done.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// obtain uses an archive that an earlier process left, or fetches it. Only one call runs per checksum.
func (m *Mirror) obtain(sum, path string, sources []*resource.AssetBuild) error {
	m.mu.Lock()
	_, verified := m.verified[sum]
	m.mu.Unlock()
	if used(path) {
		if verified || whole(path, sum) {
			return nil
		}
		m.rare.Warn("archive for agents is damaged: fetching it again", sum, "sha512", sum)
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove damaged archive: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.opts.Timeout)
	defer cancel()
	var errs []error
	for _, b := range sources {
		err := m.fetch(ctx, b, sum, path)
		if err == nil {
			m.metrics.fetches.WithLabelValues("ok").Inc()
			m.tidy(sum)
			return nil
		}
		m.metrics.fetches.WithLabelValues("error").Inc()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// whole reports whether a file has the checksum.
func whole(path, sum string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	hash := sha512.New()
	_, err = io.Copy(hash, f)
	return err == nil && hex.EncodeToString(hash.Sum(nil)) == sum
}

func (m *Mirror) fetch(ctx context.Context, b *resource.AssetBuild, sum, path string) (err error) {
	if err := m.limit.Wait(ctx); err != nil {
		return fmt.Errorf("fetch: too many other fetches wait: %w", err)
	}
	req, err := request(ctx, b)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.opts.Dir, 0o750); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	f, err := os.CreateTemp(m.opts.Dir, partial)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = download(m.opts.Client, req, sum, m.opts.MaxArchive, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	return nil
}

// tidy removes archives that were not used for long, then the least recently used ones above the limit, but not the
// archive that was just fetched.
func (m *Mirror) tidy(fresh string) {
	entries, err := os.ReadDir(m.opts.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.log.Error("archives cannot be listed", "err", err)
		return
	}
	var kept []os.FileInfo
	var total int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || len(entry.Name()) != 2*sha512.Size {
			continue
		}
		kept = append(kept, info)
		total += info.Size()
	}
	slices.SortFunc(kept, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept {
		if info.Name() == fresh || total <= m.opts.MaxBytes && time.Since(info.ModTime()) <= m.opts.MaxAge {
			continue
		}
		if err := os.Remove(filepath.Join(m.opts.Dir, info.Name())); err != nil {
			m.log.Error("archive cannot be removed", "sha512", info.Name(), "err", err)
			continue
		}
		total -= info.Size()
		m.mu.Lock()
		delete(m.verified, info.Name())
		m.mu.Unlock()
	}
	m.metrics.bytes.Set(float64(total))
	m.mu.Lock()
	defer m.mu.Unlock()
	for sum, failed := range m.failed {
		if time.Now().After(failed.until) {
			delete(m.failed, sum)
		}
	}
}

// mirrored reports whether a build is the same for all agents. A mirror does not fetch a build with tokens: agents
// could then choose where its headers are sent.
func mirrored(b *resource.AssetBuild) bool {
	if strings.Contains(b.URL, "{{") {
		return false
	}
	for _, value := range b.Headers {
		if strings.Contains(value, "{{") {
			return false
		}
	}
	return true
}

// Builds returns the builds of an asset with the checksum that a mirror may fetch.
func Builds(a *resource.Asset, sum string) (found []*resource.AssetBuild) {
	for _, b := range builds(a) {
		if strings.EqualFold(b.Sha512, sum) && mirrored(b) {
			found = append(found, b)
		}
	}
	return found
}

// WithoutHeaders returns the request for agents that use a mirror: the credentials for the origin stay with the mirror.
// The request itself is not changed.
func WithoutHeaders(q *resource.CheckRequest) *resource.CheckRequest {
	secret := func(a *resource.Asset) bool {
		return slices.ContainsFunc(builds(a), func(b *resource.AssetBuild) bool { return len(b.Headers) > 0 && mirrored(b) })
	}
	anySecret := func(list []resource.Asset) bool {
		for i := range list {
			if secret(&list[i]) {
				return true
			}
		}
		return false
	}
	bare := func(list []resource.Asset) []resource.Asset {
		if !anySecret(list) {
			return list
		}
		list = slices.Clone(list)
		for i := range list {
			a := &list[i]
			if !secret(a) {
				continue
			}
			if len(a.Builds) == 0 {
				a.Headers = nil
				continue
			}
			a.Builds = slices.Clone(a.Builds)
			for j, b := range a.Builds {
				if mirrored(b) {
					without := *b
					without.Headers = nil
					a.Builds[j] = &without
				}
			}
		}
		return list
	}
	changed := anySecret(q.Assets)
	for _, list := range q.HookAssets {
		changed = changed || anySecret(list.Assets)
	}
	if !changed {
		return q
	}
	out := *q
	out.Assets = bare(q.Assets)
	out.HookAssets = make(map[string]resource.AssetList, len(q.HookAssets))
	for hook, list := range q.HookAssets {
		list.Assets = bare(list.Assets)
		out.HookAssets[hook] = list
	}
	return &out
}
