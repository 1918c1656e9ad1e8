package wire

import (
	"fmt"
	"testing"
	"time"
)

func TestSocketsFull(t *testing.T) {
	const limits = "287901\t383868\t575802\n"
	f := func(use string, limits string, want bool) {
		t.Helper()
		if got := socketsFull([]byte(use), limits); got != want {
			t.Errorf("with %q of %q: %v", use, limits, got)
		}
	}
	stat := func(pages int) string {
		return fmt.Sprintf("sockets: used 35578\nTCP: inuse 35560 orphan 6719 tw 723 alloc 35567 mem %d\nUDP: inuse 0 mem 999999\n", pages)
	}
	f(stat(383868), limits, false)
	f(stat(383869), limits, true)
	f("", limits, false)
	f("TCP: inuse 1 mem\n", limits, false)
	f(stat(999999), "", false)
	f(stat(999999), "1 x 3", false)
	SocketsFull() // whatever this system says
}

// TestRelieve: half of the connections that wait for room are closed, and the others get through.
func TestRelieve(t *testing.T) {
	const limit, size = 1 << 20, 600 << 10
	p := NewPartials(limit, time.Hour, func(*Conn, int64, time.Duration) { t.Error("a connection was closed as slow") })
	whole := maskedFrames(1, size)
	var all []*counted
	for range 7 {
		c := count(t, p, tcpPair)
		close(c.next) // its reader keeps no message
		c.send(whole[:len(whole)-1])
		all = append(all, c)
	}
	// One message fits at most, and another one may exceed the limit.
	eventually(t, "five wait", func() bool { return p.Use().Stopped >= 5 })
	closed := p.Relieve()
	if closed < 2 || closed > 3 {
		t.Errorf("%d connections were closed, want half of five or six", closed)
	}
	var left []*counted
	eventually(t, "they end", func() bool {
		left = nil
		for _, c := range all {
			if len(c.ended) == 0 {
				left = append(left, c)
			}
		}
		return len(left) == len(all)-closed
	})
	for _, c := range left {
		c.send(whole[len(whole)-1:])
	}
	for _, c := range left {
		c.got(t, size)
	}
	eventually(t, "nothing is held", func() bool { return p.Use() == PartialsUse{} })
	if n := p.Relieve(); n != 0 {
		t.Errorf("%d connections were closed while none waits", n)
	}
}
