package blocks_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
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

// TestMarkOfAnEarlierBuild reads a mark whose checksum does not cover the name of the stream, and writes to it.
func TestMarkOfAnEarlierBuild(t *testing.T) {
	dir := t.TempDir()
	want := blocks.Mark{Last: 7, First: 3, FirstTime: 5, Live: 2, Taken: 4}
	b := []byte("lapwing mark 1\n\x00")
	for _, v := range [...]uint64{want.Last, want.First, uint64(want.FirstTime), want.Live, want.Taken} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	path := blocks.MarkFile(dir, "log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	if m, found, err := blocks.ReadMark(dir, "log"); err != nil || !found || m != want {
		t.Fatalf("got %+v, %v, %v", m, found, err)
	}
	marker, err := blocks.OpenMarker(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(marker.Stored(8), marker.Close()); err != nil {
		t.Fatal(err)
	}
	want.Last = 8
	if m, found, err := blocks.ReadMark(dir, "log"); err != nil || !found || m != want {
		t.Errorf("after a write: got %+v, %v, %v", m, found, err)
	}
	b[20] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if m, _, err := blocks.ReadMark(dir, "log"); !errors.Is(err, blocks.ErrBadMark) {
		t.Errorf("a damaged mark is read as %+v, %v", m, err)
	}
}
