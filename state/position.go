package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// StoredPosition returns the message from which a restart replays a partition; 0 if nothing is stored.
func StoredPosition(db *pebble.DB, partition int) (uint64, error) {
	v, closer, err := db.Get(positionKey(partition))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read position of partition %d: %w", partition, err)
	}
	defer func() { _ = closer.Close() }()
	next, err := decodePosition(v)
	if err != nil {
		return 0, fmt.Errorf("read position of partition %d: %w", partition, err)
	}
	return next, nil
}

// StoredStream returns the id of the stream that a partition's position is of; "" if it is not known.
func StoredStream(db *pebble.DB, partition int) (string, error) {
	v, closer, err := db.Get(streamKey(partition))
	if errors.Is(err, pebble.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read stream id of partition %d: %w", partition, err)
	}
	defer func() { _ = closer.Close() }()
	return string(v), nil
}

// AcceptStream makes the next start go on with whatever stream a partition has then. No State may use the database.
func AcceptStream(db *pebble.DB, partition int) error {
	if err := db.Delete(streamKey(partition), pebble.Sync); err != nil {
		return fmt.Errorf("accept the stream of partition %d: %w", partition, err)
	}
	return nil
}

// OtherStreamError says that a partition's stream is not the one that the state is of.
type OtherStreamError struct {
	Partition   int
	Known, Have string // ids
}

func (e *OtherStreamError) Error() string {
	return fmt.Sprintf("event log partition %d is stream %s, and the state database has read stream %s: that one was lost, and "+
		"another one made in its place; put a backup in place or accept the loss with \"lapwing backend repair\"",
		e.Partition, e.Have, e.Known)
}

// StorePosition makes the next start replay a partition from a message on. No State may use the database.
func StorePosition(db *pebble.DB, partition int, next uint64) error {
	if err := db.Set(positionKey(partition), binary.BigEndian.AppendUint64(nil, next), pebble.Sync); err != nil {
		return fmt.Errorf("store position of partition %d: %w", partition, err)
	}
	return nil
}
