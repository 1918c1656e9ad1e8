package allow

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
)

// DefaultEvery is the time between two looks at the files, as with carbon.
const DefaultEvery = 10 * time.Second

// WatcherOptions are what NewWatcher needs.
type WatcherOptions struct {
	Whitelist, Blacklist string
	Every                time.Duration // between two looks at the files; 0 is DefaultEvery
	// Changed, if set, is called by the watcher's goroutine with new lists. The caller forgets its verdicts.
	Changed    func(*Lists)
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Watcher keeps the lists of files that change. A file that goes is an empty list. After an error, for example a
// file that may not be read, it keeps the old lists, and logs the error.
type Watcher struct {
	content *filewatch.Content[*Lists]
	metrics metrics

	blacklisted, notWhitelisted atomic.Uint64
}

// NewWatcher reads the files; their error is returned.
func NewWatcher(options WatcherOptions) (*Watcher, error) {
	if options.Every == 0 {
		options.Every = DefaultEvery
	}
	m := newMetrics(options.Registerer)
	w := &Watcher{metrics: m}
	var err error
	w.content, err = filewatch.NewContent(filewatch.ContentOptions[*Lists]{
		Paths: []string{options.Whitelist, options.Blacklist}, Every: options.Every,
		Load: func() (*Lists, error) {
			lists, warnings, err := Load(options.Whitelist, options.Blacklist)
			for _, w := range warnings {
				options.Logger.Warn("part of a list of names is ignored", "warning", w.String())
			}
			return lists, err
		},
		Changed: options.Changed, Reloaded: m.reloaded, Logger: options.Logger})
	if err != nil {
		return nil, fmt.Errorf("lists of names: %w", err)
	}
	return w, nil
}

// Current returns the lists of the files as they were last read without an error.
func (w *Watcher) Current() *Lists { return w.content.Current() }

// Start begins to look at the files.
func (w *Watcher) Start() { w.content.Start() }

// Stop ends the looks. It may be called twice, and before Start.
func (w *Watcher) Stop(ctx context.Context) error { return w.content.Stop(ctx) }

// Count counts points that were refused by a verdict.
func (w *Watcher) Count(v Verdict, points int) {
	switch v {
	case Blacklisted:
		w.blacklisted.Add(uint64(points))
		w.metrics.blacklisted.Add(float64(points))
	case NotWhitelisted:
		w.notWhitelisted.Add(uint64(points))
		w.metrics.notWhitelisted.Add(float64(points))
	}
}

// Counts returns what Count was told since the start: carbon's blacklistMatches and whitelistRejects.
func (w *Watcher) Counts() (blacklistMatches, whitelistRejects uint64) {
	return w.blacklisted.Load(), w.notWhitelisted.Load()
}
