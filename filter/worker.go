package filter

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// workerVariable is the environment variable of a worker: its value is the memory limit in bytes.
const workerVariable = "LAPWING_EXPRESSION_WORKER"

// workerStack bounds the stack of a worker, in bytes: with Go's own limit a recursive script could fill memory for a
// second.
const workerStack = 64 << 20

// A worker is this program again. It runs in init and not in main, so binaries with this package, tests too, need no
// code for it, and do not initialise parts that a worker does not use.
func init() {
	memory, err := strconv.ParseInt(os.Getenv(workerVariable), 10, 64)
	if err != nil || memory <= 0 {
		return
	}
	os.Exit(work(memory, os.Stdin, os.Stdout))
}

// work answers questions until the backend closes the pipe.
func work(memory int64, in io.Reader, out io.Writer) int {
	// The backend decides when a worker ends, not a signal to its process group or service.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	runtime.LockOSThread()
	debug.SetMaxStack(workerStack)
	debug.SetTraceback("none") // one line is enough
	if err := confine(memory); err != nil {
		os.Stderr.WriteString("limit a worker: " + err.Error() + "\n")
		return 1
	}
	debug.SetMemoryLimit(memory / 4 * 3)
	methods() // now, and not in the time of the first question
	w := &worker{in: bufio.NewReaderSize(in, 64<<10), out: out, programs: map[[16]byte]*program{}}
	w.answer = endFrame(frame(nil, frameHello), 0)
	if err := w.serve(); !errors.Is(err, io.EOF) {
		os.Stderr.WriteString("expressions: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// worker answers one question after the other.
type worker struct {
	in       *bufio.Reader
	out      io.Writer
	programs map[[16]byte]*program
	question []byte // the frame being read
	answer   []byte // frames not yet written
	number   uint64 // of the current question
	aside    []held // frames that came while a script waited for events
	broken   error  // why the pipes cannot be used any more
}

// held is a frame that was held back.
type held struct {
	kind byte
	body []byte
}

// maxHeld bounds the frames held back: those of a batch.
const maxHeld = 2*maxBatch + 1

// serve answers questions until the pipe ends or breaks. It always returns an error, io.EOF after a normal end.
func (w *worker) serve() error {
	for {
		// An answer is written before the next question, which may take long or end this process.
		if len(w.answer) > 0 {
			if err := w.flush(); err != nil {
				return err
			}
		}
		kind, body, err := w.next()
		if err != nil {
			return err
		}
		switch kind {
		case frameDefine:
			err = w.define(body)
		case frameForget:
			clear(w.programs)
		case frameQuestion:
			err = w.ask(body)
		default:
			err = errFrame
		}
		if err != nil {
			return err
		}
	}
}

// next returns the next frame: the oldest one held back, or one from the backend.
func (w *worker) next() (kind byte, body []byte, err error) {
	if len(w.aside) > 0 {
		f := w.aside[0]
		w.aside[0] = held{}
		if w.aside = w.aside[1:]; len(w.aside) == 0 {
			w.aside = nil
		}
		return f.kind, f.body, nil
	}
	kind, body, w.question, err = readFrame(w.in, w.question)
	return kind, body, err
}

func (w *worker) flush() error {
	_, err := w.out.Write(w.answer)
	w.answer = w.answer[:0]
	if cap(w.answer) > 1<<20 {
		w.answer = nil
	}
	return err
}

func (w *worker) define(body []byte) error {
	if len(body) < 16 {
		return errFrame
	}
	p, err := readProgram(body[16:])
	w.programs[[16]byte(body)] = p
	return err
}

func (w *worker) ask(body []byte) error {
	r := readFields(body)
	w.number = r.Uint()
	if len(r.Rest) < 16 {
		return errFrame
	}
	p := w.programs[[16]byte(r.Rest)]
	if p == nil {
		return errors.New("a question is about an unknown definition")
	}
	r.Rest = r.Rest[16:]
	q, look := r.question(len(p.sources) + len(p.scripts))
	if look {
		q.events = w
	}
	begin := len(w.answer)
	switch p.kind {
	case kindFilter:
		ev := r.event()
		if r.Err() != nil {
			return r.Err()
		}
		list := p.filter(q, ev)
		w.begin(&begin)
		w.answer = appendFailed(w.answer, q.failed)
		for i := range list {
			w.answer = appendVerdict(w.answer, &list[i])
		}
	case kindMutator:
		ev, shown := r.event(), r.Bytes()
		if r.Err() != nil {
			return r.Err()
		}
		text, left, v, answered := p.mutate(q, ev, shown)
		w.begin(&begin)
		w.answer = appendFailed(w.answer, q.failed)
		if answered {
			w.answer = fields.AppendBytes(fields.AppendBytes(appendVerdict(w.answer, &v), text), left)
		}
	case kindEntity:
		w.begin(&begin)
		for answered := true; len(r.Rest) > 0 && !q.spent() && answered; {
			cfg, system := r.entity()
			if r.Err() != nil {
				return r.Err()
			}
			var v verdict
			if v, answered = p.entity(q, cfg, system); answered {
				w.answer = appendVerdict(w.answer, &v)
			}
		}
	default:
		return errFrame
	}
	w.answer = endFrame(w.answer, begin)
	return w.broken
}

// begin begins an answer. A look-up may have written earlier answers.
func (w *worker) begin(at *int) {
	*at = len(w.answer)
	w.answer = numbered(w.answer, frameAnswer, w.number)
}

// Scripts look up events through the backend, which answers from the namespace of the question.

const (
	lookEvent byte = iota
	lookEvents
	lookCalendar
)

// Event asks the backend for an event.
func (w *worker) Event(_, entity, check string) (*resource.Event, error) {
	list, _, err := w.lookEvents(func(b []byte) []byte {
		return fields.AppendBytes(fields.AppendBytes(append(b, lookEvent), entity), check)
	})
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, errFrame
	}
	return list[0], nil
}

// Events asks the backend for the first events of the namespace.
func (w *worker) Events(_, _, _ string, limit int) ([]*resource.Event, string, error) {
	list, more, err := w.lookEvents(func(b []byte) []byte { return append(b, lookEvents) })
	if more {
		return list, "more", err
	}
	return list, "", err
}

// InCalendar asks the backend whether a calendar of the namespace is active at a time, and why not.
func (w *worker) InCalendar(name string, at int64) (active bool, why string, err error) {
	r, err := w.look(func(b []byte) []byte {
		return binary.AppendVarint(fields.AppendBytes(append(b, lookCalendar), name), at)
	})
	if err != nil {
		return false, "", err
	}
	active, why = r.Bool(), r.Text()
	return active, why, r.Err()
}

func (w *worker) lookEvents(what func([]byte) []byte) (list []*resource.Event, more bool, err error) {
	r, err := w.look(what)
	if err != nil {
		return nil, false, err
	}
	more = r.Bool()
	for range r.Count() {
		list = append(list, r.event())
	}
	return list, more, r.Err()
}

// look asks the backend, and returns what follows in its answer if that is no error.
func (w *worker) look(what func([]byte) []byte) (*fieldReader, error) {
	body, err := w.looked(what)
	if err != nil {
		w.broken = err // a script may catch it, but this worker must stop
		return nil, err
	}
	r := readFields(body)
	if text := r.Text(); text != "" {
		return nil, errors.New(text)
	}
	return r, nil
}

// looked writes a look-up and returns the backend's reply. Other questions of the batch may come first: it holds them
// back, and serve takes them after this question.
func (w *worker) looked(what func([]byte) []byte) ([]byte, error) {
	if w.broken != nil {
		return nil, w.broken
	}
	begin := len(w.answer)
	w.answer = endFrame(what(numbered(w.answer, frameLook, w.number)), begin)
	if err := w.flush(); err != nil {
		return nil, err
	}
	for {
		kind, body, _, err := readFrame(w.in, nil) // w.question holds the current question
		switch {
		case err != nil:
			return nil, err
		case kind == frameEvents:
			body, ok := isFor(body, w.number)
			if !ok {
				return nil, errFrame
			}
			return body, nil
		case len(w.aside) >= maxHeld:
			return nil, errFrame
		}
		w.aside = append(w.aside, held{kind, body})
	}
}
