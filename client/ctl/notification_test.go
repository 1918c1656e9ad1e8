package ctl

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestNotificationsInANarrowTerminal: who was told, and whether that worked, stays.
func TestNotificationsInANarrowTerminal(t *testing.T) {
	tab := notificationTable([]*client.Notification{{At: time.Now().UnixMilli(), Handler: "pager-of-the-night", Entity: "database-1.example.com",
		Check: "replication", Status: 2, Recipients: []string{"ops@example.com"}, Result: "failed", Error: "connection refused", Attempt: 3}}, false)
	tab.cut = 80
	var out strings.Builder
	w := bufio.NewWriter(&out)
	tab.write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Result", "failed", "Error", "conn"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
