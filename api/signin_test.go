package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testoidc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const providerPath = "/api/enterprise/authentication/v2/authproviders"

// ask sends a request with a token, "" for none, and returns the answer's status and body.
func ask(t testing.TB, s *server, token, method, path string, body any) (int, string) {
	t.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

const ldapProvider = `{"type":"ldap","api_version":"authentication/v2","metadata":{"name":"corp"},"spec":{
	"servers":[{"host":"ldap.example","binding":{"user_dn":"cn=x","password":"bind-secret"},
		"user_search":{"base_dn":"dc=example"},"group_search":{"base_dn":"dc=example"}}],"groups_prefix":"corp"}}`

// TestProviderWithoutItsFiles: a directory whose certificates are missing is stored, with a warning.
func TestProviderWithoutItsFiles(t *testing.T) {
	s := newServer(t, nil)
	there := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(there, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(fields string) string {
		t.Helper()
		body := strings.Replace(ldapProvider, `"host":"ldap.example"`, `"host":"ldap.example",`+fields, 1)
		return s.do("PUT", providerPath+"/corp", body).is(http.StatusOK).header.Get("Warning")
	}
	missing := there + ".none"
	for fields, want := range map[string]string{
		`"trusted_ca_file":"` + missing + `"`: "servers[0].trusted_ca_file: " +
			missing + " does not exist on this backend",
		`"trusted_ca_file":"` + filepath.Dir(there) + `"`:                        "is not a regular file",
		`"client_cert_file":"` + missing + `","client_key_file":"` + there + `"`: "servers[0].client_cert_file: " + missing,
		`"trusted_ca_file":"` + there + `"`:                                      "",
		`"security":"insecure","trusted_ca_file":"` + missing + `"`:              "",
		`"port":636`: "",
	} {
		if got := put(fields); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: warning %s, want %s", fields, got, want)
		}
	}
}

// TestProviders: definitions are wrapped, have their defaults, and never show their secrets.
func TestProviders(t *testing.T) {
	s := newServer(t, nil)
	nobody := s.user("nobody")
	s.grant("readers", "", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"authproviders"}})
	reader := s.user("reader", "readers")
	expect := func(token, method, path string, body any, status int, parts ...string) {
		t.Helper()
		got, text := ask(t, s, token, method, path, body)
		if got != status {
			t.Errorf("%s %s: %d %s, want %d", method, path, got, text, status)
		}
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s %s: %s, want %s", method, path, text, part)
			}
		}
		if strings.Contains(text, "bind-secret") || strings.Contains(text, "oidc-secret") {
			t.Errorf("%s %s shows a secret: %s", method, path, text)
		}
	}
	one := providerPath + "/corp"
	expect(s.token, "GET", providerPath, nil, 200, "[]")
	expect(s.token, "GET", one, nil, 404)
	expect("", "GET", providerPath, nil, 401)
	expect("", "PUT", one, ldapProvider, 401)
	for _, token := range []string{nobody, reader} {
		expect(token, "PUT", one, ldapProvider, 403)
		expect(token, "DELETE", one, nil, 403)
	}
	expect(nobody, "GET", providerPath, nil, 403)
	expect(nobody, "GET", one, nil, 403)
	expect(s.token, "PUT", one, ldapProvider, 200)
	for _, path := range []string{providerPath, one} {
		expect(reader, "GET", path, nil, 200, `"type":"ldap"`, `"api_version":"authentication/v2"`, `"name":"corp"`, `"port":636`,
			`"security":"tls"`, `"object_class":"groupOfNames"`, `"attribute":"uid"`, `"password":"REDACTED"`, `"created_by":"admin"`)
	}
	stored := func() *resource.AuthProvider {
		t.Helper()
		p, ok := config.Get(s.store.Snapshot(), config.AuthProviders, "", "corp")
		if !ok {
			t.Fatal("there is no provider")
		}
		return p
	}
	if p := stored(); p.Directory.Servers[0].Binding.Password != "bind-secret" {
		t.Errorf("stored is %+v", p.Directory.Servers[0].Binding)
	}

	// The shown form can be written back, and keeps its secret as long as it goes to the same place.
	_, text := ask(t, s, s.token, "GET", one, nil)
	expect(s.token, "PUT", one, strings.Replace(text, `"groups_prefix":"corp"`, `"groups_prefix":"other"`, 1), 200)
	if p := stored(); p.Directory.Servers[0].Binding.Password != "bind-secret" || p.Directory.GroupsPrefix != "other" {
		t.Errorf("stored is %+v", p.Directory)
	}
	for _, elsewhere := range []string{
		strings.Replace(text, "ldap.example", "evil.example", 1), strings.Replace(text, ":636", ":3890", 1),
		strings.Replace(text, `"insecure":false`, `"insecure":true`, 1),
		strings.Replace(text, `"security":"tls"`, `"security":"insecure"`, 1),
		strings.Replace(text, `"trusted_ca_file":""`, `"trusted_ca_file":"/tmp/evil.pem"`, 1),
	} {
		expect(s.token, "PUT", one, elsewhere, 400, "placeholder")
	}

	for _, tc := range []struct{ body, want string }{
		{`{`, "unexpected EOF"},
		{`{"type":"saml","metadata":{"name":"corp"},"spec":{}}`, "type must be"},
		{`{"type":"ldap","api_version":"core/v2","metadata":{"name":"corp"},"spec":{}}`, "api_version must be"},
		{strings.Replace(ldapProvider, `"name":"corp"`, `"name":"other"`, 1), "does not match"},
		{`{"type":"ldap","metadata":{"name":"corp"},"spec":{"servers":[]}}`, "at least one server"},
		{strings.Replace(ldapProvider, `"host":"ldap.example"`, `"host":""`, 1), "servers[0]: host must be set"},
		{strings.Replace(ldapProvider, `"host"`, `"security":"ssl","host"`, 1), "security must be"},
		{strings.Replace(ldapProvider, `"host"`, `"port":-1,"host"`, 1), "port must be"},
		{strings.Replace(ldapProvider, `"password":"bind-secret"`, `"password":""`, 1), "or neither"},
		{strings.Replace(ldapProvider, `"user_search":{`, `"user_search":{"attribute":"a)(b",`, 1),
			"user_search.attribute must be the name"},
		{`{"type":"oidc","metadata":{"name":"corp"},"spec":{"server":"http://sso.example","client_id":"x"}}`, "https"},
		{`{"type":"oidc","metadata":{"name":"corp"},"spec":{"server":"sso","client_id":"x"}}`, "absolute URL"},
		{`{"type":"oidc","metadata":{"name":"corp"},"spec":{"server":"https://sso.example"}}`, "client_id must be set"},
		{`{"type":"oidc","metadata":{"name":"corp"},"spec":{"server":"https://sso.example","client_id":"x","redirect_uri":"x"}}`, "redirect_uri"},
	} {
		expect(s.token, "PUT", one, tc.body, 400, tc.want)
	}
	expect(s.token, "PUT", providerPath+"/a%20b", `{"type":"oidc","metadata":{"name":"a b"},"spec":{"server":"https://sso.example","client_id":"x"}}`, 400, "special characters")
	expect(s.token, "PUT", providerPath+"/sso", `{"type":"oidc","metadata":{"name":"sso"},"spec":{"server":"https://sso.example","client_id":"x","client_secret":"oidc-secret","provider":"Example"}}`, 200)
	expect(s.token, "GET", providerPath+"/sso", nil, 200, `"client_secret":"REDACTED"`)
	expect("", "GET", "/api/lapwing/v1/auth/providers", nil, 200, `[{"name":"sso","type":"oidc","title":"Example"}]`)
	expect(s.token, "DELETE", one, nil, 204)
	expect(s.token, "DELETE", one, nil, 404)
	expect(s.token, "POST", providerPath, ldapProvider, 405)
}

// TestSignInWithBrowser does a whole sign-in: from the client through a browser to the provider and back, to tokens and
// their rights.
func TestSignInWithBrowser(t *testing.T) {
	s := newServer(t, nil)
	provider := testoidc.Start(t, testoidc.Behaviour{Claims: map[string]any{"sub": "1", "email": "alice@example.org",
		"groups": []string{"ops"}}})
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	definition := func(redirect string) *resource.AuthProvider {
		return &resource.AuthProvider{Type: resource.OIDCType, Metadata: resource.ObjectMeta{Name: "sso"}, OIDC: &resource.OIDC{
			Server: provider.URL, ClientID: testoidc.ClientID, ClientSecret: testoidc.ClientSecret, UsernameClaim: "email",
			GroupsClaim: "groups", GroupsPrefix: "sso", RedirectURI: redirect,
		}}
	}
	if status, text := ask(t, s, s.token, "PUT", providerPath+"/sso", definition("")); status != 200 {
		t.Fatal(status, text)
	}
	s.grant("sso:ops", "", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	digest := sha256.Sum256([]byte("verifier"))
	query := url.Values{"callback": {"http://127.0.0.1:9/done"}, "state": {"mine"},
		"challenge": {base64.RawURLEncoding.EncodeToString(digest[:])}}

	// browse follows redirects up to the client's callback, or to an answer that is no redirect.
	browse := func(jar http.CookieJar, from string) (*url.URL, *http.Response) {
		t.Helper()
		browser := &http.Client{Jar: jar, Transport: s.http.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		for range 10 {
			resp, err := browser.Get(from)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			to, err := resp.Location()
			if err != nil {
				return nil, resp
			}
			if to.Host == "127.0.0.1:9" {
				return to, resp
			}
			from = to.String()
		}
		t.Fatal("the browser is sent around for ever")
		return nil, nil
	}
	jar, _ := cookiejar.New(nil)
	back, resp := browse(jar, s.url+oidcPath+"authorize?"+query.Encode())
	if back == nil || back.Query().Get("state") != "mine" || back.Query().Get("code") == "" {
		t.Fatalf("the browser ends at %v, %s", back, resp.Status)
	}
	if here, _ := url.Parse(s.url); len(jar.Cookies(here)) != 0 {
		t.Errorf("cookies are left: %v", jar.Cookies(here))
	}
	redeem := func(code, verifier string) (int, string) {
		t.Helper()
		return ask(t, s, "", "POST", oidcPath+"token", map[string]string{"code": code, "verifier": verifier})
	}
	code := back.Query().Get("code")
	if status, text := redeem(code, "other"); status != 401 {
		t.Errorf("with another verifier: %d %s", status, text)
	}
	status, text := redeem(code, "verifier")
	var tokens struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal([]byte(text), &tokens); status != 200 || err != nil {
		t.Fatalf("redeem: %d %s, %v", status, text, err)
	}
	if status, text := redeem(code, "verifier"); status != 401 {
		t.Errorf("redeem again: %d %s", status, text)
	}
	for path, want := range map[string]int{"events": 200, "checks": 403, "users/admin": 403, "users/alice@example.org": 403} {
		if status, text := ask(t, s, tokens.Access, "GET", "/api/core/v2/"+path, nil); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, text, want)
		}
	}
	// Both paths refresh tokens, and the provider's newest answer counts.
	provider.Set(func(b *testoidc.Behaviour) { b.Claims["groups"] = []string{"none"} })
	for _, path := range []string{"/auth/token", oidcPath + "token"} {
		status, text := ask(t, s, tokens.Access, "POST", path, map[string]string{"refresh_token": tokens.Refresh})
		if err := json.Unmarshal([]byte(text), &tokens); status != 200 || err != nil {
			t.Fatalf("%s: %d %s, %v", path, status, text, err)
		}
	}
	if status, text := ask(t, s, tokens.Access, "GET", "/api/core/v2/events", nil); status != 403 {
		t.Errorf("out of the group: %d %s", status, text)
	}
	// While the provider is down: try again.
	provider.Set(func(b *testoidc.Behaviour) { b.Down = true })
	if status, text := ask(t, s, tokens.Access, "POST", "/auth/token", map[string]string{"refresh_token": tokens.Refresh}); status != 503 {
		t.Errorf("refresh while the provider is down: %d %s", status, text)
	}
	provider.Set(func(b *testoidc.Behaviour) { b.Down = false })
	if status, text := ask(t, s, tokens.Access, "POST", "/auth/logout", map[string]string{"refresh_token": tokens.Refresh}); status != 200 {
		t.Errorf("sign out: %d %s", status, text)
	}
	if status, text := ask(t, s, tokens.Access, "POST", "/auth/token", map[string]string{"refresh_token": tokens.Refresh}); status != 401 {
		t.Errorf("refresh after signing out: %d %s", status, text)
	}

	// A browser that did not begin the sign-in cannot finish it, for example after a click on a link.
	_, resp = browse(jar, s.url+oidcPath+"callback?state=0123456789abcdef0123456789abcdef&code=x")
	if resp.StatusCode != 400 {
		t.Errorf("a callback out of nowhere: %s", resp.Status)
	}
	for _, bad := range []string{"", "?state=", "?code=x"} {
		if _, resp := browse(jar, s.url+oidcPath+"callback"+bad); resp.StatusCode != 400 {
			t.Errorf("callback%s: %s", bad, resp.Status)
		}
	}
	// The user refuses: the client gets the refusal.
	provider.Set(func(b *testoidc.Behaviour) { b.Deny = true })
	if back, resp := browse(jar, s.url+oidcPath+"authorize?"+query.Encode()); back == nil ||
		back.Query().Get("error") != "access_denied" || back.Query().Get("state") != "mine" {
		t.Errorf("denied: %v, %s", back, resp.Status)
	}
	provider.Set(func(b *testoidc.Behaviour) { b.Deny = false })
	// A foreign callback is refused before the sign-in.
	elsewhere := url.Values{"callback": {"https://evil.example/"}, "challenge": query["challenge"]}
	if _, resp := browse(jar, s.url+oidcPath+"authorize?"+elsewhere.Encode()); resp.StatusCode != 400 {
		t.Errorf("callback to elsewhere: %s", resp.Status)
	}

	// Under another name than in the redirect URI, the browser is redirected there first, because its cookie is needed
	// there.
	there := strings.Replace(s.url, "127.0.0.1", "localhost", 1)
	if status, text := ask(t, s, s.token, "PUT", providerPath+"/sso", definition(there+oidcPath+"callback")); status != 200 {
		t.Fatal(status, text)
	}
	if back, resp := browse(jar, s.url+oidcPath+"authorize?"+query.Encode()); back == nil || back.Query().Get("code") == "" {
		t.Errorf("from another name: %v, %s", back, resp.Status)
	}
	// A redirect URI with a foreign host, as behind a proxy, causes no endless redirects.
	if status, text := ask(t, s, s.token, "PUT", providerPath+"/sso", definition(provider.URL+"/elsewhere/callback")); status != 200 {
		t.Fatal(status, text)
	}
	if _, resp := browse(jar, s.url+oidcPath+"authorize?"+query.Encode()+"&moved=1"); resp.StatusCode != 404 {
		t.Errorf("behind a proxy: %s", resp.Status)
	}
}
