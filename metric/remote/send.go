package remote

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func newClient(o Options) *http.Client {
	transport := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: o.TLS, TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2: true,
		// The drainer of the overflow sends too.
		MaxIdleConnsPerHost: o.Shards + 1, IdleConnTimeout: 90 * time.Second,
	}
	return &http.Client{Transport: transport, Timeout: o.Timeout,
		// A redirect would turn the POST into a GET, or send the password elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

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
		case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
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

// post sends a body once. status is 0 if there is no answer.
func (s *Sender) post(body []byte) (status int, retryAfter time.Duration, err error) {
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.o.URL, bytes.NewReader(body))
	if err != nil {
		return 0, 0, fmt.Errorf("make a request: %w", err)
	}
	for name, value := range s.o.Headers {
		if strings.EqualFold(name, "Host") {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Encoding", "snappy")
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "lapwing")
	r.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	switch {
	case s.o.Bearer != "":
		r.Header.Set("Authorization", "Bearer "+s.o.Bearer)
	case s.o.Username+s.o.Password != "":
		r.SetBasicAuth(s.o.Username, s.o.Password)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, 0, fmt.Errorf("send %d bytes: %w", len(body), err)
	}
	defer resp.Body.Close()
	// The connection is used again only if the answer was read.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 == 2 {
		return resp.StatusCode, 0, nil
	}
	return resp.StatusCode, readRetryAfter(resp.Header.Get("Retry-After")),
		fmt.Errorf("the receiver answers %s: %s", resp.Status, strings.TrimSpace(string(text)))
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
