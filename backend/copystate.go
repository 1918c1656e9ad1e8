package backend

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/state"
)

// This file brings a new member the state that the event log does not have any more: a copy of another member's state
// database. The new member asks for a checkpoint, reads its files piece by piece, and replays the log from there.

const (
	copyQuestion = "state" // the name of the questions
	// copyPiece is how much of a file is read at a time.
	copyPiece = 512 << 10
	// copyIdle is how long a checkpoint is kept for a member that does not ask for more of it.
	copyIdle = time.Minute
	// copyTimeout bounds the making of a checkpoint, and the reading of a piece.
	copyTimeout = 30 * time.Second
	// copyPause is the time between attempts to copy a state.
	copyPause = 2 * time.Second
)

// copyRequest is a question about a checkpoint. Without a token it asks for a new one. Releases only add fields to it and
// to copyList.
type copyRequest struct {
	Token  string `json:"token,omitempty"`
	File   string `json:"file,omitempty"` // "" with a token: the checkpoint is not needed any more
	Offset int64  `json:"offset,omitempty"`
}

// copyList is the answer to a request for a new checkpoint.
type copyList struct {
	Format int        `json:"format,omitempty"` // stateFormat of the member that answers
	Token  string     `json:"token"`
	Files  []copyFile `json:"files"`
}

type copyFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// copies gives other members checkpoints of the state database, one at a time.
type copies struct {
	db  *pebble.DB
	dir string

	mu    sync.Mutex // guards the fields below
	token string     // of the checkpoint that there is; "" for none
	timer *time.Timer
}

// copied is the directory of a checkpoint for another member, or of a copy that is not in use yet.
func (d *stateDir) copied() string { return filepath.Join(d.path, "copy") }

// replaced is where the state database goes that a copy replaces.
func (d *stateDir) replaced() string { return filepath.Join(d.copied(), "replaced") }

// offerCopies lets other members copy the state.
func (b *Backend) offerCopies(s *storage) error {
	c := &copies{db: s.db, dir: s.dir.copied()}
	b.push("copies of the state", c.stop)
	return s.members.Handle(copyQuestion, c.answer)
}

// answer is a cluster.Handler.
func (c *copies) answer(_ context.Context, question []byte) ([]byte, error) {
	var r copyRequest
	if err := json.Unmarshal(question, &r); err != nil {
		return nil, fmt.Errorf("read request for the state: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Token == "":
		return c.open()
	case r.Token != c.token:
		return nil, errors.New("the checkpoint is gone")
	case r.File == "":
		c.drop()
		return nil, nil
	}
	c.timer.Reset(copyIdle)
	return c.read(r.File, r.Offset)
}

// open makes a checkpoint. The caller holds mu.
func (c *copies) open() ([]byte, error) {
	if c.token != "" {
		return nil, errors.New("another member copies the state now")
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return nil, fmt.Errorf("remove old checkpoint: %w", err)
	}
	if err := c.db.Checkpoint(c.dir, pebble.WithFlushedWAL()); err != nil {
		return nil, fmt.Errorf("make checkpoint: %w", errors.Join(err, os.RemoveAll(c.dir)))
	}
	list := copyList{Format: stateFormat}
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		info, statErr := e.Info()
		if err = errors.Join(err, statErr); err != nil {
			break
		}
		if info.Mode().IsRegular() {
			list.Files = append(list.Files, copyFile{e.Name(), info.Size()})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoint: %w", errors.Join(err, os.RemoveAll(c.dir)))
	}
	var token [8]byte
	_, _ = rand.Read(token[:]) // never fails
	c.token = hex.EncodeToString(token[:])
	list.Token = c.token
	of := c.token
	c.timer = time.AfterFunc(copyIdle, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.token == of {
			c.drop()
		}
	})
	return json.Marshal(list)
}

// read returns a piece of a file behind its CRC-32C. The caller holds mu.
func (c *copies) read(name string, offset int64) ([]byte, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("%q is no file of a checkpoint", name)
	}
	f, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	defer func() { _ = f.Close() }()
	piece := make([]byte, crc32.Size+copyPiece)
	n, err := f.ReadAt(piece[crc32.Size:], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	piece = piece[:crc32.Size+n]
	binary.BigEndian.PutUint32(piece, crc32.Checksum(piece[crc32.Size:], castagnoli))
	return piece, nil
}

// drop removes the checkpoint. The caller holds mu.
func (c *copies) drop() {
	c.token = ""
	c.timer.Stop()
	_ = os.RemoveAll(c.dir) // the next one tries again
}

// stop removes a checkpoint that is being copied.
func (c *copies) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" {
		c.drop()
	}
	return nil
}

// catchUp gets a copy of another member's state if the log begins behind what this member has folded.
func (b *Backend) catchUp(ctx context.Context, s *storage) error {
	for {
		missing, err := s.missing(ctx)
		if err != nil || missing == "" {
			return err
		}
		b.say("a copy of another member's state: " + missing)
		copied := &stateDir{path: s.dir.copied()}
		err = b.copyFromPeer(ctx, s, copied)
		if err == nil {
			if err := s.useCopy(b, copied); err != nil {
				return fmt.Errorf("use the copy of another member's state: %w", err)
			}
			continue // the log may have been trimmed in the meantime
		}
		err = errors.Join(err, os.RemoveAll(copied.path))
		if ctx.Err() != nil {
			return fmt.Errorf("copy another member's state: %w", err)
		}
		level := slog.LevelWarn
		if errors.Is(err, errNoneReady) { // all start at the same time
			level = slog.LevelInfo
		}
		b.log.Log(ctx, level, "the state could not be copied from another member, which is tried again",
			"reason", missing, "err", err)
		select {
		case <-time.After(copyPause):
		case <-ctx.Done():
			return fmt.Errorf("copy another member's state: %w", context.Cause(ctx))
		}
	}
}

// missing says which part of the log is gone that this member has not folded, "" if there is none.
func (s *storage) missing(ctx context.Context) (string, error) {
	for p := range s.id.Partitions {
		first, _, err := s.log.Bounds(ctx, p)
		if err != nil {
			return "", err
		}
		next, err := state.StoredPosition(s.db, p)
		if err != nil {
			return "", err
		}
		if first > max(next, 1) {
			return fmt.Sprintf("partition %d of the event log begins at message %d, and %d is the next", p, first, max(next, 1)), nil
		}
	}
	return "", nil
}

var errNoneReady = errors.New("no other member is ready")

// copyFromPeer makes a copy of another member's state database that is ready for use.
func (b *Backend) copyFromPeer(ctx context.Context, s *storage, copied *stateDir) error {
	from := ""
	for _, m := range s.members.Others() {
		if m.Heard && m.Ready {
			from = m.ID
		}
	}
	if from == "" {
		return errNoneReady
	}
	begin := time.Now()
	size, err := fetchState(ctx, s.members, from, copied.state())
	if err != nil {
		return err
	}
	if err := copied.adapt(b, s.id); err != nil {
		return err
	}
	b.log.Info("the state was copied from another member", "member", s.members.NameOf(from), "bytes", size,
		"seconds", time.Since(begin).Seconds())
	return nil
}

// useCopy has a copy take the place of the state database. A start after a kill at any moment finds one of the two: see
// finishCopy.
func (s *storage) useCopy(b *Backend, copied *stateDir) error {
	// The record of files is of the database that goes.
	if err := writeSealed(s.dir.files(), &stopRecord{SignIns: exists(s.dir.signIns())}); err != nil {
		return err
	}
	if err := s.found.close(); err != nil {
		return err
	}
	if err := os.Rename(s.dir.state(), s.dir.replaced()); err != nil {
		return err
	}
	if err := s.dir.finishCopy(); err != nil {
		return err
	}
	db, err := s.dir.openDB(b, nil)
	if err != nil {
		return err
	}
	s.db, s.found.db = db, db
	return errors.Join(os.RemoveAll(copied.path), s.dir.write(false))
}

// adapt makes a copied database that of a member: it gets the identity, and loses the traces and the notifications,
// which are each member's own.
func (d *stateDir) adapt(b *Backend, id *identity) error {
	db, err := d.openDB(b, nil)
	if err != nil {
		return err
	}
	err = errors.Join(
		db.DeleteRange([]byte("t"), []byte("u"), pebble.Sync),
		db.DeleteRange([]byte{notification.Prefix}, []byte{notification.Prefix + 1}, pebble.Sync),
		storeIdentity(db, id), db.Close())
	return errors.Join(err, syncTree(d.path))
}

// finishCopy puts a copy in the place of a state database that was moved away for it. A start calls it too.
func (d *stateDir) finishCopy() error {
	if !exists(d.replaced()) || exists(d.state()) {
		return nil
	}
	if err := os.Rename((&stateDir{path: d.copied()}).state(), d.state()); err != nil {
		return fmt.Errorf("put the copy of the state in its place: %w", err)
	}
	return errors.Join(blocks.SyncDir(d.copied()), blocks.SyncDir(d.path))
}

// fetchState copies a checkpoint of a member into a new directory. It returns its size.
func fetchState(ctx context.Context, m *membership, from, dir string) (size int64, err error) {
	ask := func(r copyRequest) ([]byte, error) {
		question, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, copyTimeout)
		defer cancel()
		return m.Ask(ctx, from, copyQuestion, question)
	}
	answer, err := ask(copyRequest{})
	if err != nil {
		return 0, err
	}
	var list copyList
	if err := json.Unmarshal(answer, &list); err != nil {
		return 0, fmt.Errorf("read list of files: %w", err)
	}
	defer func() { _, _ = ask(copyRequest{Token: list.Token}) }() // otherwise it goes a minute later
	if err := (&identity{Format: list.Format}).readable(); err != nil {
		return 0, err
	}
	for _, f := range list.Files {
		size += f.Size
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return 0, err
	}
	free, err := eventlog.FreeSpace(dir)
	if err != nil {
		return 0, err
	}
	if free < uint64(size) {
		return 0, fmt.Errorf("the copy has %d bytes, and %d are free", size, free)
	}
	for _, f := range list.Files {
		if f.Name != filepath.Base(f.Name) {
			return 0, fmt.Errorf("%q is no name of a file", f.Name)
		}
		if err := fetchFile(dir, list.Token, f, ask); err != nil {
			return 0, fmt.Errorf("copy %s: %w", f.Name, err)
		}
	}
	return size, nil
}

func fetchFile(dir, token string, file copyFile, ask func(copyRequest) ([]byte, error)) (err error) {
	f, err := os.OpenFile(filepath.Join(dir, file.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for offset := int64(0); offset < file.Size; {
		piece, err := ask(copyRequest{Token: token, File: file.Name, Offset: offset})
		if err != nil {
			return err
		}
		if len(piece) <= crc32.Size || crc32.Checksum(piece[crc32.Size:], castagnoli) != binary.BigEndian.Uint32(piece) {
			return fmt.Errorf("a piece at %d arrived damaged", offset)
		}
		if _, err := f.Write(piece[crc32.Size:]); err != nil {
			return err
		}
		offset += int64(len(piece) - crc32.Size)
	}
	return f.Sync()
}
