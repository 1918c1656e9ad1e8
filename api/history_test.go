package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

func TestStateHistory(t *testing.T) {
	s := newServer(t, nil)
	const event = "/api/core/v2/namespaces/default/events/web1/disk"
	put := func(status int) {
		t.Helper()
		body := fmt.Sprintf(`{"entity":{"metadata":{"name":"web1"}},"check":{"metadata":{"name":"disk"},"interval":10,"status":%d,"output":"it is %d"}}`, status, status)
		if a := s.do(http.MethodPut, event, body); a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for _, status := range []int{0, 0, 2, 2, 1, 0} {
		put(status)
	}
	s.do(http.MethodDelete, event, "")
	const path = "/api/lapwing/v1/namespaces/default/events/web1/disk/history"
	list := func(query string) (states []string, next string) {
		t.Helper()
		a := s.do(http.MethodGet, path+query, "")
		var changes []stateChange
		if err := json.Unmarshal([]byte(a.body), &changes); err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", query, a.status, a.body, err)
		}
		for _, c := range changes {
			states = append(states, fmt.Sprintf("%s %d", c.State, c.Status))
			if c.State != "deleted" && c.Output != fmt.Sprint("it is ", c.Status) {
				t.Errorf("output %q of %+v", c.Output, c)
			}
		}
		return states, a.header.Get("Sensu-Continue")
	}
	all, next := list("")
	if want := "[deleted 0 passing 0 failing 1 failing 2 passing 0]"; fmt.Sprint(all) != want || next != "" {
		t.Errorf("history %v (next %q), want %s", all, next, want)
	}
	var pages []string
	for token := ""; ; {
		page, next := list("?limit=2&continue=" + token)
		pages = append(pages, page...)
		if token = next; next == "" {
			break
		}
	}
	if fmt.Sprint(pages) != fmt.Sprint(all) {
		t.Errorf("pages %v, want %v", pages, all)
	}
	if got, _ := list("?since=1h"); len(got) != len(all) {
		t.Errorf("of the last hour: %v", got)
	}
	if got, _ := list("?until=1h"); len(got) != 0 {
		t.Errorf("until an hour ago: %v", got)
	}
	if a := s.do(http.MethodGet, path+"?since=x", ""); a.status != http.StatusBadRequest {
		t.Errorf("bad time: %d", a.status)
	}
}
