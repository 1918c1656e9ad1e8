package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout bounds Stop, below the minute that the unit for systemd gives the process. slowStop is when the log names
// a part that takes long.
const (
	stopTimeout = 50 * time.Second
	slowStop    = 5 * time.Second
)

// part is what all parts with a life of their own have.
type part interface {
	Start(context.Context) error
	Stop() error
}

// named is a part with the name that messages have.
type named struct {
	name string
	part
}

func (b *Backend) startAll(ctx context.Context, all ...named) error {
	for _, n := range all {
		if err := b.start(ctx, n.name, n.part); err != nil {
			return err
		}
	}
	return nil
}

// start starts a part, and has it stopped by unwind.
func (b *Backend) start(ctx context.Context, name string, p part) error {
	b.say(name)
	return b.startQuietly(ctx, name, p)
}

// startQuietly is start where something else is said already.
func (b *Backend) startQuietly(ctx context.Context, name string, p part) error {
	if err := p.Start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	b.push(name, p.Stop)
	return nil
}

// step is one thing to undo at Stop.
type step struct {
	name string
	do   func() error
}

func (b *Backend) push(name string, do func() error) {
	b.undo = append(b.undo, step{name, do})
}

// beforeUndo has something done before any step is undone. It must not wait for anything.
func (b *Backend) beforeUndo(do func()) { b.first = append(b.first, do) }

// unwind undoes the steps in reverse. It gives up at the first one that has not ended when ctx does: those before it are
// what it still uses, so they are left to the end of the process.
func (b *Backend) unwind(ctx context.Context) error {
	for _, do := range b.first {
		do()
	}
	b.first = nil
	var errs []error
	for len(b.undo) > 0 {
		last := b.undo[len(b.undo)-1]
		b.undo = b.undo[:len(b.undo)-1]
		err, ended := b.undoStep(ctx, last)
		if err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", last.name, err))
		}
		if errors.As(err, new(*noSpaceError)) {
			b.undo = nil // they use the database, which serves no one after that
			return errors.Join(errs...)
		}
		if !ended {
			left := make([]string, 0, len(b.undo))
			for _, s := range b.undo {
				left = append(left, s.name)
			}
			b.undo = nil
			b.log.Error("a part did not stop in time", "part", last.name, "left_running", strings.Join(left, ", "))
			return errors.Join(append(errs, fmt.Errorf("stop %s: it did not end in time", last.name))...)
		}
	}
	return errors.Join(errs...)
}

func (b *Backend) undoStep(ctx context.Context, s step) (err error, ended bool) {
	done := make(chan error, 1)
	go func() { done <- withoutSpace(s.do) }()
	slow := time.NewTimer(slowStop)
	defer slow.Stop()
	for {
		select {
		case err := <-done:
			return err, true
		case <-slow.C:
			b.log.Warn("a part takes long to stop", "part", s.name)
		case <-ctx.Done():
			select {
			case err := <-done:
				return err, true
			case <-time.After(100 * time.Millisecond): // steps that do not wait may end all the same
				return nil, false
			}
		}
	}
}

// noSpaceError says that the state database could not write on a full disk.
type noSpaceError struct{ err error }

// nothingLost ends messages about a state database that could not write.
const nothingLost = "nothing is lost: make room, and the next start reads from the event log what was not written"

func (e *noSpaceError) Error() string { return e.err.Error() + "; " + nothingLost }

func (e *noSpaceError) Unwrap() error { return e.err }

// withoutSpace does a step. The state database panics when the disk is full and cannot be used after that.
func withoutSpace(do func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		full, ok := p.(error)
		if !ok || !errors.Is(full, syscall.ENOSPC) {
			panic(p)
		}
		err = &noSpaceError{full}
	}()
	return do()
}

// Stop takes the parts down in reverse, so that it first takes no more requests, and last writes what is not stored yet. It
// ends when ctx does, and within 50 s. Its error names the part that did not end by then; the process should end then, and
// the next start finds what was written. A Start that has not ended is cancelled. Stop may be called more than once, and
// before Start, which then fails.
func (b *Backend) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	b.endLife()
	if err := b.turn.take(ctx); err != nil {
		return fmt.Errorf("stop backend: the start did not end in time; it was at: %w", b.Starting())
	}
	defer b.turn.give()
	b.running = nil
	return b.unwind(ctx)
}

// turn is a lock whose callers do not wait longer than they want to.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn, which is free even if ctx has ended.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }

// failure is the first error after which a backend cannot go on.
type failure struct {
	once sync.Once
	done chan struct{}
	err  error // once done is closed
}

// fail has the process end: a part has failed that the backend cannot do without, and that does not come back by itself.
func (b *Backend) fail(part string, err error) {
	b.failed.once.Do(func() {
		b.failed.err = fmt.Errorf("%s failed: %w", part, err)
		close(b.failed.done)
	})
}

// watch has the process end if a part says that it has failed, until Stop.
func (b *Backend) watch(part string, failed <-chan error) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case err := <-failed:
			b.fail(part, err)
		case <-stop:
		}
	}()
	b.push("watch of the "+part, func() error {
		close(stop)
		<-done
		return nil
	})
}

// Done is closed when the backend cannot go on; Err says why. The caller stops the backend then, and lets the process end
// with an error, so that a service manager starts it again.
func (b *Backend) Done() <-chan struct{} { return b.failed.done }

// Err is why Done is closed, nil before.
func (b *Backend) Err() error {
	select {
	case <-b.failed.done:
		return b.failed.err
	default:
		return nil
	}
}
