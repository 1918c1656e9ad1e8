package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lapwing-monitoring/lapwing/api/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestWritesOnAFullDiskAreDurable stores definitions until the disk is full, kills the backend and makes room. All that was answered
// with 2xx must be there. Definitions are of two sizes, so that the disk fills within a page and within a record.
func TestWritesOnAFullDiskAreDurable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	p := newProcess(t)
	state := filepath.Join(p.dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "size=96m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(state, syscall.MNT_DETACH) })
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
			if err := client.Put(t.Context(), c, client.Checks, "default", name, check); err != nil {
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

// leaveFree fills a file system but for so many bytes.
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
