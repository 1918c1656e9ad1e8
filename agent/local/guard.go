package local

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// A page in a browser on the host, or on any machine if the API is not on loopback, can send requests here. Without
// permission it may send forms and text/plain; after DNS rebinding it may send anything, under its own host name. So
// the API accepts only requests that use a name of its own and do not come from another site's page. Programs may send
// any Content-Type: curl -d says that it sends a form, and scripts written for Sensu's agent depend on that.

var (
	errHost   = errors.New("the Host header names another host: use 127.0.0.1, localhost or the API's address")
	errOrigin = errors.New("requests of web pages of other sites are not taken")
)

// guard refuses requests that come from pages of other sites.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch {
		case !s.ownHost(r.Host):
			err = errHost
		case crossSite(r):
			err = errOrigin
		}
		if err != nil {
			s.metrics.refused.WithLabelValues("api").Inc()
			s.rare.Warn("request to the agent's API refused", "", "host", shown(r.Host), "origin", shown(r.Header.Get("Origin")),
				"address", r.RemoteAddr, "err", err)
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether a Host header names this API: by an address, which no site can use as its name, by localhost,
// by the name of the agent or its host, or by a configured name. HTTP/1.0 has no Host header.
func (s *Server) ownHost(header string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "" || net.ParseIP(host) != nil || strings.EqualFold(host, "localhost") {
		return true
	}
	configured, _, _ := net.SplitHostPort(s.opts.APIAddress)
	machine, _ := os.Hostname()
	names := append([]string{configured, machine, s.opts.Agent}, s.opts.APIHosts...)
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) })
}

// crossSite reports whether a browser marks the request as coming from a page of another site. Programs send no such
// header.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: a user typed the address
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

// shown shortens a header for the log.
func shown(header string) string { return header[:min(len(header), 200)] }
