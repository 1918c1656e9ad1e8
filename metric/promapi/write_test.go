package promapi

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/lapwing-monitoring/lapwing/metric/promname"
)

// collector is a Writer that keeps what it gets as text.
type collector struct {
	lines   []string
	flushed int
	// add is asked before a sample is kept.
	add func(name []byte) error
}

func (c *collector) Add(name []byte, milli int64, v float64) error {
	if c.add != nil {
		if err := c.add(name); err != nil {
			return err
		}
	}
	c.lines = append(c.lines, fmt.Sprintf("%s %s %d", name, strconv.FormatFloat(v, 'g', -1, 64), milli))
	return nil
}

func (c *collector) Flush() error { c.flushed++; return nil }

func pairs(texts ...string) []prompb.Label {
	var ls []prompb.Label
	for i := 0; i < len(texts); i += 2 {
		ls = append(ls, prompb.Label{Name: texts[i], Value: texts[i+1]})
	}
	return ls
}

func one(ls []prompb.Label, samples ...prompb.Sample) prompb.TimeSeries {
	return prompb.TimeSeries{Labels: ls, Samples: samples}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// version2 is the same request in version 2.
func version2(v1 *prompb.WriteRequest) *writev2.Request {
	symbols := writev2.NewSymbolTable()
	r := &writev2.Request{}
	for _, ts := range v1.Timeseries {
		out := writev2.TimeSeries{}
		for _, l := range ts.Labels {
			out.LabelsRefs = append(out.LabelsRefs, symbols.Symbolize(l.Name), symbols.Symbolize(l.Value))
		}
		for _, s := range ts.Samples {
			out.Samples = append(out.Samples, writev2.Sample{Value: s.Value, Timestamp: s.Timestamp})
		}
		for range ts.Histograms {
			out.Histograms = append(out.Histograms, writev2.Histogram{Sum: 1})
		}
		r.Timeseries = append(r.Timeseries, out)
	}
	r.Symbols = symbols.Symbols()
	return r
}

func TestWrite(t *testing.T) {
	t.Parallel()
	at := func(v float64, milli int64) prompb.Sample { return prompb.Sample{Value: v, Timestamp: milli} }
	stale := math.Float64frombits(value.StaleNaN)
	for _, c := range []struct {
		name   string
		series []prompb.TimeSeries
		add    func([]byte) error
		status int
		want   []string
		text   string
	}{
		{name: "two series", status: 204, series: []prompb.TimeSeries{
			one(pairs("__name__", "up", "instance", "h1:9100", "job", "node"), at(1, 1000), at(0, 2000)),
			one(pairs("__name__", "servers.h1.cpu"), at(60.2, -5)),
		}, want: []string{"up;instance=h1:9100;job=node 1 1000", "up;instance=h1:9100;job=node 0 2000",
			"servers.h1.cpu 60.2 -5"}},
		{name: "nothing", status: 204},
		{name: "a series without samples", status: 204, series: []prompb.TimeSeries{one(pairs("__name__", "up"))}},
		{name: "labels in any order, empty ones, escapes", status: 204, series: []prompb.TimeSeries{
			one(pairs("b", "1", "__name__", "m", "a", "x", "a1", "~y;z", "c", ""), at(1, 1)),
		}, want: []string{"m;a1=%7Ey%3Bz;a=x;b=1 1 1"}},
		{name: "stale and unknown values", status: 204, series: []prompb.TimeSeries{
			one(pairs("__name__", "m"), at(stale, 1), at(math.NaN(), 2), at(math.Inf(-1), 3)),
		}, want: []string{"m -Inf 3"}},
		{name: "no name", status: 400, text: "took 1 samples; 2 samples belong to series that cannot be stored; the first " +
			"because: the series has no label __name__", series: []prompb.TimeSeries{
			one(pairs("a", "b"), at(1, 1), at(1, 2)), one(pairs("__name__", "m"), at(1, 3)),
		}, want: []string{"m 1 3"}},
		{name: "a label twice", status: 400, text: `"a" is there twice`, series: []prompb.TimeSeries{
			one(pairs("__name__", "m", "a", "1", "a", "2"), at(1, 1)),
		}},
		{name: "not UTF-8", status: 400, text: "not UTF-8", series: []prompb.TimeSeries{
			one(pairs("__name__", "m", "a", "\xff"), at(1, 1)),
		}},
		{name: "a label without a name", status: 400, text: "no name", series: []prompb.TimeSeries{
			one(pairs("__name__", "m", "", "x"), at(1, 1)),
		}},
		{name: "a long name", status: 400, text: "too long", series: []prompb.TimeSeries{
			one(pairs("__name__", "m", "a", strings.Repeat("x", 300)), at(1, 1)),
		}},
		{name: "a name that is long by its escapes", status: 400, text: "too long", series: []prompb.TimeSeries{
			one(pairs("__name__", "m", "a", strings.Repeat(";", 100)), at(1, 1)),
		}},
		{name: "histograms", status: 400, text: "took 1 samples; 1 native histograms cannot be stored",
			series: []prompb.TimeSeries{
				{Labels: pairs("__name__", "h"), Histograms: []prompb.Histogram{{Sum: 1}}},
				one(pairs("__name__", "m"), at(1, 3)),
			}, want: []string{"m 1 3"}},
		{name: "the store is full", status: 503, text: "no more samples", add: func([]byte) error { return ErrFull },
			series: []prompb.TimeSeries{one(pairs("__name__", "m"), at(1, 1))}},
		{name: "the store fails", status: 500, text: "disk", add: func([]byte) error { return errors.New("disk") },
			series: []prompb.TimeSeries{one(pairs("__name__", "m"), at(1, 1))}},
		{name: "the store refuses one", status: 400, text: "took 1 samples; 1 samples were refused; the first because: quota",
			add: func(name []byte) error {
				if string(name) == "n" {
					return fmt.Errorf("quota: %w", ErrRefused)
				}
				return nil
			},
			series: []prompb.TimeSeries{one(pairs("__name__", "n"), at(1, 1)), one(pairs("__name__", "m"), at(1, 2))},
			want:   []string{"m 1 2"}},
	} {
		for version, kind := range []string{"application/x-protobuf", "application/x-protobuf;proto=" + message2} {
			t.Run(fmt.Sprintf("%s, version %d", c.name, version+1), func(t *testing.T) {
				w := &collector{add: c.add}
				a := newAPI(t, func(o *Options) {
					o.Queryable = viewOf(stuck{})
					o.Writer = func(*http.Request) (Writer, error) { return w, nil }
					o.MaxNameBytes = 256
				})
				request := &prompb.WriteRequest{Timeseries: c.series,
					Metadata: []prompb.MetricMetadata{{MetricFamilyName: "m", Help: "x"}}}
				body := marshal(t, request)
				if version == 1 {
					body = marshal(t, version2(request))
				}
				got := post(a, snappy.Encode(nil, body), kind)
				if got.Code != c.status || !strings.Contains(got.Body.String(), c.text) {
					t.Errorf("status %d: %s; want %d: %s", got.Code, got.Body, c.status, c.text)
				}
				if !slices.Equal(w.lines, c.want) {
					t.Errorf("got %q; want %q", w.lines, c.want)
				}
				if w.flushed != 1 {
					t.Errorf("%d flushes", w.flushed)
				}
				if c.status == 503 && got.Header().Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				if _, there := got.Header()["X-Prometheus-Remote-Write-Samples-Written"]; there != (version == 1) {
					t.Errorf("the count of written samples is there: %t", there)
				}
			})
		}
	}
}

func post(a http.Handler, body []byte, kind string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/api/v1/write", bytes.NewReader(body))
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Content-Encoding", "snappy")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// TestPrometheusSends takes samples from Prometheus' own client, which decides by the answer whether it tries again.
func TestPrometheusSends(t *testing.T) {
	t.Parallel()
	request := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		one(pairs("__name__", "up", "job", "node"), prompb.Sample{Value: 1, Timestamp: 1000}),
	}}
	for version, kind := range []config.RemoteWriteProtoMsg{config.RemoteWriteProtoMsgV1, config.RemoteWriteProtoMsgV2} {
		w := &collector{}
		a := newAPI(t, func(o *Options) {
			o.Queryable = viewOf(stuck{})
			o.Writer = func(*http.Request) (Writer, error) { return w, nil }
		})
		server := httptest.NewServer(a)
		u, err := url.Parse(server.URL + "/api/v1/write")
		if err != nil {
			t.Fatal(err)
		}
		client, err := remote.NewWriteClient("test", &remote.ClientConfig{URL: &commonconfig.URL{URL: u},
			Timeout: model.Duration(time.Minute), WriteProtoMsg: kind, RetryOnRateLimit: true})
		if err != nil {
			t.Fatal(err)
		}
		body := marshal(t, request)
		if version == 1 {
			body = marshal(t, version2(request))
		}
		store := func() (remote.WriteResponseStats, error) {
			return client.Store(t.Context(), snappy.Encode(nil, body), 0)
		}
		stats, err := store()
		if err != nil || stats.Confirmed != (version == 1) || stats.Samples != version {
			t.Errorf("version %d: %v, %+v", version+1, err, stats)
		}
		if want := []string{"up;job=node 1 1000"}; !slices.Equal(w.lines, want) {
			t.Errorf("version %d: got %q; want %q", version+1, w.lines, want)
		}
		var again remote.RecoverableError
		w.add = func([]byte) error { return ErrFull }
		if _, err := store(); !errors.As(err, &again) {
			t.Errorf("version %d: a full store: %v; want an error to try again", version+1, err)
		}
		w.add = func([]byte) error { return ErrRefused }
		if _, err := store(); err == nil || errors.As(err, &again) {
			t.Errorf("version %d: a refused sample: %v; want an error without another try", version+1, err)
		}
		client.(*remote.Client).Client.CloseIdleConnections()
		server.Close()
	}
}

func TestWriteRefused(t *testing.T) {
	t.Parallel()
	w := &collector{}
	writerErr := error(nil)
	registry := prometheus.NewRegistry()
	a := newAPI(t, func(o *Options) {
		o.Queryable = viewOf(stuck{})
		o.Writer = func(*http.Request) (Writer, error) { return w, writerErr }
		o.MaxWriteBytes = 1000
		o.Registerer = registry
	})
	const kind = "application/x-protobuf"
	pack := func(b ...byte) []byte { return snappy.Encode(nil, b) }
	for _, c := range []struct {
		name, kind string
		body       []byte
		status     int
	}{
		{"not snappy", kind, []byte("hello"), 400},
		{"not protobuf", kind, pack(0xff), 400},
		{"series of wrong type", kind, pack(0x08, 1), 400},
		{"label of wrong type", kind, pack(0x0a, 2, 0x08, 1), 400},
		{"sample of wrong type", kind, pack(0x0a, 2, 0x10, 1), 400},
		{"value of wrong type", kind, pack(0x0a, 4, 0x12, 2, 0x08, 1), 400},
		{"cut off", kind, pack(0x0a, 9, 0), 400},
		{"version 2: symbol that is not there", kind + ";proto=" + message2, pack(0x2a, 4, 0x0a, 2, 1, 2), 400},
		{"version 2: odd number of labels", kind + ";proto=" + message2, pack(0x22, 0, 0x2a, 3, 0x0a, 1, 0), 400},
		{"long when compressed", kind, bytes.Repeat([]byte{1}, 1001), 413},
		{"long when decompressed", kind, pack(make([]byte, 2000)...), 413},
		{"other message", kind + ";proto=x", pack(), 415},
		{"other type", "text/plain", pack(), 415},
	} {
		if got := post(a, c.body, c.kind); got.Code != c.status {
			t.Errorf("%s: status %d: %s; want %d", c.name, got.Code, got.Body, c.status)
		}
	}
	r := httptest.NewRequest("POST", "/api/v1/write", nil)
	r.Header.Set("Content-Encoding", "zstd")
	got := httptest.NewRecorder()
	a.ServeHTTP(got, r)
	if got.Code != 415 {
		t.Errorf("zstd: status %d", got.Code)
	}
	if got := do(a, "GET", "/api/v1/write", ""); got.Code != 405 {
		t.Errorf("GET: status %d", got.Code)
	}
	for err, want := range map[error]int{ErrFull: 503, ErrForbidden: 403} {
		writerErr = err
		if got := post(a, pack(), kind); got.Code != want {
			t.Errorf("%v: status %d", err, got.Code)
		}
	}
	if len(w.lines) > 0 {
		t.Errorf("got samples: %q", w.lines)
	}
	if len(a.writes) != cap(a.writes) {
		t.Error("a slot is lost")
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP lapwing_metric_promapi_writes_total Remote write requests, by result.
		# TYPE lapwing_metric_promapi_writes_total counter
		lapwing_metric_promapi_writes_total{result="busy"} 1
		lapwing_metric_promapi_writes_total{result="failed"} 0
		lapwing_metric_promapi_writes_total{result="invalid"} 15
		lapwing_metric_promapi_writes_total{result="ok"} 0
	`), "lapwing_metric_promapi_writes_total"); err != nil {
		t.Error(err)
	}
}

// reference is the same decoding with the generated types.
func reference(r *prompb.WriteRequest) (lines []string) {
	for _, ts := range r.Timeseries {
		seen, bad := map[string]bool{}, false
		ls := labels.NewScratchBuilder(0)
		for _, l := range ts.Labels {
			if l.Name == "" || !validUTF8(l.Name) || !validUTF8(l.Value) || l.Value != "" && seen[l.Name] {
				bad = true
			}
			if l.Value != "" {
				seen[l.Name] = true
				ls.Add(l.Name, l.Value)
			}
		}
		ls.Sort()
		var b promname.Builder
		ls.Labels().Range(func(l labels.Label) { b.Add([]byte(l.Name), []byte(l.Value)) })
		name, err := b.Append(nil)
		if bad || err != nil || len(name) > 8<<10 {
			continue
		}
		for _, s := range ts.Samples {
			if !math.IsNaN(s.Value) {
				lines = append(lines, fmt.Sprintf("%s %s %d", name, strconv.FormatFloat(s.Value, 'g', -1, 64), s.Timestamp))
			}
		}
	}
	return lines
}

func validUTF8(s string) bool { return strings.ToValidUTF8(s, "") == s }

// FuzzDecode compares the decoder with the generated types of Prometheus.
func FuzzDecode(f *testing.F) {
	request := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		one(pairs("__name__", "up", "job", "node"), prompb.Sample{Value: 1, Timestamp: 1_700_000_000_000}),
		{Labels: pairs("__name__", "h;", "a", "~"), Histograms: []prompb.Histogram{{Sum: 1}},
			Exemplars: []prompb.Exemplar{{Value: 1}}, Samples: []prompb.Sample{{Value: math.Inf(1), Timestamp: -1}}},
	}, Metadata: []prompb.MetricMetadata{{Help: "x"}}}
	f.Add(marshal(f, request), marshal(f, version2(request)))
	f.Add([]byte{0x0a, 4, 0x12, 2, 0x08, 1}, []byte{0x22, 0, 0x2a, 3, 0x0a, 1, 0})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var want prompb.WriteRequest
		if want.Unmarshal(first) == nil {
			compare(t, "version 1", (*decoder).v1, first, marshal(t, version1(version2(&want))), reference(&want))
		} else {
			_ = (&decoder{writer: &collector{}, maxName: 100}).v1(first)
		}
		var want2 writev2.Request
		if want2.Unmarshal(second) == nil {
			compare(t, "version 2", (*decoder).v2, second, marshal(t, version2(version1(&want2))), reference(version1(&want2)))
		} else {
			_ = (&decoder{writer: &collector{}, maxName: 100}).v2(second)
		}
	})
}

// compare decodes a message as it came and as the generated types write it. The first may fail: the generated types
// take numbers that overflow, lists that run over their end, groups that do not end, and symbols that are not there.
func compare(t *testing.T, version string, decode func(*decoder, []byte) error, raw, clean []byte, want []string) {
	for i, message := range [][]byte{raw, clean} {
		w := &collector{}
		err := decode(&decoder{writer: w, maxName: 8 << 10}, message)
		if err != nil {
			if i == 0 {
				continue
			}
			t.Fatalf("%s: %v; the generated types decode it", version, err)
		}
		if !slices.Equal(w.lines, want) {
			t.Fatalf("%s: %q; the generated types say %q", version, w.lines, want)
		}
	}
}

func version1(r *writev2.Request) *prompb.WriteRequest {
	out := &prompb.WriteRequest{}
	symbol := func(i uint32) string {
		if int(i) < len(r.Symbols) {
			return r.Symbols[i]
		}
		return ""
	}
	for _, ts := range r.Timeseries {
		s := prompb.TimeSeries{}
		for i := 0; i+1 < len(ts.LabelsRefs); i += 2 {
			s.Labels = append(s.Labels, prompb.Label{Name: symbol(ts.LabelsRefs[i]), Value: symbol(ts.LabelsRefs[i+1])})
		}
		for _, v := range ts.Samples {
			s.Samples = append(s.Samples, prompb.Sample{Value: v.Value, Timestamp: v.Timestamp})
		}
		out.Timeseries = append(out.Timeseries, s)
	}
	return out
}

type sink struct{ n int }

func (s *sink) Add([]byte, int64, float64) error { s.n++; return nil }
func (s *sink) Flush() error                     { return nil }

// big is a request of 2,000 samples as Prometheus sends them.
func big() *prompb.WriteRequest {
	random := rand.New(rand.NewPCG(1, 2))
	r := &prompb.WriteRequest{}
	for i := range 2000 {
		r.Timeseries = append(r.Timeseries, one(pairs("__name__", "node_cpu_seconds_total", "cluster", "production-1",
			"cpu", strconv.Itoa(i%64), "instance", fmt.Sprintf("host-%d.example.com:9100", i/64), "job", "node-exporter",
			"mode", "idle"), prompb.Sample{Value: random.Float64() * 1e6, Timestamp: 1_700_000_000_000}))
	}
	return r
}

func TestDecodeAllocations(t *testing.T) {
	request := big()
	for version, message := range [][]byte{marshal(t, request), marshal(t, version2(request))} {
		d := &decoder{maxName: 8 << 10}
		s := &sink{}
		run := []func([]byte) error{d.v1, d.v2}[version]
		decode := func() {
			d.reset(s)
			if err := run(message); err != nil || d.samples != 2000 {
				t.Fatalf("%d samples, %v", d.samples, err)
			}
		}
		decode()
		if n := testing.AllocsPerRun(10, decode); n > 2 {
			t.Errorf("version %d: %v allocations for 2,000 series", version+1, n)
		}
	}
}

// BenchmarkWrite takes requests of 2,000 samples, from the handler to the Writer.
func BenchmarkWrite(b *testing.B) {
	request := big()
	for version, message := range [][]byte{marshal(b, request), marshal(b, version2(request))} {
		b.Run(fmt.Sprintf("version=%d", version+1), func(b *testing.B) {
			s := &sink{}
			a := newAPI(b, func(o *Options) {
				o.Queryable = viewOf(stuck{})
				o.Writer = func(*http.Request) (Writer, error) { return s, nil }
				o.Log = slog.New(slog.DiscardHandler)
			})
			body := snappy.Encode(nil, message)
			kind := "application/x-protobuf"
			if version == 1 {
				kind += ";proto=" + message2
			}
			b.ReportAllocs()
			for b.Loop() {
				if w := post(a, body, kind); w.Code != 204 {
					b.Fatal(w.Body)
				}
			}
			b.ReportMetric(float64(s.n)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

// BenchmarkGenerated decodes the same request with the generated types, without making names.
func BenchmarkGenerated(b *testing.B) {
	body := snappy.Encode(nil, marshal(b, big()))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		plain, err := snappy.Decode(nil, body)
		if err != nil {
			b.Fatal(err)
		}
		var r prompb.WriteRequest
		if err := r.Unmarshal(plain); err != nil {
			b.Fatal(err)
		}
		n += len(r.Timeseries)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "samples/s")
}
