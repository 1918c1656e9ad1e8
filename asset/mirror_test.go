package asset

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// definitions are the builds that a test's mirror knows, by checksum.
type definitions struct {
	mu     sync.Mutex
	builds map[string][]*resource.AssetBuild
}

func (d *definitions) define(sum string, builds ...*resource.AssetBuild) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.builds == nil {
		d.builds = map[string][]*resource.AssetBuild{}
	}
	d.builds[sum] = builds
}

func (d *definitions) sources(namespace, sum string) []*resource.AssetBuild {
	d.mu.Lock()
	defer d.mu.Unlock()
	if namespace != "default" {
		return nil
	}
	return d.builds[sum]
}

// newMirror starts a mirror and an HTTP server for it.
func newMirror(t testing.TB, opts MirrorOptions) (m *Mirror, url string) {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = filepath.Join(t.TempDir(), "mirror")
	}
	m, err := NewMirror(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.Serve(w, r, r.Header.Get("Namespace")) }))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m, srv.URL
}

// asks returns an Options.Mirror for a mirror at a URL.
func asks(t testing.TB, url string) func(context.Context, string) (*http.Client, *http.Request, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context, sum string) (*http.Client, *http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+MirrorPath+sum, nil)
		if err != nil {
			t.Error(err)
			return nil, nil, err
		}
		req.Header.Set("Namespace", "default")
		return client, req, nil
	}
}

// TestMirrorFetchesOnce has 200 hosts ask for an archive at once, at a mirror that serves few at a time.
func TestMirrorFetchesOnce(t *testing.T) {
	const hosts = 200
	data := archive(t, true, plugin...)
	o := newOrigin(t)
	waiting := make(chan struct{}, hosts)
	o.answers["/plugin"] = func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["Token"]; len(got) != 2 || got[0] != "a" || got[1] != "b" {
			t.Errorf("the origin was told %q", got)
		}
		for range hosts / 2 { // that many wait for this one fetch
			<-waiting
		}
		_, _ = w.Write(data)
	}
	var d definitions
	d.define(sum(data), &resource.AssetBuild{URL: o.URL + "/plugin", Sha512: sum(data), Headers: map[string]string{"Token": "a, b"}})
	m, url := newMirror(t, MirrorOptions{Sources: func(namespace, sum string) []*resource.AssetBuild {
		waiting <- struct{}{}
		return d.sources(namespace, sum)
	}, Transfers: 4, Waiting: hosts})
	var wait sync.WaitGroup
	for range hosts {
		wait.Go(func() {
			s := newStore(t, Options{Mirror: asks(t, url)})
			// The origin is closed to hosts.
			installed, err := s.Get(t.Context(), one("http://127.0.0.1:1/plugin", sum(data)))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(installed[0].Dir, "bin", "check-it")); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := o.hits.Load(); n != 1 {
		t.Errorf("%d fetches at the origin, want 1", n)
	}

	// Another process finds the archive there and verifies it.
	path := filepath.Join(m.opts.Dir, sum(data))
	again, url := newMirror(t, MirrorOptions{Dir: m.opts.Dir, Sources: d.sources})
	if _, err := newStore(t, Options{Mirror: asks(t, url)}).Get(t.Context(), one("http://127.0.0.1:1/", sum(data))); err != nil || o.hits.Load() != 1 {
		t.Errorf("after a restart: %v, %d fetches", err, o.hits.Load())
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	again.mu.Lock()
	clear(again.verified)
	again.mu.Unlock()
	o.serve("/plugin", data)
	if _, err := newStore(t, Options{Mirror: asks(t, url)}).Get(t.Context(), one("http://127.0.0.1:1/", sum(data))); err != nil || o.hits.Load() != 2 {
		t.Errorf("with a damaged archive: %v, %d fetches", err, o.hits.Load())
	}
}

func get(t *testing.T, url string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Namespace", "default")
	if change != nil {
		change(req)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestMirrorAnswers(t *testing.T) {
	data := []byte("what it is does not matter to a mirror")
	o := newOrigin(t)
	o.serve("/good", data)
	o.answers["/forbidden"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	other, wrong := sum([]byte("other")), sum([]byte("wrong"))
	var d definitions
	// the second source works
	d.define(sum(data), &resource.AssetBuild{URL: o.URL + "/forbidden"}, &resource.AssetBuild{URL: o.URL + "/good"})
	d.define(other, &resource.AssetBuild{URL: o.URL + "/forbidden"})
	d.define(wrong, &resource.AssetBuild{URL: o.URL + "/good"})
	m, url := newMirror(t, MirrorOptions{Sources: d.sources})
	for _, test := range []struct {
		name, path string
		change     func(*http.Request)
		status     int
		body       string
	}{
		{"all of it", sum(data), nil, 200, string(data)},
		{"in capitals", strings.ToUpper(sum(data)), nil, 200, string(data)},
		{"a part", sum(data), func(r *http.Request) { r.Header.Set("Range", "bytes=0-3") }, 206, "what"},
		{"no such part", sum(data), func(r *http.Request) { r.Header.Set("Range", "bytes=1000-") }, 416, ""},
		{"it is known", sum(data), func(r *http.Request) { r.Header.Set("If-None-Match", `"`+sum(data)+`"`) }, 304, ""},
		{"its size", sum(data), func(r *http.Request) { r.Method = http.MethodHead }, 200, ""},
		{"to write", sum(data), func(r *http.Request) { r.Method = http.MethodPut }, 405, ""},
		{"of another namespace", sum(data), func(r *http.Request) { r.Header.Set("Namespace", "other") }, 404, ""},
		{"not defined", sum([]byte("nothing")), nil, 404, ""},
		{"no checksum", "../" + sum(data)[:20], nil, 404, ""},
		{"refused by the origin", other, nil, 502, ""},
		{"not what was promised", wrong, nil, 502, ""},
	} {
		resp, body := get(t, url+MirrorPath+test.path, test.change)
		if resp.StatusCode != test.status || test.body != "" && body != test.body {
			t.Errorf("%s: status %d, %q; want %d, %q", test.name, resp.StatusCode, body, test.status, test.body)
		}
		if test.name == "its size" && resp.ContentLength != int64(len(data)) {
			t.Errorf("it is said to have %d bytes", resp.ContentLength)
		}
	}
	before := o.hits.Load()
	get(t, url+MirrorPath+other, nil)
	if o.hits.Load() != before {
		t.Error("a fetch that has just failed was tried again")
	}
	left, err := os.ReadDir(m.opts.Dir)
	if err != nil || len(left) != 1 || left[0].Name() != sum(data) {
		t.Errorf("kept %v, %v", left, err)
	}
}

func TestMirrorIsBounded(t *testing.T) {
	o := newOrigin(t)
	var d definitions
	var sums []string
	for i := range 4 {
		data := []byte(strings.Repeat(fmt.Sprint(i), 100))
		o.serve(fmt.Sprint("/", i), data)
		sums = append(sums, sum(data))
		d.define(sum(data), &resource.AssetBuild{URL: o.URL + fmt.Sprint("/", i)})
	}
	huge := []byte(strings.Repeat("x", 251))
	o.serve("/huge", huge)
	d.define(sum(huge), &resource.AssetBuild{URL: o.URL + "/huge"})
	m, url := newMirror(t, MirrorOptions{Sources: d.sources, MaxBytes: 250, MaxAge: time.Hour})
	kept := func() (which string) {
		for i, s := range sums {
			if _, err := os.Stat(filepath.Join(m.opts.Dir, s)); err == nil {
				which += fmt.Sprint(i)
			}
		}
		return which
	}
	for i, s := range sums[:3] {
		if resp, _ := get(t, url+MirrorPath+s, nil); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		age := time.Now().Add(time.Duration(i-30) * time.Minute)
		if err := os.Chtimes(filepath.Join(m.opts.Dir, s), age, age); err != nil {
			t.Fatal(err)
		}
	}
	if got := kept(); got != "12" {
		t.Errorf("kept %s, want the two that were wanted last", got)
	}
	if resp, _ := get(t, url+MirrorPath+sum(huge), nil); resp.StatusCode != 502 || kept() != "12" {
		t.Errorf("one that is too large: %s, kept %s", resp.Status, kept())
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(m.opts.Dir, sums[1]), old, old); err != nil {
		t.Fatal(err)
	}
	m.tidy("")
	if got := kept(); got != "2" {
		t.Errorf("kept %s, want the one that is not too old", got)
	}
	before := o.hits.Load()
	if resp, _ := get(t, url+MirrorPath+sums[1], nil); resp.StatusCode != 200 || o.hits.Load() != before+1 {
		t.Error("what was removed is not fetched again")
	}
}

// TestMirrorThatIsBusy: a mirror with room for two waiting requests sends the third away.
func TestMirrorThatIsBusy(t *testing.T) {
	data := archive(t, false, plugin...)
	o := newOrigin(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	o.answers["/slow"] = func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = w.Write(data)
	}
	var d definitions
	d.define(sum(data), &resource.AssetBuild{URL: o.URL + "/slow"})
	m, url := newMirror(t, MirrorOptions{Sources: d.sources, Transfers: 1, Waiting: 1})
	m.queue <- struct{}{} // another request
	var wait sync.WaitGroup
	wait.Go(func() {
		if resp, body := get(t, url+MirrorPath+sum(data), nil); resp.StatusCode != 200 || body != string(data) {
			t.Errorf("who waited got %s", resp.Status)
		}
	})
	<-asked
	if resp, _ := get(t, url+MirrorPath+sum(data), nil); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many got %s", resp.Status)
	}
	close(answer)
	wait.Wait()
}

// TestFallsBackToOrigin has hosts whose mirror cannot help.
func TestFallsBackToOrigin(t *testing.T) {
	data := archive(t, false, plugin...)
	o := newOrigin(t)
	o.serve("/plugin", data)
	var busy atomic.Int32
	for name, answer := range map[string]func(http.ResponseWriter){
		"does not know it": func(w http.ResponseWriter) { w.WriteHeader(404) },
		"lies":             func(w http.ResponseWriter) { _, _ = w.Write([]byte(strings.Repeat("x", len(data)+1))) },
		"cuts it short": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write(data)
		},
		"leads elsewhere": func(w http.ResponseWriter) {
			w.Header().Set("Location", o.URL+"/plugin")
			w.WriteHeader(302)
		},
		"is busy, then away": func(w http.ResponseWriter) {
			if busy.Add(1) == 1 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(503)
				return
			}
			w.WriteHeader(500)
		},
	} {
		mirror := newOrigin(t)
		mirror.answers[MirrorPath+sum(data)] = func(w http.ResponseWriter, _ *http.Request) { answer(w) }
		before := o.hits.Load()
		ask := asks(t, mirror.URL)
		s := newStore(t, Options{Mirror: func(ctx context.Context, sum string) (*http.Client, *http.Request, error) {
			client, req, err := ask(ctx, sum)
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			return client, req, err
		}})
		if _, err := s.Get(t.Context(), one(o.URL+"/plugin", sum(data))); err != nil || o.hits.Load() != before+1 {
			t.Errorf("mirror that %s: %v, %d fetches at the origin", name, err, o.hits.Load()-before)
		}
	}
	if busy.Load() != 2 {
		t.Errorf("the busy mirror was asked %d times, want 2", busy.Load())
	}
}

func TestWithoutHeaders(t *testing.T) {
	token := map[string]string{"Authorization": "secret"}
	tokens := map[string]string{"Authorization": "{{ .labels.token }}"}
	assets := func() []resource.Asset {
		return []resource.Asset{
			{URL: "https://a/old", Headers: token},
			{Builds: []*resource.AssetBuild{{URL: "https://a/1", Headers: token}, {URL: "https://a/{{ .name }}", Headers: token}, {URL: "https://a/2", Headers: tokens}}},
		}
	}
	q := &resource.CheckRequest{Issued: 7, Assets: assets(), HookAssets: map[string]resource.AssetList{"h": {Assets: assets()}}}
	got := WithoutHeaders(q)
	for _, list := range [][]resource.Asset{got.Assets, got.HookAssets["h"].Assets} {
		if list[0].Headers != nil || list[1].Builds[0].Headers != nil || list[1].Builds[1].Headers == nil || list[1].Builds[2].Headers == nil || list[1].Builds[0].URL != "https://a/1" {
			t.Errorf("got %+v", list)
		}
	}
	if got.Issued != 7 || q.Assets[0].Headers == nil || q.Assets[1].Builds[0].Headers == nil || q.HookAssets["h"].Assets[1].Builds[0].Headers == nil {
		t.Error("the request was changed")
	}
	if WithoutHeaders(got) != got {
		t.Error("a request with nothing to leave out was copied")
	}
	if n := len(Builds(&q.Assets[1], "")); n != 1 {
		t.Errorf("%d builds are for a mirror, want 1", n)
	}
}
