package config

import (
	"context"
	"strings"

	"github.com/lapwing-monitoring/lapwing/broker"
)

// Copied is a key of the bucket and its value, or that the key was deleted.
type Copied struct {
	broker.Message
	Key string // kind.namespace.name, each escaped
}

// Deletes reports whether the key was deleted.
func (c *Copied) Deletes() bool { return c.Header.Get(operationHeader) != "" }

// Copy calls f with all keys of a broker's bucket, those of secrets too, in the order of their revisions. Changes that
// are made in the meantime come behind them, so the newest value of each key counts.
func Copy(ctx context.Context, b *broker.Broker, f func(*Copied) error) error {
	return b.Each(ctx, streamName, 1, func(m *broker.Message) error {
		return f(&Copied{Message: *m, Key: strings.TrimPrefix(m.Subject, subjectPrefix)})
	})
}

// Refill makes the bucket in a broker that has none, for keys of a backup or of another broker. each adds them: the
// first one gets the revision first. A Refill that was interrupted goes on if each adds the same keys again.
func Refill(
	ctx context.Context, b *broker.Broker, first uint64, each func(add func(key string, value []byte) error) error,
) error {
	if _, err := openBucket(ctx, b); err != nil {
		return err
	}
	filler, err := b.Fill(ctx, streamName, first)
	if err != nil {
		return err
	}
	err = each(func(key string, value []byte) error {
		if _, _, _, err := parseBucketKey(key); err != nil {
			return err
		}
		return filler.Add(ctx, subjectPrefix+key, value)
	})
	if err != nil {
		return err
	}
	return filler.Flush(ctx)
}
