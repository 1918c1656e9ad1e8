package web

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

const page = `<!doctype html><meta name="nonce" content="LAPWING_NONCE"><meta name="agents" content="wss://:8081"><title>built</title>`

var script = strings.Repeat("console.log('lapwing')\n", 100)

// source is page as it is built.
var source = strings.Replace(page, "wss://:8081", agentsPlaceholder, 1)

func builtFS() fstest.MapFS {
	return fstest.MapFS{
		".gitkeep":             {},
		"index.html":           {Data: []byte(source)},
		"assets/index-a1b2.js": {Data: []byte(script)},
		"assets/logo-c3d4.svg": {Data: []byte("<svg/>")},
		"assets/face-e5.woff2": {Data: []byte("font")},
	}
}

func get(t *testing.T, h http.Handler, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBuiltPage(t *testing.T) {
	if !built(builtFS()) {
		t.Error("not built")
	}
	h := newHandler(builtFS(), "wss://:8081")
	const forever = "public, max-age=31536000, immutable"
	tests := []struct {
		target, contentType, cache, body string // the body is "" for the page
	}{
		{"/", "text/html; charset=utf-8", "no-store", ""},
		{"/index.html", "text/html; charset=utf-8", "no-store", ""},
		{"/?ns=default&q=web", "text/html; charset=utf-8", "no-store", ""},
		{"/events/default/web1/disk", "text/html; charset=utf-8", "no-store", ""},
		{"/assets/index-a1b2.js", "text/javascript; charset=utf-8", forever, script},
		{"/assets/logo-c3d4.svg", "image/svg+xml", forever, "<svg/>"},
		{"/assets/face-e5.woff2", "font/woff2", forever, "font"},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			res := get(t, h, http.MethodGet, tt.target, "Accept", "text/html,*/*;q=0.8")
			if res.StatusCode != http.StatusOK {
				t.Fatalf("status %d", res.StatusCode)
			}
			for name, want := range map[string]string{
				"Content-Type":           tt.contentType,
				"Cache-Control":          tt.cache,
				"X-Content-Type-Options": "nosniff",
				"Referrer-Policy":        "no-referrer",
			} {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			got, nonce := body(t, res), ""
			if tt.body == "" {
				nonce = nonceOf(t, got)
				if another := nonceOf(t, body(t, get(t, h, http.MethodGet, "/"))); another == nonce || len(nonce) < 20 {
					t.Errorf("two answers have the nonces %q and %q", nonce, another)
				}
				got, nonce = strings.Replace(got, nonce, noncePlaceholder, 1), " 'nonce-"+nonce+"'"
				tt.body = page
			}
			if policy := res.Header.Get("Content-Security-Policy"); policy != fmt.Sprintf(contentSecurityPolicy, nonce) {
				t.Errorf("the policy is %q", policy)
			}
			if got != tt.body {
				t.Errorf("body is %q", got)
			}

			head := get(t, h, http.MethodHead, tt.target, "Accept", "text/html")
			if head.StatusCode != http.StatusOK || head.Header.Get("Content-Length") != res.Header.Get("Content-Length") {
				t.Errorf("HEAD answers %d with length %s", head.StatusCode, head.Header.Get("Content-Length"))
			}
			if got := body(t, head); got != "" {
				t.Errorf("HEAD has body %q", got)
			}

			if tag := res.Header.Get("ETag"); tag != "" {
				again := get(t, h, http.MethodGet, tt.target, "If-None-Match", tag)
				if again.StatusCode != http.StatusNotModified || body(t, again) != "" {
					t.Errorf("a known ETag answers %d", again.StatusCode)
				}
			}
		})
	}
}

// nonceOf returns the nonce in the page.
func nonceOf(t *testing.T, html string) string {
	t.Helper()
	_, after, ok := strings.Cut(html, `content="`)
	nonce, _, ended := strings.Cut(after, `"`)
	if !ok || !ended {
		t.Fatalf("the page has no nonce: %s", html)
	}
	return nonce
}

func TestUnknownPathsAndMethods(t *testing.T) {
	h := newHandler(builtFS(), "wss://:8081")
	for _, target := range []string{"/nope", "/assets", "/assets/", "/assets/index-0000.js", "/.gitkeep", "/../index.html", "/api/core/v2/nope"} {
		r := httptest.NewRequest(http.MethodGet, "http://host/", nil)
		r.URL.Path = target
		if strings.Contains(target, "/a") || strings.Contains(target, ".") {
			r.Header.Set("Accept", "text/html") // also for a browser
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		res := w.Result()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %d", target, res.StatusCode)
		}
		if got := body(t, res); got != `{"code":2,"message":"not found"}`+"\n" {
			t.Errorf("%s has body %q", target, got)
		}
	}
	if res := get(t, h, http.MethodPost, "/"); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST / answers %d", res.StatusCode)
	}
}

func TestCompression(t *testing.T) {
	h := newHandler(builtFS(), "wss://:8081")
	tests := []struct {
		target, accept string
		zipped         bool
	}{
		{"/assets/index-a1b2.js", "gzip, deflate, br", true},
		{"/assets/index-a1b2.js", "br;q=1.0, GZIP;q=0.5", true},
		{"/assets/index-a1b2.js", "*", true},
		{"/assets/index-a1b2.js", "gzip;q=0", false},
		{"/assets/index-a1b2.js", "gzip;q=0.0, *", false},
		{"/assets/index-a1b2.js", "br", false},
		{"/assets/index-a1b2.js", "", false},
		{"/assets/logo-c3d4.svg", "gzip", false}, // no gain
		{"/assets/face-e5.woff2", "gzip", false}, // compressed already
	}
	for _, tt := range tests {
		res := get(t, h, http.MethodGet, tt.target, "Accept-Encoding", tt.accept)
		if got := res.Header.Get("Content-Encoding") == "gzip"; got != tt.zipped {
			t.Errorf("%s with %q: gzip is %v", tt.target, tt.accept, got)
			continue
		}
		if !tt.zipped {
			continue
		}
		z, err := gzip.NewReader(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(z)
		if err != nil || string(content) != script {
			t.Errorf("%s with %q: unzips to %d bytes (%v)", tt.target, tt.accept, len(content), err)
		}
		if res.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: Vary is %q", tt.target, res.Header.Get("Vary"))
		}
		plain := get(t, h, http.MethodGet, tt.target)
		if plain.Header.Get("ETag") == res.Header.Get("ETag") {
			t.Errorf("%s: both encodings have the ETag %s", tt.target, res.Header.Get("ETag"))
		}
	}
}

func TestNotBuilt(t *testing.T) {
	for name, fsys := range map[string]fstest.MapFS{
		"only .gitkeep":    {".gitkeep": {}},
		"an aborted build": {".gitkeep": {}, "assets/index-a1b2.js": {Data: []byte(script)}},
	} {
		t.Run(name, func(t *testing.T) {
			if built(fsys) {
				t.Error("built")
			}
			h := newHandler(fsys, "wss://:8081")
			res := get(t, h, http.MethodGet, "/")
			got := body(t, res)
			if res.StatusCode != http.StatusOK || !strings.Contains(got, "<code>make web</code>") {
				t.Errorf("status %d, body %q", res.StatusCode, got)
			}
			if got := res.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
				t.Errorf("Content-Type is %q", got)
			}
			if got := res.Header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control is %q", got)
			}
			if res := get(t, h, http.MethodGet, "/assets/index-a1b2.js"); res.StatusCode != http.StatusNotFound {
				t.Errorf("a file answers %d", res.StatusCode)
			}
		})
	}
}

// The embedded files of this test's build are served, and follow the policy that is sent with them.
func TestEmbedded(t *testing.T) {
	res := get(t, Handler(""), http.MethodGet, "/")
	html := body(t, res)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d", res.StatusCode)
	}
	if Built() == strings.Contains(html, "was not built") {
		t.Errorf("Built() is %v, the page is %q", Built(), html)
	}
	for _, inline := range []string{"<script>", "<style", " style=", " onload="} {
		if strings.Contains(html, inline) {
			t.Errorf("the page has %q, which its own policy forbids", inline)
		}
	}
}
