package ctl_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testoidc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// screen is what a command has written so far. seen gets a value after each write.
type screen struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	seen chan struct{}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		select {
		case s.seen <- struct{}{}:
		default:
		}
	}()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestLoginOIDC signs in like a user: the command prints a URL, a browser opens it, the provider sends the browser
// back, and later commands are signed in.
func TestLoginOIDC(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	b := testbackend.Start(t, nil)
	provider := testoidc.Start(t, testoidc.Behaviour{Claims: map[string]any{"sub": "1", "email": "alice@example.org",
		"groups": []string{"cluster-admins"}}})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	definition := resource.AuthProvider{Type: resource.OIDCType, Metadata: resource.ObjectMeta{Name: "sso"}, OIDC: &resource.OIDC{
		Server: provider.URL, ClientID: testoidc.ClientID, ClientSecret: testoidc.ClientSecret,
		UsernameClaim: "email", GroupsClaim: "groups",
	}}
	if err := b.Client.Do(t.Context(), http.MethodPut, "/api/enterprise/authentication/v2/authproviders/sso", definition, nil); err != nil {
		t.Fatal(err)
	}
	api := "http://" + b.APIAddr().String()
	// command runs one command, with a browser that opens the URL it gets.
	command := func(browse func(string), args ...string) (string, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		root := newRoot()
		out := &screen{seen: make(chan struct{}, 1)}
		root.SetOut(out)
		root.SetErr(out)
		root.SetArgs(args)
		done := make(chan error, 1)
		go func() { done <- root.ExecuteContext(ctx) }()
		for {
			select {
			case err := <-done:
				return out.String(), err
			case <-out.seen:
				if u := regexp.MustCompile(`http\S+/authorize\S+\n`).FindString(out.String()); u != "" && browse != nil {
					browse(strings.TrimSpace(u))
					browse = nil
				}
			}
		}
	}
	page := ""
	browser := func(to string) {
		jar, _ := cookiejar.New(nil)
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		// A request that does not answer this sign-in does not disturb it.
		u, _ := url.Parse(to)
		stray, err := (&http.Client{Transport: transport}).Get(u.Query().Get("callback") + "?code=x&state=y")
		if err != nil || stray.StatusCode != http.StatusNotFound {
			t.Errorf("a stray callback: %v, %v", stray, err)
		}
		stray.Body.Close()
		resp, err := (&http.Client{Jar: jar, Transport: transport}).Get(to)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		page = string(text)
	}
	if out, err := command(browser, "login", "oidc", "--url", api, "--port", "0", "--no-browser"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(page, "close this page") {
		t.Errorf("the browser shows %q", page)
	}
	info, err := os.Stat(filepath.Join(os.Getenv("HOME"), ".config", "lapwing", "cluster"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("saved tokens: %v, %v", info, err)
	}
	if out, err := command(nil, "namespace", "list", "--format", "json"); err != nil || !strings.Contains(out, "default") {
		t.Errorf("signed in, a list is %s, %v", out, err)
	}
	provider.Set(func(b *testoidc.Behaviour) { b.Deny = true })
	if out, err := command(browser, "login", "oidc", "--port", "0", "--no-browser"); err == nil ||
		!strings.Contains(err.Error(), "access_denied") {
		t.Errorf("denied: %s, %v", out, err)
	}
}
