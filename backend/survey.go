package backend

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
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

// Survey is how a state directory stands.
type Survey struct {
	Dir      string
	New      bool // no backend has used it
	Unclean  bool // the last backend was not stopped, but ended
	Findings []Finding
	Streams  []StreamSummary
	Took     time.Duration

	dir        *stateDir
	id         identity
	known      bool // an identity was recorded, even if it cannot be read
	streams    []stream
	unfinished int64 // bytes of writes that were under way
	db         *pebble.DB
	dbLost     bool
	writesCut  bool     // its newest writes are not all there
	positions  []uint64 // by partition; only of a sound database
}

// stream is one of the broker's streams in a survey.
type stream struct {
	part      string
	shape     blocks.Stream
	partition int // -1 for those that are no part of the event log
	mark      blocks.Mark
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

// survey reads a state directory that this process holds, and leaves the database open if it is sound. The streams' files are read
// in full, before the broker does: it trusts them.
func (b *Backend) survey(dir *stateDir) (*Survey, error) {
	begin := time.Now()
	s := &Survey{Dir: dir.path, dir: dir}
	if err := s.readIdentity(); err != nil {
		return nil, err
	}
	if err := s.readFiles(); err != nil {
		return nil, err
	}
	if err := s.openDatabase(b); err != nil {
		return nil, err
	}
	if err := s.readStreams(b.opts.AuditAge); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.comparePositions()
	s.Took = time.Since(begin)
	return s, nil
}

// close closes the database, which wrote files when it was opened: the record of them is made anew.
func (s *Survey) close() error {
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return errors.Join(err, s.dir.recordFiles(!s.Unclean))
}

func (s *Survey) add(lost bool, part, file, what, loss string) {
	if rel, err := filepath.Rel(s.Dir, file); err == nil {
		file = rel
	}
	s.Findings = append(s.Findings, Finding{Lost: lost, Part: part, File: file, What: what, Loss: loss})
}

const identityPart = "identity"

func (s *Survey) readIdentity() error {
	err := readSealed(s.dir.identity(), &s.id)
	marked := exists(filepath.Join(s.dir.broker(), "marks"))
	switch {
	case err == nil:
		s.known = true
	case errors.Is(err, errSeal):
		s.id, s.known = identity{Initialised: time.Now().UTC()}, true
		s.add(false, identityPart, s.dir.identity(), "the file fails its checksum", "")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case marked, s.used(eventlog.Stored(0).Name):
		// Both are made after the administrator. A directory of an earlier release has the event log alone.
		s.id.Initialised, s.known = time.Now().UTC(), true
		s.add(false, identityPart, s.dir.identity(), "the file is missing", "")
	default:
		s.New = !exists(s.dir.broker()) && !exists(s.dir.state())
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const databasePart = "state database"

// databaseLoss is what a damaged database takes with it: it is not mended, but made anew from the event log.
const databaseLoss = "results older than the event log, histories, traces, and deliveries that were not finished"

func (s *Survey) loseDatabase(file, what string) {
	s.dbLost = true
	s.add(true, databasePart, file, what, databaseLoss)
}

// readFiles compares the database's files with what was recorded of them.
func (s *Survey) readFiles() error {
	var rec files
	err := readSealed(s.dir.files(), &rec)
	s.Unclean = !s.New && (err != nil || !rec.Clean)
	switch {
	case errors.Is(err, errSeal):
		s.add(false, "record of files", s.dir.files(), "the file fails its checksum", "")
	case errors.Is(err, fs.ErrNotExist) && s.known:
		s.add(false, "record of files", s.dir.files(), "the file is missing", "")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	names := make([]string, 0, len(rec.Files))
	for name := range rec.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		path, want := filepath.Join(s.dir.state(), name), rec.Files[name]
		got, err := describe(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			s.databaseFile(path, "the file is missing")
		case err != nil:
			return fmt.Errorf("compare files of the state database: %w", err)
		case got.Size != want.Size:
			s.databaseFile(path, fmt.Sprintf("the file has %d bytes, %d were written", got.Size, want.Size))
		case want.Sum != nil && *got.Sum != *want.Sum:
			s.databaseFile(path, "the file is not what was written")
		}
	}
	return nil
}

// databaseFile adds what is wrong with a file of the database. Its options are written anew at each start.
func (s *Survey) databaseFile(path, what string) {
	if strings.HasPrefix(filepath.Base(path), "OPTIONS-") {
		s.add(false, databasePart, path, what, "")
		return
	}
	s.loseDatabase(path, what)
}

// openDatabase opens the database if nothing is known to be wrong with it, and reads who it belongs to.
func (s *Survey) openDatabase(b *Backend) error {
	var note damageNote
	switch err := readSealed(s.dir.damage(), &note); {
	case err == nil:
		s.loseDatabase(note.File, "damage was found while it was read: "+note.What)
	case errors.Is(err, errSeal):
		s.loseDatabase(s.dir.damage(), "damage was found while it was read")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if s.known {
		s.checkDatabaseIsThere()
	}
	if s.dbLost {
		return nil
	}
	for _, f := range s.Findings {
		if f.Part == databasePart && strings.HasPrefix(filepath.Base(f.File), "OPTIONS-") {
			// The database reads it, and does without.
			if err := s.dir.moveAside(filepath.Join(s.Dir, f.File)); err != nil {
				return err
			}
		}
	}
	db, err := s.dir.openDB(dbLog{b.log.With("component", "pebble")}, b.corrupt)
	if err != nil {
		if isSystemFault(err) || !exists(s.dir.state()) {
			return err
		}
		s.loseDatabase(s.dir.state(), "the database cannot be opened: "+firstLine(err))
		return nil
	}
	s.db = db
	origin, err := stored(db, originKey)
	partitions := 0
	if err == nil {
		partitions, err = storedPartitions(db)
	}
	switch {
	case err != nil:
		s.loseDatabase(s.dir.state(), firstLine(err))
	case s.id.Cluster != "" && (origin != s.id.Cluster || partitions != s.id.Partitions):
		s.loseDatabase(s.dir.state(), fmt.Sprintf("the database is of backend %q with %d partitions, not of %q with %d", origin, partitions, s.id.Cluster, s.id.Partitions))
	default:
		s.id.Cluster, s.id.Partitions = origin, partitions
	}
	if s.dbLost {
		return s.close()
	}
	return nil
}

// isSystemFault tells what the system refuses from what the files hold.
func isSystemFault(err error) bool {
	return errors.Is(err, fs.ErrPermission) || isNoSpace(err)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// checkDatabaseIsThere finds out whether the library would make a new database in place of the one that was there.
func (s *Survey) checkDatabaseIsThere() {
	for _, needed := range [...]struct{ pattern, what string }{
		{"marker.manifest.*", "the database is missing, or the file that says where it begins"},
		{"*.log", "the database's newest writes are missing"},
	} {
		path := filepath.Join(s.dir.state(), needed.pattern)
		if found, _ := filepath.Glob(path); len(found) == 0 && !s.dbLost {
			s.loseDatabase(path, needed.what)
		}
	}
	if s.Unclean && !s.dbLost {
		s.readUnclean()
	}
}

// readUnclean looks for damage that the library takes for a write that was under way. Of the newest writes the event log has what
// they held; the list of the database's files cannot be made anew.
func (s *Survey) readUnclean() {
	manifests, _ := filepath.Glob(filepath.Join(s.dir.state(), "MANIFEST-*"))
	for _, path := range manifests {
		if at, err := readWrites(path, 0); err != nil && !s.dbLost {
			s.loseDatabase(path, fmt.Sprintf("the list of its files is damaged behind byte %d", at))
		}
	}
	logs, _ := filepath.Glob(filepath.Join(s.dir.state(), "*.log"))
	for _, path := range logs {
		number, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".log"), 10, 64)
		if err != nil {
			continue
		}
		if at, err := readWrites(path, number); err != nil {
			s.writesCut = true
			s.add(false, databasePart, path, fmt.Sprintf("the newest writes are sound up to byte %d only; what the others held is read again from the event log", at), "")
		}
	}
}

// readWrites reads a file of the database's writes and returns where the sound part ends.
func readWrites(path string, number uint64) (at int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	r := numbered(record.NewReader, f, number)
	for {
		at = r.Offset()
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			return at, nil
		}
		if err == nil {
			_, err = io.Copy(io.Discard, one)
		}
		if err != nil {
			return at, err
		}
	}
}

// numbered calls a function whose second argument has a type that the library keeps to itself.
func numbered[N ~uint64](f func(io.Reader, N) *record.Reader, r io.Reader, n uint64) *record.Reader {
	return f(r, N(n))
}

// readStreams reads the files of all streams.
func (s *Survey) readStreams(auditAge time.Duration) error {
	s.streams = []stream{
		{part: "definitions", shape: config.Stored(), partition: -1},
		{part: "audit log", shape: audit.Stored(auditAge), partition: -1},
	}
	if s.id.Partitions == 0 && s.known {
		n, err := s.countPartitions()
		if err != nil {
			return err
		}
		s.id.Partitions = n
	}
	for p := range s.id.Partitions {
		s.streams = append(s.streams, stream{part: "event log partition " + strconv.Itoa(p), shape: eventlog.Stored(p), partition: p})
	}
	for i := range s.streams {
		if err := s.readStream(&s.streams[i]); err != nil {
			return err
		}
	}
	return nil
}

// countPartitions finds the number of partitions without identity and database.
func (s *Survey) countPartitions() (int, error) {
	names, err := blocks.Streams(s.dir.broker())
	n := 0
	for slices.Contains(names, eventlog.Stored(n).Name) {
		n++
	}
	return n, err
}

func (s *Survey) readStream(st *stream) (err error) {
	dir, name := s.dir.broker(), st.shape.Name
	var marked bool
	st.mark, marked, err = blocks.ReadMark(dir, name)
	switch {
	case errors.Is(err, blocks.ErrBadMark):
		s.add(false, st.part, blocks.MarkFile(dir, name), "the mark of how far it was written fails its checksum", "")
	case err != nil:
		return err
	case !marked && s.known && s.used(name):
		s.add(false, st.part, blocks.MarkFile(dir, name), "the mark of how far it was written is missing", "")
	}
	known := marked || s.known && !s.id.Initialised.IsZero()
	st.report, err = blocks.Check(dir, st.shape, known, st.mark, s.id.Lost[name])
	if err != nil {
		return err
	}
	for _, f := range st.report.Findings {
		if f.Severity == blocks.Unfinished {
			s.unfinished += f.Bytes
			continue
		}
		s.add(f.Severity == blocks.Lost, st.part, f.File, f.What, lossOf(st, f))
	}
	r := st.report
	if index := filepath.Join(blocks.StreamDir(dir, name), "msgs", "index.db"); !s.Unclean && s.used(name) && !exists(index) {
		s.add(false, st.part, index, "the index of the stream is missing", "")
	}
	s.Streams = append(s.Streams, StreamSummary{Part: st.part, Messages: r.Messages, First: r.First, Last: r.Last, Bytes: r.Bytes})
	return nil
}

// used reports whether a stream has files. Those of the audit log and the event log are made after the first definitions.
func (s *Survey) used(name string) bool { return exists(blocks.StreamDir(s.dir.broker(), name)) }

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
	return strings.Join(parts, ", ")
}

// comparePositions compares up to where the database has read each partition with what the partition holds.
func (s *Survey) comparePositions() {
	if s.db == nil {
		return
	}
	s.positions = make([]uint64, s.id.Partitions)
	for i := range s.streams {
		st := &s.streams[i]
		if st.partition < 0 {
			continue
		}
		next, err := state.StoredPosition(s.db, st.partition)
		if err != nil {
			s.loseDatabase(s.dir.state(), firstLine(err))
			return
		}
		s.positions[st.partition] = next
		s.comparePosition(st, next)
	}
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
		s.add(true, st.part, blocks.StreamDir(s.dir.broker(), st.shape.Name),
			fmt.Sprintf("the log ends at message %d, but the state database had read it up to %d", r.Last, next-1), "nothing that the state database does not have")
	case r.Messages > 0 && r.First > at && !blocks.Covered(blocks.Range{From: at, To: r.First - 1}, s.id.Lost[st.shape.Name]):
		s.add(true, st.part, dir, fmt.Sprintf("the log begins at message %d, but the state database has read only up to %d", r.First, at-1),
			fmt.Sprintf("messages %d to %d", at, r.First-1))
	case r.Messages == 0 && r.Last >= at && !blocks.Covered(blocks.Range{From: at, To: r.Last}, s.id.Lost[st.shape.Name]):
		s.add(true, st.part, dir, fmt.Sprintf("the log is empty, but the state database has read only up to %d of %d", at-1, r.Last),
			fmt.Sprintf("messages %d to %d", at, r.Last))
	}
}
