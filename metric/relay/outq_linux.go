package relay

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledged returns how many bytes that were written to a connection its peer has not acknowledged. It works on a
// connection that the peer has reset, until it is closed. ok is false if the connection cannot say.
func unacknowledged(conn net.Conn) (n int64, ok bool) {
	raw := rawConn(conn)
	if raw == nil {
		return 0, false
	}
	var queued int
	var err error
	if raw.Control(func(fd uintptr) { queued, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil || err != nil {
		return 0, false
	}
	return int64(queued), true
}

// setUserTimeout breaks a connection whose peer acknowledges nothing for so long.
func setUserTimeout(conn net.Conn, d time.Duration) {
	if raw := rawConn(conn); raw != nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
	}
}

func rawConn(conn net.Conn) syscall.RawConn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
