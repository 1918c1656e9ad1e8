//go:build !race

package session_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"

	"github.com/gobwas/ws"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// idleBudget is the memory that an idle session may cost the backend: connection, session, its entries in the
// registry. It has no goroutine. The socket's buffers belong to the kernel and do not count.
const idleBudget = 2 << 10

// TestIdleSessionMemory connects some thousand registered agents, has each send a keepalive, and measures the growth
// of the process. The agents' ends are bare kernel sockets, so all growth is the backend's.
func TestIdleSessionMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("opens many connections")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := min(4000, (int(files.Cur)-200)/2)
	b := testbackend.Start(t, nil)
	// All agents register first, so that what the backend keeps of them beside sessions is there before the
	// measurement.
	first := connectAll(t, b, n)
	closeAll(t, b, first)

	before := memory(t)
	open := connectAll(t, b, n)
	after := memory(t)
	per := func(what func(usage) uint64) int64 { return (int64(what(after)) - int64(what(before))) / int64(n) }
	heap := per(func(u usage) uint64 { return u.heap })
	stack := per(func(u usage) uint64 { return u.stack })
	resident := per(func(u usage) uint64 { return u.resident })
	t.Logf("%d sessions: heap %d, stack %d, resident %d bytes each", n, heap, stack, resident)
	if heap+stack > idleBudget {
		t.Errorf("%d bytes a session, want %d at most", heap+stack, idleBudget)
	}
	closeAll(t, b, open)
}

// connectAll connects agents and has each send a keepalive. It returns their sockets once all keepalives are taken.
func connectAll(t *testing.T, b *testbackend.Backend, n int) []int {
	t.Helper()
	taken := b.Counter(t, "lapwing_events_received_total")
	fds := make([]int, n)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := worker; i < n; i += 4 {
				fds[i] = connect(t, b, fmt.Sprintf("agent-%05d", i))
			}
		})
	}
	all.Wait()
	wait(t, "all keepalives are taken", func() bool { return b.Counter(t, "lapwing_events_received_total")-taken >= float64(n) })
	return fds
}

func closeAll(t *testing.T, b *testbackend.Backend, fds []int) {
	t.Helper()
	for _, fd := range fds {
		syscall.Close(fd)
	}
	wait(t, "all sessions have ended", func() bool { return b.Counter(t, "lapwing_agent_sessions") == 0 })
}

// connect does an agent's handshake on a bare socket, and sends a keepalive once the entity's configuration has
// arrived.
func connect(t *testing.T, b *testbackend.Backend, name string) int {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		// A reset leaves no port in TIME_WAIT; there would be many.
		err = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	}
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: b.AgentAddr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		_, err = fmt.Fprintf(socket(fd), "GET / HTTP/1.1\r\nHost: backend\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAccept: %s\r\n"+
			"Sensu-AgentName: %s\r\nSensu-Namespace: default\r\nSensu-Subscriptions: linux\r\nAuthorization: Basic %s\r\n\r\n",
			wire.ContentType(wire.Protobuf), name,
			base64.StdEncoding.EncodeToString([]byte(testbackend.AgentUser+":"+testbackend.AgentPassword)))
	}
	var got []byte
	buf := make([]byte, 4096)
	for err == nil && !bytes.Contains(got, []byte(wire.TypeEntityConfig)) {
		var m int
		m, err = syscall.Read(fd, buf)
		got = append(got, buf[:m]...)
	}
	if err == nil {
		_, err = socket(fd).Write(ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame(testbackend.Keepalive(t, name, wire.Protobuf)))))
	}
	if err != nil {
		t.Errorf("connect %s: %v", name, err)
	}
	return fd
}

type socket int

func (s socket) Write(p []byte) (int, error) { return syscall.Write(int(s), p) }

type usage struct{ heap, stack, resident uint64 }

func memory(t *testing.T) usage {
	t.Helper()
	for range 4 { // a pool is empty after two, and a stack is halved in each
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
