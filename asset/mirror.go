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

// MirrorPath is the path below which a Mirror is asked for archives by their checksums.
const MirrorPath = "/assets/"

// MirrorOptions wires a Mirror. A setting that is 0, and cannot be 0, is taken from DefaultMirrorOptions.
type MirrorOptions struct {
	// Dir is where archives are kept. It is made when something comes into it. Required.
	Dir string
	// Sources are the builds with a checksum that a namespace defines; none if it does not know it. Required.
	Sources func(namespace, sum string) []*resource.AssetBuild
	// Client fetches. Default one that goes through the proxy of the environment.
	Client *http.Client
	// Timeout bounds one fetch, and one answer. It should be less than an agent waits.
	Timeout time.Duration
	// Rate and Burst bound how many fetches begin, as in Options.
	Rate  float64
	Burst int
	// MaxArchive bounds an archive, MaxBytes all that are kept, in bytes; the one that no agent has wanted for
	// the longest time goes first.
	MaxArchive, MaxBytes int64
	// MaxAge is how long an archive is kept that no agent wants.
	MaxAge time.Duration
	// Transfers is how many are answered at a time, and Waiting how many more may wait for that or for a fetch. Further
	// agents are told to ask again.
	Transfers, Waiting int
	Logger             *slog.Logger
	Registerer         prometheus.Registerer
}

// Mirror hands out archives to agents. It fetches each once, however many ask for it.
type Mirror struct {
	opts    MirrorOptions
	log     *slog.Logger
	rare    *rarelog.Log // for lines that may come for each request
	metrics mirrorMetrics
	limit   *rate.Limiter
	flights singleflight.Group // by checksum
	slots   chan struct{}      // one for each answer
	queue   chan struct{}      // one for each request

	ctx    context.Context // of the fetches; ends at Stop
	cancel context.CancelFunc

	mu       sync.Mutex // guards the fields below
	stopped  bool
	running  sync.WaitGroup         // requests, fetches, and the goroutine that tidies; none is added once stopped
	verified map[string]struct{}    // what this process knows to be whole
	failed   map[string]failedFetch // what it could not have
}

// failedFetch is a fetch that failed, and is not tried again until then.
type failedFetch struct {
	until time.Time
	err   error
}

// retryAfter is how long a fetch that failed is not tried again.
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

// Start begins to remove what is old. The context is not kept.
func (m *Mirror) Start(context.Context) error {
	if !m.enter() {
		return errors.New("start asset mirror: stopped before")
	}
	left, err := filepath.Glob(filepath.Join(m.opts.Dir, partial+"*"))
	if err == nil { // the pattern has no mistake
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

// Stop ends the fetches and waits for them and for the answers, whose connections others close.
func (m *Mirror) Stop() error {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
	m.opts.Client.CloseIdleConnections()
	return nil
}

// enter is followed by running.Done if it returns true.
func (m *Mirror) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.running.Add(1)
	return true
}

// Serve answers an agent of a namespace, which has been authenticated, that wants the archive below MirrorPath.
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
		refuse("error", http.StatusMethodNotAllowed, "archives can be had with GET")
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
		refuse("error", http.StatusBadGateway, "the archive cannot be had from its origin")
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
	// Others wait for the slot.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(m.opts.Timeout))
	m.metrics.requests.WithLabelValues("ok").Inc()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+sum+`"`)
	http.ServeContent(w, r, "", time.Time{}, f)
}

// have sees to it that an archive is here and whole.
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
			m.rare.Error("archive cannot be had for agents", sum, "sha512", sum, "err", err)
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

// obtain takes an archive that an earlier process left, or else fetches it. Only one is underway for a checksum.
func (m *Mirror) obtain(sum, path string, sources []*resource.AssetBuild) error {
	m.mu.Lock()
	_, verified := m.verified[sum]
	m.mu.Unlock()
	if used(path) {
		if verified || whole(path, sum) {
			return nil
		}
		m.rare.Warn("archive that was kept for agents is damaged, it is fetched again", sum, "sha512", sum)
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

// whole says whether a file has a checksum.
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
		return fmt.Errorf("fetch: too many others are wanted: %w", err)
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

// tidy removes what nobody has wanted for long, and then as much as is too much, but not the archive that was just fetched.
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

// mirrored says whether a build is the same for all agents: one with tokens is not for a mirror to fetch, which would have to
// let agents say where its headers go.
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

// Builds are the builds of an asset that a mirror may fetch and that have a checksum.
func Builds(a *resource.Asset, sum string) (found []*resource.AssetBuild) {
	for _, b := range builds(a) {
		if strings.EqualFold(b.Sha512, sum) && mirrored(b) {
			found = append(found, b)
		}
	}
	return found
}

// WithoutHeaders is a request for agents that ask a mirror: what lets one fetch an archive from its origin stays with the
// mirror. The request is not changed.
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
