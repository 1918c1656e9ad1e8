package backend

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
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
		return nil, lockError(path, err)
	}
	return &stateDir{path: path, lock: lock}, nil
}

func lockError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("user %d has no permission to lock state directory %s: run this as the user who owns it: %w", os.Geteuid(), path, err)
	case errors.Is(err, syscall.EAGAIN), strings.Contains(err.Error(), "held by current process"):
		return fmt.Errorf("state directory %s is in use by another process: %w", path, err)
	}
	return fmt.Errorf("lock state directory %s: %w", path, err)
}

func (d *stateDir) broker() string   { return filepath.Join(d.path, "broker") }
func (d *stateDir) state() string    { return filepath.Join(d.path, "state") }
func (d *stateDir) identity() string { return filepath.Join(d.path, "identity") }
func (d *stateDir) files() string    { return filepath.Join(d.path, "files") }
func (d *stateDir) signIns() string  { return filepath.Join(d.path, "sign-ins") }
func (d *stateDir) damage() string   { return filepath.Join(d.path, "damage") }
func (d *stateDir) close() error     { return d.lock.Close() }

// aside is a new name for the directory of what is set aside now.
func (d *stateDir) aside() string {
	return filepath.Join(d.path, "damaged", time.Now().UTC().Format("20060102T150405.000Z"))
}

// identity is what a backend was once and for all, beside the stores that hold it too. With it a store that is lost is told
// from one that never was.
type identity struct {
	// Cluster is the backend's lasting id, and Partitions how many the event log has.
	Cluster    string `json:"cluster"`
	Partitions int    `json:"partitions"`
	// Initialised is when the administrator and the built-in definitions were made. They are not made twice, unless an operator
	// said so: Reseed.
	Initialised time.Time `json:"initialised"`
	Reseed      bool      `json:"reseed,omitempty"`
	// Lost are the messages, by stream, whose loss an operator accepted.
	Lost map[string][]blocks.Range `json:"lost,omitempty"`
	// Quiet are, by partition, the messages up to which a replay sends nothing: they were handled before their state was lost.
	Quiet   []uint64 `json:"quiet,omitempty"`
	Repairs []repair `json:"repairs,omitempty"`
}

// repair is one time that an operator accepted losses.
type repair struct {
	Time  time.Time `json:"time"`
	Aside string    `json:"aside"`
	Lost  []string  `json:"lost"`
}

// quiet is up to where events of a partition set off nothing.
func (id *identity) quiet(partition int) uint64 {
	if partition < len(id.Quiet) {
		return id.Quiet[partition]
	}
	return 0
}

// damageNote is left by a backend that found its database damaged while it ran.
type damageNote struct {
	Time time.Time `json:"time"`
	File string    `json:"file"`
	What string    `json:"what"`
}

// files records which files the state database has, as far as that is known: all of them after a clean stop.
type files struct {
	Clean bool                `json:"clean"`
	Files map[string]fileInfo `json:"files"`
}

// fileInfo describes a file. Sum is of those whose own checksums do not tell a damaged end from an unfinished one.
type fileInfo struct {
	Size int64   `json:"size"`
	Sum  *uint32 `json:"sum,omitempty"`
}

// recordFiles notes the database's files. While it is open only its options stay as they are.
func (d *stateDir) recordFiles(clean bool) error {
	entries, err := os.ReadDir(d.state())
	if err != nil {
		return fmt.Errorf("record files of the state database: %w", err)
	}
	rec := files{Clean: clean, Files: map[string]fileInfo{}}
	for _, e := range entries {
		if name := e.Name(); name != "LOCK" && (clean || strings.HasPrefix(name, "OPTIONS-")) {
			if rec.Files[name], err = describe(filepath.Join(d.state(), name)); err != nil {
				return fmt.Errorf("record files of the state database: %w", err)
			}
		}
	}
	return writeSealed(d.files(), &rec)
}

// describe sums up a file. Tables and values have checksums of their own, which are looked at when they are read.
func describe(path string) (fileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileInfo{}, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return fileInfo{}, err
	}
	info := fileInfo{Size: st.Size()}
	if ext := filepath.Ext(path); ext == ".sst" || ext == ".blob" {
		return info, nil
	}
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, f); err != nil {
		return fileInfo{}, err
	}
	sum := h.Sum32()
	info.Sum = &sum
	return info, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openDB opens the database of the fold and of unfinished deliveries. corrupt is told of damage that is found while it is read.
func (d *stateDir) openDB(log pebble.Logger, corrupt func(pebble.DataCorruptionInfo)) (*pebble.DB, error) {
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
		EventListener:               &pebble.EventListener{DataCorruption: corrupt},
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

// stored reads one of these keys; "" if it is not there.
func stored(db *pebble.DB, key []byte) (string, error) {
	v, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s of the state database: %w", key, err)
	}
	defer func() { _ = closer.Close() }()
	return string(v), nil
}

// storedPartitions is the number of partitions in the database; 0 if it is not there.
func storedPartitions(db *pebble.DB) (int, error) {
	text, err := stored(db, partitionsKey)
	if err != nil || text == "" {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("stored number of log partitions: %q is none", text)
	}
	return n, nil
}

// storeIdentity puts an identity into the database, which has to agree with the file.
func storeIdentity(db *pebble.DB, id *identity) error {
	batch := db.NewBatch()
	defer func() { _ = batch.Close() }()
	err := errors.Join(
		batch.Set(originKey, []byte(id.Cluster), nil),
		batch.Set(partitionsKey, strconv.AppendInt(nil, int64(id.Partitions), 10), nil),
		batch.Commit(pebble.Sync),
	)
	if err != nil {
		return fmt.Errorf("store backend id: %w", err)
	}
	return nil
}

// complete draws what the identity does not have yet. The first start decides the number of partitions for good: with another one
// entities would stand in other partitions than their state. want is 0 for what suits the machine: each partition has its own
// commits, which cost the same for one event as for a thousand, and its own fold, which is one core's work.
func (id *identity) complete(want int) error {
	if id.Cluster == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		id.Cluster = hex.EncodeToString(b[:])
	}
	if id.Partitions == 0 {
		if id.Partitions = want; want == 0 {
			id.Partitions = min(max(1, runtime.NumCPU()/2), 8)
		}
	}
	if want != 0 && want != id.Partitions {
		return otherPartitions(id.Partitions, want)
	}
	return nil
}

func otherPartitions(made, want int) error {
	return &optionerr.Error{Flag: "event-log-partitions", Err: fmt.Errorf(
		"the event log was made with %d and cannot be read with %d: leave the option out", made, want)}
}
