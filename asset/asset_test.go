package asset

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is one entry of an archive.
type entry struct {
	name string
	kind byte
	mode int64
	body string // or the target of a link
}

func archive(t testing.TB, zip bool, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(&out)
	if zip {
		w = tar.NewWriter(zipped)
	}
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode}
		if e.kind == tar.TypeReg {
			h.Size = int64(len(e.body))
		} else {
			h.Linkname = e.body
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := w.Write([]byte(e.body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if zip {
		if err := zipped.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func sum(b []byte) string {
	s := sha512.Sum512(b)
	return hex.EncodeToString(s[:])
}

var plugin = []entry{
	{"bin/", tar.TypeDir, 0o755, ""},
	{"bin/check-it", tar.TypeReg, 0o4755, "#!/bin/sh\necho it is $GREETING\n"},
	{"bin/again", tar.TypeSymlink, 0o777, "check-it"},
	{"lib/functions.js", tar.TypeReg, 0o600, "function four() { return 4 }"},
	{"./include/a.h", tar.TypeReg, 0o644, ""},
}

// origin is an HTTP server of archives.
type origin struct {
	*httptest.Server
	hits    atomic.Int32
	answers map[string]func(w http.ResponseWriter, r *http.Request)
}

func newOrigin(t testing.TB) *origin {
	o := &origin{answers: map[string]func(http.ResponseWriter, *http.Request){}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.hits.Add(1)
		if answer := o.answers[r.URL.Path]; answer != nil {
			answer(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

func (o *origin) serve(name string, data []byte) {
	o.answers[name] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
}

func newStore(t testing.TB, opts Options) *Store {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.Applies == nil {
		opts.Applies = func(_ string, filters []string) (bool, error) { return !slices.Contains(filters, "false"), nil }
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	opts.Client = &http.Client{Transport: transport}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func one(url, checksum string) []*resource.Asset {
	return []*resource.Asset{{Metadata: resource.ObjectMeta{Name: "sensu/plugin", Namespace: "default"}, URL: url, Sha512: checksum}}
}

func TestInstalledOnceAndUsedByCommands(t *testing.T) {
	for _, zip := range []bool{false, true} {
		o := newOrigin(t)
		data := archive(t, zip, plugin...)
		o.serve("/plugin.tar", data)
		s := newStore(t, Options{})
		var wait sync.WaitGroup
		for range 20 {
			wait.Go(func() {
				// The checksum may be in upper or lower case.
				if _, err := s.Get(t.Context(), one(o.URL+"/plugin.tar", strings.ToUpper(sum(data)))); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		installed, err := s.Get(t.Context(), one(o.URL+"/elsewhere.tar", sum(data)))
		if err != nil {
			t.Fatal(err)
		}
		if n := o.hits.Load(); n != 1 {
			t.Errorf("fetched %d times, want once", n)
		}
		env := Environ(installed)
		cmd := exec.Command("/bin/sh", "-c", "again; echo $SENSU_PLUGIN_PATH")
		for _, v := range env {
			if path, ok := strings.CutPrefix(v, "PATH="); ok {
				v = "PATH=" + path + ":/usr/bin:/bin"
			}
			cmd.Env = append(cmd.Env, v)
		}
		cmd.Env = append(cmd.Env, "GREETING=well")
		out, err := cmd.CombinedOutput()
		if want := "it is well\n" + installed[0].Dir + "\n"; err != nil || string(out) != want {
			t.Errorf("a command prints %q, %v; want %q", out, err, want)
		}
		info, err := os.Stat(filepath.Join(installed[0].Dir, "bin", "check-it"))
		if err != nil || info.Mode() != 0o755 {
			t.Errorf("mode of a file is %v, %v", info.Mode(), err)
		}
		scripts, err := Scripts(installed)
		if err != nil || len(scripts) != 1 || filepath.Base(scripts[0]) != "functions.js" {
			t.Errorf("scripts: %q, %v", scripts, err)
		}
	}
}

func TestBuilds(t *testing.T) {
	o := newOrigin(t)
	data := archive(t, true, plugin...)
	o.answers["/linux"] = func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["X-Token"]; !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("header %q", got)
		}
		_, _ = w.Write(data)
	}
	a := &resource.Asset{Metadata: resource.ObjectMeta{Name: "many"}, Builds: []*resource.AssetBuild{
		{URL: o.URL + "/windows", Sha512: sum([]byte("w")), Filters: []string{"false"}},
		{URL: o.URL + "/linux", Sha512: sum(data), Filters: []string{"true"}, Headers: map[string]string{"X-Token": "a, b"}},
		{URL: o.URL + "/other", Sha512: sum([]byte("o"))},
	}}
	s := newStore(t, Options{})
	installed, err := s.Get(t.Context(), []*resource.Asset{a})
	if err != nil || len(installed) != 1 || installed[0].Name != "many" {
		t.Fatalf("%+v, %v", installed, err)
	}
	a.Builds = a.Builds[:1]
	if installed, err := s.Get(t.Context(), []*resource.Asset{a}); err != nil || installed != nil {
		t.Errorf("of an asset for other hosts: %+v, %v", installed, err)
	}
	broken := newStore(t, Options{Applies: func(string, []string) (bool, error) { return false, errors.New("no such fact") }})
	if _, err := broken.Get(t.Context(), []*resource.Asset{a}); err == nil || !strings.Contains(err.Error(), "many: no such fact") {
		t.Errorf("filter that fails: %v", err)
	}
}

func TestRefused(t *testing.T) {
	file := func(name string) entry { return entry{name, tar.TypeReg, 0o644, "x"} }
	link := func(name, to string) entry { return entry{name, tar.TypeSymlink, 0o777, to} }
	tests := map[string]struct {
		data []byte
		want string
	}{
		"outside":           {archive(t, false, file("../evil")), "leads outside"},
		"absolute":          {archive(t, false, file("/tmp/evil")), "leads outside"},
		"link outside":      {archive(t, false, link("a", "../evil")), "leads outside"},
		"absolute link":     {archive(t, false, link("a", "/etc/passwd")), "leads outside"},
		"behind a link":     {archive(t, false, entry{"d/", tar.TypeDir, 0o755, ""}, link("l", "d"), file("l/x")), "behind a link"},
		"up behind a link":  {archive(t, false, link("p/q/d", "../.."), link("p/q/y", "d/../..")), "leads outside"},
		"hard link outside": {archive(t, false, entry{"h", tar.TypeLink, 0o644, "../../etc/passwd"}), "h"},
		"hard link to link": {archive(t, false, link("p/q/l", "../../x"), entry{"l", tar.TypeLink, 0o644, "p/q/l"}), "link to a link"},
		"hard link through a link": {archive(t, false, entry{"p/q/", tar.TypeDir, 0o755, ""}, link("p/q/l", "../../x"), link("d", "p/q"),
			entry{"l", tar.TypeLink, 0o644, "d/l"}), "behind a link"},
		"device":             {archive(t, false, entry{"dev", tar.TypeChar, 0o666, ""}), "neither a file"},
		"pipe":               {archive(t, false, entry{"pipe", tar.TypeFifo, 0o666, ""}), "neither a file"},
		"twice":              {archive(t, false, file("a"), file("a")), "exists"},
		"too large":          {archive(t, true, entry{"zeros", tar.TypeReg, 0o644, strings.Repeat("\x00", 2<<20)}), "too large"},
		"empty":              {archive(t, true), "empty"},
		"no archive":         {[]byte("#!/bin/sh\n"), "neither a tar"},
		"nothing":            {nil, "neither a tar"},
		"gzip of no archive": {gzipped(t, []byte("hello")), "unexpected EOF"},
		"cut short":          {archive(t, false, file("a"), entry{"b", tar.TypeReg, 0o644, strings.Repeat("b", 9000)})[:3000], "unexpected EOF"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t)
			o.serve("/a", test.data)
			above := t.TempDir()
			s := newStore(t, Options{Dir: filepath.Join(above, "cache"), MaxUnpacked: 1 << 20})
			_, err := s.Get(t.Context(), one(o.URL+"/a", sum(test.data)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			for _, dir := range []string{above, s.opts.Dir} {
				left, err := os.ReadDir(dir)
				if err != nil || len(left) > 1 || dir == s.opts.Dir && len(left) > 0 {
					t.Errorf("left behind in %s: %v, %v", dir, left, err)
				}
			}
		})
	}
}

func gzipped(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFetchFails(t *testing.T) {
	data := archive(t, false, plugin...)
	o := newOrigin(t)
	o.serve("/good", data)
	o.answers["/loop"] = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) }
	o.answers["/forbidden"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	o.answers["/hangs"] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	s := newStore(t, Options{MaxArchive: int64(len(data))})
	for _, test := range []struct{ path, checksum, want string }{
		{"/good", sum([]byte("another")), "checksum is " + sum(data)},
		{"/good", "abc", "no SHA-512"},
		{"/loop", sum(data), "stopped after 10 redirects"},
		{"/forbidden", sum(data), "403"},
		{"/hangs", sum(data), "deadline exceeded"},
	} {
		s.opts.Timeout = time.Minute
		if test.path == "/hangs" {
			s.opts.Timeout = 200 * time.Millisecond
		}
		_, err := s.Get(t.Context(), one(o.URL+test.path, test.checksum))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.path, err, test.want)
		}
	}
	// Credentials stay out of the error: checks show it as their result.
	for _, path := range []string{"/forbidden", "/hangs", "/good", "/%zz"} {
		link := strings.Replace(o.URL, "://", "://hush:hush-pass@", 1) + path + "?sig=hush-sig"
		if _, err := s.Get(t.Context(), one(link, sum([]byte(path)))); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", link, err)
		}
	}
	s.opts.MaxArchive--
	if _, err := s.Get(t.Context(), one(o.URL+"/good", sum(data))); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("archive that is too large: %v", err)
	}
	s.opts.MaxArchive++
	if _, err := s.Get(t.Context(), one(o.URL+"/good", sum(data))); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestCallerThatGivesUp: the fetch continues for callers that still wait.
func TestCallerThatGivesUp(t *testing.T) {
	data := archive(t, false, plugin...)
	o := newOrigin(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	o.answers["/slow"] = func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = w.Write(data)
	}
	s := newStore(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Get(ctx, one(o.URL+"/slow", sum(data)))
		first <- err
	}()
	<-asked
	go func() {
		_, err := s.Get(t.Context(), one(o.URL+"/slow", sum(data)))
		second <- err
	}()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up was told %v", err)
	}
	close(answer)
	if err := <-second; err != nil {
		t.Errorf("who waited was told %v", err)
	}
}

func TestPurge(t *testing.T) {
	o := newOrigin(t)
	old, fresh := archive(t, false, plugin...), archive(t, true, plugin...)
	o.serve("/old", old)
	o.serve("/new", fresh)
	s := newStore(t, Options{})
	for name, data := range map[string][]byte{"/old": old, "/new": fresh} {
		if _, err := s.Get(t.Context(), one(o.URL+name, sum(data))); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-48 * time.Hour)
	dir := filepath.Join(s.opts.Dir, sum(old))
	if err := os.Chtimes(dir, past, past); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(24 * time.Hour); n != 1 || err != nil {
		t.Errorf("purged %d, %v; want 1", n, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.opts.Dir, sum(fresh))); err != nil {
		t.Errorf("one in use is gone: %v", err)
	}
	if _, err := s.Get(t.Context(), one(o.URL+"/old", sum(old))); err != nil || o.hits.Load() != 3 {
		t.Errorf("fetched again: %v, %d fetches", err, o.hits.Load())
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, false, plugin...))
	f.Add(archive(f, true, plugin...))
	f.Add(archive(f, false, entry{"a", tar.TypeSymlink, 0o777, "b/../.."}))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, data []byte) {
		above := t.TempDir()
		_ = unpack(t.Context(), bytes.NewReader(data), filepath.Join(above, "tree"), 1<<20)
		left, err := os.ReadDir(above)
		if err != nil || len(left) > 1 {
			t.Fatalf("outside of its directory: %v, %v", left, err)
		}
		_ = filepath.WalkDir(filepath.Join(above, "tree"), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.Type()&os.ModeSymlink == 0 {
				return nil
			}
			real, err := filepath.EvalSymlinks(path)
			if err == nil && real != above+"/tree" && !strings.HasPrefix(real, above+"/tree/") {
				t.Errorf("link %s leads to %s", path, real)
			}
			return nil
		})
	})
}
