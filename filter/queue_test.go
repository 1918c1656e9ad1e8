package filter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestQueueTakesTurns has one namespace put many questions before the others.
func TestQueueTakesTurns(t *testing.T) {
	put := func(q *queue, names ...string) (list []*asked) {
		t.Helper()
		for _, name := range names {
			a := &asked{namespace: name}
			if !q.put(a) {
				t.Errorf("a question of %s is refused", name)
			}
			list = append(list, a)
		}
		return list
	}
	order := func(q *queue) (names string) {
		for a := q.more(); a != nil; a = q.more() {
			names += a.namespace
		}
		return names
	}
	q := newQueue(0)
	list := put(q, "a", "a", "a", "b", "c", "b")
	if !q.remove(list[1]) || q.remove(&asked{taken: true}) {
		t.Error("a question that waits cannot be taken back, or one that a worker has can")
	}
	if got := order(q); got != "abcab" || q.busy.Load() || len(q.lines) != 0 {
		t.Errorf("the order is %s, busy %v, %d lines", got, q.busy.Load(), len(q.lines))
	}
	q = newQueue(1)
	list = put(q, "a", "a", "b")
	if got := order(q); got != "ab" {
		t.Errorf("%s run together", got)
	}
	q.done(list[0])
	if got := order(q); got != "a" {
		t.Errorf("then %s", got)
	}
	q.done(list[1])
	q.done(list[2])
	if len(q.lines) != 0 {
		t.Errorf("%d lines are left", len(q.lines))
	}
	for range maxWaiting {
		put(q, "a")
	}
	if q.put(&asked{namespace: "a"}) || !q.put(&asked{namespace: "b"}) {
		t.Error("the bound does not hold, or not for each namespace")
	}
}

// TestQueueHandsOver has a slot wait, and leave at the last moment.
func TestQueueHandsOver(t *testing.T) {
	q, s, a := newQueue(1), &slot{work: make(chan *asked, 1)}, &asked{namespace: "a"}
	if q.take(s) != nil || q.leave(s) != nil {
		t.Error("there is a question")
	}
	q.take(s)
	q.put(a)
	if q.leave(s) != a {
		t.Error("a question is lost")
	}
}

// TestFailedStartIsAskedAgain: the second worker cannot be started.
func TestFailedStartIsAskedAgain(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has a shell script for a worker")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\ncd %q\necho x >> count\n[ $(wc -l < count) = 2 ] && exit 1\nexec %q\n", dir, self)
	sometimes := filepath.Join(dir, "sometimes")
	if err := os.WriteFile(sometimes, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.program = sometimes
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	e := New(Options{Pool: p})
	def := &resource.EventFilter{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "f"}, Action: "deny", Expressions: []string{"event.check.status == 2"},
	}
	a := e.Ask(context.Background(), def, &resource.Event{Check: &resource.Check{Status: 2}})
	if a.Passes || len(a.Asked) != 1 || a.Asked[0].Err != nil {
		t.Errorf("it is bypassed: %+v", a)
	}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
}

// writes keeps the bytes of each write.
type writes struct{ list [][]byte }

func (w *writes) Write(b []byte) (int, error) {
	if len(b) > 0 {
		w.list = append(w.list, bytes.Clone(b))
	}
	return len(b), nil
}

// TestAnswersDoNotWait has two questions in the pipe at once. The first answer must be sent before the second question
// runs, which may take long.
func TestAnswersDoNotWait(t *testing.T) {
	d := newDefinition(Definer{"filter", "default", "f"}, true, []string{"true"}, nil, nil)
	in := endFrame(append(append(frame(nil, frameDefine), d.hash[:]...), d.body...), 0)
	for number := range uint64(2) {
		body := appendEvent(appendQuestion(nil, d, 0, time.Second, time.Second, []int{0}, false), &resource.Event{})
		in = append(in, endFrame(append(numbered(nil, frameQuestion, number), body...), 0)...)
	}
	out := &writes{}
	w := &worker{in: bufio.NewReader(bytes.NewReader(in)), out: out, programs: map[[16]byte]*program{}}
	if err := w.serve(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if len(out.list) != 2 {
		t.Fatalf("two answers leave in %d writes", len(out.list))
	}
}

// TestKeysOfSources: keys depend on the namespace and on the files that run before a source.
func TestKeysOfSources(t *testing.T) {
	def := func(namespace, text string) *definition {
		return newDefinition(Definer{"filter", namespace, "f"}, true, []string{"f(event)"}, nil, []scriptFile{{"lib.js", text}})
	}
	one := def("a", "function f() { return true }")
	if one.hash == def("b", "function f() { return true }").hash {
		t.Error("two namespaces share a program")
	}
	if other := def("a", "function f() { return 1 }"); one.keys[0] == other.keys[0] || other.keys[0] == keyOf(kindFilter, nil, "f(event)") {
		t.Error("another version of an asset is the same source")
	}
	if one.keys[0] != def("a", "function f() { return true }").keys[0] {
		t.Error("the same source has two keys")
	}
}
