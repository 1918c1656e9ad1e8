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

// Copy calls f with all keys of the bucket, those of secrets too, in the order of their revisions. Changes that are
// made in the meantime come behind them, so the newest value of each key counts.
func (s *Store) Copy(ctx context.Context, f func(*Copied) error) error {
	return s.opts.Broker.Each(ctx, streamName, 1, func(m *broker.Message) error {
		return f(&Copied{Message: *m, Key: strings.TrimPrefix(m.Subject, subjectPrefix)})
	})
}

// Refill makes the bucket in a broker that has none, for keys of a backup. The first one gets the revision first; add
// stores the next one.
func Refill(ctx context.Context, b *broker.Broker, first uint64) (add func(key string, value []byte) error, err error) {
	if _, err := openBucket(ctx, b); err != nil {
		return nil, err
	}
	filler, err := b.Fill(ctx, streamName, first)
	if err != nil {
		return nil, err
	}
	return func(key string, value []byte) error {
		if _, _, _, err := parseBucketKey(key); err != nil {
			return err
		}
		return filler.Add(ctx, subjectPrefix+key, value)
	}, nil
}
