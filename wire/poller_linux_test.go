package wire

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// owner is what tests have in place of a session.
type owner interface {
	Readable() Then
	Lane() int
	Resume()
}

// testPoller is a Poller that ends with the test, after its connections.
func testPoller(tb testing.TB, every time.Duration) *Poller[owner] {
	tb.Helper()
	return lanedPoller(tb, every, Lanes{Count: 1, Open: func(int) bool { return true }})
}

func lanedPoller(tb testing.TB, every time.Duration, lanes Lanes) *Poller[owner] {
	tb.Helper()
	p, err := NewPoller[owner](every, lanes)
	if err != nil {
		tb.Fatal(err)
	}
	go serve(p)
	tb.Cleanup(p.Close)
	return p
}

// serve gives the owners their turns.
func serve(p *Poller[owner]) {
	for {
		one, turn := p.Next()
		if turn == TurnEnd {
			return
		}
		if turn == TurnResume || !p.Return(one.Readable(), one.Lane()) {
			one.Resume()
		}
	}
}

func adopt(tb testing.TB, p *Poller[owner], c net.Conn, o owner) net.Conn {
	tb.Helper()
	adopted, err := p.Adopt(c, o)
	if err != nil {
		tb.Fatal(err)
	}
	return adopted
}

func init() {
	adoptForTest = func(tb testing.TB, c net.Conn) net.Conn { return adopt(tb, testPoller(tb, 0), c, nil) }
}

// TestAdopted: everything holds for connections that a Poller watches, with either reader.
func TestAdopted(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"MessagesBothWays": TestMessagesBothWays, "FragmentsAndControlFrames": TestFragmentsAndControlFrames, "Ping": TestPing,
		"Refusals": TestRefusals, "AnnouncedLengthIsNotTrusted": TestAnnouncedLengthIsNotTrusted, "Close": TestClose,
		"PeerCloses": TestPeerCloses, "Leave": TestLeave, "PeerVanishes": TestPeerVanishes, "EarlyData": TestEarlyData, "ReadDeadline": TestReadDeadline,
		"ReadDeadlineOfASocket": TestReadDeadlineOfASocket, "ReadsCutAnywhere": TestReadsCutAnywhere,
		"OneSystemCallForAllThatHasArrived": TestOneSystemCallForAllThatHasArrived, "MessagesDoNotOverlap": TestMessagesDoNotOverlap,
		"BufferIsBorrowed": TestBufferIsBorrowed, "Buffered": TestBuffered, "WriteBatch": TestWriteBatch,
		"ConcurrentWrites": TestConcurrentWrites, "PeerThatDoesNotRead": TestPeerThatDoesNotRead,
		"CloseDuringStuckWrite": TestCloseDuringStuckWrite, "TryWriteBatch": TestTryWriteBatch, "FinishWrite": TestFinishWrite,
		"CloseWithARest": TestCloseWithARest, "WriteDeadlines": TestWriteDeadlines, "ConcurrentTries": TestConcurrentTries,
	} {
		t.Run(name, test)
	}
}

// polite reads a connection as a session does: parked while nothing comes, and on a goroutine for what takes longer.
type polite struct {
	conn     *Conn
	readers  atomic.Int32 // at this moment
	got      []string
	count    atomic.Int32 // of what the Poller has read
	resumed  int
	slow     string // a message that the poller must leave to the goroutine
	left     []string
	end      error
	finished chan struct{}
}

func newPolite(t *testing.T, poller *Poller[owner], c net.Conn) *polite {
	t.Helper()
	p := &polite{finished: make(chan struct{})}
	p.conn = NewServerConn(adopt(t, poller, c, p), nil, testLimit)
	return p
}

func (p *polite) enter() {
	if p.readers.Add(1) != 1 {
		panic("two read at a time")
	}
}

func (p *polite) run() {
	p.enter()
	p.got = append(p.got, p.left...)
	p.left = nil
	for !p.park() {
		msg, ok, err := p.conn.Next()
		if err != nil {
			p.end = err
			close(p.finished)
			return
		}
		if ok {
			p.got = append(p.got, string(msg))
		}
	}
}

func (p *polite) isParked() bool {
	s := p.conn.in.polled
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader == parked
}

func (p *polite) park() bool {
	p.readers.Add(-1)
	if p.conn.Park() {
		return true
	}
	p.enter()
	return false
}

func (p *polite) Lane() int { return 0 }

func (p *polite) Readable() Then {
	p.enter()
	defer p.readers.Add(-1)
	for {
		msg, ok, wait := p.conn.TryRead()
		switch {
		case !ok && !wait:
			return ThenPark
		case !ok:
			return ThenResume
		case string(msg) == p.slow:
			p.left = append(p.left, string(msg))
			return ThenResume
		}
		p.got = append(p.got, string(msg))
		p.count.Add(1)
	}
}

func (p *polite) Resume() {
	p.resumed++
	go p.run()
}

// TestParked sends many connections a stream that is cut anywhere, with pauses in which they are parked, and then ends them
// from either side.
func TestParked(t *testing.T) {
	poller := testPoller(t, time.Millisecond)
	const conns, rounds = 60, 8
	input, messages := mixture()
	readers := make([]*polite, conns)
	clients := make([]net.Conn, conns)
	for i := range readers {
		s, client := tcpPair(t)
		clients[i] = client
		p := newPolite(t, poller, s)
		if i%3 == 0 {
			p.slow = messages[1]
		}
		readers[i] = p
		go p.run()
	}
	var sending sync.WaitGroup
	for i, c := range clients {
		sending.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				for rest := input; len(rest) > 0; {
					n := 1 + random.IntN(len(rest))
					if _, err := c.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
					// A pause is input of the test: whether the connection is parked in it, the result is the same.
					<-time.After(time.Duration(random.IntN(3)) * time.Millisecond)
				}
			}
			if i%2 == 0 {
				if _, err := io.Copy(io.Discard, c); err != nil {
					t.Error(err)
				}
			}
			c.Close()
		})
	}
	want := strings.Join(slices.Repeat(messages, rounds), "|")
	for i, p := range readers {
		if i%2 == 0 {
			eventually(t, fmt.Sprint("all has come to ", i), func() bool {
				// Not a race: no loop reads while the connection is parked, and it stays so when all has come.
				s := p.conn.in.polled
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.reader == parked && !s.arrived && strings.Join(p.got, "|") == want
			})
			p.conn.Close(CloseGoingAway, "bye")
		}
	}
	sending.Wait()
	for i, p := range readers {
		<-p.finished
		if got := strings.Join(p.got, "|"); got != want {
			t.Errorf("%d got %d bytes, want %d", i, len(got), len(want))
		}
		if ours := i%2 == 0; errors.Is(p.end, net.ErrClosed) != ours || errors.Is(p.end, io.EOF) == ours {
			t.Errorf("%d ended with %v", i, p.end)
		}
		p.conn.Close(CloseGoingAway, "")
	}
}

// TestParkedCostsNoGoroutine has plain messages read by the Poller alone.
func TestParkedCostsNoGoroutine(t *testing.T) {
	poller := testPoller(t, 0)
	s, client := tcpPair(t)
	p := newPolite(t, poller, s)
	p.run()
	const n = 100
	for i := range n {
		if _, err := client.Write(maskedFrames(2, 900)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is read", func() bool { return p.count.Load() == int32(2*i+2) })
	}
	client.Close()
	<-p.finished
	if len(p.got) != 2*n || p.resumed != 1 {
		t.Errorf("%d messages, %d times resumed", len(p.got), p.resumed)
	}
	p.conn.Close(CloseGoingAway, "")
}

// TestCloseWhileRead closes connections while the Poller reads them: each ends once, on a goroutine.
func TestCloseWhileRead(t *testing.T) {
	poller := testPoller(t, 0)
	for range 200 {
		s, client := tcpPair(t)
		p := newPolite(t, poller, s)
		go p.run()
		var both sync.WaitGroup
		both.Go(func() {
			for range 5 {
				if _, err := client.Write(maskedFrames(1, 100)); err != nil {
					return
				}
			}
		})
		both.Go(func() { p.conn.Close(CloseGoingAway, "bye") })
		<-p.finished
		both.Wait()
		client.Close()
		if p.resumed > 1 || !errors.Is(p.end, net.ErrClosed) {
			t.Fatalf("%d times resumed, %v", p.resumed, p.end)
		}
	}
}

// TestStaleEvent has the Poller hear of a connection that was closed when another one has its descriptor.
func TestStaleEvent(t *testing.T) {
	poller, err := NewPoller[owner](0, Lanes{Count: 1, Open: func(int) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := tcpPair(t)
	first := adopt(t, poller, s, nil).(polledConn)
	old := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(first.fd), Pad: int32(first.generation)}
	first.Close()
	s, client := tcpPair(t)
	p := newPolite(t, poller, s)
	for range 10 {
		if p.conn.in.polled.fd == int(old.Fd) {
			break
		}
		s, client = tcpPair(t)
		p = newPolite(t, poller, s)
	}
	second := p.conn.in.polled
	if second.fd != int(old.Fd) {
		t.Fatal("the descriptor is not used again")
	}
	p.run()
	if poller.find(old) != nil {
		t.Error("it was taken for the other's")
	}
	// Even if it were, a look at the socket would show that it is not so.
	poller.events[0] = old
	poller.events[1] = unix.EpollEvent{Events: old.Events, Fd: old.Fd, Pad: int32(second.generation)}
	poller.n = 2
	if one, turn := poller.Next(); one != owner(p) || turn != TurnRead || poller.at != 2 {
		t.Errorf("turn %d after %d events", turn, poller.at)
	}
	if !poller.Return(p.Readable(), 0) || !p.isParked() || second.arrived || second.ending {
		t.Error("it is not parked after a false alarm")
	}
	go serve(poller)
	t.Cleanup(poller.Close)
	client.Close()
	<-p.finished
}

// TestPingOfParked has a goroutine answer a ping, and end.
func TestPingOfParked(t *testing.T) {
	poller := testPoller(t, 0)
	s, c := tcpPair(t)
	p := newPolite(t, poller, s)
	p.run()
	client := NewClientConn(c, nil, testLimit)
	pongs := 0
	client.OnPong(func() { pongs++ })
	for range 3 {
		if err := client.Ping(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.Next(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is parked again", p.isParked)
	}
	if pongs != 3 {
		t.Errorf("%d pongs", pongs)
	}
	client.Close(CloseGoingAway, "bye")
	<-p.finished
}

// TestPassedDeadline fails a read even if there is something to read.
func TestPassedDeadline(t *testing.T) {
	s, client := tcpPair(t)
	c := adopt(t, testPoller(t, 0), s, nil)
	defer c.Close()
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d, %v", n, err)
	}
	if n, err := c.Write([]byte("y")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
}

// TestDescriptorIsUsedAgain has a new connection get the descriptor of one that was closed.
func TestDescriptorIsUsedAgain(t *testing.T) {
	poller := testPoller(t, 0)
	seen := map[int]bool{}
	again := false
	for i := range 50 {
		s, client := tcpPair(t)
		p := newPolite(t, poller, s)
		fd := p.conn.in.polled.fd
		again = again || seen[fd]
		seen[fd] = true
		p.run()
		if _, err := client.Write(maskedFrames(1, i)); err != nil {
			t.Fatal(err)
		}
		client.Close()
		<-p.finished
		if len(p.got) != 1 || len(p.got[0]) != i {
			t.Fatalf("%d: got %q", i, p.got)
		}
		p.conn.Close(CloseGoingAway, "")
	}
	if !again {
		t.Error("no descriptor was used twice")
	}
}

// eventually waits until ok, for what no channel tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// BenchmarkPolledSessions is BenchmarkLoopbackSessions with a Poller.
func BenchmarkPolledSessions(b *testing.B) {
	const conns = 200
	eachLoad(b, func(b *testing.B, size, frames int) {
		poller := testPoller(b, time.Millisecond)
		var unread atomic.Int64
		done := make(chan struct{})
		clients := make([]net.Conn, conns)
		for i := range clients {
			var s net.Conn
			s, clients[i] = tcpPair(b)
			counter := &counter{unread: &unread, done: done}
			counter.conn = NewServerConn(adopt(b, poller, s, counter), nil, testLimit)
			if !counter.conn.Park() {
				b.Fatal("not parked")
			}
			b.Cleanup(func() { counter.conn.Close(CloseGoingAway, "") })
		}
		writeToAll(b, clients, size, frames, &unread, done)
	})
}

type counter struct {
	conn   *Conn
	unread *atomic.Int64
	done   chan struct{}
}

func (c *counter) Lane() int { return 0 }

func (c *counter) Readable() Then {
	for {
		_, ok, wait := c.conn.TryRead()
		switch {
		case !ok && !wait:
			return ThenPark
		case !ok:
			return ThenResume
		}
		c.count()
	}
}

func (c *counter) Resume() {
	go func() {
		for !c.conn.Park() {
			if _, err := c.conn.Read(); err != nil {
				return
			}
			c.count()
		}
	}()
}

func (c *counter) count() {
	if c.unread.Add(-1) == 0 {
		c.done <- struct{}{}
	}
}

// holder reads nothing while its lane is closed.
type holder struct {
	conn *Conn
	lane int
	open *[2]atomic.Bool
	got  chan string
}

func (h *holder) Lane() int { return h.lane }

func (h *holder) Readable() Then {
	for h.open[h.lane].Load() {
		msg, ok, wait := h.conn.TryRead()
		switch {
		case !ok && !wait:
			return ThenPark
		case !ok:
			return ThenResume
		}
		h.got <- string(msg)
	}
	h.conn.Release()
	return ThenHold
}

func (h *holder) Resume() { close(h.got) }

// TestLanes closes one of two lanes: what is sent to its connections stays in their sockets, which is known, and is read when the
// lane is open again. Connections of the other lane are read all the time.
func TestLanes(t *testing.T) {
	var open [2]atomic.Bool
	open[0].Store(true)
	p := lanedPoller(t, time.Millisecond, Lanes{Count: 2, Open: func(lane int) bool { return open[lane].Load() }})
	var peers []*Conn
	var holders []*holder
	for i := range 6 {
		near, far := tcpPair(t)
		h := &holder{lane: i % 2, open: &open, got: make(chan string, 10)}
		h.conn = NewServerConn(adopt(t, p, near, h), nil, 0)
		for !h.conn.Park() {
			t.Fatal("there was something to read")
		}
		holders, peers = append(holders, h), append(peers, NewClientConn(far, nil, 0))
	}
	t.Cleanup(func() {
		for i := range peers {
			_ = holders[i].conn.Close(CloseGoingAway, "")
			_ = peers[i].Close(CloseGoingAway, "")
		}
	})
	long := strings.Repeat("x", 5000)
	for round := range 3 {
		for _, peer := range peers {
			if err := peer.Write([]byte(fmt.Sprint(round, long))); err != nil {
				t.Fatal(err)
			}
		}
		for i := 0; i < len(peers); i += 2 {
			if msg := <-holders[i].got; msg != fmt.Sprint(round, long) {
				t.Fatalf("connection %d: %.10s", i, msg)
			}
		}
	}
	for i := 1; i < len(peers); i += 2 {
		if !holders[i].conn.Unread() || len(holders[i].got) > 0 {
			t.Errorf("connection %d of the closed lane was read", i)
		}
	}
	for p.Behind(time.Now()) == 0 {
		runtime.Gosched() // until the Poller's next look
	}
	// A message of such a connection takes long because it is not read, which is no fault of its peer.
	var cut []*Conn
	partials := NewPartials(1<<20, time.Nanosecond, func(c *Conn, _ int64, _ time.Duration) { cut = append(cut, c) })
	partials.hold(holders[1].conn, 100, true)
	if partials.Sweep(); len(cut) > 0 {
		t.Error("a connection was cut whose messages wait to be read")
	}
	open[1].Store(true)
	for i := 1; i < len(peers); i += 2 {
		for round := range 3 {
			if msg := <-holders[i].got; msg != fmt.Sprint(round, long) {
				t.Fatalf("connection %d: %.10s", i, msg)
			}
		}
	}
	for p.Behind(time.Now()) != 0 {
		runtime.Gosched()
	}
	for i, h := range holders {
		if h.conn.Unread() {
			t.Errorf("connection %d: something was not read", i)
		}
	}
	if partials.Sweep(); len(cut) != 1 || cut[0] != holders[1].conn {
		t.Errorf("%d connections were cut, want the one whose message does not come", len(cut))
	}
}

// TestHeldPeersGo closes a lane for good. A connection whose peer breaks it is closed soon, one whose peer sends no more after a
// while, and one whose peer is there stays. One that is closed at this end is forgotten. While the lane is open all is read.
func TestHeldPeersGo(t *testing.T) {
	var open [2]atomic.Bool
	p, err := NewPoller[owner](time.Millisecond, Lanes{Count: 2, Open: func(lane int) bool { return open[lane].Load() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		if p.Holding() != 0 || len(p.held[1]) != 0 {
			t.Errorf("%d are held, %d in the list", p.Holding(), len(p.held[1]))
		}
	})
	p.diedPatience, p.hungUpPatience = 20*time.Millisecond, 400*time.Millisecond
	go serve(p)
	connect := func(then func(*net.TCPConn) error) *holder {
		near, far := tcpPair(t)
		h := &holder{lane: 1, open: &open, got: make(chan string, 10)}
		h.conn = NewServerConn(adopt(t, p, near, h), nil, 0)
		if !h.conn.Park() {
			t.Fatal("there was something to read")
		}
		t.Cleanup(func() {
			_ = h.conn.Close(CloseGoingAway, "")
			far.Close()
		})
		if _, err := far.Write(maskedFrames(1, 10)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is held", func() bool {
			s := h.conn.in.polled
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.reader == held
		})
		if err := then(far.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		return h
	}
	closed := func(what string, h *holder) {
		t.Helper()
		select {
		case _, ok := <-h.got:
			if ok {
				t.Errorf("%s: it was read", what)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the connection is not closed", what)
		}
	}
	stays := connect(func(*net.TCPConn) error { return nil })
	if d := stays.conn.Silent(); d > time.Minute {
		t.Errorf("a peer that is there is silent for %s", d)
	}
	begin := time.Now()
	half := connect(func(c *net.TCPConn) error { return c.CloseWrite() })
	breaks := func(c *net.TCPConn) error {
		_ = c.SetLinger(0)
		return c.Close()
	}
	broken := connect(breaks)
	closed("a peer that has broken the connection", broken)
	closed("a peer that sends no more", half)
	if took := time.Since(begin); took < p.hungUpPatience {
		t.Errorf("what a peer had sent that sends no more was kept for %s", took)
	}
	if half.conn.Silent() < time.Hour {
		t.Error("a peer that is gone is not silent")
	}
	ours := connect(func(*net.TCPConn) error { return nil })
	_ = ours.conn.Close(CloseGoingAway, "")
	closed("this end", ours)
	// The Poller looks at all that it holds when it closes one: it has looked at stays, too, since the last was closed.
	closed("another peer that has broken the connection", connect(breaks))
	if !stays.conn.Unread() {
		t.Error("a connection was closed whose peer is there")
	}
	late := connect(func(c *net.TCPConn) error { return c.CloseWrite() })
	open[1].Store(true)
	for _, h := range []*holder{stays, late} {
		if msg, ok := <-h.got; !ok || len(msg) != 10 {
			t.Error("a message was not read when the lane was open")
		}
	}
}
