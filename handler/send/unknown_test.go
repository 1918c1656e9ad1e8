package send

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestUnknownFields(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Chek.Name}}":           ".Chek (.Check?)",
		"{{.Outpt | lines 1}}":     ".Outpt (.Output?)",
		"{{.Check.Nam}}":           ".Check.Nam (.Check.Name?)",
		"{{.check.name}}":          ".check (.Check?)",
		"{{.Zebra}}":               ".Zebra",
		"{{.Check.Name.Zebra}}":    ".Check.Name.Zebra",
		"{{(.Check).Nam}}":         ".Check.Nam (.Check.Name?)",
		"{{.Contact.Emial}}":       ".Contact.Emial (.Contact.Email?)",
		"{{upper .Chek.Name}}":     ".Chek (.Check?)",
		"{{if not .Chek}}a{{end}}": ".Chek (.Check?)",
		"{{with .Check}}{{.Nam}}{{else}}{{.Check.Name}}{{end}}":                        ".Nam (.Name?)",
		"{{range .Check.History}}{{.Staus}}{{else}}{{.Name}}{{end}}":                   ".Staus (.Status?)",
		"{{range .Check.History}}{{$.Nmae}}{{end}}":                                    "$.Nmae ($.Name?)",
		"{{.Zebra}} {{.Zebra}}":                                                        ".Zebra",
		"{{.Check.Labels.any}} {{with .Entity.Labels}}{{.any}}{{end}}":                 "",
		"{{with .Check}}{{.Name}} {{.Annotations.any}} {{$.Name}}{{end}}":              "",
		"{{.Metrics.Points}} {{range .Metrics.Points}}{{.Value}}{{end}}":               "",
		"{{range .Check.History}}{{.Status}}{{end}}":                                   "",
		"{{(UnixTime .Timestamp).Year}} {{(UnixTime 1).Zebra}}":                        "",
		"{{$c := .Check}}{{$c.Zebra}}":                                                 "",
		`{{define "one"}}{{.Name}} {{.Zebra}}{{end}}{{template "one" .Check}}`:         "",
		"{{.Entity.System.Hostname}} {{.Check.Metadata.Name}} {{.Check.Check.Status}}": "",
		"{{.Entity.Redacts \"any\"}} {{len .ID}}":                                      "",
		"{{.Unclosed": "",
		slackText:     "",
		emailText:     "",
		emailSubject:  "",
	} {
		if want != "" {
			want = "body: there is no field " + want
		}
		h := &resource.Handler{Type: "webhook", Webhook: &resource.HandlerWebhook{Body: text}}
		if got := strings.Join(UnknownFields(h), "; "); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	var many strings.Builder
	for i := range 2 * maxUnknown {
		fmt.Fprintf(&many, "{{.Zebra%d}}", i)
	}
	h := &resource.Handler{Type: "email", Email: &resource.HandlerEmail{To: []string{"{{.Contact.Emial}}"}, Headers: map[string]string{"X-A": many.String()}}}
	got := UnknownFields(h)
	if len(got) != maxUnknown || got[0] != "to: there is no field .Contact.Emial (.Contact.Email?)" || got[1] != "header X-A: there is no field .Zebra0" {
		t.Errorf("got %d: %q", len(got), got)
	}
}
