package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Finding is one thing that is wrong in a state directory.
type Finding struct {
	// Lost says that acknowledged data is gone, so that the backend does not start before an operator accepts it. All else is
	// made anew or read again.
	Lost bool
	// Part is what is concerned: "definitions", "state database", …
	Part, File string
	// What says what is wrong and where, and Loss what is gone with it.
	What, Loss string
}

func (f Finding) String() string {
	text := f.Part + ": " + f.What
	if f.Loss != "" {
		text += "; lost: " + f.Loss
	}
	return text + " (" + f.File + ")"
}

// StreamSummary is how much one stream holds.
type StreamSummary struct {
	Part            string
	Messages, First uint64
	Last            uint64
	Bytes           int64
}

// Survey is how a state directory stands. The start, verify and repair all judge by it. A survey changes nothing.
type Survey struct {
	Dir      string
	New      bool // no backend has used it
	Unclean  bool // the last backend did not stop cleanly
	Findings []Finding
	Streams  []StreamSummary
	Took     time.Duration
	// CopiesLeftOut says that the streams were not read, because they are a member's copies.
	CopiesLeftOut bool

	dir          *stateDir
	id           identity
	identityGone string // why the file of the identity cannot be read, or ""
	earlier      bool   // the directory is of a release that had neither identity nor marks
	rec          stopRecord
	recordGone   string // why the record of files cannot be read, or ""
	streams      []stream
	unfinished   int64         // bytes of writes that were under way
	stray        []string      // paths of what is no plain file, to be set aside
	view         *databaseView // what of the database is sound
	badWrites    map[string]string
	badTables    []badFile
	writesCut    bool // its newest writes are not all there
	dbLost       bool // it has to be made anew
	db           *pebble.DB
	writable     bool     // the database is open for writing
	positions    []uint64 // by partition; only of a sound database
}

// Unused is an error if no backend has used the directory: verify and repair must not call a wrong path sound.
func (s *Survey) Unused() error {
	if s.New {
		return fmt.Errorf("no backend has used %s: is it the right directory?", s.Dir)
	}
	return nil
}

// stream is one of the broker's streams in a survey.
type stream struct {
	part      string
	shape     blocks.Stream
	partition int // -1 for those that are no part of the event log
	mark      blocks.Mark
	unmarked  string // why it is not known how far the stream was written, or ""
	report    *blocks.Report
}

// Lost are the findings that an operator has to accept.
func (s *Survey) Lost() []Finding {
	var lost []Finding
	for _, f := range s.Findings {
		if f.Lost {
			lost = append(lost, f)
		}
	}
	return lost
}

// survey reads a state directory that this process holds, and leaves the database open for reading if it is sound. The streams'
// files are read in full, before the broker does: it trusts them.
func (b *Backend) survey(dir *stateDir) (s *Survey, err error) {
	begin := time.Now()
	s = &Survey{
		Dir: dir.path, dir: dir, badWrites: map[string]string{},
		view: &databaseView{FS: vfs.Default, hidden: map[string]bool{}, cut: map[string]int64{}},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.readIdentity(); err != nil || s.New {
		return s, err
	}
	if err := s.readRecord(); err != nil {
		return s, err
	}
	if err := s.surveyDatabase(b); err != nil {
		return s, err
	}
	if err := s.settleIdentity(); err != nil {
		return s, err
	}
	s.judgeRecord()
	if err := s.readSignIns(); err != nil {
		return s, err
	}
	s.CopiesLeftOut = !s.readsStreams()
	if !s.CopiesLeftOut {
		if err := s.readStreams(b.opts.Audit.MaxAge); err != nil {
			return s, err
		}
	}
	if err := s.findStray(); err != nil {
		return s, err
	}
	if err := s.comparePositions(); err != nil {
		return s, err
	}
	if s.dbLost {
		err = s.close()
	}
	s.Took = time.Since(begin)
	return s, err
}

// readsStreams reports whether a survey reads the streams. A member's copies are not read: after a power cut they lack
// what was not synced, and the member gets that from the others. Members compare what they have read.
func (s *Survey) readsStreams() bool { return s.id.Member == "" || s.id.Brings != "" }

// close closes the database.
func (s *Survey) close() error {
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db, s.writable = nil, false
	return err
}

func (s *Survey) add(lost bool, part, file, what, loss string) {
	s.Findings = append(s.Findings, Finding{Lost: lost, Part: part, File: s.relative(file), What: what, Loss: loss})
}

// relative is a path as seen from the state directory.
func (s *Survey) relative(path string) string {
	if rel, err := filepath.Rel(s.Dir, path); err == nil {
		return rel
	}
	return path
}

const identityPart = "identity"

func (s *Survey) readIdentity() error {
	err := readSealed(s.dir.identity(), &s.id)
	switch {
	case err == nil:
		return s.id.readable()
	case errors.Is(err, errSeal):
		s.identityGone = "the file fails its checksum"
	case errors.Is(err, plainfile.ErrIrregular):
		s.identityGone = "there is no plain file in its place"
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case len(s.dir.signs()) == 0:
		s.New = true
	default:
		s.identityGone = "the file is missing"
	}
	s.id = identity{}
	return nil
}

// settleIdentity takes the identity from the state database if the file cannot be read. A directory without either was
// used all the same: what is in it must not be taken for a new backend's.
func (s *Survey) settleIdentity() error {
	if s.identityGone == "" {
		return nil
	}
	var kept identity
	found, err := false, error(nil)
	if s.db != nil {
		if kept, found, err = storedIdentity(s.db); err != nil {
			if err := s.databaseError(err); err != nil {
				return err
			}
		}
	}
	switch {
	case found && (!kept.Initialised.IsZero() || !kept.Seeded.IsZero()):
		s.id = kept
		s.add(false, identityPart, s.dir.identity(), s.identityGone, "")
		return s.id.readable()
	case !found && s.isEarlier():
		s.earlier = true
		s.id.Initialised, s.id.Unmarked = time.Now().UTC(), true
	default:
		s.id.Initialised = time.Now().UTC()
		first := Finding{Lost: true, Part: identityPart, File: filepath.Base(s.dir.identity()), Loss: "cannot be known"}
		first.What = fmt.Sprintf("%s, and the state database has no copy of it; the directory was used, it holds %s; for a new backend empty it",
			s.identityGone, strings.Join(s.dir.signs(), ", "))
		s.Findings = slices.Insert(s.Findings, 0, first)
	}
	return nil
}

// isEarlier reports whether the directory is of a release that had neither identity nor marks.
func (s *Survey) isEarlier() bool {
	for _, later := range [...]string{s.dir.identity(), s.dir.marks(), s.dir.files(), s.dir.signIns(), s.dir.damage(), s.dir.damaged()} {
		if exists(later) {
			return false
		}
	}
	whole := s.db != nil && !s.dbLost && s.id.Cluster != "" && s.used(config.Stored().Name) && s.used(audit.Stored(0).Name)
	for p := range s.id.Partitions {
		whole = whole && s.used(eventlog.Stored(p).Name)
	}
	return whole
}

// initialised reports whether the first start or the init command was finished. Before that nothing was acknowledged, so nothing
// can be lost.
func (s *Survey) initialised() bool { return s.id.used() }

// expects reports whether the stream must be there. The init command makes the definitions alone.
func (s *Survey) expects(st *stream) bool {
	return !s.id.Initialised.IsZero() || !s.id.Seeded.IsZero() && st.shape.Keyed
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const recordPart = "record of files"

// readRecord reads how the directory was left.
func (s *Survey) readRecord() error {
	err := readSealed(s.dir.files(), &s.rec)
	switch {
	case errors.Is(err, errSeal):
		s.recordGone = "the file fails its checksum"
	case errors.Is(err, plainfile.ErrIrregular):
		s.recordGone = "there is no plain file in its place"
	case errors.Is(err, fs.ErrNotExist):
		s.recordGone = "the file is missing"
	case err != nil:
		return err
	}
	if err != nil {
		s.rec = stopRecord{}
	}
	s.Unclean = !s.rec.Clean
	return nil
}

// judgeRecord adds what is wrong with the record. Its file is made after the identity, and earlier releases have none.
func (s *Survey) judgeRecord() {
	if s.recordGone != "" && s.initialised() && !s.earlier {
		s.add(false, recordPart, s.dir.files(), s.recordGone, "")
	}
}

// readSignIns looks at the remembered sign-ins. Without them passwords are compared anew.
func (s *Survey) readSignIns() error {
	what, err := auth.CheckRemembered(s.dir.signIns())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s.rec.SignIns {
			what = "the file is missing"
		}
	case errors.Is(err, plainfile.ErrIrregular):
		what = "there is no plain file in its place"
	case err != nil:
		return err
	}
	if what != "" {
		s.add(false, signInsPart, s.dir.signIns(), what, "")
	}
	return nil
}

const signInsPart = "remembered sign-ins"

// findStray looks for what is no plain file where the broker keeps its files: it would wait for a named pipe for ever.
func (s *Survey) findStray() error {
	for _, dir := range [...]string{s.dir.broker(), s.dir.alone()} {
		if err := s.findStrayIn(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Survey) findStrayIn(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type().IsRegular() || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		if s.found(path) {
			return nil
		}
		s.stray = append(s.stray, path)
		s.add(false, "broker", path, "this is no plain file", "")
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look through the broker's files: %w", err)
	}
	return nil
}

// found reports whether a finding names the file.
func (s *Survey) found(path string) bool {
	path = s.relative(path)
	return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.File == path })
}

// readStreams reads the files of all streams.
func (s *Survey) readStreams(auditAge time.Duration) error {
	s.streams = []stream{
		{part: "definitions", shape: config.Stored(), partition: -1},
		{part: "audit log", shape: audit.Stored(auditAge), partition: -1},
	}
	if s.id.Partitions == 0 {
		n, err := s.countPartitions()
		if err != nil {
			return err
		}
		s.id.Partitions = n
	}
	for p := range s.id.Partitions {
		s.streams = append(s.streams, partitionStream(p))
	}
	for i := range s.streams {
		if err := s.readStream(&s.streams[i]); err != nil {
			return err
		}
	}
	return nil
}

// fewestStreams is how many streams there are beside the event log's.
const fewestStreams = 2

func partitionStream(p int) stream {
	return stream{part: "event log partition " + strconv.Itoa(p), shape: eventlog.Stored(p), partition: p}
}

// countPartitions finds the number of partitions without identity and database: that of the last one that is there. One before
// it may be missing.
func (s *Survey) countPartitions() (int, error) {
	names, err := blocks.Streams(s.dir.streams())
	if err != nil {
		return 0, err
	}
	for n := mostPartitions; n > 0; n-- {
		if slices.Contains(names, eventlog.Stored(n-1).Name) {
			return n, nil
		}
	}
	return 0, nil
}

func (s *Survey) readStream(st *stream) (err error) {
	dir, name := s.dir.streams(), st.shape.Name
	if err := s.readMark(st); err != nil {
		return err
	}
	st.report, err = blocks.Check(dir, st.shape, s.expects(st), st.mark, s.id.Lost[name])
	if err != nil {
		return err
	}
	noted, hasNote := s.rec.Streams[name]
	for _, f := range st.report.Findings {
		if f.Severity == blocks.Unfinished {
			s.unfinished += f.Bytes
			continue
		}
		if meta := blocks.MetaFile(dir, name); f.File == meta && hasNote && !noted.Described && !exists(meta) {
			continue // a repair took it away
		}
		s.add(f.Severity == blocks.Lost, st.part, f.File, f.What, lossOf(st, f))
	}
	r := st.report
	if st.unmarked != "" && s.used(name) {
		s.add(true, st.part, blocks.MarkFile(dir, name), st.unmarked+", so the stream may be cut short",
			fmt.Sprintf("cannot be known; anything behind number %d", r.Last))
	}
	if index := blocks.IndexFile(dir, name); noted.Indexed && s.used(name) && !exists(index) {
		s.add(false, st.part, index, "the index of the stream is missing", "")
	}
	s.Streams = append(s.Streams, StreamSummary{Part: st.part, Messages: r.Messages, First: r.First, Last: r.Last, Bytes: r.Bytes})
	return nil
}

// readMark reads how far a stream was written. After a clean stop the record of files says it too.
func (s *Survey) readMark(st *stream) error {
	dir, name := s.dir.streams(), st.shape.Name
	mark, found, err := blocks.ReadMark(dir, name)
	noted, hasNote := s.rec.Streams[name]
	what := ""
	switch {
	case errors.Is(err, blocks.ErrBadMark):
		what = "the mark of how far it was written fails its checksum"
	case err != nil:
		return err
	case !found && (hasNote || s.expects(st) && !s.id.Unmarked):
		what = "the mark of how far it was written is missing"
	case found && hasNote && mark != noted.Mark:
		what = "the mark of how far it was written is not what was noted at the stop"
	}
	st.mark = mark
	switch {
	case what == "":
	case hasNote:
		st.mark = noted.Mark
		s.add(false, st.part, blocks.MarkFile(dir, name), what, "")
	case !s.expects(st):
		s.add(false, st.part, blocks.MarkFile(dir, name), what, "")
	default:
		st.unmarked = what
	}
	return nil
}

// used reports whether a stream has files. Those of the audit log and the event log are made after the first definitions.
func (s *Survey) used(name string) bool { return exists(blocks.StreamDir(s.dir.streams(), name)) }

// lossOf says what is gone.
func lossOf(st *stream, f blocks.Finding) string {
	if f.Severity != blocks.Lost {
		return ""
	}
	var parts []string
	what := "messages"
	if st.shape.Keyed {
		what = "definitions or changes of them"
	} else if st.partition < 0 {
		what = "entries"
	}
	switch {
	case f.Missing.To > 0:
		parts = append(parts, fmt.Sprintf("at most %d %s, numbers %d to %d", f.Count, what, f.Missing.From, f.Missing.To))
	case f.Count > 0:
		parts = append(parts, fmt.Sprintf("at least %d %s", f.Count, what))
	}
	if len(f.Keys) > 0 {
		const most = 20
		keys := f.Keys[:min(len(f.Keys), most)]
		text := "among them " + strings.Join(keys, ", ")
		if n := len(f.Keys) - len(keys); n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "cannot be known"
	}
	return strings.Join(parts, ", ")
}

// comparePositions compares up to where the database has read each partition with what the partition holds.
func (s *Survey) comparePositions() error {
	if s.db == nil || s.dbLost {
		return nil
	}
	s.positions = make([]uint64, s.id.Partitions)
	for i := range s.streams {
		st := &s.streams[i]
		if st.partition < 0 {
			continue
		}
		next, err := state.StoredPosition(s.db, st.partition)
		if err != nil {
			return s.databaseError(err)
		}
		s.positions[st.partition] = next
		other, err := s.isOther(st)
		if err != nil {
			return s.databaseError(err)
		}
		if !other {
			s.comparePosition(st, next)
		}
	}
	return nil
}

// isOther reports whether a partition's stream is another one than the database has read. The id of a stream is in its
// description: without that the numbers of its messages have to do.
func (s *Survey) isOther(st *stream) (bool, error) {
	known, err := state.StoredStream(s.db, st.partition)
	if err != nil {
		return false, err
	}
	have := st.report.Metadata[eventlog.StreamIDKey]
	if known == "" || have == "" || known == have {
		return false, nil
	}
	s.add(true, st.part, blocks.StreamDir(s.dir.streams(), st.shape.Name),
		"this is another stream than the one that the state database has read, which was lost",
		fmt.Sprintf("what the state database had not read of the earlier stream, and what this one has up to message %d",
			max(s.positions[st.partition], 1)-1))
	return true, nil
}

func (s *Survey) comparePosition(st *stream, next uint64) {
	r, dir := st.report, s.dir.state()
	if r.Lost() {
		return // the same once more
	}
	at := max(next, 1)
	switch {
	case next < st.mark.Taken && !s.writesCut:
		s.loseDatabase(dir, fmt.Sprintf("it had read %s up to message %d and knows only up to %d", st.part, st.mark.Taken-1, at-1))
	case next > r.Last+1:
		s.add(true, st.part, blocks.StreamDir(s.dir.streams(), st.shape.Name),
			fmt.Sprintf("the log ends at message %d, but the state database had read it up to %d", r.Last, next-1),
			"nothing that the state database does not have")
	case r.Messages > 0 && r.First > at && !blocks.Covered(blocks.Range{From: at, To: r.First - 1}, s.id.Lost[st.shape.Name]):
		s.add(true, st.part, dir, fmt.Sprintf("the log begins at message %d, but the state database has read only up to %d", r.First, at-1),
			fmt.Sprintf("messages %d to %d", at, r.First-1))
	case r.Messages == 0 && r.Last >= at && !blocks.Covered(blocks.Range{From: at, To: r.Last}, s.id.Lost[st.shape.Name]):
		s.add(true, st.part, dir, fmt.Sprintf("the log is empty, but the state database has read only up to %d of %d", at-1, r.Last),
			fmt.Sprintf("messages %d to %d", at, r.Last))
	}
}
