package wire

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// States of a TCP connection in tcp_info.
const (
	tcpEstablished = 1
	tcpCloseWait   = 8 // the other end has hung up
)

func unreadOn(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	return err == nil && n > 0
}

func silentFor(fd int) time.Duration {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State != tcpEstablished {
		return math.MaxInt64
	}
	return time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
}

func peerOf(fd int) Peer {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	switch {
	case err != nil:
		return PeerGone
	case info.State == tcpEstablished:
		return PeerThere
	case info.State == tcpCloseWait:
		return PeerHungUp
	}
	return PeerGone
}
