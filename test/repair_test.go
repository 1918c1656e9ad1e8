package test

import (
	"crypto/sha256"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestRepairOfAMember: a member whose state database is lost is repaired without the names of the other members. The
// repair leaves its copies of the streams alone, and its next start gets the state of another member.
func TestRepairOfAMember(t *testing.T) {
	t.Parallel()
	all := newMembers(t, 3)
	all.start()
	lost := all[2]
	clients := []*client.Client{all[0].client(), lost.client()}
	submit(t, clients[0], "web", 2, "bad")
	all.agree(t, clients)
	lost.kill(syscall.SIGKILL)
	dir := filepath.Join(lost.dir, "state")
	if err := os.Remove(manifest(t, dir, true)); err != nil {
		t.Fatal(err)
	}
	before := checksums(t, filepath.Join(dir, "broker"))
	out, err := lapwing(t, "backend", "repair", "--state-dir", dir)
	if err != nil || !strings.Contains(out, "LOST: ") {
		t.Fatalf("repair: %v\n%s", err, out)
	}
	if after := checksums(t, filepath.Join(dir, "broker")); !maps.Equal(before, after) || len(before) == 0 {
		t.Errorf("the repair has changed the member's copies of the streams, of %d files:\n%s", len(before), out)
	}
	lost.launch()
	lost.ready()
	submit(t, clients[0], "db", 1, "late")
	all.agree(t, clients)
	known, err := outputs(t.Context(), clients[1])
	if err != nil || known["web"] != "bad 1" || known["db"] != "late 1" {
		t.Errorf("the repaired member knows %v: %v", known, err)
	}
}

// checksums returns the checksums of all files of a directory, by path.
func checksums(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	sums := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		sums[path] = sha256.Sum256(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}
