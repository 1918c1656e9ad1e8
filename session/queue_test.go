package session

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// socketPair returns both ends of a connection over loopback.
func socketPair(tb testing.TB) (near, far net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	return near, far
}

// TestSlowSocket fills a real socket whose other end does not read. What fits leaves at once, the rest when there is
// room, then what was queued in the meantime, whole and in order.
func TestSlowSocket(t *testing.T) {
	s := startBare(t, 20*time.Millisecond)
	s.opts.SendQueue = 10_000
	near, far := socketPair(t)
	one := s.newSession(wire.NewServerConn(near, nil, 0), "default", "slow")
	s.registry.add(one)
	client := wire.NewClientConn(far, nil, 0)
	defer client.Close(wire.CloseGoingAway, "bye")

	// The first frames exceed the socket's buffers. While the first one is being written the others gather.
	sent := 0
	push := func(size int) {
		one.send(append([]byte{byte(sent), byte(sent >> 8)}, bytes.Repeat([]byte("x"), size)...))
		sent++
	}
	push(64 << 20)
	for range 300 {
		push(10_000)
	}
	one.mu.Lock()
	if !one.out.writing || len(one.out.frames) != 300 {
		t.Errorf("writing %v, %d frames wait", one.out.writing, len(one.out.frames))
	}
	one.mu.Unlock()
	if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for i := range sent {
		msg, err := client.Read()
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if n := int(msg[0]) | int(msg[1])<<8; n != i {
			t.Fatalf("frame %d came as number %d", n, i)
		}
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.out.bytes != 0 || len(one.out.frames) != 0 {
		t.Errorf("%d bytes in %d frames are left", one.out.bytes, len(one.out.frames))
	}
}

// TestWriteToAClosedConnection: a failed write drops the frames, blocks no caller, and leaves the session's end to its
// reader.
func TestWriteToAClosedConnection(t *testing.T) {
	s := startBare(t, 20*time.Millisecond)
	near, far := socketPair(t)
	one := s.newSession(wire.NewServerConn(near, nil, 0), "default", "gone")
	s.registry.add(one)
	far.Close()
	near.Close()
	for range 10 {
		one.send([]byte("entity_config\n\n"))
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.out.writing || len(one.out.frames) != 0 {
		t.Errorf("writing %v, %d frames left", one.out.writing, len(one.out.frames))
	}
}
