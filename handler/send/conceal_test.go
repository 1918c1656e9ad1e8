package send

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// echo is a server that refuses requests and repeats them, in all the ways in which servers do.
func echo(t testing.TB, code int) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, err := httputil.DumpRequest(r, true)
		if err != nil {
			t.Error(err)
		}
		user, password, _ := r.BasicAuth()
		headers, _ := json.Marshal(r.Header)
		w.WriteHeader(code)
		fmt.Fprintf(w, "no such place: %s\n%s\n%s\n%s\n%s %s\n%s\n%s", path.Base(r.URL.Path), dump,
			html.EscapeString(r.RequestURI), headers, user, password,
			url.QueryEscape(r.RequestURI), strings.ReplaceAll(r.RequestURI, "/", `\/`))
	}))
	t.Cleanup(srv.Close)
	return srv
}

// TestAnswersThatRepeatSecrets: servers repeat the credentials that handlers sent.
func TestAnswersThatRepeatSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := setup(t, Options{SecretDirs: []string{dir}})
	const basic = "bWU6aHVzaC1wYXNz" // me:hush-pass
	f := func(name string, code int, h func(link string) *resource.Handler) {
		t.Helper()
		srv := echo(t, code)
		res := s.Run(t.Context(), h(srv.URL), job(event(2)))
		text := string(res.Output) + fmt.Sprint(res.Err)
		for _, secret := range []string{"hush", basic, strings.TrimRight(basic, "=")} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells %s:\n%s", name, secret, text)
			}
		}
		if !strings.Contains(text, resource.Redacted) || !strings.Contains(text, "no such place") {
			t.Errorf("%s does not tell the answer:\n%s", name, text)
		}
		if failed := code >= 300; failed &&
			(res.Status != code || res.Kind != KindFailed || !errors.As(res.Err, new(*statusError))) || !failed && res.Err != nil {
			t.Errorf("%s: %+v", name, res)
		}
	}
	hook := func(change func(w *resource.HandlerWebhook)) func(string) *resource.Handler {
		return func(link string) *resource.Handler {
			h := webhook(link)
			change(h.Webhook)
			return h
		}
	}
	withLogin := func(link string) string { return strings.Replace(link, "://", "://me:hush-pass@", 1) }
	for _, code := range []int{http.StatusOK, http.StatusNotFound, http.StatusBadGateway} {
		f("path", code, hook(func(w *resource.HandlerWebhook) { w.URL += "/services/T0/hush-token<&1" }))
		f("query", code, hook(func(w *resource.HandlerWebhook) { w.URL += "/x?a=1&api_key=hush%2Ftoken" }))
		f("login in the URL", code, hook(func(w *resource.HandlerWebhook) { w.URL = withLogin(w.URL) }))
		f("header", code, hook(func(w *resource.HandlerWebhook) { w.Headers = map[string]string{"X-JFrog-Art-Api": `hush"token`} }))
		f("bearer", code, hook(func(w *resource.HandlerWebhook) { w.Headers = map[string]string{"Authorization": "Bearer hush-token"} }))
		f("basic", code, hook(func(w *resource.HandlerWebhook) { w.Headers = map[string]string{"Authorization": "Basic " + basic} }))
		f("password", code, hook(func(w *resource.HandlerWebhook) { w.Username, w.Password = "me", "hush-pass" }))
		f("token", code, hook(func(w *resource.HandlerWebhook) { w.Token = "hush-token" }))
		f("body", code, hook(func(w *resource.HandlerWebhook) { w.Body = `{"api_key":"hush-token","text":{{toJson .Output}}}` }))
	}
	f("password_file", 404, hook(func(w *resource.HandlerWebhook) { w.Username, w.PasswordFile = "me", write("p", "hush-pass\n") }))
	f("token_file", 404, hook(func(w *resource.HandlerWebhook) { w.TokenFile = write("t", "hush-token\n") }))
	f("url_file", 404, hook(func(w *resource.HandlerWebhook) {
		w.URLFile, w.URL = write("u", withLogin(w.URL)+"/services/hush-token-1\n"), ""
	}))
	f("slack", 404, func(link string) *resource.Handler {
		h := handler("slack")
		h.Slack = &resource.HandlerSlack{URL: link + "/services/T0/hush-token1"}
		return h
	})
	f("the end of a path", 404, func(link string) *resource.Handler {
		h := handler("slack")
		h.Slack = &resource.HandlerSlack{URL: link + "/services/T0/hush-hush-hush"}
		return h
	})
	f("pagerduty", 400, func(link string) *resource.Handler {
		h := handler("pagerduty")
		h.PagerDuty = &resource.HandlerPagerDuty{RoutingKey: "hush-key", URL: withLogin(link)}
		return h
	})
	f("alertmanager", 404, func(link string) *resource.Handler {
		h := handler("alertmanager")
		h.Alertmanager = &resource.HandlerAlertmanager{URLs: []string{withLogin(link) + "/hush-1234", link + "/hush-5678"}}
		return h
	})
}

// TestSecretsAtTheEndOfAnAnswer: a secret in the answer crosses the place where it is cut.
func TestSecretsAtTheEndOfAnAnswer(t *testing.T) {
	s := setup(t, Options{})
	for before := maxOutput - 20; before <= maxOutput; before++ {
		srv := newService(t, status(http.StatusNotFound, strings.Repeat("x", before)+"hush-token-of-mine and more"))
		h := webhook(srv.URL)
		h.Webhook.Token = "hush-token-of-mine"
		res := s.Run(t.Context(), h, job(event(2)))
		if strings.Contains(string(res.Output), "hu") || len(res.Output) > maxOutput {
			t.Fatalf("%d bytes before it: %d bytes that end in %s", before, len(res.Output), res.Output[len(res.Output)-30:])
		}
	}
}

// TestSecretsAtTheEndOfWhatIsRead: a long secret starts the answer, so that the kept part is shorter than the part
// that is read, and again crosses the end of the part that is read.
func TestSecretsAtTheEndOfWhatIsRead(t *testing.T) {
	s := setup(t, Options{})
	long := "hush-token-of-mine/" + strings.Repeat("0123456789abcdef", 300)
	for _, cut := range []int{1, 4, 100, 300} {
		srv := newService(t, status(http.StatusNotFound, long+strings.Repeat("x", readOutput-len(long)-cut)+long))
		h := webhook(srv.URL)
		h.Webhook.Token = long
		res := s.Run(t.Context(), h, job(event(2)))
		if text := string(res.Output); strings.Contains(text, "h") || !strings.HasPrefix(text, resource.Redacted+"xxx") || len(text) > maxOutput {
			t.Errorf("%d bytes of it are read: %d bytes that end in %s", cut, len(text), text[max(0, len(text)-100):])
		}
	}
}

// TestSlackThatRepeatsTheToken: the reason in Slack's answer is the token.
func TestSlackThatRepeatsTheToken(t *testing.T) {
	srv := newService(t, status(http.StatusOK, `{"ok":false,"error":"invalid token `+strings.Repeat("x", 80)+` xoxb-hush-hush-hush"}`))
	h := handler("slack")
	h.Slack = &resource.HandlerSlack{Token: "xoxb-hush-hush-hush", Channel: "c", APIURL: srv.URL}
	res := setup(t, Options{}).Run(t.Context(), h, job(event(2)))
	if text := res.Err.Error() + string(res.Output); strings.Contains(text, "xoxb") ||
		!strings.Contains(text, "slack refuses the message: invalid token") {
		t.Errorf("got %s", text)
	}
}
