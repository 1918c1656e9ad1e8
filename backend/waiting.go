package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

const (
	// sayWait is how long a step of the start may take before it is logged what it does.
	sayWait = 15 * time.Second
	// mostWait is how long it may make no progress.
	mostWait = 10 * time.Minute
)

// patiently does a step of the start that may take long. It logs what the start waits for, and gives up when there is no progress.
func (b *Backend) patiently(ctx context.Context, what string, progress func() uint64, step func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := time.Now()
	b.say(what)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(sayWait)
		defer tick.Stop()
		last, moved := progress(), begin
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if now := progress(); now != last {
				last, moved = now, time.Now()
			}
			if idle := time.Since(moved); idle > mostWait {
				cancel(fmt.Errorf("%s made no progress for %s", what, idle.Round(time.Second)))
				return
			}
			b.log.Info("the start goes on", "doing", what, "at", last, "seconds", time.Since(begin).Seconds())
		}
	}()
	err := step(ctx)
	close(done)
	<-ended
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(err, cause)
	}
	return err
}

// waitForState waits for space on the disk and for an operator to accept losses, and then opens the state directory.
func (b *Backend) waitForState(ctx context.Context) (s *Survey, err error) {
	var damaged *damageError
	var seen time.Time // of the identity, which a repair writes
	err = b.waitFor(ctx, "the backend waits and does not start", func() error {
		if err := b.space(b.toWrite()); err != nil {
			return waitForSpace(err)
		}
		path := (&stateDir{path: b.opts.StateDir}).identity()
		if damaged != nil && modified(path).Equal(seen) {
			return b.mustRepair(damaged)
		}
		seen = modified(path)
		var err error
		if s, err = b.openState(); errors.As(err, &damaged) {
			return b.mustRepair(damaged)
		}
		if damaged != nil && err != nil {
			seen = time.Time{}                                   // what the repair leaves must be read
			return &waitError{kind: "in use", text: err.Error()} // a repair is under way
		}
		return err
	})
	b.say("state directory")
	return s, err
}

func (b *Backend) mustRepair(damaged *damageError) error {
	const most = 20
	var attrs []any // the text has the first one
	for i, f := range damaged.survey.Lost() {
		if i > 0 && i < most {
			attrs = append(attrs, fmt.Sprintf("damage_%d", i+1), f.String())
		}
	}
	return &waitError{kind: "damage", text: damaged.Error(), attrs: attrs}
}

func modified(path string) time.Time {
	st, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

// initialSpace is what a first start may write, in bytes: four times what it writes with as many partitions as there may be.
const initialSpace = 8 << 20

// toWrite is how much the start may write before the backend takes events. It is asked for before anything is made: an administrator
// whose password was told can do nothing while the disk is too full to go on.
func (b *Backend) toWrite() uint64 {
	var id identity
	if err := readSealed((&stateDir{path: b.opts.StateDir}).identity(), &id); err == nil && !id.Initialised.IsZero() {
		return 0
	}
	return initialSpace
}

// fullError says that the disk is so full that no event would be taken.
type fullError struct {
	dir                   string
	free, reserve, needed uint64
}

func (e *fullError) Error() string {
	if e.needed > e.reserve {
		return fmt.Sprintf("disk full: %d bytes free in %s, at least %d needed: %d of --min-free-disk and %d for the first start",
			e.free, e.dir, e.needed, e.reserve, e.needed-e.reserve)
	}
	return fmt.Sprintf("disk full: %d bytes free in %s, at least %d needed: --min-free-disk", e.free, e.dir, e.needed)
}

// waitForSpace has the start wait if the error is that the disk is full.
func waitForSpace(err error) error {
	if full := new(fullError); errors.As(err, &full) {
		return &waitError{kind: "disk", text: full.Error() + "; waiting: make room there, and the start goes on"}
	}
	return err
}

// space is a fullError unless --min-free-disk is still free when so many bytes more are written.
func (b *Backend) space(more uint64) error {
	dir := b.opts.StateDir
	for !exists(dir) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
	}
	free, err := eventlog.FreeSpace(dir)
	if err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	if reserve := b.opts.Log.MinFree; free < reserve+more {
		return &fullError{dir: dir, free: free, reserve: reserve, needed: reserve + more}
	}
	return nil
}
