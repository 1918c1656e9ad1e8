package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/backup"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Restore makes a state directory from the file of a backup. The directory must be new, empty, or left by a restore
// that was not finished. The whole file is checked before anything is written. progress, if not nil, is called now and
// then with what is done, and with how many bytes of the file that is done with.
//
// The parts are made in a directory of their own and moved to their places at the end. While that directory is there,
// no backend starts.
func Restore(ctx context.Context, opts Options, file string, progress func(step string, bytes int64),
) (*backup.Summary, error) {
	if progress == nil {
		progress = func(string, int64) {}
	}
	b, err := newBackend(opts)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open backup: %w", err)
	}
	defer func() { _ = f.Close() }()
	found, err := backup.Read(f, func(_ string, bytes int64) { progress("checked", bytes) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read backup again: %w", err)
	}
	dir, err := b.holdEmpty()
	if err != nil {
		return nil, err
	}
	r := &restore{b: b, found: found, dir: dir, made: &stateDir{path: dir.restoring()}, progress: progress}
	if err := errors.Join(r.run(ctx, f), dir.close()); err != nil {
		return nil, err
	}
	return found, nil
}

// restore is one restore.
type restore struct {
	b        *Backend
	found    *backup.Summary
	dir      *stateDir // where all goes
	made     *stateDir // where it is made
	id       identity
	progress func(step string, bytes int64)
}

// restoring is where a restore makes its parts.
func (d *stateDir) restoring() string { return filepath.Join(d.path, "restoring") }

// restored is an error if a restore into the directory was not finished.
func (d *stateDir) restored() error {
	if exists(d.restoring()) {
		return fmt.Errorf("a restore into %s was not finished: run lapwing restore again, "+
			"or empty the directory for a new backend", d.path)
	}
	return nil
}

// holdEmpty takes hold of the state directory and checks that nothing is in it.
func (b *Backend) holdEmpty() (*stateDir, error) {
	dir, err := openStateDir(b.opts.StateDir)
	if err != nil {
		return nil, err
	}
	if err := dir.empty(); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return dir, nil
}

// empty is an error if the directory was used. It removes what an unfinished restore has left.
func (d *stateDir) empty() error {
	if exists(d.restoring()) {
		for _, path := range [...]string{d.identity(), d.files(), d.state(), d.broker(), d.restoring()} {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("remove what an unfinished restore has left: %w", err)
			}
		}
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("look into state directory: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "lock" && name != "lost+found" {
			return fmt.Errorf("%s is not empty, it has %q: a restore needs an empty directory, "+
				"so that nothing is lost; move the old one away, or name another", d.path, name)
		}
	}
	return nil
}

func (r *restore) run(ctx context.Context, f io.Reader) error {
	if err := json.Unmarshal(r.found.Identity, &r.id); err != nil {
		return fmt.Errorf("read identity of the backup: %w", err)
	}
	if err := r.id.readable(); err != nil {
		return err
	}
	// The revisions of definitions are given out anew. The backup may be of a member of a cluster, and what is restored is
	// a backend alone, or brings its data into a new cluster.
	delete(r.id.Lost, config.Stored().Name)
	r.id.Member, r.id.NATS, r.id.Brings = "", "", ""
	if len(r.found.Log) != r.id.Partitions || r.id.Cluster == "" {
		return fmt.Errorf("the backup has %d partitions of the event log, its identity %d", len(r.found.Log), r.id.Partitions)
	}
	// The definitions and the log have some bytes more on the disk, for each message, than in the file.
	if err := r.b.backupSpace(uint64(r.found.Bytes + r.found.Bytes/4)); err != nil {
		return fmt.Errorf("%w; nothing was restored", err)
	}
	if err := os.MkdirAll(r.made.state(), 0o700); err != nil {
		return fmt.Errorf("make directory to restore into: %w", err)
	}
	err := r.fill(ctx, f)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(r.made.path))
	}
	return r.move()
}

// fill writes all parts to where they are made.
func (r *restore) fill(ctx context.Context, f io.Reader) (err error) {
	nats, err := broker.New(broker.Options{Dir: r.made.broker(), Logger: r.b.log, Unsynced: true})
	if err != nil {
		return err
	}
	if err := nats.Start(ctx); err != nil {
		return err
	}
	err = r.readParts(ctx, nats, f)
	if err := errors.Join(err, nats.Stop()); err != nil {
		return err
	}
	return r.seal()
}

func (r *restore) readParts(ctx context.Context, nats *broker.Broker, f io.Reader) error {
	in, err := backup.NewReader(f)
	if err != nil {
		return err
	}
	if len(in.Manifest.Log) != len(r.found.Log) {
		return errors.New("the backup has changed since it was checked")
	}
	for {
		section, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err = errors.Join(err, context.Cause(ctx)); err != nil {
			return err
		}
		r.progress("restored", in.Size())
		if err := r.readPart(ctx, nats, in, section); err != nil {
			return fmt.Errorf("restore %s: %w", section, err)
		}
	}
}

func (r *restore) readPart(ctx context.Context, nats *broker.Broker, in *backup.Reader, section *backup.Section) error {
	switch section.Part {
	case backup.PartLog:
		first := r.found.Log[section.Partition].First
		return eventlog.Refill(ctx, nats, section.Partition, len(r.found.Log), first, func(add func([]byte) error) error {
			return r.eachMessage(in, func(m *backup.Message) error { return add(m.Data) })
		})
	case backup.PartDefinitions:
		return r.readDefinitions(ctx, nats, in)
	case backup.PartAudit:
		return r.readAudit(ctx, nats, in)
	case backup.PartDatabase:
		return r.readFile(in, filepath.Join(r.made.state(), section.Name))
	}
	return errors.New("the part is unknown") // backup.Read has refused it
}

// readDefinitions restores the newest value of each definition. Their revisions go on far above those of the backup, so
// that no client that has seen a later one takes a new one for it.
func (r *restore) readDefinitions(ctx context.Context, nats *broker.Broker, in *backup.Reader) error {
	first := r.found.LastDefinition() + unknownNumbers
	return config.Refill(ctx, nats, first, func(add func(string, []byte) error) error {
		return r.eachMessage(in, func(m *backup.Message) error {
			if !r.found.Newest(m) {
				return nil
			}
			return add(m.Key, m.Data)
		})
	})
}

// readAudit restores the audit log. Its first entry has the ID that it had.
func (r *restore) readAudit(ctx context.Context, nats *broker.Broker, in *backup.Reader) error {
	var m backup.Message
	err := in.Message(&m)
	if errors.Is(err, io.EOF) {
		return audit.Refill(ctx, nats, 1, func(func([]byte) error) error { return nil })
	}
	if err != nil {
		return err
	}
	return audit.Refill(ctx, nats, m.Sequence, func(add func([]byte) error) error {
		if err := add(m.Data); err != nil {
			return err
		}
		return r.eachMessage(in, func(m *backup.Message) error { return add(m.Data) })
	})
}

func (r *restore) eachMessage(in *backup.Reader, f func(*backup.Message) error) error {
	var m backup.Message
	for {
		err := in.Message(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(&m)
		}
		if err != nil {
			return err
		}
		r.progress("restored", in.Size())
	}
}

func (r *restore) readFile(in *backup.Reader, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	r.progress("restored", in.Size())
	return errors.Join(err, f.Close())
}

// seal opens the database once, so that its newest writes are in tables, and writes the marks of the streams, the
// identity and the record of files.
func (r *restore) seal() error {
	r.progress("completing", r.found.Size)
	db, err := r.made.openDB(r.b, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(r.compare(db), r.acceptStreams(db), r.made.store(db, &r.id), db.Close()); err != nil {
		return err
	}
	streams := []blocks.Stream{config.Stored(), audit.Stored(0)}
	for p := range r.id.Partitions {
		streams = append(streams, eventlog.Stored(p))
	}
	for _, st := range streams {
		report, err := blocks.Check(r.made.broker(), st, true, blocks.Mark{}, r.id.Lost[st.Name])
		if err != nil {
			return err
		}
		if err := blocks.WriteMark(r.made.broker(), st.Name, report.Mark()); err != nil {
			return err
		}
	}
	if err := syncTree(r.made.path); err != nil {
		return err
	}
	return r.made.write(true)
}

// compare checks that the log has what the database is to read next.
func (r *restore) compare(db *pebble.DB) error {
	for i, have := range r.found.Log {
		next, err := state.StoredPosition(db, i)
		if err != nil {
			return err
		}
		next = max(next, 1)
		accepted := blocks.Covered(blocks.Range{From: next, To: have.First - 1}, r.id.Lost[eventlog.Stored(i).Name])
		if next < have.First && !accepted || next > have.Last+1 {
			return fmt.Errorf("the state of the backup reads partition %d of the event log from message %d on, "+
				"and the log has %d to %d", i, next, have.First, have.Last)
		}
	}
	return nil
}

// acceptStreams makes the database go on with the streams that were made here, which have ids of their own.
func (r *restore) acceptStreams(db *pebble.DB) error {
	for p := range r.id.Partitions {
		if err := state.AcceptStream(db, p); err != nil {
			return err
		}
	}
	return nil
}

// check surveys what was made, as the next start will.
func (r *restore) check() error {
	r.progress("verifying", r.found.Size)
	s, err := r.b.survey(r.made)
	if err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	if len(s.Findings) > 0 {
		return fmt.Errorf("what was restored is not sound: %s", s.Findings[0])
	}
	return nil
}

// move puts the parts into their places.
func (r *restore) move() error {
	for _, move := range [...][2]string{
		{r.made.state(), r.dir.state()}, {r.made.broker(), r.dir.broker()}, {r.made.files(), r.dir.files()},
		{r.made.identity(), r.dir.identity()},
	} {
		if err := os.Rename(move[0], move[1]); err != nil {
			return fmt.Errorf("put what was restored in its place: %w", err)
		}
	}
	if err := blocks.SyncDir(r.dir.path); err != nil {
		return fmt.Errorf("put what was restored in its place: %w", err)
	}
	if err := os.RemoveAll(r.made.path); err != nil {
		return fmt.Errorf("remove the directory that was restored into: %w", err)
	}
	return blocks.SyncDir(r.dir.path)
}

// syncTree syncs all files and directories below a path.
func syncTree(path string) error {
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return blocks.SyncDir(path)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	if err != nil {
		return fmt.Errorf("sync the files in %s: %w", path, err)
	}
	return nil
}
