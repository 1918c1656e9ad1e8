package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

func TestWaitingForHandlers(t *testing.T) {
	var asked []string
	var missing []string
	s := newServer(t, func(o *Options) {
		o.Waiting = func(_ context.Context, namespace, handler string, limit int) ([]delivery.Waiting, []string, error) {
			asked = append(asked, fmt.Sprintf("%q %q %d", namespace, handler, limit))
			if handler == "calm" {
				return nil, missing, nil
			}
			return []delivery.Waiting{{Namespace: "default", Handler: "mail", Retrying: 2}}, missing, nil
		}
	})
	const path = "/api/lapwing/v1/namespaces/default/waiting"
	var got []delivery.Waiting
	a := s.do(http.MethodGet, path, "")
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusOK || len(got) != 1 ||
		got[0].Retrying != 2 {
		t.Errorf("%d %s: %v", a.status, a.body, err)
	}
	if a := s.do(http.MethodGet, path+"?handler=calm", ""); a.status != http.StatusOK || a.body != "[]" {
		t.Errorf("of a handler for which nothing waits: %d %s", a.status, a.body)
	}
	missing = []string{"b"}
	a = s.do(http.MethodGet, "/api/lapwing/v1/namespaces/-/waiting?handler=mail&limit=7", "")
	warning := `299 lapwing "the backend b did not answer: some figures may be too small"`
	if a.header.Get("Warning") != warning {
		t.Errorf("headers without a member's answer: %v", a.header)
	}
	s.do(http.MethodGet, path+"?handler=mail&limit=100000", "")
	s.do(http.MethodGet, path+"?limit=5", "")
	want := []string{`"default" "" 0`, `"default" "calm" 20`, `"" "mail" 7`, `"default" "mail" 200`, `"default" "" 0`}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

func TestRetryWaiting(t *testing.T) {
	var asked []string
	var missing []string
	count := 3
	s := newServer(t, func(o *Options) {
		o.RetryWaiting = func(_ context.Context, namespace, handler string) (int, []string, error) {
			asked = append(asked, namespace+"/"+handler)
			return count, missing, nil
		}
	})
	s.do(http.MethodPut, "/api/core/v2/namespaces/default/handlers/mail",
		`{"metadata":{"name":"mail","namespace":"default"},"type":"pipe","command":"true"}`).is(http.StatusCreated)
	const path = "/api/lapwing/v1/namespaces/default/waiting/retry"
	if a := s.do(http.MethodPost, path, `{"handler":"mail"}`); a.status != http.StatusOK || a.body != `{"count":3}` ||
		a.header.Get("Warning") != "" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	missing = []string{"b"}
	warning := `299 lapwing "the backend b did not answer: what waits there keeps its time"`
	if a := s.do(http.MethodPost, path, `{"handler":"mail"}`); a.header.Get("Warning") != warning {
		t.Errorf("headers without a member's answer: %v", a.header)
	}
	s.do(http.MethodPost, path, `{}`).is(http.StatusBadRequest)
	s.do(http.MethodPost, path, `{"handler":"gone"}`).is(http.StatusNotFound)
	s.do(http.MethodPost, "/api/lapwing/v1/namespaces/-/waiting/retry", `{"handler":"mail"}`).is(http.StatusNotFound)
	count = 0
	s.do(http.MethodPost, path, `{"handler":"mail"}`).is(http.StatusOK) // does nothing, so it is not in the audit log
	for _, wrong := range []string{`{"handler":"mail","x":1}`, `{"handler":"mail"}{"handler":"mail"}`} {
		s.do(http.MethodPost, path, wrong).is(http.StatusBadRequest)
	}
	if want := []string{"default/mail", "default/mail", "default/mail"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	a := s.do(http.MethodGet, "/api/lapwing/v1/namespaces/default/audit?resource=deadletters", "")
	if n := strings.Count(a.body, `"action":"execute"`); n != 2 {
		t.Errorf("%d entries in the audit log, want 2: %s", n, a.body)
	}
}
