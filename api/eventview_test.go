package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const viewPath = "/api/lapwing/v1/namespaces/default/events/view"

// window says in a line what a window has: the counts, the order and the changed rows.
func (w *eventWindow) String() string {
	c := w.Counts
	parts := []string{fmt.Sprintf("%d/%d/%d/%d/%d", c.Critical, c.Warning, c.Unknown, c.Silenced, c.OK)}
	if w.Order != nil {
		parts = append(parts, strings.Join(w.Order, ","))
	}
	for _, r := range w.Rows {
		parts = append(parts, fmt.Sprintf("%s/%s=%d", r.Entity, r.Check, r.Status))
	}
	for _, key := range w.Gone {
		parts = append(parts, "-"+key)
	}
	for _, g := range w.Group {
		parts = append(parts, fmt.Sprintf("%s:%d/%d", g.Value, g.Counts.Critical, g.Counts.Total))
	}
	if w.Place != nil {
		parts = append(parts, fmt.Sprint("at ", *w.Place))
	}
	return strings.Join(parts, " ")
}

func TestEventView(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	s.event("default", "b", "x", 0)
	s.event("default", "a", "y", 1)
	s.event("default", "a", "x", 2)
	s.event("dev", "a", "x", 1)
	for query, want := range map[string]string{
		"":                             "1/1/0/0/1 default/a/x,default/a/y,default/b/x a/x=2 a/y=1 b/x=0",
		"?sort=-entity&limit=1":        "1/1/0/0/1 default/b/x b/x=0",
		"?sort=check&limit=1&offset=2": "1/1/0/0/1 default/a/y a/y=1",
		"?offset=9":                    "1/1/0/0/1 ",
		"?fieldSelector=event.check.status%20==%202&find=default/a/x": "1/0/0/0/0 default/a/x a/x=2 at 0",
		"?find=default/a/z&limit=0":                                   "1/1/0/0/1  at -1",
		"?limit=0&also=default/a/y&also=default/no/y":                 "1/1/0/0/1  a/y=1 -default/no/y",
		"?groupBy=entity":                                             "1/1/0/0/1 a:1/2 b:0/1",
		"?groupBy=entity&offset=1":                                    "1/1/0/0/1 b:0/1",
	} {
		var w eventWindow
		s.do("GET", viewPath+query, "").is(200).has(&w)
		if got := w.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", query, got, want)
		}
	}
	var all eventWindow
	s.do("GET", "/api/lapwing/v1/namespaces/-/events/view?groupBy=namespace", "").is(200).has(&all)
	if got, want := all.String(), "1/2/0/0/1 default:1/3 dev:0/1"; got != want {
		t.Errorf("all namespaces: %s, want %s", got, want)
	}
	for query, message := range map[string]string{
		"?sort=name":            `sort: "name" is no order: it must be severity, since, entity, check, or one of them with a - before it`,
		"?groupBy=rack":         `groupBy: "rack" is no group: it must be entity, check, namespace or label:KEY`,
		"?limit=501":            `limit must be a number from 0 to 500, not "501"`,
		"?offset=-1":            `offset must be a number from 0 to 2147483647, not "-1"`,
		"?also=a/b":             `also must be namespace/entity/check, not "a/b"`,
		"?find=a//c":            `find must be namespace/entity/check, not "a//c"`,
		"?fieldSelector=nope==": "",
	} {
		a := s.do("GET", viewPath+query, "").is(400)
		if !strings.Contains(a.body, strings.ReplaceAll(message, `"`, `\"`)) {
			t.Errorf("%s: %s, want %s", query, a.body, message)
		}
	}
}

// TestEventRow: a row has what a list shows, and who acknowledged it only for those who may list silences.
func TestEventRow(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces/default/events", `{"timestamp":1000,"entity":{"metadata":{"name":"web1"},"entity_class":"proxy"},
		"check":{"metadata":{"name":"disk"},"status":2,"interval":60,"executed":990,"output":"\n disk is full \nmore"}}`).is(201)
	s.do("POST", "/api/lapwing/v1/namespaces/default/events/web1/disk/ack", `{"comment":"on it"}`).is(201)
	var w eventWindow
	s.do("GET", viewPath, "").is(200).has(&w)
	if len(w.Rows) != 1 {
		t.Fatalf("%d rows", len(w.Rows))
	}
	got, _ := json.Marshal(w.Rows[0])
	want := `{"namespace":"default","entity":"web1","check":"disk","status":2,"state":"failing","since":990,"occurrences":1,"last_ok":0,` +
		`"timestamp":1000,"interval":60,"output":"disk is full","history":[2],"silenced":["entity:web1:disk"],"acknowledged_by":"admin"}`
	if string(got) != want {
		t.Errorf("row:\n got %s\nwant %s", got, want)
	}
	if c := w.Counts; c.Silenced != 1 || c.Critical != 0 || c.Total != 1 {
		t.Errorf("counts: %+v", c)
	}
	s.grant("few", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	var few eventWindow
	s.do("GET", viewPath, "", "Authorization", "Bearer "+s.user("fred", "few")).is(200).has(&few)
	if few.Rows[0].AcknowledgedBy != "" {
		t.Error("a user who may not list silences sees who acknowledged")
	}
}

func TestEventViewStream(t *testing.T) {
	s := newServer(t, nil)
	s.event("default", "a", "x", 2)
	s.event("default", "b", "x", 0)
	l := s.follow(viewPath+"/stream?limit=1&also=default/b/x&find=default/b/x", s.token, "")
	if got := l.header.Get("Content-Type"); got != streamType {
		t.Errorf("type %q", got)
	}
	next := func() string {
		name, data, _ := strings.Cut(l.next(), " ")
		var w eventWindow
		if err := json.Unmarshal([]byte(data), &w); name != "window" || err != nil {
			t.Fatalf("the stream says %s %s", name, data)
		}
		return w.String()
	}
	wants := func(want string) {
		t.Helper()
		if got := next(); got != want {
			t.Fatalf("the stream says %s, want %s", got, want)
		}
	}
	wants("1/0/0/0/1 default/a/x a/x=2 b/x=0 at 1")
	s.event("default", "b", "x", 1)
	wants("1/1/0/0/0 b/x=1")
	s.event("default", "a", "x", 0)
	wants("0/1/0/0/1 default/b/x a/x=0 at 0") // a/x has left the window
	s.do("DELETE", eventsPath+"/b/x", "").is(204)
	wants("0/0/0/0/1 default/a/x -default/b/x at -1")
}

// TestRowsThatLeave: a client that holds its rows hears what became of those that have left the window.
func TestRowsThatLeave(t *testing.T) {
	s := newServer(t, nil)
	s.event("default", "a", "x", 1)
	s.event("default", "b", "x", 1)
	l := s.follow(viewPath+"/stream?limit=1&sort=entity&fieldSelector=event.is_incident%20==%20true", s.token, "")
	wants := func(want string) {
		t.Helper()
		_, data, _ := strings.Cut(l.next(), " ")
		var w eventWindow
		if err := json.Unmarshal([]byte(data), &w); err != nil || w.String() != want {
			t.Fatalf("the stream says %s, want %s", w.String(), want)
		}
	}
	wants("0/2/0/0/0 default/a/x a/x=1")
	s.event("default", "_", "x", 2) // it takes the place
	wants("1/2/0/0/0 default/_/x _/x=2")
	s.event("default", "a", "x", 2) // outside of the window
	wants("2/1/0/0/0 a/x=2")
	s.event("default", "a", "x", 0) // the list has it no longer
	wants("1/1/0/0/0 a/x=0 -default/a/x")
	s.event("default", "a", "x", 3)
	wants("1/1/1/0/0")
	s.do("DELETE", eventsPath+"/_/x", "").is(204)
	wants("0/1/1/0/0 default/a/x a/x=3 -default/_/x")
}

// TestEventViewLimited: a role that is limited by labels has a list of its own.
func TestEventViewLimited(t *testing.T) {
	s := newServer(t, nil)
	s.events(4) // of two regions
	s.grant("eu", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	who := s.user("of-eu", "eu")
	count := func(headers ...string) int {
		var w eventWindow
		s.do("GET", viewPath, "", headers...).is(200).has(&w)
		return w.Counts.Total
	}
	if all, own := count(), count("Authorization", "Bearer "+who); all != 4 || own != 2 {
		t.Errorf("%d and %d events, want 4 and 2", all, own)
	}
	// The stream ends when the role changes.
	l := s.follow(viewPath+"/stream", who, "")
	if got := l.next(); !strings.HasPrefix(got, "window ") {
		t.Fatalf("the stream says %s", got)
	}
	s.do(http.MethodDelete, "/api/core/v2/namespaces/default/roles/eu", "").is(204)
	l.wants("end")
}

// TestViewLeaves: a user who is limited by labels gets nothing of an event that has left what the user may see.
func TestViewLeaves(t *testing.T) {
	s := newServer(t, nil)
	s.grant("eu", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	token := s.user("ann", "eu")
	put := func(region, output string) {
		s.do("POST", eventsPath, `{"entity":{"metadata":{"name":"a","labels":{"region":"`+region+`"}},"entity_class":"proxy"},`+
			`"check":{"metadata":{"name":"x"},"status":2,"interval":60,"output":"`+output+`"}}`).is(201)
	}
	put("eu", "seen")
	l := s.follow(viewPath+"/stream", token, "")
	if got := l.next(); !strings.Contains(got, `"seen"`) {
		t.Fatalf("the first window: %s", got)
	}
	s.do("DELETE", "/api/core/v2/namespaces/default/entities/a", "").is(204)
	put("us", "hidden")
	for {
		got := l.next()
		if strings.Contains(got, "hidden") {
			t.Fatalf("the event of another region is shown: %s", got)
		}
		if strings.Contains(got, `"gone":["default/a/x"]`) {
			return
		}
	}
}
