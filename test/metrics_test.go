package test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/metric/frame"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// metricsBackend is a backend that listens for senders and queries of metrics.
type metricsBackend struct {
	*testbackend.Backend
	line, udp, gzip, pickle, protobuf string // addresses of senders
	query                             graphiteServer
}

func startMetrics(t *testing.T) *metricsBackend {
	t.Helper()
	address := func() string { return "127.0.0.1:" + freePort(t) }
	b := &metricsBackend{line: address(), udp: address(), gzip: address(), pickle: address(), protobuf: address()}
	query := address()
	b.query = graphiteServer{t: t, url: "http://" + query, prometheus: "http://" + query}
	b.Backend = testbackend.Start(t, func(o *testbackend.Options) {
		m := &o.Metric
		m.LineAddress, m.UDPAddress, m.GzipAddress, m.PickleAddress, m.ProtobufAddress = b.line, b.udp, b.gzip, b.pickle, b.protobuf
		m.QueryAddress, m.Store.MinFreeBytes = query, 1<<20
	})
	return b
}

// as returns the query APIs of the backend with sign-in.
func (b *metricsBackend) as(t *testing.T, user string) graphiteServer {
	t.Helper()
	base := "http://" + b.APIAddr().String() + "/api/lapwing/v1/"
	return graphiteServer{t: t, url: base + "graphite", prometheus: base + "prometheus", key: apiKey(t, b.Client, user)}
}

// graphiteServer has Graphite's API at one URL and Prometheus' at another.
type graphiteServer struct {
	t               testing.TB
	url, prometheus string
	key             string // of the API; "" for none
}

func (g *graphiteServer) do(method, to, contentType string, body []byte, header ...string) (status int, answer string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, to, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if g.key != "" {
		req.Header.Set("Authorization", "Key "+g.key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

const formType = "application/x-www-form-urlencoded"

// get asks Graphite's API; params are names and values.
func (g *graphiteServer) get(path string, params ...string) (status int, answer string) {
	g.t.Helper()
	q := url.Values{}
	for i := 0; i < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	return g.do(http.MethodGet, g.url+path+"?"+q.Encode(), "", nil)
}

// names returns the strings of an answer that is a list of them, or of objects with them at a key.
func (g *graphiteServer) names(key, path string, params ...string) (all []string) {
	g.t.Helper()
	status, answer := g.get(path, params...)
	if status != http.StatusOK {
		g.t.Fatalf("%s %q: %d %s", path, params, status, answer)
	}
	if key == "" {
		if err := json.Unmarshal([]byte(answer), &all); err != nil {
			g.t.Fatalf("%s: %v in %s", path, err, answer)
		}
		return all
	}
	var objects []map[string]any
	if err := json.Unmarshal([]byte(answer), &objects); err != nil {
		g.t.Fatalf("%s: %v in %s", path, err, answer)
	}
	for _, o := range objects {
		all = append(all, fmt.Sprint(o[key]))
	}
	return all
}

// render evaluates targets.
func (g *graphiteServer) render(from, until string, targets ...string) (series []client.RenderedSeries) {
	g.t.Helper()
	form := url.Values{"target": targets, "from": {from}, "until": {until}, "format": {"json"}}
	status, answer := g.do(http.MethodPost, g.url+"/render", formType, []byte(form.Encode()))
	if status != http.StatusOK {
		g.t.Fatalf("render %q: %d %s", targets, status, answer)
	}
	if err := json.Unmarshal([]byte(answer), &series); err != nil {
		g.t.Fatalf("render %q: %v in %s", targets, err, answer)
	}
	return series
}

// valuesOf returns the values of a series by time.
func valuesOf(s *client.RenderedSeries) map[int64]float64 {
	all := map[int64]float64{}
	for _, p := range s.Datapoints {
		if p[0] != nil {
			all[int64(*p[1])] = *p[0]
		}
	}
	return all
}

// targetsOf returns the names of series, in order.
func targetsOf(series []client.RenderedSeries) (names []string) {
	for i := range series {
		names = append(names, series[i].Target)
	}
	slices.Sort(names)
	return names
}

// promQL returns the values of an instant query, by the labels of their series as text.
func (g *graphiteServer) promQL(expr string, at int64) map[string]string {
	g.t.Helper()
	q := url.Values{"query": {expr}, "time": {fmt.Sprint(at)}}
	status, answer := g.do(http.MethodPost, g.prometheus+"/api/v1/query", formType, []byte(q.Encode()))
	var out struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &out); err != nil || status != http.StatusOK {
		g.t.Fatalf("query %s: %d %v %s", expr, status, err, answer)
	}
	found := map[string]string{}
	for _, r := range out.Data.Result {
		found[fmt.Sprint(r.Metric)] = fmt.Sprint(r.Value[1])
	}
	return found
}

// sendTo writes to a TCP listener, ends the connection in order and waits until the server has read all.
func sendTo(t testing.TB, address string, data []byte) {
	t.Helper()
	if err := trySendTo(address, data); err != nil {
		t.Fatal(err)
	}
}

func trySendTo(address string, data []byte) error {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := conn.Write(data); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

// framed puts a length before a pickle or a protobuf message.
func framed(payload []byte) []byte {
	n := len(payload)
	return append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, payload...)
}

// TestMetricsOfEachProtocol sends a point by each protocol to a backend. It is found by Graphite's and by Prometheus'
// API, with and without sign-in.
func TestMetricsOfEachProtocol(t *testing.T) {
	t.Parallel()
	b := startMetrics(t)
	signedIn := b.as(t, testbackend.User)
	now := time.Now().Unix() / 10 * 10
	line := func(protocol string, value int) []byte {
		return fmt.Appendf(nil, "proto.%s.load %d %d\n", protocol, value, now)
	}
	message := func(f frame.Format, protocol string, value float64) []byte {
		return f.End(f.Append(f.Begin(nil), []byte("proto."+protocol+".load"), now, value), 0)
	}
	sendTo(t, b.line, line("line", 1))
	udp, err := net.Dial("udp", b.udp)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := udp.Write(line("udp", 2)); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(line("gzip", 3)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	sendTo(t, b.gzip, zipped.Bytes())
	sendTo(t, b.pickle, message(frame.Pickle, "pickle", 4))
	sendTo(t, b.protobuf, message(frame.Protobuf, "protobuf", 5))
	write := func(g *graphiteServer, protocol string, value float64) int {
		msg, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "proto." + protocol + ".load"}},
			Samples: []prompb.Sample{{Timestamp: now * 1000, Value: value}},
		}}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		status, _ := g.do(http.MethodPost, g.prometheus+"/api/v1/write", "application/x-protobuf", snappy.Encode(nil, msg),
			"Content-Encoding", "snappy", "X-Prometheus-Remote-Write-Version", "0.1.0")
		return status
	}
	if status := write(&signedIn, "remote", 6); status != http.StatusNoContent {
		t.Errorf("remote write: %d", status)
	}
	if status := write(&b.query, "open", 7); status != http.StatusNotFound {
		t.Errorf("remote write without sign-in, which was not asked for: %d", status)
	}

	want := []string{"gzip", "line", "pickle", "protobuf", "remote", "udp"}
	values := map[string]float64{"line": 1, "udp": 2, "gzip": 3, "pickle": 4, "protobuf": 5, "remote": 6}
	for _, g := range []*graphiteServer{&b.query, &signedIn} {
		eventually(t, 30*time.Second, "all points are found", func() bool {
			return slices.Equal(g.names("text", "/metrics/find", "query", "proto.*"), want)
		})
		for _, protocol := range want {
			name := "proto." + protocol + ".load"
			eventually(t, 30*time.Second, name+" can be read", func() bool {
				series := g.render(fmt.Sprint(now-60), fmt.Sprint(now+60), name)
				return len(series) == 1 && len(valuesOf(&series[0])) > 0
			})
			series := g.render(fmt.Sprint(now-60), fmt.Sprint(now+60), name)
			if v := valuesOf(&series[0]); len(v) != 1 || v[now] != values[protocol] || series[0].Target != name {
				t.Errorf("%s: %s has %v, want %v at %d", protocol, series[0].Target, v, values[protocol], now)
			}
			found := g.promQL(`{"`+name+`"}`, now+10)
			if found[fmt.Sprint(map[string]string{"__name__": name})] != fmt.Sprint(values[protocol]) {
				t.Errorf("%s by PromQL: %v", protocol, found)
			}
		}
	}
}

// TestMetricsOfAgentsChecks has an agent run a check whose output has points. They are stored with the names of the
// namespace, the entity and the check, and the check's own tags.
func TestMetricsOfAgentsChecks(t *testing.T) {
	t.Parallel()
	b := startMetrics(t)
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "cpu", Namespace: "default"}, Interval: 1, Publish: true, Subscriptions: []string{"linux"},
		Command: `echo "cpu.idle 62.5 $(date +%s)"; echo "cpu.user 3 $(date +%s)"`, OutputMetricFormat: "graphite_plaintext",
		OutputMetricTags: []resource.MetricTag{{Name: "dc", Value: "x;1"}, {Name: "entity", Value: "forged"}},
	}
	if err := client.Put(t.Context(), b.Client, client.Checks, "default", "cpu", check); err != nil {
		t.Fatal(err)
	}
	defer runAgent(t, b.Backend, "worker", "linux")()
	const idle = "cpu.idle;check=cpu;dc=x_1;entity=worker;namespace=default"
	var series []client.RenderedSeries
	eventually(t, time.Minute, "the points are stored", func() bool {
		series = b.query.render("-5min", "now", `seriesByTag('name=cpu.idle','entity=worker')`)
		return len(series) == 1 && len(valuesOf(&series[0])) > 0
	})
	want := map[string]string{"name": "cpu.idle", "check": "cpu", "dc": "x_1", "entity": "worker", "namespace": "default"}
	if series[0].Target != idle || fmt.Sprint(series[0].Tags) != fmt.Sprint(want) {
		t.Errorf("%s has the tags %v, want %v", series[0].Target, series[0].Tags, want)
	}
	for at, v := range valuesOf(&series[0]) {
		if v != 62.5 {
			t.Errorf("%v at %d", v, at)
		}
	}
	var listed []struct {
		Name, Target string
		Tags         map[string]string
	}
	if err := b.Client.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/events/worker/cpu/series", nil, &listed); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(listed, func(a, b struct {
		Name, Target string
		Tags         map[string]string
	}) int {
		return strings.Compare(a.Name, b.Name)
	})
	if len(listed) != 2 || listed[0].Name != "cpu.idle" || listed[0].Target != idle || listed[1].Name != "cpu.user" || listed[0].Tags["dc"] != "x_1" {
		t.Errorf("the series of the check: %+v", listed)
	}
	if found := b.query.promQL(`{"cpu.user", check="cpu"}`, time.Now().Unix()); len(found) != 1 {
		t.Errorf("by PromQL: %v", found)
	}
}

// eventWithPoint puts an event with a point through the API.
func eventWithPoint(t *testing.T, c *client.Client, namespace, entity, point string, value float64) {
	t.Helper()
	ev := testbackend.Event(entity, "stats", 0, time.Now().Unix())
	ev.Entity.EntityClass, ev.Entity.Metadata.Namespace, ev.Check.Metadata.Namespace = resource.EntityProxyClass, namespace, namespace
	ev.Metrics = &resource.Metrics{Points: []resource.MetricPoint{{Name: point, Value: value, Timestamp: time.Now().Unix(), Tags: []resource.MetricTag{}}}}
	if err := client.Put(t.Context(), c, client.Events, namespace, client.EventName(entity, "stats"), ev); err != nil {
		t.Fatal(err)
	}
}

// TestRightsOfMetrics has a user who may view the namespace a, and one without roles. The first one sees the series of the
// events of a and nothing else by any query; neither may write.
func TestRightsOfMetrics(t *testing.T) {
	t.Parallel()
	b := startMetrics(t)
	ctx := t.Context()
	for _, ns := range []string{"a", "b"} {
		if err := client.Put(ctx, b.Client, client.Namespaces, "", ns, &resource.Namespace{Name: ns}); err != nil {
			t.Fatal(err)
		}
		eventWithPoint(t, b.Client, ns, "host-"+ns, "temp", 20)
		eventWithPoint(t, b.Client, ns, "host2-"+ns, "only_"+ns, 20)
	}
	now := time.Now().Unix()
	sendTo(t, b.line, fmt.Appendf(nil, "plain.secret 1 %d\ntemp;entity=loose 1 %d\n", now, now))
	for _, user := range []string{"viewer", "stranger"} {
		if err := client.Put(ctx, b.Client, client.Users, "", user, &resource.User{Username: user, Password: teamPassword}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Put(ctx, b.Client, client.RoleBindings, "a", "viewer", &resource.RoleBinding{
		Metadata: resource.ObjectMeta{Namespace: "a", Name: "viewer"}, RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "view"},
		Subjects: []resource.Subject{{Type: "User", Name: "viewer"}},
	}); err != nil {
		t.Fatal(err)
	}
	admin, viewer, stranger := b.as(t, testbackend.User), b.as(t, "viewer"), b.as(t, "stranger")
	status, answer := admin.do(http.MethodPost, admin.url+"/events", "application/json", []byte(`{"what":"deploy","tags":"x"}`))
	if status != http.StatusOK {
		t.Errorf("a note by the administrator: %d %s", status, answer)
	}
	eventually(t, 30*time.Second, "all series are there", func() bool {
		return len(admin.names("", "/tags/findSeries", "expr", "entity=~.+")) == 5 &&
			len(admin.promQL(`{__name__=~"temp|only_.*|plain.*"}`, time.Now().Unix())) == 6
	})
	temp := "temp;check=stats;entity=host-a;namespace=a"
	only := "only_a;check=stats;entity=host2-a;namespace=a"
	ofB := "temp;check=stats;entity=host-b;namespace=b"
	exprs := []string{`seriesByTag('name=~.*')`, `seriesByTag('namespace=b')`, `seriesByTag('namespace!=a','name=~.+')`, "plain.secret", "plain.*", "*.*", "*", temp, ofB,
		`seriesByTag('namespace=~a|b','entity=~.+')`, `group(` + ofB + `,` + temp + `)`}
	for _, user := range []struct {
		name string
		g    graphiteServer
		sees []string
	}{{"viewer", viewer, []string{only, temp}}, {"stranger", stranger, nil}} {
		g, allowed := &user.g, user.sees
		hidden := func(what string, texts []string) {
			t.Helper()
			for _, text := range texts {
				if strings.Contains(text, "secret") || strings.Contains(text, "plain") || strings.Contains(text, "loose") || strings.Contains(text, "-b") ||
					strings.Contains(text, "only_b") || strings.Contains(text, "carbon") || len(allowed) == 0 && (strings.Contains(text, "host") || strings.Contains(text, "temp")) {
					t.Errorf("%s: %s shows %q", user.name, what, text)
				}
			}
		}
		for _, expr := range exprs {
			status, answer := g.get("/render", "target", expr, "format", "json", "from", "-1h")
			if status != http.StatusOK && status != http.StatusBadRequest {
				t.Errorf("%s: render %s: %d %s", user.name, expr, status, answer)
			}
			hidden("render "+expr, []string{strings.ReplaceAll(answer, expr, "")})
		}
		if got := targetsOf(g.render("-1h", "now", `seriesByTag('entity=~.+')`)); !slices.Equal(got, allowed) {
			t.Errorf("%s: render shows %q, want %q", user.name, got, allowed)
		}
		if got := g.names("", "/metrics/index.json"); len(got) != 0 {
			t.Errorf("%s: the index has %q", user.name, got)
		}
		if got := g.names("", "/tags/findSeries", "expr", "name=~.+"); !slices.Equal(got, allowed) {
			t.Errorf("%s: a query by tags finds %q, want %q", user.name, got, allowed)
		}
		for _, pattern := range []string{"*", "plain.*", "plain.secret", "**", "temp*", ofB} {
			hidden("find "+pattern, g.names("path", "/metrics/find", "query", pattern, "format", "json"))
			_, answer := g.get("/metrics/expand", "query", pattern)
			hidden("expand "+pattern, []string{strings.ReplaceAll(answer, pattern, "")})
		}
		hidden("tags", g.names("tag", "/tags"))
		hidden("values", g.names("", "/tags/autoComplete/values", "tag", "entity"))
		hidden("names", g.names("", "/tags/autoComplete/values", "tag", "name"))
		hidden("completed tags", g.names("", "/tags/autoComplete/tags", "expr", "name=temp"))
		for _, tag := range []string{"entity", "namespace", "name"} {
			_, answer := g.get("/tags/" + tag)
			hidden("values of "+tag, []string{answer})
		}
		found := g.promQL(`{__name__=~".+"}`, time.Now().Unix())
		for labels := range found {
			hidden("PromQL", []string{labels})
		}
		if len(found) != len(allowed) {
			t.Errorf("%s: PromQL finds %v", user.name, found)
		}
		if n := len(g.promQL(`count({namespace="b"}) or absent({__name__="nosuch", namespace!="a"}) > 1`, time.Now().Unix())); n != 0 {
			t.Errorf("%s: PromQL counts %d hidden series", user.name, n)
		}
		for _, path := range []string{"/api/v1/labels", "/api/v1/label/entity/values", "/api/v1/label/__name__/values", `/api/v1/series?match[]={__name__=~".%2B"}`} {
			status, answer := g.do(http.MethodGet, g.prometheus+path, "", nil)
			if status != http.StatusOK {
				t.Errorf("%s: %s: %d %s", user.name, path, status, answer)
			}
			hidden(path, []string{answer})
		}
		if _, answer := g.get("/events/get_data", "from", "-1h"); strings.Contains(answer, "deploy") {
			t.Errorf("%s: sees the administrator's note: %s", user.name, answer)
		}
		if _, answer := g.get("/events/1"); strings.Contains(answer, "deploy") {
			t.Errorf("%s: sees the administrator's note: %s", user.name, answer)
		}
		for _, s := range g.render("-1h", "now", "events('x')") {
			for at, v := range valuesOf(&s) {
				if v != 0 {
					t.Errorf("%s: sees that there is a note at %d", user.name, at)
				}
			}
		}
		for _, w := range []struct{ method, url, kind, body string }{
			{http.MethodPost, g.url + "/tags/tagSeries", formType, "path=" + url.QueryEscape(temp)},
			{http.MethodPost, g.url + "/tags/tagMultiSeries/", formType, "path=" + url.QueryEscape(temp)},
			{http.MethodPost, g.url + "/tags/delSeries", formType, "path=" + url.QueryEscape(temp)},
			{http.MethodPost, g.url + "//tags//delSeries", formType, "path=" + url.QueryEscape(temp)},
			{http.MethodPost, g.url + "/events", "application/json", `{"what":"x"}`},
			{http.MethodPost, g.url + "/events/", "application/json", `{"what":"x"}`},
			{http.MethodPost, g.prometheus + "/api/v1/write", "application/x-protobuf", ""},
		} {
			if status, answer := g.do(w.method, w.url, w.kind, []byte(w.body)); status < 300 || status == http.StatusNoContent {
				t.Errorf("%s: %s %s: %d %s", user.name, w.method, w.url, status, answer)
			}
		}
	}
	if got := targetsOf(admin.render("-1h", "now", `seriesByTag('name=temp','namespace=~.+')`)); !slices.Equal(got, []string{temp, ofB}) {
		t.Errorf("after these writes the administrator sees %q", got)
	}
	if status, _ := (&graphiteServer{t: t}).do(http.MethodGet, viewer.url+"/render?target=temp", "", nil); status != http.StatusUnauthorized {
		t.Errorf("without sign-in: %d", status)
	}

	// A draft of a metric check shows only what its author may see.
	meta := resource.ObjectMeta{Namespace: "a", Name: "checks"}
	role := &resource.Role{Metadata: meta, Rules: []resource.Rule{{Verbs: []string{"*"}, Resources: []string{"metricchecks"}}}}
	if err := client.Put(ctx, b.Client, client.Roles, "a", "checks", role); err != nil {
		t.Fatal(err)
	}
	if err := client.Put(ctx, b.Client, client.RoleBindings, "a", "checks", &resource.RoleBinding{
		Metadata: meta, RoleRef: resource.RoleRef{Type: "Role", Name: "checks"}, Subjects: []resource.Subject{{Type: "User", Name: "viewer"}},
	}); err != nil {
		t.Fatal(err)
	}
	signedIn := asUser(t, b.Backend, "viewer", teamPassword)
	var p resource.MetricPreview
	draft := &resource.MetricCheck{Metadata: resource.ObjectMeta{Name: "spy", Namespace: "a"}, Interval: 60, EntityLabel: "entity",
		Expr: `seriesByTag('name=~.+')`, Critical: &resource.MetricCheckThreshold{Above: new(float64)}}
	if err := signedIn.Do(ctx, http.MethodPost, "/api/lapwing/v1/namespaces/a/metricchecks/preview", draft, &p); err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Findings {
		if f.Entity != "host-a" && f.Entity != "host2-a" {
			t.Errorf("a preview shows %+v", f)
		}
	}
	if len(p.Findings) != 2 {
		t.Errorf("a preview has %d findings: %+v", len(p.Findings), p.Findings)
	}
}

// TestMetricChecks has metric checks by Graphite and PromQL fire, resolve and miss values.
func TestMetricChecks(t *testing.T) {
	t.Parallel()
	b := startMetrics(t)
	ninety, node, begin := 90.0, 1, time.Now().Unix()
	define := func(name string, change func(*resource.MetricCheck)) {
		t.Helper()
		c := &resource.MetricCheck{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Interval: 1, Window: 3600, EntityNode: &node,
			Critical: &resource.MetricCheckThreshold{Above: &ninety},
		}
		change(c)
		put(t, b.Backend, client.MetricChecks, name, c)
	}
	point := func(name string, value float64, ago int64) {
		t.Helper()
		sendTo(t, b.line, fmt.Appendf(nil, "%s %v %d\n", name, value, begin-ago))
	}
	status := func(entity, check string) int {
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(entity, check))
		if err != nil {
			return -1
		}
		return int(ev.Check.Status)
	}
	becomes := func(entity, check string, want int) {
		t.Helper()
		eventually(t, time.Minute, fmt.Sprintf("%s/%s has the status %d", entity, check, want), func() bool { return status(entity, check) == want })
	}
	define("hot", func(c *resource.MetricCheck) { c.Expr = "servers.*.temp" })
	define("warm", func(c *resource.MetricCheck) {
		c.Source, c.Expr, c.EntityNode, c.EntityLabel, c.Window = resource.PromQLSource, `label_replace({__name__=~"servers[.].*[.]temp"}, "host", "$1", "__name__", "servers[.](.*)[.]temp")`, nil, "host", 0
		c.Result.Check = "promql-hot"
	})
	define("nothing", func(c *resource.MetricCheck) { c.Expr, c.EntityNode = "no.such.series", nil })
	point("servers.web1.temp", 95, 60)
	point("servers.web2.temp", 20, 60)
	becomes("web1", "hot", 2)
	becomes("web2", "hot", 0)
	becomes("web1", "promql-hot", 2)
	becomes("web2", "promql-hot", 0)
	becomes("nothing", "nothing", 3)
	ev := eventOf(t, b.Backend, "web1", "hot")
	if !strings.Contains(ev.Check.Output, "servers.web1.temp is 95, critical above 90") {
		t.Errorf("output: %s", ev.Check.Output)
	}
	point("servers.web1.temp", 30, 40)
	becomes("web1", "hot", 0)
	becomes("web1", "promql-hot", 0)

	// A series whose values end: they come until the result is there.
	define("gone", func(c *resource.MetricCheck) { c.Expr, c.Window = "ending.*.temp", 20 })
	eventually(t, time.Minute, "ending.db1.temp has a result", func() bool {
		sendTo(t, b.line, fmt.Appendf(nil, "ending.db1.temp 99 %d\n", time.Now().Unix()))
		return status("db1", "gone") == 2
	})
	becomes("db1", "gone", 3)

	// A preview of the last half hour: 95 for three minutes, 20 before and after.
	var lines bytes.Buffer
	for at := begin/10*10 - 1800; at < begin-60; at += 10 {
		value := 20
		if at >= begin-900 && at < begin-720 {
			value = 95
		}
		fmt.Fprintf(&lines, "old.web3.temp %d %d\n", value, at)
	}
	sendTo(t, b.line, lines.Bytes())
	eventually(t, time.Minute, "all these points are stored", func() bool {
		series := b.query.render(fmt.Sprint(begin-1900), fmt.Sprint(begin), "old.web3.temp")
		return len(series) == 1 && len(valuesOf(&series[0])) >= 173
	})
	draft := &resource.MetricCheck{Metadata: resource.ObjectMeta{Name: "draft", Namespace: "default"}, Expr: "old.*.temp", Interval: 10, EntityNode: &node,
		Critical: &resource.MetricCheckThreshold{Above: &ninety}}
	for _, tc := range []struct {
		forSeconds uint32
		fired      int
	}{{0, 1}, {60, 1}, {600, 0}} {
		draft.For = tc.forSeconds
		var p resource.MetricPreview
		path := fmt.Sprintf("/api/lapwing/v1/namespaces/default/metricchecks/preview?since=%d&until=%d", begin-1500, begin-120)
		if err := b.Client.Do(t.Context(), http.MethodPost, path, draft, &p); err != nil {
			t.Fatal(err)
		}
		if p.Fired != tc.fired || len(p.Findings) != 1 || p.Findings[0].Entity != "web3" || len(p.Findings[0].Changes) != 2*tc.fired {
			t.Errorf("for %d: %+v", tc.forSeconds, p)
			continue
		}
		for i, c := range p.Findings[0].Changes {
			if want := begin - []int64{900 - int64(tc.forSeconds), 720}[i]; math.Abs(float64(c.At-want)) > 20 {
				t.Errorf("for %d: change %+v, want it at about %d", tc.forSeconds, c, want)
			}
		}
	}

	// The results of a deleted check go.
	if err := client.Delete(t.Context(), b.Client, client.MetricChecks, "default", "hot"); err != nil {
		t.Fatal(err)
	}
	for _, entity := range []string{"web1", "web2"} {
		becomes(entity, "hot", -1)
	}
	if status("web1", "promql-hot") != 0 {
		t.Error("the result of another check has gone, too")
	}
	for _, expr := range []string{"sumSeries(a.b", "nosuch(a.b)", ""} {
		bad := &resource.MetricCheck{Metadata: resource.ObjectMeta{Name: "bad", Namespace: "default"}, Expr: expr, Interval: 1, Critical: draft.Critical}
		if err := client.Put(t.Context(), b.Client, client.MetricChecks, "default", "bad", bad); err == nil && expr != "nosuch(a.b)" {
			t.Errorf("a metric check with the expression %q was taken", expr)
		}
	}
}

// TestGrafanaAgainstABackend asks what Grafana's data sources ask: Graphite's in browser mode and in server mode, and
// Prometheus'.
func TestGrafanaAgainstABackend(t *testing.T) {
	t.Parallel()
	b := startMetrics(t)
	now := time.Now().Unix()/60*60 - 60
	var lines bytes.Buffer
	for i := range int64(60) {
		for host := range int64(3) {
			fmt.Fprintf(&lines, "servers.web%d.load %d %d\n", host, i+100*host, now-600+10*i)
			fmt.Fprintf(&lines, "disk.used;host=web%d;dc=dc%d %d %d\n", host, host%2, i, now-600+10*i)
		}
	}
	sendTo(t, b.line, lines.Bytes())
	g := b.as(t, testbackend.User)
	eventually(t, 30*time.Second, "all points are stored", func() bool {
		n := 0
		for _, s := range g.render(fmt.Sprint(now-700), fmt.Sprint(now), "servers.*.load", "seriesByTag('name=disk.used')") {
			n += len(valuesOf(&s))
		}
		return n == 360
	})
	from, until := fmt.Sprint(now-601), fmt.Sprint(now)
	post := func(path string, form url.Values) string {
		t.Helper()
		status, answer := g.do(http.MethodPost, g.url+path, formType, []byte(form.Encode()), "X-Dashboard-Id", "3", "X-Panel-Id", "2",
			"X-Grafana-Org-Id", "1", "Accept", "application/json, text/plain, */*")
		if status != http.StatusOK {
			t.Errorf("%s %v: %d %s", path, form, status, answer)
		}
		return answer
	}
	wrapped := func(target, ref string) string { return `aliasSub(` + target + `, "(^.*$)", "\1 ` + ref + `")` }

	// Browser mode.
	var panel []client.RenderedSeries
	answer := post("/render", url.Values{"target": {wrapped("servers.*.load", "A"), wrapped("groupByNode(seriesByTag('name=disk.used'), 0, 'sum')", "B_2"), wrapped("constantLine(100)", "C")},
		"from": {from}, "until": {until}, "format": {"json"}, "maxDataPoints": {"10"}})
	if err := json.Unmarshal([]byte(answer), &panel); err != nil {
		t.Fatal(err)
	}
	refs := map[string]int{}
	for _, s := range panel {
		words := strings.Fields(s.Target)
		refs[words[len(words)-1]]++
		if len(s.Datapoints) > 11 {
			t.Errorf("%s has %d points, and 10 were asked for", s.Target, len(s.Datapoints))
		}
	}
	if refs["A"] != 3 || refs["B_2"] == 0 || refs["C"] != 1 || len(refs) != 3 {
		t.Errorf("the references of the queries: %v", refs)
	}
	for _, s := range panel {
		if s.Target != "servers.web1.load A" {
			continue
		}
		if v := valuesOf(&s); len(v) < 8 || !slices.ContainsFunc(s.Datapoints, func(p [2]*float64) bool { return p[0] != nil && *p[0] >= 100 }) {
			t.Errorf("%s: %v", s.Target, v)
		}
	}
	for _, tc := range []struct {
		method, path string
		params       url.Values
		want         string
	}{
		{"POST", "/metrics/find?from=" + from + "&until=" + until, url.Values{"query": {"servers.*"}}, `"text": "web2"`},
		{"GET", "/metrics/expand", url.Values{"query": {"servers.*.load"}}, `servers.web0.load`},
		{"GET", "/tags/autoComplete/tags", url.Values{"expr": {"name=disk.used"}, "tagPrefix": {"h"}, "limit": {"10000"}, "from": {from}}, `["host"]`},
		{"GET", "/tags/autoComplete/values", url.Values{"expr": {"name=disk.used", "dc=dc0"}, "tag": {"host"}, "valuePrefix": {"w"}, "limit": {"10000"}}, `["web0", "web2"]`},
		{"GET", "/version", nil, "1.1."},
		{"GET", "/functions", nil, `"aliasSub"`},
		{"POST", "/render", url.Values{"target": {wrapped("movingAverage(servers.web0.load, '5min')", "A")}, "from": {"-1h"}, "until": {"now"}, "format": {"json"}}, " A"},
		// Server mode: one target, not wrapped.
		{"POST", "/render", url.Values{"target": {"servers.web2.load"}, "from": {from}, "until": {until}, "format": {"json"}, "maxDataPoints": {"1000"}}, `[259.0,`},
		{"POST", "/render", url.Values{"target": {"no.such"}, "from": {from}, "until": {until}, "format": {"json"}}, `[]`},
	} {
		answer := ""
		if tc.method == "POST" {
			answer = post(tc.path, tc.params)
		} else if status, text := g.do("GET", g.url+tc.path+"?"+tc.params.Encode(), "", nil, "Accept", "application/json, text/plain, */*"); status == 200 {
			answer = text
		}
		if !strings.Contains(answer, tc.want) {
			t.Errorf("%s %s %v: %q is not in %.500s", tc.method, tc.path, tc.params, tc.want, answer)
		}
	}
	if status, answer := g.do("POST", g.url+"/events/", "application/json", fmt.Appendf(nil, `{"what":"deploy","tags":["v1","web"],"when":%d}`, now)); status != 200 {
		t.Errorf("event: %d %s", status, answer)
	}
	if _, answer := g.get("/events/get_data", "from", from, "until", fmt.Sprint(now+1), "tags", "v1"); !strings.Contains(answer, `"what": "deploy"`) {
		t.Errorf("annotations: %s", answer)
	}

	// Prometheus' data source.
	for _, tc := range []struct {
		method, path string
		params       url.Values
		want         []string
	}{
		{"POST", "query", url.Values{"query": {"1+1"}, "time": {until}}, []string{`"status":"success"`, `"2"`}},
		{"GET", "status/buildinfo", nil, []string{`"version"`}},
		{"POST", "query_range", url.Values{"query": {`sum({__name__=~"servers[.].*[.]load"})`}, "start": {fmt.Sprint(now - 600)}, "end": {fmt.Sprint(now - 10)}, "step": {"10"}},
			[]string{`"resultType":"matrix"`, fmt.Sprintf(`[%d,"300"]`, now-600), fmt.Sprintf(`[%d,"477"]`, now-10)}},
		{"POST", "labels", url.Values{"start": {from}, "end": {until}}, []string{`"dc"`, `"host"`}},
		{"GET", "label/host/values", url.Values{"match[]": {`{"disk.used"}`}}, []string{`["web0","web1","web2"]`}},
		{"GET", "metadata", url.Values{"limit": {"1000"}}, []string{`"status":"success"`}},
		{"POST", "series", url.Values{"match[]": {`{"disk.used",dc="dc1"}`}, "start": {from}, "end": {until}}, []string{`"host":"web1"`}},
		{"GET", "rules", nil, []string{`"groups"`}},
	} {
		method, to, body := tc.method, g.prometheus+"/api/v1/"+tc.path, tc.params.Encode()
		if method == "GET" {
			to, body = to+"?"+body, ""
		}
		status, answer := g.do(method, to, formType, []byte(body))
		for _, want := range tc.want {
			if status != 200 || !strings.Contains(answer, want) {
				t.Errorf("%s %s %v: %d, %q is not in %.500s", method, tc.path, tc.params, status, want, answer)
			}
		}
	}
}
