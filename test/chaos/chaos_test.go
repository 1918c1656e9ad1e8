//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/longtest"
)

// programDir is where the program is, once it is built.
var programDir string

var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lapwing-chaos-test-")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "chaos")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// chaos runs the program. The test is skipped where schedules cannot be played. If it fails, the runs' directories
// stay.
func chaos(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	if err := canPlay(); err != nil {
		t.Skip(err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "lapwing-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	cmd := exec.CommandContext(t.Context(), path, append(args, "-dir", dir)...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	status = cmd.ProcessState.ExitCode()
	if status == exitCannot {
		t.Skip(string(text))
	}
	return status, string(text)
}

// TestSchedules plays a few schedules; `make chaos` plays many.
func TestSchedules(t *testing.T) {
	longtest.Only(t)
	t.Parallel()
	status, out := chaos(t, "-schedules", "3", "-parallel", "3", "-seed", "1", "-duration", "45s")
	if status != exitPassed {
		t.Errorf("exit status %d", status)
	}
	t.Log(out)
}
