package clientaddr

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHandler(t *testing.T) {
	p, err := Parse([]string{"10.0.0.0/8", "192.0.2.7", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, peer string
		header     http.Header
		want       string
	}{
		{"not a proxy", "198.51.100.1:5", http.Header{"X-Forwarded-For": {"203.0.113.1"}}, "198.51.100.1:5"},
		{"no header", "10.1.1.1:5", nil, "10.1.1.1:5"},
		{"one proxy", "10.1.1.1:5", http.Header{"X-Forwarded-For": {"203.0.113.1"}}, "203.0.113.1:0"},
		{"with a port", "10.1.1.1:5", http.Header{"X-Forwarded-For": {"203.0.113.1:77"}}, "203.0.113.1:77"},
		{"two proxies", "192.0.2.7:5", http.Header{"X-Forwarded-For": {"203.0.113.1, 10.2.2.2"}}, "203.0.113.1:0"},
		{"two headers", "192.0.2.7:5", http.Header{"X-Forwarded-For": {"203.0.113.1", "10.2.2.2"}}, "203.0.113.1:0"},
		{"forged in front", "10.1.1.1:5", http.Header{"X-Forwarded-For": {"10.9.9.9, 1.1.1.1, 203.0.113.1"}}, "203.0.113.1:0"},
		{"garbage behind", "10.1.1.1:5", http.Header{"X-Forwarded-For": {"203.0.113.1, unknown"}}, "10.1.1.1:5"},
		{"garbage in front", "10.1.1.1:5", http.Header{"X-Forwarded-For": {"?, 203.0.113.1"}}, "203.0.113.1:0"},
		{"proxies only", "10.1.1.1:5", http.Header{"X-Forwarded-For": {"10.3.3.3"}}, "10.1.1.1:5"},
		{"IPv6", "[fd00::1]:5", http.Header{"X-Forwarded-For": {"2001:db8::1"}}, "[2001:db8::1]:0"},
		{"mapped peer", "[::ffff:10.1.1.1]:5", http.Header{"X-Forwarded-For": {"203.0.113.1"}}, "203.0.113.1:0"},
		{"Forwarded", "10.1.1.1:5", http.Header{"Forwarded": {`for=1.1.1.1, For="[2001:db8::2]:99";proto=https;by=10.1.1.1`}}, "[2001:db8::2]:99"},
		{"hidden", "10.1.1.1:5", http.Header{"Forwarded": {`for=_secret`}}, "10.1.1.1:5"},
		{"both agree", "10.1.1.1:5", http.Header{"Forwarded": {"for=203.0.113.1"}, "X-Forwarded-For": {"203.0.113.1"}}, "203.0.113.1:0"},
		{"both differ", "10.1.1.1:5", http.Header{"Forwarded": {"for=203.0.113.2"}, "X-Forwarded-For": {"203.0.113.1"}}, "10.1.1.1:5"},
	} {
		got := ""
		h := p.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Header = tc.peer, tc.header
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		if r.RemoteAddr != tc.peer {
			t.Errorf("%s: the caller's request was changed", tc.name)
		}
	}
	if _, err := Parse([]string{"proxy.example.org"}); err == nil {
		t.Error("a name was taken")
	}
}
