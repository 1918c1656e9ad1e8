package substitute

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// nasty are values with an effect in a shell when they are not quoted.
var nasty = []string{
	"", "plain", "x; id", "$(id)", "`id`", "a'b", "'; id; '", `"`, `\`, `\'`, "a\nid", "*", "~", "# no", "-n", "$HOME", "!!", "&", "| id", "é ü", "<no value>", "\x01",
}

// TestShellQuoteInAShell lets a shell read the quoted values back.
func TestShellQuoteInAShell(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no POSIX shell")
	}
	cfg := resource.EntityConfigOf(testEntity())
	for _, value := range nasty {
		cfg.Metadata.Labels = map[string]string{"url": value}
		got, err := Object(&command{"printf '%s.' {{ .labels.url | shellquote }} {{ shellquote .labels.url }}"}, EntityConfig(cfg))
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", got.Command).CombinedOutput()
		if err != nil || string(out) != value+"."+value+"." {
			t.Errorf("%q: %s gives %q, %v", value, got.Command, out, err)
		}
	}
}

func TestShellQuoteFails(t *testing.T) {
	cfg := resource.EntityConfigOf(testEntity())
	cfg.Metadata.Labels = map[string]string{"nul": "a\x00b"}
	for in, want := range map[string]string{
		"{{ .labels.none | shellquote }}":               `command: unmatched token: `,
		"{{ .labels.nul | shellquote }}":                `command: cannot evaluate template: `,
		`{{ .labels.none | default "x" | shellquote }}`: "",
	} {
		got, err := Object(&command{in}, EntityConfig(cfg))
		if want == "" && (err != nil || got.Command != "'x'") || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
}

func TestUnquoted(t *testing.T) {
	for in, want := range map[string]string{
		"ping":                          "",
		"ping {{ .name }}":              "",
		"ping {{ .metadata.name }}":     "",
		`{{ assetPath "a" }}/ping`:      "",
		"ping {{ .labels.a }}":          "{{.labels.a}}",
		"ping {{ .metadata.labels.a }}": "{{.metadata.labels.a}}",
		"ping {{ .labels.a | shellquote }} {{ shellquote .labels.b }}":        "",
		"ping {{ .labels.a | shellquote | printf \"%s\" }}":                   `{{.labels.a | shellquote | printf "%s"}}`,
		`ping {{ index .labels "a" }} {{ .annotations.b | default "c" }}`:     `{{index .labels "a"}} {{.annotations.b | default "c"}}`,
		"{{ if .labels.a }}{{ .labels.a }}{{ else }}{{ .labels.b }}{{ end }}": "{{.labels.a}} {{.labels.b}}",
		"{{ range .subscriptions }}{{ . }}{{ end }}":                          "{{.}}",
		"{{ $x := .labels.a }}{{ $x }} {{ shellquote $x }}":                   "{{$x}}",
		"{{ with .labels.a }}{{ . | shellquote }}{{ end }}":                   "",
		"{{": "",
	} {
		if got := strings.Join(Unquoted(in), " "); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	proxy := &resource.ProxyRequests{}
	if Warning(&resource.CheckConfig{Command: "{{ .labels.a }}"}) != "" || Warning(&resource.CheckConfig{Command: "ping {{ .name }}", ProxyRequests: proxy}) != "" ||
		!strings.HasSuffix(Warning(&resource.CheckConfig{Command: "ping {{ .labels.a }}", ProxyRequests: proxy}), "write {{.labels.a | shellquote }}") {
		t.Error("the warning is for commands with proxy requests and unquoted tokens")
	}
}
