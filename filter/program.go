package filter

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dop251/goja"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// The kinds of definitions.
const (
	kindFilter  byte = 'f'
	kindMutator byte = 'm'
	kindEntity  byte = 'e'
)

// definition is a user's sources with the files of assets that run before them. It is encoded once. Workers know it by
// its hash, which includes the namespace: two namespaces never share a program or its runtimes.
type definition struct {
	hash    [16]byte
	body    []byte // for frameDefine
	sources int
	keys    []sourceKey // of the sources
}

// sourceKey identifies a source by its text and by the files of assets that run before it.
type sourceKey [16]byte

// keyOf returns the key of a source. files is the checksum of the files, or nil if there are none.
func keyOf(kind byte, files []byte, source string) sourceKey {
	sum := sha256.Sum256(slices.Concat([]byte{kind}, files, []byte(source)))
	return sourceKey(sum[:16])
}

// checksumOf returns the checksum of files, or nil if there are none.
func checksumOf(files []scriptFile) []byte {
	if len(files) == 0 {
		return nil
	}
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d %s %d %s", len(f.name), f.name, len(f.text), f.text)
	}
	return h.Sum(nil)
}

// scriptFile is a script of an asset.
type scriptFile struct{ name, text string }

func newDefinition(by Definer, allow bool, sources []string, env [][2]string, files []scriptFile) *definition {
	kind, checksum := kindNamed(by.Kind), checksumOf(files)
	b := fields.AppendBool(fields.AppendBytes(fields.AppendBytes([]byte{kind}, by.Namespace), by.Name), allow)
	b = binary.AppendUvarint(b, uint64(len(sources)))
	d := &definition{sources: len(sources)}
	for _, s := range sources {
		b = fields.AppendBytes(b, s)
		d.keys = append(d.keys, keyOf(kind, checksum, s))
	}
	b = binary.AppendUvarint(b, uint64(len(env)))
	for _, v := range env {
		b = fields.AppendBytes(fields.AppendBytes(b, v[0]), v[1])
	}
	b = binary.AppendUvarint(b, uint64(len(files)))
	for _, f := range files {
		b = fields.AppendBytes(fields.AppendBytes(b, f.name), f.text)
	}
	sum := sha256.Sum256(b)
	d.hash, d.body = [16]byte(sum[:16]), b
	return d
}

// program is a definition in a worker. It is compiled with the first question, because compiling may kill the worker.
type program struct {
	kind    byte
	name    string
	allow   bool
	sources []string
	env     [][2]string
	files   []scriptFile

	compiled  sync.Once
	scripts   []script
	libraries []library
	sandboxes sync.Pool
}

// library is a compiled file of an asset.
type library struct {
	name    string
	program *goja.Program
	err     error
}

func readProgram(body []byte) (*program, error) {
	r := readFields(body)
	if len(body) == 0 {
		return nil, errFrame
	}
	p := &program{kind: body[0]}
	r.Rest = body[1:]
	r.Text() // the namespace
	p.name, p.allow = r.Text(), r.Bool()
	for range r.Count() {
		p.sources = append(p.sources, r.Text())
	}
	for range r.Count() {
		p.env = append(p.env, [2]string{r.Text(), r.Text()})
	}
	for range r.Count() {
		p.files = append(p.files, scriptFile{r.Text(), r.Text()})
	}
	return p, r.Err()
}

func (p *program) compile() {
	p.compiled.Do(func() {
		for i, source := range p.sources {
			switch p.kind {
			case kindMutator:
				p.scripts = append(p.scripts, compile(p.name, asFunction(source), maxMutator))
			default:
				p.scripts = append(p.scripts, compile(fmt.Sprintf("%s[%d]", p.name, i), source, MaxExpression))
			}
		}
		for _, f := range p.files {
			s := compile(f.name, f.text, maxLibrary)
			p.libraries = append(p.libraries, library{f.name, s.program, s.err})
		}
		p.sources, p.files = nil, nil
	})
}

// sandbox returns a runtime in which the files of assets have run. A file that fails is left out and noted. It returns
// nil if the question has no time for the files.
func (p *program) sandbox(q *question) *sandbox {
	if box, ok := p.sandboxes.Get().(*sandbox); ok {
		box.now, box.events = q.now, q.events
		return box
	}
	box := newSandbox()
	box.now = q.now
	left := librariesBudget
	for i := range p.libraries {
		l := &p.libraries[i]
		err := l.err
		if err == nil && left <= 0 {
			err = errTimeout
		}
		if err == nil {
			budget, late := q.within(min(libraryBudget, left))
			took := cpuTime(func() { _, err = box.value(l.program, budget) })
			left -= took
			q.used += took
			if late && errors.Is(err, errTimeout) {
				return nil
			}
		}
		if err != nil {
			q.failed = append(q.failed, failedFile{l.name, err.Error()})
		}
		if box.spent { // it may have been interrupted
			box.vm.ClearInterrupt()
			box.spent = false
		}
	}
	box.events = q.events
	box.expect(p.scripts)
	return box
}

// keep keeps a runtime for the next question about the same definition, if it is unchanged.
func (p *program) keep(box *sandbox) {
	if box != nil && !box.spent && box.reset() {
		p.sandboxes.Put(box)
	}
}

// question is a question about a program, in the worker.
type question struct {
	now    int64         // Unix seconds
	budget time.Duration // for each source
	total  time.Duration // for the whole question
	used   time.Duration // of the total
	only   []int         // the sources to evaluate, in their order
	events Events
	failed []failedFile
}

// within returns a budget, and true if the total leaves less than wanted.
func (q *question) within(wanted time.Duration) (budget time.Duration, late bool) {
	left := max(q.total-q.used, time.Millisecond)
	return min(wanted, left), left < wanted
}

// spent reports whether the total is used up.
func (q *question) spent() bool { return q.used >= q.total }

// failedFile is a file of an asset that was left out.
type failedFile struct{ name, text string }

// verdict is the result of a source.
type verdict struct {
	source    int
	truth     bool
	err       error
	took, cpu time.Duration
	saw       []Value
}

// filter evaluates expressions about an event until one decides, or until the question has no time left: the rest has
// no verdict.
func (p *program) filter(q *question, ev *resource.Event) []verdict {
	p.compile()
	box := p.sandbox(q)
	if box == nil {
		return nil
	}
	defer func() {
		if box != nil {
			box.forget()
			p.keep(box)
		}
	}()
	list := make([]verdict, 0, len(q.only))
	fresh := true
	for _, i := range q.only {
		s := &p.scripts[i]
		v := verdict{source: i, err: s.err}
		if q.spent() {
			return list
		}
		if s.err == nil && box.spent {
			if box, fresh = p.sandbox(q), true; box == nil {
				return list
			}
		}
		if s.err == nil && fresh {
			v.err = box.event(ev)
			fresh = v.err != nil
		}
		if v.err != nil {
			list = append(list, v)
			continue
		}
		begin := time.Now()
		budget, late := q.within(q.budget)
		v.cpu = cpuTime(func() { v.truth, v.err = box.run(s, budget) })
		q.used += v.cpu
		if late && errors.Is(v.err, errTimeout) {
			return list
		}
		v.took, v.saw = time.Since(begin), box.saw(s, ev)
		list = append(list, v)
		if v.err == nil && v.truth != p.allow {
			break
		}
	}
	return list
}

// entity evaluates an expression about an entity. It returns false if the question has no time for the answer.
func (p *program) entity(q *question, cfg *resource.EntityConfig, system *resource.System) (v verdict, answered bool) {
	p.compile()
	s := &p.scripts[0]
	v = verdict{err: s.err}
	if v.err != nil {
		return v, true
	}
	box := p.sandbox(q)
	if v.err = box.vm.Set("entity", entityObject(box.vm, cfg, system)); v.err != nil {
		return v, true // the runtime is not kept
	}
	budget, late := q.within(q.budget)
	v.cpu = cpuTime(func() { v.truth, v.err = box.run(s, budget) })
	q.used += v.cpu
	if late && errors.Is(v.err, errTimeout) {
		return v, false
	}
	if !box.spent && box.vm.Set("entity", goja.Undefined()) == nil {
		p.keep(box)
	}
	return v, true
}

// mutate returns the script's text, or the event that it left as JSON. It returns false if the question has no time for
// the answer.
func (p *program) mutate(q *question, ev *resource.Event, shown []byte) (text, left []byte, v verdict, answered bool) {
	p.compile()
	s := &p.scripts[0]
	if v.err = s.err; v.err != nil {
		return nil, nil, v, true
	}
	box := p.sandbox(q)
	if box == nil {
		return nil, nil, v, false
	}
	defer func() {
		box.forget()
		p.keep(box)
	}()
	box.current, box.asked, box.answers = ev, 0, nil
	budget, late := q.within(q.budget)
	v.cpu = cpuTime(func() { text, left, v.err = p.mutateIn(box, budget, s, shown) })
	return text, left, v, !late || !errors.Is(v.err, errTimeout)
}

// mutateIn shows the event to a script, runs the script and reads the event again, all within one budget.
func (p *program) mutateIn(box *sandbox, budget time.Duration, s *script, shown []byte) (text, left []byte, err error) {
	for _, v := range p.env {
		if err := box.vm.Set(v[0], v[1]); err != nil {
			return nil, nil, fmt.Errorf("set variable %s: %w", v[0], err)
		}
	}
	begin := threadTime()
	rest := func() time.Duration { return max(budget-(threadTime()-begin), time.Millisecond) }
	if err := box.mutable(shown, rest()); err != nil {
		return nil, nil, err
	}
	value, err := box.value(s.program, rest())
	box.spent = box.spent || s.spoils
	if err != nil {
		return nil, nil, err
	}
	if s, ok := value.(goja.String); ok {
		if s.Length() > maxMutated {
			return nil, nil, errors.New("it returns a text that is too long")
		}
		return []byte(s.String()), nil, nil
	}
	if !goja.IsUndefined(value) && !goja.IsNull(value) {
		return nil, nil, fmt.Errorf("it returns %s, which is no text", value.ExportType())
	}
	value, err = box.value(leftProgram, rest())
	if err != nil {
		return nil, nil, err
	}
	if _, ok := value.(goja.String); !ok {
		return nil, nil, errors.New("it leaves something that is no event")
	}
	return nil, []byte(value.String()), nil
}

// cpuTime returns the CPU time of f in this goroutine.
func cpuTime(f func()) time.Duration {
	runtime.LockOSThread() // the thread's time is measured
	defer runtime.UnlockOSThread()
	begin := threadTime()
	f()
	return threadTime() - begin
}

// The encoding of questions and answers.

func appendQuestion(b []byte, d *definition, now int64, budget, total time.Duration, only []int, look bool) []byte {
	b = append(b, d.hash[:]...)
	b = binary.AppendVarint(b, now)
	b = binary.AppendUvarint(b, uint64(budget))
	b = binary.AppendUvarint(b, uint64(total))
	b = fields.AppendBool(b, look)
	b = binary.AppendUvarint(b, uint64(len(only)))
	for _, i := range only {
		b = binary.AppendUvarint(b, uint64(i))
	}
	return b
}

func (r *fieldReader) question(sources int) (q *question, look bool) {
	duration := func() time.Duration { return time.Duration(min(r.Uint(), math.MaxInt64)) }
	q = &question{now: r.Int(), budget: duration(), total: duration()}
	look = r.Bool()
	for range r.Count() {
		i := r.Uint()
		if i >= uint64(sources) {
			r.Fail(errFrame)
			return q, false
		}
		q.only = append(q.only, int(i))
	}
	return q, look
}

// failures are the errors that the backend distinguishes; others travel as text.
var failures = []error{nil, errTimeout, errMemory}

const failureText = 255

func appendVerdict(b []byte, v *verdict) []byte {
	b = fields.AppendBool(binary.AppendUvarint(b, uint64(v.source)), v.truth)
	code := byte(failureText)
	for i, err := range failures {
		if v.err == err || err != nil && errors.Is(v.err, err) {
			code = byte(i)
		}
	}
	b = append(b, code)
	if code == failureText {
		b = fields.AppendBool(fields.AppendBytes(b, cutError(v.err.Error())), errors.Is(v.err, errSyntax))
	}
	b = binary.AppendUvarint(b, uint64(v.took))
	b = binary.AppendUvarint(b, uint64(v.cpu))
	b = binary.AppendUvarint(b, uint64(len(v.saw)))
	for _, s := range v.saw {
		b = fields.AppendBytes(fields.AppendBytes(b, s.Name), s.Value)
	}
	return b
}

// told is the text of an error in a worker.
type told struct {
	text   string
	syntax bool
}

func (e *told) Error() string { return e.text }

// Is makes a source that cannot be parsed errSyntax.
func (e *told) Is(target error) bool { return e.syntax && target == errSyntax }

func (r *fieldReader) verdict() (v verdict) {
	v.source, v.truth = int(min(r.Uint(), math.MaxInt32)), r.Bool()
	code := byte(failureText)
	if len(r.Rest) > 0 {
		code, r.Rest = r.Rest[0], r.Rest[1:]
	}
	switch {
	case int(code) < len(failures):
		v.err = failures[code]
	default:
		v.err = &told{r.Text(), r.Bool()}
	}
	v.took, v.cpu = time.Duration(r.Uint()), time.Duration(r.Uint())
	for range r.Count() {
		v.saw = append(v.saw, Value{r.Text(), r.Text()})
	}
	return v
}

func appendFailed(b []byte, list []failedFile) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, f := range list {
		b = fields.AppendBytes(fields.AppendBytes(b, f.name), f.text)
	}
	return b
}

func (r *fieldReader) failedFiles() (list []failedFile) {
	for range r.Count() {
		list = append(list, failedFile{r.Text(), r.Text()})
	}
	return list
}
