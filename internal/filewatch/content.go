package filewatch

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// ContentOptions are what NewContent needs.
type ContentOptions[T any] struct {
	Paths []string      // the files that Load reads
	Every time.Duration // between two looks at them
	// Load reads the files. The watcher calls it again after a change, and at each look while it fails.
	Load func() (T, error)
	// Changed, if set, is called by the watcher's goroutine with what Load has returned after a change. Current returns it
	// by then.
	Changed func(T)
	// Reloaded, if set, is told of each reload how it ended.
	Reloaded func(error)
	Logger   *slog.Logger
}

// Content is what files contain, read again when they change. An error in a changed file is logged, and the old content
// stays. Then each look tries again, because rights to read a file change neither its time nor its size.
type Content[T any] struct {
	options ContentOptions[T]
	current atomic.Pointer[T]
	watcher *Watcher
}

// NewContent reads the files; their error is returned.
func NewContent[T any](options ContentOptions[T]) (*Content[T], error) {
	if options.Logger == nil {
		return nil, errors.New("the option Logger is not set")
	}
	c := &Content[T]{options: options}
	var err error
	c.watcher, err = New(Options{Paths: options.Paths, Every: options.Every, Changed: c.reload})
	if err != nil {
		return nil, err
	}
	first, err := options.Load()
	if err != nil {
		return nil, err
	}
	c.current.Store(&first)
	return c, nil
}

// Current returns the content of the files as they were last read without an error.
func (c *Content[T]) Current() T { return *c.current.Load() }

// Start begins to look at the files.
func (c *Content[T]) Start() { c.watcher.Start() }

// Stop ends the looks. It may be called twice, and before Start.
func (c *Content[T]) Stop(ctx context.Context) error { return c.watcher.Stop(ctx) }

func (c *Content[T]) reload() {
	next, err := c.options.Load()
	if err != nil {
		c.watcher.again = c.retry
		c.reloaded(err)
		c.options.Logger.Error("changed files cannot be used, their old content stays", "files", c.options.Paths, "err", err)
		return
	}
	c.use(next)
}

// retry is reload after an error that is known.
func (c *Content[T]) retry() {
	if next, err := c.options.Load(); err == nil {
		c.use(next)
	}
}

func (c *Content[T]) use(next T) {
	c.watcher.again = nil
	c.reloaded(nil)
	c.current.Store(&next)
	if c.options.Changed != nil {
		c.options.Changed(next)
	}
	c.options.Logger.Info("changed files were read again", "files", c.options.Paths)
}

func (c *Content[T]) reloaded(err error) {
	if c.options.Reloaded != nil {
		c.options.Reloaded(err)
	}
}
