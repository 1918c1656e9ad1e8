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

// StorePosition makes the next start replay a partition from a message on. No State may use the database.
func StorePosition(db *pebble.DB, partition int, next uint64) error {
	if err := db.Set(positionKey(partition), binary.BigEndian.AppendUint64(nil, next), pebble.Sync); err != nil {
		return fmt.Errorf("store position of partition %d: %w", partition, err)
	}
	return nil
}
