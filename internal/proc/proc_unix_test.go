//go:build unix

package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(t *testing.T, opts Options) Result {
	t.Helper()
	if opts.Env == nil {
		opts.Env = []string{"PATH=" + os.Getenv("PATH")}
	}
	res, err := Run(t.Context(), opts)
	if err != nil {
		t.Fatalf("run %q: %v", opts.Command, err)
	}
	return res
}

func TestStatusAndOutput(t *testing.T) {
	t.Parallel()
	f := func(opts Options, status int, output string) {
		t.Helper()
		res := run(t, opts)
		if res.Status != status || string(res.Output) != output || res.TimedOut {
			t.Errorf("%q: got status %d, output %q, timed out %v", opts.Command, res.Status, res.Output, res.TimedOut)
		}
	}
	f(Options{Command: "true"}, 0, "")
	f(Options{Command: "exit 3"}, 3, "")
	f(Options{Command: "kill -TERM $$"}, 143, "")
	f(Options{Command: "no-such-command-here 2>/dev/null"}, 127, "")
	f(Options{Command: "echo a; echo b >&2; echo c"}, 0, "a\nb\nc\n")
	f(Options{Command: "cat; echo end", Stdin: []byte("data ")}, 0, "data end\n")
	f(Options{Command: "cat; echo end"}, 0, "end\n")
	f(Options{Command: "exit 1", Stdin: make([]byte, 1<<20)}, 1, "")
	f(Options{Command: "echo $A-$HOME", Env: []string{"A=1"}}, 0, "1-\n")
	f(Options{Command: "pwd", Dir: "/"}, 0, "/\n")
	f(Options{Command: "head -c 3000000 /dev/zero | tr '\\0' x; exit 4", MaxOutput: 10}, 4, "xxxxxxxxxx")
	f(Options{Command: "echo hi", Timeout: time.Minute}, 0, "hi\n")
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	if _, err := Run(t.Context(), Options{Command: strings.Repeat("x", 1<<22)}); err == nil {
		t.Error("a command longer than the system allows was run")
	}
	if _, err := Run(t.Context(), Options{Command: "true", Dir: "/no/such/dir"}); err == nil {
		t.Error("a command was run in a directory that is not there")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{Command: "true"}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// fifo makes a named pipe. A test can wait for the processes that hold its other end without using the clock: reading
// ends when the last writer has ended.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTimeoutKillsTheGroup(t *testing.T) {
	t.Parallel()
	path := fifo(t)
	gone := make(chan error, 1)
	go func() {
		f, err := os.Open(path)
		if err == nil {
			_, err = bufio.NewReader(f).ReadString('\n') // ends when every child has ended
			f.Close()
		}
		gone <- err
	}()
	res := run(t, Options{Command: "echo begun; sh -c 'sleep 300 3>" + path + "; true'; true", Timeout: 2 * time.Second})
	if res.Status != StatusTimeout || !res.TimedOut || string(res.Output) != "begun\n" {
		t.Errorf("got %+v, output %q", res, res.Output)
	}
	if res.Duration < 2*time.Second {
		t.Errorf("ended after %v", res.Duration)
	}
	if err := <-gone; err == nil {
		t.Error("a child wrote something")
	}
}

func TestCancelKillsTheGroup(t *testing.T) {
	t.Parallel()
	path := fifo(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Options{Command: "exec 3>" + path + "; echo up >&3; sleep 300 & wait", Env: []string{"PATH=" + os.Getenv("PATH")}})
		done <- err
	}()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if line, err := r.ReadString('\n'); line != "up\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("a child lives on")
	}
}

func TestChildInTheBackgroundDoesNotHold(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"of the group":      "sleep 300 & echo $!; exit 7",
		"out of the group":  "setsid sleep 300 & echo $!; exit 7",
		"reading its input": "cat <&3 & echo $!; exit 7",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "reading its input" {
				command = "exec 3<" + fifoHeldOpen(t) + "; " + command
			}
			res := run(t, Options{Command: command, Timeout: time.Minute})
			pid, err := strconv.Atoi(strings.TrimSpace(string(res.Output)))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("the child did not go on: %v", err)
			}
			if res.Status != 7 || res.TimedOut || res.Duration > 30*time.Second {
				t.Errorf("got %+v", res)
			}
		})
	}
}

// fifoHeldOpen is a named pipe without a writer that never ends.
func fifoHeldOpen(t *testing.T) string {
	t.Helper()
	path := fifo(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return path
}

// TestEscapedChildrenHoldNothing has children that left the group: without a timeout they live on and delay nothing.
func TestEscapedChildrenHoldNothing(t *testing.T) {
	t.Parallel()
	res := run(t, Options{Command: "setsid sleep 300 & echo $!; exit 1"})
	pid := pids(t, res.Output)[0]
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if res.Status != 1 || res.TimedOut || res.Duration > 30*time.Second {
		t.Errorf("got %+v", res)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("a child in the background was killed without a timeout: %v", err)
	}
}

func TestWaitOutput(t *testing.T) {
	t.Parallel()
	res := run(t, Options{Command: "sleep 300 & echo $!", Timeout: 2 * time.Second, WaitOutput: true})
	if !res.TimedOut || res.Status != StatusTimeout {
		t.Errorf("got %+v", res)
	}
	waitGone(t, pids(t, res.Output)[0])
	res = run(t, Options{Command: "(sleep 0.2; echo late) & echo early", Timeout: time.Minute, WaitOutput: true})
	if res.TimedOut || string(res.Output) != "early\nlate\n" {
		t.Errorf("got %+v, output %q", res, res.Output)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 1<<14) // more than a pipe can hold
	if res := run(t, Options{Command: "cat", Stdin: []byte(big)}); string(res.Output) != big || res.Status != 0 {
		t.Errorf("got %d bytes of %d, status %d", len(res.Output), len(big), res.Status)
	}
	if res := run(t, Options{Command: "exit 3", Stdin: []byte(big)}); res.Status != 3 {
		t.Errorf("unread: got status %d", res.Status)
	}
	if res := run(t, Options{Command: "cat; echo end"}); string(res.Output) != "end\n" {
		t.Errorf("none: got %q", res.Output)
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	res := run(t, Options{Command: "head -c 3145728 /dev/zero | tr '\\0' x; exit 1", MaxOutput: 1000})
	if res.Status != 1 || string(res.Output) != strings.Repeat("x", 1000) || res.Dropped != 3145728-1000 {
		t.Errorf("got %d bytes, %d dropped, status %d", len(res.Output), res.Dropped, res.Status)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	res := run(t, Options{Command: "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", WatchMemory: true})
	if res.Usage.CPU < 10*time.Millisecond || res.Usage.CPU > 5*res.Duration || res.Usage.Memory < 100<<10 || res.Usage.Memory > 1<<30 {
		t.Errorf("got %+v in %v", res.Usage, res.Duration)
	}
}

// TestSmallCommand uses less memory than this process, which the kernel's own figure cannot show.
func TestSmallCommand(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the system's figure is taken")
	}
	large := bytes.Repeat([]byte{1}, 128<<20)
	small := run(t, Options{Command: "sleep 1", WatchMemory: true})
	if small.Usage.Memory < 100<<10 || small.Usage.Memory > 32<<20 {
		t.Errorf("sleep used %d bytes", small.Usage.Memory)
	}
	// A child of the shell counts too.
	child := run(t, Options{Command: "head -c 40000000 /dev/zero | tail -c 40000000 >/dev/null; sleep 1 & wait", WatchMemory: true})
	if child.Usage.Memory < 100<<10 || child.Usage.Memory > 100<<20 {
		t.Errorf("tail used %d bytes", child.Usage.Memory)
	}
	if unwatched := run(t, Options{Command: "true"}); unwatched.Usage.Memory >= int64(len(large)) {
		t.Errorf("an unwatched command shows the memory of this process: %d bytes", unwatched.Usage.Memory)
	}
	runtime.KeepAlive(large)
}

// pids reads the numbers that a command printed.
func pids(t *testing.T, output []byte) (numbers []int) {
	t.Helper()
	for _, f := range strings.Fields(string(output)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("output %q: %v", output, err)
		}
		numbers = append(numbers, n)
	}
	if len(numbers) == 0 {
		t.Fatal("no output")
	}
	return numbers
}

// waitGone fails the test if a process is still there after a while. A zombie is gone.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err == nil {
			if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "Z") {
				return
			}
		}
		time.Sleep(5 * time.Millisecond) // no signal announces another process's end
	}
	t.Errorf("process %d still runs", pid)
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	f := func(want []string, lists ...[]string) {
		t.Helper()
		if got := Environ(lists...); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", lists, got, want)
		}
	}
	f([]string{})
	f([]string{"A=3=4", "B=2"}, []string{"A=1", "B=2"}, []string{"A=3=4"})
	f([]string{"A="}, []string{"A=1", "none", "=x"}, []string{"A="})
	f([]string{"PATH=/b:/a:/bin"}, []string{"PATH=/bin"}, []string{"PATH=/a"}, []string{"PATH=/b"})
	f([]string{"CPATH=/i", "PATH=/bin"}, []string{"CPATH=", "PATH=/bin"}, []string{"CPATH=/i", "PATH="})
}
