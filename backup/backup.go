// Package backup is the file of a backup: its writer, its reader and its checks. Package backend writes one from a
// running backend and restores one; the commands backup and backup verify check one on its way and on the disk.
//
// A file begins with a line that names the format. Chunks follow, each with its own checksum:
//
//	kind u8 · flags u8 · raw length u32 · length u32 · CRC-32C u32 · content
//
// Integers are little endian. The checksum covers the chunk's number, its header and its content, so that no chunk can
// be damaged, missing or in another place. The first chunk is the manifest. Then come sections: a chunk that says what
// the section has, and the chunks of its data. The last chunk is the trailer, with the SHA-256 of all bytes before it:
// a file without it was cut.
//
// The reader promises to name the place of what is wrong, and to need no more memory than the largest chunk and the
// keys of the definitions. What the parts mean is left to their owners.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Errors of a backend that makes no backup now.
var (
	ErrBusy   = errors.New("another backup of this backend is under way")
	ErrNoRoom = errors.New("there is not enough space on the disk")
)

// version is the format that a Writer writes. A Reader reads all versions up to it.
const version = 1

const magic = "lapwing backup "

// The kinds of chunks.
const (
	chunkManifest = 'M'
	chunkSection  = 'S'
	chunkData     = 'D'
	chunkTrailer  = 'T'
	chunkFailure  = 'F' // why the backup was given up
)

const (
	flagZstd   = 1
	headerLen  = 1 + 1 + 4 + 4 + 4
	gather     = 256 << 10 // of data in a chunk, unless one message has more
	maxChunk   = 32 << 20  // of data in a chunk; the broker's messages have 8 MiB at most
	maxSection = 1 << 20   // sections in a file
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The parts of a backup.
const (
	// PartLog has the messages of a partition of the event log that the database has not folded, or not all of them.
	PartLog = "event log"
	// PartDefinitions has the bucket of definitions, as changes in their order: the newest of a key counts.
	PartDefinitions = "definitions"
	PartAudit       = "audit log"
	// PartDatabase has one file of the state database.
	PartDatabase = "state database"
)

// Manifest says where a backup is from.
type Manifest struct {
	Time    time.Time `json:"time"`
	Lapwing string    `json:"lapwing"` // version of the backend
	Backend string    `json:"backend"` // id of the backend
	Host    string    `json:"host,omitempty"`
	// Log has, for each partition, which messages the backup has. A restored backend has folded all of them, and none
	// behind them.
	Log []Range `json:"log"`
	// Identity is the document with which package backend recognises a state directory.
	Identity json.RawMessage `json:"identity"`
	// DatabaseBytes is the size of the state database, and Entities and Events are what it has.
	DatabaseBytes int64 `json:"database_bytes"`
	Entities      int   `json:"entities"`
	Events        int   `json:"events"`
}

// Range is a range of message numbers. It is empty if Last is First - 1.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Section begins a part of a backup.
type Section struct {
	Part      string `json:"part"`
	Partition int    `json:"partition,omitempty"` // PartLog
	Name      string `json:"name,omitempty"`      // PartDatabase: of the file
	Size      int64  `json:"size,omitempty"`      // PartDatabase: of the file, in bytes
}

func (s *Section) String() string {
	switch s.Part {
	case PartLog:
		return fmt.Sprintf("%s partition %d", s.Part, s.Partition)
	case PartDatabase:
		return fmt.Sprintf("%s file %q", s.Part, s.Name)
	}
	return s.Part
}

// Message is a message of a stream.
type Message struct {
	Sequence uint64
	Time     int64  // when it was written, in Unix nanoseconds
	Key      string // PartDefinitions: kind.namespace.name, as package config writes it
	Deleted  bool   // PartDefinitions: the key has no value any more
	Data     []byte
}

const flagDeleted = 1

// trailer ends a file.
type trailer struct {
	Sections int `json:"sections"`
	// Bytes is the size of all data before it was compressed.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}
