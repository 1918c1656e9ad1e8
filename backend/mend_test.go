package backend

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCutWrites cuts off the damaged end of a file. If the sound part cannot be written, the file must stay in its place.
func TestCutWrites(t *testing.T) {
	dir := &stateDir{path: t.TempDir()}
	if err := os.MkdirAll(dir.state(), 0o700); err != nil {
		t.Fatal(err)
	}
	// Of the second file no temporary one can be made: its name would be too long.
	for _, name := range []string{"000004.log", strings.Repeat("0", 250) + ".log"} {
		aside, path := dir.aside(), filepath.Join(dir.state(), name)
		if err := os.WriteFile(path, []byte("sound, damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		want, kept := "sound", filepath.Join(aside, "state", name)
		err := dir.cutWrites(aside, name, int64(len(want)))
		if long := len(name) > 200; long != (err != nil) {
			t.Fatalf("%s: %v", name, err)
		}
		if err != nil {
			want, kept = "sound, damaged", path
		}
		if text, err := os.ReadFile(path); string(text) != want {
			t.Errorf("in the place of %s is %q, %v", name, text, err)
		}
		if text, err := os.ReadFile(kept); !bytes.Equal(text, []byte("sound, damaged")) {
			t.Errorf("%s is kept as %q, %v", name, text, err)
		}
		for _, of := range []string{path, kept} {
			entries, err := os.ReadDir(filepath.Dir(of))
			for _, e := range entries {
				if !strings.HasSuffix(e.Name(), ".log") {
					t.Errorf("%s is left over", e.Name())
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}
