package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// base is the time of the first sample of store, in seconds.
const base = 1_700_000_000

// store is a TSDB with an hour of samples every 15 s.
func store(t testing.TB) *tsdb.DB {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	app := db.Appender(t.Context())
	for i := range int64(241) {
		at := (base + 15*i) * 1000
		for _, s := range []struct {
			labels []string
			value  float64
		}{
			{[]string{"__name__", "up", "job", "node", "instance", "h1:9100"}, 1},
			{[]string{"__name__", "up", "job", "node", "instance", "h2:9100"}, 0},
			{[]string{"__name__", "requests_total", "code", "200"}, float64(15 * i)},
			{[]string{"__name__", "servers.h1.cpu"}, float64(i % 4)},
			{[]string{"__name__", "odd", "kind", "inf"}, math.Inf(1)},
			{[]string{"__name__", "odd", "kind", "nan"}, math.NaN()},
		} {
			if _, err := app.Append(0, labels.FromStrings(s.labels...), at, s.value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return db
}

func newAPI(t testing.TB, change func(*Options)) *API {
	t.Helper()
	o := Options{Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Version: "2.0.0"}
	change(&o)
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func viewOf(db storage.Queryable) func(*http.Request) (storage.Queryable, error) {
	return func(*http.Request) (storage.Queryable, error) { return db, nil }
}

func do(a http.Handler, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// TestRequests sends what Grafana's data source sends, and the odd requests that scripts send.
func TestRequests(t *testing.T) {
	t.Parallel()
	db := store(t)
	a := newAPI(t, func(o *Options) {
		o.Queryable = viewOf(db)
		o.MaxListed = 3
		o.MaxQueryBytes = 200
		o.MaxFormBytes = 2000
	})
	const at = "&time=1700000600"
	for _, c := range []struct {
		name, method, target, body string
		status                     int
		want                       string
	}{
		{"health check of the data source", "POST", "/api/v1/query", "query=1%2B1&time=1700000000", 200,
			`{"status":"success","data":{"resultType":"scalar","result":[1700000000,"2"]}}`},
		{"build information", "GET", "/api/v1/status/buildinfo", "", 200, `"version":"2.0.0"`},
		{"instant vector", "GET", `/api/v1/query?query=up{instance="h1:9100"}` + at, "", 200,
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","instance":"h1:9100",` +
				`"job":"node"},"value":[1700000600,"1"]}]}}`},
		{"a UTF-8 name", "GET", "/api/v1/query?query=" + url.QueryEscape(`{"servers.h1.cpu"}`) + at, "", 200,
			`[{"metric":{"__name__":"servers.h1.cpu"},"value":[1700000600,"0"]}]`},
		{"infinity", "GET", `/api/v1/query?query=odd{kind="inf"}` + at, "", 200, `"value":[1700000600,"+Inf"]`},
		{"not a number", "GET", `/api/v1/query?query=odd{kind="nan"}` + at, "", 200, `"value":[1700000600,"NaN"]`},
		{"a string", "GET", `/api/v1/query?query="x"&time=1700000000.5`, "", 200,
			`{"resultType":"string","result":[1700000000.5,"x"]}`},
		{"a matrix", "GET", `/api/v1/query?query=up{instance="h1:9100"}[30s]` + at, "", 200,
			`"values":[[1700000585,"1"],[1700000600,"1"]]`},
		{"panel", "POST", "/api/v1/query_range",
			"query=max_over_time%28requests_total%5B1m%5D%29&start=1700000600&end=1700000630&step=15", 200,
			`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"code":"200"},"values":` +
				`[[1700000600,"600"],[1700000615,"615"],[1700000630,"630"]]}]}}`},
		{"panel with a step of text", "GET",
			"/api/v1/query_range?query=sum(up)&start=2023-11-14T22:23:20Z&end=1700000630&step=15s", "", 200,
			`"values":[[1700000600,"1"],[1700000615,"1"],[1700000630,"1"]]`},
		{"at modifier and negative offset", "GET", "/api/v1/query?query=requests_total@1700000015+offset+-15s" + at, "",
			200, `"value":[1700000600,"30"]`},
		{"warning", "GET", "/api/v1/query?query=histogram_quantile(0.9,up)" + at, "", 200, `"warnings":["PromQL warning:`},
		{"label names", "GET", "/api/v1/labels?start=1700000000&end=1700003600", "", 200,
			`{"status":"success","data":["__name__","code","instance"],"warnings":["results truncated due to limit"]}`},
		{"label names of a metric", "POST", "/api/v1/labels", "match[]=requests_total", 200,
			`{"status":"success","data":["__name__","code"]}`},
		{"label values", "GET", `/api/v1/label/instance/values?match[]=up{job="node"}`, "", 200,
			`{"status":"success","data":["h1:9100","h2:9100"]}`},
		{"metric names", "GET", "/api/v1/label/__name__/values?limit=2", "", 200,
			`"warnings":["results truncated due to limit"]`},
		{"label with an escaped name", "GET", "/api/v1/label/U__a_2e_b/values", "", 200,
			`{"status":"success","data":[]}`},
		{"series", "POST", "/api/v1/series", "match[]=up&start=1700000000&end=1700003600", 200,
			`{"status":"success","data":[{"__name__":"up","instance":"h1:9100","job":"node"},` +
				`{"__name__":"up","instance":"h2:9100","job":"node"}]}`},
		{"series with a higher limit than ours", "GET", "/api/v1/series?match[]={__name__=~%22.%2B%22}&limit=1000", "", 200,
			"truncated"},
		{"no metadata", "GET", "/api/v1/metadata?limit=10", "", 200, `{"status":"success","data":{}}`},
		{"no exemplars", "POST", "/api/v1/query_exemplars", "query=up&start=1700000000&end=1700003600", 200,
			`{"status":"success","data":[]}`},
		{"no rules", "GET", "/api/v1/rules", "", 200, `{"status":"success","data":{"groups":[]}}`},
		{"no alerts", "GET", "/api/v1/alerts", "", 200, `{"status":"success","data":{"alerts":[]}}`},
		{"format", "GET", "/api/v1/format_query?query=sum(up)by(job)", "", 200,
			`{"status":"success","data":"sum by (job) (up)"}`},
		{"parse", "POST", "/api/v1/parse_query", "query=up", 200, `"type":"vectorSelector"`},
		{"statistics", "GET", "/api/v1/query?query=up&stats=all" + at, "", 200, `"totalQueryableSamples":2`},
		{"ready", "GET", "/-/ready", "", 200, "ready"},
		{"another origin", "GET", "/api/v1/query?query=1&time=1", "", 200, `"success"`},

		{"no query", "GET", "/api/v1/query", "", 400, `{"status":"error","errorType":"bad_data","error":"invalid parameter`},
		{"bad query", "GET", "/api/v1/query?query=sum(", "", 400, "1:5: parse error: unclosed left parenthesis"},
		{"bad time", "GET", "/api/v1/query?query=up&time=x", "", 400, `invalid parameter \"time\"`},
		{"too many points", "GET", "/api/v1/query_range?query=up&start=0&end=1700000000&step=1", "", 400, "11,000 points"},
		{"end before start", "GET", "/api/v1/query_range?query=up&start=2&end=1&step=1", "", 400, `"bad_data"`},
		{"no selector", "GET", "/api/v1/series", "", 400, "no match[] parameter provided"},
		{"cannot execute", "GET", "/api/v1/query?query=label_replace(up,%22%22,%22%22,%22%22,%22(%22)" + at, "", 422,
			`"errorType":"execution"`},
		{"long query", "GET", "/api/v1/query?query=" + strings.Repeat("1%2B", 100) + "1", "", 400, "the server takes 200"},
		{"long selector", "GET", "/api/v1/labels?match[]=" + strings.Repeat("a", 201), "", 400, "the server takes 200"},
		{"long form", "POST", "/api/v1/query", "query=1&x=" + strings.Repeat("y", 3000), 413, "body too large"},
		{"bad form", "POST", "/api/v1/query", "query=%zz", 400, "read the form"},
		{"bad limit", "GET", "/api/v1/labels?limit=x", "", 400, "limit"},
		{"negative limit", "GET", "/api/v1/labels?limit=-1", "", 400, "limit"},
		{"no such path", "GET", "/api/v1/targets", "", 404, ""},
		{"no administration", "POST", "/api/v1/admin/tsdb/snapshot", "", 404, ""},
		{"no remote write", "POST", "/api/v1/write", "", 404, ""},
		{"no remote read", "POST", "/api/v1/read", "", 404, ""},
		{"no configuration", "GET", "/api/v1/status/config", "", 404, ""},
		{"no deletion", "DELETE", "/api/v1/series?match[]=up", "", 405, ""},
		{"other path", "GET", "/graph", "", 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, query, _ := strings.Cut(c.target, "?")
			if query != "" {
				target += "?" + strings.NewReplacer(" ", "%20", `"`, "%22", "{", "%7B", "}", "%7D").Replace(query)
			}
			r := httptest.NewRequest(c.method, target, strings.NewReader(c.body))
			r.Header.Set("Origin", "http://example.com")
			if c.body != "" {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			body := w.Body.String()
			if w.Code != c.status || !strings.Contains(body, c.want) {
				t.Errorf("status %d, want %d; body %s; want %s", w.Code, c.status, body, c.want)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != "" {
				t.Errorf("other origins are allowed: %q", got)
			}
			if w.Code != 200 && w.Code != 404 && w.Code != 405 {
				var e v1Error
				if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Status != "error" || e.ErrorType == "" {
					t.Errorf("no error in Prometheus' form: %s", body)
				}
			}
		})
	}
}

// TestView checks that each request sees its own view of the store.
func TestView(t *testing.T) {
	t.Parallel()
	db := store(t)
	a := newAPI(t, func(o *Options) {
		o.Queryable = func(r *http.Request) (storage.Queryable, error) {
			switch r.Header.Get("X-User") {
			case "all":
				return db, nil
			case "none":
				return storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
					return storage.NoopQuerier(), nil
				}), nil
			}
			return nil, errors.New("the user may not read")
		}
		o.MaxConcurrent = 1
	})
	for user, want := range map[string]string{
		"all":  `["h1:9100","h2:9100"]`,
		"none": `"data":[]`,
		"":     `{"status":"error","errorType":"internal","error":"the user may not read"}`,
	} {
		r := httptest.NewRequest("GET", "/api/v1/label/instance/values", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("user %q: %s; want %s", user, w.Body, want)
		}
	}
}

func TestSampleLimit(t *testing.T) {
	t.Parallel()
	db := store(t)
	a := newAPI(t, func(o *Options) { o.Queryable = viewOf(db); o.MaxSamples = 50 })
	w := do(a, "GET", "/api/v1/query?query=requests_total%5B1h%5D&time=1700003600", "")
	if w.Code != 422 || !strings.Contains(w.Body.String(), "too many samples") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// stuck is a store whose queries end with their context only.
type stuck struct{}

type stuckQuerier struct{ storage.Querier }

func (stuck) Querier(int64, int64) (storage.Querier, error) {
	return stuckQuerier{storage.NoopQuerier()}, nil
}

func (stuckQuerier) Select(ctx context.Context, _ bool, _ *storage.SelectHints, _ ...*labels.Matcher,
) storage.SeriesSet {
	<-ctx.Done()
	return storage.ErrSeriesSet(ctx.Err())
}

// TestBusy fills all slots with queries that hang: others wait, then are refused. The hanging ones
// end by their timeout.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, func(o *Options) {
			o.Queryable = viewOf(stuck{})
			o.MaxConcurrent, o.MaxWaiting = 2, 1
			o.Timeout, o.MaxWait = 30*time.Second, 5*time.Second
		})
		begin := time.Now()
		type answer struct {
			after time.Duration
			w     *httptest.ResponseRecorder
		}
		answers := make(chan answer, 10)
		ask := func() {
			w := do(a, "GET", "/api/v1/query?query=up", "")
			answers <- answer{time.Since(begin), w}
		}
		go ask()
		go ask()
		synctest.Wait()
		go ask() // waits 5 s
		synctest.Wait()
		go ask() // no place to wait
		for i, want := range []struct {
			after  time.Duration
			status int
			text   string
		}{
			{0, 503, `{"status":"error","errorType":"unavailable","error":"too many requests`},
			{5 * time.Second, 503, "too many requests"},
			{30 * time.Second, 503, `"errorType":"timeout"`},
			{30 * time.Second, 503, `"errorType":"timeout"`},
		} {
			got := <-answers
			if got.after != want.after || got.w.Code != want.status || !strings.Contains(got.w.Body.String(), want.text) {
				t.Errorf("answer %d: after %v, status %d, %s; want %+v", i, got.after, got.w.Code, got.w.Body, want)
			}
			if i < 2 && got.w.Header().Get("Retry-After") != "5" {
				t.Errorf("answer %d: Retry-After %q", i, got.w.Header().Get("Retry-After"))
			}
		}
		if len(a.slots) != 2 || len(a.waiting) != 0 {
			t.Errorf("%d slots free, %d requests waiting; want 2 and 0", len(a.slots), len(a.waiting))
		}
	})
}

// TestClientGone checks that a client that goes frees its slot and its place.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, func(o *Options) { o.Queryable = viewOf(stuck{}); o.MaxConcurrent = 1 })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{}, 2)
		for range 2 {
			go func() {
				a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/api/v1/query?query=up", nil))
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		cancel()
		<-done
		<-done
		if len(a.slots) != 1 || len(a.waiting) != 0 {
			t.Errorf("%d slots free, %d requests waiting; want 1 and 0", len(a.slots), len(a.waiting))
		}
	})
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *Options) {
		o.Queryable = viewOf(stuck{})
		o.Ready = func() error { return errors.New("the store is opening") }
	})
	if w := do(a, "GET", "/-/ready", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "the store is opening") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Log: log}, "no Queryable"},
		{Options{Queryable: viewOf(stuck{})}, "no Log"},
		{Options{Queryable: viewOf(stuck{}), Log: log, MaxSamples: -1}, "MaxSamples is negative"},
	} {
		if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %q", err, c.want)
		}
	}
}

// TestCompressed checks that an answer is compressed for clients that take it.
func TestCompressed(t *testing.T) {
	t.Parallel()
	db := store(t)
	a := newAPI(t, func(o *Options) { o.Queryable = viewOf(db) })
	server := httptest.NewServer(a)
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	// The client asks for gzip and unpacks it by itself.
	resp, err := client.Get(server.URL + "/api/v1/query_range?query=up&start=1700000000&end=1700003600&step=15")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !resp.Uncompressed || !strings.Contains(string(body), `[1700003600,"1"]`) {
		t.Errorf("%v, compressed %t, %d bytes", err, resp.Uncompressed, len(body))
	}
}

// FuzzRequest checks that no request makes the API panic or hang.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{"query=up", "query=rate(requests_total[5m])&time=1700000600",
		`match[]={__name__=~"u.*"}`,
		"query=up&start=1&end=100&step=1", "query=((((1))))",
		`query={"a.b"}&lookback_delta=1m&timeout=1s&stats=all&limit=2`} {
		for _, path := range []string{"query", "query_range", "labels", "series", "label/a/values", "parse_query",
			"format_query", "query_exemplars"} {
			f.Add(path, seed)
		}
	}
	db := store(f)
	a := newAPI(f, func(o *Options) {
		o.Queryable = viewOf(db)
		o.MaxSamples, o.Timeout, o.MaxQueryBytes = 10_000, 2*time.Second, 1000
	})
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path, r.URL.RawQuery = prefix+path, query
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != 503 {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if len(a.slots) != cap(a.slots) {
			t.Error("a slot is lost")
		}
	})
}

// BenchmarkQuery is the cost of a small query and of a panel with 240 points, with the answer as JSON.
func BenchmarkQuery(b *testing.B) {
	db := store(b)
	a := newAPI(b, func(o *Options) { o.Queryable = viewOf(db) })
	for name, target := range map[string]string{
		"instant": "/api/v1/query?query=up&time=1700000600",
		"panel":   "/api/v1/query_range?query=requests_total&start=1700000000&end=1700003600&step=15",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w := do(a, "GET", target, ""); w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
