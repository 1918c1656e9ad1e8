package test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// offline is a network that an agent cannot use.
type offline struct{}

func (offline) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("the origin is not for agents")
}

// assetOrigin serves an asset with a command to clients with its token.
type assetOrigin struct {
	asset            *resource.Asset
	fetches, refused atomic.Int32
}

func newAssetOrigin(t *testing.T) *assetOrigin {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	script := "#!/bin/sh\necho from an asset\n"
	if err := w.WriteHeader(&tar.Header{Name: "bin/check-it", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(script))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(script)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	o := new(assetOrigin)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Token") != "of the origin" {
			o.refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		o.fetches.Add(1)
		_, _ = w.Write(archive.Bytes())
	}))
	t.Cleanup(srv.Close)
	sum := sha512.Sum512(archive.Bytes())
	o.asset = &resource.Asset{
		Metadata: resource.ObjectMeta{Name: "plugin", Namespace: "default"},
		Builds: []*resource.AssetBuild{{
			URL: srv.URL + "/plugin.tar", Sha512: hex.EncodeToString(sum[:]), Filters: []string{"entity.system.os == 'linux'"},
			Headers: map[string]string{"Token": "of the origin"},
		}},
	}
	return o
}

// checkWithAsset makes agents run a check with an asset all at once, and returns when all have done so.
func checkWithAsset(t *testing.T, b *testbackend.Backend, o *assetOrigin, agents int, change func(*agent.Options)) {
	t.Helper()
	if err := client.Put(t.Context(), b.Client, client.Assets, "default", "plugin", o.asset); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	for i := range agents {
		opts := agent.Options{
			Name: fmt.Sprintf("web-%d", i), Subscriptions: []string{"linux"}, BackendURLs: []string{b.URL()}, RetryMin: 50 * time.Millisecond,
			CacheDir: filepath.Join(cache, fmt.Sprint(i)),
		}
		change(&opts)
		a, err := agent.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Stop() })
	}
	eventually(t, 60*time.Second, "all agents are there", func() bool {
		entities, err := client.List(t.Context(), b.Client, client.Entities, "default", client.ListOptions{})
		return err == nil && len(entities) == agents
	})
	if err := client.Put(t.Context(), b.Client, client.Checks, "default", "it", &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "it", Namespace: "default"}, Command: "check-it", Interval: 1000, Subscriptions: []string{"linux"},
		RuntimeAssets: []string{"plugin"}, Publish: false,
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Client.Do(t.Context(), http.MethodPost, client.Checks.Path("default", "it")+"/execute", struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "all agents have run it", func() bool {
		events, err := client.List(t.Context(), b.Client, client.Events, "default", client.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, ev := range events {
			if ev.Check.Metadata.Name != "it" {
				continue
			}
			if ran++; ev.Check.Status != 0 || ev.Check.Output != "from an asset\n" {
				t.Fatalf("%s: status %d, %s", ev.Entity.Metadata.Name, ev.Check.Status, ev.Check.Output)
			}
		}
		return ran == agents
	})
}

// TestAgentsGetAssetsFromTheBackend has 200 agents need an asset at once whose origin only the backend can reach: it is
// fetched once, and every agent runs its command.
func TestAgentsGetAssetsFromTheBackend(t *testing.T) {
	t.Parallel()
	b, o := testbackend.Start(t, nil), newAssetOrigin(t)
	o.asset.Builds[0].Filters = nil // 200 of them at once are for 200 machines
	checkWithAsset(t, b, o, 200, func(opts *agent.Options) { opts.AssetClient = &http.Client{Transport: offline{}} })
	if o.fetches.Load() != 1 || o.refused.Load() != 0 {
		t.Errorf("%d fetches at the origin, want 1, and %d refused", o.fetches.Load(), o.refused.Load())
	}

	checksum := o.asset.Builds[0].Sha512
	get := func(user, path string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.AgentAddr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sensu-Namespace", "default")
		req.Header.Set("Sensu-Agentname", "web-1")
		if user != "" {
			req.SetBasicAuth(user, testbackend.AgentPassword)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, test := range []struct {
		user, path string
		want       int
	}{
		{testbackend.AgentUser, "/assets/" + checksum, 200},
		{"", "/assets/" + checksum, 401},
		{"nobody", "/assets/" + checksum, 401},
		{testbackend.AgentUser, "/assets/" + checksum[1:] + "0", 404},
		{testbackend.AgentUser, "/assets/", 404},
	} {
		if got := get(test.user, test.path); got != test.want {
			t.Errorf("%s as %q: status %d, want %d", test.path, test.user, got, test.want)
		}
	}
}

// TestMirrorOverTLS is the same for agents that sign in with a certificate.
func TestMirrorOverTLS(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t, "ca")
	server, web := ca.Issue(t, []string{"127.0.0.1"}, nil), ca.Issue(t, []string{"web-0"}, func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "web-0", Organization: []string{"system:agents"}}
	})
	b, o := testbackend.Start(t, func(o *backend.Options) {
		o.TLS = backend.TLS{AgentCertFile: server.Cert, AgentKeyFile: server.Key, AgentTrustedCAFile: ca.File, AgentCertAuth: true, AgentNameAuth: true}
	}), newAssetOrigin(t)
	files, err := tlsfiles.New(tlsfiles.Options{CA: ca.File, Cert: web.Cert, Key: web.Key})
	if err != nil {
		t.Fatal(err)
	}
	checkWithAsset(t, b, o, 1, func(opts *agent.Options) {
		opts.BackendURLs, opts.TLS = []string{"wss://" + b.AgentAddr().String()}, files.Client
		opts.AssetClient = &http.Client{Transport: offline{}}
	})
	if o.fetches.Load() != 1 || b.Counter(t, "lapwing_asset_mirror_requests_total") != 1 {
		t.Errorf("%d fetches at the origin, %v requests", o.fetches.Load(), b.Counter(t, "lapwing_asset_mirror_requests_total"))
	}
}

// TestWithoutMirror: agents fetch assets themselves, with the headers for it.
func TestWithoutMirror(t *testing.T) {
	t.Parallel()
	b, o := testbackend.Start(t, func(o *backend.Options) { o.Mirror.MaxBytes = 0 }), newAssetOrigin(t)
	checkWithAsset(t, b, o, 3, func(*agent.Options) {})
	if o.fetches.Load() != 3 || o.refused.Load() != 0 {
		t.Errorf("%d fetches at the origin, want 3, and %d refused", o.fetches.Load(), o.refused.Load())
	}
}
