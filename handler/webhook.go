package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// newClient is the client of all webhooks. It does not follow redirects: that would turn a POST into a GET.
func newClient(perHost int) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = perHost
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// runWebhook sends the data to the handler's URL. An answer of 300 or more is a failure.
func (d *Dispatcher) runWebhook(ctx context.Context, h *resource.Handler, dl *Delivery) ([]byte, error) {
	if h.Webhook == nil {
		return nil, errors.New("webhook handler has no url")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout(h))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, cmp.Or(h.Webhook.Method, http.MethodPost), h.Webhook.URL, bytes.NewReader(dl.Data))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", withoutURL(err))
	}
	req.Header.Set("User-Agent", "lapwing")
	req.Header.Set("Content-Type", "application/json")
	if h.Mutator == "only_check_output" {
		req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	for name, value := range h.Webhook.Headers {
		if strings.EqualFold(name, "Host") {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	req.Header.Set("Idempotency-Key", dl.ID)

	resp, err := d.client.Do(req)
	if err != nil {
		return nil, &temporaryError{err: withoutURL(err)}
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxLogged))
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // a connection read to the end can be used again
	if resp.StatusCode < 300 {
		return answer, nil
	}
	err = &statusError{resp.StatusCode}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		err = &temporaryError{err: err, after: retryAfter(resp.Header)}
	}
	return answer, err
}

// withoutURL takes the URL out of an error, which gets logged: for many services the URL is the secret.
func withoutURL(err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		return with.Err
	}
	return err
}

// retryAfter is the wait that a server asks for in seconds; a date is not understood and means none.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
