package agent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// spool is the outbox on disk, so that undelivered events survive the process. It is an append-only file with a record
// for each event and each removal. When most of it is removed events, it is written again.
//
//	file    magic, epoch (8 bytes), records
//	record  checksum of what follows (4), length of the body (4), kind (1), body
//	event   number (8), time of addition in Unix milliseconds (8), length of the check's name (2), name, event
//	others  number (8)
//
// All numbers are big endian. Epoch and number together identify an event to a backend. The epoch survives restarts,
// unless damage makes it doubtful which numbers were used. Keepalives have numbers too but are not stored; so numbers
// are reserved in blocks, and a restart continues after the block.
//
// The operating system writes the file out when it likes, and the spool syncs it every second while events come. A
// killed process loses nothing; a loss of power costs a second.
type spool struct {
	dir  string
	lock *os.File
	file *os.File

	epoch    uint64
	size     int64 // of the file
	live     int64 // of the records of events that are still held
	reserved uint64
	synced   time.Time
	// broken is when writing the file last failed, zero if it can be written. tries counts the failures since the last
	// success.
	broken time.Time
	tries  int
}

const (
	spoolMagic  = "lapwing spool 1\n"
	spoolHeader = len(spoolMagic) + 8
	// recordHead is the size of a record's header.
	recordHead = 9
	// numberBlock is how many numbers are reserved at a time.
	numberBlock = 10_000
	// rewriteAt is how many bytes of obsolete records justify a new file.
	rewriteAt = 1 << 20
	// mendFirst and mendLast bound the pauses between attempts to write a broken file. Each pause is twice the one
	// before.
	mendFirst = 10 * time.Second
	mendLast  = 2 * time.Minute
	// lockWait is how long to try to lock the file.
	lockWait = time.Second
	// maxSpoolRecord bounds a record, so that a damaged length cannot exhaust memory.
	maxSpoolRecord = 64 << 20
)

// The kinds of records. They are stored, so they must never change.
const (
	spoolEvent    = 'e'
	spoolAck      = 'a' // this event and all before it are acknowledged
	spoolDrop     = 'd' // this event is dropped
	spoolReserved = 'r' // numbers up to this one are reserved
)

var errSpoolLocked = errors.New("another agent uses it")

// openSpool opens or creates the spool in dir and returns its entries without their events, which are read when needed.
// damaged is non-nil if some of it was lost, and says why.
func openSpool(dir string) (s *spool, entries []entry, damaged error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, nil, err
	}
	s = &spool{dir: dir}
	if s.lock, err = lockSoon(filepath.Join(dir, "lock")); err != nil {
		return nil, nil, nil, err
	}
	if s.file, err = os.OpenFile(s.path(), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, nil, nil, errors.Join(err, s.lock.Close())
	}
	entries, damaged = s.read()
	if s.epoch == 0 || damaged != nil {
		// Events may have been sent with numbers that are used again, so a new epoch distinguishes them.
		s.epoch = 1 + rand.Uint64N(math.MaxUint64)
	}
	if damaged != nil || s.size == 0 {
		// A full disk may have room again later: the spool is broken until then, and repaired like one that breaks
		// later.
		if err := s.rewrite(entries); err != nil && !errors.Is(err, syscall.ENOSPC) {
			return nil, nil, nil, errors.Join(err, s.close())
		}
	}
	return s, entries, damaged, nil
}

// lockSoon is lockFile for a file whose holder may be about to end: the children of a killed process hold its lock
// until they exec.
func lockSoon(path string) (*os.File, error) {
	for begin := time.Now(); ; {
		f, err := lockFile(path)
		if !errors.Is(err, errSpoolLocked) || time.Since(begin) > lockWait {
			return f, err
		}
		time.Sleep(lockWait / 50)
	}
}

func (s *spool) path() string { return filepath.Join(s.dir, "events") }

// read reads the file up to its end or to the first damage.
func (s *spool) read() (entries []entry, damaged error) {
	info, err := s.file.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	r := bufio.NewReaderSize(s.file, 64<<10)
	header := make([]byte, spoolHeader)
	if _, err := io.ReadFull(r, header); err != nil || string(header[:len(spoolMagic)]) != spoolMagic {
		return nil, errors.New("it does not begin as a spool")
	}
	s.epoch, s.size = binary.BigEndian.Uint64(header[len(spoolMagic):]), int64(spoolHeader)
	var body []byte
	for {
		kind, b, err := readRecord(r, body[:0])
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return entries, fmt.Errorf("behind byte %d: %w", s.size, err)
		}
		body = b
		seq := binary.BigEndian.Uint64(b)
		switch kind {
		case spoolEvent:
			e, err := parseSpooled(b, s.size)
			if err != nil {
				return entries, fmt.Errorf("behind byte %d: %w", s.size, err)
			}
			entries = append(entries, e)
			s.live += e.stored()
			s.reserved = max(s.reserved, seq)
		case spoolAck:
			for len(entries) > 0 && entries[0].seq <= seq {
				s.live -= entries[0].stored()
				entries = entries[1:]
			}
		case spoolDrop:
			for i := range entries {
				if entries[i].seq == seq {
					s.live -= entries[i].stored()
					entries = append(entries[:i:i], entries[i+1:]...)
					break
				}
			}
		case spoolReserved:
			s.reserved = max(s.reserved, seq)
		}
		s.size += int64(recordHead + len(b))
	}
}

// readRecord reads a record and appends its body, of at least 8 bytes, to b. The error is io.EOF at the end.
func readRecord(r io.Reader, b []byte) (kind byte, body []byte, err error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[4:])
	if n < 8 || n > maxSpoolRecord {
		return 0, nil, fmt.Errorf("a record has %d bytes", n)
	}
	if cap(b) < int(n) {
		b = make([]byte, 0, n)
	}
	b = b[:n]
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	if recordSum(head[4:], b) != binary.BigEndian.Uint32(head[:]) {
		return 0, nil, errors.New("a checksum is wrong")
	}
	return head[8], b, nil
}

func recordSum(head, body []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, body)
}

func appendRecord(b []byte, kind byte, body func([]byte) []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, recordHead)...)
	b = body(b)
	head := b[start : start+recordHead]
	binary.BigEndian.PutUint32(head[4:], uint32(len(b)-start-recordHead))
	head[8] = kind
	binary.BigEndian.PutUint32(head, recordSum(head[4:], b[start+recordHead:]))
	return b
}

func appendNumber(b []byte, kind byte, seq uint64) []byte {
	return appendRecord(b, kind, func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, seq) })
}

func appendSpooled(b []byte, e *entry, event []byte) []byte {
	return appendRecord(b, spoolEvent, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint64(b, e.seq)
		b = binary.BigEndian.AppendUint64(b, uint64(e.added))
		b = binary.BigEndian.AppendUint16(b, uint16(len(e.check)))
		b = append(b, e.check...)
		return append(b, event...)
	})
}

// parseSpooled reads the body of an event's record that begins at offset.
func parseSpooled(b []byte, offset int64) (entry, error) {
	if len(b) < 18 || len(b) < 18+int(binary.BigEndian.Uint16(b[16:])) {
		return entry{}, errors.New("an event is cut short")
	}
	name := int(binary.BigEndian.Uint16(b[16:]))
	return entry{
		seq: binary.BigEndian.Uint64(b), added: int64(binary.BigEndian.Uint64(b[8:])), check: string(b[18 : 18+name]),
		size: len(b) - 18 - name, offset: offset, onDisk: true,
	}, nil
}

// stored is the size of an entry's record.
func (e *entry) stored() int64 { return int64(recordHead + 18 + len(e.check) + e.size) }

// put stores an event. An event that cannot be stored stays in memory.
func (s *spool) put(e *entry) error {
	var b []byte
	if e.seq > s.reserved {
		s.reserved = e.seq + numberBlock
		b = appendNumber(b, spoolReserved, s.reserved)
	}
	offset := s.size + int64(len(b))
	if err := s.append(appendSpooled(b, e, e.Event)); err != nil {
		return err
	}
	e.offset, e.onDisk = offset, true
	s.live += e.stored()
	return nil
}

// reserve covers a number that is used without a record.
func (s *spool) reserve(seq uint64) error {
	if seq <= s.reserved {
		return nil
	}
	s.reserved = seq + numberBlock
	return s.append(appendNumber(nil, spoolReserved, s.reserved))
}

// acked and dropped note removed events. entries are the remaining ones.
func (s *spool) acked(seq uint64, gone int64) error {
	s.live -= gone
	return s.append(appendNumber(nil, spoolAck, seq))
}

func (s *spool) dropped(e *entry) error {
	s.live -= e.stored()
	return s.append(appendNumber(nil, spoolDrop, e.seq))
}

func (s *spool) append(b []byte) error {
	if !s.broken.IsZero() {
		return errBroken
	}
	if _, err := s.file.WriteAt(b, s.size); err != nil {
		s.broken = time.Now()
		return err
	}
	s.size += int64(len(b))
	if now := time.Now(); now.Sub(s.synced) > time.Second {
		s.synced = now
		go func(f *os.File) { _ = f.Sync() }(s.file) // a slow disk must not delay the caller
	}
	return nil
}

var errBroken = errors.New("the spool cannot be written")

// event reads an entry's event.
func (s *spool) event(e *entry) ([]byte, error) {
	b := make([]byte, e.size)
	if _, err := s.file.ReadAt(b, e.offset+int64(recordHead+18+len(e.check))); err != nil {
		return nil, fmt.Errorf("read event %d of the spool: %w", e.seq, err)
	}
	return b, nil
}

// wasteful reports whether a new file would be much smaller.
func (s *spool) wasteful() bool { return s.size-s.live > max(rewriteAt, s.live) }

// mendable reports whether it is time to try a broken file again.
func (s *spool) mendable() bool {
	return !s.broken.IsZero() && time.Since(s.broken) > min(mendFirst<<min(s.tries, 10), mendLast)
}

// rewrite writes a new file with the remaining entries, and sets their offsets.
func (s *spool) rewrite(entries []entry) error {
	fresh := spool{dir: s.dir, lock: s.lock, epoch: s.epoch, reserved: s.reserved, size: int64(spoolHeader), synced: time.Now()}
	offsets, err := s.copyTo(&fresh, entries)
	if err == nil {
		// Not every system replaces an open file.
		_ = s.file.Close()
		if err = os.Rename(s.path()+".new", s.path()); err == nil {
			fresh.file, err = os.OpenFile(s.path(), os.O_RDWR, 0o600)
		}
		if err != nil {
			s.file, _ = os.OpenFile(s.path(), os.O_RDWR, 0o600) // operations on a nil file fail
		}
	}
	if err != nil {
		s.broken = time.Now()
		s.tries++
		return errors.Join(err, ignoreMissing(os.Remove(s.path()+".new")))
	}
	for i := range entries {
		if !entries[i].Keepalive {
			entries[i].offset, entries[i].onDisk = offsets[i], true
		}
	}
	*s = fresh
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// copyTo writes the remaining entries to a new file and returns their offsets in it.
func (s *spool) copyTo(fresh *spool, entries []entry) (offsets []int64, err error) {
	f, err := os.OpenFile(s.path()+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 64<<10)
	put := func(b []byte) { _, _ = w.Write(b) } // Flush returns the error
	put(binary.BigEndian.AppendUint64([]byte(spoolMagic), s.epoch))
	b := appendNumber(nil, spoolReserved, s.reserved)
	put(b)
	fresh.size += int64(len(b))
	offsets = make([]int64, len(entries))
	for i := range entries {
		e := &entries[i]
		if e.Keepalive {
			continue
		}
		event := e.Event
		if event == nil {
			if event, err = s.event(e); err != nil {
				return nil, err
			}
		}
		offsets[i] = fresh.size
		b = appendSpooled(b[:0], e, event)
		put(b)
		fresh.size += int64(len(b))
		fresh.live += int64(len(b))
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if fresh.live == 0 {
		return offsets, nil // an empty file needs no sync, and the sender of an event waits
	}
	return offsets, f.Sync()
}

func (s *spool) close() error {
	return errors.Join(s.file.Sync(), s.file.Close(), s.lock.Close())
}
