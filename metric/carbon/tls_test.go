package carbon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
)

// clientTLS is the configuration of a sender with a certificate, or without one.
func clientTLS(t testing.TB, ca *testcert.Authority, pair testcert.Pair) *tls.Config {
	t.Helper()
	files, err := tlsfiles.New(tlsfiles.Options{CA: ca.File, Cert: pair.Cert, Key: pair.Key})
	if err != nil {
		t.Fatal(err)
	}
	config := files.Client()
	config.ServerName = "127.0.0.1"
	return config
}

func serverTLS(t testing.TB, o tlsfiles.Options) *tls.Config {
	t.Helper()
	files, err := tlsfiles.New(o)
	if err != nil {
		t.Fatal(err)
	}
	config, err := files.Server()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func withPair(o tlsfiles.Options, pair testcert.Pair) tlsfiles.Options {
	o.Cert, o.Key = pair.Cert, pair.Key
	return o
}

// finisher is a writer that remembers whether it was asked to make its points safe.
type finisher struct {
	*sinkWriter
	finished, ended chan struct{}
}

func (f finisher) Finish() error {
	close(f.finished)
	return nil
}

func (f finisher) Close() error {
	defer close(f.ended)
	return f.sinkWriter.Close()
}

func TestTLS(t *testing.T) {
	ca := testcert.New(t, "ours")
	config := serverTLS(t, withPair(tlsfiles.Options{}, ca.Issue(t, []string{"127.0.0.1"}, nil)))
	lines := "a 1 1423931224\nb 1 1423931224\nc 1 1423931224"
	for _, tc := range []struct {
		name   string
		end    func(secured *tls.Conn, raw *net.TCPConn) error
		points int
		reason string
	}{
		{"in order", func(s *tls.Conn, _ *net.TCPConn) error { return s.CloseWrite() }, 3, "eof"},
		{"without the end of TLS", func(_ *tls.Conn, raw *net.TCPConn) error { return raw.CloseWrite() }, 2, "tls_cut"},
		{"garbage", func(_ *tls.Conn, raw *net.TCPConn) error {
			_, err := raw.Write([]byte("d 1 1423931224\ne 1 1423931224\n"))
			return err
		}, 2, "error"},
		{"reset", func(_ *tls.Conn, raw *net.TCPConn) error { return errors.Join(raw.SetLinger(0), raw.Close()) }, 2, "error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, finished, ended := newSink(), make(chan struct{}), make(chan struct{})
			r := listen(t, Options{Protocol: LineTCP, TLS: config,
				NewWriter: func() Writer { return finisher{s.writer(), finished, ended} }})
			raw := r.dial(t)
			secured := tls.Client(raw, clientTLS(t, ca, testcert.Pair{}))
			if _, err := secured.Write([]byte(lines)); err != nil {
				t.Fatal(err)
			}
			got := s.next(t, 2)
			if err := tc.end(secured, raw); err != nil {
				t.Fatal(err)
			}
			if tc.name != "reset" {
				_ = secured.SetReadDeadline(time.Now().Add(patience))
				if _, err := secured.Read(make([]byte, 1)); tc.reason != "error" && err != io.EOF {
					t.Errorf("the sender reads %v; want the end of TLS", err)
				}
			}
			<-ended // Stop may come before the end, otherwise
			r.stop(t)
			if got = append(got, s.rest()...); len(got) != tc.points {
				t.Errorf("points %q", got)
			}
			r.wantMetrics(t, map[string]float64{"closed_connections_total/" + tc.reason: 1})
			select {
			case <-finished:
			default:
				if tc.reason != "error" {
					t.Error("the points were not made safe")
				}
			}
		})
	}
}

// TestTLSMany sends more than fits into the buffers.
func TestTLSMany(t *testing.T) {
	ca := testcert.New(t, "ours")
	config := serverTLS(t, withPair(tlsfiles.Options{}, ca.Issue(t, []string{"127.0.0.1"}, nil)))
	r := listen(t, Options{Protocol: LineTCP, TLS: config})
	var text strings.Builder
	var want []string
	for i := range 20_000 {
		fmt.Fprintf(&text, "servers.web%d.load 1 1423931224\n", i)
		want = append(want, fmt.Sprintf("servers.web%d.load 1 1423931224000", i))
	}
	secured := tls.Client(r.dial(t), clientTLS(t, ca, testcert.Pair{}))
	if _, err := secured.Write([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	if err := secured.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, secured)
	if got := r.sink.rest(); !slices.Equal(got, want) {
		t.Errorf("%d points arrived; want %d", len(got), len(want))
	}
}

func TestTLSRefused(t *testing.T) {
	ca, stranger := testcert.New(t, "ours"), testcert.New(t, "stranger")
	r := listen(t, Options{Protocol: LineTCP,
		TLS: serverTLS(t, withPair(tlsfiles.Options{CA: ca.File, Required: true}, ca.Issue(t, []string{"127.0.0.1"}, nil)))})
	refused := 0
	for name, config := range map[string]*tls.Config{
		"no certificate":    clientTLS(t, ca, testcert.Pair{}),
		"wrong certificate": clientTLS(t, ca, stranger.Issue(t, []string{"sender"}, nil)),
		"wrong authority":   clientTLS(t, stranger, ca.Issue(t, []string{"sender"}, nil)),
	} {
		secured := tls.Client(r.dial(t), config)
		_, err := secured.Write([]byte("a 1 1423931224\n"))
		if err == nil { // the server looks at the certificate when the client is done
			_ = secured.SetReadDeadline(time.Now().Add(patience))
			_, err = secured.Read(make([]byte, 1))
		}
		if err == nil {
			t.Errorf("%s: it is not refused", name)
		}
		refused++
	}
	plain := r.dial(t)
	if _, err := plain.Write([]byte("a 1 1423931224\n")); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, plain)
	refused++
	r.send(t, nil) // only looks at whether the port is open
	secured := tls.Client(r.dial(t), clientTLS(t, ca, ca.Issue(t, []string{"sender"}, nil)))
	if _, err := secured.Write([]byte("good 1 1423931224\n")); err != nil {
		t.Fatal(err)
	}
	if err := secured.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, secured)
	r.stop(t)
	if got := r.sink.rest(); !slices.Equal(got, []string{"good 1 1423931224000"}) {
		t.Errorf("points %q", got)
	}
	r.wantMetrics(t, map[string]float64{"closed_connections_total/tls_handshake": float64(refused),
		"closed_connections_total/eof": 2})
	if text := r.log.String(); strings.Count(text, "handshake has failed") != 1 {
		t.Errorf("one line a minute and client is enough: %s", text)
	}
}

// TestTLSReload checks that new connections have a new certificate, and that earlier ones stay.
func TestTLSReload(t *testing.T) {
	ca := testcert.New(t, "ours")
	dir := t.TempDir()
	o := tlsfiles.Options{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Interval: 1}
	use := func(p testcert.Pair) {
		testcert.Copy(t, p.Cert, o.Cert)
		testcert.Copy(t, p.Key, o.Key)
	}
	first, second := ca.Issue(t, []string{"127.0.0.1", "first"}, nil), ca.Issue(t, []string{"127.0.0.1", "second"}, nil)
	use(first)
	r := listen(t, Options{Protocol: LineTCP, TLS: serverTLS(t, o)})
	connect := func(want testcert.Pair) *tls.Conn {
		t.Helper()
		c := tls.Client(r.dial(t), clientTLS(t, ca, testcert.Pair{}))
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if !c.ConnectionState().PeerCertificates[0].Equal(want.Leaf) {
			t.Errorf("certificate of %q", c.ConnectionState().PeerCertificates[0].DNSNames)
		}
		return c
	}
	earlier := connect(first)
	use(second)
	later := connect(second)
	for _, c := range []*tls.Conn{earlier, later} {
		if _, err := c.Write([]byte("a 1 1423931224\n")); err != nil {
			t.Fatal(err)
		}
		r.sink.next(t, 1)
	}
}

// TestTLSStop checks that Stop neither waits for a handshake nor loses what has arrived.
func TestTLSStop(t *testing.T) {
	ca := testcert.New(t, "ours")
	config := serverTLS(t, withPair(tlsfiles.Options{}, ca.Issue(t, []string{"127.0.0.1"}, nil)))
	r := listen(t, Options{Protocol: LineTCP, TLS: config})
	silent := r.dial(t)
	if _, err := silent.Write([]byte{22, 3, 1}); err != nil { // the beginning of a handshake
		t.Fatal(err)
	}
	secured := tls.Client(r.dial(t), clientTLS(t, ca, testcert.Pair{}))
	if _, err := secured.Write([]byte("a 1 1423931224\n")); err != nil {
		t.Fatal(err)
	}
	r.sink.next(t, 1)
	if _, err := secured.Write([]byte("b 1 1423931224\n")); err != nil {
		t.Fatal(err)
	}
	r.stop(t)
	if got := r.sink.rest(); len(got) != 1 {
		t.Errorf("points %q after Stop", got)
	}
	_ = secured.SetReadDeadline(time.Now().Add(patience))
	if _, err := secured.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the sender reads %v; want the end of TLS", err)
	}
	r.wantMetrics(t, map[string]float64{"closed_connections_total/stop": 2})
}
