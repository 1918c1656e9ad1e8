package backend

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

// TestInitialSpace measures what a first start writes, in blocks of 4 KiB, and holds it against what the start asks for. What the
// database sets aside beyond the end of a file does not count: see sparingFS.
func TestInitialSpace(t *testing.T) {
	for _, partitions := range []int{1, 8, mostPartitions} {
		opts := quickOptions(t)
		opts.Log.Partitions = partitions
		started(t, opts)
		var used uint64
		err := filepath.WalkDir(opts.StateDir, func(_ string, d fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = d.Info()
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the database, which runs, has removed it meanwhile
			}
			if err != nil {
				return err
			}
			const block = 4 << 10
			used += max(1, (uint64(info.Size())+block-1)/block) * block
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d partitions: %d bytes", partitions, used)
		if used > initialSpace/2 {
			t.Errorf("with %d partitions a first start writes %d bytes, more than half of the %d that it asks for", partitions, used, initialSpace)
		}
	}
}
