package ctl

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestExpired has what the audit log says of a silence, and where it ended by itself.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		minutes := func(n int) time.Time { return now.Add(time.Duration(n) * time.Minute) }
		entry := func(at int, action string, c client.AuditChange) client.AuditEntry {
			return client.AuditEntry{Time: minutes(at), Action: action, Changes: []client.AuditChange{c}}
		}
		create := func(at, end int) client.AuditEntry {
			raw := "{}"
			if end != 0 {
				raw = fmt.Sprintf(`{"expire_at":%d}`, minutes(end).Unix())
			}
			return entry(at, "create", client.AuditChange{New: json.RawMessage(raw)})
		}
		update := func(at, end int) client.AuditEntry {
			raw := json.RawMessage(fmt.Sprint(minutes(end).Unix()))
			return entry(at, "update", client.AuditChange{Path: "/expire_at", New: raw})
		}
		remove := func(at int) client.AuditEntry {
			return entry(at, "delete", client.AuditChange{Old: json.RawMessage(`{"expire_at":1}`)})
		}
		for _, tc := range []struct {
			name    string
			entries []client.AuditEntry // newest first
			end     int
			want    string
		}{
			{"nothing", nil, 0, ""},
			{"it has ended", []client.AuditEntry{create(-60, -30)}, 0, "-30"},
			{"it has not ended", []client.AuditEntry{create(-60, 30)}, 60, ""},
			{"it never ends", []client.AuditEntry{create(-60, 0)}, 0, ""},
			{"deleted before its end", []client.AuditEntry{remove(-40), create(-60, -30)}, 0, ""},
			{"made again after its end", []client.AuditEntry{create(-20, -10), create(-60, -30)}, 0, "-30 -10"},
			{"extended", []client.AuditEntry{update(-40, -5), create(-60, -30)}, 0, "-5"},
			{"ends behind what is shown", []client.AuditEntry{create(-60, -30)}, -45, ""},
		} {
			var got []string
			for _, n := range expired(tc.entries, "*:disk", minutes(tc.end)) {
				if n.what != "unsilenced" || n.text != "silence *:disk ended (expired)" {
					t.Errorf("%s: %+v", tc.name, n)
				}
				got = append(got, fmt.Sprint(n.at.Sub(now).Minutes()))
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
			}
		}
	})
}

// TestAudited: a change of a silence is none that silences once more, and one for later does not silence yet.
func TestAudited(t *testing.T) {
	at := time.Date(2026, 11, 28, 10, 0, 0, 0, time.Local)
	entry := func(action, path, old, new string) client.AuditEntry {
		return client.AuditEntry{Time: at, User: "jane", Name: "*:disk", Action: action, Changes: []client.AuditChange{
			{Path: path, Old: json.RawMessage(old), New: json.RawMessage(new)}}}
	}
	for _, tc := range []struct {
		entry client.AuditEntry
		want  string
	}{
		{entry("create", "", "null", `{"reason": "patches"}`), "silenced by jane: *:disk: patches"},
		{entry("create", "", "null", fmt.Sprintf(`{"begin": %d}`, at.Unix())), "silenced by jane: *:disk"},
		{entry("create", "", "null", fmt.Sprintf(`{"begin": %d}`, at.Unix()+60)), "silenced by jane: *:disk (from 2026-11-28 10:01:00)"},
		{entry("update", "/reason", `"patches"`, `"more patches"`), "changed silenced by jane: *:disk: more patches"},
		{entry("delete", "", `{"acknowledgement": true}`, "null"), "unacknowledged by jane"},
	} {
		notes := audited([]client.AuditEntry{tc.entry})
		if len(notes) != 1 || notes[0].what+" "+notes[0].text != tc.want {
			t.Errorf("%s: %+v, want %s", tc.entry.Action, notes, tc.want)
		}
	}
}

func TestReplaysAreMarked(t *testing.T) {
	n := &client.Notification{Handler: "pager", Result: "ok", ID: "replay-abc234xy-2-15-0/pager"}
	if got := notified(n).text; got != "pager: ok (replay abc234xy)" {
		t.Error(got)
	}
	if row := notificationTable([]*client.Notification{n}, false).rows[0]; row[6] != "ok (replay abc234xy)" {
		t.Error(row)
	}
	if n.ID = "2-15-0/pager"; notified(n).text != "pager: ok" {
		t.Error(notified(n))
	}
}
