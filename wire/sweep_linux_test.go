package wire

import (
	"syscall"
	"testing"
	"time"
)

// questioned is a socket that counts the questions about it.
type questioned struct {
	syscall.RawConn
	asked func()
}

func (q questioned) Control(f func(fd uintptr)) error {
	q.asked()
	return q.RawConn.Control(f)
}

// TestSweepAsksOnce has slow connections keep others waiting. Sweep asks the system about each of them once, and
// readers need not wait in the meantime.
func TestSweepAsksOnce(t *testing.T) {
	const each, size, limit = 100, 2 * readSize, 1 << 30
	cut, questions := 0, 0
	p := NewPartials(limit, time.Hour, func(*Conn, int64, time.Duration) { cut++ })
	conns := make([]*Conn, 2*each)
	near, _ := tcpPair(t)
	idle := plainSocket(near)
	for i := range conns {
		server, client := pipePair(t)
		defer client.Close()
		c := NewServerConn(server, nil, testLimit)
		c.Watch(p)
		c.socket = questioned{RawConn: idle, asked: func() {
			questions++
			if !p.mu.TryLock() {
				t.Fatal("readers have to wait for the system's answer")
			}
			p.mu.Unlock()
		}}
		if !p.hold(c, size, false) {
			t.Fatal("there is no room")
		}
		conns[i] = c
	}
	p.mu.Lock()
	for i, c := range conns {
		c.partial.began = c.partial.began.Add(-30 * time.Minute)
		if i < each {
			p.stop(c.partial, limit+1) // there is never room for so much
		}
	}
	p.mu.Unlock()
	p.Sweep()
	if cut != each || questions != 2*each {
		t.Errorf("%d connections were cut, want %d; %d questions about %d connections", cut, each, questions, len(conns))
	}
	if u := p.Use(); u.Stopped != each || u.Arriving != each*size {
		t.Errorf("in use afterwards: %+v", u)
	}
}
