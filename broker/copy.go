package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// eachBytes is how much of a stream is on its way to Each at a time.
	eachBytes = 4 << 20
	// eachPoll is how long Each waits for a message before it asks again which one is the newest, and eachPause how long
	// the broker may bring none.
	eachPoll  = time.Second
	eachPause = time.Minute
)

// Each calls f with the messages of a stream from one number on, oldest first, until it has called it with all that the
// stream has at that moment. f may keep no message, and may end the reading with an error.
func (b *Broker) Each(ctx context.Context, stream string, from uint64, f func(*Message) error) error {
	if err := b.each(ctx, stream, from, f); err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	return nil
}

func (b *Broker) each(ctx context.Context, stream string, from uint64, f func(*Message) error) error {
	newest, err := b.Newest(ctx, stream, ">")
	if err != nil || newest < from {
		return err
	}
	following := b.Follow(FollowOptions{Stream: stream, From: from, MaxBytes: eachBytes})
	defer following.Stop()
	poll := time.NewTicker(eachPoll)
	defer poll.Stop()
	reached, moved := uint64(0), time.Now()
	for {
		if reached >= newest {
			// A message that replaces another one may have come: then the stream has neither of them before it.
			if newest, err = b.Newest(ctx, stream, ">"); err != nil || reached >= newest {
				return err
			}
		}
		select {
		case m := <-following.Messages:
			if err := f(&m); err != nil {
				return err
			}
			reached, moved = m.Seq, time.Now()
		case <-poll.C:
			if time.Since(moved) > eachPause {
				return fmt.Errorf("no message came from the broker for %s", eachPause)
			}
			if newest, err = b.Newest(ctx, stream, ">"); err != nil { // the newest may have been removed
				return err
			}
		case <-following.Done:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Filler puts messages into a stream that has none.
type Filler struct {
	js   jetstream.JetStream
	next uint64
}

// Fill has the next message of an empty stream get a number, and returns a Filler for the stream.
func (b *Broker) Fill(ctx context.Context, stream string, first uint64) (*Filler, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("fill stream %s: %w", stream, err)
	}
	if first > 1 {
		if err := s.Purge(ctx, jetstream.WithPurgeSequence(first)); err != nil {
			return nil, fmt.Errorf("fill stream %s from %d: %w", stream, first, err)
		}
	}
	return &Filler{js: b.js, next: max(first, 1)}, nil
}

// Add puts a message behind the others. It fails if the message gets another number than the next one.
func (f *Filler) Add(ctx context.Context, subject string, data []byte) error {
	ack, err := f.js.Publish(ctx, subject, data)
	if err != nil {
		return fmt.Errorf("store message %d: %w", f.next, err)
	}
	if ack.Sequence != f.next {
		return fmt.Errorf("message %d was stored as %d", f.next, ack.Sequence)
	}
	f.next++
	return nil
}
