//go:build unix

package agent

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// plugin is an archive with one command, which prints the text.
func plugin(t *testing.T, command, text string) (data []byte, checksum string) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	script := "#!/bin/sh\necho " + text + "\n"
	if err := w.WriteHeader(&tar.Header{Name: "bin/" + command, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(script))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(script)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(out.Bytes())
	return out.Bytes(), hex.EncodeToString(sum[:])
}

func TestAgentAssets(t *testing.T) {
	t.Parallel()
	data, checksum := plugin(t, "check-it", "from an asset")
	var fetched atomic.Int32
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		if r.URL.Path != "/web-1/plugin.tar" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(origin.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	dir := t.TempDir()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, func(o *Options) { o.CacheDir, o.AssetClient = dir, &http.Client{Transport: transport} })
	asset := resource.Asset{
		Metadata: resource.ObjectMeta{Name: "sensu/it", Namespace: "default"},
		Builds: []*resource.AssetBuild{
			{URL: origin.URL + "/windows", Sha512: checksum, Filters: []string{"entity.system.os == 'windows'"}},
			{URL: origin.URL + "/{{ .name }}/plugin.tar", Sha512: checksum, Filters: []string{"entity.system.os != 'windows'", "entity.name == 'web-1'"}},
		},
	}
	config := shellCheck("with-asset", "check-it; echo $SENSU_IT_PATH; exit 1")
	config.CheckHooks = []resource.HookList{{Type: "warning", Hooks: []string{"again", "without"}}}
	hook := func(name string) resource.HookConfig {
		return resource.HookConfig{Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: "check-it", Timeout: 10}
	}
	req := &resource.CheckRequest{
		Config: config, Issued: 1, Assets: []resource.Asset{asset}, Hooks: []resource.HookConfig{hook("again"), hook("without")},
		HookAssets: map[string]resource.AssetList{"again": {Assets: []resource.Asset{asset}}},
	}
	ev := s.request(req)
	if want := "from an asset\n" + filepath.Join(dir, "assets", checksum) + "\n"; ev.Check.Output != want || ev.Check.Status != 1 {
		t.Errorf("got status %d, output %q, want %q", ev.Check.Status, ev.Check.Output, want)
	}
	if len(ev.Check.Hooks) != 2 || ev.Check.Hooks[0].Output != "from an asset\n" || ev.Check.Hooks[1].Status != 127 {
		t.Errorf("got hooks %+v", ev.Check.Hooks)
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}

	_, s = startAgent(t, b, func(o *Options) { o.DisableAssets = true })
	req.Issued++
	if ev := s.request(req); ev.Check.Status != 3 || !strings.Contains(ev.Check.Output, "runtime assets are disabled") {
		t.Errorf("disabled: got %+v", ev.Check)
	}

	// An unusable cache directory fails the check, not the agent.
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, s = startAgent(t, b, func(o *Options) { o.CacheDir = filepath.Join(file, "cache") })
	req.Issued++
	if ev := s.request(req); ev.Check.Status != 3 || !strings.HasPrefix(ev.Check.Output, "error getting assets for check: asset sensu/it: fetch: ") {
		t.Errorf("no cache: got %+v", ev.Check)
	}
}
