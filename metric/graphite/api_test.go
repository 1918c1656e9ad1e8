package graphite

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/metric/render"
)

const form = "application/x-www-form-urlencoded"

// slow is a store whose Nodes wait for the end of the context or of wait.
type slow struct {
	*store
	began chan struct{}
	wait  chan struct{}
}

func (s *slow) Nodes(ctx context.Context, pattern string) ([]Node, error) {
	s.began <- struct{}{}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("find %s: %w", pattern, ctx.Err())
	case <-s.wait:
		return s.store.Nodes(ctx, pattern)
	}
}

// failing is a store whose Nodes fail.
type failing struct {
	*store
	err error
}

func (f *failing) Nodes(context.Context, string) ([]Node, error) { return nil, f.err }

func testStore(tb testing.TB) *store {
	return newStore(tb, readRecording(tb, "testdata/recorded.json"))
}

func TestMethods(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"PUT", "/render", 405}, {"DELETE", "/metrics/find", 405}, {"GET", "/tags/tagSeries", 405},
		{"GET", "/tags/delSeries", 405},
		{"POST", "/tags/dc", 405}, {"POST", "/tags", 405}, {"PUT", "/events", 405}, {"GET", "/nosuch", 404},
		{"GET", "/", 200},
		{"GET", "", 200}, {"GET", "/version/", 200}, {"HEAD", "/version", 200}, {"GET", "/tags/", 200},
		{"GET", "/events/x", 404},
		{"GET", "/metrics/index.json/", 200}, {"GET", "/metrics?query=*", 200}, {"GET", "/metrics/?query=*", 200},
		{"GET", "/metrics/set-metadata", 404}, {"GET", "/events", 200}, {"GET", "/events/get_data/", 200},
	} {
		r := httptest.NewRequest(c.method, "http://h/", nil)
		path, query, _ := strings.Cut(c.path, "?")
		r.URL.Path, r.URL.RawQuery = path, query
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, c.want, w.Body)
		}
		if w.Code == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
	}
}

// The path may come without its slash from a caller that strips a prefix.
func TestRelativePath(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	for _, prefix := range []string{"/api/lapwing/v1/graphite", "/x/"} {
		w := do(http.StripPrefix(prefix, a), "GET", strings.TrimSuffix(prefix, "/")+"/metrics/expand?query=t*", "", "")
		if got := body(w); got != `{"results": ["top"]}` {
			t.Errorf("%s: %d %s", prefix, w.Code, got)
		}
	}
}

func TestHead(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	for _, path := range []string{"/version", "/metrics/index.json",
		"/render?target=servers.*.*.*&format=json&from=1700000000"} {
		w := do(a, "HEAD", path, "", "", "Accept-Encoding", "gzip")
		if w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("%s: %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
}

func TestParameters(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	_ = m.WriteField("query", "servers.h2.*")
	_ = m.WriteField("format", "completer")
	_ = m.Close()
	for _, c := range []struct{ path, kind, body, want string }{
		{"/metrics/expand?query=t*&query=a.*", form, "query=servers.h2.*",
			`{"results": ["a.b,c", "servers.h2.cpu", "servers.h2.load", "top"]}`},
		{"/metrics/expand", form + "; charset=utf-8", "query[]=t*", `{"results": ["top"]}`},
		{"/metrics/expand?query=t*", "application/json", `{"query": "x"}`, `{"results": ["top"]}`},
		{"/metrics/find?query=nosuch", m.FormDataContentType(), b.String(),
			`{"metrics": [{"path": "servers.h2.cpu.", "name": "cpu", "is_leaf": "0"}, ` +
				`{"path": "servers.h2.cpu", "name": "cpu", "is_leaf": "1"}, ` +
				`{"path": "servers.h2.load", "name": "load", "is_leaf": "1"}]}`},
		{"/tags/tagSeries", form, "path=disk;host=a;dc=b", `"disk;dc=b;host=a"`},
	} {
		w := do(a, "POST", c.path, c.kind, c.body)
		if got := body(w); got != c.want {
			t.Errorf("%s: %d %s", c.path, w.Code, got)
		}
	}
}

func TestParseQuery(t *testing.T) {
	for _, c := range []struct {
		query, name string
		want        []string
	}{
		{"a=1&a=2&b=3", "a", []string{"1", "2"}}, {"a", "a", []string{""}}, {"a=b=c", "a", []string{"b=c"}},
		{"a=x;y=z", "a", []string{"x;y=z"}}, {"a=%zz%4", "a", []string{"%zz%4"}}, {"a=%c3%A9+%2b", "a", []string{"é +"}},
		{"a=%ff", "a", []string{"\ufffd"}}, {"%61=1", "a", []string{"1"}}, {"&&=1&", "", []string{"1"}},
	} {
		p := params{}
		if err := p.parse(c.query); err != nil || !slices.Equal(p[c.name], c.want) {
			t.Errorf("%q: %q, %v", c.query, p[c.name], err)
		}
	}
	if err := (params{}).parse(strings.Repeat("a&", maxParams)); err == nil {
		t.Error("too many parameters are no error")
	}
}

func FuzzParams(f *testing.F) {
	a := newAPI(f, testStore(f), nil)
	for _, q := range []string{"target=top&format=json&maxDataPoints=3",
		"query=servers.{h1,h2}.*&format=completer&wildcards=1",
		"a=%zz&template[x]=1&tz=Europe/Berlin&from=-1d", "jsonp=f&pretty=1&xFilesFactor=nan&cacheTimeout=-5",
		"position=-9&format=nodelist&query=*",
		"width=100&height=-3&areaMode=all&colorList=red,#fff&target=top&format=svg&logBase=e&yMin=5&yMax=1&lineMode=x"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		for _, path := range []string{"/metrics/find", "/metrics/expand", "/render", "/tags/autoComplete/values",
			"/events/get_data"} {
			r := httptest.NewRequest("GET", path, nil)
			r.URL.RawQuery = q
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code >= 500 {
				t.Errorf("%s?%s: %d %s", path, q, w.Code, w.Body)
			}
			if w.Code == 200 && w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) &&
				!strings.Contains(q, "dygraph") {
				t.Errorf("%s?%s: no JSON: %s", path, q, w.Body)
			}
		}
	})
}

func FuzzParseEvent(f *testing.F) {
	for _, s := range []string{`{"what":"a","tags":"b c","when":1.5}`,
		`{"what":"a","tags":["b"],"data":{"x":1},"when":"7"}`, `[]`, `{"what":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEvent(b, time.Unix(5, 0))
		if err == nil && (e.What == "" || len(e.Tags) > maxTags || len(e.Data) > maxData) {
			t.Errorf("%q: %+v", b, e)
		}
	})
}

func FuzzJSONText(f *testing.F) {
	f.Add("a\"\\\x00\u2028é\U0001F600\xff\x7f")
	f.Fuzz(func(t *testing.T, s string) {
		for _, ascii := range []bool{false, true} {
			b := appendText(nil, s, ascii)
			var back string
			if err := json.Unmarshal(b, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") &&
				!strings.ContainsRune(s, 0xfffd) {
				want := []rune(s) // a wrong byte is one U+FFFD each
				if err != nil || string(want) != back {
					t.Errorf("%q: %q, %v", s, b, err)
				}
			}
			if ascii && slices.ContainsFunc(b, func(c byte) bool { return c >= 0x7f }) {
				t.Errorf("%q: %q", s, b)
			}
		}
	})
}

func TestFloats(t *testing.T) {
	for _, c := range []struct {
		f    float64
		want string
	}{
		{0, "0.0"}, {math.Copysign(0, -1), "-0.0"}, {1, "1.0"}, {-5, "-5.0"}, {0.1, "0.1"}, {1e15, "1000000000000000.0"},
		{9007199254740993, "9007199254740992.0"}, {9.999999999999998e15, "9999999999999998.0"}, {1e16, "1e+16"},
		{1e22, "1e+22"},
		{1.5e300, "1.5e+300"}, {1e-4, "0.0001"}, {9.9e-5, "9.9e-05"}, {5e-324, "5e-324"}, {1.0 / 3, "0.3333333333333333"},
		{123456789.125, "123456789.125"},
	} {
		if got := string(appendFloat(nil, c.f)); got != c.want {
			t.Errorf("%g: %s, want %s", c.f, got, c.want)
		}
	}
}

func TestJSONP(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	for name, want := range map[string]int{"f": 200, "jQuery.cb_1[0]": 200, "alert(1)": 400, "<script>": 400, "é": 400,
		strings.Repeat("a", maxCallback+1): 400} {
		r := httptest.NewRequest("GET", "/metrics/index.json", nil)
		r.URL.RawQuery = "jsonp=" + name
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	a = newAPI(t, testStore(t), func(o *Options) { o.DisableJSONP = true })
	if w := do(a, "GET", "/metrics/index.json?jsonp=f", "", ""); w.Code != 400 {
		t.Errorf("disabled: %d", w.Code)
	}
}

func TestGzip(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	const large = "/render?target=servers.*.*.*&target=servers.*.*&format=json&from=1699999999&until=1700000399"
	plain := do(a, "GET", large, "", "")
	if plain.Header().Get("Content-Encoding") != "" || plain.Body.Len() < gzipFrom {
		t.Fatalf("plain: %v, %d bytes", plain.Header(), plain.Body.Len())
	}
	w := do(a, "GET", large, "", "", "Accept-Encoding", "br, gzip;q=0.5")
	if w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("Vary") != "Accept-Encoding" {
		t.Fatalf("header: %v", w.Header())
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || !bytes.Equal(text, plain.Body.Bytes()) {
		t.Errorf("the compressed answer differs: %v", err)
	}
	for _, header := range []string{"", "gzip;q=0", "identity", "gzip;q=x"} {
		if takesGzip(header) {
			t.Errorf("%q takes gzip", header)
		}
	}
	if w := do(a, "GET", "/version", "", "", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "" ||
		w.Header().Get("Content-Length") != "7" {
		t.Errorf("small: %v", w.Header())
	}
}

func TestLimits(t *testing.T) {
	a := newAPI(t, testStore(t), func(o *Options) { o.MaxRequestBytes = 100 })
	if w := do(a, "POST", "/metrics/find", form, "query="+strings.Repeat("a", 200)); w.Code != 413 ||
		!strings.Contains(body(w), "100 bytes") {
		t.Errorf("form: %d", w.Code)
	}
	if w := do(a, "POST", "/events", "", `{"what":"`+strings.Repeat("a", 200)+`"}`); w.Code != 413 {
		t.Errorf("event: %d", w.Code)
	}
	if w := do(a, "GET", "/metrics/expand?"+strings.Repeat("query=a&", maxQueries+1), "", ""); w.Code != 400 {
		t.Errorf("expand: %d", w.Code)
	}
	for _, limit := range []string{"x", "-1"} {
		if w := do(a, "GET", "/tags/autoComplete/tags?limit="+limit, "", ""); w.Code != 400 ||
			!strings.HasPrefix(body(w), `{"error": "`) {
			t.Errorf("limit %s: %d", limit, w.Code)
		}
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{store: testStore(t), began: make(chan struct{}, 1), wait: make(chan struct{})}
		a := newAPI(t, s, nil)
		start := time.Now()
		w := do(a, "GET", "/metrics/find?query=*", "", "")
		if took := time.Since(start); w.Code != http.StatusGatewayTimeout || took != 30*time.Second {
			t.Errorf("%d after %v", w.Code, took)
		}
		if text := body(w); text != "the query took longer than 30s: narrow the pattern or the range\n" {
			t.Error(text)
		}
		if n := testutil.ToFloat64(a.metrics.timedOut); n != 1 {
			t.Errorf("timed out: %v", n)
		}
	})
}

func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{store: testStore(t), began: make(chan struct{}, 2), wait: make(chan struct{})}
		a := newAPI(t, s, func(o *Options) { o.MaxConcurrent = 1 })
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- do(a, "GET", "/metrics/find?query=*", "", "") }()
		<-s.began
		start := time.Now()
		w := do(a, "GET", "/metrics/find?query=*", "", "")
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || time.Since(start) != 2*time.Second {
			t.Errorf("second: %d %v", w.Code, w.Header())
		}
		if w := do(a, "GET", "/version", "", ""); w.Code != 200 {
			t.Errorf("version while busy: %d", w.Code)
		}
		go func() { done <- do(a, "GET", "/metrics/find?query=*", "", "") }()
		synctest.Wait() // the third waits for the first
		close(s.wait)
		for range 2 {
			if w := <-done; w.Code != 200 {
				t.Errorf("first or third: %d", w.Code)
			}
		}
		if testutil.ToFloat64(a.metrics.running) != 0 || testutil.ToFloat64(a.metrics.refused) != 1 {
			t.Error("wrong metrics")
		}
	})
}

func TestClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &slow{store: testStore(t), began: make(chan struct{}, 1), wait: make(chan struct{})}
	a := newAPI(t, s, nil)
	cancel()
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "/metrics/find?query=*", nil).WithContext(ctx))
	if n := testutil.ToFloat64(a.metrics.requests.WithLabelValues("find", "refused")); n != 1 || w.Body.Len() != 0 {
		t.Errorf("%v requests, %q", n, w.Body)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{badError{errors.New("pattern [: no end")}, 400, "pattern [: no end\n"},
		{fmt.Errorf("find: %w", &StatusError{403, "not yours"}), 403, "not yours\n"},
		{errors.New("the disk is broken"), 500, "the query failed; the server's log says why\n"},
	} {
		var log bytes.Buffer
		a := newAPI(t, &failing{testStore(t), c.err}, func(o *Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log,
				nil))
		})
		w := do(a, "GET", "/metrics/find?query=*", "", "")
		if got := body(w); w.Code != c.code || got != c.text {
			t.Errorf("%v: %d %q", c.err, w.Code, got)
		}
		if (c.code == 500) != strings.Contains(log.String(), "the disk is broken") {
			t.Errorf("%v: log %q", c.err, log.String())
		}
	}
	a := newAPI(t, nil, func(o *Options) {
		o.Source = func(*http.Request) (Source, error) { return nil, &StatusError{401, "sign in"} }
	})
	if w := do(a, "GET", "/metrics/find?query=*", "", ""); w.Code != 401 {
		t.Errorf("source: %d", w.Code)
	}
}

func TestMayWrite(t *testing.T) {
	a := newAPI(t, testStore(t), func(o *Options) {
		o.MayWrite = func(*http.Request) error { return &StatusError{403, "read only"} }
	})
	for path, text := range map[string]string{"/tags/tagSeries": "path=a;b=c", "/tags/delSeries": "path=a",
		"/tags/tagMultiSeries": "path=a",
		"/events":              `{"what":"a"}`} {
		if w := do(a, "POST", path, form, text); w.Code != 403 || body(w) != `{"error": "read only"}` {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := do(a, "POST", "/tags/findSeries", form, "expr=a=b"); w.Code != 200 {
		t.Errorf("findSeries: %d", w.Code)
	}
}

func TestMetadata(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	w := do(a, "GET", "/metrics/get-metadata?metric=top&metric=no.such&key=aggregationMethod", "", "")
	if got := body(w); got != `{"top": {"value": "average"}, "no.such": {"error": "no series no.such"}}` {
		t.Error(got)
	}
	a = newAPI(t, struct{ Source }{testStore(t)}, nil)
	if w := do(a, "GET", "/metrics/get-metadata?metric=top&key=aggregationMethod", "", ""); w.Code != 404 {
		t.Errorf("without metadata: %d", w.Code)
	}
}

func TestOptions(t *testing.T) {
	r := prometheus.NewRegistry()
	for range 2 { // two APIs share their metrics
		newAPI(t, testStore(t), func(o *Options) { o.Registerer = r })
	}
	for name, o := range map[string]Options{"empty": {}, "negative": {Source: func(*http.Request) (Source,
		error) {
		return nil, nil
	},
		QueryTimeout: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkRenderJSON(b *testing.B) {
	list := make([]*render.Series, 20)
	for i := range list {
		s := &render.Series{Name: fmt.Sprintf("servers.h%d.cpu.user", i), Start: 1700000000, Step: 10,
			Values: make([]float64, 1000)}
		for k := range s.Values {
			s.Values[k] = float64(k*i) / 7
		}
		list[i] = s
	}
	b.ReportAllocs()
	for b.Loop() {
		w := newAnswer(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		c := &call{ctx: b.Context(), w: w, params: params{}}
		if err := c.renderJSON(list, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(20_000*float64(b.N)/b.Elapsed().Seconds(), "points/s")
}

func TestImages(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	const target = "/render?target=servers.*.*.*&from=1699999999&until=1700000399"
	for _, c := range []struct {
		query, kind, begin string
		code               int
	}{
		{"", "image/png", "\x89PNG", 200}, {"&format=gif&width=100", "image/png", "\x89PNG", 200},
		{"&format=svg&title=<script>", "image/svg+xml", "<?xml", 200},
		{"&format=svg&jsonp=f", "text/javascript", `f("<?xml`, 200},
		{"&format=svg&width=9999999", "text/plain; charset=utf-8", "parameter width: ", 400},
		{"&format=pdf", "text/plain; charset=utf-8", "parameter format: ", 400},
		{"&graphType=pie", "text/plain; charset=utf-8", "parameter graphType: ", 400},
		{"&format=json&width=x", "application/json", "[{", 200},
		{"&width=700&height=300&title=drawn&target=dashed(threshold(5,'limit','red'))" +
			"&target=areaBetween(servers.h1.cpu.*)&target=secondYAxis(servers.h2.cpu.user)" +
			"&target=drawAsInfinite(removeBelowValue(servers.h1.cpu.user,38))", "image/png", "\x89PNG", 200},
	} {
		w := do(a, "GET", target+c.query, "", "")
		got := body(w)
		if w.Code != c.code || w.Header().Get("Content-Type") != c.kind || !strings.HasPrefix(got, c.begin) {
			t.Errorf("%s: %d %s %.60q", c.query, w.Code, w.Header(), got)
		}
		if strings.Contains(got, "<script>") {
			t.Errorf("%s: the title is not escaped", c.query)
		}
	}
	if w := do(a, "GET", "/render?target=no.such", "", ""); w.Code != 200 ||
		w.Header().Get("Content-Type") != "image/png" {
		t.Errorf("no data: %d", w.Code)
	}
}

// broken is a store whose All fails after many names.
type broken struct{ *store }

func (b *broken) All(_ context.Context, f func(string) bool) error {
	for range 10_000 {
		f("a.long.name.of.a.series")
	}
	return errors.New("the disk is broken")
}

// An answer that is partly sent cannot become an error any more. The connection ends, so that clients see it.
func TestCutOff(t *testing.T) {
	server := httptest.NewServer(newAPI(t, &broken{testStore(t)}, nil))
	defer server.Close()
	r, err := server.Client().Get(server.URL + "/metrics/index.json")
	if err == nil {
		_, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	if err == nil {
		t.Error("the answer has an orderly end")
	}
}

func TestFunctions(t *testing.T) {
	a := newAPI(t, testStore(t), nil)
	var all map[string]struct{ Group, Function string }
	if err := json.Unmarshal(do(a, "GET", "/functions", "", "").Body.Bytes(), &all); err != nil || len(all) < 60 {
		t.Errorf("%d functions: %v", len(all), err)
	}
	var grouped map[string]map[string]json.RawMessage
	if err := json.Unmarshal(do(a, "GET", "/functions?grouped=1", "", "").Body.Bytes(), &grouped); err != nil {
		t.Error(err)
	}
	count := 0
	for _, group := range grouped {
		count += len(group)
	}
	if count != len(all) || len(grouped["Combine"]) == 0 {
		t.Errorf("%d functions in groups, %d without", count, len(all))
	}
	var combine map[string]json.RawMessage
	if err := json.Unmarshal(do(a, "GET", "/functions?group=Combine", "", "").Body.Bytes(), &combine); err != nil ||
		len(combine) != len(grouped["Combine"]) {
		t.Errorf("%d functions in Combine: %v", len(combine), err)
	}
	if got := body(do(a, "GET", "/functions/sumSeries/", "", "")); !strings.HasPrefix(got,
		`{"name": "sumSeries", "function": "sumSeries(`) {
		t.Error(got)
	}
	if got := body(do(a, "GET", "/functions?type=pie", "", "")); got != "{}" {
		t.Error(got)
	}
	if got := body(do(a, "GET", "/functions/removeEmptySeries", "", "")); strings.Contains(got, "Inf") {
		t.Error(got)
	}
	w := do(a, "GET", "/functions/nosuch", "", "")
	if got := body(w); w.Code != 404 || got != `{"error": "Function not found: nosuch"}` {
		t.Errorf("%d %s", w.Code, got)
	}
}

func TestWrongTargets(t *testing.T) {
	a := newAPI(t, testStore(t), func(o *Options) { o.MaxPoints = 100 })
	const span = "&from=1699999999&until=1700000399&format=json"
	for query, want := range map[string]string{
		"target=nosuch(top)": "nosuch", "target=scale(top%2C'x')": "scale", "target=sumSeries(top": "sumSeries(top",
		"target=servers.*.cpu.*&target=servers.*.*": "the limit is 100", "target=top&from=never": "parameter from: ",
		"target=top&until=1699999999": "the range is empty", "target=servers.[": "servers.[",
	} {
		w := do(a, "GET", "/render?"+strings.TrimPrefix(span, "&")+"&"+query, "", "")
		if got := body(w); w.Code != 400 || !strings.Contains(got, want) ||
			w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %s", query, w.Code, got)
		}
	}
}
