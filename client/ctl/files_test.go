package ctl

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestLockTokens renews the same tokens in many goroutines: each must start with the tokens saved by the one before.
func TestLockTokens(t *testing.T) {
	dir := t.TempDir()
	start := &files{dir: dir, cluster: cluster{APIURL: "http://x", Tokens: client.Tokens{RefreshToken: "0"}, Timeout: time.Second}}
	if err := start.save(); err != nil {
		t.Fatal(err)
	}
	const n = 30
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			f, err := readFiles(dir)
			if err != nil {
				t.Error(err)
				return
			}
			newest, done := f.lockTokens()
			defer done()
			i, err := strconv.Atoi(newest.RefreshToken)
			if err != nil {
				t.Error(err)
			}
			if err := f.saveTokens(client.Tokens{RefreshToken: strconv.Itoa(i + 1)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	end, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := start.cluster
	want.Tokens.RefreshToken = strconv.Itoa(n)
	if end.cluster != want {
		t.Errorf("got %+v, want %+v", end.cluster, want)
	}
	if rest, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(rest) > 0 {
		t.Errorf("left behind: %q", rest)
	}
}

func TestLockTokensWithoutDirectory(t *testing.T) {
	f := &files{dir: filepath.Join(t.TempDir(), "none")}
	newest, done := f.lockTokens()
	done()
	if newest != (client.Tokens{}) {
		t.Errorf("got %v", newest)
	}
}

func TestSaveReportsWhere(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&files{dir: filepath.Join(blocked, "sub")}).save()
	if err == nil || err.Error() != "save "+blocked+"/sub/cluster: mkdir "+blocked+": not a directory" {
		t.Errorf("error %v", err)
	}
}
