package graphite

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var nan = math.NaN()

func newAPI(tb testing.TB, src Source, change func(*Options)) *API {
	tb.Helper()
	events, err := OpenEvents(EventOptions{Dir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = events.Close() })
	opts := Options{Source: func(*http.Request) (Source, error) { return src, nil }, Events: events,
		Now: func() time.Time { return time.Unix(1700000400, 0) }}
	if change != nil {
		change(&opts)
	}
	a, err := New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func do(a http.Handler, method, target, kind, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// different says why an answer differs from the recorded one on purpose, or is empty.
func (r *recorded) different() string {
	u, _ := url.Parse(r.URL)
	q := u.Query()
	switch {
	case r.Status >= 500:
		return "a crash of graphite-web"
	case strings.HasSuffix(q.Get("query"), ".") && q.Get("format") != "completer":
		return "the file finder takes a directory for the name before the dot"
	case strings.Contains(q.Get("target"), "é"):
		return "graphite-web's targets have ASCII letters only"
	case r.URL == "/tags/dc/" || strings.HasPrefix(r.URL, "/events/get_data/") || strings.HasSuffix(r.URL, "Percentile/"):
		return "a slash at the end makes no difference here"
	case strings.Contains(r.URL, "tags=web+nosuch"):
		return "all tags must match, even if one is unknown"
	case strings.HasPrefix(r.URL, "/functions"):
		return "the functions are described in other words"
	case strings.HasPrefix(r.Body, "target=offset%28&"):
		return "a target without an end is an error"
	case q.Get("format") == "rickshaw" && strings.Contains(r.Answer, "Infinity"):
		return "a bare Infinity is no JSON"
	}
	return ""
}

func TestRecordedAnswers(t *testing.T) {
	rec := readRecording(t, "testdata/recorded.json")
	a := newAPI(t, newStore(t, rec), nil)
	same := 0
	for i := range rec.Answers {
		r := &rec.Answers[i]
		if r.different() != "" {
			continue
		}
		same++
		var header []string
		if r.Accept != nil {
			header = []string{"Accept", *r.Accept}
		}
		got := do(a, r.Method, r.URL, r.BodyType, r.Body, header...)
		where := r.Method + " " + r.URL + " " + r.Body
		if got.Code != r.Status {
			t.Errorf("%s\nstatus %d, want %d: %s", where, got.Code, r.Status, got.Body)
			continue
		}
		if r.Status >= 400 && !strings.HasPrefix(r.Answer, "{") {
			continue // the texts are our own
		}
		if kind, want := got.Header().Get("Content-Type"), r.Type; kind != want && !strings.HasPrefix(want, "text/html") {
			t.Errorf("%s\nContent-Type %q, want %q", where, kind, want)
		}
		checkCache(t, where, got.Header().Get("Cache-Control"), r.Cache)
		checkAnswer(t, where, r, got.Body.Bytes())
	}
	if same < 200 {
		t.Errorf("only %d recorded answers were compared", same)
	}
}

func checkCache(t *testing.T, where, got, want string) {
	t.Helper()
	if strings.HasPrefix(want, "max-age=") && !strings.Contains(want, "private") {
		want += ", private"
	}
	if want != "" && got != want {
		t.Errorf("%s\nCache-Control %q, want %q", where, got, want)
	}
}

func checkAnswer(t *testing.T, where string, r *recorded, got []byte) {
	t.Helper()
	want := []byte(r.Answer)
	if r.Answer64 != "" {
		want, _ = base64.StdEncoding.DecodeString(r.Answer64)
	}
	var same bool
	switch kind, _, _ := mime.ParseMediaType(r.Type); {
	case kind == "application/pickle":
		return // TestPickle checks these
	case kind == "application/x-msgpack":
		same = reflect.DeepEqual(unpack(t, got), unpack(t, want))
	case strings.Contains(r.URL, "/render") || r.Accept != nil ||
		strings.Contains(r.URL, "pretty") && !strings.HasPrefix(r.URL, "/tags"):
		// To the byte, except for the order of tags.
		same = bytes.Equal(got, want) || strings.Contains(r.Answer, `"tags": {`) &&
			reflect.DeepEqual(decode(t, where, got), decode(t, where, want)) && strings.Contains(r.Body, "target=")
	case kind == "application/json":
		same = reflect.DeepEqual(decode(t, where, got), decode(t, where, want))
	default:
		same = bytes.Equal(got, want)
	}
	if !same {
		t.Errorf("%s\ngot  %s\nwant %s", where, got, want)
	}
}

func unpack(t *testing.T, b []byte) any {
	t.Helper()
	d := msgpack.NewDecoder(bytes.NewReader(b))
	d.UseLooseInterfaceDecoding(true)
	v, err := d.DecodeInterface()
	if err != nil {
		t.Errorf("msgpack: %v", err)
	}
	return normal(v)
}

func decode(t *testing.T, where string, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Errorf("%s\n%v in %s", where, err, b)
	}
	return normal(v)
}

// normal removes the numbers of rows in graphite-web's database, which tags have, and sorts nodes by path: graphite-web
// leaves nodes of one name in the order of the directories on its disk.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["tag"]; ok || v["count"] != nil {
			delete(v, "id")
		}
		for k := range v {
			v[k] = normal(v[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
		slices.SortStableFunc(v, func(a, b any) int { return strings.Compare(pathOf(a), pathOf(b)) })
		return v
	}
	return v
}

func pathOf(v any) string {
	node, _ := v.(map[string]any)
	path, _ := node["path"].(string)
	return path
}

func body(w *httptest.ResponseRecorder) string {
	b, _ := io.ReadAll(w.Body)
	return string(b)
}
