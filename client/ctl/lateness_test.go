package ctl

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestLastRunOfACheckThatNeverRan: an overdue check says so; of one that is not, the reason or the next run is more to the point.
func TestLastRunOfACheckThatNeverRan(t *testing.T) {
	lateness, targets := "", `{"now":[]}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/lateness"):
			fmt.Fprint(w, lateness)
		case strings.HasSuffix(r.URL.Path, "/targets"):
			fmt.Fprint(w, targets)
		default:
			fmt.Fprintf(w, `{"runs":[%d]}`, time.Now().Unix()+3600)
		}
	}))
	defer srv.Close()
	c, err := client.New(client.Options{URL: srv.URL, APIKey: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ lateness, targets, want string }{
		{`{"last_run":0,"overdue":20,"since":1,"summary":"never ran, overdue by 20 intervals"}`, `{"now":[]}`, "never ran, overdue by 20 intervals"},
		{`{"last_run":0,"summary":"never ran"}`, `{"now":["publish is false"]}`, "never ran: publish is false"},
		{`{"last_run":0,"summary":"never ran"}`, `{"now":[]}`, "never ran: the next run is in "},
	} {
		lateness, targets = tc.lateness, tc.targets
		if text, err := lastRun.one(t.Context(), c, "default", "hang"); err != nil || !strings.HasPrefix(text, tc.want) {
			t.Errorf("%s: %q, %v; want %q", tc.lateness, text, err, tc.want)
		}
	}
}
