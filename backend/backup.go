package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/backup"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/state"
)

// backups makes backups of a running backend, one at a time.
//
// A backup is what a kill would leave: the state database at one moment, and the event log from the database's
// positions to its end at a later moment. Everything that the database knows is in that part of the log or before it,
// so a start on both is the start after a kill. The definitions are copied after that, because an agent's entity is
// stored before its first event.
type backups struct {
	b       *Backend
	p       *parts
	metrics backupMetrics
	turn    sync.Mutex // held by the backup under way
}

type backupMetrics struct {
	running, finished prometheus.Gauge
	failures          prometheus.Counter
}

func newBackups(b *Backend, p *parts) *backups {
	m := backupMetrics{
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_backup_running", Help: "1 while a backup is made, else 0.",
		}),
		finished: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_backup_finished_timestamp_seconds",
			Help: "When this process last finished a backup; 0 if it has made none.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_backup_failures_total", Help: "Backups that were begun and not finished.",
		}),
	}
	b.opts.Registry.MustRegister(m.running, m.finished, m.failures)
	return &backups{b: b, p: p, metrics: m}
}

// Write writes a backup. It fails with backup.ErrBusy or backup.ErrNoRoom before it writes anything. A later error is
// in the backup too, and the backup is then refused by its reader.
func (m *backups) Write(ctx context.Context, w io.Writer) error {
	if !m.turn.TryLock() {
		return backup.ErrBusy
	}
	defer m.turn.Unlock()
	dir := m.p.dir.checkpoint()
	if err := m.prepare(dir); err != nil {
		return err
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			m.b.log.Error("the copy of the state database that a backup needed was not removed", "dir", dir, "err", err)
		}
	}()
	m.metrics.running.Set(1)
	defer m.metrics.running.Set(0)
	begin := time.Now()
	out, err := backup.NewWriter(w)
	if err == nil {
		err = m.write(ctx, out, dir)
	}
	if err != nil {
		m.metrics.failures.Inc()
		m.b.log.Error("backup was not finished", "err", err)
		if out != nil {
			_ = out.Fail(err) // the client has the reason, if it is still there
		}
		return err
	}
	m.metrics.finished.SetToCurrentTime()
	m.b.log.Info("backup is finished", "seconds", time.Since(begin).Seconds())
	return nil
}

// checkpoint is the directory of the state database's copy while a backup is made. A start removes what a killed
// backend has left there.
func (d *stateDir) checkpoint() string { return filepath.Join(d.path, "backup") }

const (
	// backupRoom is how many bytes a backup or a restore needs beside the known ones.
	backupRoom = 16 << 20
	// backupGrowth is how much the event log may grow until a slow client has read its part of it, in bytes.
	backupGrowth = 1 << 30
)

// prepare makes the directory for the copy of the database, and checks that there is space for it. Tables and values
// are linked, and only the newest writes are copied, unless the directory is in another file system than the database.
func (m *backups) prepare(dir string) error {
	if err := m.b.damage(); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove an old copy of the state database: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for a copy of the state database: %w", err)
	}
	names, err := m.p.dir.databaseFiles("*")
	if err != nil {
		return err
	}
	linked, copied := false, uint64(0)
	if link := filepath.Join(dir, "link"); len(names) > 0 {
		linked = os.Link(filepath.Join(m.p.dir.state(), names[0]), link) == nil && os.Remove(link) == nil
	}
	for _, name := range names {
		if ext := filepath.Ext(name); linked && (ext == tableFile || ext == valuesFile) {
			continue
		}
		if st, err := os.Stat(filepath.Join(m.p.dir.state(), name)); err == nil {
			copied += uint64(st.Size())
		}
	}
	if err := m.b.backupSpace(copied); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// backupSpace is backup.ErrNoRoom unless a backup or a restore can write so many bytes.
func (b *Backend) backupSpace(bytes uint64) error {
	err := b.space(bytes + backupRoom)
	if full := new(fullError); errors.As(err, &full) {
		return fmt.Errorf("%w: %d bytes are free in %s, %d needed (%d of them for --min-free-disk)",
			backup.ErrNoRoom, full.free, full.dir, full.needed, full.reserve)
	}
	return err
}

func (m *backups) write(ctx context.Context, out *backup.Writer, dir string) error {
	release, err := m.p.log.Hold(ctx, backupGrowth)
	if err != nil {
		return err
	}
	defer release()
	// Read before the copy is made: the copy may be further on, so the log has at least what it needs.
	ranges := make([]backup.Range, m.p.log.Partitions())
	for i := range ranges {
		next, err := state.StoredPosition(m.p.db, i)
		if err != nil {
			return err
		}
		ranges[i].First = max(next, 1)
	}
	files := filepath.Join(dir, "state")
	if err := m.p.db.Checkpoint(files, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy the state database: %w", err)
	}
	for i := range ranges {
		if err := m.bound(ctx, i, &ranges[i]); err != nil {
			return err
		}
	}
	manifest, err := m.manifest(ranges, files)
	if err != nil {
		return err
	}
	if err := out.Manifest(manifest); err != nil {
		return err
	}
	for i, r := range ranges {
		if err := m.writeLog(ctx, out, i, r); err != nil {
			return err
		}
	}
	release()
	if err := m.writeDefinitions(ctx, out); err != nil {
		return err
	}
	if err := m.writeAudit(ctx, out); err != nil {
		return err
	}
	if err := m.writeDatabase(ctx, out, files); err != nil {
		return err
	}
	return out.Close()
}

// bound completes the range of a partition's messages.
func (m *backups) bound(ctx context.Context, partition int, r *backup.Range) error {
	first, last, err := m.p.log.Bounds(ctx, partition)
	if err != nil {
		return err
	}
	if last < r.First { // the database has folded all
		r.Last = r.First - 1
		return nil
	}
	r.First, r.Last = max(first, r.First), last // a repair may have accepted that the first ones are lost
	return nil
}

func (m *backups) manifest(ranges []backup.Range, files string) (*backup.Manifest, error) {
	id, err := json.Marshal(m.p.id)
	if err != nil {
		return nil, err
	}
	out := &backup.Manifest{
		Time: time.Now().UTC(), Lapwing: m.b.opts.Version, Backend: m.p.id.Cluster, Host: hostname(""),
		Log: ranges, Identity: id,
	}
	out.Entities, out.Events = m.p.state.Size()
	entries, err := os.ReadDir(files)
	if err != nil {
		return nil, fmt.Errorf("list the copy of the state database: %w", err)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			return nil, err
		}
		out.DatabaseBytes += st.Size()
	}
	return out, nil
}

func (m *backups) writeLog(ctx context.Context, out *backup.Writer, partition int, r backup.Range) error {
	if err := out.Begin(&backup.Section{Part: backup.PartLog, Partition: partition}); err != nil {
		return err
	}
	return m.p.log.Copy(ctx, partition, r.First, r.Last, func(msg *broker.Message) error {
		return out.Message(&backup.Message{Sequence: msg.Seq, Time: msg.Time.UnixNano(), Data: msg.Data})
	})
}

func (m *backups) writeDefinitions(ctx context.Context, out *backup.Writer) error {
	if err := out.Begin(&backup.Section{Part: backup.PartDefinitions}); err != nil {
		return err
	}
	return config.Copy(ctx, m.p.broker, func(c *config.Copied) error {
		return out.Message(&backup.Message{
			Sequence: c.Seq, Time: c.Time.UnixNano(), Key: c.Key, Deleted: c.Deletes(), Data: c.Data,
		})
	})
}

func (m *backups) writeAudit(ctx context.Context, out *backup.Writer) error {
	if err := out.Begin(&backup.Section{Part: backup.PartAudit}); err != nil {
		return err
	}
	return audit.Copy(ctx, m.p.broker, func(id uint64, at time.Time, entry []byte) error {
		return out.Message(&backup.Message{Sequence: id, Time: at.UnixNano(), Data: entry})
	})
}

func (m *backups) writeDatabase(ctx context.Context, out *backup.Writer, files string) error {
	entries, err := os.ReadDir(files)
	if err != nil {
		return fmt.Errorf("list the copy of the state database: %w", err)
	}
	for _, e := range entries {
		if err := m.writeFile(ctx, out, filepath.Join(files, e.Name())); err != nil {
			return fmt.Errorf("write %s of the state database: %w", e.Name(), err)
		}
	}
	return nil
}

// writeFile writes a file of the copy and then removes it: it may be the last name of a table that the database has
// replaced in the meantime, and hold its space.
func (m *backups) writeFile(ctx context.Context, out *backup.Writer, path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, errors.Join(f.Close(), os.Remove(path))) }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	begin := &backup.Section{Part: backup.PartDatabase, Name: filepath.Base(path), Size: st.Size()}
	if err := out.Begin(begin); err != nil {
		return err
	}
	for left := st.Size(); left > 0; {
		if err := m.mayGoOn(ctx); err != nil {
			return err
		}
		n, err := io.CopyN(out, f, min(left, 1<<20))
		if left -= n; err != nil {
			return err
		}
	}
	return nil
}

// mayGoOn ends a backup whose client is gone, and one that holds the space that the event log needs.
func (m *backups) mayGoOn(ctx context.Context) error {
	if err := m.p.log.Err(); errors.Is(err, eventlog.ErrDiskFull) {
		return fmt.Errorf("%w: %w", backup.ErrNoRoom, err)
	}
	return context.Cause(ctx)
}
