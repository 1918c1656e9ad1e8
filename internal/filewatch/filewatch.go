// Package filewatch tells a part that a file of an operator has changed, by looking at its time, its size and
// which file it is now and then.
//
// A file that is gone is told only when it is still gone at the next look, because some programs save a file by
// removing it first.
package filewatch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Options are what New needs.
type Options struct {
	Paths []string      // the files; empty paths are left out
	Every time.Duration // between two looks
	// Changed is called by the watcher's goroutine after at least one file has changed, appeared or gone.
	Changed func()
}

// Watcher looks at files.
type Watcher struct {
	options Options
	seen    []os.FileInfo // of the last call of Changed, or of New
	gone    []bool        // the file was missing at the last look, and seen has it
	again   func()        // for looks that find no change; nil for nothing. Only the watcher's goroutine uses it

	mu     sync.Mutex // guards the fields below
	cancel context.CancelFunc
	done   chan struct{}
	ended  bool
}

// lookAt returns nil if there is no such file.
func lookAt(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// same reports whether two looks have found the same. A file in the place of another one may have its size, and its time,
// too: the clock of files moves every few milliseconds only.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// New takes a first look at the files. The caller reads them after New, so that no change is lost.
func New(options Options) (*Watcher, error) {
	if options.Every <= 0 {
		return nil, fmt.Errorf("watch files every %s: the time must be positive", options.Every)
	}
	w := &Watcher{options: options}
	w.options.Paths = nil
	for _, p := range options.Paths {
		if p != "" {
			w.options.Paths = append(w.options.Paths, p)
			w.seen = append(w.seen, lookAt(p))
		}
	}
	w.gone = make([]bool, len(w.seen))
	return w, nil
}

// Start begins to look. It does nothing the second time, or after Stop.
func (w *Watcher) Start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.done != nil || len(w.options.Paths) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.done = cancel, make(chan struct{})
	go w.run(ctx, w.done)
}

// Stop ends the looks, and waits for a call of Changed that runs. It may be called twice, and before Start.
func (w *Watcher) Stop(ctx context.Context) error {
	w.mu.Lock()
	w.ended = true
	done := w.done
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the watcher of files: %w", ctx.Err())
	}
}

func (w *Watcher) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	t := time.NewTicker(w.options.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		switch {
		case w.changed():
			w.options.Changed()
		case w.again != nil && !slices.Contains(w.gone, true):
			w.again()
		}
	}
}

// changed looks once.
func (w *Watcher) changed() bool {
	changed := false
	for i, path := range w.options.Paths {
		now := lookAt(path)
		if w.seen[i] != nil && now == nil && !w.gone[i] {
			w.gone[i] = true
			continue
		}
		w.gone[i] = false
		if !same(now, w.seen[i]) {
			w.seen[i] = now
			changed = true
		}
	}
	return changed
}
