package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

var pages = flag.String("pages", "", "directory in which tests leave pages of samples, to be looked at")

func ptr(v float64) *float64 { return &v }

// sample is a report like one of a run of five minutes: half a minute of connecting and warming up, a slow disk for a
// moment in the middle, the end.
func sample(protocol string, agents int, rate, cpuMicros float64) *Report {
	rnd := rand.New(rand.NewPCG(1, uint64(agents)))
	noise := func(v, share float64) float64 { return v * (1 + share*(rnd.Float64()-0.5)) }
	r := &Report{
		Title: "18,000 agents, " + protocol + " protocol", Started: time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC), Seconds: 300,
		Command: "lapwing load --scenario bench/scenarios/" + protocol + "-18k.yaml --backends ws://127.0.0.1:8081 --api-url http://127.0.0.1:8080",
		Version: "0.3.0", Seed: 42, Protocol: protocol, Processes: 1,
		Machine:  Machine{CPUs: 2, CPUModel: "Example CPU @ 2.60GHz", MemoryBytes: 8 << 30, Kernel: "Linux 6.1.0", GoVersion: "go1.26"},
		Settings: map[string]string{"scenario": "bench/scenarios/" + protocol + "-18k.yaml", "count": count(agents), "connect-rate": "2000", "event-bytes": "799", "warm-up": "10s"},
		Target:   Target{Kind: "lapwing", Version: "0.3.0", URLs: []string{"ws://127.0.0.1:8081"}},
		Summary: Summary{
			Agents: agents, Connected: agents, ConnectSeconds: 9.24, EventsSent: uint64(rate * 310), EventsPerSecond: rate,
			KeepalivesSent: uint64(agents * 6), Pairs: uint64(agents * 18), PairsVerified: uint64(agents * 18),
			BackendCPUMicros: ptr(cpuMicros), LoadCPUMicros: ptr(11.3), BackendRSSBytes: ptr(412 << 20), LogBytesPerEvent: ptr(1043), DiskBytes: ptr(1322),
		},
		Latencies: map[string]Quantiles{},
		Notes:     []string{"The load tool ran on the same 2 cores as the backend."},
		Expectations: []Expectation{
			{"events_per_second_min", "at least 30,000", number(rate), rate >= 30000},
			{"loss", "at most 0", "0", true},
			{"cpu_micros_max", "at most 20 µs", micros(cpuMicros), cpuMicros <= 20},
			{"latencies.handler.p99_max", "at most 50 ms", "12.4 ms", true},
		},
	}
	typical := map[string]float64{LatencyVisible: 9e-3, LatencyHandler: 11e-3, LatencyRequest: 0.4, LatencyConnect: 20e-3, LatencyInterval: 4e-3}
	if protocol == "lapwing" {
		delete(typical, LatencyRequest)
		delete(typical, LatencyInterval)
		typical[LatencyAck] = 60e-3
	}
	for key, v := range typical {
		r.Latencies[key] = Quantiles{Count: uint64(rate * 300), P50: v, P90: 1.4 * v, P99: 2.7 * v, P999: 6 * v, Max: 14 * v}
	}
	rss := 90e6
	for at := -30; at < 306; at++ {
		s := Sample{At: float64(at), Latencies: map[string]Quantiles{}, Queues: map[string]float64{}, Counters: map[string]float64{}}
		s.Agents = min(agents, (at+31)*agents/10)
		ramp := min(1, max(0, float64(at+22)/12))
		if at > 300 {
			ramp = 0
		}
		hiccup := 0.0
		if at >= 140 && at < 146 {
			hiccup = 1
		}
		s.Events = uint64(noise(rate*ramp, 0.06))
		s.BackendCPU, s.LoadCPU = ptr(0.02+noise(float64(s.Events)*cpuMicros/1e6, 0.1)), ptr(0.03+noise(float64(s.Events)*11.3/1e6, 0.1))
		rss += 1.05 * (412e6 - rss) / 40
		s.BackendRSS = ptr(noise(rss, 0.02))
		for key, v := range typical {
			if key == LatencyConnect && at > -18 || ramp == 0 && key != LatencyConnect {
				continue
			}
			v = noise(v, 0.3) * (1 + 15*hiccup)
			s.Latencies[key] = Quantiles{Count: 1, P50: v, P90: 1.4 * v, P99: noise(2.7*v, 0.5), P999: 6 * v, Max: noise(8*v, 1)}
		}
		s.Queues["records to append"] = noise(120*ramp, 0.8) + 30000*hiccup
		s.Queues["pairs to write back"] = 1 + noise(180000*ramp, 0.2)
		s.Queues["frames for agents"] = noise(40*ramp, 1)
		s.Queues["deliveries on disk"] = 0
		s.Counters["lapwing_eventlog_appended_total"] = float64(s.Events)
		s.Counters["lapwing_eventlog_syncs_total"] = noise(180*ramp, 0.1)
		if at == 143 {
			s.Errors = 3
		}
		r.Series = append(r.Series, s)
	}
	return r
}

// write writes a report to a directory for viewing, and returns the page.
func write(t *testing.T, name string, r *Report) string {
	t.Helper()
	dir := t.TempDir()
	if *pages != "" {
		dir = filepath.Join(*pages, name)
	}
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	again, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Summary, r.Summary) || len(again.Series) != len(r.Series) {
		t.Error("the JSON holds something else than the report")
	}
	text, err := os.ReadFile(filepath.Join(dir, HTMLFile))
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(text))
	return string(text)
}

var scripts = regexp.MustCompile(`(?s)<(script|style)[^>]*>.*?</(script|style)>`)

// wellFormed checks that elements nest, and that nothing is loaded from elsewhere.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(scripts.ReplaceAllString(page, "")))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
	var open []string
	for {
		token, err := d.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local != "meta" {
				open = append(open, token.Name.Local)
			}
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "src", "href", "srcset", "action":
					t.Errorf("<%s %s=%q> loads something", token.Name.Local, a.Name.Local, a.Value)
				}
				if strings.Contains(a.Value, "ZgotmplZ") {
					t.Errorf("<%s %s=%q> was refused by the template", token.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			if token.Name.Local == "meta" {
				continue
			}
			if len(open) == 0 || open[len(open)-1] != token.Name.Local {
				t.Fatalf("</%s> ends %v", token.Name.Local, open)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("not closed: %v", open)
	}
	if strings.Contains(page, "url(") || strings.Contains(page, "@import") {
		t.Error("the style loads something")
	}
}

func has(t *testing.T, page string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("the page lacks %q", w)
		}
	}
}

func TestWrite(t *testing.T) {
	page := write(t, "sensu", sample("sensu", 18000, 32400, 17.3))
	has(t, page, "32,400 <small>events/s", "324,000 of 324,000 pairs", "0.56 cores", "17.3 <small>µs per event", "All expectations met",
		"lapwing load --scenario", "2 × Example CPU", "8 GiB", "p50 to p99 to max", "logarithmic", "Never held anything: deliveries on disk")
	if n := strings.Count(page, `<figure class="plot">`); n != 12 {
		t.Errorf("%d plots", n)
	}
	page = write(t, "lapwing", sample("lapwing", 18000, 21400, 27.9))
	has(t, page, "2 of 4 expectations missed", "Latency: acknowledged")
}

// turns is what a run of round-robin checks adds to a report.
func turns() *Turns {
	d := Distribution{Agents: 50_000, Min: 200, Max: 300, Mean: 240.4, Deviation: 15.2}
	for i, agents := range []int{10, 400, 4000, 12000, 17000, 11000, 4500, 1000, 80, 10} {
		d.Bins = append(d.Bins, Bin{From: 200 + float64(10*i), To: 209 + float64(10*i), Agents: agents})
	}
	return &Turns{
		Received: 12_000_007, Answered: 11_999_990, Different: 11_999_986, AnsweredTwice: 4, PerSecond: 39_999.6,
		Receipts: true, PerAgent: d,
	}
}

func TestWriteTurns(t *testing.T) {
	r := sample("lapwing", 50_000, 10, 19.4)
	r.Turns, r.Summary.Killed, r.Summary.EventsSent = turns(), 15_000, 0
	for i := range r.Series {
		r.Series[i].Turns = 40_000
	}
	r.Latencies[LatencyTurnArrival] = Quantiles{Count: 1, P50: 0.2, P99: 1, Max: 2}
	page := write(t, "turns", r)
	has(t, page, "40,000 <small>turns/s", "11,999,990 answered with receipts", "19.4 <small>µs per turn", "0.78 cores; load tool 11.3 µs", "15,000 killed",
		`<div class="tile unsure"><h2>Turns answered twice</h2><p class="value">4`, "by different agents, of 11,999,986", "Turn received",
		"50,000 agents had 200 to 300 turns each, 240 on average, with a standard deviation of 15.2.",
		`<th scope="row">240 to 249</th><td>17,000</td>`, "width:100%", "answered per second")
	var b bytes.Buffer
	if err := Text(&b, r); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	has(t, b.String(), "turns/s           40,000 answered with receipts  (11,999,990 in all)", "killed            15,000 agents, without a close frame",
		"turns received    12,000,007\n", "turns answered    11,999,986, 4 of them by several agents",
		"CPU per turn      19.4 µs backend, 11.3 µs load tool", "bytes per turn    1.02 KiB in the log", "turns per agent   200 to 300, mean 240, standard deviation 15.2",
		"  agents in bins  10 400 4,000 12,000 17,000 11,000 4,500 1,000 80 10", "turn received  200 ms")
	r.Turns.PerAgent.Bins = []Bin{{From: 240, To: 240, Agents: 3}}
	has(t, write(t, "narrow", r), `<th scope="row">240</th>`)
	r.Turns = &Turns{} // none was answered
	has(t, write(t, "unanswered", r), "0 answered with results")
	text, err := json.Marshal(turns())
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(text), `"received":12000007`, `"per_agent":{"agents":50000,"min":200,`, `{"from":240,"to":249,"agents":17000}`)
}

// TestWriteLong has more samples than a plot has points.
func TestWriteLong(t *testing.T) {
	r := sample("sensu", 18000, 32400, 17.3)
	r.Seconds = 3600
	first := r.Series
	for i := 1; i < 12; i++ {
		for _, s := range first[30:330] {
			s.At += float64(i * 300)
			r.Series = append(r.Series, s)
		}
	}
	has(t, write(t, "long", r), "Each point stands for 7 samples", "45:00")
}

// TestWriteLittle writes reports in which most is missing.
func TestWriteLittle(t *testing.T) {
	write(t, "empty", &Report{})
	r := &Report{Title: "idle", Summary: Summary{Agents: 10, Connected: 9}, Series: []Sample{{At: 0}, {At: 1, Events: 5}}}
	has(t, write(t, "idle", r), "Not all agents were connected", "of 10, in 0 s")
	r = &Report{Summary: Summary{Agents: 10, Connected: 10, EventsSent: 5, Lost: 2, PairsVerified: 1, Pairs: 1}}
	has(t, write(t, "lost", r), "What the backend stored differs", `<div class="tile bad"><h2>Lost</h2><p class="value">2`)
	r = &Report{Summary: Summary{Agents: 10, Connected: 10, EventsSent: 5}}
	has(t, write(t, "unverified", r), "was not compared", `<div class="tile unsure"><h2>Lost</h2><p class="value">–`)
}

func TestWriteEscapes(t *testing.T) {
	const bad = `</script><script>alert(1)</script>"'<b>`
	r := sample("sensu", 10, 100, 1)
	r.Title, r.Command, r.Notes, r.Settings = bad, bad, []string{bad}, map[string]string{bad: bad}
	r.Series[0].Queues[bad] = 7
	r.Latencies[bad], r.Series[0].Latencies[bad] = Quantiles{Count: 1, P50: 1, P99: 1, Max: 1}, Quantiles{Count: 1, P50: 1, P99: 1, Max: 1}
	if page := write(t, "escapes", r); strings.Contains(page, "<script>alert") {
		t.Error("text of the report became markup")
	}
}

func TestWriteKeepsOneFile(t *testing.T) {
	r := sample("sensu", 10, 100, 1)
	r.Summary.EventsPerSecond = math.NaN() // JSON cannot hold it
	dir := t.TempDir()
	if err := Write(dir, r); err == nil || !strings.Contains(err.Error(), "encode report") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, HTMLFile)); err != nil {
		t.Error(err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("there is a JSON file")
	}
}

// sweep returns runs of two backends at several rates, and at several numbers of agents.
func sweep() (runs []*Report) {
	for _, rate := range []float64{1000, 2000, 5000, 10000, 20000, 32400} {
		runs = append(runs, sample("sensu", 18000, rate, 15+4000/rate), sample("lapwing", 18000, rate, 9+3000/rate))
	}
	for _, agents := range []int{1000, 3000, 6000, 12000} {
		runs = append(runs, sample("sensu", agents, 5000, 15.5+float64(agents)/20000))
	}
	stock := sample("sensu", 1000, 2017, 548)
	stock.Target = Target{Kind: "sensu", Version: "6.12.0"}
	stock.Summary.BackendRSSBytes, stock.Summary.Lost = ptr(1.3e9), 12
	stock.Notes = append(stock.Notes, "40 checks were offered, and the backend did not keep up.")
	return append(runs, stock)
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	if *pages != "" {
		dir = *pages
	}
	runs := sweep()
	if err := Compare(dir, "What an event costs", runs); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ComparisonFile))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	wellFormed(t, page)
	has(t, page, "17 runs of lapwing (sensu protocol), lapwing (lapwing protocol), sensu (sensu protocol)",
		"CPU per event against events/s", "CPU per event against agents", `<td class="bad">12</td>`, "548 µs", "<li>The load tool ran", "<li>sensu (sensu protocol): 1,000 agents, 2,017 events/s: 40 checks were offered", "line: about 18,000 agents", "line: about 5,000 events/s")
	if n := strings.Count(page, `<b class="mark`); n < 2*len(runs) {
		t.Errorf("%d marks", n)
	}
	if n := strings.Count(page, "<tr>"); n != len(runs)+1 {
		t.Errorf("%d rows", n)
	}
	for _, few := range [][]*Report{nil, {{}}, runs[:1]} {
		if err := Compare(t.TempDir(), "", few); err != nil {
			t.Error(err)
		}
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := Text(&b, sample("sensu", 18000, 32400, 27.9)); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	has(t, b.String(), "events/s          32,400  (10,044,000 sent in the whole run)", "CPU per event     27.9 µs backend, 11.3 µs load tool",
		"check request  400 ms   560 ms   1.08 s", "MISSED cpu_micros_max: wanted at most 20 µs, found 27.9 µs\n", "note: The load tool ran", "\n1 of 4 expectations missed\n")
	b.Reset()
	if err := Text(&b, &Report{}); err != nil || strings.Contains(b.String(), "NaN") {
		t.Errorf("error %v, text %s", err, b.String())
	}
}

func TestFormats(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(count(0), "0")
	f(count(999), "999")
	f(count(-1234567), "-1,234,567")
	f(number(0), "0")
	f(number(1.005), "1")
	f(number(9.999), "10")
	f(number(99.96), "100")
	f(number(12345.6), "12,346")
	f(number(0.0123), "0.012")
	f(number(math.NaN()), absent)
	f(latency(0), "0")
	f(latency(0.0123), "12.3 ms")
	f(latency(0.99999), "1 s")
	f(latency(0.9996e-3), "1 ms")
	f(latency(120), "120 s")
	f(size(1000), "0.98 KiB")
	f(size(412<<20), "412 MiB")
	f(size(3e12), "2,794 GiB")
	f(number(sizeBase(0)), "1")
	f(size(sizeBase(412<<20)), "1 MiB")
	f(size(sizeBase(3e12)), "1 GiB")
	f(span(9.24), "9.2 s")
	f(span(300), "5 min")
	f(span(3725), "1 h 2 min")
	f(span(61), "1 min 1 s")
	f(clock(-75), "−1:15")
	f(clock(3661), "1:01:01")
	f(processes(1), "1 process")
	f(unit(1, "runs"), "1 run")
}

func TestAxes(t *testing.T) {
	f := func(a axis, at []float64, low, high float64, want ...float64) {
		t.Helper()
		for i := range at {
			at[i] = math.Round(at[i]*1e9) / 1e9
		}
		if math.Abs(a.low-low) > 1e-9 || math.Abs(a.high-high) > 1e-9 || !reflect.DeepEqual(at, want) {
			t.Errorf("axis from %v to %v with %v, want %v to %v with %v", a.low, a.high, at, low, high, want)
		}
		if a.place(a.low) != 0 || a.place(a.high) != 1 {
			t.Error("the ends are not at the ends")
		}
	}
	a, at := linear(32400)
	f(a, at, 0, 40000, 0, 10000, 20000, 30000, 40000)
	a, at = linear(0)
	f(a, at, 0, 1, 0, 0.5, 1)
	a, at = linear(0.07)
	f(a, at, 0, 0.08, 0, 0.02, 0.04, 0.06, 0.08)
	a, at = logarithmic(1000, 18000)
	f(a, at, 1000, 20000, 1000, 2000, 5000, 10000, 20000)
	a, at = logarithmic(0.0003, 4)
	f(a, at, 0.0002, 5, 0.001, 0.01, 0.1, 1)
	a, at = logarithmic(5, 5)
	f(a, at, 5, 10, 5, 10)
}

// TestTrace draws a line with a gap and a single point.
func TestTrace(t *testing.T) {
	x := axis{high: 10}
	path := trace([]float64{0, 1, 2, 3, 10}, []*float64{ptr(0), ptr(50), nil, nil, ptr(100)}, x)
	if want := "M0 0h0L100 500M1000 1000h0"; path != want {
		t.Errorf("path %s, want %s", path, want)
	}
	if got, want := area(path), "M0 0h0L100 500L100 1000L0 1000ZM1000 1000h0L1000 1000L1000 1000Z"; got != want {
		t.Errorf("area %s, want %s", got, want)
	}
}

// TestSpikesStay: the worst second of a long run is visible even when samples share a point.
func TestSpikesStay(t *testing.T) {
	r := &Report{Seconds: 7200}
	for at := range 7200 {
		q := Quantiles{Count: 1, P50: 1e-3, P99: 1e-3, Max: 1e-3}
		if at == 4321 {
			q.Max = 5
		}
		r.Series = append(r.Series, Sample{At: float64(at), Latencies: map[string]Quantiles{LatencyAck: q}})
	}
	p := newPage(r)
	found := 0
	for _, plot := range p.Plots {
		for _, line := range plot.Data.Lines {
			if n := len(line.Text); n > maxPoints {
				t.Errorf("%d points", n)
			}
			for _, text := range line.Text {
				if text == "5 s" {
					found++
				}
			}
		}
	}
	if found != 1 {
		t.Errorf("the spike is there %d times", found)
	}
}

func TestJSONNames(t *testing.T) {
	text, err := json.Marshal(sample("sensu", 10, 100, 1))
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(text), `"backend_cpu_micros":1`, `"expectations":[{"name":"events_per_second_min"`)
}
