package fleet

import (
	"context"
	"time"
)

// Reader reads a list. It is for one goroutine.
type Reader struct {
	fleet  *Fleet
	list   *list
	closed bool
}

// Close ends the reader.
func (r *Reader) Close() {
	if !r.closed {
		r.closed = true
		r.fleet.release(r.list)
	}
}

// Ready waits until the list can be read, or has failed.
func (r *Reader) Ready(ctx context.Context) error {
	for {
		snapshot, changed, err := r.fleet.standing()
		if err != nil || snapshot != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Changed is closed when any list may have changed after this call, or has ended.
func (r *Reader) Changed() <-chan struct{} {
	_, changed, _ := r.fleet.standing()
	return changed
}

// Err returns why the list has ended, or nil if it goes on.
func (r *Reader) Err() error {
	_, _, err := r.fleet.standing()
	return err
}

// Content returns the list as it is now; nil if it cannot be read yet.
func (r *Reader) Content() *Content {
	snapshot, _, _ := r.fleet.standing()
	if snapshot == nil {
		return nil
	}
	return r.list.at(snapshot, time.Now(), r.fleet.opts.RefreshTimed)
}

func (f *Fleet) standing() (s *snapshot, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snapshot, f.changed, f.err
}
