package audit

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
)

// Copy calls f with all entries, oldest first, as they are stored. Package backend writes them to a backup.
func (l *Log) Copy(ctx context.Context, f func(id uint64, at time.Time, entry []byte) error) error {
	return l.opts.Broker.Each(ctx, streamName, 1, func(m *broker.Message) error { return f(m.Seq, m.Time, m.Data) })
}

// Refill makes the log in a broker that has none, for entries of a backup. The first one gets the ID first; add stores
// the next one. The log's age limit counts from then on.
func Refill(ctx context.Context, b *broker.Broker, first uint64) (add func(entry []byte) error, err error) {
	defaults := DefaultOptions()
	if _, err := openStream(ctx, b, defaults.MaxAge, defaults.MaxBytes); err != nil {
		return nil, err
	}
	filler, err := b.Fill(ctx, streamName, first)
	if err != nil {
		return nil, err
	}
	return func(entry []byte) error { return filler.Add(ctx, subject, entry) }, nil
}
