package graphite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func open(t *testing.T, dir string, limit int) (*Events, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	e, err := OpenEvents(EventOptions{Dir: dir, Max: limit, Registerer: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, r
}

func add(t *testing.T, e *Events, what string, when int64, tags ...string) int64 {
	t.Helper()
	id, err := e.Add(Event{What: what, When: when, Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func whats(list []Event) string {
	var names []string
	for _, e := range list {
		names = append(names, e.What)
	}
	return strings.Join(names, " ")
}

func TestEventRange(t *testing.T) {
	e, _ := open(t, t.TempDir(), 0)
	add(t, e, "c", 30, "x", "y")
	add(t, e, "a", 10, "x")
	add(t, e, "b", 20)
	for _, c := range []struct {
		from, until int64
		tags        []string
		union       bool
		want        string
	}{
		{0, 100, nil, false, "a b c"}, {10, 20, nil, false, "a b"}, {11, 19, nil, false, ""}, {0, 100, []string{"x"},
			false, "a c"},
		{0, 100, []string{"x", "y"}, false, "c"}, {0, 100, []string{"y", "z"}, true, "c"}, {0, 100, []string{"z"}, true, ""},
		{0, 100, nil, true, "a b c"}, {0, 100, []string{"x", "z"}, false, ""},
	} {
		if got := whats(e.Range(c.from, c.until, c.tags, c.union)); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestEventsStay(t *testing.T) {
	dir := t.TempDir()
	e, _ := open(t, dir, 0)
	add(t, e, "one\ntwo", 1, "a")
	add(t, e, "é", 2)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Add(Event{What: "late"}); err == nil {
		t.Error("a closed store takes events")
	}
	e, _ = open(t, dir, 0)
	if got := whats(e.Range(0, 9, nil, false)); got != "one\ntwo é" {
		t.Errorf("%q", got)
	}
	if id := add(t, e, "three", 3); id != 3 {
		t.Errorf("id %d", id)
	}
	if got, ok := e.Get(2); !ok || got.What != "é" {
		t.Errorf("%+v %v", got, ok)
	}
	if _, ok := e.Get(9); ok {
		t.Error("event 9 is there")
	}
}

// The file has a broken line, a line that is too long, and a last line that was cut off.
func TestDamagedLines(t *testing.T) {
	dir := t.TempDir()
	text := `{"id":1,"when":1,"what":"a"}` + "\n{broken\n" + strings.Repeat("x", maxEventLine+5) + "\n\n" +
		`{"id":-4,"when":1,"what":"b"}` + "\n" + `{"id":7,"when":2,"what":"c"}` + "\n" + `{"id":8,"when":3,"wh`
	file := filepath.Join(dir, eventsFile)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, r := open(t, dir, 0)
	if got := whats(e.Range(0, 9, nil, false)); got != "a c" {
		t.Errorf("%q", got)
	}
	const name = "lapwing_metric_graphite_event_lines_damaged_total"
	want := "# HELP " + name + " Lines of the events file that could not be read at the start.\n" +
		"# TYPE " + name + " counter\n" + name + " 5\n"
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
	if id := add(t, e, "d", 4); id != 8 {
		t.Errorf("id %d", id)
	}
	_ = e.Close()
	e, _ = open(t, dir, 0)
	if got := whats(e.Range(0, 9, nil, false)); got != "a c d" {
		t.Errorf("after another start: %q", got)
	}
}

func TestOldestEventsLeave(t *testing.T) {
	dir := t.TempDir()
	e, _ := open(t, dir, 5)
	for i := range 23 {
		add(t, e, fmt.Sprint(i), int64(i))
	}
	const want = "18 19 20 21 22"
	if got := whats(e.Range(0, 99, nil, false)); got != want {
		t.Errorf("%q", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, eventsFile))
	if lines := strings.Count(string(text), "\n"); err != nil || lines > 10 {
		t.Errorf("%d lines, %v", lines, err)
	}
	_ = e.Close()
	e, _ = open(t, dir, 5)
	if got := whats(e.Range(0, 99, nil, false)); got != want {
		t.Errorf("after another start: %q", got)
	}
	if id := add(t, e, "x", 99); id != 24 {
		t.Errorf("id %d", id)
	}
}

// A write that fails leaves neither an event nor a part of a line.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	e, _ := open(t, dir, 0)
	add(t, e, "a", 1)
	good := e.file
	bad, err := os.Open(filepath.Join(dir, eventsFile)) // not writable
	if err != nil {
		t.Fatal(err)
	}
	e.file = bad
	if _, err := e.Add(Event{What: "b", When: 2}); err == nil {
		t.Fatal("no error")
	}
	_ = bad.Close()
	e.file = good
	if _, err := good.Write([]byte(`{"id":2,"wh`)); err != nil { // a part of a line, as on a full disk
		t.Fatal(err)
	}
	if id := add(t, e, "c", 3); id != 2 {
		t.Errorf("id %d", id)
	}
	_ = e.Close()
	e, _ = open(t, dir, 0)
	if got := whats(e.Range(0, 9, nil, false)); got != "a c" {
		t.Errorf("%q", got)
	}
}

func TestEventOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []EventOptions{{}, {Dir: t.TempDir(), Max: -1}, {Dir: file}} {
		if _, err := OpenEvents(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestPostEvent(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	for _, c := range []struct {
		text string
		want int
	}{
		{`{"what":"a","tags":null,"data":null}`, 200}, {`{"what":"b","when":"1700000001.9","data":{"x":1}}`, 200},
		{`{"what":5}`, 400}, {`{}`, 400},
		{`[]`, 400}, {`{"what":"a","when":"soon"}`, 400}, {`{"what":"a","when":1e300}`, 400}, {`{"what":"a","tags":{}}`, 400},
		{`{"what":"` + strings.Repeat("a", maxWhat+1) + `"}`, 400},
		{`{"what":"a","data":"` + strings.Repeat("a", maxData+1) + `"}`, 400},
		{`{"what":"a","tags":"` + strings.Repeat("a ", maxTags+1) + `"}`, 400},
		{`{"what":"a","tags":["` + strings.Repeat("a", maxTag+1) + `"]}`, 400},
	} {
		if w := do(a, "POST", "/events/", form, c.text); w.Code != c.want {
			t.Errorf("%.60s: %d %s", c.text, w.Code, body(w))
		}
	}
	w := do(a, "GET", "/events", "", "")
	if got := body(w); got != `[{"when": 1700000001, "what": "b", "data": "{\"x\":1}", "tags": [], "id": 2}, `+
		`{"when": 1700000400, "what": "a", "data": "", "tags": [], "id": 1}]` {
		t.Error(got)
	}
	a = newAPI(t, testStore(t), func(o *Options) { o.Events = nil })
	for _, path := range []string{"/events", "/events/get_data", "/events/1"} {
		if w := do(a, "GET", path, "", ""); w.Code != 404 {
			t.Errorf("%s without events: %d", path, w.Code)
		}
	}
}
