//go:build !race

package wire

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"

	"github.com/gobwas/ws"
)

// idleBudget bounds the server's cost of a waiting connection with its goroutine: heap, most of which belongs to
// package net, and a stack of 4 KiB. The kernel's socket buffers are not counted.
const idleBudget = 1200 + 4<<10

// handle stands for what a session does with a message: it needs a stack of 8 KiB, of which half is given back while the
// session waits, if Read does not need much.
//
//go:noinline
func handle(msg []byte) byte {
	var big [5 << 10]byte
	copy(big[:], msg)
	return big[len(msg)/2]
}

// TestIdleConnectionMemory opens 10,000 connections if the limit of open files allows. The clients are bare sockets, so
// that the process grows by the server's side only.
func TestIdleConnectionMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("opens many connections")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := min(10_000, (int(files.Cur)-100)/2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	before := memory(t)
	clients := make([]int, n)
	conns := make([]*Conn, n)
	var wg, first sync.WaitGroup
	first.Add(n)
	message := rawFrames(ws.NewBinaryFrame(bytes.Repeat([]byte("x"), 1300)))
	for i := range conns {
		clients[i] = connect(t, l.Addr().(*net.TCPAddr).Port)
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = NewServerConn(s, nil, testLimit)
		wg.Go(func() {
			msg, err := conns[i].Read()
			if err != nil {
				t.Error(err)
			}
			handle(msg)
			first.Done()
			_, _ = conns[i].Read() // idle
		})
		if _, err := syscall.Write(clients[i], message); err != nil {
			t.Fatal(err)
		}
	}
	first.Wait()
	after := memory(t)
	per := func(what func(usage) uint64) int64 { return int64(what(after)-what(before)) / int64(n) }
	heap := per(func(u usage) uint64 { return u.heap })
	stack := per(func(u usage) uint64 { return u.stack })
	resident := per(func(u usage) uint64 { return u.resident })
	t.Logf("%d connections: heap %d, stack %d, resident %d bytes each", n, heap, stack, resident)
	if heap+stack > idleBudget {
		t.Errorf("%d bytes a connection, want %d at most", heap+stack, idleBudget)
	}
	for _, fd := range clients {
		syscall.Close(fd)
	}
	wg.Wait()
	for _, c := range conns {
		_ = c.Close(CloseGoingAway, "bye")
	}
}

// connect opens a bare socket to a port of this machine.
func connect(t *testing.T, port int) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	// A reset leaves no port in TIME_WAIT, where there would be too many.
	if err := syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1}); err != nil {
		t.Fatal(err)
	}
	return fd
}

type usage struct{ heap, stack, resident uint64 }

func memory(t *testing.T) usage {
	t.Helper()
	for range 3 { // a pool is empty after two, and a stack is halved in each
		runtime.GC()
	}
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return usage{heap: m.HeapAlloc, stack: m.StackInuse, resident: resident * uint64(os.Getpagesize())}
}
