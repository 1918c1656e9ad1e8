package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/broker"
)

// hold keeps a partition's messages while a backup reads them.
type hold struct {
	on   bool
	most uint64 // bytes of the stream above which Trim keeps nothing any more
}

// ErrNotHeld says that messages were trimmed that a backup was still to read.
var ErrNotHeld = errors.New("the log was trimmed before it was read: it has grown too fast, or the disk is full")

// Hold keeps Trim from removing messages until release is called. It ends by itself in a partition that has grown by
// its share of growth, in bytes, or when the log takes no records for lack of space: then Copy fails.
func (l *Log) Hold(ctx context.Context, growth uint64) (release func(), err error) {
	release = func() {
		for _, p := range l.parts {
			p.mu.Lock()
			p.hold = hold{}
			p.mu.Unlock()
		}
	}
	for _, p := range l.parts {
		st, err := p.look(ctx)
		if err != nil {
			release()
			return nil, err
		}
		p.mu.Lock()
		p.hold = hold{on: true, most: st.Bytes + growth/uint64(len(l.parts))}
		p.mu.Unlock()
	}
	return release, nil
}

// held returns below which message Trim may remove messages of a stream of that many bytes.
func (l *Log) held(p *partition, bytes, below uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hold.on {
		return below
	}
	if bytes > p.hold.most || l.full.Load() {
		p.hold.on = false
		return below
	}
	return 0
}

var errCopied = errors.New("all is copied")

// Copy calls f with the messages of a partition from one number to another, both included. It fails with ErrNotHeld if
// one of them is missing.
func (l *Log) Copy(ctx context.Context, partition int, from, to uint64, f func(*broker.Message) error) error {
	if from > to {
		return nil
	}
	next := from
	err := l.opts.Broker.Each(ctx, streamName(partition), from, func(m *broker.Message) error {
		if m.Seq != next {
			return fmt.Errorf("message %d is missing: %w", next, ErrNotHeld)
		}
		if err := f(m); err != nil {
			return err
		}
		if next++; next > to {
			return errCopied
		}
		return nil
	})
	switch {
	case errors.Is(err, errCopied):
		return nil
	case err != nil:
		return fmt.Errorf("copy event log partition %d: %w", partition, err)
	}
	return fmt.Errorf("copy event log partition %d: message %d is missing: %w", partition, next, ErrNotHeld)
}

// Refill makes the stream of one of so many partitions in a broker that has none, for messages of a backup or of
// another broker. each adds them: the first one gets the number first. A Refill that was interrupted goes on if each
// adds the same messages again.
func Refill(
	ctx context.Context, b *broker.Broker, partition, partitions int, first uint64,
	each func(add func(msg []byte) error) error,
) error {
	if _, _, err := openStream(ctx, b, partition, partitions); err != nil {
		return fmt.Errorf("create event log partition %d: %w", partition, err)
	}
	filler, err := b.Fill(ctx, streamName(partition), first)
	if err != nil {
		return err
	}
	if err := each(func(msg []byte) error { return filler.Add(ctx, subject(partition), msg) }); err != nil {
		return err
	}
	return filler.Flush(ctx)
}
