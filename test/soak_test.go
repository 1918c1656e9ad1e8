package test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestSoak gives an agent a sixtieth of the time for a day's work: checks, collectors, hooks, assets, events of
// programs, StatsD, lost connections, definitions and options that change. Its memory, files, goroutines and children
// must not grow. LAPWING_SOAK is how long; 24m is a day, and the default keeps the test short.
func TestSoak(t *testing.T) {
	longtest.Only(t)
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	length := 40 * time.Second
	if text := os.Getenv("LAPWING_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	p := newProcess(t)
	p.start()
	c := p.client()
	s := &soak{t: t, client: c, wire: newProxy(t, "127.0.0.1:"+p.agent), api: freePort(t), socket: freePort(t), statsd: freePort(t)}
	s.define()
	s.startAgent()
	eventually(t, 60*time.Second, "every check has a result", func() bool { return len(s.silent()) == 0 })

	const tick = 100 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	end := time.Now().Add(length)
	for n := 0; time.Now().Before(end); n++ {
		<-ticker.C
		every := func(d time.Duration, do func()) {
			if n%int(d/tick) == 0 {
				do()
			}
		}
		every(tick, s.countStatsD)
		every(500*time.Millisecond, s.postEvent)
		every(time.Second, s.writeSocket)
		every(2*time.Second, func() { s.change(n) })
		every(10*time.Second, s.reload)
		every(time.Second, s.look)
		switch n % 200 {
		case 150:
			s.wire.cut()
		case 190:
			s.wire.mend()
		}
	}
	s.wire.mend()
	eventually(t, 30*time.Second, "the agent has sent all that waited", func() bool {
		m := s.metrics()
		return m["lapwing_agent_connected"] == 1 && m["lapwing_agent_buffered_events"] <= 5
	})
	s.judge()
}

// soak is a run of TestSoak.
type soak struct {
	t                   *testing.T
	client              *client.Client
	wire                *proxy
	agent               *exec.Cmd
	api, socket, statsd string // ports
	assets              *httptest.Server
	checks              []string
	looks               []look
	posted, refused     int
}

// look is the agent's resources at a moment.
type look struct {
	resident, heap              float64 // bytes
	files, goroutines, children int
}

// pluginArchive is an asset with one program, which prints its version.
func pluginArchive(t *testing.T, version int) (archive []byte, sum string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	program := fmt.Sprintf("#!/bin/sh\necho plugin %d\n", version)
	if err := w.WriteHeader(&tar.Header{Name: "bin/plugin", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(program))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	hash := sha512.Sum512(b.Bytes())
	return b.Bytes(), hex.EncodeToString(hash[:])
}

func (s *soak) define() {
	ctx := s.t.Context()
	archives := map[string][]byte{}
	s.assets = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(archives[r.URL.Path]) }))
	s.t.Cleanup(s.assets.Close)
	for version := range 3 {
		archive, sum := pluginArchive(s.t, version)
		path := fmt.Sprintf("/plugin-%d.tar.gz", version)
		archives[path] = archive
		name := fmt.Sprintf("plugin-%d", version)
		asset := &resource.Asset{Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, URL: s.assets.URL + path, Sha512: sum}
		if err := client.Put(ctx, s.client, client.Assets, "default", name, asset); err != nil {
			s.t.Fatal(err)
		}
	}
	hook := &resource.HookConfig{Metadata: resource.ObjectMeta{Name: "why", Namespace: "default"}, Command: "echo because", Timeout: 5}
	if err := client.Put(ctx, s.client, client.Hooks, "default", "why", hook); err != nil {
		s.t.Fatal(err)
	}
	put := func(name, command string, more func(*resource.CheckConfig)) {
		check := &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: command, Interval: 1, Publish: true, Subscriptions: []string{"soak"},
		}
		if more != nil {
			more(check)
		}
		if err := client.Put(ctx, s.client, client.Checks, "default", name, check); err != nil {
			s.t.Fatal(err)
		}
		s.checks = append(s.checks, name)
	}
	for i := range 5 {
		put(fmt.Sprintf("plain-%d", i), `echo "load is fine | load1=0.5;1;2" `, func(c *resource.CheckConfig) { c.OutputMetricFormat = "nagios_perfdata" })
	}
	put("failing", "echo broken; exit 2", func(c *resource.CheckConfig) {
		c.CheckHooks = []resource.HookList{{Type: "critical", Hooks: []string{"why"}}}
	})
	put("hanging", "sleep 60 & sleep 60", func(c *resource.CheckConfig) { c.Interval, c.Timeout = 5, 1 })
	put("missing", "/there/is/no/such/program", nil)
	put("long", "head -c 300000 /dev/zero | tr '\\0' x", func(c *resource.CheckConfig) { c.Interval, c.MaxOutputSize = 5, 10_000 })
	put("plugin", "plugin", func(c *resource.CheckConfig) { c.RuntimeAssets = []string{"plugin-0"} })
	for _, collector := range []string{"cpu", "disk", "diskio", "load", "memory", "netstat", "network", "processes", "sockets", "swap"} {
		put("builtin-"+collector, "builtin:"+collector, nil)
	}
	put("changing", "echo 0", nil)
}

func (s *soak) startAgent() {
	t := s.t
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "agent.yml")
	if err := os.WriteFile(config, []byte("labels: {site: here}\nkeepalive-warning-timeout: 60\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.agent = exec.Command(path, "agent", "--config-file", config, "--name", "soaked", "--subscriptions", "soak", "--backend-url", "ws://"+s.wire.addr(),
		"--cache-dir", filepath.Join(dir, "cache"), "--keepalive-interval", "1", "--retry-min", "200ms", "--retry-max", "1s",
		"--api-port", s.api, "--socket-port", s.socket, "--statsd-metrics-port", s.statsd, "--statsd-flush-interval", "1", "--log-level", "error")
	s.agent.Stdout, s.agent.Stderr = log, log
	if err := s.agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.agent.Process.Signal(syscall.SIGTERM)
		_ = s.agent.Wait()
		log.Close()
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("agent's log:\n%s", tailOf(text, 4000))
			}
		}
	})
}

// silent are the checks whose result the backend does not have.
func (s *soak) silent() (names []string) {
	for _, name := range s.checks {
		if _, err := client.Get(s.t.Context(), s.client, client.Events, "default", client.EventName("soaked", name)); err != nil {
			names = append(names, name)
		}
	}
	return names
}

func (s *soak) countStatsD() {
	c, err := net.Dial("udp", "127.0.0.1:"+s.statsd)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	for i := range 20 {
		_, _ = fmt.Fprintf(c, "requests.%d:1|c\ntimes.%d:%d|ms\nusers.%d:%d|g\nwho.%d:%d|s", i, i, i*7, i, i, i, i)
	}
}

func (s *soak) postEvent() {
	s.posted++
	body := fmt.Sprintf(`{"check":{"metadata":{"name":"posted-%d"},"output":"posted %d","status":%d}}`, s.posted%5, s.posted, s.posted%3)
	resp, err := http.Post("http://127.0.0.1:"+s.api+"/events", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		s.refused++
	}
}

func (s *soak) writeSocket() {
	for _, network := range []string{"tcp", "udp"} {
		c, err := net.Dial(network, "127.0.0.1:"+s.socket)
		if err != nil {
			s.t.Fatal(err)
		}
		_, _ = fmt.Fprintf(c, `{"name":"socket-%s","output":"hello","status":0}`, network)
		_ = c.Close()
	}
}

// change gives a check another command, and sometimes adds or removes one, or makes it need another asset.
func (s *soak) change(n int) {
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "changing", Namespace: "default"}, Command: fmt.Sprintf("echo %d; plugin", n), Interval: 1 + uint32(n%3),
		Publish: true, Subscriptions: []string{"soak"}, RuntimeAssets: []string{fmt.Sprintf("plugin-%d", n/20%3)},
	}
	if err := client.Put(s.t.Context(), s.client, client.Checks, "default", "changing", check); err != nil {
		s.t.Errorf("change a check: %v", err)
	}
	check.Metadata.Name = "passing"
	var err error
	if n/20%2 == 0 {
		err = client.Put(s.t.Context(), s.client, client.Checks, "default", "passing", check)
	} else {
		err = client.Delete(s.t.Context(), s.client, client.Checks, "default", "passing")
	}
	if err != nil {
		s.t.Errorf("make or delete a check: %v", err)
	}
}

func (s *soak) reload() {
	if err := s.agent.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
}

// metrics returns the agent's metrics, with labels added up.
func (s *soak) metrics() map[string]float64 {
	resp, err := http.Get("http://127.0.0.1:" + s.api + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			sums[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sums
}

func (s *soak) look() {
	m := s.metrics()
	var children []byte
	// one for each thread; some kernels have none
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.agent.Process.Pid))
	for _, name := range lists {
		if list, err := os.ReadFile(name); err == nil { // it may have ended
			children = append(children, list...)
		}
	}
	s.looks = append(s.looks, look{
		resident: m["process_resident_memory_bytes"], heap: m["go_memstats_heap_inuse_bytes"],
		files: int(m["process_open_fds"]), goroutines: int(m["go_goroutines"]), children: len(strings.Fields(string(children))),
	})
}

// judge compares the second quarter with the last one. Resources of running checks are in no minimum; leaks are.
func (s *soak) judge() {
	quarter := len(s.looks) / 4
	early, late := s.looks[quarter:2*quarter], s.looks[3*quarter:]
	least := func(looks []look, of func(look) int) int {
		return of(slices.MinFunc(looks, func(a, b look) int { return of(a) - of(b) }))
	}
	median := func(looks []look, of func(look) float64) float64 {
		values := make([]float64, len(looks))
		for i, l := range looks {
			values[i] = of(l)
		}
		slices.Sort(values)
		return values[len(values)/2] / (1 << 20)
	}
	for _, m := range []struct {
		what  string
		slack int
		of    func(look) int
	}{
		// In a short run few samples find nothing running; a leak grows with each check, and there are thirty in a
		// second.
		{"open files", 4, func(l look) int { return l.files }},
		{"goroutines", 8, func(l look) int { return l.goroutines }},
		{"children", 2, func(l look) int { return l.children }},
	} {
		before, after := least(early, m.of), least(late, m.of)
		s.t.Logf("%s: at least %d in the second quarter, %d in the last", m.what, before, after)
		if after > before+m.slack {
			s.t.Errorf("%s grew from %d to %d", m.what, before, after)
		}
	}
	for _, m := range []struct {
		what  string
		slack float64 // MiB
		of    func(look) float64
	}{
		{"resident memory", 4, func(l look) float64 { return l.resident }},
		{"heap in use", 2, func(l look) float64 { return l.heap }},
	} {
		before, after := median(early, m.of), median(late, m.of)
		s.t.Logf("%s: %.1f MiB in the second quarter, %.1f MiB in the last (medians)", m.what, before, after)
		if after > before+m.slack {
			s.t.Errorf("%s grew from %.1f to %.1f MiB", m.what, before, after)
		}
	}
	m := s.metrics()
	s.t.Logf("%d looks; %.0f events acknowledged, %.0f dropped; %.0f connections; %.0f StatsD samples; %d events posted, %d refused; %.0f CPU seconds", len(s.looks),
		m["lapwing_agent_events_acked_total"], m["lapwing_agent_events_dropped_total"], m["lapwing_agent_connects_total"], m["lapwing_agent_statsd_samples_total"],
		s.posted, s.refused, m["process_cpu_seconds_total"])
	if m["lapwing_agent_events_dropped_total"] != 0 {
		s.t.Errorf("the agent dropped %v events", m["lapwing_agent_events_dropped_total"])
	}
	if s.refused != 0 {
		s.t.Errorf("the agent refused %d events of %d", s.refused, s.posted)
	}
	for _, name := range []string{"posted-0", "posted-4", "socket-tcp", "socket-udp", "keepalive"} {
		if _, err := client.Get(s.t.Context(), s.client, client.Events, "default", client.EventName("soaked", name)); err != nil {
			s.t.Errorf("there is no event %s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"hanging": "Execution timed out", "changing": "plugin", "plugin": "plugin 0"} {
		ev, err := client.Get(s.t.Context(), s.client, client.Events, "default", client.EventName("soaked", name))
		if err != nil || !strings.Contains(ev.Check.Output, want) {
			text, _ := json.Marshal(ev)
			s.t.Errorf("%s has no %q: %v %.500s", name, want, err, text)
		}
	}
}

// proxy is a wire between an agent and its backend that can be cut.
type proxy struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	down  bool
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.to)
		if err != nil || !p.add(from, to) {
			_ = from.Close()
			if to != nil {
				_ = to.Close()
			}
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			p.running.Go(func() {
				_, _ = io.Copy(pair[1], pair[0])
				_ = pair[0].Close()
				_ = pair[1].Close()
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.conns, pair[0])
			})
		}
	}
}

// add notes a pair of connections, unless the wire is cut.
func (p *proxy) add(pair ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range pair {
		if !p.down {
			p.conns[c] = true
		}
	}
	return !p.down
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}
