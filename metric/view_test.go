package metric

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/lapwing-monitoring/lapwing/metric/member"
)

// viewed are the series of these tests. Each has a word u1 to u8 in its name, so that an answer that shows more than it
// may is found by its text.
var viewed = map[string]string{
	"u1": "disk.used;check=disk;entity=u1;namespace=default",
	"u2": "disk.used;check=disk;entity=u2;namespace=dev",
	"u3": "disk.used;entity=u3;namespace=dev-2",
	"u4": "disk.used;entity=u4;namespace=DEV",
	"u5": "servers.u5.load",
	"u6": "disk.used;entity=u6;namespace=d.v",
	"u7": "disk.used;entity=u7;other_namespace=dev",
	"u8": "u8.namespace.dev",
}

var viewedWord = regexp.MustCompile(`u[1-8]`)

// startViewed returns a server with the series: a single one, or a member of a cluster in which each series is at one
// member only.
func startViewed(t *testing.T, clustered bool) *Server {
	t.Helper()
	if clustered {
		b := &bus{handlers: map[string]answerer{}, members: []member.Info{{ID: "a", Name: "A"}, {ID: "b", Name: "B"}}}
		s := b.start(t, "a", t.TempDir(), 1)
		b.start(t, "b", t.TempDir(), 1)
		addViewed(t, s)
		return s
	}
	o := DefaultOptions()
	o.Dir, o.SelfInterval, o.Store.MinFreeBytes = t.TempDir(), -1, -1
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	addViewed(t, s)
	return s
}

func addViewed(t *testing.T, s *Server) {
	t.Helper()
	w := s.table.Writer(t.Context())
	for _, name := range viewed {
		if err := w.Add([]byte(name), time.Now().Add(-20*time.Second).UnixMilli(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all series can be read", func() bool {
		return len(wordsIn(ask(t, s, View{All: true}, http.MethodGet, prometheusAPI, "/api/v1/query",
			url.Values{"query": {`{__name__=~".+"}`}}).Body.String())) == len(viewed)
	})
}

const (
	graphiteAPI   = "graphite"
	prometheusAPI = "prometheus"
)

// ask asks one of the query APIs with a view.
func ask(t *testing.T, s *Server, v View, method, api, path string, query url.Values) *httptest.ResponseRecorder {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path+"?"+query.Encode(), nil)
	if api == graphiteAPI {
		s.Graphite(w, r, v)
	} else {
		s.Prometheus(w, r, v)
	}
	return w
}

func rendered(target string) url.Values {
	return url.Values{"target": {target}, "format": {"json"}, "from": {"-10min"}}
}

func wordsIn(text string) []string {
	words := viewedWord.FindAllString(text, -1)
	slices.Sort(words)
	return slices.Compact(words)
}

var views = []struct {
	title string
	view  View
	sees  string
}{
	{"all", View{All: true}, "u1 u2 u3 u4 u5 u6 u7 u8"},
	{"all, whatever the namespaces", View{All: true, Namespaces: []string{"dev"}}, "u1 u2 u3 u4 u5 u6 u7 u8"},
	{"one namespace", View{Namespaces: []string{"default"}}, "u1"},
	{"a namespace that others begin with, in other cases too", View{Namespaces: []string{"dev"}}, "u2"},
	{"two namespaces", View{Namespaces: []string{"default", "dev-2"}}, "u1 u3"},
	{"signs of regular expressions mean themselves", View{Namespaces: []string{"d.v"}}, "u6"},
	{"a pattern is no namespace", View{Namespaces: []string{".*", "d*", "dev|default", ""}}, ""},
	{"no namespace", View{}, ""},
	{"no namespace, with the right to write", View{Write: true}, ""},
}

func TestShows(t *testing.T) {
	for _, tc := range views {
		for word, name := range viewed {
			if got, want := shows(tc.view, name), slices.Contains(strings.Fields(tc.sees), word); got != want {
				t.Errorf("%s: shows %s: %v", tc.title, name, got)
			}
		}
		if shows(tc.view, "disk.used;namespace") && !tc.view.All {
			t.Errorf("%s: a name that cannot be read is shown", tc.title)
		}
	}
}

// TestViews asks each query that names or reads series with each view. An answer has the series that the query is about
// and that the view shows, and no others.
func TestViews(t *testing.T) {
	t.Run("a single server", func(t *testing.T) { testViews(t, startViewed(t, false)) })
	t.Run("a cluster", func(t *testing.T) { testViews(t, startViewed(t, true)) })
}

func testViews(t *testing.T, s *Server) {
	const tagged, all = "u1 u2 u3 u4 u6 u7", "u1 u2 u3 u4 u5 u6 u7 u8"
	span := func(query url.Values) url.Values {
		now := time.Now()
		query.Set("start", now.Add(-10*time.Minute).Format(time.RFC3339))
		query.Set("end", now.Format(time.RFC3339))
		return query
	}
	type question struct {
		api, path string
		query     url.Values
		about     string
	}
	questions := []question{
		{graphiteAPI, "/metrics/find", url.Values{"query": {"u8.*.*"}}, "u8"},
		{graphiteAPI, "/metrics/find", url.Values{"query": {"*"}}, "u8"},
		{graphiteAPI, "/metrics/find", url.Values{"query": {"servers.*"}}, "u5"},
		{graphiteAPI, "/metrics/find", url.Values{"query": {"servers.{u5,x}.load"}}, "u5"},
		{graphiteAPI, "/metrics/expand", url.Values{"query": {"servers.*.*"}}, "u5"},
		{graphiteAPI, "/metrics/index.json", nil, "u5 u8"},
		{graphiteAPI, "/render", rendered("servers.*.load"), "u5"},
		{graphiteAPI, "/render", rendered("*.*.*"), "u5 u8"},
		{graphiteAPI, "/render", rendered("group(servers.u*.load, u8.*.dev)"), "u5 u8"},
		{graphiteAPI, "/render", rendered("seriesByTag('name=~.')"), tagged},
		{graphiteAPI, "/render", rendered("seriesByTag('name=disk.used')"), tagged},
		{graphiteAPI, "/render", rendered("seriesByTag('namespace=~.')"), "u1 u2 u3 u4 u6"},
		{graphiteAPI, "/render", rendered("seriesByTag('name=disk.used', 'namespace!=dev')"), "u1 u3 u4 u6 u7"},
		{graphiteAPI, "/render", rendered("seriesByTag('name=disk.used', 'namespace=')"), "u7"},
		{graphiteAPI, "/render", rendered("seriesByTag('name=disk.used', 'namespace!=~^$')"), "u1 u2 u3 u4 u6"},
		{graphiteAPI, "/render", rendered("aliasByTags(seriesByTag('name=disk.used'), 'entity')"), tagged},
		{graphiteAPI, "/tags/findSeries", url.Values{"expr": {"name=~."}}, tagged},
		{graphiteAPI, "/tags/findSeries", url.Values{"expr": {"entity=~u", "namespace!=default"}}, "u2 u3 u4 u6 u7"},
		{graphiteAPI, "/tags/entity", nil, tagged},
		{graphiteAPI, "/tags/autoComplete/values", url.Values{"tag": {"entity"}}, tagged},
		{graphiteAPI, "/tags/autoComplete/values", url.Values{"tag": {"entity"}, "expr": {"name=disk.used", "namespace!=dev"}}, "u1 u3 u4 u6 u7"},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{__name__=~".+"}`}}, all},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{__name__="disk.used"}`}}, tagged},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{entity!="",namespace=~".*"}`}}, tagged},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{__name__=~".+",namespace!="dev"}`}}, "u1 u3 u4 u5 u6 u7 u8"},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{__name__=~".+",namespace!~"dev.*"}`}}, "u1 u4 u5 u6 u7 u8"},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{__name__=~".+",namespace=""}`}}, "u5 u7 u8"},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{namespace="dev"} or {namespace="default"}`}}, "u1 u2"},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`{namespace=~"dev|default"} unless {entity="u2"}`}}, "u1"},
		{prometheusAPI, "/api/v1/query", url.Values{"query": {`count by (entity) (last_over_time({entity=~".+"}[5m]))`}}, tagged},
		{prometheusAPI, "/api/v1/query_range", span(url.Values{"query": {`{__name__=~".+"}`}, "step": {"10"}}), all},
		{prometheusAPI, "/api/v1/series", span(url.Values{"match[]": {`{__name__=~".+"}`}}), all},
		{prometheusAPI, "/api/v1/series", span(url.Values{"match[]": {`{namespace="dev"}`, `{namespace="default"}`}}), "u1 u2"},
		{prometheusAPI, "/api/v1/label/entity/values", span(url.Values{}), tagged},
		{prometheusAPI, "/api/v1/label/__name__/values", span(url.Values{}), "u5 u8"},
		{prometheusAPI, "/api/v1/label/entity/values", span(url.Values{"match[]": {`{entity!="",namespace!="dev"}`, `{namespace="dev"}`}}), tagged},
	}
	for _, name := range viewed { // names without a pattern
		word := viewedWord.FindString(name)
		questions = append(questions, question{graphiteAPI, "/render", rendered("alias(" + name + ", 'found " + word + "')"),
			word})
	}
	for _, q := range questions {
		for _, tc := range views {
			var want []string
			for _, word := range strings.Fields(q.about) {
				if slices.Contains(strings.Fields(tc.sees), word) {
					want = append(want, word)
				}
			}
			w := ask(t, s, tc.view, http.MethodGet, q.api, q.path, q.query)
			if got := wordsIn(w.Body.String()); !slices.Equal(got, want) || w.Code != http.StatusOK {
				t.Errorf("%s: %s %v: got %v, want %v: %d %s", tc.title, q.path, q.query, got, want, w.Code, w.Body)
			}
		}
	}
}

// TestViewsOfTags: names and values of tags are those of the series that a view shows.
func TestViewsOfTags(t *testing.T) {
	t.Run("a single server", func(t *testing.T) { testViewsOfTags(t, startViewed(t, false)) })
	t.Run("a cluster", func(t *testing.T) { testViewsOfTags(t, startViewed(t, true)) })
}

func testViewsOfTags(t *testing.T, s *Server) {
	for _, tc := range []struct {
		view                         View
		tags, counts, labels, values string
	}{
		{View{All: true}, "check entity name namespace other_namespace", "DEV:1 d.v:1 default:1 dev:1 dev-2:1",
			"__name__ check entity namespace other_namespace", "DEV d.v default dev dev-2"},
		{View{Namespaces: []string{"dev"}}, "check entity name namespace", "dev:1", "__name__ check entity namespace", "dev"},
		{View{Namespaces: []string{"dev-2", "d.v"}}, "entity name namespace", "d.v:1 dev-2:1", "__name__ entity namespace", "d.v dev-2"},
	} {
		src := s.sourceOf(t.Context(), tc.view)
		tags, err := src.Tags(t.Context(), "", 0)
		if got := strings.Join(tags, " "); got != tc.tags || err != nil {
			t.Errorf("%+v: tags %q, %v", tc.view, got, err)
		}
		values, err := src.TagValues(t.Context(), "namespace", "", 0)
		var counts []string
		for _, v := range values {
			counts = append(counts, v.Value+":"+string(rune('0'+v.Count)))
		}
		if got := strings.Join(counts, " "); got != tc.counts || err != nil {
			t.Errorf("%+v: values %q, %v", tc.view, got, err)
		}
		now := time.Now().UnixMilli()
		q, err := s.queryableOf(t.Context(), tc.view).Querier(now-600_000, now)
		if err != nil {
			t.Fatal(err)
		}
		labels, _, err := q.LabelNames(t.Context(), nil)
		if got := strings.Join(labels, " "); got != tc.labels || err != nil {
			t.Errorf("%+v: labels %q, %v", tc.view, got, err)
		}
		inLabel, _, err := q.LabelValues(t.Context(), "namespace", nil)
		slices.Sort(inLabel)
		if got := strings.Join(inLabel, " "); got != tc.values || err != nil {
			t.Errorf("%+v: values of the label %q, %v", tc.view, got, err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWrites: without the right to write nothing changes, and a view deletes only what it shows.
func TestWrites(t *testing.T) {
	s := startViewed(t, false)
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: []prompb.Label{{Name: "__name__",
		Value: "written"}},
		Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}}}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	write := func(v View) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/api/v1/write",
			bytes.NewReader(snappy.Encode(nil, body)))
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Content-Encoding", "snappy")
		s.Prometheus(w, r, v)
		return w.Code
	}
	note := func(v View) int {
		w := httptest.NewRecorder()
		s.Graphite(w, httptest.NewRequest(http.MethodPost, "/events/", strings.NewReader(`{"what":"a note"}`)), v)
		return w.Code
	}
	post := func(v View, path, name string) int {
		return ask(t, s, v, http.MethodPost, graphiteAPI, path, url.Values{"path": {name}}).Code
	}
	there := func(name string) bool { return s.index.Has(name) }
	for _, tc := range views {
		if tc.view.Write {
			continue
		}
		for what, code := range map[string]int{
			"tagSeries":      post(tc.view, "/tags/tagSeries", "made;by=hand"),
			"tagMultiSeries": post(tc.view, "/tags/tagMultiSeries", "made;by=hand"),
			"delSeries":      post(tc.view, "/tags/delSeries", viewed["u2"]),
			"notes":          note(tc.view),
		} {
			if code != http.StatusForbidden {
				t.Errorf("%s: %s: %d", tc.title, what, code)
			}
		}
		if code := write(tc.view); code/100 == 2 {
			t.Errorf("%s: remote write: %d", tc.title, code)
		}
	}
	if there("made;by=hand") || there("written") || !there(viewed["u2"]) {
		t.Error("a request without the right to write has changed something")
	}

	v := View{Write: true, Namespaces: []string{"dev"}}
	if code := post(v, "/tags/tagSeries", "made;by=hand"); code != http.StatusOK || !there("made;by=hand") {
		t.Errorf("tagSeries: %d", code)
	}
	if code := write(v); code/100 != 2 || !there("written") {
		t.Errorf("remote write: %d", code)
	}
	for _, word := range []string{"u1", "u2", "u3", "u5", "u7"} {
		if code := post(v, "/tags/delSeries", viewed[word]); code != http.StatusOK {
			t.Errorf("delSeries of %s: %d", word, code)
		}
		if got := there(viewed[word]); got != (word != "u2") {
			t.Errorf("%s after it was deleted with the right to dev: %v", word, got)
		}
	}
}
