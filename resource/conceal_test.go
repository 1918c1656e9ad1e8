package resource

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// TestConceal checks answers that repeat secrets as sent, and in other spellings.
func TestConceal(t *testing.T) {
	h := &Handler{
		EnvVars: []string{"TOKEN=t0k3", "PIN=123", "MODE=fast", "HIDDEN=some text", "PATH=/usr/local/bin",
			"KEY=-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nabc=\n", "DB=pg://u:p%40ss-word@h/x"},
		Webhook: &HandlerWebhook{
			URL:         "https://me:link%2Fpass@example.com/in/abc123?k=q-value",
			Headers:     map[string]string{"X-Anything": `he"ad<er`, "Accept": "text/html", "Authorization": "Bearer b3ar3r"},
			Body:        `{"api_key": "b0dy-key", "text": "plain text"}`,
			HandlerAuth: HandlerAuth{Username: "user", Password: "pass-word"},
		},
		Email: &HandlerEmail{Username: "mailer", Password: "m@il-pass"},
	}
	before := *h.Webhook
	secrets := h.SecretTexts()
	basic := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	f := func(text, want string) {
		t.Helper()
		if got := Conceal(text, secrets); got != want {
			t.Errorf("%s is kept as %s, want %s", text, got, want)
		}
	}
	f("bad token t0k3 given", "bad token REDACTED given")
	f("MODE=fast PIN=123 in /usr/local/bin", "MODE=fast PIN=123 in /usr/local/bin")
	f("HIDDEN=some text", "HIDDEN=REDACTED")
	f("connect to pg://u:p%40ss-word@h/x: login u with p@ss-word failed", "connect to REDACTED: login u with REDACTED failed")
	f("POST /in/abc123?k=q-value: abc123 unknown", "POST REDACTED?REDACTED: REDACTED unknown")
	f("no key in MIIEvQIBADANBgkqhkiG9w0", "no key in REDACTED")
	f("user me:link%2Fpass, password link/pass", "user REDACTED, password REDACTED")
	f(`{"header":"he\"ad\u003cer","accept":"text/html"}`, `{"header":"REDACTED","accept":"text/html"}`)
	f("he&#34;ad&lt;er and b3ar3r", "REDACTED and REDACTED")
	f("key b0dy-key in plain text", "key REDACTED in plain text")
	f("Basic "+basic("user:pass-word"), "Basic REDACTED")
	f("Basic "+basic("me:link/pass"), "Basic REDACTED")
	f("AUTH PLAIN "+basic("\x00mailer\x00m@il-pass"), "AUTH PLAIN REDACTED")
	f("334 "+basic("m@il-pass"), "334 REDACTED")
	f("ok", "ok")
	if h.Webhook.URL != before.URL || h.Webhook.Headers["X-Anything"] != `he"ad<er` {
		t.Error("the definition was changed")
	}

	err := ConcealError(&fs.PathError{Op: "open", Path: "t0k3", Err: fs.ErrNotExist}, secrets)
	if err.Error() != "open REDACTED: file does not exist" || !errors.Is(err, fs.ErrNotExist) || !errors.As(err, new(*fs.PathError)) {
		t.Errorf("the error became %v", err)
	}
	if long := ConcealError(errors.New(strings.Repeat("x", 1<<20)), secrets); len(long.Error()) > maxErrorText+len("…") {
		t.Errorf("an error of %d bytes is kept", len(long.Error()))
	}
	if plain := errors.New("other"); ConcealError(plain, secrets) != plain || ConcealError(nil, secrets) != nil {
		t.Error("an error without secrets was changed")
	}
}

// TestConcealCut has texts that end inside a secret.
func TestConcealCut(t *testing.T) {
	secrets := []string{"hush-token", "kenny-secret", "n*other", "aaaa", "me:hush/pass", strings.Repeat("long-key ", 1000)}
	f := func(text, want string) {
		t.Helper()
		if got := ConcealCut(text, secrets); got != want {
			t.Errorf("%s is kept as %s, want %s", text, got, want)
		}
	}
	f("", "")
	f("x hush-toke", "x ")
	f("x hush-token", "x ") // it contains the beginning of kenny-secret
	f("x hush-token ", "x REDACTED ")
	f("x hush-token hush-to", "x REDACTED ")
	f("kenny-secret n%2A", "REDACTED ")
	f("a word", "a word")
	f("aaaaaaaaaaaaaaaaaaaaaaaa", "")
	f("me%3Ahush%2", "")
	f("Basic "+base64.StdEncoding.EncodeToString([]byte("me:hush/pass"))[:12], "Basic ")
	f("key "+strings.Repeat("long-key ", 10), "key ")
	f("long-key long-kex", "long-key long-kex")
}

// TestConcealManySecrets: secrets that are not in a text cost little, because every answer of a server is searched.
func TestConcealManySecrets(t *testing.T) {
	answer := strings.Repeat("an answer ", 400)
	secrets := manyLines().SecretTexts()
	if len(secrets) < 2000 {
		t.Fatalf("%d secrets", len(secrets))
	}
	if n := testing.AllocsPerRun(1, func() { Conceal(answer, secrets) }); n > float64(2*len(secrets)) {
		t.Errorf("%g allocations for %d secrets that are not in the text", n, len(secrets))
	}
	line := secrets[len(secrets)-1]
	for _, text := range []string{line, base64.StdEncoding.EncodeToString([]byte(line)),
		base64.RawURLEncoding.EncodeToString([]byte(line))} {
		if got := Conceal(answer+text+answer, secrets); got != answer+Redacted+answer {
			t.Errorf("%s is not found", text)
		}
	}
}

// manyLines has a variable like a bundle of keys.
func manyLines() *Handler {
	var key strings.Builder
	for i := range 2000 {
		key.WriteString(base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "line %d of the key ~~~???>>>", i)) + "\n")
	}
	return &Handler{EnvVars: []string{"KEYS=" + key.String()}}
}

// BenchmarkConcealManySecrets measures an answer for a variable of 2,000 lines.
func BenchmarkConcealManySecrets(b *testing.B) {
	h, answer := manyLines(), strings.Repeat("an answer ", 400)
	b.ReportAllocs()
	for b.Loop() {
		Conceal(answer, h.SecretTexts())
	}
}

// BenchmarkConceal measures the search of one answer.
func BenchmarkConceal(b *testing.B) {
	h := &Handler{Webhook: &HandlerWebhook{
		URL:     "https://hooks.example.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx",
		Headers: map[string]string{"X-Api-Key": "0123456789abcdef"},
	}}
	for name, answer := range map[string]string{"ok": "ok", "4KiB": strings.Repeat("an answer ", 400)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Conceal(answer, h.SecretTexts())
			}
		})
	}
}

// BenchmarkRedactVariables measures a part of the JSON of each event.
func BenchmarkRedactVariables(b *testing.B) {
	vars := []string{"RACK=r1", "MODE=fast", "URL=https://example.com/x", "DB_PASSWORD=abc"}
	b.ReportAllocs()
	for b.Loop() {
		RedactVariables(vars)
	}
}
