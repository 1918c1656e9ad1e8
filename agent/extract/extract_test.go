package extract

import (
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	executed = int64(1_700_000_000)
	current  = int64(1_700_000_500)
)

func testNow() time.Time { return time.Unix(current, 999) }

// tags makes tags of "name=value" texts; a non-nil empty list for none.
func tags(pairs ...string) []resource.MetricTag {
	list := []resource.MetricTag{}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		list = append(list, resource.MetricTag{Name: name, Value: value})
	}
	return list
}

func point(name string, value float64, timestamp int64, pairs ...string) resource.MetricPoint {
	return resource.MetricPoint{Name: name, Value: value, Timestamp: timestamp, Tags: tags(pairs...)}
}

// check parses output, with omt as the check's own tags, and compares points and the number of skipped parts.
func check(t *testing.T, format, output string, omt []resource.MetricTag, skipped int, want ...resource.MetricPoint) {
	t.Helper()
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	got := Points(format, output, executed, testNow, omt, log)
	if len(got) != len(want) || (len(want) > 0 && !reflect.DeepEqual(got, want)) {
		t.Errorf("%s %q\n got %+v\nwant %+v", format, output, got, want)
	}
	if mark := "skipped=" + strconv.Itoa(skipped) + " "; (skipped > 0) != strings.Contains(logged.String(), mark) || (skipped == 0 && logged.Len() > 0) {
		t.Errorf("%s %q: want %d parts skipped, log says %q", format, output, skipped, logged.String())
	}
}

func TestNagios(t *testing.T) {
	f := func(output string, skipped int, want ...resource.MetricPoint) {
		t.Helper()
		check(t, Nagios, output, tags("dc=eu"), skipped, want...)
	}
	at := func(name string, value float64) resource.MetricPoint { return point(name, value, executed, "dc=eu") }

	f("OK | load=1.5;2;3;0;10 users=4\n", 0, at("load", 1.5), at("users", 4))
	f("OK|time=0.01s  size=10KB", 0, at("time", 0.01), at("size", 10))
	f("OK | temp=-3.5C", 0, at("temp", -3.5))
	f("OK | a=1e3 b=1,5", 0, at("a", 13), at("b", 15))
	f("OK | a=U b= c=2", 2, at("c", 2))
	f("OK | 'a b'=3", 1, at("b'", 3))
	f("OK | a b=1 c=d=2 e=5", 2, at("b", 1), at("e", 5))
	f("OK | a=1\nmore | b=2", 1)
	f("OK", 1)
	f("", 1)
	f("OK |", 0)
	check(t, Nagios, "|a=1", nil, 0, point("a", 1, executed))
}

func TestGraphite(t *testing.T) {
	f := func(output string, skipped int, want ...resource.MetricPoint) {
		t.Helper()
		check(t, Graphite, output, tags("dc=eu"), skipped, want...)
	}
	f("a.b 1.5 123\nc 2 456\n", 0, point("a.b", 1.5, 123, "dc=eu"), point("c", 2, 456, "dc=eu"))
	f("  \n a 1 2 \r\nb 1 2\r\n", 1, point("b", 1, 2, "dc=eu")) // the trim reaches only the ends of the output
	f("a;x=1;y=2 3 4", 0, point("a", 3, 4, "dc=eu", "x=1", "y=2"))
	f("a 1e3 4", 0, point("a", 1000, 4, "dc=eu"))
	f("a 0x10 4\na;x 1 1\na;x=1=2 1 1\na; 1 1\na 1\na 1 1.5\na  1 1\na 1 2 3\n\nb 1 1", 8, point("b", 1, 1, "dc=eu"))
	f("", 0)

	got := Points(Graphite, "a NaN 4", executed, testNow, nil, nil)
	if len(got) != 1 || !math.IsNaN(got[0].Value) || got[0].Tags == nil {
		t.Errorf("NaN: got %+v", got)
	}
}

func TestGraphiteStopsAtLongLine(t *testing.T) {
	long := strings.Repeat("x", 64<<10) + " 1 1"
	check(t, Graphite, "a 1 1\n"+long+"\nb 1 1", nil, 1, point("a", 1, 1))
	short := strings.Repeat("x", 60<<10)
	check(t, Graphite, short+" 1 1\nb 1 1", nil, 0, point(short, 1, 1), point("b", 1, 1))
}

func TestInflux(t *testing.T) {
	f := func(output string, skipped int, want ...resource.MetricPoint) {
		t.Helper()
		check(t, Influx, output, tags("dc=eu"), skipped, want...)
	}
	f("cpu,host=a idle=97.5,busy=2 1700000001000000000", 0,
		point("cpu.idle", 97.5, 1700000001, "host=a", "dc=eu"), point("cpu.busy", 2, 1700000001, "host=a", "dc=eu"))
	f("cpu idle=1", 0, point("cpu.idle", 1, current, "dc=eu"))
	f("cpu idle=1 123", 0, point("cpu.idle", 1, 123, "dc=eu"))
	f(`a\ b\,c,t\=x=v\ w f\,1=2 5`, 0, resource.MetricPoint{Name: "a b,c.f,1", Value: 2, Timestamp: 5, Tags: []resource.MetricTag{{Name: "t=x", Value: "v w"}, {Name: "dc", Value: "eu"}}})
	f(`a\\b f=2 5`, 0, point(`a\b.f`, 2, 5, "dc=eu"))
	f("cpu idle=97.5,busy=2i\ncpu s=\"x\"\ncpu b=true\ncpu\ncpu a=1 2 3\ncpu,t a=1\ncpu,t=1=2 a=1\ncpu a\ncpu a=1 x\nok a=1 7", 9,
		point("ok.a", 1, 7, "dc=eu"))
	f("cpu  idle=1", 1)
	f("", 0)
}

func TestOpenTSDB(t *testing.T) {
	f := func(output string, skipped int, want ...resource.MetricPoint) {
		t.Helper()
		check(t, OpenTSDB, output, tags("dc=eu"), skipped, want...)
	}
	f("sys.cpu 1356998400 42.5 host=web cpu=0", 0, point("sys.cpu", 42.5, 1356998400, "host=web", "cpu=0", "dc=eu"))
	f("sys.cpu 1356998400123 1 host=web", 0, point("sys.cpu", 1, 1356998400, "host=web", "dc=eu"))
	f("put sys.cpu 1356998400 1 host=web\na 1 1\na x 1 h=1\na 1 x h=1\na 1 1 h=1 h\na 1 1 h=1=2\nb 1 2 h=3", 6, point("b", 2, 1, "h=3", "dc=eu"))
	f("", 0)
}

func TestPrometheus(t *testing.T) {
	f := func(output string, omt []resource.MetricTag, skipped int, want ...resource.MetricPoint) {
		t.Helper()
		check(t, Prometheus, output, omt, skipped, want...)
	}
	f("# HELP up Whether it is.\n# TYPE up gauge\nup{job=\"a\"} 1 1700000001500\n", tags("dc=eu"), 0,
		point("up", 1, 1700000001, "dc=eu", "job=a", "prom_help=Whether it is.", "prom_type=gauge"))
	f("plain 3", nil, 0, point("plain", 3, current, "prom_type=untyped"))
	f("# TYPE c counter\nc 3\n", tags("prom_type=mine"), 0, point("c", 3, current, "prom_type=mine"))
	f("a{x=\"1\"} 3\n", tags("x=2"), 0, point("a", 3, current, "prom_type=untyped", "x=2"))
	f("a NaN\nb +Inf\n", nil, 0, point("b", math.Inf(1), current, "prom_type=untyped"))
	f("# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 3\n", nil, 0,
		point("h_bucket", 2, current, "le=1", "prom_type=histogram"),
		point("h_bucket", 3, current, "le=+Inf", "prom_type=histogram"),
		point("h_sum", 4, current, "prom_type=histogram"),
		point("h_count", 3, current, "prom_type=histogram"))
	f("# TYPE s summary\ns{quantile=\"0.5\"} 2\ns_sum 4\ns_count 3\n", nil, 0,
		point("s", 2, current, "prom_type=summary", "quantile=0.5"),
		point("s_sum", 4, current, "prom_type=summary"),
		point("s_count", 3, current, "prom_type=summary"))
	f("a 1\nb{ 2\nc 3\n", nil, 1, point("a", 1, current, "prom_type=untyped"))
	f("# text\n{}\n", nil, 1)
	f("", nil, 0)
}

func TestUnknownFormat(t *testing.T) {
	check(t, "whisper", "a 1 2", nil, 1)
}

// fuzz lets the parser of a format read any input, starting from the outputs of the suite.
func fuzz(f *testing.F, format string, more ...string) {
	for _, c := range suite(f) {
		if c.format == format && len(c.output) < 10_000 {
			f.Add(c.output)
		}
	}
	for _, seed := range more {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, output string) {
		omt := tags("dc=eu")
		for _, p := range Points(format, output, executed, testNow, omt, nil) {
			if p.Tags == nil {
				t.Fatalf("point %+v has no tag list", p)
			}
			if !slices.Contains(p.Tags, omt[0]) {
				t.Fatalf("point %+v lacks the check's own tag", p)
			}
		}
		if omt[0] != (resource.MetricTag{Name: "dc", Value: "eu"}) {
			t.Fatal("the check's tags were written to")
		}
	})
}

func FuzzNagios(f *testing.F)   { fuzz(f, Nagios) }
func FuzzGraphite(f *testing.F) { fuzz(f, Graphite) }
func FuzzInflux(f *testing.F)   { fuzz(f, Influx, `m f=1\`) }
func FuzzOpenTSDB(f *testing.F) { fuzz(f, OpenTSDB) }

func FuzzPrometheus(f *testing.F) {
	fuzz(f, Prometheus, "#000000000\n{}") // this input once ended the process
}
