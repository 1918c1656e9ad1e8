package send

import (
	"io"
	"net"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func socket(kind string, addr net.Addr) *resource.Handler {
	h := handler(kind)
	h.Socket = &resource.HandlerSocket{Host: "127.0.0.1"}
	switch addr := addr.(type) {
	case *net.TCPAddr:
		h.Socket.Port = uint32(addr.Port)
	case *net.UDPAddr:
		h.Socket.Port = uint32(addr.Port)
	}
	return h
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() {
		defer close(got)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(conn)
			conn.Close()
			got <- string(b)
		}
	}()
	s := setup(t, Options{})
	h := socket("tcp", l.Addr())
	want(t, "write", s.Run(t.Context(), h, Job{Data: []byte("as it is")}), KindOK, false, "")
	if text := <-got; text != "as it is" {
		t.Errorf("got %q", text)
	}
	l.Close()
	<-got
	want(t, "refused", s.Run(t.Context(), h, Job{Data: []byte("x")}), KindError, true, "refused")
}

// TestTCPThatReadsNothing writes more than the buffers on the way hold.
func TestTCPThatReadsNothing(t *testing.T) {
	t.Parallel()
	h := socket("tcp", silent(t))
	h.Timeout = 1
	s := setup(t, Options{})
	want(t, "full", s.Run(t.Context(), h, Job{Data: make([]byte, 64<<20)}), KindTimeout, true, "deadline")
}

func TestUDP(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := setup(t, Options{})
	h := socket("udp", conn.LocalAddr())
	want(t, "write", s.Run(t.Context(), h, Job{Data: []byte("as it is")}), KindOK, false, "")
	buf := make([]byte, 100)
	n, _, err := conn.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "as it is" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	want(t, "too large", s.Run(t.Context(), h, Job{Data: make([]byte, 70000)}), KindError, false, "too long")
}
