package send

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func measured(points ...resource.MetricPoint) *resource.Event {
	ev := event(0)
	ev.Check, ev.Metrics = nil, &resource.Metrics{Points: points}
	ev.Entity.Metadata.Name = "web1.example.org"
	return ev
}

func point(name string, value float64, at int64, tags ...string) resource.MetricPoint {
	p := resource.MetricPoint{Name: name, Value: value, Timestamp: at}
	for i := 0; i < len(tags); i += 2 {
		p.Tags = append(p.Tags, resource.MetricTag{Name: tags[i], Value: tags[i+1]})
	}
	return p
}

// awkward returns points with difficult names and values, some of which no store accepts.
func awkward() *resource.Event {
	return measured(
		point("cpu.user", 1.5, 1_700_000_000, "core", "0"),
		point("cpu.user", -2, 1_700_000_000_123, "core", "1", "", "none", "empty", ""),
		point("plain", 1e21, 1_700_000_000_123_456_789),
		point("micro", 0, 1_700_000_000_123_456),
		point("no time", 7, 0),
		point("two\nlines x y", 3, 1_700_000_000, "a;b=c d", "v\n;~=\\"),
		point("nan", math.NaN(), 1), point("inf", math.Inf(1), 1), point("", 1, 1),
		point("bad\xffutf", 4, 1_700_000_000, "t", "\xff"),
	)
}

// carbon reads a line as carbon does: three fields between blanks, tags behind the name.
func carbon(t testing.TB, line string) (name string, tags map[string]string, value float64, at int64) {
	t.Helper()
	fields := strings.Fields(line)
	if len(fields) != 3 {
		t.Fatalf("carbon would refuse %q", line)
	}
	value, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		t.Fatalf("carbon would refuse %q: %v", line, err)
	}
	stamp, err := strconv.ParseFloat(fields[2], 64)
	if err != nil {
		t.Fatalf("carbon would refuse %q: %v", line, err)
	}
	name, rest, tagged := strings.Cut(fields[0], ";")
	tags = map[string]string{}
	for tagged {
		var tag string
		tag, rest, tagged = strings.Cut(rest, ";")
		key, val, ok := strings.Cut(tag, "=")
		if !ok || key == "" || val == "" || strings.ContainsAny(key, "!^=") || val[0] == '~' {
			t.Fatalf("carbon would refuse the tags of %q", line)
		}
		tags[key] = val
	}
	return name, tags, value, int64(stamp)
}

func TestGraphite(t *testing.T) {
	c := newCollector(t, "127.0.0.1:0", nil)
	s := setup(t, Options{})
	h := handler("graphite")
	h.Graphite = &resource.HandlerGraphite{Host: "127.0.0.1", Port: uint32(c.Addr().(*net.TCPAddr).Port)}
	res := s.Run(t.Context(), h, job(awkward()))
	want(t, "send", res, KindOK, false, "")
	if string(res.Output) != "7 points sent, 3 left out" {
		t.Errorf("output %q", res.Output)
	}
	var got []string
	for range 7 {
		_, line, _ := strings.Cut(<-c.lines, " ")
		name, tags, value, at := carbon(t, line)
		got = append(got, fmt.Sprint(name, tags, value, " ", at))
	}
	const p = "sensu.web1_example_org."
	wanted := []string{
		p + "cpu.usermap[core:0] 1.5 1700000000", p + "cpu.usermap[core:1] -2 1700000000",
		p + "plainmap[] 1e+21 1700000000", p + "micromap[] 0 1700000000",
		p + "no_timemap[] 7 1700000100", p + "two_lines_x_ymap[a_b_c_d:v__~_\\] 3 1700000000", p + "bad_utfmap[t:_] 4 1700000000",
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}

	one := measured(point("a", 1, 1_700_000_000, "x", "y"))
	f := func(change func(*resource.HandlerGraphite), want_ string) {
		t.Helper()
		change(h.Graphite)
		want(t, want_, s.Run(t.Context(), h, job(one)), KindOK, false, "")
		if got := <-c.lines; !strings.HasSuffix(got, " "+want_) {
			t.Errorf("got %q, want %q", got, want_)
		}
	}
	f(func(g *resource.HandlerGraphite) { g.Prefix = new(string) }, "a;x=y 1 1700000000")
	prefix := "servers.{{.Entity.Labels.rack}}.x y."
	f(func(g *resource.HandlerGraphite) { g.Prefix, g.DropTags = &prefix, true }, "servers.17.x_y.a 1 1700000000")

	want(t, "no metrics", s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
	want(t, "no points", s.Run(t.Context(), h, job(measured())), KindOK, false, "")
	long := measured(point(strings.Repeat("n", maxGraphiteLine), 1, 1))
	if res := s.Run(t.Context(), h, job(long)); string(res.Output) != "0 points sent, 1 left out" {
		t.Errorf("got %+v", res)
	}
	c.stop()
	noticed(t, s)
	want(t, "refused", s.Run(t.Context(), h, job(one)), KindError, true, "refused")
}

func TestGraphiteTLS(t *testing.T) {
	ca := testcert.New(t, "ours")
	c := newCollector(t, "127.0.0.1:0", serverTLS(t, ca.Issue(t, []string{"127.0.0.1"}, nil)))
	s := setup(t, Options{})
	h := handler("graphite")
	h.Graphite = &resource.HandlerGraphite{
		Host: "127.0.0.1", Port: uint32(c.Addr().(*net.TCPAddr).Port),
		TLS: &resource.HandlerTLS{CAFile: ca.File},
	}
	want(t, "send", s.Run(t.Context(), h, job(measured(point("a", 1, 1)))), KindOK, false, "")
	if got := <-c.lines; !strings.HasSuffix(got, ".a 1 1") {
		t.Errorf("got %q", got)
	}
}

// received collects datagrams until they hold n lines.
func received(t testing.TB, conn net.PacketConn, n int) (lines []string) {
	t.Helper()
	for buf := make([]byte, 65536); len(lines) < n; {
		size, _, err := conn.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if size > maxDatagram {
			t.Errorf("a datagram of %d bytes", size)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(buf[:size]), "\n"), "\n")...)
	}
	return lines
}

func TestDatagrams(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := setup(t, Options{})
	ev := measured()
	for i := range 200 {
		ev.Metrics.Points = append(ev.Metrics.Points, point(fmt.Sprint("a.b", i), float64(i), 1_700_000_000))
	}
	g := handler("graphite")
	g.Graphite = &resource.HandlerGraphite{Host: "127.0.0.1", Port: uint32(conn.LocalAddr().(*net.UDPAddr).Port), Protocol: "udp"}
	want(t, "graphite", s.Run(t.Context(), g, job(ev)), KindOK, false, "")
	if lines := received(t, conn, 200); lines[199] != "sensu.web1_example_org.a.b199 199 1700000000" {
		t.Errorf("got %q", lines[199])
	}
	i := handler("influx")
	i.Influx = &resource.HandlerInflux{URL: "udp://" + conn.LocalAddr().String()}
	want(t, "influx", s.Run(t.Context(), i, job(ev)), KindOK, false, "")
	if lines := received(t, conn, 200); lines[199] != "a,sensu_entity_name=web1.example.org b199=199 1700000000000000000" {
		t.Errorf("got %q", lines[199])
	}
}

// influx reads lines as InfluxDB does.
func influx(t testing.TB, text string) (out []string) {
	t.Helper()
	dec := lineprotocol.NewDecoder(bytes.NewBufferString(text))
	for dec.Next() {
		m, err := dec.Measurement()
		if err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		line := string(m)
		for {
			key, value, err := dec.NextTag()
			if err != nil {
				t.Fatalf("%v in %q", err, text)
			}
			if key == nil {
				break
			}
			line += fmt.Sprintf(" [%s=%s]", key, value)
		}
		for {
			key, value, err := dec.NextField()
			if err != nil {
				t.Fatalf("%v in %q", err, text)
			}
			if key == nil {
				break
			}
			line += fmt.Sprintf(" %s=%v", key, value)
		}
		at, err := dec.Time(lineprotocol.Nanosecond, time.Time{})
		if err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		out = append(out, fmt.Sprint(line, " ", at.UnixNano()))
	}
	return out
}

func TestInflux(t *testing.T) {
	srv := newService(t, status(204, ""))
	s := setup(t, Options{})
	h := handler("influx")
	h.Influx = &resource.HandlerInflux{
		URL: srv.URL, Database: "db", RetentionPolicy: "week",
		Tags: map[string]string{"rack": "{{.Entity.Labels.rack}}"},
	}
	h.Influx.Username, h.Influx.Password = "bob", "pass"
	res := s.Run(t.Context(), h, job(awkward()))
	want(t, "version 1", res, KindOK, false, "")
	if string(res.Output) != "7 points sent, 3 left out" {
		t.Errorf("output %q", res.Output)
	}
	got := srv.asked(t)
	if got.method != "POST" || got.path != "/write" || got.query != "db=db&precision=ns&rp=week" ||
		got.header.Get("Authorization") != "Basic Ym9iOnBhc3M=" {
		t.Errorf("got %+v", got)
	}
	const tag = " [sensu_entity_name=web1.example.org]"
	wanted := []string{
		"cpu [core=0] [rack=17]" + tag + " user=1.5 1700000000000000000",
		"cpu [core=1] [rack=17]" + tag + " user=-2 1700000000123000000",
		"plain [rack=17]" + tag + " value=1e+21 1700000000123456789",
		"micro [rack=17]" + tag + " value=0 1700000000123456000",
		"no time [rack=17]" + tag + " value=7 1700000100000000000",
		`two_lines x y [a;b=c d=v_;~=] [rack=17]` + tag + " value=3 1700000000000000000",
		"bad_utf [rack=17]" + tag + " [t=_] value=4 1700000000000000000",
	}
	if lines := influx(t, got.body); !slices.Equal(lines, wanted) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(wanted, "\n"))
	}

	h.Influx = &resource.HandlerInflux{URL: srv.URL + "/influx/", Org: "o", Bucket: "b c"}
	h.Influx.Token = "t0"
	want(t, "version 2", s.Run(t.Context(), h, job(measured(point("a", 1, 1)))), KindOK, false, "")
	if got := srv.asked(t); got.path != "/influx/api/v2/write" || got.query != "bucket=b+c&org=o&precision=ns" ||
		got.header.Get("Authorization") != "Token t0" {
		t.Errorf("got %+v", got)
	}
	srv.answers(status(400, `{"error":"field type conflict"}`))
	want(t, "conflict", s.Run(t.Context(), h, job(measured(point("a", 1, 1)))), KindFailed, false, "status 400")
	srv.answers(status(503, ""))
	want(t, "overloaded", s.Run(t.Context(), h, job(measured(point("a", 1, 1)))), KindFailed, true, "status 503")
	srv.asked(t)
	srv.asked(t)
	want(t, "no metrics", s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
	want(t, "no points", s.Run(t.Context(), h, job(measured(point("nan", math.NaN(), 1)))), KindOK, false, "")
	if len(srv.requests) != 0 {
		t.Error("something was sent")
	}
}

// FuzzPoint checks that no name, tag or value makes lines that a receiver would read differently.
func FuzzPoint(f *testing.F) {
	f.Add("cpu.user", "core", "0", 1.5, int64(1_700_000_000))
	f.Add("a b\n", "k=\\", "v,~ ;", math.Inf(-1), int64(-1))
	f.Add("\\", "\"", "\\", 0.0, int64(math.MaxInt64))
	f.Add("next\u0085line", "no\u00a0break", "\u2028", 93.0, int64(1_700_000_000))
	f.Add("#", "", "", 46.5, int64(9_223_372_036_854_775_707))
	f.Fuzz(func(t *testing.T, name, key, value string, v float64, at int64) {
		view := newView(measured(point(name, v, at, key, value)), Job{})
		lines, skipped := graphiteLines(view, "p", false)
		if len(lines)+skipped != 1 {
			t.Fatalf("%d lines, %d skipped", len(lines), skipped)
		}
		for _, line := range lines {
			got, _, _, _ := carbon(t, string(line))
			if !strings.HasPrefix(got, "p.") || bytes.Count(line, []byte("\n")) != 1 {
				t.Errorf("line %q", line)
			}
		}
		lines, skipped = influxLines(view, nil)
		if len(lines)+skipped != 1 || len(lines) == 1 && len(influx(t, string(lines[0]))) != 1 {
			t.Errorf("%q, %d skipped", lines, skipped)
		}
	})
}
