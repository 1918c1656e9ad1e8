package remote

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// deliver sends b until the receiver takes or refuses it. It returns false if the Sender stops before.
func (s *Sender) deliver(b *batch) bool {
	backoff := s.o.MinBackoff
	for {
		begin := time.Now()
		status, retryAfter, err := s.post(b.body)
		s.metrics.duration.Observe(time.Since(begin).Seconds())
		switch {
		case s.ctx.Err() != nil && status == 0:
			return false
		case err == nil:
			s.metrics.sent.Add(float64(b.samples))
			return true
		case refused(status):
			s.metrics.dropped.WithLabelValues("refused").Add(float64(b.samples))
			s.log.Warn("remote write receiver refuses samples, they are lost", strconv.Itoa(status),
				"samples", b.samples, "status", status, "err", err)
			return true
		}
		s.metrics.retries.Inc()
		// Half of it is random, so that many senders do not come back at the same time.
		wait := backoff/2 + rand.N(backoff/2+1)
		if retryAfter > 0 {
			wait = min(max(wait, retryAfter), s.o.MaxRetryAfter)
		}
		s.log.Warn("remote write failed, it will be tried again", strconv.Itoa(status), "status", status, "wait", wait,
			"err", err)
		backoff = min(2*backoff, s.o.MaxBackoff)
		if !s.sleep(wait) {
			return false
		}
	}
}

// refused reports whether a receiver will never take the samples. Wrong credentials are the fault of files, which may
// be mended, and not of the samples.
func refused(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// post sends a body once. status is 0 if there is no answer.
func (s *Sender) post(body []byte) (status int, retryAfter time.Duration, err error) {
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.o.URL, bytes.NewReader(body))
	if err != nil {
		return 0, 0, fmt.Errorf("make a request: %w", err)
	}
	a := s.access.Current()
	r.Header = a.header.Clone()
	r.Host = cmp.Or(a.host, r.Host)
	defer func() {
		if s.access.Current() != a {
			a.client.CloseIdleConnections() // files have changed, and this connection was made with their old content
		}
	}()
	resp, err := a.client.Do(r)
	if err != nil {
		var around *url.Error
		if errors.As(err, &around) {
			err = around.Err // without the URL, whose query may be a secret
		}
		return 0, 0, fmt.Errorf("send %d bytes: %w", len(body), err)
	}
	defer resp.Body.Close()
	// The connection is used again only if the answer was read.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 == 2 {
		return resp.StatusCode, 0, nil
	}
	return resp.StatusCode, readRetryAfter(resp.Header.Get("Retry-After")),
		errors.New(strings.TrimSuffix("the receiver answers "+a.hide(resp.Status)+": "+
			a.hide(strings.TrimSpace(string(text))), ": "))
}

// readRetryAfter reads a number of seconds or a date. It returns 0 for anything else.
func readRetryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
