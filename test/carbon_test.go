package test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lapwing-monitoring/lapwing/client"
)

var carbonKills = flag.Int("carbon-kills", 5, "how often TestCarbonKilled kills the server")

// carbonServer is `lapwing carbon` in its own process.
type carbonServer struct {
	graphiteServer
	t       *testing.T
	dir     string // with the state, and files of the test
	line    string
	udp     string
	pickle  string
	proto   string
	metrics string
	extra   []string
	cmd     *exec.Cmd
	log     *os.File
}

func newCarbon(t *testing.T, extra ...string) *carbonServer {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	address := func() string { return "127.0.0.1:" + freePort(t) }
	query := address()
	c := &carbonServer{
		t: t, dir: dir, line: address(), udp: address(), pickle: address(), proto: address(), metrics: address(), extra: extra, log: log,
		graphiteServer: graphiteServer{t: t, url: "http://" + query, prometheus: "http://" + query},
	}
	t.Cleanup(func() {
		c.kill(syscall.SIGKILL)
		_ = log.Close()
		if t.Failed() {
			t.Logf("the server's log:\n%s", tailOf([]byte(c.said()), 4000))
		}
	})
	return c
}

func (c *carbonServer) said() string {
	text, err := os.ReadFile(c.log.Name())
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

func (c *carbonServer) state() string { return filepath.Join(c.dir, "state") }

// file writes a file for the server to read, and returns its path.
func (c *carbonServer) file(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// start runs the server until it answers queries.
func (c *carbonServer) start() {
	c.t.Helper()
	path, err := binary()
	if err != nil {
		c.t.Fatal(err)
	}
	args := append([]string{"carbon", "--state-dir", c.state(), "--config-file", os.DevNull, "--carbon-listen-address", c.line,
		"--carbon-udp-listen-address", c.udp, "--carbon-pickle-listen-address", c.pickle, "--carbon-protobuf-listen-address", c.proto,
		"--graphite-listen-address", strings.TrimPrefix(c.url, "http://"), "--metrics-listen-address", c.metrics,
		"--metric-min-free-disk", "2000000"}, c.extra...)
	c.cmd = exec.Command(path, args...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, time.Minute, "the server answers", c.answers)
}

func (c *carbonServer) answers() bool {
	res, err := http.Get(c.url + "/version")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// kill ends the process with a signal and waits for it.
func (c *carbonServer) kill(sig syscall.Signal) {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(sig)
	_ = c.cmd.Wait()
	c.cmd = nil
}

// metric returns a metric of the server's own, summed over the series that have all labels, given as name=value.
func (c *carbonServer) metric(name string, labels ...string) float64 {
	c.t.Helper()
	return metricAt(c.t, c.metrics, name, labels...)
}

// metricAt returns a metric of the process with this HTTP address, as carbonServer.metric does.
func metricAt(t testing.TB, address, name string, labels ...string) (sum float64) {
	t.Helper()
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[name].GetMetric() {
		var has []string
		for _, l := range m.GetLabel() {
			has = append(has, l.GetName()+"="+l.GetValue())
		}
		if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(has, l) }) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// errorsSince returns the lines of the log from an offset that are errors.
func (c *carbonServer) errorsSince(offset int) (bad []string) {
	for line := range strings.Lines(c.said()[offset:]) {
		if strings.Contains(line, "level=error") || strings.Contains(line, "panic") || strings.HasPrefix(line, "Error") {
			bad = append(bad, line)
		}
	}
	return bad
}

// aged sends batches of points on connections that it closes in order. Each batch has a value of each of its series, for
// the next second. It remembers which batches a query has confirmed.
type aged struct {
	prefix string
	series int
	begin  int64 // the time of the first batch

	mu        sync.Mutex // guards the fields below
	confirmed int        // batches, from the first
	missed    []int      // batches that were under way when the server was killed
}

// value is what a series has in a batch.
func (*aged) value(batch, series int) float64 { return float64(batch*1000 + series) }

func (a *aged) lines(batch int) []byte {
	var b []byte
	for i := range a.series {
		b = fmt.Appendf(b, "%s.m%03d %v %d\n", a.prefix, i, a.value(batch, i), a.begin+int64(batch))
	}
	return b
}

// has reports whether a server has all points of a batch.
func (a *aged) has(ctx context.Context, base string, batch int) (bool, error) {
	at := a.begin + int64(batch)
	q := url.Values{"target": {a.prefix + ".*"}, "from": {fmt.Sprint(at - 1)}, "until": {fmt.Sprint(at)}, "format": {"raw"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/render?"+q.Encode(), nil)
	if err != nil {
		return false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil || res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %w", res.Status, err)
	}
	text := body.String()
	for i := range a.series {
		if !strings.Contains(text, fmt.Sprintf("%s.m%03d,%d,%d,1|%.1f\n", a.prefix, i, at, at+1, a.value(batch, i))) {
			return false, nil
		}
	}
	return true, nil
}

// run sends batches until stop is closed, as fast as they are confirmed, but none of the future. A batch that a kill has
// interrupted is given up.
func (a *aged) run(ctx context.Context, stop chan struct{}, line, base string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for batch := 0; ; batch++ {
		sent := false
		for !sent {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				sent = a.begin+int64(batch) < now.Unix() && trySendTo(line, a.lines(batch)) == nil
			}
		}
		for confirmed := false; !confirmed; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			var err error
			if confirmed, err = a.has(ctx, base, batch); err != nil {
				break // killed: the batch may have been in the queue
			}
			if confirmed {
				a.mu.Lock()
				a.confirmed = batch + 1
				a.mu.Unlock()
			}
		}
		a.mu.Lock()
		if a.confirmed <= batch {
			a.missed = append(a.missed, batch)
			a.confirmed = batch + 1
		}
		a.mu.Unlock()
	}
}

// TestCarbonKilled kills `lapwing carbon` with SIGKILL while senders send. All points are there after the next start that
// a query has shown before; the start logs no error; and aggregates are right again from the first whole interval.
//
// It kills five times; -carbon-kills sets another number.
func TestCarbonKilled(t *testing.T) {
	t.Parallel()
	c := newCarbon(t)
	c.extra = []string{
		"--storage-schemas-file", c.file("schemas", "[all]\npattern = .*\nretentions = 1s:1h,10s:1d\n"),
		"--storage-aggregation-file", c.file("aggregation", "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = sum\n"),
		"--aggregation-rules-file", c.file("rules", "total.<what> (5) = sum fleet.*.<what>\n"),
	}
	c.start()
	begin := time.Now().Unix()/10*10 - 400
	var senders []*aged
	for i := range 3 {
		senders = append(senders, &aged{prefix: fmt.Sprintf("crash.s%d", i), series: 100, begin: begin})
	}
	stop := make(chan struct{})
	var sending sync.WaitGroup
	for _, s := range senders {
		sending.Go(func() { s.run(t.Context(), stop, c.line, c.url) })
	}
	defer sync.OnceFunc(func() { close(stop); sending.Wait() })()
	confirmed := func() (n int) {
		for _, s := range senders {
			s.mu.Lock()
			n += s.confirmed - len(s.missed)
			s.mu.Unlock()
		}
		return n
	}
	verify := func(when string) {
		t.Helper()
		for _, s := range senders {
			s.mu.Lock()
			batches, missed := s.confirmed, slices.Clone(s.missed)
			s.mu.Unlock()
			eventually(t, time.Minute, "the names are there again", func() bool {
				return len(c.render(fmt.Sprint(begin-1), fmt.Sprint(begin), s.prefix+".*")) == s.series
			})
			series := c.render(fmt.Sprint(begin-1), fmt.Sprint(begin+int64(batches)), s.prefix+".*")
			lost := 0
			for i := range series {
				values := valuesOf(&series[i])
				for batch := range batches {
					if got, ok := values[begin+int64(batch)]; !slices.Contains(missed, batch) && (!ok || got != s.value(batch, i)) {
						lost++
					}
				}
			}
			if lost > 0 {
				t.Errorf("%s: %d of %d points of %s are gone that a query had shown", when, lost, batches*s.series, s.prefix)
			}
		}
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for n := range *carbonKills {
		before := confirmed()
		want := before + 10 + rng.IntN(40)
		eventually(t, 2*time.Minute, "batches are confirmed", func() bool { return confirmed() >= want })
		pause := time.NewTimer(time.Duration(rng.IntN(30)) * time.Millisecond) // anywhere in a batch
		<-pause.C
		c.kill(syscall.SIGKILL)
		offset := len(c.said())
		c.start()
		verify(fmt.Sprintf("kill %d", n+1))
		if bad := c.errorsSince(offset); len(bad) > 0 {
			t.Errorf("kill %d: the start says %q", n+1, bad)
		}
		if t.Failed() {
			return
		}
	}

	// An aggregate of an interval after the last start.
	interval := time.Now().Unix()/5*5 + 5
	for host := range 10 {
		sendTo(t, c.line, fmt.Appendf(nil, "fleet.h%d.load %d %d\nfleet.h%d.load %d %d\n", host, 1, interval, host, host, interval+1))
	}
	eventually(t, time.Minute, "the aggregate is there", func() bool {
		s := c.render(fmt.Sprint(interval-1), fmt.Sprint(interval+5), "total.load")
		return len(s) == 1 && valuesOf(&s[0])[interval] == 45
	})

	close(stop)
	sending.Wait()
	stop = make(chan struct{})
	verify("in the end")
	kept := 0
	for _, s := range senders {
		kept += (s.confirmed - len(s.missed)) * s.series
	}
	t.Logf("%d kills: %d points confirmed before and kept", *carbonKills, kept)
}

// TestCarbonRollsUpAfterKills kills the server in the middle of slots of a coarse archive, while another sender is ahead of
// time. After the last start the coarse archive has the sums of all values of the fine one.
func TestCarbonRollsUpAfterKills(t *testing.T) {
	t.Parallel()
	c := newCarbon(t)
	c.extra = []string{
		"--storage-schemas-file", c.file("schemas", "[all]\npattern = .*\nretentions = 1s:1h,10s:1d\n"),
		"--storage-aggregation-file", c.file("aggregation", "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = sum\n"),
	}
	c.start()
	begin := time.Now().Unix()/10*10 - 300
	s := &aged{prefix: "rolled", series: 100, begin: begin}
	send := func(from, until int) {
		t.Helper()
		for batch := from; batch < until; batch++ {
			sendTo(t, c.line, s.lines(batch))
		}
		eventually(t, time.Minute, "the points are stored, and coarse slots computed", func() bool {
			ok, err := s.has(t.Context(), c.url, until-1)
			return ok && err == nil && c.metric("lapwing_metric_store_waiting_corrections") == 0
		})
	}
	const kills, batches = 3, 20
	for n := range kills {
		sendTo(t, c.line, fmt.Appendf(nil, "ahead 1 %d\n", time.Now().Unix()+300+int64(n)))
		send(n*batches, n*batches+15)
		c.kill(syscall.SIGKILL)
		c.start()
		// The rest of the slot never comes, so only the start can compute it.
	}
	send(kills*batches, kills*batches+10) // closes the last slot
	until := begin + kills*batches
	fine := c.render(fmt.Sprint(begin-1), fmt.Sprint(until-1), "rolled.*")
	if len(fine) != s.series || len(valuesOf(&fine[0])) != kills*(batches-5) {
		t.Fatalf("%d series: %v", len(fine), fine)
	}
	differ := "not read"
	defer func() {
		if differ != "" {
			t.Log(differ)
		}
	}()
	eventually(t, time.Minute, "the coarse archive has the same", func() bool {
		coarse := c.render(fmt.Sprint(time.Now().Unix()-4000), fmt.Sprint(until-10), "rolled.*") // the fine one has an hour
		differ = sameSums(fine, coarse, begin, until)
		return differ == ""
	})
}

// sameSums returns where coarse does not have the sums of fine's values, by steps of 10.
func sameSums(fine, coarse []client.RenderedSeries, begin, until int64) string {
	if len(fine) == 0 || len(fine) != len(coarse) {
		return fmt.Sprintf("%d series, and %d in the coarse archive", len(fine), len(coarse))
	}
	for i := range fine {
		one, ten := valuesOf(&fine[i]), valuesOf(&coarse[i])
		for slot := begin; slot < until; slot += 10 {
			sum, n := 0.0, 0
			for at := slot; at < slot+10; at++ {
				if v, ok := one[at]; ok {
					sum += v
					n++
				}
			}
			if got, ok := ten[slot]; ok != (n > 0) || math.Abs(got-sum) > 1e-6 {
				return fmt.Sprintf("%s at %d has %v of %d values, and %v, %v in the coarse archive", fine[i].Target, slot, sum, n, got, ok)
			}
		}
	}
	return ""
}

// TestCarbonWithADamagedLog garbles and cuts the write-ahead log of a killed server. The next start says what it could not
// read, and the server takes points.
func TestCarbonWithADamagedLog(t *testing.T) {
	t.Parallel()
	c := newCarbon(t)
	for _, damage := range []struct {
		name string
		do   func(path string) error
	}{
		{"garbled", func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, 500), 20_000)
			return err
		}},
		{"cut", func(path string) error { return os.Truncate(path, 40_001) }},
		{"empty", func(path string) error { return os.Truncate(path, 0) }},
		{"a directory", func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o755)
		}},
	} {
		c.start()
		now := time.Now().Unix()/10*10 - 600
		var lines []byte
		for i := range 1000 {
			for at := now; at < now+100; at += 10 {
				lines = fmt.Appendf(lines, "damage.m%04d %d %d\n", i, i, at)
			}
		}
		sendTo(t, c.line, lines)
		eventually(t, time.Minute, "the points are there", func() bool {
			s := c.render(fmt.Sprint(now-1), fmt.Sprint(now+90), "countSeries(damage.*)", "sumSeries(damage.*)")
			return len(s) == 2 && valuesOf(&s[0])[now+90] == 1000 && valuesOf(&s[1])[now+90] == 999*1000/2
		})
		c.kill(syscall.SIGKILL)
		segments, err := filepath.Glob(filepath.Join(c.state(), "tiers", "tier-10s-*", "wal", "0*"))
		if err != nil || len(segments) == 0 {
			t.Fatalf("segments: %q, %v", segments, err)
		}
		slices.Sort(segments)
		largest := slices.MaxFunc(segments, func(a, b string) int { return int(sizeOf(t, a) - sizeOf(t, b)) })
		if err := damage.do(largest); err != nil {
			t.Fatal(err)
		}
		offset := len(c.said())
		c.start()
		said := c.said()[offset:]
		// An empty segment is as a kill leaves it.
		if damage.name != "empty" && !strings.Contains(said, "corrupt") {
			t.Errorf("%s: the start says nothing of it: %s", damage.name, said)
		}
		if strings.Contains(said, "panic") {
			t.Errorf("%s: %s", damage.name, said)
		}
		at := time.Now().Unix() / 10 * 10
		sendTo(t, c.line, fmt.Appendf(nil, "after.damage 7 %d\n", at))
		eventually(t, time.Minute, "a new point is there", func() bool {
			s := c.render(fmt.Sprint(at-1), fmt.Sprint(at), "after.damage")
			return len(s) == 1 && valuesOf(&s[0])[at] == 7
		})
		c.kill(syscall.SIGTERM)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestCarbonTakesBadInput sends what no sender should send. Each refusal is counted by its reason, the server goes on, and
// the series that were there get their points.
func TestCarbonTakesBadInput(t *testing.T) {
	t.Parallel()
	c := newCarbon(t, "--metric-max-series", "1000")
	c.start()
	now := time.Now().Unix() / 10 * 10
	good := func(value int) {
		t.Helper()
		sendTo(t, c.line, fmt.Appendf(nil, "good.series %d %d\n", value, now))
		eventually(t, 30*time.Second, "good.series has its point", func() bool {
			s := c.render(fmt.Sprint(now-1), fmt.Sprint(now), "good.series")
			return len(s) == 1 && valuesOf(&s[0])[now] == float64(value)
		})
	}
	good(1)
	const rejectedName = "lapwing_metric_carbon_rejected_points_total"
	// counted sends, and expects that many refusals. A frame is counted before its connection ends.
	counted := func(what, address string, data []byte, protocol, reason string, n float64) {
		t.Helper()
		before := c.metric(rejectedName, "protocol="+protocol, "reason="+reason)
		_ = trySendTo(address, data) // the server may reset the connection
		eventually(t, 30*time.Second, fmt.Sprintf("%s: %v more of %s/%s, which are %v", what, n, protocol, reason, before), func() bool {
			return c.metric(rejectedName, "protocol="+protocol, "reason="+reason) == before+n
		})
	}
	counted("words", c.line, []byte("hello\nGET / HTTP/1.1\r\n\x00\xff\xfe binary\n"), "line", "format", 1)
	counted("a value that is none", c.line, []byte("a.b x 1\na.b 0x10 1\n"), "line", "value", 2)
	counted("a time that is none", c.line, fmt.Appendf(nil, "a.b 1 yesterday\n"), "line", "timestamp", 1)
	counted("1970", c.line, []byte("a.b 1 0\na.b 1 -5\n"), "line", "past", 2)
	counted("2100", c.line, []byte("a.b 1 4102444800\n"), "line", "future", 1)
	counted("NaN", c.line, fmt.Appendf(nil, "a.b nan %d\na.b NaN %d\n", now, now), "line", "nan", 2)
	counted("infinite", c.line, fmt.Appendf(nil, "a.b inf %d\na.b -Infinity %d\n", now, now), "line", "inf", 2)
	counted("a name of 1 MB", c.line, append(bytes.Repeat([]byte("x"), 1<<20), fmt.Appendf(nil, " 1 %d\n", now)...), "line", "line_too_long", 1)
	counted("a name of 4100 bytes", c.line, append(bytes.Repeat([]byte("x"), 4100), fmt.Appendf(nil, " 1 %d\n", now)...), "line", "name_too_long", 1)
	good(2)
	for what, payload := range map[string]string{
		"a call":        "cos\nsystem\n(S'true'\ntR.",
		"a new call":    "\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
		"an object":     "\x80\x02c__builtin__\nobject\n)\x81}b.",
		"no pickle":     "hello",
		"a deep pickle": strings.Repeat("(", 100_000) + ".",
		"nothing":       "",
	} {
		counted(what, c.pickle, framed([]byte(payload)), "pickle", "frame", 1)
	}
	counted("a pickle with a bad item", c.pickle, framed(fmt.Appendf(nil, "(lp0\n(S'a.b'\n(I%d\nS'x'\ntta(I1\nI2\nta.", now)), "pickle", "item", 1)
	counted("half a frame", c.pickle, framed(make([]byte, 1000))[:500], "pickle", "incomplete", 1)
	counted("a frame of 4 GB", c.pickle, []byte{255, 255, 255, 255, 1, 2, 3}, "pickle", "frame", 1)
	counted("no protobuf", c.proto, framed([]byte("hello")), "protobuf", "frame", 1)
	counted("half a frame", c.proto, framed(make([]byte, 1000))[:500], "protobuf", "incomplete", 1)
	udp, err := net.Dial("udp", c.udp)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := fmt.Fprintf(udp, "bad\nby.udp 3 %d\nbad", now); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the good line of a datagram is there", func() bool {
		s := c.render(fmt.Sprint(now-1), fmt.Sprint(now), "by.udp")
		return len(s) == 1 && valuesOf(&s[0])[now] == 3
	})
	good(3)

	// 100,000 new series where 1000 are allowed.
	have := c.metric("lapwing_metric_store_series")
	var flood []byte
	for i := range 100_000 {
		flood = fmt.Appendf(flood, "flood.n%06d 1 %d\n", i, now)
	}
	sendTo(t, c.line, flood)
	eventually(t, time.Minute, "the refused points are counted", func() bool {
		taken := c.metric("lapwing_metric_store_series") - have
		return c.metric("lapwing_metric_refused_points_total", "reason=too_many_series") == 100_000-taken && taken > 0 && taken <= 1000
	})
	if n := c.metric("lapwing_metric_store_series"); n > 1000 {
		t.Errorf("%v series, and 1000 are allowed", n)
	}
	if n := c.metric("lapwing_metric_index_series"); n > 1000 {
		t.Errorf("%v names in the index, and 1000 series are allowed", n)
	}
	good(4)
	if said := c.said(); strings.Contains(said, "panic") || strings.Count(said, "\n") > 200 {
		t.Errorf("the log has %d lines: %.3000s", strings.Count(said, "\n"), said)
	}

	// Targets that are none.
	for _, target := range []string{"sumSeries(a.b", "sumSeries(a.b))", "a.b, c.d)", "sumSeries(a.b,'x)", "|", "f(", "a{b,c", "()", "alias(a.b,\"x\\\")"} {
		status, answer := c.get("/render", "target", target, "format", "json")
		if status != http.StatusBadRequest || !strings.ContainsAny(answer, "0123456789") || strings.Contains(answer, "goroutine") {
			t.Errorf("%s: %d %s", target, status, answer)
		}
	}
	for _, q := range [][2]string{{"target", "nosuch(a.b)"}, {"target", "movingAverage(a.b)"}, {"from", "whenever"}} {
		params := []string{"format", "json", q[0], q[1]}
		if q[0] != "target" {
			params = append(params, "target", "good.series")
		}
		if status, answer := c.get("/render", params...); status != http.StatusBadRequest {
			t.Errorf("%v: %d %s", q, status, answer)
		}
	}
	good(5)
}

// TestCarbonWithManyNames starts a server that has 200,000 names. It answers and takes points at once, and the names
// load in the background. A query over too many of them says which bound it met.
func TestCarbonWithManyNames(t *testing.T) {
	t.Parallel()
	const groups, perGroup = 2000, 100
	c := newCarbon(t)
	c.start()
	now := time.Now().Unix() / 10 * 10
	var lines []byte
	for g := range groups {
		for i := range perGroup {
			lines = fmt.Appendf(lines, "many.g%04d.h%d.m%02d %d %d\n", g, g%10, i, i, now)
		}
	}
	sendTo(t, c.line, lines)
	names := func() int { return int(c.metric("lapwing_metric_index_series")) }
	eventually(t, 2*time.Minute, "all series are there", func() bool {
		return names() >= groups*perGroup && c.metric("lapwing_metric_store_points_total") >= groups*perGroup
	})
	for _, q := range []struct{ path, key, value string }{
		{"/render", "target", "*.*.*.*"}, {"/render", "target", "sumSeries(many.*.*.*)"}, {"/metrics/find", "query", "*.*.*.*"},
		{"/metrics/expand", "query", "many.*.*.*"},
	} {
		status, answer := c.get(q.path, q.key, q.value, "format", "json", "leavesOnly", "1")
		if status != http.StatusBadRequest || !strings.Contains(answer, "0,000") && !strings.Contains(answer, "0000") || !strings.Contains(answer, "narrow") {
			t.Errorf("%s %s: %d %.300s", q.path, q.value, status, answer)
		}
	}
	c.kill(syscall.SIGTERM)
	c.start()
	atStart := names()
	if n := len(c.promQL(`{"many.g1999.h9.m99"}`, now+20)); n != 1 {
		t.Errorf("PromQL finds %d series at once, want 1", n)
	}
	if status, answer := c.get("/metrics/find", "query", "many.*"); status != http.StatusOK {
		t.Errorf("find at once: %d %s", status, answer)
	}
	sendTo(t, c.line, fmt.Appendf(nil, "many.new.h0.m0 5 %d\n", now))
	eventually(t, 30*time.Second, "a new point is there", func() bool {
		s := c.render(fmt.Sprint(now-1), fmt.Sprint(now), "many.new.h0.m0")
		return len(s) == 1 && valuesOf(&s[0])[now] == 5
	})
	whenNew := names()
	eventually(t, 2*time.Minute, "all names are loaded", func() bool { return names() >= groups*perGroup+1 })
	s := c.render(fmt.Sprint(now-1), fmt.Sprint(now), "sumSeries(many.g0007.*.*)")
	if len(s) != 1 || valuesOf(&s[0])[now] != perGroup*(perGroup-1)/2 {
		t.Errorf("the sum of a group after the start: %+v", s)
	}
	t.Logf("%d names when the server answered, %d when it had the first new point", atStart, whenNew)
}
