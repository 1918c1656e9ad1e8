//go:build unix

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/proc"
)

func TestRunCommand(t *testing.T) {
	t.Parallel()
	a := &Agent{opts: Options{MaxOutput: 20}}
	run := func(command string, timeout uint32) outcome {
		t.Helper()
		out, err := a.runCommand(t.Context(), command, os.Environ(), nil, timeout, proc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := run("echo ok; exit 1", 0); out.status != 1 || out.output != "ok\n" {
		t.Errorf("got %+v", out)
	}
	if out := run("echo 0123456789012345678901; sleep 300", 1); out.status != statusCritical ||
		out.output != "Execution timed out\n01234567890123456789\n[output cut here, 3 more bytes]\n" {
		t.Errorf("too long in two ways: got %+v", out)
	}
	if out := run(strings.Repeat("x", 1<<22), 0); out.status != statusUnknown || out.output == "" {
		t.Errorf("cannot be started: got %+v", out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.runCommand(ctx, "true", nil, nil, 0, proc.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: got %v", err)
	}
}

// A child in the background delays the result of a check with a timeout, and dies with it.
func TestRunCommandWaitsForChildren(t *testing.T) {
	t.Parallel()
	a := &Agent{opts: Options{MaxOutput: 1000}}
	out, err := a.runCommand(t.Context(), "sleep 300 & echo $!", os.Environ(), nil, 1, proc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	pid, found := strings.CutPrefix(out.output, "Execution timed out\n")
	if !found || out.status != statusCritical || out.duration < time.Second {
		t.Fatalf("got %+v", out)
	}
	waitGone(t, atoi(t, []byte(pid)))
}

// waitGone fails the test if the process still runs after a while. A zombie is gone.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		if err == nil {
			if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "Z") {
				return
			}
		}
		time.Sleep(5 * time.Millisecond) // no signal announces another process's end
	}
	t.Fatalf("process %d still runs", pid)
}

func makeFIFO(path string) error { return syscall.Mkfifo(path, 0o600) }

func atoi(t *testing.T, b []byte) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
