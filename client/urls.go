package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// bases are the URLs of one API, of several backends. Requests go to the present one until that fails, and then to the
// next.
type bases struct {
	urls    []string // without a trailing slash
	present atomic.Int64
}

// parseURLs reads URLs with commas between.
func parseURLs(list string) (urls []string, err error) {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			return nil, fmt.Errorf("API URL %q must begin with http:// or https://, as http://%s", one, one)
		}
		u, err := url.Parse(one)
		if err != nil {
			return nil, fmt.Errorf("parse API URL: %w", err)
		}
		if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("API URL %q is not of the form http(s)://host:port", one)
		}
		if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("API URL %q must hold only scheme, host, port and path", u.Redacted())
		}
		urls = append(urls, strings.TrimRight(u.String(), "/"))
	}
	return urls, nil
}

// base returns the URL that requests go to.
func (b *bases) base() string { return b.urls[b.present.Load()] }

// leave sends later requests to the next URL, unless they go to another one already.
func (b *bases) leave(base string) {
	at := int64(slices.Index(b.urls, base))
	b.present.CompareAndSwap(at, (at+1)%int64(len(b.urls)))
}

// URLs returns the URLs of the API, the one that requests go to now first.
func (c *Client) URLs() []string {
	at := c.bases.present.Load()
	return slices.Concat(c.bases.urls[at:], c.bases.urls[:at])
}

// roundTrip sends a request to the present URL, and to the others if that one cannot answer it.
func (c *Client) roundTrip(ctx context.Context, r request, authorization string) (*http.Response, error) {
	for tried := 1; ; tried++ {
		base := c.bases.base()
		resp, err := c.roundTripTo(ctx, base, r, authorization)
		if !elsewhere(r.method, resp, err) || ctx.Err() != nil {
			return resp, err
		}
		c.bases.leave(base)
		if tried >= len(c.bases.urls) {
			return resp, err
		}
		if resp != nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
			_ = resp.Body.Close()
		}
	}
}

// elsewhere reports whether another backend may answer a request that one could not. A request that changes something
// must not be done twice: it goes elsewhere only if it cannot have arrived.
func elsewhere(method string, resp *http.Response, err error) bool {
	var dial *net.OpError
	switch {
	case err != nil:
		return method == http.MethodGet || errors.As(err, &dial) && dial.Op == "dial"
	case method != http.MethodGet:
		return false
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// share bounds the wait for one of several URLs: a backend may accept a connection and say nothing. It returns a context
// for the request, and a function that ends the bound when there is an answer. cancel must be called in the end.
func (c *Client) share(ctx context.Context, r request, base string) (
	_ context.Context, answered func() bool, cancel context.CancelFunc,
) {
	n := len(c.bases.urls)
	if n == 1 || r.method != http.MethodGet {
		return ctx, func() bool { return true }, func() {}
	}
	limit := c.opts.Timeout / time.Duration(n)
	ctx, stop := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { stop(&timeoutError{base, limit}) })
	return ctx, timer.Stop, func() { timer.Stop(); stop(nil) }
}

// sharedBody is the body of an answer whose request has a context of its own.
type sharedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *sharedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
