package backend

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// stateDir is the directory with all that a backend keeps, held by one process at a time.
type stateDir struct {
	path string
	lock interface{ Close() error }
}

func openStateDir(path string) (*stateDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	lock, err := vfs.Default.Lock(filepath.Join(path, "lock"))
	if err != nil {
		return nil, fmt.Errorf("state directory %s is in use by another process: %w", path, err)
	}
	return &stateDir{path: path, lock: lock}, nil
}

func (d *stateDir) broker() string  { return filepath.Join(d.path, "broker") }
func (d *stateDir) signIns() string { return filepath.Join(d.path, "sign-ins") }
func (d *stateDir) state() string   { return filepath.Join(d.path, "state") }
func (d *stateDir) close() error    { return d.lock.Close() }

// openDB opens the database of the fold and of unfinished deliveries.
func (d *stateDir) openDB(log pebble.Logger) (*pebble.DB, error) {
	cache := pebble.NewCache(64 << 20)
	defer cache.Unref()
	// At full load each pair is written again every half minute, so most of what a compaction reads is replaced already. In small
	// steps, which read the rest again and again, compactions were a seventh of the CPU of an event.
	opts := &pebble.Options{
		Cache:                       cache,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		MemTableSize:                128 << 20,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       8,
		LBaseMaxBytes:               1 << 30,
		L0StopWritesThreshold:       24,
		Logger:                      log,
	}
	// Events' bodies are replaced soon and read seldom: kept apart from their keys, they are not copied and compressed again in
	// each compaction, which was a third of the CPU of an event.
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: 256, MaxBlobReferenceDepth: 10, RewriteMinimumAge: time.Minute, TargetGarbageRatio: 0.5,
		}
	}
	db, err := pebble.Open(d.state(), opts)
	if err != nil {
		return nil, fmt.Errorf("open state in %s: %w", d.state(), err)
	}
	return db, nil
}

// Keys of what the backend itself keeps in the database.
var (
	originKey     = []byte("m/origin")
	partitionsKey = []byte("m/partitions")
)

// origin is the backend's lasting id, drawn at its first start.
func origin(db *pebble.DB) (string, error) {
	v, closer, err := db.Get(originKey)
	if err == nil {
		defer closer.Close()
		return string(v), nil
	}
	if !errors.Is(err, pebble.ErrNotFound) {
		return "", fmt.Errorf("read backend id: %w", err)
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	if err := db.Set(originKey, []byte(id), pebble.Sync); err != nil {
		return "", fmt.Errorf("store backend id: %w", err)
	}
	return id, nil
}

// partitions is the number of partitions of the event log, which the first start decides for good: with another one
// entities would stand in other partitions than their state. want is 0 for what suits the machine: each partition has its
// own commits, which cost the same for one event as for a thousand, and its own fold, which is one core's work.
func partitions(db *pebble.DB, want int) (int, error) {
	v, closer, err := db.Get(partitionsKey)
	if errors.Is(err, pebble.ErrNotFound) {
		if want == 0 {
			want = min(max(1, runtime.NumCPU()/2), 8)
		}
		if err := db.Set(partitionsKey, strconv.AppendInt(nil, int64(want), 10), pebble.Sync); err != nil {
			return 0, fmt.Errorf("store number of log partitions: %w", err)
		}
		return want, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read number of log partitions: %w", err)
	}
	defer closer.Close()
	was, err := strconv.Atoi(string(v))
	switch {
	case err != nil || was < 1:
		return 0, fmt.Errorf("stored number of log partitions: %q is none", v)
	case want != 0 && want != was:
		return 0, fmt.Errorf("the event log has %d partitions and cannot be read with %d", was, want)
	}
	return was, nil
}
