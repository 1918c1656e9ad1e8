// Package proc runs a shell command once, with all processes that it starts, and never waits longer than the options
// say. The agent runs checks and hooks with it, the backend handlers and mutators.
//
// When the time is up, or the caller gives up, it kills everything that the command started: the process group at once,
// and on Linux the processes that have left the group too. It finds those by an inherited environment variable, or
// keeps them in a control group from the start if the caller has Cgroups. On Windows it uses a job. A command that ends
// by itself may leave children in the background; they delay the result as long as the options say, and live on.
//
// Output to stdout and stderr is kept together, in order, up to a bound. What the output means is up to the caller.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// StatusTimeout is the status of a command that ran out of time.
	StatusTimeout = 2
	// DefaultMaxOutput is the default bound of the kept output, in bytes.
	DefaultMaxOutput = 1 << 20

	// outputGrace is how long the output is read after the command has ended: a child in the background may hold it
	// open for ever.
	outputGrace = time.Second
	// killGrace is how long killed processes may take to end.
	killGrace = 500 * time.Millisecond
)

// Options says what to run and how.
type Options struct {
	// Command is for the shell: "sh -c", or "cmd /c" on Windows.
	Command string
	// Env is the whole environment, NAME=value. Nil means none, not the environment of this process.
	Env []string
	// Dir is the working directory. Default that of this process.
	Dir string
	// Stdin is the command's input. The command need not read it.
	Stdin []byte
	// Timeout is the time until everything is killed. 0 means never.
	Timeout time.Duration
	// WaitOutput makes a command with a timeout last until its output is closed, which children in the background may
	// delay until the timeout.
	WaitOutput bool
	// MaxOutput bounds the kept output, in bytes; the rest is read and discarded. Default DefaultMaxOutput.
	MaxOutput int
	// Cgroups, if not nil, gives the command a control group of its own.
	Cgroups *Cgroups
	// Limits are for that control group.
	Limits Limits
	// WatchMemory makes Usage.Memory right for commands that need less memory than this process has. On Linux that
	// means reading the running command's memory a few times a second.
	WatchMemory bool
}

// Limits bound the resources of a command and its children together. Zero is no bound.
type Limits struct {
	CPU       float64 // processors
	Memory    int64   // bytes
	Processes int
}

// Result is the result of a command.
type Result struct {
	// Status is the exit code, 128 plus the signal's number for a command that a signal ended, or StatusTimeout.
	Status   int
	Output   []byte
	Dropped  int64 // bytes of output above the bound
	Duration time.Duration
	TimedOut bool
	KillErr  error // TimedOut: why some of its processes may still run
	Usage    Usage
}

// Usage is the resources that a command used, including those of children that it waited for; including all children
// with a control group.
type Usage struct {
	CPU time.Duration
	// Memory is the peak in bytes of the largest process, or of the control group if there is one; 0 if unknown.
	Memory int64
}

// Run runs a command to its end. The error says that it could not run, or is ctx's if ctx ended and it was killed. A
// command that ran and failed is a Result.
func Run(ctx context.Context, opts Options) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if opts.MaxOutput <= 0 {
		opts.MaxOutput = DefaultMaxOutput
	}
	r := running{opts: &opts, output: capture{limit: opts.MaxOutput}, read: make(chan struct{}), exited: make(chan struct{})}
	if err := r.start(); err != nil {
		return Result{}, fmt.Errorf("start command: %w", err)
	}
	defer r.tree.close()
	var expiry <-chan time.Time
	if opts.Timeout > 0 {
		timer := time.NewTimer(opts.Timeout)
		defer timer.Stop()
		expiry = timer.C
	}
	select {
	case <-r.exited:
		return r.ended(), nil
	case <-expiry:
		select {
		case <-r.exited: // just in time
			return r.ended(), nil
		default:
		}
		res := Result{Status: StatusTimeout, TimedOut: true, KillErr: r.kill()}
		r.fill(&res)
		return res, nil
	case <-ctx.Done():
		_ = r.kill()
		return Result{}, ctx.Err()
	}
}

// running is a running command.
type running struct {
	opts   *Options
	cmd    *exec.Cmd
	tree   *tree
	begin  time.Time
	pipe   *os.File // the end of the output that is read
	output capture
	read   chan struct{} // closed when the output is
	exited chan struct{} // closed when the command was waited for
}

func (r *running) start() error {
	r.begin = time.Now()
	r.cmd = shell(r.opts.Command)
	r.cmd.Dir = r.opts.Dir
	r.cmd.Env = append([]string{}, r.opts.Env...) // for os/exec nil means the environment of this process
	// One pipe for both streams keeps them in order. The command gets the file itself, not an io.Writer, so that this
	// package decides how long to read.
	pipe, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make output pipe: %w", err)
	}
	defer w.Close()
	r.pipe = pipe
	r.cmd.Stdout, r.cmd.Stderr = w, w
	var input *os.File // the command's input is written here
	if r.opts.Stdin != nil {
		stdin, to, err := os.Pipe()
		if err != nil {
			pipe.Close()
			return fmt.Errorf("make input pipe: %w", err)
		}
		defer stdin.Close()
		r.cmd.Stdin, input = stdin, to
	}
	if r.tree, err = newTree(r.cmd, r.opts); err == nil {
		if err = r.cmd.Start(); err == nil {
			if err = r.tree.started(); err != nil {
				_ = r.tree.kill()
				_ = r.cmd.Wait()
			}
		}
		if err != nil {
			r.tree.close()
		}
	}
	if err != nil {
		pipe.Close()
		if input != nil {
			input.Close()
		}
		return err
	}
	if input != nil {
		go func() {
			_, _ = input.Write(r.opts.Stdin) // a command may read only a part
			input.Close()
		}()
	}
	go func() {
		defer close(r.read)
		_, _ = io.Copy(&r.output, r.pipe)
		r.pipe.Close()
	}()
	go func() {
		defer close(r.exited)
		if r.opts.WaitOutput && r.opts.Timeout > 0 {
			// The group may have to be killed after its leader has ended. Until the leader is waited for, no other
			// group can have its number.
			<-r.read
		}
		_ = r.cmd.Wait() // the process state has the result
		if input != nil {
			input.Close() // there may be no reader left
		}
	}()
	return nil
}

// kill kills everything, and waits a moment for the end.
func (r *running) kill() error {
	err := r.tree.kill()
	within(killGrace, r.read)
	r.pipe.Close() // ends the reading if a process still holds the other end
	within(killGrace, r.exited)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// ended is the result of a command that ended by itself.
func (r *running) ended() Result {
	within(outputGrace, r.read)
	r.pipe.Close()
	res := Result{Status: exitStatus(r.cmd.ProcessState)}
	r.fill(&res)
	return res
}

func (r *running) fill(res *Result) {
	res.Output, res.Dropped = r.output.taken()
	res.Duration = time.Since(r.begin)
	select {
	case <-r.exited:
		res.Usage = r.tree.usage(r.cmd.ProcessState)
	default: // it cannot be killed
	}
}

// within waits for done, but no longer than d.
func within(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// capture keeps the first limit bytes of its input and counts the rest.
type capture struct {
	limit int

	mu      sync.Mutex // guards the fields below
	kept    bytes.Buffer
	dropped int64
}

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := min(len(b), max(0, c.limit-c.kept.Len()))
	c.kept.Write(b[:keep])
	c.dropped += int64(len(b) - keep)
	return len(b), nil
}

// taken returns the kept output and the number of dropped bytes. Later output is ignored.
func (c *capture) taken() ([]byte, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.kept.Bytes()), c.dropped
}
