package wire

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
)

const testLimit = 1 << 20

// tcpPair returns both ends of a connection over loopback.
func tcpPair(tb testing.TB) (server, client net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	if strings.HasPrefix(tb.Name(), "TestAdopted/") {
		server = adoptForTest(tb, server)
	}
	tb.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

// adoptForTest has a Poller watch a connection, on systems with a Poller.
var adoptForTest func(testing.TB, net.Conn) net.Conn

// tlsPair is connPair over TLS, with the handshake done.
func tlsPair(tb testing.TB) (server, client *Conn) {
	tb.Helper()
	ca := httptest.NewUnstartedServer(nil)
	ca.StartTLS()
	defer ca.Close()
	s, c := tcpPair(tb)
	t := tls.Client(c, &tls.Config{RootCAs: ca.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"})
	u := tls.Server(s, &tls.Config{Certificates: ca.TLS.Certificates})
	shaken := make(chan error)
	go func() { shaken <- u.Handshake() }()
	if err := errors.Join(t.Handshake(), <-shaken); err != nil {
		tb.Fatal(err)
	}
	return NewServerConn(u, nil, testLimit), NewClientConn(t, nil, testLimit)
}

func connPair(tb testing.TB) (server, client *Conn) {
	s, c := tcpPair(tb)
	return NewServerConn(s, nil, testLimit), NewClientConn(c, nil, testLimit)
}

func TestMessagesBothWays(t *testing.T) {
	for name, newPair := range map[string]func(testing.TB) (server, client *Conn){"tcp": connPair, "tls": tlsPair} {
		t.Run(name, func(t *testing.T) { testMessagesBothWays(t, newPair) })
	}
}

func testMessagesBothWays(t *testing.T, newPair func(testing.TB) (server, client *Conn)) {
	server, client := newPair(t)
	for _, n := range []int{0, 1, 125, 126, 127, 500, readSize - 8, readSize - 7, readSize, 65535, 65536, 200_000, testLimit} {
		msg := bytes.Repeat([]byte("lapwing "), n/8+1)[:n]
		for _, dir := range []struct {
			name     string
			from, to *Conn
		}{{"to server", client, server}, {"to client", server, client}} {
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := dir.from.Write(msg); err != nil {
					t.Errorf("%d bytes %s: %v", n, dir.name, err)
				}
			})
			got, err := dir.to.Read()
			wg.Wait()
			if err != nil {
				t.Fatalf("%d bytes %s: %v", n, dir.name, err)
			}
			if !bytes.Equal(got, msg) {
				t.Fatalf("%d bytes %s: got %d other ones", n, dir.name, len(got))
			}
		}
	}
}

// rawFrames is a sequence of frames as a client would send them; each is masked with its own mask.
func rawFrames(frames ...ws.Frame) []byte {
	var b bytes.Buffer
	for _, f := range frames {
		ws.MustWriteFrame(&b, ws.MaskFrame(f))
	}
	return b.Bytes()
}

func TestFragmentsAndControlFrames(t *testing.T) {
	s, client := tcpPair(t)
	server := NewServerConn(s, nil, testLimit)
	pongs := 0
	server.OnPong(func() { pongs++ })

	long := strings.Repeat("x", 4096)
	input := rawFrames(
		ws.NewFrame(ws.OpBinary, false, []byte(long)),
		ws.NewPingFrame([]byte("are you there")),
		ws.NewFrame(ws.OpContinuation, false, []byte(long)),
		ws.NewPongFrame(nil),
		ws.NewFrame(ws.OpContinuation, false, nil),
		ws.NewFrame(ws.OpContinuation, true, []byte("end")),
		ws.NewTextFrame([]byte("text")),
		ws.NewPongFrame([]byte("x")),
		ws.NewFrame(ws.OpText, false, []byte("te")),
		ws.NewFrame(ws.OpContinuation, true, []byte("xt")),
	)
	// One byte at a time: a frame may arrive in pieces.
	go func() {
		for i := range input {
			if _, err := client.Write(input[i : i+1]); err != nil {
				return
			}
		}
	}()
	for _, want := range []string{long + long + "end", "text", "text"} {
		got, err := server.Read()
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("got %d bytes, want %d", len(got), len(want))
		}
	}
	if pongs != 2 {
		t.Errorf("%d pongs, want 2", pongs)
	}
	pong, err := readFrame(client)
	if err != nil {
		t.Fatal(err)
	}
	if pong.Header.OpCode != ws.OpPong || pong.Header.Masked || string(pong.Payload) != "are you there" {
		t.Errorf("answer to ping: %+v", pong)
	}
}

func TestPing(t *testing.T) {
	server, client := connPair(t)
	ponged := make(chan struct{})
	client.OnPong(func() { close(ponged) })
	done := make(chan error, 2)
	for _, c := range []*Conn{server, client} {
		go func() {
			_, err := c.Read()
			done <- err
		}()
	}
	if err := client.Ping(); err != nil {
		t.Fatal(err)
	}
	<-ponged
	client.Close(CloseGoingAway, "bye")
	<-done
	<-done
}

func TestRefusals(t *testing.T) {
	unmasked := func(f ws.Frame) []byte { return ws.MustCompileFrame(f) }
	rsv := ws.NewBinaryFrame([]byte("x"))
	rsv.Header.Rsv = ws.Rsv(true, false, false)
	tooBig := bytes.Repeat([]byte("x"), testLimit/2+1)
	tests := []struct {
		name  string
		input []byte
		code  ws.StatusCode
		want  error
	}{
		{"unmasked", unmasked(ws.NewBinaryFrame([]byte("x"))), 1002, ws.ErrProtocolMaskRequired},
		{"unmasked ping", unmasked(ws.NewPingFrame(nil)), 1002, ws.ErrProtocolMaskRequired},
		{"reserved bits", rawFrames(rsv), 1002, ws.ErrProtocolNonZeroRsv},
		{"reserved opcode", rawFrames(ws.NewFrame(3, true, nil)), 1002, ws.ErrProtocolOpCodeReserved},
		{"continuation of nothing", rawFrames(ws.NewFrame(ws.OpContinuation, true, nil)), 1002, ws.ErrProtocolContinuationUnexpected},
		{"message inside a message", rawFrames(ws.NewFrame(ws.OpBinary, false, nil), ws.NewBinaryFrame(nil)), 1002, ws.ErrProtocolContinuationExpected},
		{"fragmented ping", rawFrames(ws.NewFrame(ws.OpPing, false, nil)), 1002, ws.ErrProtocolControlNotFinal},
		{"long ping", rawFrames(ws.NewFrame(ws.OpPing, true, make([]byte, 126))), 1002, ws.ErrProtocolControlPayloadOverflow},
		{"negative length", []byte("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff0000"), 1002, ws.ErrHeaderLengthMSB},
		{"half a close code", rawFrames(ws.NewFrame(ws.OpClose, true, []byte{3})), 1002, ws.ErrProtocolStatusCodeNotInUse},
		{"close code that is never sent", rawFrames(ws.NewCloseFrame(ws.NewCloseFrameBody(1005, ""))), 1002, ws.ErrProtocolStatusCodeApplicationLevel},
		{"too big", []byte("\x82\xff\x00\x00\xff\xff\xff\xff\xff\xff0000"), 1009, ErrTooBig},
		{"too big in pieces", rawFrames(ws.NewFrame(ws.OpBinary, false, tooBig), ws.NewFrame(ws.OpContinuation, true, tooBig)), 1009, ErrTooBig},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, client := tcpPair(t)
			server := NewServerConn(s, nil, testLimit)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := server.Read()
				if !errors.Is(err, tt.want) {
					t.Errorf("Read: %v, want %v", err, tt.want)
				}
				if err := server.Write(nil); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Write: %v", err)
				}
			})
			if _, err := client.Write(tt.input); err != nil {
				t.Fatal(err)
			}
			f, err := readFrame(client)
			if err != nil {
				t.Fatal(err)
			}
			if code, _ := ws.ParseCloseFrameData(f.Payload); f.Header.OpCode != ws.OpClose || code != tt.code {
				t.Errorf("answer: %+v, code %d, want %d", f.Header, code, tt.code)
			}
			client.Close()
			wg.Wait()
		})
	}
}

// A client is as strict, in the other direction.
func TestClientRefusesMaskedFrames(t *testing.T) {
	server, c := tcpPair(t)
	client := NewClientConn(c, nil, 0)
	if _, err := server.Write(rawFrames(ws.NewBinaryFrame([]byte("x")))); err != nil {
		t.Fatal(err)
	}
	if err := server.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(); !errors.Is(err, ws.ErrProtocolMaskUnexpected) {
		t.Errorf("got %v", err)
	}
}

// An announced length alone must not make the server allocate.
func TestAnnouncedLengthIsNotTrusted(t *testing.T) {
	s, client := tcpPair(t)
	server := NewServerConn(s, nil, 1<<40)
	if _, err := client.Write([]byte("\x82\xff\x00\x00\x00\xff\xff\xff\xff\xff0000abc")); err != nil {
		t.Fatal(err)
	}
	client.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := server.Read(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

func TestClose(t *testing.T) {
	for _, serverCloses := range []bool{true, false} {
		closer, other := connPair(t)
		if !serverCloses {
			closer, other = other, closer
		}
		reading := make(chan error)
		go func() {
			_, err := closer.Read()
			reading <- err
		}()
		for range 2 { // it may be called again
			if err := closer.Close(CloseGoingAway, "bye"); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-reading; err == nil {
			t.Error("a read went on after Close")
		}
		if err := closer.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
		_, err := other.Read()
		var closed *CloseError
		if !errors.As(err, &closed) || *closed != (CloseError{Code: 1001, Reason: "bye"}) {
			t.Errorf("other end: %v", err)
		}
		if err := other.Close(CloseGoingAway, "bye"); err != nil {
			t.Errorf("close the closed end: %v", err)
		}
	}
}

// TestAbort: the peer of an end that aborts gets an error of TCP, and no close frame.
func TestAbort(t *testing.T) {
	for name, newPair := range map[string]func(testing.TB) (server, client *Conn){"tcp": connPair, "tls": tlsPair} {
		t.Run(name, func(t *testing.T) {
			server, client := newPair(t)
			for range 2 { // it may be called again
				client.Abort()
			}
			var closed *CloseError
			if _, err := server.Read(); !errors.Is(err, syscall.ECONNRESET) || errors.As(err, &closed) {
				t.Errorf("other end: %v", err)
			}
			if err := client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write after Abort: %v", err)
			}
			if err := server.Close(CloseGoingAway, "bye"); err != nil {
				t.Errorf("close the reset end: %v", err)
			}
		})
	}
}

// TestLeave: messages that the peer has sent before it saw the close frame are read, and then its answer.
func TestLeave(t *testing.T) {
	for name, newPair := range map[string]func(testing.TB) (server, client *Conn){"tcp": connPair, "tls": tlsPair} {
		t.Run(name, func(t *testing.T) {
			server, client := newPair(t)
			want := []string{"one", "two", "three"}
			for _, msg := range want[:2] {
				if err := errors.Join(client.Write([]byte(msg)), client.Ping()); err != nil {
					t.Fatal(err)
				}
			}
			server.Leave(CloseGoingAway, "bye")
			if err := server.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write after Leave: %v", err)
			}
			if err := client.Write([]byte(want[2])); err != nil { // it has not looked yet
				t.Fatal(err)
			}
			left := make(chan error, 1)
			go func() {
				_, err := client.Read()
				left <- err
			}()
			for _, msg := range want {
				if got, err := server.Read(); err != nil || string(got) != msg {
					t.Fatalf("got %q, %v, want %q", got, err, msg)
				}
			}
			var closed *CloseError
			if err := <-left; !errors.As(err, &closed) || *closed != (CloseError{Code: 1001, Reason: "bye"}) {
				t.Errorf("the peer got %v", err)
			}
			if _, err := server.Read(); !errors.As(err, &closed) || closed.Code != CloseGoingAway {
				t.Errorf("answered with %v", err)
			}
			if err := server.Close(CloseGoingAway, "bye"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPeerCloses(t *testing.T) {
	tests := []struct {
		name    string
		payload []byte
		want    CloseError
		answer  []byte
	}{
		{"with a reason", ws.NewCloseFrameBody(1001, "bye"), CloseError{1001, "bye"}, []byte{3, 0xe9}},
		{"with a code", ws.NewCloseFrameBody(4000, ""), CloseError{4000, ""}, []byte{15, 0xa0}},
		{"without", nil, CloseError{CloseNoStatus, ""}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, client := tcpPair(t)
			server := NewServerConn(s, nil, testLimit)
			if _, err := client.Write(rawFrames(ws.NewCloseFrame(tt.payload))); err != nil {
				t.Fatal(err)
			}
			_, err := server.Read()
			var closed *CloseError
			if !errors.As(err, &closed) || *closed != tt.want {
				t.Errorf("got %v, want %v", err, &tt.want)
			}
			f, err := readFrame(client)
			if err != nil || f.Header.OpCode != ws.OpClose || !bytes.Equal(f.Payload, tt.answer) {
				t.Errorf("answer %+v, %v", f, err)
			}
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("after the answer: %v", err)
			}
		})
	}
}

func TestPeerVanishes(t *testing.T) {
	for _, tt := range []struct {
		input string
		want  error
	}{
		{"", io.EOF},
		{"\x82", io.ErrUnexpectedEOF},
		{"\x82\x850000ab", io.ErrUnexpectedEOF},
		{"\x02\x820000ab", io.EOF}, // between fragments
		{"\x89\x820000", io.ErrUnexpectedEOF},
	} {
		s, client := tcpPair(t)
		if _, err := client.Write([]byte(tt.input)); err != nil {
			t.Fatal(err)
		}
		client.Close()
		if _, err := NewServerConn(s, nil, testLimit).Read(); !errors.Is(err, tt.want) {
			t.Errorf("%q: %v, want %v", tt.input, err, tt.want)
		}
	}
}

// Data that the HTTP server has read ahead comes first.
func TestEarlyData(t *testing.T) {
	var input []byte
	for i := range 300 {
		input = append(input, rawFrames(ws.NewBinaryFrame(fmt.Appendf(nil, "message %d", i)))...)
	}
	for _, early := range []int{0, 1, 7, 600, 4000, len(input)} {
		t.Run(fmt.Sprint(early), func(t *testing.T) {
			s, client := tcpPair(t)
			br := bufio.NewReaderSize(s, 1<<16)
			if _, err := client.Write(input[:early]); err != nil {
				t.Fatal(err)
			}
			if _, err := br.Peek(early); err != nil {
				t.Fatal(err)
			}
			server := NewServerConn(s, br, testLimit)
			br.Reset(nil) // belongs to the HTTP server
			if _, err := client.Write(input[early:]); err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				got, err := server.Read()
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf("message %d", i); string(got) != want {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
		})
	}
}

func TestReadDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := NewServerConn(near, nil, 0)
		start := time.Now()
		if err := c.SetReadDeadline(start.Add(45 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read()
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != 45*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		near.Close()
	})
}

func TestReadDeadlineOfASocket(t *testing.T) {
	server, client := connPair(t)
	passed := time.Now().Add(20 * time.Millisecond)
	if err := server.SetReadDeadline(passed); err != nil {
		t.Fatal(err)
	}
	_, err := server.Read()
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || time.Now().Before(passed) {
		t.Errorf("got %v", err)
	}
	if err := server.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if msg, err := server.Read(); err != nil || string(msg) != "x" {
		t.Errorf("without a deadline: %q, %v", msg, err)
	}
}

// streamConn is a connection whose peer has sent everything already.
type streamConn struct {
	net.Conn
	r io.Reader
}

func (c *streamConn) Read(b []byte) (int, error)       { return c.r.Read(b) }
func (c *streamConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *streamConn) Close() error                     { return nil }
func (c *streamConn) SetWriteDeadline(time.Time) error { return nil }

// readFrame reads one frame from the wire; the peer is ours and its lengths can be trusted.
func readFrame(r io.Reader) (ws.Frame, error) {
	h, err := ws.ReadHeader(r)
	if err != nil {
		return ws.Frame{}, err
	}
	f := ws.Frame{Header: h, Payload: make([]byte, h.Length)}
	_, err = io.ReadFull(r, f.Payload)
	return f, err
}
