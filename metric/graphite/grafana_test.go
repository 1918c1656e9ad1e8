package graphite

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// exchange is a request as Grafana's data source sends it, and the answer that it needs.
type exchange struct {
	Comment, Method, URL, Type, Body, Accept string
	// Answer is the whole answer, if it is not empty; Contains are parts of it.
	Answer   string
	Contains []string
}

// The file has a session of Grafana: the test of the data source, variables, the editor of targets and panels in
// browser mode, and alerts in server mode.
func TestGrafanaSession(t *testing.T) {
	text, err := os.ReadFile("testdata/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var session []exchange
	if err := json.Unmarshal(text, &session); err != nil {
		t.Fatal(err)
	}
	s := testStore(t)
	s.tagged = []string{"disk.used;dc=dc1;host=web01", "disk.used;dc=dc2;host=web02"}
	a := newAPI(t, s, nil)
	for _, e := range session {
		header := []string{"X-Dashboard-Id", "1", "X-Panel-Id", "2", "X-Grafana-Org-Id", "1"}
		if e.Accept != "" {
			header = append(header, "Accept", e.Accept)
		}
		w := do(a, e.Method, e.URL, e.Type, e.Body, header...)
		got := strings.TrimSpace(body(w))
		if w.Code != 200 {
			t.Errorf("%s: %d %s", e.Comment, w.Code, got)
			continue
		}
		if e.Answer != "" && got != e.Answer {
			t.Errorf("%s:\ngot  %s\nwant %s", e.Comment, got, e.Answer)
		}
		for _, part := range e.Contains {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q is missing in %.2000s", e.Comment, part, got)
			}
		}
	}
}

// Grafana finds the query of a series by the last word of its name.
func TestGrafanaReference(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	w := do(a, "POST", "/render", form, `target=aliasSub(sumSeries(servers.h1.cpu.*)%2C%20%22(%5E.*%24)%22%2C%20`+
		`%22%5C1%20my_ref%22)&from=1699999999&until=1700000399&format=json&maxDataPoints=10`)
	var list []struct {
		Target     string
		Datapoints [][2]*float64
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if words := strings.Fields(list[0].Target); words[len(words)-1] != "my_ref" || len(list[0].Datapoints) != 10 {
		t.Errorf("%+v", list[0])
	}
}
