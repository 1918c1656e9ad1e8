//go:build unix

package wire

import (
	"net"
	"os"
	"syscall"
)

// plainSocket returns the socket of a TCP connection, for readSocket and writeSocket. It is nil for other connections:
// TLS, for example, also transforms the bytes.
func plainSocket(c net.Conn) syscall.RawConn {
	if p, ok := c.(interface{ socket() syscall.RawConn }); ok {
		return p.socket() // a Poller's
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	socket, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	return socket
}

// readSocket reads once without waiting: ready is false if there is nothing yet. ready without bytes is the end.
func readSocket(fd uintptr, b []byte) (n int, ready bool, err error) {
	for {
		n, err := syscall.Read(int(fd), b)
		switch err {
		case nil:
			return n, true, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, false, nil
		default:
			return 0, true, os.NewSyscallError("read", err)
		}
	}
}

// writeSocket writes once without waiting, and returns how much the socket took.
func writeSocket(fd uintptr, b []byte) (n int, err error) {
	for {
		n, err := syscall.Write(int(fd), b)
		switch err {
		case nil:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, os.NewSyscallError("write", err)
		}
	}
}
