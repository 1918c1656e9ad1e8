package ctl

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func TestTableColors(t *testing.T) {
	var out strings.Builder
	w := bufio.NewWriter(&out)
	tab := &table{
		columns: []column{{title: "N"}, {title: "Status", right: true, color: wordColor}},
		rows:    [][]string{{"a", "OK"}, {"b", "WARNING"}, {"c", "CRITICAL"}, {"d", "UNKNOWN (7)"}, {"e\nf", ""}},
		color:   true,
	}
	tab.write(w)
	w.Flush()
	want := "  \x1b[1mN\x1b[0m   \x1b[1m  Status   \x1b[0m\n" +
		"──── ──────────────\n" +
		"  a   \x1b[32m         OK\x1b[0m\n" +
		"  b   \x1b[33m    WARNING\x1b[0m\n" +
		"  c   \x1b[31m   CRITICAL\x1b[0m\n" +
		"  d   \x1b[35mUNKNOWN (7)\x1b[0m\n" +
		"  e\n" +
		"  f\n"
	if out.String() != want {
		t.Errorf("got\n%q want\n%q", out.String(), want)
	}
}

func TestPrintable(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	f("plain é 東", "plain é 東")
	f("a\tb\r", "a b")
	f("\x1b]0;title\x07", "?]0;title?")
	f("\u009b31m", "?31m")
	f("\xff", "?")
	f("a\u202eb", "a?b")
}

// TestYAMLOfControlCharacters: texts come back from YAML as they were.
func TestYAMLOfControlCharacters(t *testing.T) {
	for _, text := range []string{"a\x1b[31m", "a\x7f", "a\u0085b", "a\u009bb", "a\ufeffb", "a\x00", "a\u2028b", "é 東 😀", "a\nb"} {
		raw, err := jsonOf(map[string]any{"metadata": map[string]any{"name": "x"}, "reason": text})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := writeYAML(&b, silencedKind, raw); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var back struct{ Spec struct{ Reason string } }
		if err := yaml.Unmarshal([]byte(b.String()), &back); err != nil || back.Spec.Reason != text {
			t.Errorf("%q came back as %q: %v\n%s", text, back.Spec.Reason, err, b.String())
		}
	}
}

func TestDisplayWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "東京": 4, "ｱ": 1, "Ａ": 2} {
		if got := displayWidth(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestUnescapeHTML(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := string(unescapeHTML([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	f(`"a \u0026\u0026 b \u003e \u003C"`, `"a && b > <"`)
	f(`"\\u0026"`, `"\\u0026"`)
	f(`"\\\u0026"`, `"\\&"`)
	f(`"\u0027\n\""`, `"\u0027\n\""`)
	f(`\`, `\`)
	f(`\u002`, `\u002`)
}

// TestTableFits: lines are never longer than the terminal, texts give way first, and columns are left out from the right.
func TestTableFits(t *testing.T) {
	table := func() *table {
		return &table{
			columns: []column{{title: "Entity"}, {title: "Check", keep: true}, {title: "Output", text: true}, {title: "State", keep: true},
				{title: "Silenced"}, {title: "Age", right: true}},
			rows: [][]string{
				{"srv1.berlin.example.org", "check-disk-usage", "CRITICAL: /var is 97% full, /home is 91% full\nand more", "CRITICAL", "false", "5m45s"},
				{"東京", "ping", "ok", "OK", "true", "3d"},
			},
		}
	}
	for width, want := range map[int]string{
		0:   "srv1.berlin.example.org   check-disk-usage   CRITICAL: /var is 97% full, /home is 91% full   CRITICAL   false      5m45s",
		200: "srv1.berlin.example.org   check-disk-usage   CRITICAL: /var is 97% full, /home is 91% full …   CRITICAL   false      5m45s",
		120: "srv1.berlin.example.org   check-disk-usage   CRITICAL: /var is 97% full, /home is 91% f…   CRITICAL   false      5m45s",
		80:  "srv1.berlin.example.org   check-disk-usage   CRITICAL: /var is 97%…   CRITICAL",
		60:  "srv1.berlin.…   check-disk-us…   CRITICAL: /va…   CRITICAL",
		20:  "s…   c…   C…   CR…",
		10:  "…   …   …   …",
	} {
		var out strings.Builder
		w := bufio.NewWriter(&out)
		tab := table()
		tab.cut = width
		tab.write(w)
		w.Flush()
		if !strings.Contains(out.String(), "  "+want+"\n") {
			t.Errorf("width %d: got\n%s\nwant the line\n  %s", width, out.String(), want)
		}
		for line := range strings.Lines(out.String()) {
			if n := displayWidth(strings.TrimSuffix(line, "\n")); width > 14 && n > width {
				t.Errorf("width %d: a line has %d cells: %s", width, n, line)
			}
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 5*time.Minute + 45*time.Second: "5m45s", 5 * time.Minute: "5m",
		45*time.Minute + time.Second: "45m", 3*time.Hour + 7*time.Minute: "3h7m", 30 * time.Hour: "1d6h", 12*24*time.Hour + 4*time.Hour: "12d",
		400 * 24 * time.Hour: "1y35d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
