package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// journal has on disk which coarse slots wait for being computed again, so that a kill does not lose them.
//
// It is a row of files. Shards append the marks of slots to the newest one. The corrector begins a new file before it
// takes all waiting slots; when it has computed them, no file from before is needed. So no file is ever rewritten, and
// all files together hold at most what waits, what is being computed, and what was marked again meanwhile.
//
// A file is a row of frames: the length of a payload, its CRC-32C, both 4 bytes, and the payload, which is a row of
// marks. A mark is the length of a series' name, the name, the step of the archive and the start of the slot in steps,
// all numbers as uvarints. The length is 0 for the same series as in the mark before.
type journal struct {
	dir string

	// syncMu is held while a file is synced or closed, so that shards can append meanwhile. It is taken before mu.
	syncMu  sync.Mutex
	mu      sync.Mutex
	file    *os.File         // guarded by mu: the newest file; nil until its first mark
	created bool             // guarded by mu: file is so new that the directory must be synced too
	dirty   bool             // guarded by mu: file has marks that are not synced
	number  uint64           // guarded by mu: of the newest file
	sizes   map[uint64]int64 // guarded by mu: of all files that exist
	done    uint64           // guarded by mu: files up to this number are needed no more

	strange []string // what openJournal found under the name of a file, and is none
}

const (
	// maxMarks is the payload in bytes above which a shard writes its marks before the group ends.
	maxMarks = 64 << 10
	// maxFrame bounds the payload of a frame: one mark may come on top of maxMarks.
	maxFrame = maxMarks + maxName + 3*binary.MaxVarintLen64
	// maxJournal bounds the bytes of all files.
	maxJournal = 1 << 30
	// maxNumber bounds the numbers of files: far above what is reached, and far below an overflow.
	maxNumber = 1 << 62

	frameHeader = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (j *journal) path(number uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("corrections-%08d.log", number))
}

// openJournal finds the files that an earlier process has left in dir. They stay until the corrector has computed
// what they name.
func openJournal(dir string) (*journal, error) {
	j := &journal{dir: dir, sizes: map[uint64]int64{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the journal of corrections: %w", err)
	}
	for _, e := range entries {
		var number uint64
		if _, err := fmt.Sscanf(e.Name(), "corrections-%d.log", &number); err != nil ||
			filepath.Join(dir, e.Name()) != j.path(number) {
			continue
		}
		if number > maxNumber {
			continue
		}
		j.number = max(j.number, number)
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("list the journal of corrections: %w", err)
		}
		if !info.Mode().IsRegular() {
			j.strange = append(j.strange, j.path(number))
			continue
		}
		j.sizes[number] = info.Size()
	}
	j.number++
	return j, nil
}

// replay calls f for all marks in the files, those of the newest file first: the older ones may have been computed
// already. What is behind a damaged frame of a file is lost: a kill can only cut off the last one. It returns the
// damaged files, and what is no file or cannot be read.
func (j *journal) replay(f func(name string, step, slot int64)) (damaged []string) {
	damaged = j.strange
	numbers := make([]uint64, 0, len(j.sizes))
	for n := range j.sizes {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range slices.Backward(numbers) {
		if j.sizes[n] > maxJournal || readFile(j.path(n), j.sizes[n], f) != nil {
			damaged = append(damaged, j.path(n))
		}
	}
	return damaged
}

// readFile calls f for the marks in a file of a size. plainfile.Read would need twice the memory for a large one.
func readFile(path string, size int64, f func(name string, step, slot int64)) error {
	file, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	b := make([]byte, size)
	if _, err := io.ReadFull(file, b); err != nil {
		return err
	}
	return readMarks(b, f)
}

// appendMark appends a mark to a payload; name is empty for the same series as in the mark before.
func appendMark(b []byte, name string, step, slot int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(name)))
	b = append(b, name...)
	b = binary.AppendUvarint(b, uint64(step))
	return binary.AppendUvarint(b, uint64(slot/step))
}

// readMarks calls f for the marks in the content of a file, up to the first frame that is not whole.
func readMarks(b []byte, f func(name string, step, slot int64)) error {
	for len(b) > 0 {
		if len(b) < frameHeader {
			return io.ErrUnexpectedEOF
		}
		size := binary.LittleEndian.Uint32(b)
		sum := binary.LittleEndian.Uint32(b[4:])
		b = b[frameHeader:]
		if size > maxFrame || int(size) > len(b) {
			return io.ErrUnexpectedEOF
		}
		payload := b[:size]
		if b = b[size:]; crc32.Checksum(payload, castagnoli) != sum {
			return errors.New("a checksum is wrong")
		}
		if err := readPayload(payload, f); err != nil {
			return err
		}
	}
	return nil
}

func readPayload(b []byte, f func(name string, step, slot int64)) error {
	bad := errors.New("a mark is malformed")
	number := func() (uint64, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	name := ""
	for len(b) > 0 {
		length, ok := number()
		if !ok || length > maxName || length > uint64(len(b)) {
			return bad
		}
		if length > 0 {
			name, b = string(b[:length]), b[length:]
		}
		step, ok := number()
		if !ok {
			return bad
		}
		slot, ok := number()
		// Times and steps are far below these bounds, and their product fits.
		if !ok || name == "" || step == 0 || step > 1<<32 || slot > (1<<62)/step {
			return bad
		}
		f(name, int64(step), int64(slot*step))
	}
	return nil
}

var errJournalFull = fmt.Errorf("its files have %d bytes, the most that are allowed", maxJournal)

// append writes a payload to the newest file.
func (j *journal) append(payload []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	sum := int64(len(payload) + frameHeader)
	for _, size := range j.sizes {
		sum += size
	}
	if sum > maxJournal {
		return errJournalFull
	}
	if j.file == nil {
		f, err := os.OpenFile(j.path(j.number), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		j.file, j.created = f, true
		j.sizes[j.number] = 0
	}
	frame := make([]byte, frameHeader, frameHeader+len(payload))
	binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(payload, castagnoli))
	n, err := j.file.Write(append(frame, payload...))
	j.dirty = true
	if err != nil {
		// What follows a torn frame could not be read, so remove it.
		at := j.sizes[j.number]
		_, serr := j.file.Seek(at, io.SeekStart)
		return errors.Join(err, j.file.Truncate(at), serr)
	}
	j.sizes[j.number] += int64(n)
	return nil
}

// rotate begins a new file and returns the number of the one before.
func (j *journal) rotate() (uint64, error) {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	before, f, isNew := j.number, j.file, j.created
	if f == nil {
		j.mu.Unlock()
		return before - 1, nil // the newest file has no marks yet, so all marks are in those before
	}
	j.file, j.created, j.dirty = nil, false, false
	j.number++
	j.mu.Unlock()
	return before, errors.Join(j.syncFile(f, isNew), f.Close())
}

// finished notes that all slots of the files up to a number have been computed. remove removes them.
func (j *journal) finished(number uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = max(j.done, number)
}

// removable returns the number up to which files are needed no more as soon as what has been committed to the tiers
// is synced.
func (j *journal) removable() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.done
}

// sync makes the marks safe against a power cut.
func (j *journal) sync() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	f, isNew := j.unsynced()
	err := j.syncFile(f, isNew)
	if err != nil { // the next sync tries again
		j.mu.Lock()
		j.dirty, j.created = true, j.created || isNew
		j.mu.Unlock()
	}
	return err
}

// unsynced returns the newest file if it has marks that are not synced, and whether it is new in the directory.
func (j *journal) unsynced() (f *os.File, isNew bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dirty {
		f, isNew = j.file, j.created
		j.dirty, j.created = false, false
	}
	return f, isNew
}

func (j *journal) syncFile(f *os.File, isNew bool) error {
	if f == nil {
		return nil
	}
	err := f.Sync()
	if isNew {
		err = errors.Join(err, syncDir(j.dir))
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove removes the files up to a number.
func (j *journal) remove(upTo uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var errs []error
	for number := range j.sizes {
		if number > upTo {
			continue
		}
		if err := os.Remove(j.path(number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		delete(j.sizes, number)
	}
	return errors.Join(errs...)
}

// close closes the newest file, and removes all if none is needed.
func (j *journal) close(needed bool) error {
	number, err := j.rotate()
	if needed || err != nil {
		return err
	}
	return j.remove(number)
}

// openJournal opens the journal and notes what it names as wrong.
func (s *Store) openJournal() error {
	j, err := openJournal(s.o.Dir)
	if err != nil {
		return err
	}
	lost := 0
	var se *Series
	var openErr error
	damaged := j.replay(func(name string, step, slot int64) {
		if se == nil || se.name != name {
			if se, openErr = s.Open(name); openErr != nil {
				se = nil
			}
		}
		if se == nil || !s.shards[se.shard].replayed(se, step, slot) {
			lost++
		}
	})
	s.journal = j // the marks above are in its files already
	for _, path := range damaged {
		s.log.Warn("the end of a journal of corrections cannot be read, coarse values of late points may be wrong",
			"path", path)
	}
	if lost > 0 {
		s.counts.wrongLost.Add(int64(lost))
		s.log.Warn("some coarse values are not computed again after late points", "slots", lost, "err", openErr)
	}
	return nil
}

// replayed notes a slot that was wrong when the last process ended. It reports false if there are too many. A slot of
// an archive that the policy no longer has is passed over.
func (sh *shard) replayed(se *Series, step, slot int64) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var n tally
	for k := 1; k < len(se.levels); k++ {
		if se.plan.Archives[k].Step == step {
			sh.wrongSlot(k, slotKey{se, slot}, &n)
		}
	}
	return n.wrongLost == 0
}

// mark notes for the journal that a slot of level k has become wrong. It is written before the group is committed.
func (sh *shard) mark(k int, key slotKey) {
	if sh.store.journal == nil || key.slot < 0 {
		return // without a journal, the slot has just been read from it
	}
	name := key.series.name
	if len(sh.marks) > 0 && key.series == sh.marked {
		name = ""
	}
	sh.marked = key.series
	sh.marks = appendMark(sh.marks, name, key.series.plan.Archives[k].Step, key.slot)
	if len(sh.marks) >= maxMarks {
		sh.writeMarks()
	}
}

// writeMarks appends the shard's marks to the journal. Without them the slots are still computed, unless the process
// is killed before.
func (sh *shard) writeMarks() {
	if len(sh.marks) == 0 {
		return
	}
	err := sh.store.journal.append(sh.marks)
	sh.marks, sh.marked = sh.marks[:0], nil
	if err != nil {
		sh.store.counts.journalFailed.Add(1)
		sh.store.rare.Error("cannot write the journal of corrections, a crash would lose some", "journal", "err",
			rarelog.Short(err.Error()))
	}
}
