package audit

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
)

// Copy calls f with all entries of a broker's log, oldest first, as they are stored. Package backend writes them to a
// backup, and to the broker of a cluster's member.
func Copy(ctx context.Context, b *broker.Broker, f func(id uint64, at time.Time, entry []byte) error) error {
	return b.Each(ctx, streamName, 1, func(m *broker.Message) error { return f(m.Seq, m.Time, m.Data) })
}

// Refill makes the log in a broker that has none, for entries of a backup or of another broker. each adds them: the
// first one gets the ID first. The log's age limit counts from then on. A Refill that was interrupted goes on if each
// adds the same entries again.
func Refill(ctx context.Context, b *broker.Broker, first uint64, each func(add func(entry []byte) error) error) error {
	defaults := DefaultOptions()
	if _, err := openStream(ctx, b, defaults.MaxAge, defaults.MaxBytes); err != nil {
		return err
	}
	filler, err := b.Fill(ctx, streamName, first)
	if err != nil {
		return err
	}
	if err := each(func(entry []byte) error { return filler.Add(ctx, subject, entry) }); err != nil {
		return err
	}
	return filler.Flush(ctx)
}
