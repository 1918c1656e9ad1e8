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
		if err := b.space(); err != nil {
			return err
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

// space is a waitError while the disk is so full that no event would be taken.
func (b *Backend) space() error {
	dir := b.opts.StateDir
	for !exists(dir) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
	}
	free, err := eventlog.FreeSpace(dir)
	if err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	if free >= b.opts.MinFreeDisk {
		return nil
	}
	text := fmt.Sprintf("disk full: %d bytes free in %s, at least %d needed: --min-free-disk; waiting", free, dir, b.opts.MinFreeDisk)
	return &waitError{kind: "disk", text: text}
}
