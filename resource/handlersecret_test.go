package resource

import (
	"slices"
	"testing"
)

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
