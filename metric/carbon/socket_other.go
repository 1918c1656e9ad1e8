//go:build !unix

package carbon

import "net"

// receiveBuffer knows no size on this system.
func receiveBuffer(*net.UDPConn) (size int, ok bool) { return 0, false }
