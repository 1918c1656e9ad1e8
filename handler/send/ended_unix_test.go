//go:build unix

package send

import (
	"context"
	"errors"
	"io"
	"net"
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
