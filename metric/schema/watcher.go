package schema

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
)

// DefaultEvery is the time between two looks at the files, as with carbon.
const DefaultEvery = time.Minute

// WatcherOptions are what NewWatcher needs.
type WatcherOptions struct {
	SchemasFile, AggregationFile string        // as for Load
	Every                        time.Duration // between two looks at the files; 0 is DefaultEvery
	// Changed, if set, is called by the watcher's goroutine with new schemas. They affect new series only.
	Changed    func(*Schemas)
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Watcher keeps the schemas of files that change. After an error it keeps the old ones, and logs the error.
type Watcher struct {
	content *filewatch.Content[*Schemas]
}

// NewWatcher reads the files; an error in them is returned.
func NewWatcher(options WatcherOptions) (*Watcher, error) {
	if options.Every == 0 {
		options.Every = DefaultEvery
	}
	m := newMetrics(options.Registerer)
	content, err := filewatch.NewContent(filewatch.ContentOptions[*Schemas]{
		Paths: []string{options.SchemasFile, options.AggregationFile}, Every: options.Every,
		Load: func() (*Schemas, error) {
			s, warnings, err := Load(options.SchemasFile, options.AggregationFile)
			for _, w := range warnings {
				options.Logger.Warn("part of a storage schema file is ignored", "warning", w.String())
			}
			return s, err
		},
		Changed: options.Changed, Reloaded: m.reloaded, Logger: options.Logger})
	if err != nil {
		return nil, fmt.Errorf("storage schemas: %w", err)
	}
	return &Watcher{content}, nil
}

// Current returns the schemas of the files as they were last read without an error.
func (w *Watcher) Current() *Schemas { return w.content.Current() }

// Start begins to look at the files.
func (w *Watcher) Start() { w.content.Start() }

// Stop ends the looks. It may be called twice, and before Start.
func (w *Watcher) Stop(ctx context.Context) error { return w.content.Stop(ctx) }
