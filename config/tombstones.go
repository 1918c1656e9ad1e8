package config

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A deleted definition leaves a tombstone in the bucket, so that every watcher learns of the deletion. Tombstones are
// small, but a week of short-lived hosts leaves hundreds of thousands, which every start would have to read.
//
// The store removes each tombstone some time after it was made. In a cluster only the bucket's leader does, and only
// while all copies are current: a member that was cut off for longer than TombstoneGrace would otherwise never learn of
// the deletion. A watcher that starts later needs none: it begins with what exists. Only the tombstone goes: a
// definition made again under the same name has a later revision, which the removal does not touch.

const (
	// tombstonePause is the least time between two removals, so that they do not delay writes.
	tombstonePause = 2 * time.Millisecond
	// tombstoneRetry is the pause after a removal that failed, or has to wait.
	tombstoneRetry = 10 * time.Second
	// tombstoneTimeout bounds one removal.
	tombstoneTimeout = 30 * time.Second
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
		} else if gone, err := s.removeTombstone(ctx, t); gone {
			s.tombstones.removed()
			s.forget(t)
			s.metrics.tombstonesRemoved.Inc()
		} else {
			pause = tombstoneRetry
			if err != nil && ctx.Err() == nil {
				s.rare.Warn("mark of a deleted definition was not removed and will be later", "", "key", t.key, "err", err)
			}
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// removeTombstone removes a tombstone, or has the bucket's leader do it. It reports whether the tombstone is gone.
func (s *Store) removeTombstone(ctx context.Context, t tombstone) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tombstoneTimeout)
	defer cancel()
	if !s.opts.Broker.Leads(streamName) {
		_, err := s.stream.GetMsg(ctx, t.revision)
		return errors.Is(err, jetstream.ErrMsgNotFound), nil
	}
	copies, err := s.opts.Broker.StreamStatus(ctx, streamName)
	if err != nil {
		return false, fmt.Errorf("remove mark of %s: %w", t.key, err)
	}
	for _, r := range copies.Replicas {
		if !r.Current || r.Offline {
			return false, nil
		}
	}
	subject := s.opts.Broker.Subject(subjectPrefix + t.key)
	err = s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(t.revision+1))
	if err != nil {
		return false, fmt.Errorf("remove mark of %s: %w", t.key, err)
	}
	return true, nil
}
