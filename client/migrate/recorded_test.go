package migrate

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// recorded serves a Sensu 6.12 backend's recorded answers to lists, with some definitions of ours: testdata/sensu.json.
// It counts the requests that are not lists.
type recorded struct {
	*client.Client
	answers map[string]json.RawMessage
	denied  string // the path that is refused
	writes  int
}

func startRecorded(t *testing.T) *recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/sensu.json")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorded{}
	if err := json.Unmarshal(text, &r.answers); err != nil {
		t.Fatal(err)
	}
	r.refresh(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer, ok := r.answers[req.URL.Path]
		switch {
		case req.Method != http.MethodGet:
			r.writes++
		case r.denied != "" && req.URL.Path == r.denied:
			http.Error(w, `{"Code":4,"Message":"unauthorized to perform action"}`, http.StatusForbidden)
			return
		case strings.HasPrefix(req.URL.Path, "/api/enterprise/"):
			http.Error(w, `{"code":6,"message":"license required"}`, http.StatusPaymentRequired)
			return
		case ok:
			w.Header().Set("Content-Type", "application/json")
			writePage(w, req, answer)
			return
		}
		http.Error(w, `{"code":2,"message":"not found"}`, http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	if r.Client, err = client.New(client.Options{URL: srv.URL, APIKey: "k"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Client.Close)
	return r
}

// writePage answers with pages of three, whatever page size the client wants.
func writePage(w http.ResponseWriter, req *http.Request, answer json.RawMessage) {
	var list []json.RawMessage
	if json.Unmarshal(answer, &list) != nil {
		_, _ = w.Write(answer)
		return
	}
	from, _ := strconv.Atoi(req.URL.Query().Get("continue"))
	to := min(from+3, len(list))
	if to < len(list) {
		w.Header().Set("Sensu-Continue", strconv.Itoa(to))
	}
	_ = json.NewEncoder(w).Encode(list[from:to])
}

// refresh moves the recorded silences to the present. Otherwise all would have ended.
func (r *recorded) refresh(t *testing.T) {
	t.Helper()
	const path = "/api/core/v2/namespaces/shop/silenced"
	var list []map[string]any
	if err := json.Unmarshal(r.answers[path], &list); err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		begin, end := int64(s["begin"].(float64)), int64(s["expire_at"].(float64))
		s["begin"] = time.Now().Unix() - 60
		s["expire_at"] = time.Now().Unix() - 60 + end - begin
	}
	r.answers[path], _ = json.Marshal(list)
}

// TestSensu copies the recorded answers of a Sensu 6.12 backend.
func TestSensu(t *testing.T) {
	from, to := startRecorded(t), start(t)
	r := copyTo(t, to.options(NewServer("Sensu", from.Client)))
	if !r.Complete() || from.writes > 0 {
		t.Errorf("complete %v; %d writes to the source\n%s", r.Complete(), from.writes, printed(t, r))
	}
	for _, k := range r.Kinds {
		var want int
		for path, answer := range from.answers {
			var list []json.RawMessage
			if strings.HasSuffix(path, "/"+k.Plural) {
				if json.Unmarshal(answer, &list) != nil {
					list = []json.RawMessage{answer}
				}
				want += len(list)
			}
		}
		if left := map[string]int{"entities": 1}[k.Plural]; k.Source != want || k.Equal != want-left || k.Left != left {
			t.Errorf("%s: the source has %d; report %+v", k.Plural, want, k)
		}
	}
	// The state of a check follows from its history.
	var events []map[string]any
	if err := json.Unmarshal(from.answers["/api/core/v2/namespaces/shop/events"], &events); err != nil {
		t.Fatal(err)
	}
	states := map[string]bool{}
	for _, e := range events {
		want := e["check"].(map[string]any)
		entity, check := sub(sub(e, "entity"), "metadata")["name"].(string), sub(want, "metadata")["name"].(string)
		got := sub(to.get(t, client.Events.Path("shop", client.EventName(entity, check))), "check")
		for _, field := range []string{"status", "state", "occurrences", "occurrences_watermark", "last_ok",
			"total_state_change", "history", "output", "executed", "handlers"} {
			w, _ := json.Marshal(want[field])
			g, _ := json.Marshal(got[field])
			if string(w) != string(g) && !(field == "history" && jsonEqual(w, g)) {
				t.Errorf("%s/%s: %s is %s, want %s", entity, check, field, g, w)
			}
		}
		states[want["state"].(string)] = true
	}
	if !states["flapping"] || !states["passing"] || !states["failing"] {
		t.Errorf("the recording has only %v", states)
	}
	if m := r.remark(Lost, "Entity"); m == nil || m.Count != 3 {
		t.Errorf("remark on secrets: %+v", m)
	}
	if b, _ := json.Marshal(to.all(t, entityKind, "shop")); strings.Contains(string(b), "REDACTED") {
		t.Error("a placeholder was stored as a secret")
	}
	if again := copyTo(t, to.options(NewServer("Sensu", from.Client))); again.sent() > 0 {
		t.Errorf("the second run wrote:\n%s", printed(t, again))
	}
}

// TestDeniedSource uses a user who may not see everything in the source.
func TestDeniedSource(t *testing.T) {
	from, to := startRecorded(t), start(t)
	from.denied = "/api/core/v2/namespaces/shop/handlers"
	r := copyTo(t, to.options(NewServer("Sensu", from.Client)))
	if m := r.remark(Refused, "Handler"); r.Complete() || m == nil || !slices.Equal(m.Names, []string{"namespace shop"}) {
		t.Errorf("handlers of one namespace cannot be read:\n%s", printed(t, r))
	}
	if r.of(t, "handlers").Created != 1 || r.of(t, "checks").Created != 3 {
		t.Errorf("the rest is not copied:\n%s", printed(t, r))
	}
}

func jsonEqual(a, b []byte) bool {
	var x, y []map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return slices.EqualFunc(x, y, func(p, q map[string]any) bool { return p["status"] == q["status"] && p["executed"] == q["executed"] })
}

// TestSensuDump copies sensuctl's dump of the same backend.
func TestSensuDump(t *testing.T) {
	from, to := startRecorded(t), start(t)
	f, err := os.Open("testdata/dump.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	source, err := ReadFiles([]File{{Name: "dump.yaml", Data: f}}, "default")
	if err != nil {
		t.Fatal(err)
	}
	opts := to.options(source)
	opts.Skip = []string{"silenced"} // they have ended since
	r := copyTo(t, opts)
	if !r.Complete() {
		t.Errorf("not complete:\n%s", printed(t, r))
	}
	if m := r.remark(Noted, "Event"); m == nil || !strings.Contains(m.Reason, "leaves events out") {
		t.Errorf("nothing is said of the missing events:\n%s", printed(t, r))
	}
	// A copy from the running backend only adds what dumps do not have.
	opts = to.options(NewServer("Sensu", from.Client))
	opts.Skip, opts.DryRun = []string{"silenced", "events"}, true
	if r := copyTo(t, opts); r.sent() > 0 {
		t.Errorf("dump and backend differ:\n%s", printed(t, r))
	}
}
