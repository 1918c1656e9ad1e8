package api

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// sentBefore is the notifications of one backend, newest first, and the queries about them.
type sentBefore struct {
	list    []notification.Notification
	missing []string
	asked   []notification.Query
}

func (s *sentBefore) Notifications(_ context.Context, q notification.Query, places map[string]uint64) (
	[]notification.Notification, map[string]uint64, []string, error,
) {
	s.asked = append(s.asked, q)
	var page []notification.Notification
	for _, n := range s.list {
		if places != nil && n.Number >= places["a"] || !q.Selects(&n) {
			continue
		}
		if len(page) == q.Limit {
			return page, map[string]uint64{"a": page[len(page)-1].Number}, s.missing, nil
		}
		page = append(page, n)
	}
	return page, nil, s.missing, nil
}

const notificationsPath = "/api/lapwing/v1/namespaces/default/notifications"

func sentTo(number uint64, entity string, merged ...string) notification.Notification {
	n := notification.Notification{
		Number: number, At: int64(number) * 1000, Type: "email", Recipients: []string{"ops@example.com"}, Result: "ok",
		Attempt: 1, Final: true, Events: max(1, len(merged)), Output: "said of all",
		Header: delivery.Header{ID: fmt.Sprint(number, "/mail"), Namespace: "default", Entity: entity, Check: "disk", Handler: "mail"},
	}
	for _, name := range merged {
		n.Merged = append(n.Merged, notification.Merged{ID: "7-7-7/mail", Entity: name, Check: "disk", Status: 2})
	}
	return n
}

func entitiesOf(t *testing.T, a *answer) (names []string) {
	t.Helper()
	var list []notification.Notification
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	for _, n := range list {
		names = append(names, n.Entity)
	}
	return names
}

func TestNotifications(t *testing.T) {
	sent := &sentBefore{list: []notification.Notification{sentTo(3, "web3"), sentTo(2, "web2"), sentTo(1, "web1")}}
	s := newServer(t, func(o *Options) { o.Notifications = sent })
	get := func(query string) *answer {
		t.Helper()
		return s.do(http.MethodGet, notificationsPath+query, "")
	}
	a := get("?limit=2")
	if got := entitiesOf(t, a); !slices.Equal(got, []string{"web3", "web2"}) {
		t.Errorf("first page %v", got)
	}
	if got := entitiesOf(t, get("?limit=2&continue="+a.header.Get("Sensu-Continue"))); !slices.Equal(got, []string{"web1"}) {
		t.Errorf("second page %v", got)
	}
	get("?entity=web1&check=disk&handler=mail&recipient=OPS&result=ok&since=1970-01-01T00:00:00Z&until=1h&limit=5000")
	want := notification.Query{Namespace: "default", Entity: "web1", Check: "disk", Handler: "mail", Recipient: "OPS",
		Result: "ok", Limit: notificationPageMax}
	got := sent.asked[len(sent.asked)-1]
	if got.Since.IsZero() || got.Until.IsZero() {
		t.Errorf("times of %+v", got)
	}
	if want.Since, want.Until = got.Since, got.Until; got != want {
		t.Errorf("query %+v, want %+v", got, want)
	}
	for _, query := range []string{"?since=x", "?until=x", "?format=xml", "?continue=" + continueToken("a:x"), "?continue=" + continueToken("a:0")} {
		if a := get(query); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", query, a.status)
		}
	}
	for path, want := range map[string]string{
		notificationsPath + "?result=bad":                  `400 {"message":"result must be ok, failed, timeout, error, not \"bad\"","code":1}`,
		"/api/lapwing/v1/namespaces/nope/notifications":    `404 {"message":"the namespace nope does not exist","code":2}`,
		"/api/lapwing/v1/namespaces/-/notifications":       "200 [",
		"/api/lapwing/v1/namespaces/default/notifications": "200 [",
	} {
		if a := s.do(http.MethodGet, path, ""); !strings.HasPrefix(fmt.Sprint(a.status, " ", a.body), want) {
			t.Errorf("%s: %d %s, want %s", path, a.status, a.body, want)
		}
	}
	sent.missing = []string{"b is away"}
	if a := get(""); a.header.Get("Warning") != `299 lapwing "notifications are missing: b is away"` {
		t.Errorf("headers of a list without a member's: %v", a.header)
	}
}

// TestNotificationExport exports more than a page.
func TestNotificationExport(t *testing.T) {
	sent := &sentBefore{}
	for i := range uint64(2*notificationPageMax + 1) {
		sent.list = append(sent.list, sentTo(2*notificationPageMax+1-i, "=web\",\n1"))
	}
	s := newServer(t, func(o *Options) { o.Notifications = sent })
	a := s.do(http.MethodGet, notificationsPath+"?format=csv", "")
	rows, err := csv.NewReader(strings.NewReader(a.body)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(sent.list)+1 || len(rows[0]) != len(notificationColumns) || rows[1][2] != "'=web\",\n1" {
		t.Errorf("%d rows, the first %q", len(rows), rows[:2])
	}
	if kind := a.header.Get("Content-Type"); kind != "text/csv; charset=utf-8" {
		t.Errorf("content type %q", kind)
	}
	a = s.do(http.MethodGet, notificationsPath+"?format=jsonl", "")
	lines := strings.Split(strings.TrimSuffix(a.body, "\n"), "\n")
	for _, line := range lines {
		var n notification.Notification
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if len(lines) != len(sent.list) {
		t.Errorf("%d lines, want %d", len(lines), len(sent.list))
	}
	a = s.do(http.MethodGet, notificationsPath+"?format=jsonl&limit=10", "")
	if n := strings.Count(a.body, "\n"); n != 10 || a.header.Get("Sensu-Continue") == "" {
		t.Errorf("with a limit: %d lines, headers %v", n, a.header)
	}
}

// TestNotificationsOfOthers: a role that is limited by labels sees the notifications of its own events, and of a group only
// its own members.
func TestNotificationsOfOthers(t *testing.T) {
	group := sentTo(3, "3 checks", "web2", "web1", "gone")
	sent := &sentBefore{list: []notification.Notification{
		sentTo(5, "web1"), sentTo(4, "web2"), group, sentTo(2, "3 checks", "web2", "gone"), sentTo(1, "gone"),
	}}
	s := newServer(t, func(o *Options) { o.Notifications = sent })
	for entity, region := range map[string]string{"web1": "eu", "web2": "us"} {
		body := fmt.Sprintf(`{"entity":{"metadata":{"name":%q,"labels":{"region":%q}}},"check":{"metadata":{"name":"disk"},"interval":10}}`, entity, region)
		if a := s.do(http.MethodPut, "/api/core/v2/namespaces/default/events/"+entity+"/disk", body); a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	token := s.user("eve", "eu")
	if a := s.do(http.MethodGet, notificationsPath, "", "Authorization", "Bearer "+token); a.status != http.StatusForbidden {
		t.Errorf("without a role: %d", a.status)
	}
	s.grant("eu", "", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	a := s.do(http.MethodGet, notificationsPath, "", "Authorization", "Bearer "+token)
	if got := entitiesOf(t, a); !slices.Equal(got, []string{"web1", "web1"}) {
		t.Fatalf("eve sees %v", got)
	}
	for _, other := range []string{"web2", "gone", "3 checks", "3/mail"} {
		if strings.Contains(a.body, other) {
			t.Errorf("eve sees %s: %s", other, a.body)
		}
	}
	var list []notification.Notification
	if err := json.Unmarshal([]byte(a.body), &list); err != nil {
		t.Fatal(err)
	}
	if n := list[1]; n.Events != 1 || n.Output != "" || n.ID != "7-7-7/mail" || n.EventID != "7-7-7" {
		t.Errorf("her part of a group is %+v", n)
	}
	if a := s.do(http.MethodGet, notificationsPath+"?entity=web2", "", "Authorization", "Bearer "+token); a.body != "[]" {
		t.Errorf("a filter tells eve who was in the group: %s", a.body)
	}
	if got := entitiesOf(t, s.do(http.MethodGet, notificationsPath, "")); len(got) != len(sent.list) {
		t.Errorf("an administrator sees %v", got)
	}
}

func FuzzNotificationPlaces(f *testing.F) {
	f.Add("")
	f.Add("a:1,b:18446744073709551615")
	f.Add("a:0,:,")
	f.Fuzz(func(t *testing.T, token string) {
		places, err := parsePlaces(token)
		if err != nil || places == nil {
			return
		}
		if again, err := parsePlaces(formatPlaces(places)); err != nil || !maps.Equal(again, places) {
			t.Errorf("%q: %v, then %v: %v", token, places, again, err)
		}
	})
}
