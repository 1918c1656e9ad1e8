package wire

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gobwas/ws"
)

// arrive makes c buffer what its peer writes now, as a Read would that has to wait for more.
func arrive(t *testing.T, c *Conn, peer io.Writer, b []byte) {
	t.Helper()
	if _, err := peer.Write(b); err != nil {
		t.Fatal(err)
	}
	for want := len(c.in.data) + len(b); len(c.in.data) < want; {
		c.in.letGo()
		if _, err := c.in.read(nil); err != nil {
			t.Fatal(err)
		}
	}
}

// maskedFrames returns n frames of a client, as one write.
func maskedFrames(n, size int) []byte {
	var frames []ws.Frame
	for range n {
		frames = append(frames, ws.NewBinaryFrame(make([]byte, size)))
	}
	return rawFrames(frames...)
}

// mixture returns a stream with frames of all kinds, and its messages.
func mixture() (input []byte, messages []string) {
	middle, long := strings.Repeat("m", 300), strings.Repeat("l", 3*readSize)
	input = rawFrames(
		ws.NewBinaryFrame([]byte("short")),
		ws.NewPongFrame([]byte("x")),
		ws.NewBinaryFrame([]byte(middle)),
		ws.NewFrame(ws.OpBinary, false, []byte("frag")),
		ws.NewPongFrame(nil),
		ws.NewFrame(ws.OpContinuation, true, []byte("ments")),
		ws.NewBinaryFrame(nil),
		ws.NewBinaryFrame([]byte(long)),
		ws.NewTextFrame([]byte("last")),
	)
	return input, []string{"short", middle, "fragments", "", long, "last"}
}

// Wherever the stream is cut, the messages are the same.
func TestReadsCutAnywhere(t *testing.T) {
	input, messages := mixture()
	read := func(t *testing.T, c *Conn) {
		t.Helper()
		for _, want := range messages {
			got, err := c.Read()
			if err != nil || string(got) != want {
				t.Fatalf("got %.10q (%d bytes), %v, want %.10q", got, len(got), err, want)
			}
		}
		if got, err := c.Read(); err == nil {
			t.Fatalf("one message too many: %.10q", got)
		}
	}
	cuts := []int{len(input) - 1, len(input) - readSize, len(input) - 2*readSize}
	for i := range 420 { // past the header of the long one
		cuts = append(cuts, i)
	}
	t.Run("socket", func(t *testing.T) {
		for _, cut := range cuts {
			s, client := tcpPair(t)
			server := NewServerConn(s, nil, testLimit)
			if cut <= readSize && cut > 0 {
				arrive(t, server, client, input[:cut])
			} else if _, err := client.Write(input[:cut]); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Write(input[cut:]); err != nil {
				t.Fatal(err)
			}
			client.Close()
			read(t, server)
			s.Close()
		}
	})
	t.Run("stream", func(t *testing.T) {
		for _, cut := range cuts {
			pieces := io.MultiReader(bytes.NewReader(input[:cut]), bytes.NewReader(input[cut:]))
			read(t, NewServerConn(&streamConn{r: pieces}, nil, testLimit))
		}
	})
}

// Data that has arrived together is read with one system call, and one more finds that nothing is left.
func TestOneSystemCallForAllThatHasArrived(t *testing.T) {
	server, client := socketPair(t)
	calls := 0
	server.in.try = func(fd uintptr) bool {
		ready := server.in.readOnce(fd)
		if ready {
			calls++
		}
		return ready
	}
	for _, frames := range []int{1, 2, 8} {
		calls = 0
		if _, err := client.conn.Write(maskedFrames(frames, 900)); err != nil {
			t.Fatal(err)
		}
		for range frames {
			if _, err := server.Read(); err != nil {
				t.Fatal(err)
			}
		}
		if calls != 1 {
			t.Errorf("%d frames: %d system calls", frames, calls)
		}
	}
	// A long message takes one more, into memory of its own.
	calls = 0
	if _, err := client.conn.Write(maskedFrames(1, 40<<10)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(); err != nil || calls != 2 {
		t.Errorf("long message: %d system calls, %v", calls, err)
	}
}

func TestMessagesDoNotOverlap(t *testing.T) {
	s, client := tcpPair(t)
	server := NewServerConn(s, nil, testLimit)
	arrive(t, server, client, rawFrames(ws.NewBinaryFrame([]byte("first")), ws.NewBinaryFrame([]byte("second"))))
	got, err := server.Read()
	if err != nil {
		t.Fatal(err)
	}
	_ = append(got, "XXXXXXXXXXXX"...) // what a caller may do
	if got, err := server.Read(); err != nil || string(got) != "second" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A connection holds a buffer only between the arrival of input and its reading.
func TestBufferIsBorrowed(t *testing.T) {
	s, client := tcpPair(t)
	server := NewServerConn(s, nil, testLimit)
	first, second := rawFrames(ws.NewBinaryFrame([]byte("first"))), rawFrames(ws.NewBinaryFrame([]byte("second")))
	arrive(t, server, client, slices.Concat(first, second[:7]))
	if _, err := server.Read(); err != nil || server.in.buf == nil {
		t.Fatalf("no buffer, or %v", err)
	}
	server.in.letGo() // as the next Read does, since the second frame is incomplete
	if server.in.buf != nil || cap(server.in.data) > 16 || !bytes.Equal(server.in.data, second[:7]) {
		t.Errorf("kept: %d bytes, %q", cap(server.in.data), server.in.data)
	}
	if _, err := client.Write(second[7:]); err != nil {
		t.Fatal(err)
	}
	if got, err := server.Read(); err != nil || string(got) != "second" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBuffered(t *testing.T) {
	message, ping := ws.NewBinaryFrame([]byte("message")), ws.NewPingFrame(nil)
	part, end := ws.NewFrame(ws.OpBinary, false, []byte("me")), ws.NewFrame(ws.OpContinuation, true, []byte("ssage"))
	tests := []struct {
		name string
		next []byte
		want bool
	}{
		{"nothing", nil, false},
		{"a message", rawFrames(message), true},
		{"a ping", rawFrames(ping), false},
		{"a ping and a message", rawFrames(ping, message), true},
		{"half a header", rawFrames(message)[:3], false},
		{"half a message", rawFrames(message)[:9], false},
		{"a fragment", rawFrames(part), false},
		{"all fragments", rawFrames(part, ping, end), true},
		{"the end", rawFrames(ws.NewCloseFrame(nil)), true},
		{"nonsense", []byte("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff0000"), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, client := tcpPair(t)
			server := NewServerConn(s, nil, testLimit)
			if server.Buffered() {
				t.Error("before the first message")
			}
			arrive(t, server, client, append(rawFrames(message), tt.next...))
			if _, err := server.Read(); err != nil {
				t.Fatal(err)
			}
			if got := server.Buffered(); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func FuzzParseHeader(f *testing.F) {
	for _, frame := range []ws.Frame{
		ws.NewBinaryFrame([]byte("x")), ws.NewPingFrame(nil), ws.NewTextFrame(make([]byte, 126)), ws.NewTextFrame(make([]byte, 1<<16)),
	} {
		f.Add(ws.MustCompileFrame(frame))
		f.Add(rawFrames(frame))
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		want, wantErr := ws.ReadHeader(r)
		got, n, err := parseHeader(b)
		switch {
		case wantErr == io.EOF || wantErr == io.ErrUnexpectedEOF:
			if n != 0 || err != nil {
				t.Errorf("%x: %d bytes of header, %v, but it is not all there", b, n, err)
			}
		case wantErr != nil:
			if err != wantErr {
				t.Errorf("%x: %v, want %v", b, err, wantErr)
			}
		case err != nil || got != want || n != len(b)-r.Len():
			t.Errorf("%x: %+v, %d, %v, want %+v", b, got, n, err, want)
		case !bytes.Equal(appendHeader(nil, got), b[:n]) && ws.HeaderSize(got) == n:
			t.Errorf("%x is written as %x", b[:n], appendHeader(nil, got))
		}
	})
}
