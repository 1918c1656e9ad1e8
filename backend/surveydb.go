package backend

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
)

const databasePart = "state database"

// databaseLoss is what a damaged database takes with it: it is not mended, but made anew from the event log.
const databaseLoss = "results older than the event log, histories, traces, and deliveries that were not finished"

// How the names of the database's files begin or end. It reads the marker, the manifest that the marker names, the tables and
// values that the manifest lists, and the writes that the manifest does not say are in tables. It reads its options too, but
// does without. Older manifests, tables and writes stay until it removes them.
const (
	manifestFile = "MANIFEST-"
	markerFile   = "marker."
	optionsFile  = "OPTIONS-"
	writesFile   = ".log"
	tableFile    = ".sst"
	valuesFile   = ".blob"
)

// databaseView shows a database as it will be after a repair, and lets nothing be written.
type databaseView struct {
	vfs.FS
	hidden map[string]bool  // by name: files that will be set aside
	cut    map[string]int64 // by name: where the sound part of the newest writes ends
}

// List leaves out the hidden files.
func (v *databaseView) List(dir string) ([]string, error) {
	names, err := v.FS.List(dir)
	return slices.DeleteFunc(names, func(name string) bool { return v.hidden[name] }), err
}

// Open opens a file, of which only the sound part can be read.
func (v *databaseView) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := v.FS.Open(path, opts...)
	if end, ok := v.cut[filepath.Base(path)]; ok && err == nil {
		return &cutFile{File: f, left: end}, nil
	}
	return f, err
}

// cutFile ends before the file does. The database reads its writes from the first byte to the last.
type cutFile struct {
	vfs.File
	left int64
}

func (f *cutFile) Read(b []byte) (int, error) {
	if f.left <= 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(b[:min(int64(len(b)), f.left)])
	f.left -= int64(n)
	return n, err
}

func (s *Survey) loseDatabase(file, what string) {
	s.dbLost = true
	s.add(true, databasePart, file, what, databaseLoss)
}

// surveyDatabase finds out what is wrong with the database, and opens it for reading unless it is lost.
func (s *Survey) surveyDatabase(b *Backend) error {
	if err := s.readNote(); err != nil {
		return err
	}
	marker, err := s.dir.databaseFiles("marker.manifest.*")
	if err != nil {
		return err
	}
	if len(marker) == 0 && s.identityGone == "" && !s.initialised() {
		return nil // the first start was cut off before it was made
	}
	if err := s.readDatabaseFiles(); err != nil {
		return err
	}
	if len(marker) == 0 && !s.dbLost {
		s.loseDatabase(filepath.Join(s.dir.state(), "marker.manifest.*"), "the database is missing, or the file that says where it begins")
	}
	if s.dbLost {
		return nil
	}
	if err := s.readWrites(); err != nil {
		return err
	}
	if s.dbLost {
		return nil
	}
	return s.openDatabase(b)
}

// databaseFiles lists the names of the database's files that match a pattern.
func (d *stateDir) databaseFiles(pattern string) ([]string, error) {
	entries, err := os.ReadDir(d.state())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list files of the state database: %w", err)
	}
	var names []string
	for _, e := range entries {
		if match, err := filepath.Match(pattern, e.Name()); err != nil {
			return nil, err
		} else if match {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// readNote reads what an earlier backend found damaged while it ran.
func (s *Survey) readNote() error {
	var note damageNote
	switch err := readSealed(s.dir.damage(), &note); {
	case err == nil:
		s.loseDatabase(note.File, "damage was found while it was read: "+note.What)
	case errors.Is(err, errSeal), errors.Is(err, plainfile.ErrIrregular):
		s.loseDatabase(s.dir.damage(), "damage was found while it was read")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// readDatabaseFiles compares the database's files with what was recorded of them.
func (s *Survey) readDatabaseFiles() error {
	entries, err := os.ReadDir(s.dir.state())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list files of the state database: %w", err)
	}
	names := make([]string, 0, len(s.rec.Files)+len(entries))
	for name := range s.rec.Files {
		names = append(names, name)
	}
	for _, e := range entries {
		// The database would wait for ever for a named pipe to be written.
		if _, recorded := s.rec.Files[e.Name()]; !recorded && e.Name() != "LOCK" && !e.Type().IsRegular() && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	current, err := s.currentManifest()
	if err != nil {
		return err
	}
	for _, name := range names {
		what, err := s.compareFile(name)
		if err != nil {
			return fmt.Errorf("compare files of the state database: %w", err)
		}
		if what != "" {
			s.databaseFile(name, what, current)
		}
	}
	return nil
}

// compareFile says what is wrong with a file, or "".
func (s *Survey) compareFile(name string) (string, error) {
	want, recorded := s.rec.Files[name]
	got, err := describe(filepath.Join(s.dir.state(), name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the file is missing", nil
	case errors.Is(err, plainfile.ErrIrregular):
		return "there is no plain file in its place", nil
	case err != nil:
		return "", err
	case !recorded:
		return "", nil // a link to a file
	case got.Size != want.Size:
		return fmt.Sprintf("the file has %d bytes, %d were written", got.Size, want.Size), nil
	case want.Sum != nil && (got.Sum == nil || *got.Sum != *want.Sum):
		return "the file is not what was written", nil
	}
	return "", nil
}

// currentManifest is the name of the manifest that the database reads, or "".
func (s *Survey) currentManifest() (string, error) {
	found, err := pebble.Peek(s.dir.state(), s.view.FS)
	if isSystemFault(err) {
		return "", fmt.Errorf("find the manifest of the state database: %w", err)
	}
	if err != nil || found.ManifestFilename == "" {
		return "", nil
	}
	return filepath.Base(found.ManifestFilename), nil
}

// databaseFile judges what is wrong with a file of the database by what the database needs the file for.
func (s *Survey) databaseFile(name, what, current string) {
	path := filepath.Join(s.dir.state(), name)
	switch {
	case strings.HasPrefix(name, optionsFile), strings.HasPrefix(name, manifestFile) && name != current:
		s.add(false, databasePart, path, what, "")
		s.hide(name)
	case strings.HasPrefix(name, markerFile) && exists(path):
		s.add(false, databasePart, path, what+"; only its name counts", "")
	case strings.HasSuffix(name, writesFile):
		s.badWrites[name] = what
	case strings.HasSuffix(name, tableFile):
		s.badTables = append(s.badTables, badFile{name, what})
	default:
		s.loseDatabase(path, what)
	}
}

// badFile is a file of the database and what is wrong with it.
type badFile struct{ name, what string }

// hide has a file of the database set aside before the database is opened for writing.
func (s *Survey) hide(name string) {
	s.view.hidden[name] = true
}

// readWrites looks for damage that the database takes for the end of what was written. If the newest writes are damaged, the
// database goes back to the commit before, and reads from the event log what the others held. The manifest cannot be made anew.
func (s *Survey) readWrites() error {
	current, err := s.currentManifest()
	if err != nil {
		return err
	}
	var list manifestEnd
	if current != "" {
		path := filepath.Join(s.dir.state(), current)
		at, err := readRecords(path, 0, list.read)
		if isSystemFault(err) {
			return fmt.Errorf("read the state database's list of files: %w", err)
		}
		if err != nil {
			s.loseDatabase(path, fmt.Sprintf("the list of its files is damaged behind byte %d", at))
			return nil
		}
	}
	names, err := s.writesFrom(list.oldest)
	if err != nil {
		return err
	}
	if len(names) == 0 && len(s.badWrites) == 0 {
		s.writesCut = true
		s.add(false, databasePart, filepath.Join(s.dir.state(), "*"+writesFile),
			"the newest writes are missing; what they held is read again from the event log", "")
	}
	next := list.next
	for _, name := range names {
		if next, err = s.checkWrites(name, next); err != nil {
			return err
		}
	}
	return nil
}

// writesFrom lists the files of writes from a number on, those that are recorded and missing included, in their order.
func (s *Survey) writesFrom(oldest uint64) ([]string, error) {
	names, err := s.dir.databaseFiles("*" + writesFile)
	if err != nil {
		return nil, err
	}
	for name := range s.badWrites {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(number(a)) - int(number(b)) })
	names = slices.Compact(names)
	for _, name := range names {
		if what, bad := s.badWrites[name]; bad && number(name) < oldest {
			s.add(false, databasePart, filepath.Join(s.dir.state(), name), what+"; the database does not use it any more", "")
			s.hide(name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return number(name) < oldest }), nil
}

// number is that of a file of writes.
func number(name string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(name, writesFile), 10, 64)
	return n
}

// checkWrites looks at one file of the newest writes. Behind damage nothing counts: each commit builds on those before. next is the
// number that the file's first write has at most, or 0 if it is not known: all writes are numbered in turn, also from one file to
// the next. It returns the number that the next file begins with.
func (s *Survey) checkWrites(name string, next uint64) (uint64, error) {
	path := filepath.Join(s.dir.state(), name)
	if s.writesCut {
		s.hide(name)
		return 0, nil
	}
	what, bad := s.badWrites[name]
	var at int64
	var err error
	var writes writesRange
	if !bad || exists(path) {
		at, err = readRecords(path, number(name), writes.read)
		if isSystemFault(err) {
			return 0, fmt.Errorf("read writes of the state database: %w", err)
		}
	}
	if writes.found && next != 0 && writes.first > next {
		s.writesCut = true
		s.add(false, databasePart, path, fmt.Sprintf(
			"the writes before this file are missing, numbers %d to %d; what they and the others held is read again from the event log",
			next, writes.first-1), "")
		s.hide(name)
		return 0, nil
	}
	if err == nil && !bad {
		if writes.found {
			next = writes.next
		}
		return next, nil
	}
	if err != nil {
		what = fmt.Sprintf("the newest writes are sound up to byte %d only", at)
	}
	s.writesCut = true
	s.add(false, databasePart, path, what+"; what the others held is read again from the event log", "")
	if !errors.Is(err, plainfile.ErrIrregular) && exists(path) {
		s.view.cut[name] = at
	} else {
		s.hide(name)
	}
	return 0, nil
}

// writesRange is which writes a file holds.
type writesRange struct {
	found       bool
	first, next uint64 // next is the number behind the last one
}

// read reads the beginning of a commit: the number of its first write, and how many there are.
func (w *writesRange) read(commit io.Reader) {
	var head [12]byte
	if _, err := io.ReadFull(commit, head[:]); err != nil {
		return // the reader of the file finds the same error
	}
	first := binary.LittleEndian.Uint64(head[:])
	if !w.found {
		w.found, w.first = true, first
	}
	w.next = first + uint64(binary.LittleEndian.Uint32(head[8:]))
}

// readRecords reads a file of the database's writes or its manifest, and returns where the sound part ends.
func readRecords(path string, number uint64, each func(io.Reader)) (at int64, err error) {
	f, err := plainfile.Open(path)
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
		if err == nil && each != nil {
			each(one)
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

// manifestEnd is what the manifest says of the writes.
type manifestEnd struct {
	// oldest is the number of the oldest file of writes that are not in tables yet. There may be no file with just this number.
	oldest uint64
	// next is the number that the next write had when the last record was written. The oldest file that is needed holds it or an
	// earlier one, unless it holds none: without a record since then, no table holds a later write.
	next uint64
}

// read reads one record of the manifest. What counts here stands at its beginning, in this order, if it is there.
func (m *manifestEnd) read(edit io.Reader) {
	const comparer, oldest, nextFile, lastWrite, previous = 1, 2, 3, 4, 9
	const firstWrite = 10 // the database keeps smaller numbers to itself
	r := bufio.NewReader(edit)
	m.next = 0
	for {
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return
		}
		value, err := binary.ReadUvarint(r)
		if err != nil {
			return
		}
		switch tag {
		case comparer:
			_, err = io.CopyN(io.Discard, r, int64(min(value, 1<<10)))
		case oldest:
			m.oldest = value
		case nextFile, previous:
		case lastWrite:
			if value != 0 { // not in the first record of a new database
				m.next = max(value+1, firstWrite)
			}
			return
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

// openDatabase opens the database for reading and finds out whose it is.
func (s *Survey) openDatabase(b *Backend) error {
	db, err := s.dir.openDB(b, s.view)
	if err != nil {
		if isSystemFault(err) {
			return err
		}
		for _, f := range s.badTables {
			s.loseDatabase(filepath.Join(s.dir.state(), f.name), f.what)
		}
		if len(s.badTables) == 0 {
			s.loseDatabase(s.dir.state(), "the database cannot be opened: "+firstLine(err))
		}
		return nil
	}
	s.db = db
	for _, f := range s.badTables { // it was opened all the same, so its manifest does not list them
		s.add(false, databasePart, filepath.Join(s.dir.state(), f.name), f.what+"; the database does not use it any more", "")
		s.hide(f.name)
	}
	origin, err := stored(db, originKey)
	partitions := 0
	if err == nil {
		partitions, err = storedPartitions(db)
	}
	switch {
	case err != nil:
		return s.databaseError(err)
	case origin == "" && (s.writesCut || !s.initialised()): // no commit is left, or the first start was cut off
	case s.id.Cluster != "" && (origin != s.id.Cluster || partitions != s.id.Partitions):
		s.loseDatabase(s.dir.state(), fmt.Sprintf("the database is of backend %q with %d partitions, not of %q with %d",
			origin, partitions, s.id.Cluster, s.id.Partitions))
	default:
		s.id.Cluster, s.id.Partitions = origin, partitions
	}
	return nil
}

// isSystemFault reports whether the system refused to read what may be sound: too many files are open, memory is short, a disk does
// not answer. Such an error is no finding: the start ends with it, or verify does. All other errors are of what the files
// hold, or of files that are missing or are no plain files.
func isSystemFault(err error) bool {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, plainfile.ErrIrregular) {
		return false
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrClosed)
	}
	switch errno {
	case syscall.EISDIR, syscall.ENOTDIR, syscall.ENXIO, syscall.ELOOP:
		return false
	}
	return true
}

// databaseError has a failed read of the database end the survey if the system is at fault. Otherwise the database is lost.
func (s *Survey) databaseError(err error) error {
	if isSystemFault(err) {
		return fmt.Errorf("read state database: %w", err)
	}
	s.loseDatabase(s.dir.state(), firstLine(err))
	return nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
