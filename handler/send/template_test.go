package send

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func render(t testing.TB, text string, html bool) (string, error) {
	t.Helper()
	r := newRenderer(t.Context(), newView(event(2, 0, 1), Job{ID: "1/a", Data: []byte("mutated"), Attempt: 2}))
	r.time = time.Hour // however busy the machine is
	if html {
		return r.html("test", text), r.err
	}
	return r.text("test", text, ""), r.err
}

func TestTemplates(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got, err := render(t, text, false); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
		if u := UnknownFields(&resource.Handler{Type: "webhook", Webhook: &resource.HandlerWebhook{Body: text}}); u != nil {
			t.Errorf("%s: %q, but it can be rendered", text, u)
		}
	}
	f("no template", "no template")
	f("{{.State}} {{.Severity}} {{.Name}} {{.Namespace}}", "CRITICAL critical web1/disk default")
	f("{{.Check.Name}} on {{.Entity.Name}}: {{.Check.Status}}, {{.Check.Occurrences}}, {{.Check.Annotations.team}}",
		"disk on web1: 2, 3, storage")
	f("{{.Entity.System.Hostname}} {{.Entity.Labels.rack}} [{{.Entity.Labels.nothing}}] [{{.Check.Labels.nothing}}]",
		"web1.example.org 17 [] []")
	f("{{.Entity.Labels.password}} {{.Entity.Metadata.Labels.password}}", "REDACTED REDACTED")
	f("{{.Incident}} {{.Resolution}} {{.Delivery}} {{.Attempt}} {{.Data}}", "true false 1/a 2 mutated")
	f("{{.Output}}", "DISK <full>\nsecond & last line")
	f("{{range .Check.History}}{{.Status}},{{end}}", "0,1,2,")
	f("{{.Output | lines 1 | trunc 6}}|{{trunc 0 .Output}}|{{trunc 3 \"äöü\"}}|{{trunc 2 \"äöü\"}}", "DISK …||äöü|ä…")
	f(`{{date "15:04" .Check.Executed}} {{UnixTime .Timestamp | date "2006"}} {{duration 90}} {{severity 1}}{{severity 7}}`,
		"22:14 2023 1m30s warningunknown")
	f(`{{toJson .Entity.Name}} {{toJson .Check.Annotations}}`, `"web1" {"team":"storage"}`)
	f(`{{"" | default "none"}} {{"x" | default "none"}} {{upper "a"}}{{lower "B"}}{{trim " c "}} {{replace "a" "b" "aa"}}`, "none x Abc bb")
	f(`{{contains "eb" .Entity.Name}} {{hasPrefix "web" .Entity.Name}} {{hasSuffix "2" .Entity.Name}} {{join "," .Entity.Subscriptions}}`,
		"true true false ")
	f(`{{mrkdwn "<!channel> & co"}} {{html "<b>"}} {{printf "%03d|%-5s|%.2f" 7 "a" 1.5}}`,
		"&lt;!channel&gt; &amp; co &lt;b&gt; 007|a    |1.50")
	f(`{{UUIDFromBytes .ID}}`, "30313233-3435-3637-3839-616263646566")
	f(`{{define "x"}}({{.}}){{end}}{{template "x" .Name}}{{range $i, $e := .Check.History}}{{if eq $i 1}}{{break}}{{end}}{{$i}}{{end}}`,
		"(web1/disk)0")
	f(`{{range 3}}{{.}}{{else}}none{{end}}{{with .Check}}{{.Name}}{{end}}{{block "b" .}}in {{.Severity}}{{end}}`, "012diskin critical")

	got, err := render(t, `<a title="{{.Output}}" href="/x?e={{.Entity.Name}}&c={{.Output}}">{{range .Check.History}}`+
		`<b>{{.Status}}</b>{{end}}{{.Output}}</a><script>var x = {{.Name}}</script>`, true)
	if err != nil || !strings.Contains(got, "DISK &lt;full&gt;\nsecond &amp; last line</a>") ||
		!strings.Contains(got, "c=DISK%20%3cfull%3e") || !strings.Contains(got, `var x = "web1/disk"`) {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestTemplatesHideSecretsOfTheCheck: the author of a handler tries to read the secrets of a check.
func TestTemplatesHideSecretsOfTheCheck(t *testing.T) {
	ev := event(2)
	ev.Check.EnvVars = []string{"DB_PASSWORD=s3cret", "RACK=r1"}
	r := newRenderer(t.Context(), newView(ev, Job{}))
	got := r.text("variables", "{{.Check.EnvVars}} {{.Check.Check.EnvVars}}", "")
	if got != "[DB_PASSWORD=REDACTED RACK=r1] [DB_PASSWORD=REDACTED RACK=r1]" || r.err != nil {
		t.Errorf("rendered as %s, %v", got, r.err)
	}
}

// TestTemplatesThatFail renders templates that must not panic, run for ever, or use up the memory.
func TestTemplatesThatFail(t *testing.T) {
	double := `{{$x := "0123456789abcdef"}}{{range 64}}{{$x = print $x $x}}{{end}}`
	for text, want := range map[string]string{
		"{{.Nothing}}":                   "can't evaluate field Nothing",
		"{{.Check.Proxy.Name}}":          "can't evaluate field Proxy",
		"{{index .Check.History 99}}":    "out of range",
		"{{nothing}}":                    `function "nothing" not defined`,
		"{{if}}":                         "missing value for if",
		"{{.Check.Subdue.Days}}":         "nil pointer",
		`{{range 1000000000000}}{{end}}`: errRendersForever.Error(),
		`{{range 100000}}{{range 100000}}{{end}}{{end}}`:                                                 errRendersForever.Error(),
		`{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`:                                      errRendersTooDeep.Error(),
		`{{define "a"}}{{template "b" .}}{{end}}{{define "b"}}{{template "a"}}{{end}}{{template "a" .}}`: errRendersTooDeep.Error(),
		`{{range 100000}}{{$.Output}}{{end}}`:                                                            errRendersTooMuch.Error(),
		double:                                                                                           errRendersTooMuch.Error(),
		strings.Replace(double, "print $x $x", `printf "%s%s" $x $x`, 1):                                 errRendersTooMuch.Error(),
		strings.Replace(double, "print $x $x", `replace "0" $x $x`, 1):                                   errRendersTooMuch.Error(),
		strings.Replace(double, "print $x $x", `js "\\" $x "\\" $x`, 1):                                  errRendersTooMuch.Error(),
		strings.Replace(double, "print $x $x", `toJson (print $x "\"")`, 1) + double:                     errRendersTooMuch.Error(),
		`{{printf "%1000000d" 1}}`:                                                                       "more than three digits",
		`{{printf "%.999999f" 1.0}}`:                                                                     "more than three digits",
		`{{printf "%*d" 100000000 1}}`:                                                                   "or *",
		`{{duration "x"}}{{date "x" .}}`:                                                                 "is no number",
	} {
		for _, html := range []bool{false, true} {
			if out, err := render(t, text, html); err == nil || !strings.Contains(err.Error(), want) || out != "" {
				t.Errorf("%s (HTML %v): got %d bytes, %v; want %s", text, html, len(out), err, want)
			}
		}
	}
}

func TestTemplateEndsWithTheAttempt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := newRenderer(ctx, newView(event(2), Job{}))
	r.text("loop", `{{range 100000}}{{end}}`, "")
	if !errors.Is(r.err, errRendersSlowly) {
		t.Errorf("got %v", r.err)
	}
	if res := r.failure(); !res.Temporary || res.Kind != KindTimeout {
		t.Errorf("got %+v", res)
	}
	if r.text("next", "text {{.Name}}", "") != "text {{.Name}}" { // not rendered, since the first failure counts
		t.Error("rendered after a failure")
	}
}

// TestDefaultTemplates renders the templates of a definition without any, for all kinds of events.
func TestDefaultTemplates(t *testing.T) {
	metrics := event(0)
	metrics.Check, metrics.Metrics = nil, &resource.Metrics{}
	for name, ev := range map[string]*resource.Event{
		"incident": event(2, 0), "resolution": event(0, 2), "unknown": event(77), "metrics": metrics,
	} {
		v := newView(ev, Job{ID: "1/a"})
		for _, text := range []string{
			slackTitle, slackText, pagerDutyKey, pagerDutySummary, alertSummary, alertDescription,
			graphitePrefix, emailSubject, emailText,
		} {
			r := newRenderer(t.Context(), v)
			if r.text("default", text, ""); r.err != nil {
				t.Errorf("%s: %v", name, r.err)
			}
		}
	}
}

// TestTemplateFunctions compares the functions with those that validation knows.
func TestTemplateFunctions(t *testing.T) {
	funcs := (&budget{}).funcs()
	for _, name := range resource.TemplateFuncs {
		if funcs[name] == nil {
			t.Errorf("a definition may call %s, which is not there", name)
		}
		delete(funcs, name)
	}
	for _, name := range []string{stepFunc, enterFunc, leaveFunc, "print", "printf", "println", "html", "js", "urlquery"} {
		delete(funcs, name)
	}
	for name := range funcs {
		t.Errorf("definitions are told that there is no %s", name)
	}
}

func FuzzTemplate(f *testing.F) {
	for _, text := range []string{
		"{{.Name}}", slackText, emailText, `{{range .Check.History}}{{.}}{{end}}`,
		`{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`, `{{printf "%v" .}}`,
	} {
		f.Add(text)
	}
	v := newView(event(2, 0, 1), Job{ID: "1/a"})
	f.Fuzz(func(t *testing.T, text string) {
		r := newRenderer(t.Context(), v)
		if out := r.text("fuzz", text, ""); len(out) > maxRendered && strings.Contains(text, "{{") {
			t.Errorf("%d bytes", len(out))
		}
		newRenderer(t.Context(), v).html("fuzz", text)
	})
}
