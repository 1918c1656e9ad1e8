package metric

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestHealth asks the port of queries for its health, of a server that is well and of one whose disk counts as full.
func TestHealth(t *testing.T) {
	start := func(minFree int64) string {
		o := DefaultOptions()
		o.Dir, o.QueryAddress, o.Version, o.Store.MinFreeBytes = t.TempDir(), "127.0.0.1:0", "1.2.3", minFree
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop(t.Context()) })
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for s.loading.Load() { // this ends: there are no names
			runtime.Gosched()
		}
		return "http://" + s.QueryAddr().String()
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	f := func(method, url string, status int, want string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != status || !strings.Contains(string(body), want) {
			t.Errorf("%s %s: %d %q, want %d with %q", method, url, resp.StatusCode, body, status, want)
		}
	}
	well, full := start(-1), start(1<<62)
	f("GET", well+"/health", 200, `{"healthy":true,"problems":[],"version":"1.2.3"}`)
	f("GET", well+"/ready", 200, "ready\n")
	f("HEAD", well+"/ready", 200, "")
	f("GET", full+"/health", 200, `{"healthy":false,"problems":["the disk is almost full`)
	f("GET", full+"/ready", 503, "not ready: the disk is almost full")
	f("GET", full+"/-/ready", 200, "ready")
	f("GET", well+"/version", 200, "")
}
