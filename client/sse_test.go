package client

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

type sseEvent struct{ name, data string }

func readSSE(r io.Reader) ([]sseEvent, error) {
	s := newSSEReader(r)
	var events []sseEvent
	for {
		name, data, err := s.next()
		if err != nil {
			return events, err
		}
		events = append(events, sseEvent{name, string(data)})
	}
}

func TestSSE(t *testing.T) {
	f := func(in string, want ...sseEvent) {
		t.Helper()
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			got, err := readSSE(r)
			if err != io.EOF || !reflect.DeepEqual(got, want) {
				t.Errorf("%q: got %q, error %v, want %q", in, got, err, want)
			}
		}
	}
	f("")
	f("data: x\n")
	f("data: x\n\n", sseEvent{"message", "x"})
	f("event: event\ndata: {}\n\nevent: synced\ndata: {}\n\n", sseEvent{"event", "{}"}, sseEvent{"synced", "{}"})
	f("event: a\rdata: 1\r\rdata: 2\r\n\r\n", sseEvent{"a", "1"}, sseEvent{"message", "2"})
	f(": hello\n\nevent: a\n\ndata:b\n\n", sseEvent{"message", "b"})
	f("data\n\ndata\ndata\n\ndata:", sseEvent{"message", ""}, sseEvent{"message", "\n"})
	f("data: a\ndata:  b\nid: 4\nretry: 5\nfoo: x\n\n", sseEvent{"message", "a\n b"})
	f("\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", sseEvent{"message", "a"})
	f("event: x\nevent: y\ndata: a:b\n\n", sseEvent{"y", "a:b"})
	f("data: "+strings.Repeat("x", 200<<10)+"\r\n\r\n", sseEvent{"message", strings.Repeat("x", 200<<10)})
}

func TestSSEDoesNotWaitBehindCR(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		io.WriteString(w, "data: x\r\r")
		io.WriteString(w, "\ndata: y\r\n\r\n")
		w.Close()
	}()
	s := newSSEReader(r)
	// A pipe's write returns only after it was read. So waiting for the second write would be a deadlock only if the
	// first event needed it.
	for _, want := range []string{"x", "y"} {
		if _, data, err := s.next(); err != nil || string(data) != want {
			t.Fatalf("got %q, error %v, want %q", data, err, want)
		}
	}
}

func TestSSELimit(t *testing.T) {
	for _, in := range []string{
		"data: " + strings.Repeat("x", 100) + "\n\n",
		strings.Repeat("data: 0123456789\n", 10) + "\n",
		": " + strings.Repeat("x", 100) + "\n\n",
	} {
		s := newSSEReader(strings.NewReader(in))
		s.limit = 64
		if _, _, err := s.next(); err != errEventTooLarge {
			t.Errorf("%q: error %v", in, err)
		}
	}
}

func TestSSEBrokenConnection(t *testing.T) {
	broken := errors.New("broken")
	got, err := readSSE(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)))
	if err != broken || len(got) != 1 {
		t.Errorf("got %q, error %v", got, err)
	}
}

// naiveSSE reads a whole stream in the simplest way that the standard allows.
func naiveSSE(in string) []sseEvent {
	lines := regexp.MustCompile("\r\n|\r|\n").Split(strings.TrimPrefix(in, "\xef\xbb\xbf"), -1)
	var events []sseEvent
	var name string
	var data []string
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				if name == "" {
					name = "message"
				}
				events = append(events, sseEvent{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return events
}

func FuzzSSE(f *testing.F) {
	for _, seed := range []string{
		"event: event\ndata: {\"a\":1}\n\n: ping\n\nevent: synced\ndata: {}\n\n",
		"data: a\r\ndata: b\r\n\r\nevent: delete\rdata\r\r",
		"\xef\xbb\xbfdata:x\n\n",
		"event\ndata\n\n\r\n\n\r",
		"id: 1\nretry: 2\nevent: overflow\n\ndata: \x00\xff\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		want := naiveSSE(string(in))
		for _, r := range []io.Reader{bytes.NewReader(in), iotest.OneByteReader(bytes.NewReader(in)),
			iotest.HalfReader(bytes.NewReader(in))} {
			got, err := readSSE(r)
			if err != io.EOF || !reflect.DeepEqual(got, want) {
				t.Fatalf("got %q, error %v, want %q", got, err, want)
			}
		}
	})
}

func TestSSEPosition(t *testing.T) {
	s := newSSEReader(strings.NewReader("id: 1\ndata: a\n\ndata: b\n\nid: 2\n\nid: 3\ndata: c\n\nid: x\x00\nid: 4\n"))
	var got []string
	for {
		_, data, err := s.next()
		got = append(got, string(data)+s.id)
		if err != nil {
			break
		}
	}
	if want := []string{"a1", "b1", "c3", "3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
