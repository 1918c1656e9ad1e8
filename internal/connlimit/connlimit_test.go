package connlimit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// listen is a Listener on loopback.
func listen(t *testing.T, opts Options) *Listener {
	t.Helper()
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts.Name = "test"
	l := New(inner, opts)
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects from an address of this host.
func dial(t *testing.T, l *Listener, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func accept(t *testing.T, l *Listener) *Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*Conn)
}

// closed reports whether the other end has closed the connection; it waits for that.
func closed(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// alive passes a byte to the client.
func alive(t *testing.T, server, client net.Conn) {
	t.Helper()
	if _, err := server.Write([]byte("x")); err != nil {
		t.Errorf("write: %v", err)
		return
	}
	if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Errorf("read: %v", err)
	}
}

func (l *Listener) counts() (open, unproven, hosts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.unproven.n, len(l.hosts)
}

// waits reports whether a connection waits for a place.
func (l *Listener) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// TestUnprovenGoFirst fills a listener: a new connection replaces the oldest one that has not signed in, and when all
// have signed in it is refused.
func TestUnprovenGoFirst(t *testing.T) {
	l := listen(t, Options{Max: 3})
	var clients []net.Conn
	var servers []*Conn
	connect := func() { // each from another address, so that only the bound of all connections acts
		clients = append(clients, dial(t, l, fmt.Sprint("127.0.1.", len(clients)+1)))
		servers = append(servers, accept(t, l))
	}
	for range 3 {
		connect()
	}
	servers[0].slot.Prove()
	connect()
	if !closed(t, clients[1]) {
		t.Error("the oldest without credentials was not closed")
	}
	for _, i := range []int{0, 2, 3} {
		alive(t, servers[i], clients[i])
		servers[i].slot.Prove()
	}
	late := dial(t, l, "127.0.0.2")
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	if !closed(t, late) {
		t.Error("there was no room, and it was not closed")
	}
	servers[0].Close()
	servers[0].slot.Release() // a second time
	next := dial(t, l, "127.0.0.2")
	server := <-accepted
	alive(t, server, next)
	server.Close()
	servers[2].Close()
	servers[3].Close()
	if open, unproven, hosts := l.counts(); open != 0 || unproven != 0 || hosts != 0 {
		t.Errorf("%d open, %d not signed in, %d hosts", open, unproven, hosts)
	}
}

// TestPerAddress: an address has its own bound, unless many clients share it.
func TestPerAddress(t *testing.T) {
	shared := netip.MustParseAddr("127.0.0.9")
	l := listen(t, Options{Max: 20, PerAddress: 2, Shared: func(a netip.Addr) bool { return a == shared }})
	var first []net.Conn
	for range 2 {
		first = append(first, dial(t, l, "127.0.0.1"))
		accept(t, l).slot.Prove()
	}
	refused := dial(t, l, "127.0.0.1")
	other := dial(t, l, "127.0.0.2")
	alive(t, accept(t, l), other)
	if !closed(t, refused) {
		t.Error("a third connection of one address was taken")
	}
	for range 10 {
		client := dial(t, l, "127.0.0.9")
		alive(t, accept(t, l), client)
	}
	_ = first
}

// TestUnprovenAreBounded has one address hold all places of clients that have not signed in. Other addresses get in at
// once, and it gets no more places.
func TestUnprovenAreBounded(t *testing.T) {
	l := listen(t, Options{Max: 100, Unproven: 8, Grace: time.Hour})
	var bad []net.Conn
	for range 8 {
		bad = append(bad, dial(t, l, "127.0.0.66"))
		accept(t, l)
	}
	more := dial(t, l, "127.0.0.66")
	good := dial(t, l, "127.0.0.1")
	server := accept(t, l)
	alive(t, server, good)
	if !closed(t, more) || !closed(t, bad[0]) {
		t.Error("the address had more than its places")
	}
	if _, unproven, _ := l.counts(); unproven != 8 {
		t.Errorf("%d have not signed in", unproven)
	}
}

// TestUnprovenWait: when many addresses hold the places, a new connection waits until one signs in, or its grace ends.
func TestUnprovenWait(t *testing.T) {
	l := listen(t, Options{Max: 100, Unproven: 2, Grace: time.Hour})
	a, b := dial(t, l, "127.0.0.1"), dial(t, l, "127.0.0.2")
	first := accept(t, l)
	accept(t, l)
	third := dial(t, l, "127.0.0.3")
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	for deadline := time.Now().Add(time.Minute); !l.waits(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the third does not wait")
		}
	}
	first.slot.Prove()
	alive(t, <-accepted, third)
	l.mu.Lock()
	l.opts.Grace = time.Nanosecond
	l.mu.Unlock()
	fourth := dial(t, l, "127.0.0.4")
	alive(t, accept(t, l), fourth)
	if !closed(t, b) {
		t.Error("the oldest had its time, and was not closed")
	}
	alive(t, first, a)
}

// TestOutOfFiles: without a connection to close, a new one is accepted with the spare descriptor and closed, so that
// its client does not wait in vain.
func TestOutOfFiles(t *testing.T) {
	l := listen(t, Options{Max: 10})
	for range 2 {
		waiting := dial(t, l, "127.0.0.1")
		l.outOfFiles(syscall.EMFILE)
		if !closed(t, waiting) {
			t.Error("the client waits")
		}
	}
	first := dial(t, l, "127.0.0.1")
	accept(t, l)
	l.outOfFiles(syscall.EMFILE)
	if !closed(t, first) {
		t.Error("no room was made")
	}
	if open, _, _ := l.counts(); open != 0 || l.spare == nil {
		t.Errorf("%d are open, spare file %v", open, l.spare)
	}
}

// TestMakeRoom: a client that has signed in gets the place of the oldest that has not, and of no other.
func TestMakeRoom(t *testing.T) {
	l := listen(t, Options{Max: 10})
	oldest := dial(t, l, "127.0.0.1")
	accept(t, l)
	agent := dial(t, l, "127.0.0.2")
	c := accept(t, l)
	c.slot.Prove()
	if !c.slot.MakeRoom() || !closed(t, oldest) {
		t.Error("the oldest was not closed")
	}
	if c.slot.MakeRoom() {
		t.Error("room was made of a client that has signed in")
	}
	alive(t, c, agent)
	if open, unproven, _ := l.counts(); open != 1 || unproven != 0 {
		t.Errorf("%d are open, %d unproven", open, unproven)
	}
}

// TestHostIsCountedWhileItWaits: while a connection waits for a place, its host's only other one closes. The host is
// still counted afterwards.
func TestHostIsCountedWhileItWaits(t *testing.T) {
	l := listen(t, Options{Max: 100, Unproven: 2, PerAddress: 1, Grace: time.Hour,
		Shared: func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.9") }})
	dial(t, l, "127.0.0.9")
	only := accept(t, l)
	only.slot.Prove()
	dial(t, l, "127.0.0.1")
	dial(t, l, "127.0.0.2")
	first := accept(t, l)
	accept(t, l)
	dial(t, l, "127.0.0.9")
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	host := netip.MustParseAddr("127.0.0.9")
	waits := func(open int) {
		t.Helper()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(time.Minute); ; <-tick.C {
			l.mu.Lock()
			h := l.hosts[host]
			ok := l.waiting && len(l.room) == 0 && h != nil && h.open == open
			l.mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no connection waits while the host has %d", open)
			}
		}
	}
	waits(2)
	only.Close()
	waits(1)
	first.slot.Prove()
	second := <-accepted
	l.mu.Lock()
	h := l.hosts[host]
	if h == nil || h.open != 1 || h != second.(*Conn).slot.host {
		t.Errorf("the host is %+v", h)
	}
	l.mu.Unlock()
	second.(*Conn).slot.Prove()
	dial(t, l, "127.0.0.9")
	third := accept(t, l)
	l.mu.Lock()
	if h := l.hosts[host]; h == nil || h.open != 2 {
		t.Errorf("with two connections the host is %+v", h)
	}
	l.mu.Unlock()
	second.Close()
	third.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosts[host]; h != nil {
		t.Errorf("without connections the host is %+v", h)
	}
}
