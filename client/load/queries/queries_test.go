package queries

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A server that is away, or that fails at once, is not asked without a pause.
func TestHeavyPausesAfterErrors(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	defer server.Close()
	for name, url := range map[string]string{"failing": server.URL, "away": away.URL} {
		f := &File{Hosts: 1, Dashboards: []Dashboard{{Name: "empty"}}, Heavy: []string{"a.*"}, From: "-1h"}
		r, err := Run(t.Context(), Options{File: f, URL: url, Viewers: 1, Heavy: 1, Duration: 450 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if r.Failed == 0 || r.Failed > 5 {
			t.Errorf("%s: %d requests failed, want one each 100 ms", name, r.Failed)
		}
	}
}
