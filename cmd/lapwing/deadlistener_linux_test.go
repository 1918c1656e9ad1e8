//go:build !agentonly

package main

import (
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestDeadListenerEndsTheProcess shuts the listening socket under a running backend: it must end with an error, so that
// a service manager starts it again.
func TestDeadListenerEndsTheProcess(t *testing.T) {
	t.Setenv("LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD", "P@ssw0rd!")
	api, agents := freePort(t), freePort(t)
	exit := make(chan int, 1)
	go func() {
		exit <- run(t.Context(), []string{
			"backend", "--config-file", os.DevNull, "--state-dir", t.TempDir(), "--min-free-disk", "1000000", "--log-level",
			"fatal",
			"--api-listen-address", "127.0.0.1:" + strconv.Itoa(api), "--agent-host", "127.0.0.1", "--agent-port",
			strconv.Itoa(agents),
		})
	}()
	for ready := false; !ready; {
		select {
		case code := <-exit:
			t.Fatalf("it does not start: exit status %d", code)
		case <-time.After(20 * time.Millisecond):
		}
		if resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(api) + "/ready"); err == nil {
			ready = resp.StatusCode == http.StatusOK
			_ = resp.Body.Close()
		}
	}
	if !shutListener(agents) {
		t.Fatal("the socket was not found")
	}
	select {
	case code := <-exit:
		if code == 0 {
			t.Error("it ends as if all were well")
		}
	case <-time.After(time.Minute):
		t.Fatal("agents cannot connect and the backend goes on")
	}
}

// shutListener ends accepting at a port of this process.
func shutListener(port int) bool {
	for fd := 3; fd < 4096; fd++ {
		address, err := syscall.Getsockname(fd)
		if err != nil {
			continue
		}
		four, ok := address.(*syscall.SockaddrInet4)
		listening, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		if ok && err == nil && listening == 1 && four.Port == port {
			return syscall.Shutdown(fd, syscall.SHUT_RDWR) == nil
		}
	}
	return false
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
