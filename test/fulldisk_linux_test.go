package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/backup"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestWritesOnAFullDiskAreDurable stores definitions until the disk is full, kills the backend and makes room. All
// definitions that were answered with 2xx must be there. They have two sizes, so that the disk fills within a page and
// within a record.
func TestWritesOnAFullDiskAreDurable(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	state := filepath.Join(p.dir, "state")
	mountSmall(t, state, 96<<20)
	ballast := filepath.Join(state, "ballast")
	stored := map[string]int{} // by name, the length of the command
	for round, size := range []int{300, 20_000} {
		p.start()
		c := p.client()
		leaveFree(t, ballast, 300_000)
		refused := 0
		for i := 0; refused < 2; i++ {
			name, command := fmt.Sprintf("check-%d-%d", round, i), strings.Repeat("x", size)
			check := &resource.CheckConfig{
				Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: command, Interval: 60, Subscriptions: []string{"none"},
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a full disk may give no answer
			err := client.Put(ctx, c, client.Checks, "default", name, check)
			cancel()
			if err != nil {
				refused++
				continue
			}
			stored[name] = size
		}
		p.kill(syscall.SIGKILL)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		p.start()
		c = p.client()
		missing := 0
		for name, length := range stored {
			check, err := client.Get(t.Context(), c, client.Checks, "default", name)
			if err != nil || len(check.Command) != length {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("size %d: %d of %d definitions that were answered with 2xx are gone", size, missing, len(stored))
		}
		t.Logf("size %d: %d definitions stored so far", size, len(stored))
		p.kill(syscall.SIGTERM)
	}
}

// TestFirstStartOnANearlyFullDisk: a first start on a disk with little more free space than --min-free-disk waits, and
// writes and promises nothing. With room for its files it begins, and then takes events: neither its own files nor what
// the database would like to reserve use up the free space.
func TestFirstStartOnANearlyFullDisk(t *testing.T) {
	t.Parallel()
	const reserve = 160 << 20
	dir := t.TempDir()
	mountSmall(t, dir, reserve+2<<20)
	announced := make(chan string, 10)
	opts := testbackend.OptionsIn(filepath.Join(dir, "state"))
	opts.Log.MinFree, opts.Admin.Password = reserve, ""
	opts.Announce = func(_, password string) { announced <- password }
	if err := backend.Initialize(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "disk full: ") ||
		strings.Contains(err.Error(), "waiting") || !strings.Contains(err.Error(), "make room") {
		t.Errorf("init: %v", err)
	}
	b, err := backend.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- b.Start(t.Context()) }()
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	eventually(t, 30*time.Second, "it waits or has started", func() bool {
		return strings.Contains(b.Starting().Error(), "disk full: ") || len(announced)+len(started) > 0
	})
	if reason := b.Starting().Error(); !strings.Contains(reason, "for the first start; waiting: make room") || len(announced) > 0 || exists(opts.StateDir) {
		t.Fatalf("%d passwords were told; the start is at: %s", len(announced), reason)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprint("size=", reserve+16<<20)); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{URL: "http://" + b.APIAddr().String(), Username: "admin", Password: <-announced})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for n := range int64(20) {
		ev := testbackend.Event("first", "check-0", 0, n)
		ev.Entity.EntityClass = resource.EntityProxyClass
		if err := client.Put(t.Context(), c, client.Events, "default", client.EventName("first", "check-0"), ev); err != nil {
			t.Fatalf("event %d: %v", n, err)
		}
	}
	if free, err := eventlog.FreeSpace(dir); err != nil || free < reserve {
		t.Errorf("the start has left %d of %d bytes free, %v", free, reserve, err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
}

// TestStopOnAFullDisk stops a backend when no byte is free, with nothing to write and with results that were not written yet. It ends
// in order, says what to do, and the next start has all that was acknowledged.
func TestStopOnAFullDisk(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	state := filepath.Join(p.dir, "state")
	mountSmall(t, state, 64<<20)
	ballast := filepath.Join(state, "ballast")
	const results = 50
	for round, want := range [][]string{
		{"Error: stop state directory: note the clean stop: "},
		{"Error: stop state: ", "the disk is full: the state database cannot write"}, // by which write fails first
	} {
		p.start()
		c := p.client()
		for n := range round * results {
			ev := testbackend.Event(fmt.Sprint("full-", n), "check-0", 2, 1)
			ev.Entity.EntityClass, ev.Check.Output = resource.EntityProxyClass, strings.Repeat("x", 3000)
			if err := client.Put(t.Context(), c, client.Events, "default", client.EventName(ev.Entity.Metadata.Name, "check-0"), ev); err != nil {
				t.Fatal(err)
			}
		}
		before := len(p.text())
		fillUp(t, ballast)
		cmd := p.cmd
		p.kill(syscall.SIGTERM)
		said := p.text()[before:]
		told := slices.ContainsFunc(want, func(text string) bool { return strings.Contains(said, text) })
		if code := cmd.ProcessState.ExitCode(); code != 1 || !told || !strings.Contains(said, "nothing is lost: ") || strings.Contains(said, "goroutine ") {
			t.Errorf("round %d: exit status %d:\n%s", round, code, said)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	p.start()
	c := p.client()
	for n := range results {
		if _, err := client.Get(t.Context(), c, client.Events, "default", client.EventName(fmt.Sprint("full-", n), "check-0")); err != nil {
			t.Errorf("result %d: %v", n, err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// leaveFree fills a file system except for so many bytes.
func leaveFree(t *testing.T, ballast string, free uint64) {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(ballast), &fs); err != nil {
		t.Fatal(err)
	}
	have := fs.Bavail * uint64(fs.Bsize)
	if have <= free {
		t.Fatalf("only %d bytes are free", have)
	}
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(have-free)); err != nil {
		t.Fatal(err)
	}
}

// TestBackupOnANearlyFullDisk: a backup that has no space begins nothing, and one that has space does not stop events.
func TestBackupOnANearlyFullDisk(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	state := filepath.Join(p.dir, "state")
	mountSmall(t, state, 96<<20)
	p.start()
	c := p.client()
	ballast := filepath.Join(state, "ballast")
	leaveFree(t, ballast, 10<<20)
	var refused *client.Error
	if _, err := c.Backup(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusInsufficientStorage {
		t.Errorf("without space: %v", err)
	}
	if exists(filepath.Join(state, "backup")) {
		t.Error("a refused backup has left its directory")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	answer, err := c.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if _, err := backup.Read(answer, nil); err != nil {
		t.Error(err)
	}
}
