package carbon

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
)

// conn is one connection of a Listener. Only its goroutine uses it, except for abort and the socket's deadline.
type conn struct {
	l        *Listener
	socket   *net.TCPConn
	client   net.Addr
	writer   Writer
	parser   Parser
	received int64     // bytes read from the socket
	reported int64     // of these, in the metrics
	readErr  error     // the error that ended the reading of the socket
	secured  *tls.Conn // nil without TLS

	// first are the first bytes of what a connection for lines has sent, and looked how many of them are there.
	first  [pickleStart]byte
	looked int

	small []byte
	big   *[bigBuffer]byte // nil most of the time
	own   int64            // the size of a buffer of its own, as it is counted in Listener.pending

	closing sync.Once // closes writer
}

func newConn(l *Listener, socket *net.TCPConn, client net.Addr) *conn {
	return &conn{
		l: l, socket: socket, client: client, writer: l.opts.NewWriter(), small: make([]byte, smallBuffer),
		parser: Parser{
			MaxName: l.opts.MaxName, MaxLine: l.opts.MaxLine, KeepInfinite: l.opts.KeepInfinite, Now: l.opts.Now,
		},
	}
}

// run reads the connection until its end, and returns why it ended.
func (c *conn) run() closed {
	var reason closed
	switch {
	case c.l.opts.Protocol == Pickle:
		reason = c.frames(c, c.pickle)
	case c.l.opts.Protocol == Protobuf:
		reason = c.frames(c, c.protobuf)
	case c.l.opts.Gzip:
		reason = c.gzipped()
	case c.l.opts.TLS != nil:
		reason = c.encrypted()
	default:
		reason = c.lines(c)
	}
	ended := reason == closedEOF || reason == closedCut
	if !c.deliver() && ended {
		reason, ended = closedWriter, false
	}
	if f, ok := c.writer.(Finisher); ok && ended {
		if err := f.Finish(); err != nil {
			c.l.rare.Warn("the points of a connection are not safe yet, it is not closed in order", hostOf(c.client),
				"client", hostOf(c.client), "err", err)
			_ = c.socket.SetLinger(0)
			reason = closedWriter
		}
	}
	c.release()
	c.closeWriter()
	if c.secured != nil && reason != closedWriter {
		_ = c.secured.Close() // in order
	}
	_ = c.socket.Close()
	return reason
}

// abort ends the connection from another goroutine, even if it waits for its writer.
func (c *conn) abort() {
	_ = c.socket.Close()
	c.closeWriter()
}

func (c *conn) closeWriter() {
	c.closing.Do(func() {
		if err := c.writer.Close(); err != nil {
			c.l.rare.Warn("cannot close a connection's writer", "", "err", err)
		}
	})
}

// Read reads the socket, no longer than the idle timeout or the end of the Listener allow.
func (c *conn) Read(b []byte) (int, error) {
	if c.l.opts.IdleTimeout > 0 {
		_ = c.socket.SetReadDeadline(time.Now().Add(c.l.opts.IdleTimeout))
	}
	// After the deadline was set: Stop sets its own behind stopping.
	if c.l.stopping.Load() {
		now := time.Now()
		if now.After(c.l.drainEnd) {
			c.readErr = errStop
			return 0, errStop
		}
		_ = c.socket.SetReadDeadline(now.Add(drainQuiet))
	}
	n, err := c.socket.Read(b)
	c.received += int64(n)
	switch {
	case err == nil:
		return n, nil
	case c.l.stopping.Load() && !errors.Is(err, io.EOF):
		err = errStop
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errIdle
	}
	c.readErr = err
	return n, err
}

// deliver reports what was parsed, and flushes the writer. It is false if the writer can take no more.
func (c *conn) deliver() bool {
	err := c.writer.Flush()
	c.l.report(&c.parser, c.client)
	c.l.metrics.bytes.Add(float64(c.received - c.reported))
	c.reported = c.received
	if err != nil {
		c.l.rare.Warn("the points of a connection cannot be written, it is closed", hostOf(c.client),
			"client", hostOf(c.client), "err", err)
	}
	return err == nil
}

// release gives back the buffers that are not the connection's for good.
func (c *conn) release() {
	if c.big != nil {
		c.l.buffers.put(c.big)
		c.big = nil
	}
	c.l.pending.Add(-c.own)
	c.own = 0
}

// lines reads lines until the end of r.
func (c *conn) lines(r io.Reader) closed {
	buf := c.small
	held := 0    // bytes of an unfinished line in buf
	skipped := 0 // bytes of an unfinished line that is too long, and not in buf
	for {
		n, err := r.Read(buf[held:])
		c.lookForPickle(buf[held : held+n])
		full := held+n == len(buf)
		rest, ok := c.takeLines(buf[:held+n], &skipped)
		if !ok {
			return closedLine
		}
		if err != nil {
			reason := c.closedBy(err)
			switch {
			case len(rest) == 0:
			case reason == closedEOF:
				_ = c.parser.Line(rest, c.writer) // shorter than the limit: takeLines has looked
			default:
				c.parser.reject(Incomplete, rest, nil)
			}
			return reason
		}
		if !c.deliver() {
			return closedWriter
		}
		buf = c.lineBuffer(rest, full)
		held = len(rest)
	}
}

// pickleStart is the size of the begin of a frame of pickle: the frame's length, and two bytes that name the protocol.
const pickleStart = 6

// lookForPickle reports a connection for lines that begins like a frame of pickle. None of its points can be read, and
// the samples of bad lines do not show why. data has arrived after the data of earlier calls.
func (c *conn) lookForPickle(data []byte) {
	if c.looked == pickleStart {
		return
	}
	c.looked += copy(c.first[c.looked:], data)
	if c.looked < pickleStart {
		return
	}
	size, mark, protocol := binary.BigEndian.Uint32(c.first[:]), c.first[4], c.first[5]
	if size <= maxMaxFrame && mark == 0x80 && protocol >= 2 && protocol <= 5 {
		c.l.rare.Warn("pickle arrives at the port for lines; send it to --carbon-pickle-listen-address", hostOf(c.client),
			"client", hostOf(c.client))
	}
}

// takeLines parses the lines in data and returns the unfinished one at its end. It is false if a line is above the limit.
func (c *conn) takeLines(data []byte, skipped *int) (rest []byte, ok bool) {
	if *skipped > 0 {
		n := bytes.IndexByte(data, '\n')
		if n < 0 {
			*skipped += len(data)
			return nil, *skipped <= c.l.opts.MaxLine
		}
		if *skipped+n > c.l.opts.MaxLine {
			return nil, false
		}
		*skipped = 0
		data = data[n+1:]
	}
	n, err := c.parser.Lines(data, c.writer)
	rest = data[n:]
	if err != nil {
		c.parser.reject(LineTooLong, rest, nil)
		return nil, false
	}
	if len(rest) <= c.parser.usefulLine() {
		return rest, true
	}
	// No point can be in it, so it need not be held.
	c.parser.reject(LineTooLong, rest, nil)
	*skipped = len(rest)
	return nil, *skipped <= c.l.opts.MaxLine
}

// lineBuffer returns a buffer that begins with the unfinished line and has room behind it. It is a big one while the
// sender fills its buffer, and a small one as soon as the connection is quiet, so that idle connections hold little.
func (c *conn) lineBuffer(rest []byte, full bool) []byte {
	if full && c.big == nil {
		c.big = c.l.buffers.get()
	}
	if full && c.big != nil {
		copy(c.big[:], rest)
		return c.big[:]
	}
	buf := c.small
	if len(rest) > len(buf)/2 {
		buf = make([]byte, c.parser.usefulLine()+smallBuffer)
	}
	copy(buf, rest)
	c.release()
	return buf
}

// The bound on what compressed data may become: so many bytes, and so many times what arrived. Lines with names that
// repeat shrink to a twentieth.
const (
	expansionFree  = 1 << 20
	expansionTimes = 200
)

// inflater reads a compressed connection.
type inflater struct {
	c    *conn
	gzip *gzip.Reader
	read int64
}

// Read bounds the expansion. What one call returns is bounded by the buffer of its caller.
func (i *inflater) Read(b []byte) (int, error) {
	n, err := i.gzip.Read(b)
	i.read += int64(n)
	if i.read > expansionFree+expansionTimes*i.c.received {
		return 0, errExpansion
	}
	return n, err
}

// gzipped reads compressed lines.
func (c *conn) gzipped() closed {
	r, err := gzip.NewReader(c)
	if err != nil {
		return c.closedBy(err)
	}
	return c.lines(&inflater{c: c, gzip: r})
}

// frames reads frames until the end of r, each behind its length, and passes them to take, which is false when the
// connection has to end.
func (c *conn) frames(r io.Reader, take func(frame []byte) bool) closed {
	const header = 4
	buf := c.small
	held := 0
	for {
		n, err := r.Read(buf[held:])
		held += n
		at, need := 0, header // need is the length of the unfinished frame
		for held-at >= header {
			size := binary.BigEndian.Uint32(buf[at:])
			if uint64(size) > uint64(c.l.opts.MaxFrame) {
				c.parser.reject(BadFrame, nil, errFrameSize)
				return closedFrame
			}
			if need = header + int(size); held-at < need {
				break
			}
			if !take(buf[at+header : at+need]) {
				return closedStop
			}
			at += need
			need = header
		}
		rest := buf[at:held]
		if err != nil {
			if len(rest) > 0 {
				c.parser.reject(Incomplete, nil, nil)
			}
			return c.closedBy(err)
		}
		// Half a frame has nothing to deliver.
		if at > 0 && !c.deliver() {
			return closedWriter
		}
		var ok bool
		if buf, ok = c.frameBuffer(buf, rest, need); !ok {
			return closedMemory
		}
		held = len(rest)
	}
}

var errFrameSize = errors.New("a frame is longer than the limit")

// frameBuffer returns a buffer that begins with the unfinished frame and has room behind it. It grows with what has
// arrived, whatever length the sender has announced. It is false if all connections together hold too much.
func (c *conn) frameBuffer(buf, rest []byte, need int) ([]byte, bool) {
	if len(rest) == 0 {
		c.release()
		return c.small, true
	}
	if len(rest) < len(buf) && need <= len(buf) || len(rest) <= len(buf)/2 {
		// Most reads add to the frame at the beginning of buf, which need not be moved every time.
		if &buf[0] != &rest[0] {
			copy(buf, rest)
		}
		return buf, true
	}
	if c.big == nil && c.own == 0 {
		if c.big = c.l.buffers.get(); c.big != nil {
			copy(c.big[:], rest)
			return c.big[:], true
		}
	}
	size := min(need, 2*len(buf)) // above len(buf), because need is
	if c.l.pending.Add(int64(size)) > c.l.opts.MaxPending {
		c.l.pending.Add(-int64(size))
		c.l.rare.Warn("connections hold too many unfinished frames, one is closed", "", "max", c.l.opts.MaxPending)
		return nil, false
	}
	grown := make([]byte, size)
	copy(grown, rest)
	c.release()
	c.own = int64(size)
	return grown, true
}

// pickle takes a frame of pickle. Its errors are in the parser's counts: the next frame may be a good one.
func (c *conn) pickle(frame []byte) bool {
	// A decoder needs many times the memory of its frame, so few of them may work at a time.
	select {
	case c.l.decoding <- struct{}{}:
	case <-c.l.aborted:
		return false
	}
	defer func() { <-c.l.decoding }()
	_ = c.parser.Pickle(frame, c.writer)
	return true
}

func (c *conn) protobuf(frame []byte) bool {
	_ = c.parser.Protobuf(frame, c.writer)
	return true
}
