package backend

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNewestOptions: of the database's files of options only the newest counts, which is not the last by name.
func TestNewestOptions(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"OPTIONS-000003", "OPTIONS-999999", "OPTIONS-1000002", "OPTIONS-x.dbtmp", "MANIFEST-000009"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := newestOptions(entries); got != "OPTIONS-1000002" {
		t.Errorf("%q", got)
	}
	if got := newestOptions(nil); got != "" {
		t.Errorf("%q in an empty directory", got)
	}
}
