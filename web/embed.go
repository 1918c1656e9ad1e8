// Package web serves the user interface: a single page, built by Vite from web/src into web/dist and embedded here. The
// API uses Handler as the fallback of its router. The page uses only the HTTP API of its own server.
//
// A Go build needs no Node. Without a built page the handler says so, and how to build it.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The all: prefix includes .gitkeep, without which an unbuilt dist would have no file to embed.
//
//go:embed all:dist
var dist embed.FS

// contentSecurityPolicy lets the page run its own scripts and talk to its own server. Inline scripts, frames, plugins and
// other hosts are refused. The library of components adds style elements, with the nonce that each answer has anew.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'%s; img-src 'self' data:; " +
	"connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// noncePlaceholder is in the built page where the nonce is to be.
const noncePlaceholder = "LAPWING_NONCE"

// agentsPlaceholder is in the built page where the URL for agents is to be.
const agentsPlaceholder = "LAPWING_AGENTS"

// Vite puts files whose names hold a hash of their content here.
const hashedDir = "assets/"

const notBuilt = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>lapwing</title>
</head>
<body>
<h1>lapwing</h1>
<p>This server runs, but its user interface was not built into it.</p>
<p>To build it, install Node.js and run <code>make web</code> in the source tree, then build the server again.</p>
<p>The API works without it: see <a href="/version">/version</a> and <a href="/health">/health</a>.</p>
</body>
</html>
`

// Built reports whether the page was built before this program was.
func Built() bool {
	return built(embedded())
}

// Handler serves the embedded page at / and its files below it. It answers every other path as the API answers an
// unknown one, so it can be the fallback of the API's router. agents is the URL at which agents connect, without the host, which
// the page knows: it shows it in its first commands. An example is ws://:8081.
func Handler(agents string) http.Handler {
	return newHandler(embedded(), agents)
}

func embedded() fs.FS {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is a constant and valid
	}
	return sub
}

func built(fsys fs.FS) bool {
	info, err := fs.Stat(fsys, "index.html")
	return err == nil && info.Mode().IsRegular()
}

type handler struct {
	files map[string]*file // by path without the leading slash
	page  *document
}

// document is the page, in the two parts around its nonce. before is all of it if it needs none.
type document struct{ before, after []byte }

// file is one file of the build, ready to be sent.
type file struct {
	contentType string
	immutable   bool
	etag        string
	content     []byte
	// gzipped returns the compressed content, or nil if it is not smaller. It is compressed at the first request.
	gzipped func() []byte
}

func newHandler(fsys fs.FS, agents string) *handler {
	h := &handler{files: make(map[string]*file)}
	if !built(fsys) {
		h.page = &document{before: []byte(notBuilt)}
		return h
	}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if name == "index.html" {
			content = bytes.ReplaceAll(content, []byte(agentsPlaceholder), []byte(agents))
			before, after, _ := bytes.Cut(content, []byte(noncePlaceholder))
			h.page = &document{before, after}
			return nil
		}
		h.files[name] = newFile(name, content)
		return nil
	})
	if err != nil {
		panic(err) // reading embedded files cannot fail
	}
	return h
}

func newFile(name string, content []byte) *file {
	sum := sha256.Sum256(content)
	contentType := typeOf(name)
	return &file{
		contentType: contentType,
		immutable:   strings.HasPrefix(name, hashedDir),
		etag:        hex.EncodeToString(sum[:8]),
		content:     content,
		gzipped: sync.OnceValue(func() []byte {
			if !compressible(contentType) {
				return nil
			}
			var b bytes.Buffer
			w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
			_, _ = w.Write(content)                               // writing to a Buffer cannot fail
			_ = w.Close()
			if b.Len() >= len(content) {
				return nil
			}
			return b.Bytes()
		}),
	}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	f, ok := h.files[name]
	page := name == "" || name == "index.html" || !ok && isView(r)
	if !ok && !page {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":2,"message":"not found"}` + "\n"))
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if page {
		h.page.serve(w, r)
		return
	}
	f.serve(w, r)
}

// isView reports whether a browser asks for a view of the page, such as /events: the page itself knows which there are.
func isView(r *http.Request) bool {
	for _, prefix := range []string{"/api", "/auth", "/assets"} {
		if r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/") {
			return false
		}
	}
	return !strings.Contains(path.Base(r.URL.Path), ".") && strings.Contains(r.Header.Get("Accept"), "text/html")
}

func secure(header http.Header, nonce string) {
	if nonce != "" {
		nonce = " 'nonce-" + nonce + "'"
	}
	header.Set("Content-Security-Policy", fmt.Sprintf(contentSecurityPolicy, nonce))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
}

func (d *document) serve(w http.ResponseWriter, r *http.Request) {
	nonce := ""
	if d.after != nil {
		nonce = rand.Text()
	}
	header := w.Header()
	secure(header, nonce)
	header.Set("Content-Type", "text/html; charset=utf-8")
	// The page names the hashed files of its own build, and has a nonce that is good once.
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(d.before)+len(nonce)+len(d.after)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(slices.Concat(d.before, []byte(nonce), d.after)) // the client may have gone
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	secure(header, "")
	header.Set("Content-Type", f.contentType)
	if f.immutable {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		header.Set("Cache-Control", "no-cache") // a browser must check whether it is current
	}

	content, etag := f.content, `"`+f.etag+`"`
	if compressible(f.contentType) {
		header.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			if b := f.gzipped(); b != nil {
				content, etag = b, `"`+f.etag+`-gzip"`
				header.Set("Content-Encoding", "gzip")
			}
		}
	}
	header.Set("ETag", etag)
	if matches(r.Header.Get("If-None-Match"), etag) {
		header.Del("Content-Encoding")
		header.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(content) // the client may have gone
}

// typeOf returns the types of a build's files: mime's answers depend on the machine.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

func compressible(contentType string) bool {
	return strings.HasPrefix(contentType, "text/") || contentType == "image/svg+xml"
}

// acceptsGzip reports whether an Accept-Encoding header names gzip (or anything) without refusing it by q=0.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, params, _ := strings.Cut(part, ";")
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "gzip" && coding != "*" {
			continue
		}
		q, found := strings.CutPrefix(strings.ToLower(strings.TrimSpace(params)), "q=")
		if !found {
			return true
		}
		weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return err == nil && weight > 0
	}
	return false
}

// matches compares as If-None-Match asks: weakly, against a list or an asterisk.
func matches(header, etag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if part == etag || part == "*" {
			return true
		}
	}
	return false
}
