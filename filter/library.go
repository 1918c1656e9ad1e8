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
)

const (
	// libraryBudget bounds one file of an asset when a runtime is created.
	libraryBudget = 250 * time.Millisecond
	// libraryAge is how long an asset's list of files is reused; libraryRetry is that after a failure.
	libraryAge, libraryRetry = time.Minute, 10 * time.Second
	// librariesBudget bounds all files together.
	librariesBudget = time.Second
	// libraryWait bounds how long the first event waits for assets that must be fetched.
	libraryWait = time.Minute
)

// bundle is a definition with the scripts of its assets.
type bundle struct {
	paths []string
	files []scriptFile
	until time.Time
	def   *definition
}

// libraries keeps the current bundle of one definition.
type libraries struct {
	namespace string
	assets    []string
	define    func(files []scriptFile) *definition
	failed    func(reason, source string, err error)

	mu      sync.Mutex // held while files are looked up and read
	present *bundle
}

// get returns the current bundle. It reports assets that fail, and the definition runs without them.
func (ls *libraries) get(ctx context.Context, e *Engine) *bundle {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if ls.present != nil && (len(ls.assets) == 0 || now.Before(ls.present.until)) {
		return ls.present
	}
	b := &bundle{until: now.Add(libraryAge)}
	if len(ls.assets) > 0 {
		var err error
		if b.paths, err = ls.find(ctx, e); err != nil {
			ls.failed("asset", "", err)
			if ls.present != nil { // the old bundle is better than none
				ls.present.until = now.Add(libraryRetry)
				return ls.present
			}
			b.until = now.Add(libraryRetry)
		}
		if ls.present != nil && slices.Equal(ls.present.paths, b.paths) {
			ls.present.until = b.until
			return ls.present
		}
		for _, path := range b.paths {
			text, err := readScript(path)
			if err != nil {
				ls.failed("asset", filepath.Base(path), err)
				continue
			}
			b.files = append(b.files, scriptFile{filepath.Base(path), text})
		}
	}
	b.def = ls.define(b.files)
	if ls.present != nil { // other files make other sources: the cause of workers' deaths may be gone
		e.opts.Pool.forget(ls.namespace, ls.present.def.keys...)
	}
	ls.present = b
	return b
}

func (ls *libraries) find(ctx context.Context, e *Engine) ([]string, error) {
	if e.opts.Scripts == nil {
		return nil, errors.New("there are no assets here")
	}
	ctx, cancel := context.WithTimeout(ctx, libraryWait)
	defer cancel()
	return e.opts.Scripts(ctx, ls.namespace, ls.assets)
}

func readScript(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read script: %w", err)
	}
	if info.Size() > maxLibrary {
		return "", fmt.Errorf("read script: it has %d bytes, more than %d", info.Size(), maxLibrary)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read script: %w", err)
	}
	return string(text), nil
}
