package blocks_test

import (
	"errors"
	"os"
	"testing"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

// TestMarkIsOfItsStream puts the mark of one stream in the place of another's.
func TestMarkIsOfItsStream(t *testing.T) {
	dir := t.TempDir()
	want := blocks.Mark{Last: 7, First: 3, FirstTime: 5, Live: 2, Taken: 4}
	if err := blocks.WriteMark(dir, "log", want); err != nil {
		t.Fatal(err)
	}
	if m, found, err := blocks.ReadMark(dir, "log"); err != nil || !found || m != want {
		t.Fatalf("got %+v, %v, %v", m, found, err)
	}
	if err := os.Rename(blocks.MarkFile(dir, "log"), blocks.MarkFile(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if m, _, err := blocks.ReadMark(dir, "other"); !errors.Is(err, blocks.ErrBadMark) {
		t.Errorf("the mark of another stream is read as %+v, %v", m, err)
	}
	if _, found, err := blocks.ReadMark(dir, "log"); err != nil || found {
		t.Errorf("no mark: %v, %v", found, err)
	}
}
