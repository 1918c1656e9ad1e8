package filewatch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ContentOptions are what NewContent needs.
type ContentOptions[T any] struct {
	What  string        // the content, for errors and logs, for example "storage schemas"
	Paths []string      // the files that Load reads
	Every time.Duration // between two looks at them
	// Load reads the files. The watcher calls it again after a change, and at each look while it fails. The warnings are
	// logged.
	Load func() (T, []Warning, error)
	// Changed, if set, is called by the watcher's goroutine with what Load has returned after a change. Current returns it
	// by then.
	Changed func(T)
	Logger  *slog.Logger
	// Reloads has the name and the help of the counter of reads after a change. It gets the label result.
	Reloads    prometheus.CounterOpts
	Registerer prometheus.Registerer // may be nil
}

// Warning is about a part of a file that is ignored.
type Warning struct {
	File    string
	Line    int    // 0 if the whole file is meant
	Section string // may be empty
	Text    string
}

func (w Warning) String() string {
	switch {
	case w.Line == 0:
		return fmt.Sprintf("%s: %s", w.File, w.Text)
	case w.Section == "":
		return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
	}
	return fmt.Sprintf("%s:%d: section [%s]: %s", w.File, w.Line, w.Section, w.Text)
}

// Content is what files contain, read again when they change. An error in a changed file is logged, and the old content
// stays. Then each look tries again, because rights to read a file change neither its time nor its size. An error that
// differs from the one before is logged and counted, too.
type Content[T any] struct {
	options        ContentOptions[T]
	current        atomic.Pointer[T]
	watcher        *Watcher
	loaded, failed prometheus.Counter
	reported       string // the error of the last failed read, as it was logged. Only the watcher's goroutine uses it
}

// NewContent reads the files; their error is returned.
func NewContent[T any](options ContentOptions[T]) (*Content[T], error) {
	if options.Logger == nil {
		return nil, fmt.Errorf("%s: the option Logger is not set", options.What)
	}
	reloads := prometheus.NewCounterVec(options.Reloads, []string{"result"})
	c := &Content[T]{options: options, loaded: reloads.WithLabelValues("ok"), failed: reloads.WithLabelValues("error")}
	var err error
	c.watcher, err = New(Options{Paths: options.Paths, Every: options.Every, Changed: c.reload})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.What, err)
	}
	first, err := c.load()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.What, err)
	}
	c.current.Store(&first)
	if options.Registerer != nil {
		if err := options.Registerer.Register(reloads); err != nil {
			return nil, fmt.Errorf("%s: register metrics: %w", options.What, err)
		}
	}
	return c, nil
}

// Current returns the content of the files as they were last read without an error.
func (c *Content[T]) Current() T { return *c.current.Load() }

// Start begins to look at the files.
func (c *Content[T]) Start() { c.watcher.Start() }

// Stop ends the looks. It may be called twice, and before Start.
func (c *Content[T]) Stop(ctx context.Context) error { return c.watcher.Stop(ctx) }

func (c *Content[T]) load() (T, error) {
	content, warnings, err := c.options.Load()
	c.warn(warnings)
	return content, err
}

func (c *Content[T]) warn(warnings []Warning) {
	for _, w := range warnings {
		c.options.Logger.Warn("part of a file is ignored", "what", c.options.What, "warning", w.String())
	}
}

func (c *Content[T]) reload() {
	next, err := c.load()
	if err != nil {
		c.fail(err)
		return
	}
	c.use(next)
}

// retry is reload after an error that was reported. It is silent while the error stays the same.
func (c *Content[T]) retry() {
	next, warnings, err := c.options.Load()
	if err != nil && err.Error() == c.reported {
		return
	}
	c.warn(warnings)
	if err != nil {
		c.fail(err)
		return
	}
	c.use(next)
}

func (c *Content[T]) fail(err error) {
	c.watcher.again, c.reported = c.retry, err.Error()
	c.failed.Inc()
	c.options.Logger.Error("changed files cannot be used, their old content stays", "what", c.options.What,
		"files", c.names(), "err", err)
}

func (c *Content[T]) use(next T) {
	c.watcher.again = nil
	c.loaded.Inc()
	c.current.Store(&next)
	if c.options.Changed != nil {
		c.options.Changed(next)
	}
	c.options.Logger.Info("changed files were read again", "what", c.options.What, "files", c.names())
}

// names are the paths without empty ones, which stand for files that are not configured.
func (c *Content[T]) names() []string {
	return slices.DeleteFunc(slices.Clone(c.options.Paths), func(p string) bool { return p == "" })
}
