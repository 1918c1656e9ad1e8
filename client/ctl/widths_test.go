package ctl

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

// TestWidths prints tables in terminals of some widths. Its output is testdata/widths.golden.
func TestWidths(t *testing.T) {
	t.Setenv("TZ", "UTC")
	lists := []struct {
		kind *kind
		list []string
	}{
		{eventKind, []string{
			`{"entity": {"metadata": {"name": "srv1.berlin.example.org"}}, "timestamp": 946684790, "check": {"metadata": {"name": "disk-usage"},
				"status": 2, "output": "CRITICAL: /var/lib/postgresql is 97% full\nand /home 93%", "is_silenced": true,
				"executed": 946684790, "history": [{"status": 0, "executed": 946684000}, {"status": 2, "executed": 946684455}]}}`,
			`{"entity": {"metadata": {"name": "東京-1"}}, "timestamp": 946598400, "check": {"metadata": {"name": "ping"}, "status": 127,
				"output": "sh: \u001b[31mping: 見つかりません not found in any directory of the path", "executed": 946598400}}`,
			`{"entity": {"metadata": {"name": "srv2"}}, "timestamp": 946684798, "check": {"metadata": {"name": "http"}, "output": "OK"}}`,
		}},
		{checkKind, []string{
			`{"metadata": {"name": "disk-usage"}, "command": "check-disk-usage --warning 80 --critical 95 --exclude tmpfs", "interval": 60,
				"timeout": 30, "subscriptions": ["linux", "database"], "handlers": ["pager", "chat"], "publish": true}`,
			`{"metadata": {"name": "http"}, "command": "check-http", "cron": "*/5 * * * *", "subscriptions": ["web"]}`,
		}},
		{entityKind, []string{
			`{"metadata": {"name": "srv1.berlin.example.org"}, "entity_class": "agent", "last_seen": 946684700, "system": {"os": "linux"},
				"subscriptions": ["linux", "database", "entity:srv1.berlin.example.org"]}`,
		}},
		{handlerKind, []string{
			`{"metadata": {"name": "chat"}, "type": "pipe", "command": "chat-handler\n--channel '#operations'", "timeout": 10,
				"filters": ["is_incident", "not_silenced"], "env_vars": ["URL=https://chat.example.org/hooks/1234", "LEVEL=warning"]}`,
		}},
	}
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) { // the time is 2000-01-01, which is 946684800
		for _, width := range []int{60, 80, 120, 200} {
			for _, l := range lists {
				var raws []json.RawMessage
				for _, text := range l.list {
					raws = append(raws, json.RawMessage(text))
				}
				fmt.Fprintf(&out, "# %s list, %d cells\n", l.kind.Command, width)
				s := &invocation{settings: &settings{format: formatTabular}, out: &out, width: width}
				if err := s.writeList(l.kind, raws, false); err != nil {
					t.Fatal(err)
				}
				out.WriteString("\n")
			}
		}
	})
	const golden = "testdata/widths.golden"
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s", out.String())
	}
	width := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "#") {
			fmt.Sscanf(line[strings.LastIndex(line, ",")+1:], "%d", &width)
		} else if n := displayWidth(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("%d cells in a terminal of %d: %s", n, width, line)
		}
	}
}
