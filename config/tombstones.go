package config

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A deleted definition leaves a tombstone in the bucket, so that every watcher learns of the deletion. Tombstones are
// small, but a week of short-lived hosts leaves hundreds of thousands, which every start would have to read.
//
// The store removes each tombstone some time after it was made. A connected watcher has seen it by then. A watcher that
// connects later needs none: it starts from what exists. A watcher that loses its connection for longer than
// TombstoneGrace must load the bucket anew. Only the tombstone goes: a definition made again under the same name has a
// later revision, which the removal does not touch.

const (
	// tombstonePause is the least time between two removals, so that they do not delay writes.
	tombstonePause = 2 * time.Millisecond
	// tombstoneRetry is the pause after a failed removal.
	tombstoneRetry = 10 * time.Second
)

// tombstone is the mark of one deletion in the bucket.
type tombstone struct {
	key      string
	revision uint64
	made     time.Time
}

// tombstones are the marks that the watch has seen and that are still in the bucket, oldest first.
type tombstones struct {
	mu    sync.Mutex // guards the fields below
	queue []tombstone
	wake  chan struct{} // capacity 1
}

func (ts *tombstones) add(t tombstone) {
	ts.mu.Lock()
	ts.queue = append(ts.queue, t)
	ts.mu.Unlock()
	select {
	case ts.wake <- struct{}{}:
	default:
	}
}

// first returns the oldest tombstone.
func (ts *tombstones) first() (t tombstone, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.queue) == 0 {
		return tombstone{}, false
	}
	return ts.queue[0], true
}

// removed drops the oldest tombstone.
func (ts *tombstones) removed() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.queue[0] = tombstone{}
	if ts.queue = ts.queue[1:]; len(ts.queue) == 0 {
		ts.queue = nil
	}
}

func (ts *tombstones) len() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.queue)
}

// removeTombstones removes tombstones when they are due, one after the other.
func (s *Store) removeTombstones(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		pause := tombstonePause
		t, ok := s.tombstones.first()
		if !ok {
			select {
			case <-s.tombstones.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if left := s.opts.TombstoneGrace - time.Since(t.made); left > 0 {
			pause = left
		} else if err := s.removeTombstone(ctx, t); err == nil {
			s.tombstones.removed()
			s.metrics.tombstonesRemoved.Inc()
		} else if ctx.Err() == nil {
			pause = tombstoneRetry
			s.rare.Warn("mark of a deleted definition was not removed and will be later", "", "key", t.key, "err", err)
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) removeTombstone(ctx context.Context, t tombstone) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := s.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+bucketName+"."+t.key), jetstream.WithPurgeSequence(t.revision+1))
	if err != nil {
		return fmt.Errorf("remove mark of %s: %w", t.key, err)
	}
	return nil
}
