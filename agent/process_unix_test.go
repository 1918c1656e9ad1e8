//go:build unix

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runProcess runs p with the test's environment and a limit of output that the test does not meet.
func runProcess(t *testing.T, p process) outcome {
	t.Helper()
	if p.maxOutput == 0 {
		p.maxOutput = 1 << 20
	}
	if p.env == nil {
		p.env = os.Environ()
	}
	out, err := p.run(t.Context())
	if err != nil {
		t.Fatalf("run %q: %v", p.command, err)
	}
	return out
}

func TestProcessStatusAndOutput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		command string
		status  int
		output  string
	}{
		{"true", 0, ""},
		{"echo hi", 0, "hi\n"},
		{"exit 2", 2, ""},
		{"exit 255", 255, ""},
		{"kill -TERM $$", 143, ""},
		{"kill -KILL $$", 137, ""},
		{"echo a; echo b >&2; echo c; echo d >&2", 0, "a\nb\nc\nd\n"},
		{"exec >&- 2>&-; exit 1", 1, ""},
	} {
		t.Run(tt.command, func(t *testing.T) {
			t.Parallel()
			out := runProcess(t, process{command: tt.command})
			if out.status != tt.status || out.output != tt.output {
				t.Errorf("got status %d, output %q", out.status, out.output)
			}
			out = runProcess(t, process{command: tt.command, timeout: time.Minute})
			if out.status != tt.status || out.output != tt.output {
				t.Errorf("with timeout: got status %d, output %q", out.status, out.output)
			}
		})
	}
	out := runProcess(t, process{command: "no-such-command-here"})
	if out.status != 127 || !strings.Contains(out.output, "not found") {
		t.Errorf("missing command: got status %d, output %q", out.status, out.output)
	}
	t.Run("no shell", func(t *testing.T) {
		if out := (runProcess(t, process{command: strings.Repeat("x", 1<<22)})); out.status != statusUnknown || out.output == "" {
			t.Errorf("command too long: got status %d, output %.80q", out.status, out.output)
		}
	})
}

// waitGone fails the test if the process still runs after a while. A zombie is gone.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		if err == nil {
			if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "Z") {
				return
			}
		}
		time.Sleep(5 * time.Millisecond) // another process's end sends us no signal
	}
	t.Fatalf("process %d still runs", pid)
}

func TestProcessTimeoutKillsGrandchildren(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"in the foreground":             "echo begun; sh -c 'sleep 300 & echo $!; wait'",
		"left behind, holding the pipe": "echo begun; sleep 300 & echo $!",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := runProcess(t, process{command: command, timeout: time.Second})
			lines := strings.Split(out.output, "\n")
			if out.status != statusCritical || len(lines) != 4 || lines[0] != "Execution timed out" || lines[1] != "begun" {
				t.Fatalf("got status %d, output %q", out.status, out.output)
			}
			if out.duration < time.Second || out.duration > 10*time.Second {
				t.Errorf("took %v", out.duration)
			}
			pid, err := strconv.Atoi(lines[2])
			if err != nil {
				t.Fatal(err)
			}
			waitGone(t, pid)
		})
	}
}

func TestProcessDoesNotWaitForEscapedChild(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/setsid"); err != nil {
		t.Skip("needs setsid")
	}
	for _, timeout := range []time.Duration{0, time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			out := runProcess(t, process{command: "setsid sleep 300 & echo $!; exit 1", timeout: timeout})
			fields := strings.Fields(out.output)
			pid, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				t.Fatalf("output %q: %v", out.output, err)
			}
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			want := 1
			if timeout > 0 {
				want = statusCritical
			}
			if out.status != want || out.duration > 20*time.Second {
				t.Errorf("got status %d after %v", out.status, out.duration)
			}
			if timeout == 0 && syscall.Kill(pid, 0) != nil {
				t.Error("a child in the background was killed without a timeout")
			}
		})
	}
}

func TestProcessEndsWithContext(t *testing.T) {
	t.Parallel()
	pidFile := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := process{command: "sleep 300 & echo $! >" + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; wait", env: os.Environ()}.run(ctx)
		done <- err
	}()
	var pid int
	for pid == 0 {
		if b, err := os.ReadFile(pidFile); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		time.Sleep(time.Millisecond) // another process's file sends us no signal
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	waitGone(t, pid)
	if _, err := (process{command: "true"}).run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: got error %v", err)
	}
}

func TestProcessStdin(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 1<<14) // more than a pipe holds
	if out := runProcess(t, process{command: "cat", stdin: []byte(big)}); out.output != big || out.status != 0 {
		t.Errorf("got %d bytes of %d, status %d", len(out.output), len(big), out.status)
	}
	if out := runProcess(t, process{command: "exit 3", stdin: []byte(big)}); out.status != 3 {
		t.Errorf("unread stdin: got status %d", out.status)
	}
	if out := runProcess(t, process{command: "cat; echo end"}); out.output != "end\n" {
		t.Errorf("no stdin: got %q", out.output)
	}
}

func TestProcessBigOutput(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	command := "head -c " + strconv.Itoa(size) + " /dev/zero | tr '\\0' x; exit 1"
	out := runProcess(t, process{command: command, maxOutput: size})
	if out.status != 1 || out.output != strings.Repeat("x", size) {
		t.Errorf("got %d bytes, status %d", len(out.output), out.status)
	}
	out = runProcess(t, process{command: command, maxOutput: 1000})
	if want := strings.Repeat("x", 1000) + "\n[output cut here, 3144728 more bytes]\n"; out.status != 1 || out.output != want {
		t.Errorf("cut: got %d bytes, status %d: %.1100q", len(out.output), out.status, out.output)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   [][]string
		want []string
	}{
		{"later wins", [][]string{{"A=1", "B=2"}, {"A=3"}, {"A=4=5"}}, []string{"A=4=5", "B=2"}},
		{"malformed", [][]string{{"A=1", "nothing", "=x", "C="}}, []string{"A=1", "C="}},
		{"search paths are put before", [][]string{{"PATH=/bin"}, {"PATH=/a"}, {"PATH=/b"}}, []string{"PATH=/b:/a:/bin"}},
		{"no empty elements", [][]string{{"LD_LIBRARY_PATH="}, {"LD_LIBRARY_PATH=/l", "CPATH=/i"}}, []string{"LD_LIBRARY_PATH=/l", "CPATH=/i"}},
		{"nothing", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := environment(tt.in...); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	out := runProcess(t, process{command: "echo $A-${LD_LIBRARY_PATH-unset}", env: environment([]string{"PATH=" + os.Getenv("PATH")}, []string{"A=b"})})
	if out.output != "b-unset\n" {
		t.Errorf("got %q", out.output)
	}
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
