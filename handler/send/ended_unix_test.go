//go:build unix

package send

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestEndedAttempt: what an attempt that was ended has left in the kernel is dropped: the connection is reset.
func TestEndedAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		def      func(addr *net.TCPAddr) *resource.Handler
		greeting string
	}{
		"webhook": {func(addr *net.TCPAddr) *resource.Handler { return webhook("http://" + addr.String()) }, ""},
		"email":   {email, "220 hello\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			s := setup(t, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan Result)
			go func() { ended <- s.Run(ctx, c.def(l.Addr().(*net.TCPAddr)), job(event(2))) }()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err = io.WriteString(conn, c.greeting); err == nil {
				_, err = conn.Read(make([]byte, 1)) // it is connected, and gets no answer
			}
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			if res := <-ended; res.Err == nil {
				t.Error("the attempt succeeded")
			}
			if _, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection ended with %v", err)
			}
		})
	}
}

// TestMayNotRun: a backend that loses its right to make attempts while one connects sends nothing, and starts no command.
func TestMayNotRun(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for name, def := range map[string]func(addr *net.TCPAddr) *resource.Handler{
		"webhook": func(addr *net.TCPAddr) *resource.Handler { return webhook("http://" + addr.String()) },
		"email":   email,
		"tcp": func(addr *net.TCPAddr) *resource.Handler {
			return &resource.Handler{Type: "tcp", Socket: &resource.HandlerSocket{Host: addr.IP.String(), Port: uint32(addr.Port)}}
		},
		"pipe": func(*net.TCPAddr) *resource.Handler {
			return &resource.Handler{Type: "pipe", Command: "touch " + marker}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			got := make(chan string, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					close(got)
					return
				}
				defer conn.Close()
				if name == "email" {
					_, _ = io.WriteString(conn, "220 hello\r\n")
				}
				text, _ := io.ReadAll(conn)
				got <- string(text)
			}()
			s := setup(t, Options{MayRun: func() bool { return false }})
			if res := s.Run(t.Context(), def(l.Addr().(*net.TCPAddr)), job(event(2))); !errors.Is(res.Err, ErrMayNotRun) {
				t.Errorf("the attempt ended with %v", res.Err)
			}
			l.Close()
			if text := <-got; text != "" {
				t.Errorf("the receiver got %q", text)
			}
		})
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran")
	}
}
