package doctor_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/doctor"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/metric"
	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/telemetry"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// workers is the default number of runs of a handler at a time.
const workers = 8

var record = flag.Bool("record", false, "write testdata/*.prom anew, from backends that are started for it")

// patient is a backend with two handlers: "quick", and "slow", which does not answer until the test ends.
type patient struct {
	*testbackend.Backend
	t     *testing.T
	begun chan struct{} // a run of slow has begun
	quick chan struct{} // a run of quick has begun
	agent *wire.Conn
	sent  int
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{t: t, begun: make(chan struct{}, 1000), quick: make(chan struct{}, 1000)}
	over := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { p.begun <- struct{}{}; <-over }))
	quick := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { p.quick <- struct{}{} }))
	t.Cleanup(slow.Close)
	t.Cleanup(quick.Close)
	p.Backend = testbackend.Start(t, nil)
	t.Cleanup(sync.OnceFunc(func() { close(over) })) // before the backend's stop, which waits for its handlers
	for name, url := range map[string]string{"slow": slow.URL, "quick": quick.URL} {
		h := &resource.Handler{Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Type: "webhook", Timeout: 600, Webhook: &resource.HandlerWebhook{URL: url}}
		if err := client.Put(t.Context(), p.Client, client.Handlers, "default", name, h); err != nil {
			t.Fatal(err)
		}
	}
	p.agent, _ = p.DialAgent(t, "web1", nil)
	p.write(testbackend.Keepalive(t, "web1", wire.Protobuf))
	return p
}

func (p *patient) write(frame []byte) {
	p.t.Helper()
	if err := p.agent.Write(frame); err != nil {
		p.t.Fatal(err)
	}
}

// send sends events, each of a different check, for a handler.
func (p *patient) send(n int, handler string) {
	p.t.Helper()
	for range n {
		p.sent++
		ev := testbackend.Event("web1", fmt.Sprint("check-", p.sent), 2, time.Now().Unix())
		ev.Check.Handlers = []string{handler}
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			p.t.Fatal(err)
		}
		p.write(frame)
	}
}

// wait waits for n signals.
func (p *patient) wait(c <-chan struct{}, n int) {
	p.t.Helper()
	for range n {
		select {
		case <-c:
		case <-time.After(time.Minute):
			p.t.Fatal("handlers were not run")
		}
	}
}

func (p *patient) url() string { return "http://" + p.APIAddr().String() + "/metrics" }

func (p *patient) scrape() *doctor.Scrape {
	p.t.Helper()
	s, err := doctor.Fetch(p.t.Context(), http.DefaultClient, p.url(), "")
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// TestHangingHandlerIsNamed examines a real backend with a handler that never ends.
func TestHangingHandlerIsNamed(t *testing.T) {
	p := newPatient(t)
	p.send(20, "slow")
	p.wait(p.begun, workers)
	p.send(20, "quick")
	p.wait(p.quick, 20)
	before := p.scrape()
	p.send(5, "quick")
	p.wait(p.quick, 5)
	hanging := func(f doctor.Finding) bool { return f.Name() == "handler slow" && f.Title == "it hangs" }
	var r *doctor.Report
	// A busy machine answers some time after it measured, so that the runs look shorter than the time between the
	// scrapes. The longer that is, the less this matters.
	for begin := time.Now(); r == nil || !slices.ContainsFunc(r.Findings, hanging) && time.Since(begin) < 2*time.Minute; {
		<-time.After(time.Second) // the distance between the scrapes grows
		r = doctor.Examine(before, p.scrape())
	}
	// The test's machine may be busy, which is reported as well.
	if !slices.Contains(r.Limits, "handler slow") || slices.Contains(r.Limits, "handler quick") {
		t.Errorf("what limits is said to be %q", r.Limits)
	}
	hangs := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Name() == "handler slow" })
	if hangs < 0 || r.Findings[hangs].Title != "it hangs" || r.Findings[hangs].Severity != doctor.Warning {
		t.Errorf("findings: %+v", r.Findings)
	}
	var text bytes.Buffer
	if err := doctor.WriteText(&text, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"WARNING handler slow: it hangs", "All 8 that may run at a time do", "12 wait in memory"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
}

// TestRecord writes the scrapes that the other tests read and change.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("without -record there is nothing to write")
	}
	p := newPatient(t)
	save := func(name string) { saveScrape(t, p.url(), name) }
	calm := func() {
		for range 50 {
			p.send(20, "quick")
			p.wait(p.quick, 20)
			<-time.After(95 * time.Millisecond) // the pace of a calm backend; nothing is asserted
		}
	}
	calm()
	save("healthy-before")
	calm()
	save("healthy-after")
	p.send(20, "slow")
	p.wait(p.begun, workers)
	save("hanging-before")
	calm()
	save("hanging-after")
}

// TestRecordCarbon writes the scrapes of a server of metrics alone, with a relay and a remote write.
func TestRecordCarbon(t *testing.T) {
	if !*record {
		t.Skip("without -record there is nothing to write")
	}
	sink, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	go func() {
		for {
			c, err := sink.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	remote := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer remote.Close()
	registry := telemetry.RegistryFor("")
	o := metric.DefaultOptions()
	o.Dir, o.LineAddress, o.QueryAddress, o.Registerer = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", registry
	o.Store.MemoryLimit, o.RemoteWriteURLs = 1<<30, []string{remote.URL}
	o.Relay.Destinations, o.Relay.Protocol, o.Relay.Diverse = []string{sink.Addr().String() + ":a"}, "line", false
	s, err := metric.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(t.Context()) }()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	own := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer own.Close()
	sender, err := net.Dial("tcp", s.Addr(carbon.LineTCP).String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	calm := func() {
		for range 50 {
			for i := range 100 {
				if _, err := fmt.Fprintf(sender, "servers.web%d.load %d -1\n", i, i); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(95 * time.Millisecond) // the pace of a calm server; nothing is asserted
		}
	}
	calm()
	saveScrape(t, own.URL, "carbon-before", ofTheTime...)
	calm()
	saveScrape(t, own.URL, "carbon-after", ofTheTime...)
}

type replacement struct {
	pattern *regexp.Regexp
	instead string
}

// ofTheTime are lines that differ with the recording: the ports of a relay's destination, and the use of the machine by others.
var ofTheTime = []replacement{
	{regexp.MustCompile(`destination="127[.]0[.]0[.]1:[0-9]+:a"`), `destination="10.0.0.1:2004:a"`},
	{regexp.MustCompile(`(?m)^.*lapwing_host_cpu_seconds_total.*\n`), ""},
}

// saveScrape writes a scrape to testdata.
func saveScrape(t *testing.T, url, name string, changes ...replacement) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	at := time.Now()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		text = c.pattern.ReplaceAll(text, []byte(c.instead))
	}
	text = append([]byte("# at "+at.UTC().Format(time.RFC3339Nano)+"\n"), text...)
	if err := os.WriteFile(filepath.Join("testdata", name+".prom"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}
