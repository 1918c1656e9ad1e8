package ctl

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestPostgresTable has long errors below a table that fits a terminal.
func TestPostgresTable(t *testing.T) {
	now, long := time.Now(), "connect to\n\tdb.example.com:5432: "+strings.Repeat("no route to host, ", 20)+"the end"
	members := []client.PostgresStatus{
		{Member: "backend1", Configured: true, Server: "db.example.com:5432/events", Error: long, Since: now.Add(-3 * time.Minute), Gaps: 2},
		{Member: "backend2", Unknown: "it does not answer"}, {Member: "backend3"},
		{Member: "backend4", Configured: true, Connected: true, Journal: client.Usage{Error: "no space left", Since: now.Add(-time.Hour)}},
	}
	var out strings.Builder
	if err := postgresTable(members, now).show(&invocation{settings: &settings{}, out: &out}); err != nil {
		t.Fatal(err)
	}
	head, below, _ := strings.Cut(out.String(), "\n\n")
	for line := range strings.Lines(head) {
		if displayWidth(line) > 100 {
			t.Errorf("too wide: %s", line)
		}
	}
	if !strings.Contains(head, "Gaps since start") {
		t.Error(head)
	}
	want := "backend1: failing for 3m: connect to db.example.com:5432: no route"
	if !strings.HasPrefix(below, want) || !strings.HasSuffix(below, "the end\n\nbackend2: unknown: it does not answer\n\nbackend4: the journal fails for 1h: no space left\n") {
		t.Error(below)
	}
}
