package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Target is a backend for sequences.
type Target struct {
	API, Agent                               string // http://host:port and ws://host:port
	User, Password, AgentUser, AgentPassword string
	// NamespaceDelay is the time until agents can connect to a new namespace, and SilenceDelay the time until a silence
	// takes effect. Default 0.
	NamespaceDelay, SilenceDelay time.Duration
	// Patience multiplies the time limits of all waits. Default 1.
	Patience time.Duration

	client http.Client
	run    string     // part of namespaces' names, so that a target can be used again
	mu     sync.Mutex // guards token
	token  string
}

// prepare signs in and makes the namespaces.
func (t *Target) prepare(ctx context.Context, sequences []*Sequence) error {
	t.client.Transport = &http.Transport{MaxIdleConnsPerHost: 128}
	t.client.Timeout = 20 * time.Second
	t.Patience = max(t.Patience, 1)
	t.run = strconv.FormatInt(time.Now().UnixMilli(), 36)
	if err := t.login(ctx); err != nil {
		return err
	}
	for _, s := range sequences {
		ns := t.namespaceOf(s)
		code, body, err := t.do(ctx, http.MethodPut, "/api/core/v2/namespaces/"+ns, map[string]any{"name": ns})
		if err != nil || code/100 != 2 {
			return fmt.Errorf("make namespace %s: %d %s %w", ns, code, body, err)
		}
	}
	return pause(ctx, t.NamespaceDelay)
}

// namespaceOf returns the namespace in which a sequence is played.
func (t *Target) namespaceOf(s *Sequence) string {
	return "conformance-" + t.run + "-" + strings.ToLower(s.Name)
}

// Close closes the connections.
func (t *Target) Close() { t.client.CloseIdleConnections() }

func (t *Target) login(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.API+"/auth", nil)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	req.SetBasicAuth(t.User, t.Password)
	resp, err := t.client.Do(req)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Token == "" {
		return fmt.Errorf("sign in: status %d: no token: %w", resp.StatusCode, err)
	}
	t.mu.Lock()
	t.token = answer.Token
	t.mu.Unlock()
	return nil
}

// do sends a request, with a JSON body if body is not nil. It signs in again if the token has expired.
func (t *Target) do(ctx context.Context, method, path string, body any) (code int, answer []byte, err error) {
	var b []byte
	if body != nil {
		if b, err = json.Marshal(body); err != nil {
			return 0, nil, fmt.Errorf("encode body of %s %s: %w", method, path, err)
		}
	}
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, method, t.API+path, bytes.NewReader(b))
		if err != nil {
			return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		t.mu.Lock()
		req.Header.Set("Authorization", "Bearer "+t.token)
		t.mu.Unlock()
		req.Header.Set("Content-Type", "application/json")
		resp, err := t.client.Do(req)
		if err != nil {
			return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		answer, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return 0, nil, fmt.Errorf("%s %s: read answer: %w", method, path, err)
		}
		if resp.StatusCode == http.StatusUnauthorized && try == 0 {
			if err := t.login(ctx); err != nil {
				return 0, nil, err
			}
			continue
		}
		return resp.StatusCode, answer, nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
