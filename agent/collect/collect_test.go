package collect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a Set whose kernel's files can be changed, with a clock.
type fixture struct {
	*Set
	t    *testing.T
	proc string
	now  time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("these are Linux's files")
	}
	f := &fixture{t: t, proc: t.TempDir(), now: time.Unix(1_790_000_000, 0)}
	f.copy("testdata/proc")
	f.Set = New(Options{Host: "web.example.com", Proc: f.proc, Sys: t.TempDir(), Now: func() time.Time { return f.now }})
	return f
}

func (f *fixture) copy(dir string) {
	f.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(f.proc, strings.TrimPrefix(path, dir))
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// later lets ten seconds pass.
func (f *fixture) later() {
	f.now = f.now.Add(10 * time.Second)
	f.copy("testdata/later")
}

// has fails the test unless a run has the status, the words in its output, and the values of metrics.
func (f *fixture) has(command string, status int, words string, metrics map[string]float64) Result {
	f.t.Helper()
	res := f.Run(f.t.Context(), "check", command)
	check(f.t, &res, status, words, metrics)
	return res
}

func check(t *testing.T, res *Result, status int, words string, metrics map[string]float64) {
	t.Helper()
	if res.Status != status || !strings.Contains(res.Output, words) {
		t.Errorf("status %d, output %q; want %d, %q", res.Status, res.Output, status, words)
	}
	got := map[string]float64{}
	for _, m := range res.Metrics {
		if _, twice := got[m.Path]; twice {
			t.Errorf("%s comes twice", m.Path)
		}
		got[m.Path] = m.Value
	}
	for path, want := range metrics {
		if v, ok := got[path]; !ok || math.Abs(v-want) > 1e-9*math.Max(1, math.Abs(want)) {
			t.Errorf("%s is %v (%v), want %v", path, v, ok, want)
		}
	}
}

func TestCPU(t *testing.T) {
	f := newFixture(t)
	// Both processors in ten seconds, in hundredths of a second: user 700, nice 10, system 200, idle 900, iowait 50, irq 10,
	// softirq 20, steal 100.
	command := "builtin:cpu --sample 1ms --warning 40 --critical 90 --warning-iowait 2"
	f.has(command, OK, "0% used", nil)
	f.later()
	res := f.has(command, Warning, "CPU WARNING: 52% used (warning 40), 2.5% waiting for I/O (warning 2), 5% stolen | used=52%;40;90 iowait=2.5%;2; steal=5%;;", map[string]float64{
		"servers.web_example_com.cpu.total.user": 70, "servers.web_example_com.cpu.total.idle": 90, "servers.web_example_com.cpu.total.steal": 10,
		"servers.web_example_com.cpu.cpu0.user": 40, "servers.web_example_com.cpu.cpu1.user": 30, "servers.web_example_com.cpu.cpu_count": 2,
		"servers.web_example_com.cpu.total.guest": 0,
	})
	if line, _, _ := strings.Cut(res.Graphite(), "\n"); line != "servers.web_example_com.cpu.cpu0.user 40 1790000010" {
		t.Errorf("first line is %q", line)
	}
}

func TestKernel(t *testing.T) {
	f := newFixture(t)
	p := "servers.web_example_com."
	f.has("builtin:load --warning-1 0.4 --critical-5 1", Critical, "LOAD CRITICAL: load1 0.5 (warning 0.4), load5 1.25 (critical 1), load15 2 |", map[string]float64{
		p + "loadavg.01": 0.5, p + "loadavg.05": 1.25, p + "loadavg.15": 2, p + "loadavg.01_normalized": 0.25, p + "loadavg.15_normalized": 1,
	})
	f.has("builtin:memory --warning 70", Warning, "MEMORY WARNING: 75% used, 1.9 GiB of 7.6 GiB available (warning 70)", map[string]float64{
		p + "memory.MemTotal": 8000000 * 1024, p + "memory.MemAvailable": 2000000 * 1024, p + "memory.Committed_AS": 5000000 * 1024, p + "memory.MemUsedPercentage": 75,
	})
	f.has("builtin:sockets --warning-orphans 1", Warning, "300 sockets", map[string]float64{
		p + "sockets.used": 300, p + "sockets.tcp_orphan": 2, p + "sockets.udp_mem": 1, p + "sockets.tcp_alloc": 25,
	})
	f.has("builtin:files --warning 79", Warning, "8000 of 10000 files open", map[string]float64{p + "files.assigned": 9000, p + "files.unused": 1000, p + "files.max": 10000})
	f.has("builtin:netstat --critical-time-wait 0", Critical, "1 TIME_WAIT (critical 0), 2 ESTABLISHED", map[string]float64{
		p + "netstat.ESTABLISHED": 2, p + "netstat.LISTEN": 2, p + "netstat.TIME_WAIT": 1, p + "netstat.CLOSING": 0,
	})
	swap, tcp := "builtin:swap --warning 20 --critical-out 49", "builtin:tcp --warning-overflows 2"
	f.has(tcp, OK, "42 connections", nil)
	f.has(swap, Warning, "25% used", nil)
	f.later()
	f.has(swap, Critical, "50 pages out per second (critical 49)", map[string]float64{
		p + "memory.SwapTotal": 4000000 * 1024, p + "vmstat.pgpgin": 5, p + "vmstat.pswpout": 50, p + "vmstat.pgfault": 100, p + "vmstat.pswpin": 0,
	})
	f.has(tcp, Warning, "3 overflows per second (warning 2), 45 connections, 2 segments sent again per second", map[string]float64{
		p + "tcp.CurrEstab": 45, p + "tcp.ActiveOpens": 5, p + "tcp.PassiveOpens": 10, p + "tcp.ListenOverflows": 3, p + "tcp.TCPTimeouts": 1, p + "tcp.RetransSegs": 2,
	})
}

func TestRates(t *testing.T) {
	f := newFixture(t)
	p := "servers.web_example_com."
	network, diskio := "builtin:network --sample 1ms --warning 90000 --critical-errors 0.5", "builtin:diskio --sample 1ms --warning 40 --warning-await 5"
	f.has(network, OK, "eth0 in 0.0 bit/s", nil)
	f.has(diskio, OK, "vda 0% busy", nil)
	f.later()
	f.has(network, Critical, "eth0 in 100.0 kbit/s, out 0.0 bit/s (warning 90000), eth0 1 errors per second (critical 0.5)", map[string]float64{
		p + "network.eth0.rx_byte": 12500, p + "network.eth0.rx_bit": 100000, p + "network.eth0.rx_packets": 50, p + "network.eth0.tx_byte": 0,
		p + "network.eth0.rx_errors": 1, p + "network.eth0.tx_drop": 0.5, p + "network.eth0.rx_multicast": 0,
	})
	d := p + "iostat.vda."
	f.has(diskio, Warning, "vda 50% busy, 25 requests per second (warning 40)", map[string]float64{
		d + "reads_per_second": 5, d + "writes_per_second": 20, d + "read_byte_per_second": 2000 * 512 / 10, d + "write_byte_per_second": 8000 * 512 / 10,
		d + "util_percentage": 50, d + "await": 2.2, d + "read_await": 1, d + "write_await": 2.5, d + "io": 250, d + "iops": 25, d + "service_time": 20,
		d + "average_request_size_byte": 10000 * 512 / 250, d + "average_queue_length": 0.055, d + "concurrent_io": 0.11, d + "io_in_progress": 2,
	})
}

func TestWhatIsNotUnderstood(t *testing.T) {
	s := New(Options{})
	for command, want := range map[string]string{
		"builtin:":                               "cannot be understood",
		"builtin:cpu 'x":                         "cannot be understood",
		"builtin:nothing":                        `there is no collector "nothing"; there are cert, cpu,`,
		"builtin:cpu --loud":                     "CPU UNKNOWN: flag provided but not defined: -loud",
		"builtin:cpu more":                       `unexpected "more"`,
		"builtin:cpu --warning much":             "it is not a number",
		"builtin:disk --mount /none":             "there is no such file system",
		"builtin:http":                           "--url is required",
		"builtin:http --url http://x --expect (": "--expect",
		"builtin:port --address nowhere":         "--address is required",
		"builtin:dns":                            "--name is required",
		"builtin:ping":                           "--host is required",
		"builtin:cert":                           "--address or --file is required",
		"builtin:log --file x":                   "--file and --pattern are required",
		"builtin:processes --pattern (":          "--pattern",
	} {
		res := s.Run(t.Context(), "", command)
		check(t, &res, Unknown, want, nil)
	}
	for _, name := range Names() {
		if res := s.Run(t.Context(), "", "builtin:"+name+" --help"); !strings.Contains(res.Output, About(name)) || !strings.Contains(res.Output, "-prefix") {
			t.Errorf("help of %s: %s", name, res.Output)
		}
	}
}

func TestDisk(t *testing.T) {
	s := New(Options{Host: "h"})
	res := s.Run(t.Context(), "", "builtin:disk --mount / --warning 0 --critical 101")
	if res.Status != Warning || len(res.Metrics) < 4 {
		t.Errorf("got %+v", res)
	}
	for _, m := range res.Metrics {
		if !strings.HasPrefix(m.Path, "servers.h.diskspace.root.") || m.Value < 0 {
			t.Errorf("got %+v", m)
		}
	}
	s.mounts["/"] = true
	res = s.Run(t.Context(), "", "builtin:disk --mount /")
	check(t, &res, Critical, "/: it still does not answer", nil)
}

func TestProcesses(t *testing.T) {
	s := New(Options{Host: "h"})
	res := s.Run(t.Context(), "", "builtin:processes --pattern collect.test --critical-min 1 --label me")
	check(t, &res, OK, " processes, ", nil)
	res = s.Run(t.Context(), "", "builtin:processes --pattern no-such-program-anywhere --critical-min 1")
	check(t, &res, Critical, "0 processes (critical 1)", map[string]float64{"servers.h.process.no-such-program-anywhere.count": 0})
	res = s.Run(t.Context(), "", "builtin:processes --critical 0")
	if res.Status != Critical {
		t.Errorf("got %+v", res)
	}
}

func TestSystemd(t *testing.T) {
	dir := t.TempDir()
	fake := "#!/bin/sh\n" + `case "$*" in
*failed*) printf 'bad.service loaded failed failed Bad one\n' ;;
*) printf 'ssh.service loaded active running SSH\nold.service not-found inactive dead old.service\nbad.service loaded failed failed Bad one\n' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s := New(Options{Host: "h"})
	res := s.Run(t.Context(), "", "builtin:systemd")
	check(t, &res, Critical, "bad.service has failed", map[string]float64{"servers.h.systemd.failed": 1})
	res = s.Run(t.Context(), "", "builtin:systemd --exclude bad.*")
	check(t, &res, OK, "no unit has failed", nil)
	res = s.Run(t.Context(), "", "builtin:systemd --unit ssh,old.service --unit gone --exclude bad.service")
	check(t, &res, Critical, "old.service is not there, gone is not loaded, ssh.service is running", map[string]float64{"servers.h.systemd.active": 1})
}

func TestLog(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "app.log")
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("an old error\n")
	command := "builtin:log --file " + dir + "/*.log --pattern '(?i)error' --exclude harmless --critical 2"
	s := New(Options{StateDir: state})
	run := func(status int, words string) {
		t.Helper()
		res := s.Run(t.Context(), "c", command)
		check(t, &res, status, words, nil)
	}
	run(OK, "0 of 0 new lines")
	write("Error one\nall is well\nharmless error\nerror with no end")
	run(Warning, `1 of 3 new lines match, the last is "Error one"`)
	run(OK, "0 of 0 new lines")
	write(" yet\n")
	run(Warning, `the last is "error with no end yet"`)
	s = New(Options{StateDir: state}) // a new process
	write("error\nerror\nerror\n")
	run(Critical, "3 of 3 new lines")
	run(OK, "0 of 0")
	if err := os.Rename(path, filepath.Join(dir, "app.log.1")); err != nil {
		t.Fatal(err)
	}
	write("error in a new file\n")
	run(Warning, "1 of 1 new lines")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write("error\n")
	run(Warning, "1 of 1 new lines")
	write(strings.Repeat("x", 3*maxLine) + "error\nerror\n")
	run(Warning, "1 of 2 new lines") // text that far into a line is not searched
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	run(Unknown, "is not there")
	if entries, err := os.ReadDir(state); err != nil || len(entries) != 1 {
		t.Errorf("state: %v, %v", entries, err)
	}
}

func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s fine", r.Method, r.Header.Get("X-Key"))
	})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.Handle("/away", http.RedirectHandler("/ok", http.StatusFound))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	s := New(Options{Host: "h"})
	f := func(status int, words, flags string) Result {
		t.Helper()
		res := s.Run(t.Context(), "", "builtin:http "+strings.ReplaceAll(flags, "URL", server.URL))
		check(t, &res, status, words, nil)
		return res
	}
	res := f(OK, "status 200, 11 bytes", "--insecure --url URL/ok --method POST --header 'X-Key: k' --expect '^POST k' --label it")
	check(t, &res, OK, "", map[string]float64{"servers.h.http.it.up": 1, "servers.h.http.it.status": 200, "servers.h.http.it.bytes": 11})
	f(Critical, "certificate", "--url URL/ok")
	f(Critical, "does not match", "--insecure --url URL/ok --expect bad")
	f(Critical, "status 410", "--insecure --url URL/gone")
	f(OK, "status 410", "--insecure --url URL/gone --status 2xx,410")
	f(Critical, "status 302", "--insecure --url URL/away")
	f(OK, "status 200", "--insecure --url URL/away --follow")
	f(Critical, "deadline exceeded", "--insecure --url URL/slow --timeout 50ms")
	f(Warning, "certificate expires in", "--insecure --url URL/ok --warning-days 100000")
}

func TestPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 ready\r\n")
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	s := New(Options{Host: "h"})
	res := s.Run(t.Context(), "", "builtin:port --address "+l.Addr().String()+" --expect '^220'")
	check(t, &res, OK, "connected in", nil)
	res = s.Run(t.Context(), "", "builtin:port --address "+l.Addr().String()+" --send 'hello\\r\\n' --expect '^550'")
	check(t, &res, Critical, `does not match "^550"`, nil)
	res = s.Run(t.Context(), "", "builtin:port --address 127.0.0.1:1")
	check(t, &res, Critical, "refused", nil)
}

func TestDNSAndPing(t *testing.T) {
	s := New(Options{Host: "h"})
	res := s.Run(t.Context(), "", "builtin:dns --name localhost --expect 127.0.0.1")
	check(t, &res, OK, "A localhost is 127.0.0.1", map[string]float64{"servers.h.dns.localhost.up": 1})
	res = s.Run(t.Context(), "", "builtin:dns --name localhost --expect 192.0.2.1")
	check(t, &res, Critical, "192.0.2.1 is not among the answers", nil)
	res = s.Run(t.Context(), "", "builtin:dns --name localhost --type SOA")
	check(t, &res, Critical, "cannot be asked for", nil)
	res = s.Run(t.Context(), "", "builtin:dns --name example.com --server 127.0.0.1:1 --timeout 100ms")
	check(t, &res, Critical, "example.com", nil)
	res = s.Run(t.Context(), "", "builtin:ping --host 127.0.0.1 --count 2 --interval 1ms")
	if res.Status == Unknown && strings.Contains(res.Output, "send ICMP") {
		t.Skip("ICMP sockets are not allowed here")
	}
	check(t, &res, OK, "127.0.0.1 0% lost", map[string]float64{"servers.h.ping.127_0_0_1.loss_percent": 0})
}

func TestCertificates(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	write := func(name string, from, to time.Duration) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(from), NotAfter: now.Add(to)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(filepath.Join(dir, name+".pem"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			t.Fatal(err)
		}
	}
	const day = 24 * time.Hour
	write("good", -day, 100*day+time.Hour)
	write("soon", -day, 20*day+time.Hour)
	write("over", -100*day, -10*day)
	write("early", 5*day, 100*day)
	write("chain", -day, 100*day)
	write("chain", -day, 3*day+time.Hour)
	s := New(Options{Host: "h", Now: func() time.Time { return now }})
	for name, want := range map[string]struct {
		status int
		words  string
	}{
		"good": {OK, "good.pem (good) expires in 100.04 days"}, "soon": {Warning, "expires in 20.04 days (warning 30)"}, "over": {Critical, "expired 10 days ago"},
		"early": {Critical, "valid only from"}, "chain": {Critical, "expires in 3.04 days (critical 7)"}, "none": {Critical, "is not there"},
	} {
		res := s.Run(t.Context(), "", "builtin:cert --file "+filepath.Join(dir, name+".pem"))
		check(t, &res, want.status, want.words, nil)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	res := s.Run(t.Context(), "", "builtin:cert --address "+server.Listener.Addr().String())
	check(t, &res, OK, "expires in", nil)
}

// TestLive compares the collectors' values with the kernel's files, read in another way.
func TestLive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("these are Linux's files")
	}
	fields := func(path, prefix string) []float64 {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			words := strings.Fields(line)
			if len(words) == 0 || prefix != "" && words[0] != prefix {
				continue
			}
			var v []float64
			for _, w := range words {
				if n, err := strconv.ParseFloat(strings.TrimSuffix(w, ":"), 64); err == nil {
					v = append(v, n)
				}
			}
			return v
		}
		t.Fatalf("%s has no %s", path, prefix)
		return nil
	}
	s := New(Options{Host: "h"})
	metrics := func(command string) (map[string]float64, time.Time) {
		t.Helper()
		res := s.Run(t.Context(), "live", command)
		if res.Status != OK {
			t.Fatalf("%s: %s", command, res.Output)
		}
		m := map[string]float64{}
		for _, x := range res.Metrics {
			m[strings.TrimPrefix(x.Path, "servers.h.")] = x.Value
		}
		return m, res.At
	}
	near := func(name string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s is %v, want %v within %v", name, got, want, tolerance)
		}
	}
	m, _ := metrics("builtin:memory")
	near("MemTotal", m["memory.MemTotal"], 1024*fields("/proc/meminfo", "MemTotal:")[0], 0)
	near("MemAvailable", m["memory.MemAvailable"], 1024*fields("/proc/meminfo", "MemAvailable:")[0], 2<<30)
	m, _ = metrics("builtin:load")
	near("load", m["loadavg.15"], fields("/proc/loadavg", "")[2], 1)
	m, _ = metrics("builtin:files --warning 100")
	near("files", m["files.max"], fields("/proc/sys/fs/file-nr", "")[2], 0)
	// The processors' times between two runs add up to the time that passed on each. The kernel's files, read around
	// both runs, bound what they were busy with.
	outer, since := fields("/proc/stat", "cpu"), time.Now()
	_, begin := metrics("builtin:cpu --sample 1ms")
	for i := 0; i < 20_000_000; i++ {
		sink += i
	}
	m, end := metrics("builtin:cpu --sample 1ms")
	after, passed := fields("/proc/stat", "cpu"), time.Since(since)
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	processors := float64(strings.Count(string(stat), "\ncpu")) // this process may not run on all of them
	sum, seconds := 0.0, end.Sub(begin).Seconds()
	for i, name := range []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"} {
		v := m["cpu.total."+name] * seconds // in hundredths
		sum += v
		if most := after[i] - outer[i] + processors; v > most { // the kernel rounds for each processor
			t.Errorf("%s is %v hundredths of a second, the files say %v for a longer time", name, v, most)
		}
	}
	if most := 100 * passed.Seconds() * processors; sum > most+10 {
		t.Errorf("%v hundredths of a second were spent, and %v passed", sum, most)
	}
}

var sink int

func BenchmarkRun(b *testing.B) {
	s := New(Options{Host: "h"})
	for _, name := range []string{"cpu", "load", "memory", "swap", "disk", "diskio", "network", "tcp", "netstat", "sockets", "files"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Run(b.Context(), "", "builtin:"+name+map[bool]string{true: " --sample 1us"}[name == "cpu" || name == "diskio" || name == "network"])
			}
		})
	}
}
