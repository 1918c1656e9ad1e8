package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// TestStateHistory has a server with a change each minute. It has only those since the hour unless it is told how far it
// has to look, as one that asks PostgreSQL for what is older.
func TestStateHistory(t *testing.T) {
	hour := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	read := func(q url.Values, name string) time.Time {
		if q.Get(name) == "0" {
			return time.Unix(0, 0)
		}
		at, _ := time.Parse(time.RFC3339, q.Get(name))
		return at
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		since, until := read(q, "since"), read(q, "until")
		if since.IsZero() {
			since = hour
		}
		list := []StateChange{}
		for n := 5; n > -5; n-- {
			at := hour.Add(time.Duration(n) * time.Minute)
			if !at.Before(since) && !at.After(until) && (q.Get("limit") != "1" || len(list) == 0) {
				list = append(list, StateChange{Time: at})
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	f := func(since, until int, want string) {
		t.Helper()
		changes, before, err := c.StateHistory(t.Context(), "default", "web1", "disk",
			hour.Add(time.Duration(since)*time.Minute), hour.Add(time.Duration(until)*time.Minute))
		must(t, err)
		got := ""
		for _, c := range changes {
			got += fmt.Sprint(c.Time.Sub(hour).Minutes(), " ")
		}
		if before != nil {
			got += fmt.Sprint("before ", before.Time.Sub(hour).Minutes())
		}
		if got != want {
			t.Errorf("%d to %d: %q, want %q", since, until, got, want)
		}
	}
	f(2, 4, "3 2 before 1")
	f(-3, -1, "-2 -3 before -4")
	f(-9, -3, "-4 ")
	f(-9, -8, "")
}

// TestRefusals begins with what was asked for, in words, and not with a path.
func TestRefusals(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"message":"no month","code":1}`, http.StatusBadRequest)
	})
	_, report := c.Report(t.Context(), "default", "response", url.Values{"month": {"2026-13"}})
	_, csv := c.ReportAs(t.Context(), "default", "response", url.Values{"month": {"2026-13"}})
	_, _, history := c.StateHistory(t.Context(), "default", "web1", "disk", time.Now(), time.Now())
	_, postgres := c.Postgres(t.Context())
	var list error
	for _, err := range c.Notifications(t.Context(), "default", NotificationOptions{}, 1) {
		list = err
	}
	for want, err := range map[string]error{
		"get report response: no month": report, "get history of web1/disk: no month": history,
		"get the status of PostgreSQL: no month": postgres, "list notifications: no month": list,
		"replay: no month": c.Replay(t.Context(), "default", &ReplayRequest{}, nil),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if csv == nil || csv.Error() != report.Error() {
		t.Errorf("%v, want %v", csv, report)
	}
}
