//go:build !unix

package wire

import (
	"errors"
	"net"
	"syscall"
)

// plainSocket returns nil: where sockets cannot be polled, every connection is handled like a TLS one.
func plainSocket(net.Conn) syscall.RawConn { return nil }

func readSocket(uintptr, []byte) (n int, ready bool, err error) {
	return 0, true, errors.ErrUnsupported
}

func writeSocket(uintptr, []byte) (n int, err error) {
	return 0, errors.ErrUnsupported
}
