package dirlock

import (
	"errors"
	"testing"
)

func TestOneAtATime(t *testing.T) {
	dir := t.TempDir()
	first, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("a second lock: %v, want ErrInUse", err)
	}
	for range 2 {
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := Take(dir + "/none"); err == nil {
		t.Error("a directory that is not there was locked")
	}
}
