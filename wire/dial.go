package wire

import (
	"bufio"
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/gobwas/ws"
)

// DialOptions are the settings of Dial.
type DialOptions struct {
	// TLSConfig is for wss URLs, and for proxies reached by https. Default: the system's roots, TLS 1.2 or newer.
	TLSConfig *tls.Config
	// HandshakeTimeout bounds Dial as a whole. Default 15 s.
	HandshakeTimeout time.Duration
	// Proxy chooses a proxy, or none, for a request to the URL with http or https as scheme. Default: from the
	// environment.
	Proxy func(*http.Request) (*url.URL, error)
	// LocalAddr is the address of this machine to connect from. Default: the system's choice.
	LocalAddr netip.Addr
	// MaxMessage is the longest message to accept from the server. Default 64 MiB.
	MaxMessage int64
}

// HandshakeError is a server's refusal to upgrade the connection.
type HandshakeError struct {
	Status int
	Body   string // without the final line feed
}

// Error is one line, even if the body is a page.
func (e *HandshakeError) Error() string {
	body, _, more := strings.Cut(e.Body, "\n")
	const most = 200
	switch text := strings.ToLower(strings.TrimSpace(body)); {
	case strings.HasPrefix(text, "<!doctype html"), strings.HasPrefix(text, "<html"):
		body, more = "with a web page: this is a web server and no port for agents, which is 8081 of a backend if it is not set", false
	case len(body) > most:
		body, more = strings.ToValidUTF8(body[:most], ""), true
	}
	if more {
		body = strings.TrimSpace(body) + " …"
	}
	return fmt.Sprintf("handshake refused: %d %s", e.Status, body)
}

// maxRefusal bounds the kept body of a refusal.
const maxRefusal = 4 << 10

// Dial connects to a websocket server at a ws or wss URL. It also returns the headers of the server's answer, except
// those of the websocket handshake itself.
func Dial(ctx context.Context, rawURL string, header http.Header, o DialOptions) (*Conn, http.Header, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, nil, fmt.Errorf("parse backend url: %w", err)
	}
	if u.Scheme != "ws" && u.Scheme != "wss" {
		return nil, nil, fmt.Errorf("parse backend url %s: scheme must be ws or wss", u.Redacted())
	}
	if o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}

	answer := make(http.Header)
	var refusal error
	dialer := ws.Dialer{
		Header: ws.HandshakeHeaderHTTP(header),
		OnHeader: func(key, value []byte) error {
			answer.Add(string(key), string(value))
			return nil
		},
		OnStatusError: func(status int, _ []byte, resp io.Reader) {
			refusal = &HandshakeError{Status: status, Body: refusalBody(resp)}
		},
	}
	conn, br, err := shakeHands(ctx, &dialer, u, o)
	if refusal != nil {
		err = refusal
	}
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", u.Redacted(), err)
	}
	c := NewClientConn(conn, br, cmp.Or(o.MaxMessage, 64<<20))
	if br != nil {
		ws.PutReader(br)
	}
	return c, answer, nil
}

// shakeHands connects to the host of u and makes both handshakes. They are two steps, because only the websocket one
// needs SHA-1, which proves that the server has understood it and protects nothing. Under GODEBUG=fips140=only SHA-1
// would be refused.
func shakeHands(ctx context.Context, dialer *ws.Dialer, u *url.URL, o DialOptions) (conn net.Conn, br *bufio.Reader, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.HandshakeTimeout, 15*time.Second))
	defer cancel()
	if conn, err = dialThrough(ctx, "tcp", hostPort(u), u, o); err != nil {
		return nil, nil, err
	}
	raw := conn
	stop := context.AfterFunc(ctx, func() { raw.Close() }) // ends a wait for the server
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			raw.Close()
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
		}
	}()
	if u.Scheme == "wss" {
		config := o.TLSConfig
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName = u.Hostname()
		}
		secure := tls.Client(conn, config)
		if err = secure.HandshakeContext(ctx); err != nil {
			return nil, nil, err
		}
		conn = secure
	}
	fips140.WithoutEnforcement(func() { br, _, err = dialer.Upgrade(conn, u) })
	return conn, br, err
}

// hostPort returns a websocket server's address.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func refusalBody(resp io.Reader) string {
	r, err := http.ReadResponse(bufio.NewReader(resp), nil)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxRefusal))
	return strings.TrimRight(string(body), "\r\n")
}

// dialThrough connects to addr, the host of u, through o's proxy for u, if any.
func dialThrough(ctx context.Context, network, addr string, u *url.URL, o DialOptions) (net.Conn, error) {
	twin := *u
	twin.Scheme = map[string]string{"ws": "http", "wss": "https"}[u.Scheme]
	proxy, err := o.Proxy(&http.Request{Method: http.MethodGet, URL: &twin})
	if err != nil {
		return nil, fmt.Errorf("choose proxy: %w", err)
	}
	var d net.Dialer
	if o.LocalAddr.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.LocalAddr, 0))
	}
	if proxy == nil {
		return d.DialContext(ctx, network, addr)
	}

	port := map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	if port == "" {
		return nil, fmt.Errorf("proxy %s: scheme must be http or https", proxy.Redacted())
	}
	conn, err := d.DialContext(ctx, network, net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), port)))
	if err != nil {
		return nil, fmt.Errorf("connect to proxy: %w", err)
	}
	if proxy.Scheme == "https" {
		config := o.TLSConfig.Clone()
		config.ServerName = proxy.Hostname()
		conn = tls.Client(conn, config)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = connectTunnel(conn, addr, proxy.User)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("proxy %s: %w", proxy.Redacted(), err)
	}
	return conn, nil
}

// connectTunnel asks the proxy at the other end of conn for a tunnel to addr.
func connectTunnel(conn net.Conn, addr string, user *url.Userinfo) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: make(http.Header)}
	if user != nil {
		password, _ := user.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		req.Header.Set("Proxy-Authorization", "Basic "+credentials)
	}
	if err := req.Write(conn); err != nil {
		return fmt.Errorf("ask for tunnel: %w", err)
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return fmt.Errorf("ask for tunnel: %w", err)
	}
	// The body is the tunnel itself: it stays open here.
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("tunnel refused: %s", resp.Status)
	}
	if br.Buffered() > 0 { // a websocket server sends nothing before the handshake
		return errors.New("data before the handshake")
	}
	return nil
}
