//go:build !linux

package relay

import (
	"net"
	"time"
)

// unacknowledged is known on Linux only.
func unacknowledged(net.Conn) (n int64, ok bool) { return 0, false }

// setUserTimeout does nothing: the write timeout alone finds a peer that is gone.
func setUserTimeout(net.Conn, time.Duration) {}
