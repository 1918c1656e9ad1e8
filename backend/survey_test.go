package backend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// TestFirstStartCutOff starts backends on what a first start leaves when it is killed before it is done. Nothing was acknowledged
// then, so the next start begins anew.
func TestFirstStartCutOff(t *testing.T) {
	for name, left := range map[string][]string{
		"before the identity":     {},
		"before the database":     {"identity"},
		"before the broker":       {"identity", "state", "files"},
		"before it was all there": {"identity", "state", "files", "broker"},
	} {
		t.Run(name, func(t *testing.T) {
			opts, log := quickOptions(t), new(lines)
			b, err := New(opts)
			if err != nil {
				t.Fatal(err)
			}
			s, err := b.openState()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.close(), s.dir.close(), os.MkdirAll(s.dir.marks(), 0o700)); err != nil {
				t.Fatal(err)
			}
			for _, sign := range s.dir.signs() {
				if !slices.Contains(left, sign) {
					if err := os.RemoveAll(filepath.Join(opts.StateDir, sign)); err != nil {
						t.Fatal(err)
					}
				}
			}
			opts.Logger = slog.New(slog.NewTextHandler(log, nil))
			if err := started(t, opts).Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if text := log.String(); strings.Contains(text, "damaged") {
				t.Errorf("it says:\n%s", text)
			}
		})
	}
}

// TestInitializedDirectoryIsUsed deletes the definitions that the init command made: the next start must not make others.
func TestInitializedDirectoryIsUsed(t *testing.T) {
	opts := quickOptions(t)
	if err := Initialize(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if err := Initialize(t.Context(), opts); !errors.Is(err, auth.ErrInitialized) {
		t.Errorf("again: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(opts.StateDir, "broker")); err != nil {
		t.Fatal(err)
	}
	if text := waits(t, opts); !strings.Contains(text, "definitions: the whole stream is missing") {
		t.Errorf("it waits for %q", text)
	}
}

// waits starts a backend that cannot start, and returns why.
func waits(t *testing.T, opts Options) string {
	t.Helper()
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		return err.Error()
	}
	_ = b.Stop(context.Background())
	t.Fatal("the backend starts")
	return ""
}

// TestSurveyChangesNothing verifies a directory that was left by a kill, with damage that a start would mend.
func TestSurveyChangesNothing(t *testing.T) {
	opts := quickOptions(t)
	if err := started(t, opts).Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	dir := &stateDir{path: opts.StateDir}
	writes, err := filepath.Glob(filepath.Join(dir.state(), "*"+writesFile))
	if err != nil || len(writes) == 0 {
		t.Fatalf("no writes: %v", err)
	}
	if err := errors.Join(os.WriteFile(dir.files(), nil, 0o600), os.Truncate(writes[0], 20)); err != nil {
		t.Fatal(err)
	}
	before := listing(t, opts.StateDir)
	s, err := Verify(opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Findings) < 2 || len(s.Lost()) > 0 {
		t.Errorf("found %v", s.Findings)
	}
	if after := listing(t, opts.StateDir); after != before {
		t.Errorf("verify changed the directory from\n%sto\n%s", before, after)
	}
	done, err := Repair(opts, RepairOptions{})
	if err != nil || len(done.Anew) != len(s.Findings) || len(done.Lost) > 0 {
		t.Errorf("the repair did %+v, %v; verify found %v", done, err, s.Findings)
	}
	if s, err = Verify(opts); err != nil || len(s.Findings) > 0 || s.Unclean {
		t.Errorf("after the repair: %+v, %v", s, err)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && !strings.EqualFold(info.Name(), "lock") {
			text.WriteString(path + " " + info.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// stoppedDB opens the database that a backend has left when it was stopped, for another one that is not started.
func stoppedDB(t *testing.T, opts Options) (*Backend, *stateDir, *pebble.DB) {
	t.Helper()
	if err := started(t, opts).Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	dir := &stateDir{path: opts.StateDir}
	db, err := dir.openDB(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b, dir, db
}

// TestEarlierReleaseIsTakenOver starts a backend on the directory of a release that had neither identity nor marks, as it is and with
// a part missing.
func TestEarlierReleaseIsTakenOver(t *testing.T) {
	opts, log := quickOptions(t), new(lines)
	_, dir, db := stoppedDB(t, opts)
	if err := errors.Join(db.Delete(identityKey, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir.identity(), dir.files(), dir.signIns(), dir.marks()} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	half := opts
	half.StateDir = filepath.Join(t.TempDir(), "half")
	if err := os.CopyFS(half.StateDir, os.DirFS(opts.StateDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll((&stateDir{path: half.StateDir}).broker()); err != nil {
		t.Fatal(err)
	}
	if text := waits(t, half); !strings.Contains(text, "the directory was used, it holds state") {
		t.Errorf("without the broker's files it waits for %q", text)
	}
	opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	if err := started(t, opts).Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Contains(text, "damaged") || !strings.Contains(text, "an earlier release was taken over") {
		t.Errorf("it says:\n%s", text)
	}
	if s, err := Verify(opts); err != nil || len(s.Findings) > 0 {
		t.Errorf("afterwards: %+v, %v", s, err)
	}
}

// TestMissingWrites deletes files of writes that are not in tables yet: the database takes those that are left for all.
func TestMissingWrites(t *testing.T) {
	opts := quickOptions(t)
	if err := started(t, opts).Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	dir := &stateDir{path: opts.StateDir}
	if err := writeSealed(dir.files(), &stopRecord{}); err != nil { // as after a kill
		t.Fatal(err)
	}
	names := writeWithoutTables(t, dir)
	for name, missing := range map[string][]string{"none": nil, "oldest": names[:1], "middle": names[1:2], "both": names[:2]} {
		t.Run(name, func(t *testing.T) {
			opts := opts
			opts.StateDir = filepath.Join(t.TempDir(), "killed")
			if err := os.CopyFS(opts.StateDir, os.DirFS(dir.path)); err != nil {
				t.Fatal(err)
			}
			dir := &stateDir{path: opts.StateDir}
			for _, name := range missing {
				if err := os.Remove(filepath.Join(dir.state(), name)); err != nil {
					t.Fatal(err)
				}
			}
			_, s, err := take(opts, "test")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = errors.Join(s.close(), s.dir.close()) }()
			if len(s.Lost()) > 0 || len(s.Findings) != min(len(missing), 1) {
				t.Fatalf("found %v", s.Findings)
			}
			if len(missing) > 0 && !strings.Contains(s.Findings[0].What, "the writes before this file are missing") {
				t.Errorf("found %v", s.Findings)
			}
			for i := range names {
				value, err := stored(s.db, fmt.Appendf(nil, "test/%d", i))
				if there := len(missing) == 0 || names[i] < missing[0]; err != nil || (value != "") != there {
					t.Errorf("write %d is %q, %v", i, value, err)
				}
			}
		})
	}
}

// writeWithoutTables writes to the database until there are three files of writes, and ends as a kill does before the database
// has made a table of any. It returns the names of the files.
func writeWithoutTables(t *testing.T, dir *stateDir) []string {
	t.Helper()
	blocked := make(chan struct{})
	var block errorfs.Toggle
	block.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, tableFile) {
			<-blocked
		}
		return nil
	})
	db, err := pebble.Open(dir.state(), &pebble.Options{
		FS: errorfs.Wrap(vfs.Default, &block), FormatMajorVersion: pebble.FormatValueSeparation, Logger: dbLog{slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	killed := &stateDir{path: t.TempDir()}
	block.On()
	for i := range 3 {
		if i > 0 {
			if _, err := db.AsyncFlush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Set(fmt.Appendf(nil, "test/%d", i), []byte("written"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(killed.state(), os.DirFS(dir.state())); err != nil {
		t.Fatal(err)
	}
	close(blocked)
	if err := errors.Join(db.Close(), os.RemoveAll(dir.state()), os.Rename(killed.state(), dir.state())); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir.state(), "*"+writesFile))
	if err != nil || len(paths) < 3 {
		t.Fatalf("files of writes: %q, %v", paths, err)
	}
	var names []string
	for _, path := range paths[len(paths)-3:] {
		names = append(names, filepath.Base(path))
	}
	return names
}

// TestSystemFaultIsNoDamage has the system refuse to read the state database. That says nothing of what the files hold.
func TestSystemFaultIsNoDamage(t *testing.T) {
	b, dir, db := stoppedDB(t, quickOptions(t))
	if err := errors.Join(db.Flush(), db.Close()); err != nil { // so that it has to read tables
		t.Fatal(err)
	}
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EIO, syscall.ENOMEM} {
		for name, do := range map[string]func(*Survey) error{
			"identity": func(s *Survey) error {
				s.identityGone = "the file is missing"
				return s.settleIdentity()
			},
			"positions": func(s *Survey) error { return s.comparePositions() },
			"all":       func(s *Survey) error { return s.readDatabase() },
			"open":      nil,
		} {
			t.Run(errno.Error()+"/"+name, func(t *testing.T) {
				fault := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
					switch op.Kind {
					case errorfs.OpOpen, errorfs.OpFileRead, errorfs.OpFileReadAt:
						return &fs.PathError{Op: "read", Path: op.Path, Err: errno}
					}
					return nil
				})}
				s := &Survey{Dir: dir.path, dir: dir, badWrites: map[string]string{}, view: &databaseView{
					FS: errorfs.Wrap(vfs.Default, &fault), hidden: map[string]bool{}, cut: map[string]int64{},
				}}
				err := errors.Join(s.readIdentity(), s.readStreams(0))
				if err != nil {
					t.Fatal(err)
				}
				if do == nil {
					do = func(s *Survey) error { return s.openDatabase(b) }
				} else if s.db, err = dir.openDB(b, s.view); err != nil {
					t.Fatal(err)
				}
				fault.On()
				err = do(s)
				fault.Off()
				if !errors.Is(err, errno) || s.dbLost || len(s.Lost()) > 0 {
					t.Errorf("got error %v, and found %v", err, s.Findings)
				}
				if err := s.close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestPartitionIsMissing deletes the identity, the state database and a partition before others. The others must be found.
func TestPartitionIsMissing(t *testing.T) {
	opts := quickOptions(t)
	opts.Log.Partitions = 3
	if err := started(t, opts).Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	opts.Log.Partitions = 0
	dir := &stateDir{path: opts.StateDir}
	for _, path := range []string{dir.identity(), dir.state(), blocks.StreamDir(dir.broker(), eventlog.Stored(1).Name)} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Verify(opts)
	if err != nil {
		t.Fatal(err)
	}
	if s.id.Partitions != 3 || !slices.ContainsFunc(s.Lost(), func(f Finding) bool { return f.Part == partitionStream(1).part }) {
		t.Errorf("of %d partitions it found %v", s.id.Partitions, s.Findings)
	}
}
