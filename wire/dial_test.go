package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// noProxy ignores the environment in a test.
func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// echo upgrades requests as a backend does, says hello at once, and sends back each message.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(HeaderAgentName) == "" {
		http.Error(w, "missing credentials", http.StatusUnauthorized)
		return
	}
	upgrader := ws.HTTPUpgrader{Header: http.Header{
		HeaderBackendID: {"backend-1"},
		"Accept":        {ContentType(Protobuf), ContentType(JSON)},
	}}
	conn, rw, _, err := upgrader.Upgrade(r, w)
	if err != nil {
		return
	}
	c := NewServerConn(conn, rw.Reader, 0)
	defer c.Close(CloseGoingAway, "bye")
	if err := c.Write([]byte("hello " + r.Header.Get(HeaderAgentName) + " at " + r.URL.Path)); err != nil {
		return
	}
	for {
		msg, err := c.Read()
		if err != nil || c.Write(msg) != nil {
			return
		}
	}
}

func wsURL(s *httptest.Server) string { return "ws" + strings.TrimPrefix(s.URL, "http") }

func requireEcho(t *testing.T, c *Conn, hello string) {
	t.Helper()
	defer c.Close(CloseGoingAway, "bye")
	if got, err := c.Read(); err != nil || string(got) != hello {
		t.Fatalf("got %q, %v, want %q", got, err, hello)
	}
	if err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Read(); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDial(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	header := http.Header{HeaderAgentName: {"web-1"}}
	c, answer, err := Dial(t.Context(), wsURL(server)+"/some/path", header, DialOptions{Proxy: noProxy})
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Get(HeaderBackendID); got != "backend-1" {
		t.Errorf("backend id %q", got)
	}
	if got := answer.Values("Accept"); !reflect.DeepEqual(got, []string{"application/octet-stream", "application/json"}) {
		t.Errorf("accept %q", got)
	}
	requireEcho(t, c, "hello web-1 at /some/path")
}

func TestDialTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // for the client that does not trust it
	server.StartTLS()
	defer server.Close()
	header := http.Header{HeaderAgentName: {"web-1"}}
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusting.NextProtos = nil
	c, _, err := Dial(t.Context(), wsURL(server), header, DialOptions{TLSConfig: trusting, Proxy: noProxy})
	if err != nil {
		t.Fatal(err)
	}
	requireEcho(t, c, "hello web-1 at /")

	_, _, err = Dial(t.Context(), wsURL(server), header, DialOptions{Proxy: noProxy})
	var unknown *tls.CertificateVerificationError
	if !errors.As(err, &unknown) {
		t.Errorf("with the system's roots: %v", err)
	}
}

func TestDialRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	_, _, err := Dial(t.Context(), wsURL(server), nil, DialOptions{Proxy: noProxy})
	var refused *HandshakeError
	if !errors.As(err, &refused) || *refused != (HandshakeError{Status: 401, Body: "missing credentials"}) {
		t.Errorf("got %v", err)
	}
}

func TestDialErrors(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name string
		ctx  context.Context
		url  string
		o    DialOptions
		want string
	}{
		{"scheme", t.Context(), "http://127.0.0.1/", DialOptions{}, "scheme must be ws or wss"},
		{"not a url", t.Context(), "ws://[", DialOptions{}, "parse backend url"},
		{"timeout", t.Context(), "ws://" + silent.Addr().String(), DialOptions{HandshakeTimeout: 10 * time.Millisecond}, context.DeadlineExceeded.Error()},
		{"canceled", canceled, "ws://" + silent.Addr().String(), DialOptions{}, "canceled"},
		{"proxy timeout", t.Context(), "ws://backend:8081", DialOptions{
			HandshakeTimeout: 10 * time.Millisecond,
			Proxy:            http.ProxyURL(&url.URL{Scheme: "http", Host: silent.Addr().String()}),
		}, "ask for tunnel"},
		{"proxy scheme", t.Context(), "ws://backend:8081", DialOptions{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5", Host: "h"})}, "scheme must be http or https"},
		{"proxy choice", t.Context(), "ws://backend:8081", DialOptions{
			Proxy: func(*http.Request) (*url.URL, error) { return nil, errors.New("no idea") },
		}, "choose proxy: no idea"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.o.Proxy == nil {
				tt.o.Proxy = noProxy
			}
			_, _, err := Dial(tt.ctx, tt.url, nil, tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// tunnelTo is an HTTP proxy that connects every request to one address.
func tunnelTo(t *testing.T, addr string, asked chan<- *http.Request) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != "Basic dTpw" {
			http.Error(w, "no", http.StatusProxyAuthRequired)
			return
		}
		far, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(near, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			_, _ = io.Copy(far, near)
			far.Close()
		}()
		_, _ = io.Copy(near, far)
		near.Close()
	}
}

func TestDialThroughProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	asked := make(chan *http.Request, 1)
	proxy := httptest.NewServer(tunnelTo(t, server.Listener.Addr().String(), asked))
	defer proxy.Close()

	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxyURL.User = url.UserPassword("u", "p")
	var chosenFor string
	choose := func(r *http.Request) (*url.URL, error) {
		chosenFor = r.URL.String()
		return proxyURL, nil
	}
	header := http.Header{HeaderAgentName: {"web-1"}}
	c, _, err := Dial(t.Context(), "ws://backend.example:8081", header, DialOptions{Proxy: choose})
	if err != nil {
		t.Fatal(err)
	}
	if r := <-asked; r.Host != "backend.example:8081" {
		t.Errorf("asked for %q", r.Host)
	}
	if chosenFor != "http://backend.example:8081" {
		t.Errorf("proxy chosen for %q", chosenFor)
	}
	requireEcho(t, c, "hello web-1 at /")

	proxyURL.User = nil
	_, _, err = Dial(t.Context(), "ws://backend.example:8081", header, DialOptions{Proxy: choose})
	<-asked
	if err == nil || !strings.Contains(err.Error(), "tunnel refused: 407") {
		t.Errorf("without credentials: %v", err)
	}
}

// A message that comes in the same packet as the handshake's answer is not lost.
func TestDialEarlyMessage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			defer conn.Close()
			joined := &joiningConn{Conn: conn}
			if _, err := (ws.Upgrader{}).Upgrade(joined); err != nil {
				return err
			}
			joined.pending = append(joined.pending, ws.MustCompileFrame(ws.NewBinaryFrame([]byte("early")))...)
			_, err = conn.Write(joined.pending)
			if err == nil {
				_, err = bufio.NewReader(conn).ReadByte() // until the client disconnects
			}
			return err
		}()
	}()
	c, _, err := Dial(t.Context(), "ws://"+l.Addr().String(), nil, DialOptions{Proxy: noProxy})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Read(); err != nil || string(got) != "early" {
		t.Errorf("got %q, %v", got, err)
	}
	c.Close(CloseGoingAway, "bye")
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// joiningConn collects writes, to send them together with something else.
type joiningConn struct {
	net.Conn
	pending []byte
}

func (c *joiningConn) Write(b []byte) (int, error) {
	c.pending = append(c.pending, b...)
	return len(b), nil
}

func TestRefusalsAreOneLine(t *testing.T) {
	for body, want := range map[string]string{
		"bad credentials":                    "handshake refused: 200 bad credentials",
		"<!DOCTYPE html>\n<html>\n<p>x</p>":  "handshake refused: 200 with a web page: this is a web server and no port for agents, which is 8081 of a backend if it is not set",
		"<html><body>x":                      "handshake refused: 200 with a web page: this is a web server and no port for agents, which is 8081 of a backend if it is not set",
		"one\ntwo":                           "handshake refused: 200 one …",
		strings.Repeat("é", 4000) + "\nmore": "handshake refused: 200 " + strings.Repeat("é", 100) + " …",
	} {
		if got := (&HandshakeError{Status: 200, Body: body}).Error(); got != want {
			t.Errorf("%.40q: %q, want %q", body, got, want)
		}
	}
}
