//go:build unix

package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// fifo makes a named pipe. Whoever holds its other end can be waited for without a look at the clock: reading ends
// when the last process that writes has gone.
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
			_, err = bufio.NewReader(f).ReadString('\n') // ends when every child is gone
			f.Close()
		}
		gone <- err
	}()
	res := run(t, Options{Command: "echo begun; sh -c 'sleep 300 3>" + path + "; true'; true", Timeout: 300 * time.Millisecond})
	if res.Status != StatusTimeout || !res.TimedOut || string(res.Output) != "begun\n" {
		t.Errorf("got %+v, output %q", res, res.Output)
	}
	if res.Duration < 300*time.Millisecond {
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

// fifoHeldOpen is a named pipe that nobody writes to and that never ends.
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

func TestEscapedChildDoesNotHoldATimeout(t *testing.T) {
	t.Parallel()
	res := run(t, Options{Command: "setsid sleep 300 & echo $!; wait", Timeout: 200 * time.Millisecond})
	var pid int
	if _, err := fmt.Sscan(string(res.Output), &pid); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if !res.TimedOut || res.Duration > 30*time.Second {
		t.Errorf("got %+v", res)
	}
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
