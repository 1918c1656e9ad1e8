package ctl

import (
	"bufio"
	"strings"
	"testing"
)

func TestTableColors(t *testing.T) {
	var out strings.Builder
	w := bufio.NewWriter(&out)
	tab := &table{
		columns: []column{{title: "N"}, {title: "Status", right: true, color: statusColor}},
		rows:    [][]string{{"a", "0"}, {"b", "1"}, {"c", "2"}, {"d", "3"}, {"e\nf", ""}},
		color:   true,
	}
	tab.write(w)
	w.Flush()
	want := "  \x1b[1mN\x1b[0m   \x1b[1mStatus\x1b[0m\n" +
		"──── ─────────\n" +
		"  a   \x1b[32m     0\x1b[0m\n" +
		"  b   \x1b[33m     1\x1b[0m\n" +
		"  c   \x1b[31m     2\x1b[0m\n" +
		"  d   \x1b[35m     3\x1b[0m\n" +
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
