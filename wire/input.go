package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gobwas/ws"
)

const (
	// readSize is the size of one system call's read: all that an agent usually sends at a time. Longer payloads are
	// read directly into the memory of their message.
	readSize = 8 << 10
	// payloadStep bounds the memory that Read allocates for a frame's header alone.
	payloadStep = 64 << 10
)

// readBuffers are lent to connections while they hold unread data.
var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// input is the unread data of a connection. It reads all that has arrived with one system call, and holds no buffer
// while it waits: readOnce borrows one when there may be input.
type input struct {
	conn   net.Conn
	socket syscall.RawConn // below conn, or nil
	polled *polled         // the socket, if it is a Poller's; else nil
	try    func(fd uintptr) bool

	data []byte
	buf  *[readSize]byte // borrowed, has data in it; nil if data has memory of its own

	// The argument of readOnce, and its results.
	into []byte
	n    int
	full bool // there may be more
	err  error

	failed error // of a readNow; the next read has it

	heard atomic.Bool // something has arrived
	// hold requests room for so many bytes while the rest of a message is awaited; nil if messages are not bounded. If
	// it may wait it returns true when there is room, or the connection is closed.
	hold func(bytes int, wait bool) bool
	msg  int // bytes of the message before the current frame

	first [1]byte // of a frame, on connections without a socket to poll
}

func (in *input) init(conn net.Conn, socket syscall.RawConn, early []byte) {
	in.conn, in.socket, in.data = conn, socket, early
	in.polled = polledOf(conn)
	in.try = in.readOnce // once, for it allocates
}

// wait returns when there is data.
func (in *input) wait() error {
	for len(in.data) == 0 {
		in.letGo()
		if _, err := in.read(nil); err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether the next frame has arrived completely, as nearly always, and is a valid message of its own.
func (in *input) whole(state ws.State, limit int64) bool {
	h, n, err := parseHeader(in.data)
	return err == nil && n > 0 && h.Fin && h.OpCode.IsData() && !state.Fragmented() && ws.CheckHeader(h, state) == nil &&
		(limit == 0 || h.Length <= limit) && h.Length <= int64(len(in.data)-n)
}

// begun reports whether the data is the first part of a message that fits into a read buffer, so that the next read
// gets the rest if it has arrived.
func (in *input) begun(state ws.State) bool {
	h, n, err := parseHeader(in.data)
	switch {
	case err != nil:
		return false
	case n == 0:
		return true
	}
	return h.Fin && h.OpCode.IsData() && ws.CheckHeader(h, state) == nil && h.Length <= int64(readSize-n)
}

// header takes the next frame's header off the data, and waits for it if necessary. If the input ends before it, the
// error is io.EOF.
func (in *input) header() (ws.Header, error) {
	for {
		h, n, err := parseHeader(in.data)
		if err != nil || n > 0 {
			in.data = in.data[n:]
			return h, err
		}
		in.letGo()
		if in.hold != nil {
			in.hold(in.msg+len(in.data), true)
		}
		if _, err := in.read(nil); err != nil {
			if len(in.data) > 0 {
				err = unexpected(err)
			}
			return ws.Header{}, err
		}
	}
}

// next takes n bytes off the data, if there are as many. They stay in place until the next call of header.
func (in *input) next(n int64) ([]byte, bool) {
	if n > int64(len(in.data)) {
		return nil, false
	}
	p := in.data[:n:n]
	in.data = in.data[n:]
	return p, true
}

// appendTo appends the next n bytes to dst, and waits for them if necessary. It does not trust the announced length:
// dst grows as the bytes arrive. beside is how many bytes the message has in other memory than dst.
func (in *input) appendTo(dst []byte, n int64, beside int) ([]byte, error) {
	step := int(min(n, payloadStep))
	if in.hold != nil && n > int64(len(in.data)) {
		if bytes := beside + max(cap(dst), len(dst)+step); !in.hold(bytes, false) {
			in.letGo() // while waiting it holds only what has arrived
			in.hold(bytes, true)
		}
	}
	there, _ := in.next(min(n, int64(len(in.data))))
	dst = append(slices.Grow(dst, step), there...)
	n -= int64(len(there))
	if n == 0 {
		return dst, nil
	}
	in.letGo()
	for n > 0 {
		if int64(cap(dst)-len(dst)) < min(n, payloadStep) {
			more := int(min(n, int64(max(len(dst), payloadStep))))
			if in.hold != nil {
				in.hold(beside+len(dst)+more, true)
			}
			dst = slices.Grow(dst, more)
		}
		start := len(dst)
		got, err := in.read(dst[start : start+int(min(n, int64(cap(dst)-start)))])
		if err != nil {
			return nil, unexpected(err)
		}
		dst = dst[:start+got]
		n -= int64(got)
	}
	return dst, nil
}

// letGo returns the borrowed buffer before a wait, and keeps the part of a header that may be in it.
func (in *input) letGo() {
	if in.buf == nil {
		return
	}
	in.data = bytes.Clone(in.data)
	readBuffers.Put(in.buf)
	in.buf = nil
}

// lend makes buf, with n bytes read after a copy of data, the buffer that holds data.
func (in *input) lend(buf *[readSize]byte, n int) {
	in.buf, in.data = buf, buf[:len(in.data)+n]
}

// read reads once, into the given memory or, if that is nil, after data. It waits for input. The caller has called
// letGo.
func (in *input) read(into []byte) (int, error) {
	if in.socket == nil {
		return in.readStream(into)
	}
	if in.failed != nil {
		return 0, in.failed
	}
	in.into = into
	err := in.socket.Read(in.try)
	in.into = nil
	return in.n, in.after(err)
}

// readNow is read, after data, for a caller that must not wait. It reports whether there was any input or an error,
// which the next read returns. The caller has called letGo.
func (in *input) readNow() bool {
	if in.failed != nil {
		return true
	}
	fd, arrived, err := in.polled.beginRead()
	if err != nil {
		in.failed = err
		return true
	}
	if !arrived {
		return false
	}
	ready := in.readOnce(fd)
	in.polled.endRead(ready)
	if ready {
		in.failed = in.after(nil)
	}
	return ready
}

// after completes a readOnce.
func (in *input) after(err error) error {
	switch {
	case err != nil:
		return err
	case in.err == nil && in.full && in.polled != nil:
		in.polled.more()
	}
	return in.err
}

// readOnce is called by the socket when there may be input. If it returns false it is called again.
func (in *input) readOnce(fd uintptr) bool {
	into, buf := in.into, (*[readSize]byte)(nil)
	if into == nil {
		buf = readBuffers.Get().(*[readSize]byte)
		into = buf[copy(buf[:], in.data):]
	}
	var ready bool
	in.n, ready, in.err = readSocket(fd, into)
	in.full = in.n == len(into)
	if in.n > 0 {
		in.hear()
	}
	switch {
	case in.n > 0 && buf != nil:
		in.lend(buf, in.n)
	case buf != nil:
		readBuffers.Put(buf)
	}
	if ready && in.n == 0 && in.err == nil {
		in.err = io.EOF
	}
	return ready
}

// readStream is read for connections that cannot be polled, for example TLS. A frame has at least two bytes, so after
// the first there is no long wait for the next: it borrows a buffer only then.
func (in *input) readStream(into []byte) (int, error) {
	if into != nil {
		n, err := in.conn.Read(into)
		if n > 0 {
			in.hear()
		}
		return n, err
	}
	if len(in.data) == 0 {
		if n, err := in.conn.Read(in.first[:]); n == 0 {
			return 0, err
		}
		in.hear()
		in.data = in.first[:]
	}
	buf := readBuffers.Get().(*[readSize]byte)
	n, err := in.conn.Read(buf[copy(buf[:], in.data):])
	if n == 0 {
		readBuffers.Put(buf)
		return 0, err
	}
	in.lend(buf, n)
	return n, nil // the next read returns the error again
}

// hear notes that something has arrived. That is mostly noted already, and a load is cheaper than a store.
func (in *input) hear() {
	if !in.heard.Load() {
		in.heard.Store(true)
	}
}

// unexpected replaces an end of input within a frame by io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
