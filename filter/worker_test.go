package filter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestFramesAreNumbered has a worker look up events while another question is already there.
func TestFramesAreNumbered(t *testing.T) {
	ev := &resource.Event{Check: &resource.Check{Status: 2}}
	d := newDefinition(Definer{"filter", "default", "f"}, true, []string{`sensu.FetchEvent("e", "c").check.status == 2`, "true"}, nil, nil)
	ask := func(b []byte, number uint64, source int) []byte {
		body := appendEvent(appendQuestion(nil, d, 0, time.Second, time.Second, []int{source}, true), ev)
		return append(b, endFrame(append(numbered(nil, frameQuestion, number), body...), 0)...)
	}
	serve := func(events uint64, second int) (frames []string, err error) {
		in := endFrame(append(append(frame(nil, frameDefine), d.hash[:]...), d.body...), 0)
		in = ask(ask(in, 7, 0), 8, second)
		answer := lookIn(onlyEvent{ev}, nil, ev)(fields.AppendBytes(fields.AppendBytes([]byte{lookEvent}, "e"), "c"))
		for range 2 - second { // the second question may look something up too
			in = append(in, endFrame(append(numbered(nil, frameEvents, events), answer...), 0)...)
			events++
		}
		var out bytes.Buffer
		w := &worker{in: bufio.NewReader(bytes.NewReader(in)), out: &out, programs: map[[16]byte]*program{}}
		err = w.serve()
		for {
			kind, body, _, err := readFrame(&out, nil)
			if err != nil {
				break
			}
			frames = append(frames, string(kind)+string('0'+rune(body[0])))
		}
		return frames, err
	}
	for second, want := range []string{"[l7 a7 l8 a8]", "[l7 a7 a8]"} {
		if frames, err := serve(7, second); !errors.Is(err, io.EOF) || fmt.Sprint(frames) != want {
			t.Errorf("it writes %v, %v", frames, err)
		}
		if frames, err := serve(8, second); !errors.Is(err, errFrame) || fmt.Sprint(frames) != "[l7]" {
			t.Errorf("after the events of another question it writes %v, %v", frames, err)
		}
	}
	if _, ok := isFor(numbered(nil, frameAnswer, 3)[5:], 4); ok {
		t.Error("the answer to another question is taken")
	}
}

// onlyEvent has one event.
type onlyEvent struct{ ev *resource.Event }

func (o onlyEvent) Event(string, string, string) (*resource.Event, error) { return o.ev, nil }

func (o onlyEvent) Events(string, string, string, int) ([]*resource.Event, string, error) {
	return []*resource.Event{o.ev}, "", nil
}
