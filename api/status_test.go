package api

import (
	"net/http"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestMetricsAuth: with the switch, /metrics needs a user who may get metrics, also while the backend starts.
func TestMetricsAuth(t *testing.T) {
	open := newServer(t, nil)
	open.do("GET", "/metrics", "", "Authorization", "").is(200)
	s := newServer(t, func(o *Options) { o.MetricsAuth = true })
	s.grant("scrapers", "", resource.Rule{Verbs: []string{"get"}, Resources: []string{"metrics"}})
	scraper, nobody := s.user("scraper", "scrapers"), s.user("nobody")
	for token, want := range map[string]int{"": 401, "wrong": 401, nobody: 403, scraper: 200, s.token: 200} {
		if got := s.ask(http.MethodGet, "/metrics", token); got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	s.do("GET", "/metrics", "", "Authorization", "Key "+s.key("scraper")).is(200)
	s.do("GET", "/health", "", "Authorization", "").is(200)
}

// TestAnswersWithTokensAreNotStored: browsers and proxies may not store them, successes and failures.
func TestAnswersWithTokensAreNotStored(t *testing.T) {
	s := newServer(t, nil)
	for _, tc := range [][2]string{
		{"GET", "/auth"}, {"GET", "/auth/test"}, {"POST", "/auth/token"}, {"POST", "/auth/logout"},
		{"POST", oidcPath + "token"}, {"GET", oidcPath + "authorize"}, {"GET", oidcPath + "callback"},
	} {
		for _, credentials := range []string{"", "Basic YWRtaW46UEBzc3cwcmQh", "Bearer x"} {
			got := s.do(tc[0], tc[1], "", "Authorization", credentials)
			if got.header.Get("Cache-Control") != "no-store" || got.header.Get("Pragma") != "no-cache" {
				t.Errorf("%s %s with %q: headers %v", tc[0], tc[1], credentials, got.header)
			}
		}
	}
}
