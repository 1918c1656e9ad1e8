package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/state"
)

// moveTo moves a file or directory of the state directory to where damaged ones are kept, under the same name.
func (d *stateDir) moveTo(aside, path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	rel, err := filepath.Rel(d.path, path)
	if err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	target := filepath.Join(aside, rel)
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	if err := os.Rename(path, target); err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	return errors.Join(blocks.SyncDir(filepath.Dir(path)), blocks.SyncDir(filepath.Dir(target)))
}

// tidy makes a directory without losses ready for the broker, and opens the database for writing. It sets damaged files aside that
// can be made anew, cuts off writes that were under way, and has each mark say how its stream stands.
func (s *Survey) tidy(b *Backend, aside string) error {
	if err := s.id.complete(b.opts.Log.Partitions, &b.opts.Cluster); err != nil {
		return err
	}
	if s.New || s.earlier {
		// A start that is cut off from here on must not leave a directory that seems to have lost its identity.
		if err := writeSealed(s.dir.identity(), &s.id); err != nil {
			return err
		}
	}
	if err := s.setAside(aside); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(s.dir.checkpoint()), os.RemoveAll(s.dir.copied())); err != nil {
		return fmt.Errorf("remove what an unfinished backup or copy has left: %w", err)
	}
	for i := range s.streams {
		if err := blocks.Tidy(s.streams[i].report, s.Unclean, aside); err != nil {
			return err
		}
		if err := s.remark(&s.streams[i]); err != nil {
			return err
		}
	}
	// The record holds for a database that nothing has written to.
	if err := writeSealed(s.dir.files(), &stopRecord{SignIns: exists(s.dir.signIns())}); err != nil {
		return err
	}
	if err := s.openForWriting(b, aside); err != nil {
		return err
	}
	if err := s.acceptStreams(); err != nil {
		return err
	}
	s.id.Unmarked = false
	if err := s.dir.store(s.db, &s.id); err != nil {
		return err
	}
	return s.dir.write(false)
}

// acceptStreams makes the database go on with the streams that are there. They lack nothing, or an operator accepted
// the loss. The event log gives a stream without description a new id.
func (s *Survey) acceptStreams() error {
	for i := range s.streams {
		st := &s.streams[i]
		if st.partition < 0 {
			continue
		}
		known, err := state.StoredStream(s.db, st.partition)
		if err != nil {
			return err
		}
		if known != "" && known != st.report.Metadata[eventlog.StreamIDKey] {
			if err := state.AcceptStream(s.db, st.partition); err != nil {
				return err
			}
		}
	}
	return nil
}

// setAside moves files away that are written anew: those of the backend itself, marks, and what is no plain file.
func (s *Survey) setAside(aside string) error {
	paths := s.stray
	for _, f := range s.Findings {
		switch f.Part {
		case identityPart, recordPart, signInsPart:
			paths = append(paths, filepath.Join(s.Dir, f.File))
		}
		if filepath.Dir(f.File) == s.relative(s.dir.marks()) {
			paths = append(paths, filepath.Join(s.Dir, f.File))
		}
	}
	for _, path := range paths {
		if err := s.dir.moveTo(aside, path); err != nil {
			return err
		}
	}
	return nil
}

// openForWriting opens the database for writing. What the view leaves out is set aside before.
func (s *Survey) openForWriting(b *Backend, aside string) error {
	if s.writable {
		return nil
	}
	if err := s.close(); err != nil {
		return err
	}
	for name := range s.view.hidden {
		if err := s.dir.moveTo(aside, filepath.Join(s.dir.state(), name)); err != nil {
			return err
		}
	}
	for name, end := range s.view.cut {
		if err := s.dir.cutWrites(aside, name, end); err != nil {
			return err
		}
	}
	var err error
	s.db, err = s.dir.openDB(b, nil)
	s.writable = err == nil
	return err
}

// cutWrites sets a file of the database's writes aside and leaves its sound part in its place. The sound part is
// written elsewhere before the file is replaced, so after a kill at any moment one of the two is in its place.
func (d *stateDir) cutWrites(aside, name string, end int64) error {
	if err := d.replaceBySound(aside, name, end); err != nil {
		return fmt.Errorf("cut off damaged writes of the state database: %w", err)
	}
	return nil
}

func (d *stateDir) replaceBySound(aside, name string, end int64) error {
	path := filepath.Join(d.state(), name)
	f, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	sound, err := io.ReadAll(io.LimitReader(f, end))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	rel, err := filepath.Rel(d.path, path)
	if err != nil {
		return err
	}
	kept := filepath.Join(aside, rel)
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		return err
	}
	// It is not beside the file, where a kill would leave it to the database.
	part := kept + ".sound"
	if err := blocks.WriteFile(part, sound); err != nil {
		return err
	}
	if err := keep(path, kept); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if err := os.Rename(part, path); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return errors.Join(blocks.SyncDir(filepath.Dir(path)), blocks.SyncDir(filepath.Dir(kept)))
}

// keep makes a second name for a file, or a copy where the file system has one name for each file only.
func keep(path, kept string) error {
	if os.Link(path, kept) == nil {
		return blocks.SyncDir(filepath.Dir(kept))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return blocks.WriteFile(kept, text)
}

// remark writes a stream's mark as its files are. A stream that is not there yet gets one when the broker makes it.
func (s *Survey) remark(st *stream) error {
	if !s.used(st.shape.Name) {
		return nil
	}
	m := st.report.Mark()
	m.Taken = st.mark.Taken
	if st.partition >= 0 && s.positions != nil {
		m.Taken = s.positions[st.partition]
	}
	return blocks.WriteMark(s.dir.streams(), st.shape.Name, m)
}

// RepairOptions says what a repair does beyond what is needed.
type RepairOptions struct {
	// NewAdministrator has the next start make the administrator and the built-in definitions again, for definitions that hold no
	// user any more.
	NewAdministrator bool
}

// Repaired is what a repair did.
type Repaired struct {
	Lost  []Finding
	Anew  []Finding // what was made anew, as a start would have done
	Aside string    // directory of what was set aside; "" if there was nothing to repair
}

// Verify reads all of a state directory that no backend uses. It changes nothing, but damage of a table is noted for the next start.
func Verify(opts Options) (*Survey, error) {
	_, s, err := take(opts, "verify")
	if err != nil {
		return nil, err
	}
	err = s.readDatabase()
	return s, errors.Join(err, s.close(), s.dir.close())
}

// take surveys a state directory that no backend uses, and holds it.
func take(opts Options, what string) (*Backend, *Survey, error) {
	b, err := newBackend(opts)
	if err != nil {
		return nil, nil, err
	}
	if !exists(opts.StateDir) {
		return nil, nil, fmt.Errorf("%s: there is no state directory %s", what, opts.StateDir)
	}
	s, err := b.hold()
	return b, s, err
}

// hold takes hold of the state directory and surveys it.
func (b *Backend) hold() (*Survey, error) {
	dir, err := openStateDir(b.opts.StateDir)
	if err != nil {
		return nil, err
	}
	if err := dir.restored(); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	if err := dir.finishCopy(); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	s, err := b.survey(dir)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return s, nil
}

// readDatabase reads every key and value, which a start does not.
func (s *Survey) readDatabase() error {
	if s.db == nil || s.dbLost {
		return nil
	}
	if err := checkDatabase(s.db); err != nil {
		return s.databaseError(err)
	}
	return nil
}

func checkDatabase(db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if _, err := it.ValueAndErr(); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// Repair accepts the losses of a state directory that no backend uses, so that the next start goes on with what is left. It also
// makes anew what a start would. Nothing is deleted: damaged files are set aside.
func Repair(opts Options, do RepairOptions) (done *Repaired, err error) {
	b, s, err := take(opts, "repair")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(), s.dir.close()) }()
	if err := s.Unused(); err != nil {
		return nil, err
	}
	if err := s.readDatabase(); err != nil {
		return nil, err
	}
	done = &Repaired{Lost: s.Lost()}
	for _, f := range s.Findings {
		if !f.Lost {
			done.Anew = append(done.Anew, f)
		}
	}
	if len(s.Findings) == 0 && !do.NewAdministrator {
		return done, nil
	}
	done.Aside = s.dir.aside()
	b.opts.Log.Partitions = 0 // the number is known, or drawn
	if err := s.repair(b, done, do); err != nil {
		return nil, err
	}
	if err := s.close(); err != nil {
		return nil, err
	}
	if err := s.dir.write(true); err != nil {
		return nil, err
	}
	again, err := b.survey(s.dir)
	if err != nil {
		return nil, err
	}
	if err := again.close(); err != nil {
		return nil, err
	}
	if rest := again.Findings; len(rest) > 0 {
		return nil, fmt.Errorf("repair: this is still wrong: %s", rest[0])
	}
	return done, nil
}

// repair accepts what is lost, and makes the directory ready as a start does.
func (s *Survey) repair(b *Backend, done *Repaired, do RepairOptions) error {
	lost := map[string][]blocks.Range{}
	for name, ranges := range s.id.Lost {
		lost[name] = ranges
	}
	if len(done.Lost) > 0 {
		if err := s.acceptLosses(b, done, lost); err != nil {
			return err
		}
	}
	s.id.Reseed = s.id.Reseed || do.NewAdministrator
	return s.tidy(b, done.Aside)
}

func (s *Survey) acceptLosses(b *Backend, done *Repaired, lost map[string][]blocks.Range) error {
	if err := s.id.complete(0, &b.opts.Cluster); err != nil {
		return err
	}
	if s.readsStreams() {
		for p := len(s.streams) - fewestStreams; p < s.id.Partitions; p++ { // of whose number nothing was left
			s.streams = append(s.streams, partitionStream(p))
			if err := s.readStream(&s.streams[len(s.streams)-1]); err != nil {
				return err
			}
		}
	}
	for i := range s.streams {
		if err := s.repairStream(&s.streams[i], done.Aside, lost); err != nil {
			return err
		}
	}
	if s.dbLost {
		if err := s.replaceDatabase(b, done.Aside); err != nil {
			return err
		}
	} else if err := s.openForWriting(b, done.Aside); err != nil {
		return err
	}
	for i := range s.streams {
		if err := s.bridge(&s.streams[i], lost); err != nil {
			return err
		}
	}
	s.id.Lost = lost
	texts := make([]string, len(done.Lost))
	for i, f := range done.Lost {
		texts[i] = f.String()
	}
	s.id.Repairs = append(s.id.Repairs, repair{Time: time.Now().UTC(), Aside: done.Aside, Lost: texts})
	return s.dir.moveTo(done.Aside, s.dir.damage())
}

// unknownNumbers is how many numbers are passed over if it is not known which a stream has given out. It is more than the event log
// takes between two writes of the state database, which knows numbers that it has not noted as read.
const unknownNumbers = 1 << 20

func (s *Survey) repairStream(st *stream, aside string, lost map[string][]blocks.Range) error {
	name, last := st.shape.Name, max(st.mark.Taken, 1)-1
	if st.partition >= 0 && s.positions != nil {
		last = max(s.positions[st.partition], 1) - 1
	}
	if st.unmarked != "" {
		end := max(last, st.report.Last)
		last = end + unknownNumbers
		lost[name] = append(lost[name], blocks.Range{From: end + 1, To: last})
	}
	gone, err := blocks.Repair(st.report, st.shape, st.mark, last, aside)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		lost[name] = append(lost[name], gone...)
	}
	if unused := (blocks.Range{From: st.report.Last + 1, To: last}); !blocks.Covered(unused, lost[name]) {
		lost[name] = append(lost[name], unused) // the stream goes on behind them
	}
	st.report, err = blocks.Check(s.dir.streams(), st.shape, false, blocks.Mark{}, lost[name])
	return err
}

// replaceDatabase sets the database aside and makes one that the event log fills. What is in the log was handled before, so that
// its replay sends nothing.
func (s *Survey) replaceDatabase(b *Backend, aside string) error {
	if err := s.close(); err != nil {
		return err
	}
	if err := s.dir.moveTo(aside, s.dir.state()); err != nil {
		return err
	}
	clear(s.view.hidden)
	clear(s.view.cut)
	if err := s.openForWriting(b, aside); err != nil {
		return err
	}
	s.positions = make([]uint64, s.id.Partitions)
	s.id.Quiet = make([]uint64, s.id.Partitions)
	for i := range s.streams {
		if st := &s.streams[i]; st.partition >= 0 {
			s.id.Quiet[st.partition] = st.report.Last
			st.mark.Taken = 0
		}
	}
	return nil
}

// bridge accepts the messages that neither the database nor the log has.
func (s *Survey) bridge(st *stream, lost map[string][]blocks.Range) error {
	if st.partition < 0 {
		return nil
	}
	at, r := max(s.positions[st.partition], 1), st.report
	if r.Messages > 0 && r.First > at {
		lost[st.shape.Name] = append(lost[st.shape.Name], blocks.Range{From: at, To: r.First - 1})
	} else if r.Messages == 0 && r.Last >= at {
		lost[st.shape.Name] = append(lost[st.shape.Name], blocks.Range{From: at, To: r.Last})
	}
	s.positions[st.partition] = at
	return state.StorePosition(s.db, st.partition, at)
}

// corrupt is told by the database, where it is read, that a file of it is damaged. The backend goes on with what it can read, is not
// ready any more, and the next start waits for a repair.
func (b *Backend) corrupt(info pebble.DataCorruptionInfo) {
	note := damageNote{Time: time.Now().UTC(), File: info.Path, What: strings.TrimSpace(fmt.Sprint(info.Details))}
	if !b.damaged.CompareAndSwap(nil, &note) {
		return
	}
	b.log.Error("the state database is damaged: stop the backend and run \"lapwing backend repair\"", "file", note.File, "err", note.What)
	if err := writeSealed((&stateDir{path: b.opts.StateDir}).damage(), &note); err != nil {
		b.log.Error("cannot note the damage for the next start", "err", err)
	}
}

// damage is why the database is not to be relied on, or nil.
func (b *Backend) damage() error {
	if note := b.damaged.Load(); note != nil {
		return fmt.Errorf("the state database is damaged in %s: %s; stop the backend and run \"lapwing backend repair --state-dir %s\"",
			note.File, note.What, b.opts.StateDir)
	}
	return nil
}

// damageError says that a state directory has losses that no operator accepted.
type damageError struct{ survey *Survey }

func (e *damageError) Error() string {
	lost := e.survey.Lost()
	text := "the state directory is damaged: " + lost[0].String()
	if n := len(lost) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + "; put a backup in its place, or go on without what is lost: lapwing backend repair --state-dir " + e.survey.Dir
}

// openState takes hold of the state directory and makes it ready. It fails with a damageError if something is lost.
func (b *Backend) openState() (*Survey, error) {
	s, err := b.hold()
	if err != nil {
		return nil, err
	}
	if len(s.Lost()) > 0 {
		return nil, errors.Join(&damageError{s}, s.close(), s.dir.close())
	}
	if err := s.makeReady(b); err != nil {
		return nil, errors.Join(err, s.close(), s.dir.close())
	}
	for _, f := range s.Findings {
		b.log.Warn("a damaged part of the state directory was made anew, nothing is lost", "part", f.Part, "file", f.File, "what", f.What)
	}
	switch {
	case s.earlier:
		b.log.Info("the state directory of an earlier release was taken over", "verify_seconds", s.Took.Seconds())
	case s.Unclean:
		b.log.Info("recovered after an unclean stop", "unfinished_bytes", s.unfinished, "verify_seconds", s.Took.Seconds())
	}
	return s, nil
}

// makeReady makes a directory without losses ready for the broker: as a member of a cluster, or alone.
func (s *Survey) makeReady(b *Backend) error {
	member := b.opts.Cluster.on()
	if !member && s.id.Member != "" && s.id.NATS == "" && s.id.Brings == "" {
		return &optionerr.Error{Flag: "peers", Err: fmt.Errorf(
			"the state directory is of member %s of a cluster: name the other members", s.id.Member)}
	}
	if err := s.tidy(b, s.dir.aside()); err != nil {
		return err
	}
	switch {
	case member && s.id.Member == "":
		return s.beginToBring(b)
	case member && s.id.Brings != "":
		return s.setStreamsApart()
	case s.id.Brings != "":
		return s.giveUpToBring(b)
	}
	return nil
}

const (
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
)

// waitFor calls try until it succeeds or fails for another reason than that it has to wait. The reason is what the API answers
// meanwhile, and is logged when it changes and then ever more seldom.
func (b *Backend) waitFor(ctx context.Context, message string, try func() error) error {
	pause, logged, again := firstPause, time.Time{}, time.Minute
	last := ""
	for {
		err := try()
		var wait *waitError
		if !errors.As(err, &wait) {
			return err
		}
		b.waitsFor(wait)
		if wait.kind != last || time.Since(logged) >= again {
			if !logged.IsZero() {
				again *= 2
			}
			last, logged = wait.kind, time.Now()
			b.log.Error(message, append([]any{"reason", wait.Error()}, wait.attrs...)...)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", wait.Error(), context.Cause(ctx))
		}
		pause = min(pause*3/2, longestPause)
	}
}

// waitError is why a start cannot go on yet. Its kind stays the same while only numbers in its text change.
type waitError struct {
	kind, text string
	attrs      []any
}

func (e *waitError) Error() string { return e.text }
