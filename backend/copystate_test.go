package backend

import (
	"os"
	"testing"
)

// TestKilledWhileCopying: a start goes on where the copy of another member's state was about to replace the database.
func TestKilledWhileCopying(t *testing.T) {
	for _, tc := range []struct {
		what string
		left []string // the directories of databases that the kill leaves
	}{
		{"before", []string{"state", "copy/state"}},
		{"between", []string{"copy/replaced", "copy/state"}},
		{"behind", []string{"state", "copy/replaced"}},
	} {
		opts := quickOptions(t)
		opts.Log.Partitions = 1
		writeEvents(t, opts, 3)
		dir := &stateDir{path: opts.StateDir}
		whole := t.TempDir()
		errs := []error{
			os.CopyFS(whole, os.DirFS(dir.state())), os.RemoveAll(dir.state()), writeSealed(dir.files(), &stopRecord{}),
		}
		for _, name := range tc.left {
			errs = append(errs, os.CopyFS(dir.path+"/"+name, os.DirFS(whole)))
		}
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		writeEvents(t, opts, 5)
		if s, err := Verify(opts); err != nil || len(s.Findings) > 0 {
			t.Errorf("%s: afterwards it found %v, %v", tc.what, s.Findings, err)
		}
		if exists(dir.copied()) {
			t.Errorf("%s: the copy is still there", tc.what)
		}
	}
}
