//go:build unix

package carbon

import (
	"net"
	"runtime"
	"syscall"
)

// receiveBuffer returns the size of a socket's receive buffer.
func receiveBuffer(c *net.UDPConn) (size int, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var got error
	err = raw.Control(func(fd uintptr) {
		size, got = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
	})
	if runtime.GOOS == "linux" {
		size /= 2 // Linux doubles it for its own bookkeeping
	}
	return size, err == nil && got == nil
}
