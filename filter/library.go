package filter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/dop251/goja"
)

const (
	// libraryBudget is how long one file of an asset may take when a runtime is made.
	libraryBudget = 250 * time.Millisecond
	// libraryAge is how long it is taken for granted which files an asset brings; after a failure, libraryRetry.
	libraryAge, libraryRetry = time.Minute, 10 * time.Second
	// libraryWait is how long the first event waits for assets that have to be fetched.
	libraryWait = time.Minute
	// maxLibrary is how large a file may be.
	maxLibrary = 4 << 20
)

// library is the scripts of a definition's assets, which its runtimes begin with, and those runtimes.
type library struct {
	files     []string
	programs  []*goja.Program
	until     time.Time
	sandboxes sync.Pool
}

// libraries keeps the present library of one definition.
type libraries struct {
	namespace string
	assets    []string
	failed    func(reason, source string, err error)

	mu      sync.Mutex // held while files are found and read
	present *library
}

// get is the present library. What goes wrong with assets is told, and the definition does without them.
func (ls *libraries) get(ctx context.Context, e *Engine) *library {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if ls.present != nil && (len(ls.assets) == 0 || now.Before(ls.present.until)) {
		return ls.present
	}
	lib := &library{until: now.Add(libraryAge)}
	if len(ls.assets) > 0 {
		var err error
		if lib.files, err = ls.find(ctx, e); err != nil {
			ls.failed("asset", "", err)
			if ls.present != nil { // what was there is better than nothing
				ls.present.until = now.Add(libraryRetry)
				return ls.present
			}
			lib.until = now.Add(libraryRetry)
		}
		if ls.present != nil && slices.Equal(ls.present.files, lib.files) {
			ls.present.until = lib.until
			return ls.present
		}
		for _, name := range lib.files {
			program, err := readScript(name)
			if err != nil {
				ls.failed("asset", filepath.Base(name), err)
				continue
			}
			lib.programs = append(lib.programs, program)
		}
	}
	lib.sandboxes.New = func() any { return lib.sandbox(e, ls.failed) }
	ls.present = lib
	return lib
}

func (ls *libraries) find(ctx context.Context, e *Engine) ([]string, error) {
	if e.opts.Scripts == nil {
		return nil, errors.New("there are no assets here")
	}
	ctx, cancel := context.WithTimeout(ctx, libraryWait)
	defer cancel()
	return e.opts.Scripts(ctx, ls.namespace, ls.assets)
}

func readScript(name string) (*goja.Program, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	if info.Size() > maxLibrary {
		return nil, fmt.Errorf("read script: it has %d bytes, more than %d", info.Size(), maxLibrary)
	}
	source, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	s := compile(filepath.Base(name), string(source))
	return s.program, s.err
}

// sandbox makes a runtime in which the scripts have run. One that fails is left out from then on.
func (l *library) sandbox(e *Engine, failed func(reason, source string, err error)) *sandbox {
	box := newSandbox(e.opts.Now)
	for _, program := range l.programs {
		if _, err := box.value(program, libraryBudget); err != nil {
			failed("asset", "", err)
		}
		if box.spent { // it may have been interrupted in the middle
			box.vm.ClearInterrupt()
			box.spent = false
		}
	}
	box.events = e.opts.Events
	return box
}
