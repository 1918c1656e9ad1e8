// Package proc runs a shell command once, with all that it starts, and never waits longer for it than it was told to.
//
// The command leads a process group of its own, which is killed as a whole when the time is up or the caller gives up.
// What it writes to stdout and stderr is kept together, in order, up to a bound. A child left in the background that
// holds on to the output delays the return only by a moment, and goes on running.
package proc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// StatusTimeout is the status of a command that ran out of time.
	StatusTimeout = 2
	// DefaultMaxOutput is how many bytes of output are kept unless the options say otherwise.
	DefaultMaxOutput = 1 << 20

	// closeDelay is how long the output is read after the command has ended or was killed: a child in the background
	// may hold it open for ever.
	closeDelay = time.Second
)

// Options says what to run and how.
type Options struct {
	// Command is for the shell: "sh -c", or "cmd /c" on Windows.
	Command string
	// Env is the whole environment, NAME=value. Nil means none, not the environment of this process.
	Env []string
	// Dir is the working directory. Default that of this process.
	Dir string
	// Stdin is what the command may read. It need not read it.
	Stdin []byte
	// Timeout is when the group is killed. 0 means never.
	Timeout time.Duration
	// MaxOutput is how many bytes of output are kept; the rest is read and thrown away. Default DefaultMaxOutput.
	MaxOutput int
}

// Result is what came of a command.
type Result struct {
	// Status is the exit code, 128 and the signal's number for a command that a signal ended, or StatusTimeout.
	Status   int
	Output   []byte
	Duration time.Duration
	TimedOut bool
}

// Run runs a command to its end. The error tells that it could not be run, or is that of ctx when it was killed because
// ctx ended; a command that ran and failed is a Result.
func Run(ctx context.Context, opts Options) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if opts.MaxOutput <= 0 {
		opts.MaxOutput = DefaultMaxOutput
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if opts.Timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, opts.Timeout)
	}
	defer cancel()

	cmd := shell(limited, opts.Command)
	cmd.Env = opts.Env
	if cmd.Env == nil {
		cmd.Env = []string{} // os/exec takes nil for the environment of this process
	}
	cmd.Dir = opts.Dir
	if opts.Stdin != nil {
		cmd.Stdin = bytes.NewReader(opts.Stdin)
	}
	output := head{limit: opts.MaxOutput}
	cmd.Stdout, cmd.Stderr = &output, &output // one writer, so one pipe, which keeps the order
	cmd.WaitDelay = closeDelay
	killed := false // written before Wait returns
	cmd.Cancel = func() error {
		err := killGroup(cmd)
		killed = err == nil
		return err
	}

	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("start command: %w", err)
	}
	err := cmd.Wait()
	res := Result{Output: output.kept, Duration: time.Since(begin)}
	switch {
	case killed && ctx.Err() != nil:
		return Result{}, ctx.Err()
	case killed:
		res.Status, res.TimedOut = StatusTimeout, true
	case cmd.ProcessState == nil:
		return Result{}, fmt.Errorf("wait for command: %w", err)
	default: // err tells of the status, or of a pipe that was cut, which is no failure of the command
		res.Status = exitStatus(cmd.ProcessState)
	}
	return res, nil
}

// head keeps the first limit bytes that are written to it. Only one goroutine of os/exec writes, and has ended when
// Wait returns.
type head struct {
	limit int
	kept  []byte
}

func (h *head) Write(b []byte) (int, error) {
	h.kept = append(h.kept, b[:min(len(b), h.limit-len(h.kept))]...)
	return len(b), nil
}

// Environ joins lists of NAME=value. A later value replaces an earlier one, but for search paths (PATH, CPATH,
// LD_LIBRARY_PATH), where it is put in front. Entries that are no NAME=value are left out.
func Environ(lists ...[]string) []string {
	at := map[string]int{}
	env := []string{}
	for _, list := range lists {
		for _, entry := range list {
			name, value, ok := strings.Cut(entry, "=")
			if !ok || name == "" {
				continue
			}
			i, known := at[variable(name)]
			switch {
			case !known:
				at[variable(name)] = len(env)
				env = append(env, entry)
			case isSearchPath(name):
				_, old, _ := strings.Cut(env[i], "=")
				env[i] = name + "=" + joinPaths(value, old)
			default:
				env[i] = entry
			}
		}
	}
	return env
}

func isSearchPath(name string) bool {
	switch variable(name) {
	case "PATH", "CPATH", "LD_LIBRARY_PATH":
		return true
	}
	return false
}

// joinPaths puts a before b. An empty element would stand for the working directory, so none is made.
func joinPaths(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + string(os.PathListSeparator) + b
}
