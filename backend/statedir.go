package backend

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

// stateDir is the directory with all that a backend keeps, held by one process at a time.
type stateDir struct {
	path string
	lock interface{ Close() error }
}

// cacheName is the directory of what can be fetched again.
const cacheName = "cache"

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
func (d *stateDir) alone() string    { return filepath.Join(d.path, "broker-alone") }
func (d *stateDir) marks() string    { return filepath.Join(d.streams(), "marks") }
func (d *stateDir) state() string    { return filepath.Join(d.path, "state") }
func (d *stateDir) identity() string { return filepath.Join(d.path, "identity") }
func (d *stateDir) files() string    { return filepath.Join(d.path, "files") }
func (d *stateDir) signIns() string  { return filepath.Join(d.path, "sign-ins") }
func (d *stateDir) damage() string   { return filepath.Join(d.path, "damage") }
func (d *stateDir) damaged() string  { return filepath.Join(d.path, "damaged") }
func (d *stateDir) cache() string    { return filepath.Join(d.path, cacheName) }
func (d *stateDir) close() error     { return d.lock.Close() }

// streams is where the streams of a backend that is alone are, and of one that brings them into a cluster.
func (d *stateDir) streams() string {
	if exists(d.alone()) {
		return d.alone()
	}
	return d.broker()
}

// signs are what a backend leaves in its state directory, beside the lock. Any of them shows that the directory was used.
func (d *stateDir) signs() []string {
	var found []string
	for _, path := range [...]string{
		d.identity(), d.broker(), d.alone(), d.state(), d.files(), d.signIns(), d.damage(), d.damaged(), d.cache(),
	} {
		if exists(path) {
			found = append(found, filepath.Base(path))
		}
	}
	return found
}

// aside is a new name for the directory of what is set aside now.
func (d *stateDir) aside() string {
	return filepath.Join(d.damaged(), time.Now().UTC().Format("20060102T150405.000Z"))
}

// identity is what a backend was made as. It tells a store that is lost from one that never was. The state database has a copy.
type identity struct {
	// Format is the newest stateFormat of the releases that have used the directory.
	Format int `json:"format,omitempty"`
	// Cluster is the backend's lasting id, and Partitions how many the event log has. A member of a cluster learns that
	// number from the others.
	Cluster    string `json:"cluster"`
	Partitions int    `json:"partitions"`
	// Member is what the broker calls this member of a cluster: its name and its id. "" is a backend that is alone.
	Member string `json:"member,omitempty"`
	// NATS is the prefix of the streams on NATS servers that are run beside lapwing. "" is a server of its own.
	NATS string `json:"nats,omitempty"`
	// Brings is a random id while the member is about to bring the data of a backend that was alone into the cluster.
	Brings string `json:"brings,omitempty"`
	// Initialised is when the administrator and the built-in definitions were made. They are not made twice, unless an operator
	// said so: Reseed.
	Initialised time.Time `json:"initialised"`
	Reseed      bool      `json:"reseed,omitempty"`
	// Seeded is when the init command made them in a directory that no backend had used.
	Seeded time.Time `json:"seeded,omitzero"`
	// Batches is where the newest start began to number its batches of the event log. The next one begins far above it.
	// The log itself cannot say which numbers are used: the newest batch of a process that was killed may come into it
	// only after the next process has looked.
	Batches uint64 `json:"batches,omitempty"`
	// Unmarked says that the streams are of an earlier release and have no marks yet.
	Unmarked bool `json:"unmarked,omitempty"`
	// Lost are the messages, by stream, whose loss an operator accepted.
	Lost map[string][]blocks.Range `json:"lost,omitempty"`
	// Quiet are, by partition, the messages up to which a replay sends nothing: they were handled before their state was lost.
	Quiet   []uint64 `json:"quiet,omitempty"`
	Repairs []repair `json:"repairs,omitempty"`
}

// stateFormat counts the formats of the state directory: it goes up when a release writes something there that the
// release before it cannot read. 0 are the releases before it was written.
const stateFormat = 1

// readable returns an error if a newer release has written the directory in a way that this one does not know.
func (id *identity) readable() error {
	if id.Format > stateFormat {
		return &fields.NewerError{What: "format of the state directory", Got: uint64(id.Format), Known: stateFormat}
	}
	return nil
}

// repair is one time that an operator accepted losses.
type repair struct {
	Time  time.Time `json:"time"`
	Aside string    `json:"aside"`
	Lost  []string  `json:"lost"`
}

// damageNote is left by a backend that found its database damaged while it ran.
type damageNote struct {
	Time time.Time `json:"time"`
	File string    `json:"file"`
	What string    `json:"what"`
}

// stopRecord says how the state directory was left: in full after a clean stop.
type stopRecord struct {
	// Clean says that the last backend was stopped.
	Clean bool `json:"clean"`
	// Files are the state database's. While it is open only its options stay as they are.
	Files map[string]fileInfo `json:"files"`
	// Streams are the broker's streams after a clean stop.
	Streams map[string]streamInfo `json:"streams,omitempty"`
	// SignIns says that the file of remembered sign-ins was there.
	SignIns bool `json:"sign_ins,omitempty"`
}

// fileInfo describes a file. Sum is of those whose own checksums do not tell a damaged end from an unfinished one.
type fileInfo struct {
	Size int64   `json:"size"`
	Sum  *uint32 `json:"sum,omitempty"`
}

// streamInfo describes a stream: its mark, and which files the broker had written that it writes anew if they are not there.
type streamInfo struct {
	Mark      blocks.Mark `json:"mark"`
	Indexed   bool        `json:"indexed"`
	Described bool        `json:"described"`
}

// write notes how the state directory is left.
func (d *stateDir) write(clean bool) error {
	rec := stopRecord{Clean: clean, Files: map[string]fileInfo{}, SignIns: exists(d.signIns())}
	if err := d.recordDatabase(&rec); err != nil {
		return fmt.Errorf("record files of the state database: %w", err)
	}
	if clean {
		if err := d.recordStreams(&rec); err != nil {
			return fmt.Errorf("record the streams: %w", err)
		}
	}
	return writeSealed(d.files(), &rec)
}

func (d *stateDir) recordDatabase(rec *stopRecord) error {
	entries, err := os.ReadDir(d.state())
	if err != nil {
		return err
	}
	newest := newestOptions(entries)
	for _, e := range entries {
		if name := e.Name(); name != "LOCK" && (rec.Clean || name == newest) {
			info, err := describe(filepath.Join(d.state(), name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // while it is open, the database removes files that it does not use any more
			}
			if err != nil {
				return err
			}
			rec.Files[name] = info
		}
	}
	return nil
}

// newestOptions is the name of the database's newest file of options, "" if there is none. It removes older ones soon after it is
// opened, so they must not be missed.
func newestOptions(entries []os.DirEntry) (newest string) {
	highest := -1
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), optionsFile)
		if n, err := strconv.Atoi(number); ok && err == nil && n > highest {
			newest, highest = e.Name(), n
		}
	}
	return newest
}

func (d *stateDir) recordStreams(rec *stopRecord) error {
	dir := d.streams()
	names, err := blocks.Streams(dir)
	if err != nil {
		return err
	}
	rec.Streams = map[string]streamInfo{}
	for _, name := range names {
		mark, found, err := blocks.ReadMark(dir, name)
		if err != nil {
			return err
		}
		if found {
			rec.Streams[name] = streamInfo{
				Mark: mark, Indexed: exists(blocks.IndexFile(dir, name)), Described: exists(blocks.MetaFile(dir, name)),
			}
		}
	}
	return nil
}

// describe sums up a file. Tables and values have checksums of their own, which are looked at when they are read.
func describe(path string) (fileInfo, error) {
	f, err := plainfile.Open(path)
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

// openDB opens the database of the fold and of unfinished deliveries. The backend's corrupt is told of damage that is found
// while the database is read. With view the database is opened for reading alone, as the view shows it.
func (d *stateDir) openDB(b *Backend, view *databaseView) (*pebble.DB, error) {
	cache := pebble.NewCache(64 << 20)
	defer cache.Unref()
	// At full load each pair is written again every half minute, so most of what a compaction reads is replaced already. In small
	// steps, which read the rest again and again, compactions were a seventh of the CPU of an event. Three memtables are on the
	// heap: one that is filled, one that is flushed, and a spare.
	opts := &pebble.Options{
		Cache:                       cache,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       12,
		LBaseMaxBytes:               1 << 30,
		L0StopWritesThreshold:       36,
		Logger:                      dbLog{b.log.With("component", "pebble")},
		EventListener:               &pebble.EventListener{DataCorruption: b.corrupt},
		FS:                          &sparingFS{FS: vfs.Default, reserve: &b.reserve},
	}
	if view != nil {
		opts.ReadOnly, opts.FS = true, view
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
	identityKey   = []byte("m/identity")
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

// storedIdentity is the database's copy of the identity; found is false if there is none.
func storedIdentity(db *pebble.DB) (id identity, found bool, err error) {
	text, err := stored(db, identityKey)
	if err != nil || text == "" {
		return id, false, err
	}
	if err := json.Unmarshal([]byte(text), &id); err != nil {
		return id, false, fmt.Errorf("read %s of the state database: %w", identityKey, err)
	}
	return id, true, nil
}

// storeIdentity puts a copy of the identity into the database. The file is written after it, so that the copy never knows less.
func storeIdentity(db *pebble.DB, id *identity) error {
	text, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("store backend id: %w", err)
	}
	batch := db.NewBatch()
	defer func() { _ = batch.Close() }()
	err = errors.Join(batch.Set(identityKey, text, nil), batch.Set(originKey, []byte(id.Cluster), nil))
	if id.Partitions > 0 {
		err = errors.Join(err, batch.Set(partitionsKey, strconv.AppendInt(nil, int64(id.Partitions), 10), nil))
	}
	if err := errors.Join(err, batch.Commit(pebble.Sync)); err != nil {
		return fmt.Errorf("store backend id: %w", err)
	}
	return nil
}

// complete draws what the identity does not have yet. The first start decides the number of partitions for good: with another one
// entities would stand in other partitions than their state. want is 0 for the number that it has, or that suits the machine.
// A member of a cluster learns the number when it opens the event log.
func (id *identity) complete(want int, c *Cluster) error {
	if err := id.completeNATS(c); err != nil {
		return err
	}
	if id.Cluster == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		id.Cluster = hex.EncodeToString(b[:])
	}
	if c.on() && id.Member == "" && !id.used() {
		id.Member = id.memberName(c)
	}
	if id.Partitions == 0 && id.Member == "" {
		id.Partitions = cmp.Or(want, eventlog.SuitablePartitions())
	}
	if want != 0 && id.Partitions != 0 && want != id.Partitions {
		return otherPartitions(id.Partitions, want)
	}
	return nil
}

// used reports whether there is anything that a start must not make anew.
func (id *identity) used() bool { return !id.Initialised.IsZero() || !id.Seeded.IsZero() }

// memberName is what the broker calls a member.
func (id *identity) memberName(c *Cluster) string { return c.Name + "-" + id.Cluster[:8] }

func otherPartitions(made, want int) error {
	return &optionerr.Error{Flag: "event-log-partitions", Err: fmt.Errorf(
		"the event log was made with %d and cannot be read with %d: leave the option out", made, want)}
}
