// Package blocks checks and repairs the files of the broker's streams while no broker has them open. Package backend
// calls Check on every start before the broker reads the files; the repair command calls Repair.
//
// The broker trusts its files. It cuts a block at the first damaged record without a word, takes a stream whose
// description is damaged for a new one, and may allocate all memory for a damaged number. Check therefore reads every
// record first. Tidy removes files that can be made again and writes that were never acknowledged. Data that is lost
// waits for Repair, which an operator runs: it sets the damaged file aside and writes one with the sound records.
//
// A Mark beside each open stream says up to where writes were acknowledged. With it Check distinguishes a missing end
// from a write that was under way. What the messages mean is up to the streams' owners.
package blocks

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/highwayhash"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

// Stream describes a stream for code that reads its files without the broker.
type Stream struct {
	// Name is the stream's, and Subject what the subjects of its messages begin with.
	Name, Subject string
	// Valid checks a message whose subject is Subject followed by key. Without it the subject must be Subject.
	Valid func(key, headers, message []byte) error
	// Dense says that messages leave the stream only at its beginning, so that a missing number is a loss.
	Dense bool
	// MaxAge and MaxBytes are the limits by which the broker itself removes the oldest messages; 0 for no limit.
	MaxAge   time.Duration
	MaxBytes int64
	// Keyed says that each subject keeps its newest message. Live reports whether that holds a value.
	Keyed bool
	Live  func(headers []byte) bool
}

// Range is a range of sequence numbers, both ends included.
type Range struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Severity says what a finding calls for.
type Severity int

// The severities.
const (
	Derived    Severity = iota // can be made again from the rest: nothing is lost
	Unfinished                 // a write that was under way and was not acknowledged
	Lost                       // acknowledged data is gone
	joined                     // part of another finding
)

// Finding is one thing that is wrong with a stream.
type Finding struct {
	Severity Severity
	Stream   string
	File     string // path
	What     string // what is wrong, and where
	Missing  Range  // Lost: the sequence numbers that are gone; zero if they are not known
	Count    uint64 // Lost: messages or definitions at most
	Bytes    int64  // that hold nothing sound
	Keys     []string

	cut         int    // Unfinished: where the sound part of the file ends
	after, next uint64 // sequence numbers around a hole
}

// Report is the result of Check.
type Report struct {
	Stream      string
	Bytes       int64
	Messages    uint64
	First, Last uint64 // sequence numbers; Last counts removed messages too
	FirstTime   int64
	Live        uint64 // Keyed: subjects that hold something
	// Metadata is what the stream's description has of its owner; nil if it has none or cannot be read.
	Metadata map[string]string
	Findings []Finding
	blocks   []block
	dir      string
	hadFiles bool
}

// Lost reports whether acknowledged data is gone.
func (r *Report) Lost() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Lost })
}

// Mark is the mark of a stream in this state.
func (r *Report) Mark() Mark {
	m := Mark{Last: r.Last, First: r.First, FirstTime: r.FirstTime, Live: r.Live}
	if r.Messages == 0 {
		m.First, m.FirstTime = r.Last+1, time.Now().UnixNano()
	}
	return m
}

// block is the content of one file.
type block struct {
	path    string
	index   int
	size    int64
	first   uint64 // of the messages, removed ones included; 0 if there are none
	last    uint64
	newest  uint64 // like last, and of the removals
	time    int64  // of the first message
	count   uint64
	holes   []hole
	missing []Range
	keys    []string // found in the holes
	entries []entry
	tombs   []uint64
	bad     string // why it cannot be read
	err     error
}

// entry is a message of a stream with keys.
type entry struct {
	seq  uint64
	key  string
	live bool
}

const (
	messageDir = "msgs"
	stagingDir = "__new_msgs__"
	blockEnd   = ".blk"
	indexFile  = "index.db"
	metaFile   = "meta.inf"
	sumFile    = "meta.sum"
	// maxBlock is far more than a block has: 8 MiB and the message that did not fit any more.
	maxBlock = 256 << 20
	// maxIndex and maxMeta bound the index and the description.
	maxIndex = 256 << 20
	maxMeta  = 1 << 20
)

// StreamDir is where the broker in dir keeps a stream.
func StreamDir(dir, name string) string {
	return filepath.Join(dir, "jetstream", "$G", "streams", name)
}

// IndexFile is where the broker in dir keeps the index of a stream.
func IndexFile(dir, name string) string {
	return filepath.Join(StreamDir(dir, name), messageDir, indexFile)
}

// MetaFile is where the broker in dir keeps the description of a stream.
func MetaFile(dir, name string) string { return filepath.Join(StreamDir(dir, name), metaFile) }

// Check reads all of a stream. known says that the stream existed before; accepted are losses that a repair accepted.
func Check(dir string, s Stream, known bool, mark Mark, accepted []Range) (*Report, error) {
	r := &Report{Stream: s.Name, dir: StreamDir(dir, s.Name)}
	if _, err := os.Stat(r.dir); errors.Is(err, fs.ErrNotExist) {
		if known || mark.Last > 0 || mark.Live > 0 {
			r.lost(r.dir, "the whole stream is missing", Range{max(mark.First, 1), mark.Last}, max(mark.Live, span(mark)), 0)
		}
		return r, nil
	}
	r.hadFiles = true
	if err := r.checkMeta(s); err != nil {
		return nil, err
	}
	if err := r.readBlocks(s); err != nil {
		return nil, err
	}
	if err := r.checkIndex(s); err != nil {
		return nil, err
	}
	r.judge(s, mark, accepted)
	return r, nil
}

func span(m Mark) uint64 {
	if m.Last == 0 {
		return 0
	}
	return m.Last - max(m.First, 1) + 1
}

func (r *Report) add(f Finding) {
	f.Stream = r.Stream
	r.Findings = append(r.Findings, f)
}

func (r *Report) lost(file, what string, missing Range, count uint64, bytes int64) {
	r.add(Finding{Severity: Lost, File: file, What: what, Missing: missing, Count: count, Bytes: bytes})
}

// checkMeta checks the stream's description. The backend writes it again if it is missing.
func (r *Report) checkMeta(s Stream) error {
	path := filepath.Join(r.dir, metaFile)
	text, err := readSmall(path, maxMeta)
	if err != nil {
		return fmt.Errorf("read description of stream %s: %w", s.Name, err)
	}
	sum, err := readSmall(filepath.Join(r.dir, sumFile), maxMeta)
	if err != nil {
		return fmt.Errorf("read description of stream %s: %w", s.Name, err)
	}
	key := sha256.Sum256([]byte(s.Name))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return err
	}
	_, _ = h.Write(text)
	switch want := hex.EncodeToString(h.Sum(nil)); {
	case len(text) == 0 && len(sum) == 0 && !exists(path):
		r.add(Finding{Severity: Derived, File: path, What: "the description of the stream is missing"})
	case want != string(sum):
		r.add(Finding{Severity: Derived, File: path, What: "the description of the stream fails its checksum"})
	default:
		var described struct {
			Metadata map[string]string `json:"metadata"`
		}
		if err := json.Unmarshal(text, &described); err != nil {
			return fmt.Errorf("read description of stream %s: %w", s.Name, err)
		}
		r.Metadata = described.Metadata
	}
	return nil
}

// readSmall reads a whole file. A missing file, or one that is not a plain file, reads as empty.
func readSmall(path string, most int64) ([]byte, error) {
	b, err := plainfile.Read(path, most)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, plainfile.ErrIrregular) {
		return nil, nil
	}
	return b, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// checkIndex checks the index. The broker makes it again from the blocks if it is missing.
func (r *Report) checkIndex(s Stream) error {
	path := filepath.Join(r.messages(), indexFile)
	if !exists(path) {
		return nil
	}
	text, err := readSmall(path, maxIndex)
	if err != nil {
		return fmt.Errorf("read index of stream %s: %w", s.Name, err)
	}
	key := sha256.Sum256([]byte(s.Name))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return err
	}
	n := max(0, len(text)-sumLen)
	_, _ = h.Write(text[:n])
	if n == 0 || !bytes.Equal(h.Sum(nil), text[n:]) {
		r.add(Finding{Severity: Derived, File: path, What: "the index of the stream fails its checksum"})
	}
	return nil
}

// messages is the directory of the blocks. A purge that was interrupted has its result in another directory.
func (r *Report) messages() string {
	staged := filepath.Join(r.dir, stagingDir)
	if found, _ := filepath.Glob(filepath.Join(staged, "*"+blockEnd)); len(found) > 0 {
		return staged
	}
	return filepath.Join(r.dir, messageDir)
}

// readBlocks reads every block, several at a time.
func (r *Report) readBlocks(s Stream) error {
	names, err := os.ReadDir(r.messages())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read stream %s: %w", s.Name, err)
	}
	for _, n := range names {
		number, ok := strings.CutSuffix(n.Name(), blockEnd)
		index, err := strconv.Atoi(number)
		if ok && err == nil {
			r.blocks = append(r.blocks, block{path: filepath.Join(r.messages(), n.Name()), index: index})
		}
	}
	slices.SortFunc(r.blocks, func(a, b block) int { return a.index - b.index })
	var reading sync.WaitGroup
	next := make(chan *block)
	for range min(runtime.GOMAXPROCS(0), 4) {
		reading.Go(func() {
			rd, buf := newReader(s), []byte(nil)
			for b := range next {
				buf, b.err = b.read(rd, buf)
			}
		})
	}
	for i := range r.blocks {
		next <- &r.blocks[i]
	}
	close(next)
	reading.Wait()
	for i := range r.blocks {
		if err := r.blocks[i].err; err != nil {
			return fmt.Errorf("read stream %s: %w", s.Name, err)
		}
	}
	return nil
}

// load reads at most maxBlock bytes of a file into buf, grows buf if needed, and returns the file's size.
func load(path string, buf []byte) ([]byte, int64, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return buf, 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return buf, 0, err
	}
	n := min(info.Size(), maxBlock)
	buf = slices.Grow(buf[:0], int(n))[:n]
	if _, err := f.ReadAt(buf, 0); err != nil {
		return buf, 0, fmt.Errorf("read %s: %w", path, err)
	}
	return buf, info.Size(), nil
}

func (b *block) read(rd *reader, buf []byte) ([]byte, error) {
	var err error
	buf, b.size, err = load(b.path, buf)
	if errors.Is(err, plainfile.ErrIrregular) {
		b.bad = "where messages should be there is no plain file"
		return buf, nil
	}
	if err != nil {
		return buf, err
	}
	b.holes, err = rd.scan(b.index, buf, 0, func(r *record) {
		b.newest = max(b.newest, r.seq)
		if r.tomb {
			b.tombs = append(b.tombs, r.seq)
			return
		}
		if r.seq == 0 {
			return
		}
		if b.first == 0 {
			b.first, b.time = r.seq, r.time
		} else if r.seq > b.last+1 {
			b.missing = append(b.missing, Range{b.last + 1, r.seq - 1})
		}
		b.last = max(b.last, r.seq)
		if r.erased {
			return
		}
		b.count++
		if rd.stream.Keyed {
			b.entries = append(b.entries, entry{r.seq, string(r.subject[len(rd.subj):]), rd.stream.Live(r.headers)})
		}
	})
	if n := int64(len(buf)); err == nil && b.size > n {
		b.holes = append(b.holes, hole{from: int(n), to: int(b.size), after: b.last})
	}
	if rd.stream.Keyed {
		for _, h := range b.holes {
			b.keys = append(b.keys, keysIn(buf[h.from:min(h.to, len(buf))], rd.subj)...)
		}
	}
	return buf, err
}

// keysIn finds the keys that follow the stream's subject in a damaged part of a block.
func keysIn(b, subject []byte) (keys []string) {
	for at := 0; ; {
		found := bytes.Index(b[at:], subject)
		if found < 0 {
			return keys
		}
		begin := at + found
		end := begin + len(subject)
		at = end
		for end < len(b) && inKey(b[end]) {
			end++
		}
		// The record says how long its subject is, unless that is what is damaged.
		if begin >= 2 {
			if n := begin + int(binary.LittleEndian.Uint16(b[begin-2:])); n > at && n < end {
				end = n
			}
		}
		if key := string(b[at:end]); key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
}

func inKey(c byte) bool {
	return c == '.' || c == '=' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// judge derives the losses from the blocks' content.
func (r *Report) judge(s Stream, mark Mark, accepted []Range) {
	var firstSeen, last uint64
	for i := range r.blocks {
		b := &r.blocks[i]
		if n := len(b.holes); n > 0 && b.holes[0].after == 0 {
			b.holes[0].after = last
		}
		r.Bytes += b.size
		r.Messages += b.count
		r.Last = max(r.Last, b.newest)
		if b.first == 0 {
			continue
		}
		if firstSeen == 0 {
			firstSeen, r.FirstTime = b.first, b.time
		} else if s.Dense && b.first > last+1 {
			r.gap(b.path, Range{last + 1, b.first - 1}, accepted)
		}
		if s.Dense {
			for _, m := range b.missing {
				r.gap(b.path, m, accepted)
			}
		}
		last = max(last, b.last)
	}
	r.First = firstSeen
	if s.Keyed {
		r.countLive()
	}
	for i := range r.blocks {
		r.judgeHoles(&r.blocks[i], i == len(r.blocks)-1, mark)
	}
	switch {
	case r.Last < mark.Last:
		r.lost(r.messages(), "the end of the stream is missing", Range{r.Last + 1, mark.Last}, mark.Last-r.Last, 0)
	case s.Keyed && mark.Live > r.Live && mark.Live-r.Live > r.Last-mark.Last:
		if !r.Lost() {
			r.lost(r.messages(), "definitions are missing, most likely with a file", Range{}, mark.Live-r.Live, 0)
		}
	case s.Dense && mark.First > 0 && firstSeen > mark.First && !r.expired(s, mark):
		r.gap(r.messages(), Range{mark.First, firstSeen - 1}, accepted)
	}
	r.joinHoles()
}

// joinHoles makes one finding of a damaged part and the messages that it lost.
func (r *Report) joinHoles() {
	for i := range r.Findings {
		h := &r.Findings[i]
		if h.Severity != Lost || h.Bytes == 0 {
			continue
		}
		for j := range r.Findings {
			g := &r.Findings[j]
			if g.Bytes == 0 && g.Missing.To > 0 && (g.Missing.From == h.after+1 || g.Missing.To+1 == h.next) {
				h.Missing, h.Count, g.Severity = g.Missing, g.Count, joined
			}
		}
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Severity == joined })
}

// expired reports whether the broker may have removed the oldest messages by itself.
func (r *Report) expired(s Stream, mark Mark) bool {
	return s.MaxAge > 0 && time.Since(time.Unix(0, mark.FirstTime)) > s.MaxAge || s.MaxBytes > 0 && r.Bytes > s.MaxBytes/2
}

// gap adds the parts of a range that are not accepted losses.
func (r *Report) gap(file string, missing Range, accepted []Range) {
	if Covered(missing, accepted) {
		return
	}
	r.lost(file, "messages are missing", missing, missing.To-missing.From+1, 0)
}

// Covered reports whether the ranges in by contain each number of r.
func Covered(r Range, by []Range) bool {
	for from := r.From; from <= r.To; {
		i := slices.IndexFunc(by, func(b Range) bool { return b.From <= from && from <= b.To })
		if i < 0 {
			return false
		}
		from = by[i].To + 1
	}
	return true
}

func (r *Report) judgeHoles(b *block, newest bool, mark Mark) {
	if b.bad != "" {
		r.lost(b.path, b.bad, Range{}, 1, 0)
	}
	for i, h := range b.holes {
		f := Finding{
			Severity: Lost, File: b.path, Bytes: int64(h.to - h.from), Count: 1, Keys: b.keys, cut: h.from, after: h.after, next: h.next,
			What: fmt.Sprintf("the %d bytes from %d on hold no sound record", h.to-h.from, h.from),
		}
		atEnd := newest && i == len(b.holes)-1 && int64(h.to) == b.size
		if atEnd && r.Last >= mark.Last {
			f.Severity, f.Count, f.Keys = Unfinished, 0, nil
			f.What = fmt.Sprintf("the last %d bytes are a write that was not finished", h.to-h.from)
		}
		r.add(f)
	}
}

// countLive counts the subjects whose newest message holds a value.
func (r *Report) countLive() {
	removed := map[uint64]struct{}{}
	for i := range r.blocks {
		for _, seq := range r.blocks[i].tombs {
			removed[seq] = struct{}{}
		}
	}
	newest := map[string]entry{}
	for i := range r.blocks {
		for _, e := range r.blocks[i].entries {
			if _, gone := removed[e.seq]; !gone && e.seq > newest[e.key].seq {
				newest[e.key] = e
			}
		}
		r.blocks[i].entries, r.blocks[i].tombs = nil, nil
	}
	r.Live = 0
	for _, e := range newest {
		if e.live {
			r.Live++
		}
	}
}
