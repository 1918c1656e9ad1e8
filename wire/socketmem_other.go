//go:build !linux

package wire

// SocketsFull reports whether the system's memory for sockets is used up. A backend runs on Linux only.
func SocketsFull() bool { return false }
