package local

import (
	"net/http"
	"strings"
	"testing"
)

// TestPagesOfOtherSites sends what a web page could: none of it becomes an event. Requests of programs do.
func TestPagesOfOtherSites(t *testing.T) {
	server, s := start(t, func(o *Options) { o.APIHosts = []string{"web-1.example.com"} })
	own := server.APIAddr().String()
	for _, tt := range []struct {
		name   string
		header map[string]string
		want   int
	}{
		{"curl -d", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, http.StatusAccepted},
		{"a script without a content type", nil, http.StatusAccepted},
		{"localhost", map[string]string{"Host": "localhost:3031"}, http.StatusAccepted},
		{"the other loopback address", map[string]string{"Host": "[::1]:3031"}, http.StatusAccepted},
		{"a name that is allowed", map[string]string{"Host": "WEB-1.example.com:3031"}, http.StatusAccepted},
		{"a page of its own", map[string]string{"Origin": "http://" + own, "Sec-Fetch-Site": "same-origin"}, http.StatusAccepted},

		{"text/plain of a page", map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}, http.StatusForbidden},
		{"a page without a name", map[string]string{"Origin": "null"}, http.StatusForbidden},
		{"another port of the host", map[string]string{"Origin": "http://127.0.0.1:9999"}, http.StatusForbidden},
		{"a page whose browser leaves out the origin", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"another site of the same domain", map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		{"DNS rebinding", map[string]string{"Host": "evil.example:3031", "Origin": "http://evil.example:3031"}, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+own+"/events",
				strings.NewReader(`{"check":{"metadata":{"name":"c"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range tt.header {
				if name == "Host" {
					req.Host = value
				}
				req.Header.Set(name, value)
			}
			transport := &http.Transport{DisableKeepAlives: true}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.want {
				t.Errorf("got %d, want %d", resp.StatusCode, tt.want)
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) != 6 {
		t.Errorf("%d events were passed on, want 6", len(s.events))
	}
}

// TestLongNames: what the backend would refuse is refused here.
func TestLongNames(t *testing.T) {
	server, s := start(t, nil)
	long := strings.Repeat("n", 4000)
	for _, body := range []string{
		`{"check":{"metadata":{"name":"` + long + `"}}}`,
		`{"check":{"metadata":{"name":"c"}},"entity":{"metadata":{"name":"` + long + `"}}}`,
		`{"check":{"metadata":{"name":"c"},"ttl":9223372036854776}}`,
		`{"check":{"metadata":{"name":"c"}},"metadata":{"namespace":"` + long + `"}}`,
	} {
		if status, answer := call(t, server, http.MethodPost, "/events", body); status != http.StatusBadRequest || len(answer) > 300 {
			t.Errorf("%.80s: %d %.100s", body, status, answer)
		}
	}
	if _, err := server.event([]byte(`{"name":"c","output":"o","source":"` + long + `"}`)); err == nil {
		t.Error("the socket takes a long name")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) != 0 {
		t.Errorf("%d events were passed on", len(s.events))
	}
}
