package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxClients is how many clients with TLS settings of their own are kept.
const maxClients = 256

// clients has the HTTP clients of all handlers: one for each set of TLS settings, so that connections are reused.
type clients struct {
	dial dialer

	mu   sync.Mutex
	byID map[identity]*http.Client
}

func (c *clients) get(files secretFiles, t *resource.HandlerTLS) (*http.Client, error) {
	config, id, err := files.tlsConfig(t)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.byID[id]; client != nil {
		return client, nil
	}
	if len(c.byID) >= maxClients { // many have old certificates; those still in use are made again
		for _, client := range c.byID {
			client.CloseIdleConnections()
		}
		c.byID = nil
	}
	if c.byID == nil {
		c.byID = map[identity]*http.Client{}
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            c.dial.withAnswer,
		TLSClientConfig:        config,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	client := &http.Client{
		Transport: transport,
		// A redirect would turn a POST into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.byID[id] = client
	return client, nil
}

func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.byID {
		client.CloseIdleConnections()
	}
	c.byID = nil
}

// ErrMayNotRun ends an attempt because this backend may make none any more.
var ErrMayNotRun = errors.New("this backend may make no attempts now")

// dialer connects to receivers. Its connections take no data while this backend may make no attempts: the process may
// have stood still since an attempt began, and another backend has made it.
type dialer struct {
	mayRun func() bool // nil is always
}

// keepAlive notices within a minute that the peer of an open connection has vanished.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// dial connects.
func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, address)
	if err != nil || d.mayRun == nil {
		return conn, err
	}
	return &heldConn{conn, d.mayRun}, nil
}

// withAnswer connects for a protocol in which the peer answers each message. So when such a connection is closed, the
// kernel has data to send only for an attempt that was ended. That must not arrive later, when another backend has made
// the attempt: the kernel drops it. Of a request over HTTP/2 the client itself may still send what it has buffered,
// because other requests share the connection.
func (d dialer) withAnswer(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	plain := conn
	if held, ok := conn.(*heldConn); ok {
		plain = held.Conn
	}
	if tcp, ok := plain.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// heldConn is a connection of a dialer.
type heldConn struct {
	net.Conn
	mayRun func() bool
}

// Write implements net.Conn.
func (c *heldConn) Write(b []byte) (int, error) {
	if !c.mayRun() {
		return 0, ErrMayNotRun
	}
	return c.Conn.Write(b)
}

// call is a request to a web service.
type call struct {
	method, url, contentType string
	body                     []byte
	tls                      *resource.HandlerTLS
	auth                     *resource.HandlerAuth
	scheme                   string // of a token; default Bearer
	// prepare, if set, changes the request before it is sent.
	prepare func(*http.Request)
}

// do makes the call. An answer of 300 or more is a failure.
func (s *Sender) do(ctx context.Context, c call) Result {
	client, err := s.clients.get(s.files, c.tls)
	if err != nil {
		return unreadable(err)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, bytes.NewReader(c.body))
	if err != nil {
		return permanent(fmt.Errorf("make request: %w", withoutURL(err)))
	}
	req.Header.Set("User-Agent", "lapwing")
	req.Header.Set("Content-Type", c.contentType)
	if c.auth != nil {
		if err := s.files.signIn(req, c.auth, c.scheme); err != nil {
			return unreadable(err)
		}
	}
	if c.prepare != nil {
		c.prepare(req)
	}
	resp, err := client.Do(req)
	if err != nil {
		// The client itself refuses some requests, before it connects.
		return Result{Err: withoutURL(err), Temporary: !malformed(req)}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, readOutput))
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, 64<<10) // a connection that was read to the end can be reused
	}
	res := Result{Status: resp.StatusCode, Output: answer}
	switch {
	case resp.StatusCode >= 300:
		res.Err, res.Temporary = &statusError{resp.StatusCode}, temporaryStatus(resp.StatusCode)
		res.RetryAfter = retryAfter(resp.Header, time.Now())
	case err != nil && !errors.Is(err, io.EOF):
		s.log.Debug("the rest of an answer could not be read", "err", err) // the status is enough
	}
	return res
}

// callJSON makes a POST of v as JSON.
func (s *Sender) callJSON(ctx context.Context, c call, v any) Result {
	body, err := json.Marshal(v)
	if err != nil {
		return permanent(fmt.Errorf("write request: %w", err))
	}
	c.method, c.body, c.contentType = http.MethodPost, body, "application/json"
	return s.do(ctx, c)
}

// malformed reports whether a request can never be sent.
func malformed(req *http.Request) bool {
	if req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return true
	}
	for name, values := range req.Header {
		for _, value := range values {
			if !validHeader(name, value) {
				return true
			}
		}
	}
	return false
}

// validHeader reports whether a header can be sent: the client refuses others.
func validHeader(name, value string) bool {
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return name != ""
}

// temporaryStatus reports whether the same request may get another answer later.
func temporaryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}

// withoutURL removes the URL from an error, which gets logged: for many services the URL is the secret.
func withoutURL(err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		return with.Err
	}
	return err
}

// retryAfter returns the wait that a server asks for, in seconds or as a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
