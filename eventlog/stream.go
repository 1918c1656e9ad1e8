package eventlog

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

// Keys of a stream's metadata.
const (
	// StreamIDKey has the stream's id.
	StreamIDKey = "lapwing.io/id"
	// partitionsKey has the number of partitions that the event log was made with.
	partitionsKey = "lapwing.io/partitions"
)

func streamConfig(partition, partitions int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:       streamName(partition),
		Subjects:   []string{subject(partition)},
		Storage:    jetstream.FileStorage,
		Retention:  jetstream.LimitsPolicy,
		Duplicates: 2 * time.Minute,
		Metadata:   map[string]string{StreamIDKey: rand.Text(), partitionsKey: strconv.Itoa(partitions)},
	}
}

// openStream opens the stream of a partition, and creates it if there is none. A stream gets a random id when it is
// created, so that one that was lost and created anew is recognised. A stream of an earlier release gets one now.
func openStream(
	ctx context.Context, b *broker.Broker, partition, partitions int,
) (stream jetstream.Stream, id string, err error) {
	cfg := streamConfig(partition, partitions)
	if stream, err = b.OpenStream(ctx, cfg); err != nil {
		return nil, "", err
	}
	if id = stream.CachedInfo().Config.Metadata[StreamIDKey]; id != "" {
		return stream, id, nil
	}
	now := stream.CachedInfo().Config
	now.Metadata = cfg.Metadata
	stream, err = b.JetStream().UpdateStream(ctx, now)
	return stream, cfg.Metadata[StreamIDKey], err
}

// FindPartitions returns the number of partitions of a cluster's event log. If there is none yet, it is made with the
// wanted number.
func FindPartitions(ctx context.Context, b *broker.Broker, want int) (int, error) {
	stream, err := b.OpenStream(ctx, streamConfig(0, want))
	if err != nil {
		return 0, fmt.Errorf("find the event log's partitions: %w", err)
	}
	text := stream.CachedInfo().Config.Metadata[partitionsKey]
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("find the event log's partitions: its stream says %q", text)
	}
	return n, nil
}

// StreamID returns the id of a partition's stream. A stream that was lost and created anew has another one.
func (l *Log) StreamID(partition int) string { return l.parts[partition].streamID }

// Stored describes a partition's stream for reading its files without the broker.
func Stored(partition int) blocks.Stream {
	return blocks.Stream{Name: streamName(partition), Subject: subject(partition), Dense: true}
}

func streamName(partition int) string { return "EVENTLOG_" + strconv.Itoa(partition) }
func subject(partition int) string    { return "eventlog." + strconv.Itoa(partition) }

// GapError says that a partition has not all messages that it should have.
type GapError struct {
	Partition int
	Missing   blocks.Range
}

func (e *GapError) Error() string {
	return fmt.Sprintf("messages %d to %d of event log partition %d are missing: stop the backend, look at the damage with "+
		"\"lapwing backend verify\", then put a backup in place or accept the loss with \"lapwing backend repair\"",
		e.Missing.From, e.Missing.To, e.Partition)
}

// pass records that a reader of the partition goes on at the message to instead of next. That is an error if messages
// between them are missing and no operator accepted it.
func (p *partition) pass(next, to uint64) error {
	if to <= next {
		return nil
	}
	if gone := (blocks.Range{From: next, To: to - 1}); !blocks.Covered(gone, p.lost) {
		return &GapError{p.id, gone}
	}
	return nil
}
