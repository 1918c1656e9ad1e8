package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPlaceholdersBesideChanges: a text is not stored if it has a placeholder for one secret and shows another secret.
// An older release showed such texts.
func TestPlaceholdersBesideChanges(t *testing.T) {
	old := &Handler{Alertmanager: &HandlerAlertmanager{URLs: []string{"https://a:one@am.example/x"}}}
	for _, url := range []string{"https://REDACTED@am.example/x", "https://REDACTED@am.example/REDACTED?new=1",
		"https://am.example/REDACTED/y"} {
		h := &Handler{Alertmanager: &HandlerAlertmanager{URLs: []string{url}}}
		if got, err := h.WithSecrets(old); err == nil {
			t.Errorf("%s is stored as %s", url, got.Alertmanager.URLs)
		}
	}
	c := &CheckConfig{EnvVars: []string{"DB=pg://REDACTED@h/x?password=new"}}
	if got, err := c.WithSecrets(&CheckConfig{EnvVars: []string{"DB=pg://u:pw@h/x"}}); err == nil {
		t.Errorf("stored as %s", got.EnvVars)
	}
	// A stored text can be stored again.
	odd := &Handler{Alertmanager: &HandlerAlertmanager{URLs: []string{"https://REDACTED@am.example/x"}}}
	if got, err := odd.WithSecrets(odd); err != nil || got.Alertmanager.URLs[0] != odd.Alertmanager.URLs[0] {
		t.Errorf("%v, %v", got.Alertmanager.URLs, err)
	}
}

// TestSecretsThatLookTheSame: two URLs that differ only in the hidden part keep their own secrets.
func TestSecretsThatLookTheSame(t *testing.T) {
	urls := func(urls ...string) *Handler { return &Handler{Alertmanager: &HandlerAlertmanager{URLs: urls}} }
	const one, two = "https://a:one@am.example/x", "https://a:two@am.example/x"
	old := urls(one, two)
	shown := old.Redacted().Alertmanager.URLs
	if shown[0] != shown[1] {
		t.Fatalf("they look different: %v", shown)
	}
	got, err := urls(shown...).WithSecrets(old)
	if err != nil || !slices.Equal(got.Alertmanager.URLs, []string{one, two}) {
		t.Errorf("unchanged: %v, %v", got.Alertmanager.URLs, err)
	}
	got, err = urls("https://a:new@am.example/x", shown[1]).WithSecrets(old)
	if err != nil || !slices.Equal(got.Alertmanager.URLs, []string{"https://a:new@am.example/x", two}) {
		t.Errorf("the first is new: %v, %v", got.Alertmanager.URLs, err)
	}
	if got, err := urls(shown[0]).WithSecrets(old); err == nil {
		t.Errorf("one of them is gone, and it is not known which: %v", got.Alertmanager.URLs)
	}
}

// TestManySecretsThatLookTheSame changes as many variables of a check as fit in a request.
func TestManySecretsThatLookTheSame(t *testing.T) {
	const many = 60_000
	for _, text := range []string{"pw=", "a=REDACTED pw=", "a=pw="} {
		old := &CheckConfig{EnvVars: slices.Repeat([]string{text + "1"}, many)}
		changed := &CheckConfig{EnvVars: slices.Repeat([]string{text + "2"}, many)}
		begin := time.Now()
		_, err := changed.WithSecrets(old)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%d variables %s take %s", many, text, took)
		}
		if refused := strings.Contains(text, Redacted); refused != (err != nil) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestBuildsKeepTheirHeaders: a build whose header is a placeholder keeps its own header at any index.
func TestBuildsKeepTheirHeaders(t *testing.T) {
	build := func(name, login, token string) *AssetBuild {
		return &AssetBuild{URL: "https://" + login + "h.example/" + name, Headers: map[string]string{"Authorization": token}}
	}
	old := &Asset{Builds: []*AssetBuild{build("a", "u:one@", "of a"), build("b", "u:two@", "of b"), build("c", "", "of c")}}
	f := func(want string, builds ...*AssetBuild) {
		t.Helper()
		got, err := (&Asset{Builds: builds}).WithSecrets(old)
		text := fmt.Sprint(err)
		if err == nil {
			text = ""
			for _, b := range got.Builds {
				text += b.URL + " " + b.Headers["Authorization"] + "; "
			}
		}
		if text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	const a, b, c = "https://u:one@h.example/a of a; ", "https://u:two@h.example/b of b; ", "https://h.example/c of c; "
	shown := old.Redacted().Builds
	f(a+b+c, shown...)
	f(b+c, shown[1], shown[2])
	f(c, shown[2])
	f(c+a, shown[2], shown[0])
	f("https://h.example/new new; "+a, build("new", "", "new"), shown[0])
	f("builds[https://h.example/new].headers.Authorization is the placeholder of a secret that is not known: give the secret itself",
		build("new", "", Redacted), shown[1])
}

// TestPlaceholdersThatAreWords: a variable without a secret's name may have the placeholder as a word, if it replaces
// no secret.
func TestPlaceholdersThatAreWords(t *testing.T) {
	f := func(variable string, old []string, taken bool) {
		t.Helper()
		c := &CheckConfig{EnvVars: []string{variable, "RACK=r1"}}
		before := &CheckConfig{EnvVars: old}
		if old == nil {
			before = nil
		}
		got, err := c.WithSecrets(before)
		switch {
		case taken != (err == nil):
			t.Errorf("%s after %s: %v", variable, old, err)
		case taken && got.EnvVars[0] != variable:
			t.Errorf("%s became %s", variable, got.EnvVars[0])
		}
	}
	for _, old := range [][]string{nil, {"RACK=r1"}, {"DB_PASSWORD=x", "OTHER=https://hc-ping.com/3f1c8a52-6d1e-4f0e-9d51-0a7be31c9d11"}} {
		f("MASK=REDACTED", old, true)
		f("MASK=a REDACTED word, password=x", old, true)
		f("MASK=https://u:pw@h/x and REDACTED", old, true)
		f("MASK=REDACTED", append(old, "MASK=REDACTED"), true)
		f("MASK=REDACTED too", append(old, "MASK=REDACTED"), true)
		f("PASSWORD=REDACTED", old, false)
		for _, text := range []string{
			"https://hc-ping.com/REDACTED", "https://hooks.slack.com/REDACTED", "pg://REDACTED@h/x",
			"https://h/x?REDACTED", "REDACTED@tcp(db:3306)/x",
			"host=h password=REDACTED", `{"token": "REDACTED"}`, "Authorization: REDACTED",
			"see https://api.telegram.org/REDACTED/sendMessage", "https://REDACTED",
		} {
			f("MASK="+text, old, false)
		}
	}
	// In the place of a secret, the placeholder may mean the secret.
	f("PING=REDACTED", []string{"PING=https://hc-ping.com/3f1c8a52-6d1e-4f0e-9d51-0a7be31c9d11"}, false)
}
