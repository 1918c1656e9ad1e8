package rewrite

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
)

// DefaultEvery is the time between two looks at the file, as with carbon.
const DefaultEvery = 10 * time.Second

// WatcherOptions are what NewWatcher needs.
type WatcherOptions struct {
	File  string
	Every time.Duration // between two looks at the file; 0 is DefaultEvery
	// Changed, if set, is called by the watcher's goroutine with new rules. The caller forgets the names that it has
	// rewritten.
	Changed    func(*Rules)
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Watcher keeps the rules of a file that changes. A file that goes is one without rules. After an error, for example a
// file that may not be read, it keeps the old rules, and logs the error.
type Watcher struct {
	content *filewatch.Content[*Rules]
}

// NewWatcher reads the file; its error is returned.
func NewWatcher(options WatcherOptions) (*Watcher, error) {
	if options.Every == 0 {
		options.Every = DefaultEvery
	}
	w := &Watcher{}
	m := newMetrics(options.Registerer)
	var err error
	w.content, err = filewatch.NewContent(filewatch.ContentOptions[*Rules]{
		Paths: []string{options.File}, Every: options.Every,
		Load: func() (*Rules, error) {
			rules, warnings, err := Load(options.File)
			for _, w := range warnings {
				options.Logger.Warn("part of a file of rewrite rules is ignored", "warning", w.String())
			}
			return rules, err
		},
		Changed: options.Changed, Reloaded: m.reloaded, Logger: options.Logger})
	if err != nil {
		return nil, fmt.Errorf("rewrite rules: %w", err)
	}
	return w, nil
}

// Current returns the rules of the file as it was last read without an error.
func (w *Watcher) Current() *Rules { return w.content.Current() }

// Start begins to look at the file.
func (w *Watcher) Start() { w.content.Start() }

// Stop ends the looks. It may be called twice, and before Start.
func (w *Watcher) Stop(ctx context.Context) error { return w.content.Stop(ctx) }
