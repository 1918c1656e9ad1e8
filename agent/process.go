package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	statusOK       = 0
	statusCritical = 2
	statusUnknown  = 3

	// outputGrace is how long the output of a command without a timeout is read after the command itself has ended: a
	// child it left in the background may hold the pipe open for ever.
	outputGrace = 2 * time.Second
	// killGrace is how long a killed group may take to go. A child that left the group is not waited for.
	killGrace = 500 * time.Millisecond
)

// process is a command to run once.
type process struct {
	command   string // for the shell
	env       []string
	stdin     []byte        // nil: none
	timeout   time.Duration // 0: none
	maxOutput int           // bytes of output that are kept
}

// outcome is what came of a process.
type outcome struct {
	output   string // stdout and stderr, in the order they were written
	status   int
	duration time.Duration
}

// run runs p in a process group of its own and waits until the command has ended and its output is closed, which
// children in the background may delay up to the timeout (without one, up to outputGrace). When the timeout passes or
// ctx ends, the whole group is killed. The error is ctx's; what goes wrong with the command is an outcome.
func (p process) run(ctx context.Context) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	started := time.Now()
	failed := func(err error) (outcome, error) {
		return outcome{output: err.Error(), status: statusUnknown, duration: time.Since(started)}, nil
	}

	cmd := shell(p.command)
	cmd.Env = p.env
	group := newGroup(cmd)
	// One pipe for both streams keeps them in order. The command gets the file itself, not an io.Writer, so that how
	// long to read is ours to decide.
	output, w, err := os.Pipe()
	if err != nil {
		return failed(fmt.Errorf("make output pipe: %w", err))
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = w, w
	var input *os.File
	if p.stdin != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return failed(fmt.Errorf("make input pipe: %w", err))
		}
		cmd.Stdin, input = r, w
		defer r.Close()
		defer input.Close()
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return failed(err)
	}
	if input != nil {
		cmd.Stdin.(*os.File).Close()
		go func() {
			_, _ = input.Write(p.stdin) // a command may read less than it is given
			input.Close()
		}()
	}

	captured := capture{limit: p.maxOutput}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&captured, output)
	}()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		if p.timeout > 0 {
			// The group may have to be killed after its leader has ended. Until the leader is waited for, no other
			// group can have its number.
			<-read
		}
		_ = cmd.Wait() // the process state says it all
	}()

	var expiry <-chan time.Time
	if p.timeout > 0 {
		timer := time.NewTimer(p.timeout)
		defer timer.Stop()
		expiry = timer.C
	}
	select {
	case <-exited:
		within(outputGrace, read)
		return outcome{output: captured.String(), status: exitStatus(cmd.ProcessState), duration: time.Since(started)}, nil
	case <-expiry:
		err = group.kill()
		within(killGrace, read)
		output.Close() // lets the waiting go on if a child outside of the group still holds the other end
		within(killGrace, exited)
		note := "Execution timed out\n"
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			note += err.Error() + "\n"
		}
		return outcome{output: note + captured.String(), status: statusCritical, duration: time.Since(started)}, nil
	case <-ctx.Done():
		_ = group.kill()
		output.Close()
		within(killGrace, exited)
		return outcome{}, ctx.Err()
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

// capture keeps the first limit bytes of what is written to it and counts the rest.
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

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == 0 {
		return c.kept.String()
	}
	return fmt.Sprintf("%s\n[output cut here, %d more bytes]\n", c.kept.String(), c.dropped)
}

// environment joins lists of NAME=value. A later value replaces an earlier one, except that a search path is put
// before what was there. Entries without a name or an equals sign are left out.
func environment(lists ...[]string) []string {
	index := map[string]int{}
	var env []string
	for _, list := range lists {
		for _, entry := range list {
			name, value, found := strings.Cut(entry, "=")
			if !found || name == "" {
				continue
			}
			at, known := index[envKey(name)]
			if !known {
				index[envKey(name)] = len(env)
				env = append(env, entry)
				continue
			}
			if _, old, _ := strings.Cut(env[at], "="); old != "" && isSearchPath(name) {
				entry = name + "=" + value + string(os.PathListSeparator) + old
			}
			env[at] = entry
		}
	}
	return env
}

func isSearchPath(name string) bool {
	switch envKey(name) {
	case "PATH", "CPATH", "LD_LIBRARY_PATH":
		return true
	}
	return false
}
