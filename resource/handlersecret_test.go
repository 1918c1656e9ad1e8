package resource

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPlaceholdersBesideChanges: a text with a placeholder for one secret, and another secret that is shown, is not stored. An older
// release showed such texts.
func TestPlaceholdersBesideChanges(t *testing.T) {
	old := &Handler{Alertmanager: &HandlerAlertmanager{URLs: []string{"https://a:one@am.example/x"}}}
	for _, url := range []string{"https://REDACTED@am.example/x", "https://REDACTED@am.example/REDACTED?new=1", "https://am.example/REDACTED/y"} {
		h := &Handler{Alertmanager: &HandlerAlertmanager{URLs: []string{url}}}
		if got, err := h.WithSecrets(old); err == nil {
			t.Errorf("%s is stored as %s", url, got.Alertmanager.URLs)
		}
	}
	c := &CheckConfig{EnvVars: []string{"DB=pg://REDACTED@h/x?password=new"}}
	if got, err := c.WithSecrets(&CheckConfig{EnvVars: []string{"DB=pg://u:pw@h/x"}}); err == nil {
		t.Errorf("stored as %s", got.EnvVars)
	}
	// What is stored already can be stored again.
	odd := &Handler{Alertmanager: &HandlerAlertmanager{URLs: []string{"https://REDACTED@am.example/x"}}}
	if got, err := odd.WithSecrets(odd); err != nil || got.Alertmanager.URLs[0] != odd.Alertmanager.URLs[0] {
		t.Errorf("%v, %v", got.Alertmanager.URLs, err)
	}
}

// TestSecretsThatLookTheSame: two URLs that differ only in what is hidden keep their own secrets.
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

// TestManySecretsThatLookTheSame changes as many variables of a check as a request has room for.
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
