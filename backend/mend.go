package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/state"
)

func isNoSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) }

// moveAside moves a file or directory of the state directory to where damaged ones are kept.
func (d *stateDir) moveAside(path string) error { return d.moveTo(d.aside(), path) }

func (d *stateDir) moveTo(aside, path string) error {
	if !exists(path) {
		return nil
	}
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	if err := os.Rename(path, filepath.Join(aside, filepath.Base(path))); err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	return errors.Join(blocks.SyncDir(filepath.Dir(path)), blocks.SyncDir(aside))
}

// tidy makes a directory without losses ready for the broker: what can be derived is cleared away, writes that were under way are
// cut off, and each mark says how its stream stands.
func (s *Survey) tidy(wantPartitions int) error {
	for i := range s.streams {
		if err := blocks.Tidy(s.streams[i].report, s.Unclean, s.dir.aside()); err != nil {
			return err
		}
		if err := s.remark(&s.streams[i]); err != nil {
			return err
		}
	}
	if err := s.id.complete(wantPartitions); err != nil {
		return err
	}
	if err := storeIdentity(s.db, &s.id); err != nil {
		return err
	}
	if err := writeSealed(s.dir.identity(), &s.id); err != nil {
		return err
	}
	return s.dir.recordFiles(false)
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
	return blocks.WriteMark(s.dir.broker(), st.shape.Name, m)
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
	Aside string // directory of what was set aside; "" if nothing was
}

// Verify reads all of a state directory that no backend uses, and changes nothing but that the database catches up.
func Verify(opts Options) (*Survey, error) {
	b, err := New(opts)
	if err != nil {
		return nil, err
	}
	if !exists(opts.StateDir) {
		return nil, fmt.Errorf("verify: there is no state directory %s", opts.StateDir)
	}
	dir, err := openStateDir(opts.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.close() }()
	s, err := b.survey(dir)
	if err != nil {
		return nil, err
	}
	s.readDatabase()
	return s, s.close()
}

// readDatabase reads every key and value, which a start does not.
func (s *Survey) readDatabase() {
	if s.db == nil || s.dbLost {
		return
	}
	if err := checkDatabase(s.db); err != nil {
		s.loseDatabase(s.dir.state(), firstLine(err))
	}
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

// Repair accepts the losses of a state directory that no backend uses, so that the next start goes on with what is left. Nothing
// is deleted: damaged files are set aside.
func Repair(opts Options, do RepairOptions) (*Repaired, error) {
	b, err := New(opts)
	if err != nil {
		return nil, err
	}
	if !exists(opts.StateDir) {
		return nil, fmt.Errorf("repair: there is no state directory %s", opts.StateDir)
	}
	dir, err := openStateDir(opts.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.close() }()
	s, err := b.survey(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.close() }()
	s.readDatabase()
	done := &Repaired{Lost: s.Lost()}
	if len(done.Lost) == 0 && !do.NewAdministrator {
		return done, nil
	}
	if len(done.Lost) > 0 {
		done.Aside = dir.aside()
		if err := s.repair(b, done); err != nil {
			return nil, err
		}
	}
	s.id.Reseed = s.id.Reseed || do.NewAdministrator
	if err := writeSealed(dir.identity(), &s.id); err != nil {
		return nil, err
	}
	if err := s.close(); err != nil {
		return nil, err
	}
	again, err := b.survey(dir)
	if err != nil {
		return nil, err
	}
	if err := again.close(); err != nil {
		return nil, err
	}
	if rest := again.Lost(); len(rest) > 0 {
		return nil, fmt.Errorf("repair: this is still wrong: %s", rest[0])
	}
	return done, nil
}

func (s *Survey) repair(b *Backend, done *Repaired) error {
	lost := map[string][]blocks.Range{}
	for name, ranges := range s.id.Lost {
		lost[name] = ranges
	}
	for i := range s.streams {
		st := &s.streams[i]
		name, last := st.shape.Name, st.mark.Taken
		if st.partition >= 0 && s.positions != nil {
			last = s.positions[st.partition]
		}
		gone, err := blocks.Repair(st.report, st.shape, st.mark, max(last, 1)-1, done.Aside)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			lost[name] = append(lost[name], gone...)
		}
		if st.report, err = blocks.Check(s.dir.broker(), st.shape, false, blocks.Mark{}, lost[name]); err != nil {
			return err
		}
	}
	if err := s.id.complete(0); err != nil {
		return err
	}
	if s.dbLost {
		if err := s.replaceDatabase(b, done.Aside); err != nil {
			return err
		}
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

// replaceDatabase sets the database aside and makes one that the event log fills. What is in the log was handled before, so that
// its replay sends nothing.
func (s *Survey) replaceDatabase(b *Backend, aside string) (err error) {
	if err := s.close(); err != nil {
		return err
	}
	if err := s.dir.moveTo(aside, s.dir.state()); err != nil {
		return err
	}
	if s.db, err = s.dir.openDB(dbLog{b.log.With("component", "pebble")}, b.corrupt); err != nil {
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
	return storeIdentity(s.db, &s.id)
}

// bridge accepts the messages that neither the database nor the log has, and marks the stream as it now is.
func (s *Survey) bridge(st *stream, lost map[string][]blocks.Range) error {
	if st.partition >= 0 {
		at, r := max(s.positions[st.partition], 1), st.report
		if r.Messages > 0 && r.First > at {
			lost[st.shape.Name] = append(lost[st.shape.Name], blocks.Range{From: at, To: r.First - 1})
		} else if r.Messages == 0 && r.Last >= at {
			lost[st.shape.Name] = append(lost[st.shape.Name], blocks.Range{From: at, To: r.Last})
		}
		if err := state.StorePosition(s.db, st.partition, at); err != nil {
			return err
		}
		s.positions[st.partition] = at
	}
	return s.remark(st)
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
		return fmt.Errorf("the state database is damaged in %s: %s; stop the backend and run \"lapwing backend repair --state-dir %s\"", note.File, note.What, b.opts.StateDir)
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
func (b *Backend) openState() (s *Survey, err error) {
	dir, err := openStateDir(b.opts.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = dir.close()
		}
	}()
	if s, err = b.survey(dir); err != nil {
		return nil, err
	}
	if len(s.Lost()) > 0 {
		if err := s.close(); err != nil {
			return nil, err
		}
		return nil, &damageError{s}
	}
	if err := s.tidy(b.opts.Partitions); err != nil {
		return nil, errors.Join(err, s.close())
	}
	for _, f := range s.Findings {
		b.log.Warn("a damaged part of the state directory was made anew, nothing is lost", "part", f.Part, "file", f.File, "what", f.What)
	}
	if s.Unclean {
		b.log.Info("recovered after an unclean stop", "unfinished_bytes", s.unfinished, "verify_seconds", s.Took.Seconds())
	}
	return s, nil
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
