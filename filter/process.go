package filter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// helloTime bounds the time until a process says hello, goodbyeTime the time for its end.
const helloTime, goodbyeTime = 30 * time.Second, 5 * time.Second

// pipeTakes is the least capacity of an empty pipe, in bytes.
const pipeTakes = 4096

// process is a worker process as the backend sees it. One goroutine uses it, and another may write at the same time.
type process struct {
	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	reader *bufio.Reader
	buffer []byte
	known  map[[16]byte]struct{} // definitions that it has
	asked  uint64                // the number of the last question
	late   bool                  // every write sets its deadline
	born   time.Duration         // its CPU time when it said hello
	stderr *firstLine
	ended  chan struct{} // closed when it has ended
}

// startProcess starts this program again as a worker, with an empty environment and no files except its pipes, and
// starts to wait for its hello.
func startProcess(memory int64, path string) (_ *process, err error) {
	if os.Getenv(workerVariable) != "" {
		return nil, errors.New("a worker starts no workers")
	}
	if path == "" {
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer childOut.Close()
	p := &process{in: in, out: out, known: map[[16]byte]struct{}{}, stderr: &firstLine{}, ended: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path, Args: []string{"lapwing-expressions"}, Dir: os.TempDir(), Stdin: childIn, Stdout: childOut, Stderr: p.stderr,
		// The second variable limits the collector to the needs of a small heap, the third its threads to the working
		// ones.
		Env: []string{workerVariable + "=" + strconv.FormatInt(memory, 10), "GOGC=200", "GOMAXPROCS=2"},
	}
	detach(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	go func() {
		p.cmd.Wait() //nolint:errcheck // that it ended is what counts
		close(p.ended)
	}()
	p.reader = bufio.NewReaderSize(out, 64<<10)
	return p, nil
}

// hello waits until the process says hello, and kills it if it does not.
func (p *process) hello() error {
	kind, _, err := p.read(time.Now().Add(helloTime))
	if err == nil && kind == frameHello {
		p.born, _ = processTime(p.cmd.Process.Pid)
		return nil
	}
	p.kill()
	return fmt.Errorf("it does not answer: %s", p.why(err))
}

// read reads a frame. Its body is valid until the next call.
func (p *process) read(deadline time.Time) (kind byte, body []byte, err error) {
	if !p.buffered() {
		if err := p.out.SetReadDeadline(deadline); err != nil {
			return 0, nil, err
		}
	}
	kind, body, p.buffer, err = readFrame(p.reader, p.buffer)
	if cap(p.buffer) > 1<<20 {
		p.buffer = nil
	}
	return kind, body, err
}

// buffered reports whether a whole frame was read already.
func (p *process) buffered() bool {
	n := p.reader.Buffered()
	if n < 4 {
		return false
	}
	head, err := p.reader.Peek(4)
	return err == nil && uint64(n) >= 4+uint64(binary.LittleEndian.Uint32(head))
}

func (p *process) write(b []byte, deadline time.Time) error {
	if len(b) > pipeTakes || p.late { // a small write never waits: the pipe is empty
		if err := p.in.SetWriteDeadline(deadline); err != nil {
			return err
		}
		p.late = true
	}
	_, err := p.in.Write(b)
	return err
}

// gone reports whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process at once.
func (p *process) kill() {
	p.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-p.ended
	p.in.Close()
	p.out.Close()
}

// close lets the process end by itself.
func (p *process) close() {
	p.in.Close()
	timer := time.NewTimer(goodbyeTime)
	defer timer.Stop()
	select {
	case <-p.ended:
		p.out.Close()
	case <-timer.C:
		p.kill()
	}
}

// why returns why the process ended, after it has.
func (p *process) why(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "it took too long"
	}
	text := p.stderr.String()
	if text == "" && p.cmd.ProcessState != nil {
		text = p.cmd.ProcessState.String()
	}
	if text == "" && err != nil && !errors.Is(err, io.EOF) {
		text = err.Error()
	}
	return strings.TrimPrefix(text, "fatal error: ")
}

// firstLine keeps the first line of its input.
type firstLine struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (l *firstLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b[:min(len(b), maxValue-min(len(l.text), maxValue))]...)
	return len(b), nil
}

func (l *firstLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, _, _ := bytes.Cut(bytes.TrimSpace(l.text), []byte("\n"))
	return strings.ToValidUTF8(string(line), "")
}
