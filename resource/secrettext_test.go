package resource

import (
	"strings"
	"testing"
	"time"
)

// TestHideWithin has values of variables with secrets in the forms that programs use.
func TestHideWithin(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		got := hideWithin(text)
		if got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
		if again := hideWithin(got); again != got {
			t.Errorf("%s becomes %s when it is hidden again", got, again)
		}
	}
	f("postgres://u:pw@host/db", "postgres://REDACTED@host/db")
	f("postgres://host/db", "postgres://host/db")
	f("postgres://u:p/w@d@host:5432/db", "postgres://REDACTED@host:5432/db")
	f("amqp://u:pw@h1:5672,amqp://u:pw@h2:5672", "amqp://REDACTED@h1:5672,amqp://REDACTED@h2:5672")
	f("https://ghp_token@github.com/org/repo", "https://REDACTED@github.com/org/repo")
	f("https://host:8443/@user/x", "https://host:8443/@user/x")
	f("https://[::1]:8443/x?api=1", "https://[::1]:8443/x?REDACTED")
	f("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/REDACTED")
	f("https://discord.com/api/webhooks/1/xyz", "https://discord.com/api/webhooks/REDACTED")
	f("https://acme.webhook.office.com/webhookb2/1@2/IncomingWebhook/3", "https://acme.webhook.office.com/REDACTED")
	f("https://hc-ping.com/3f1c8a52-6d1e-4f0e-9d51-0a7be31c9d11", "https://hc-ping.com/REDACTED")
	f("https://api.telegram.org/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALD/sendMessage", "https://api.telegram.org/REDACTED/sendMessage")
	f("https://github.com/org/webhook-plugin/releases", "https://github.com/org/webhook-plugin/releases")
	f("host=db user=u password='a b' dbname=x", "host=db user=u password='REDACTED' dbname=x")
	f("jdbc:sqlserver://h:1433;user=u;password=pw;encrypt=true", "jdbc:sqlserver://h:1433;user=u;password=REDACTED;encrypt=true")
	f(`{"user":"u","password":"p\"w","n":1}`, `{"user":"u","password":"REDACTED","n":1}`)
	f("Authorization: Bearer abc x", "Authorization: REDACTED")
	f("-H 'Authorization: Key 83abef1e-e7d7-4beb-91fc-79ad90084d5b' -v", "-H 'Authorization: REDACTED' -v")
	f("Cookie: a=1; sid=x\nAccept: y", "Cookie: REDACTED\nAccept: y")
	f("u:pw@tcp(db:3306)/x", "REDACTED@tcp(db:3306)/x")
	f(`see "https://u:pw@host/x" and 'https://h/?k=v' end`, `see "https://REDACTED@host/x" and 'https://h/?REDACTED' end`)
	for _, plain := range []string{
		"", "r1", "a:b", "a=b", "/usr/bin:/bin", "12:30", "alpine:3.19@sha256:abc", "mail@example.com",
		"https://example.com/x", "a=1;b=2", "--warning 80",
	} {
		f(plain, plain)
	}
}

// TestHideLogin has fields that are one URL, or a template of one.
func TestHideLogin(t *testing.T) {
	f := func(link, want string) {
		t.Helper()
		for _, got := range []string{hideLogin(link), ShownURL(link), hideLogin(want)} {
			if got != want {
				t.Errorf("%s is shown as %s, want %s", link, got, want)
			}
		}
	}
	f("https://h/my plugin.tgz?X-Amz-Signature=hush", "https://h/my plugin.tgz?REDACTED")
	f("https://h/d?var={{ .Entity.Name }}&sig=hush", "https://h/d?REDACTED")
	f("https://me:hu sh@h/a b.tgz", "https://REDACTED@h/a b.tgz")
	f(`"https://h/a"b?sig=hush`, `"https://h/a"b?REDACTED`)
	f("{{ .Annotations.base }}/d?sig=hush", "{{ .Annotations.base }}/d?REDACTED")
	f(`{{ if .Silenced }}https://h/a{{ else }}https://me:hush@h/b{{ end }}`,
		`{{ if .Silenced }}https://h/a{{ else }}https://REDACTED@h/b{{ end }}`)
	f("https://me:hush@h/a.tgz?b#c", "https://REDACTED@h/a.tgz?REDACTED")
	for _, plain := range []string{"", "https://h/v1.2/my plugin.tgz",
		"https://h:8443/{{ .Entity.Name }}/{{ .Check.Name }}", "{{ .Annotations.link }}"} {
		f(plain, plain)
	}
}

// TestHideWithinIsLinear has texts that take very long if their parts are searched repeatedly.
func TestHideWithinIsLinear(t *testing.T) {
	for _, part := range []string{"://", "://a/", "://a@", "://a:b", "key=", "key:", `key="`, "key=\\", "a=", "://?", "@", `":`} {
		text := strings.Repeat(part, 1<<20/len(part))
		begin := time.Now()
		hideWithin(text)
		hideLogin(text)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("a megabyte of %s takes %s", part, took)
		}
	}
}

// FuzzHideWithin checks that hiding twice is hiding once, and that the result has none of the secrets.
func FuzzHideWithin(f *testing.F) {
	f.Add("postgres://u:pw@host/db?x=y")
	f.Add(`password='a b'; token: "x" u:pw@tcp(h)/x`)
	f.Add("https://hooks.slack.com/a https://x/webhooks/y")
	f.Fuzz(func(t *testing.T, text string) {
		shown := hideWithin(text)
		if again := hideWithin(shown); again != shown {
			t.Errorf("%q is shown as %q, and that as %q", text, shown, again)
		}
		spans, at := secretSpans(text), 0
		for _, s := range spans {
			if s.from < at || s.to <= s.from || s.to > len(text) {
				t.Fatalf("%q has the spans %v", text, spans)
			}
			at = s.to
		}
	})
}
