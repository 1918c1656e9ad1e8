package carbon

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// now is the time of the tests.
const now = 1423931300

func testNow() time.Time { return time.Unix(now, 0) }

// list is an Adder that keeps what it gets as text.
type list struct {
	points []string
	refuse string // a name that is refused
}

func (l *list) Add(name []byte, unixMilli int64, value float64) error {
	if l.refuse != "" && string(name) == l.refuse {
		return errors.New("refused")
	}
	l.points = append(l.points, fmt.Sprintf("%s %v %v", name, value, float64(unixMilli)/1000))
	return nil
}

// rejected lists what a parser rejected, as "reason" or "reason*count".
func rejected(c Counts) string {
	var out []string
	for reason, n := range c.Rejected {
		switch {
		case n == 1:
			out = append(out, Reason(reason).String())
		case n > 1:
			out = append(out, fmt.Sprintf("%s*%d", Reason(reason), n))
		}
	}
	return strings.Join(out, " ")
}

func TestLines(t *testing.T) {
	for _, tc := range []struct{ line, want, rejected string }{
		{"a.b 1.5 1423931224", "a.b 1.5 1423931224", ""},
		{"a.b -1.5 1423931224\r", "a.b -1.5 1423931224", ""},
		{"  a.b \t 1 \t1423931224 \r", "a.b 1 1423931224", ""},
		{"a\t1\t1423931224", "a 1 1423931224", ""},
		{"a;dc=x 1e3 1423931224", "a;dc=x 1000 1423931224", ""},
		{"a 1_000 1423931224", "a 1000 1423931224", ""},
		{"a +1 1423931224", "a 1 1423931224", ""},
		{"a .5 1423931224", "a 0.5 1423931224", ""},
		{"a 5. 1423931224", "a 5 1423931224", ""},
		{"a 60.200000000000003 1423931224", "a 60.2 1423931224", ""},
		{"a 123456789012345678901234567890 1423931224", "a 1.2345678901234568e+29 1423931224", ""},
		{"a 1 1423931224.9", "a 1 1423931224", ""},
		{"a 1 1.423931224e9", "a 1 1423931224", ""},
		{"a 1 -1", "a 1 1423931300", ""},
		{"a 1 -1.9", "a 1 1423931300", ""},
		{"a 1 N", "a 1 1423931300", ""},
		{"a 1", "a 1 1423931300", ""},
		{"a 1 ", "a 1 1423931300", ""},
		{"a 1 1424017700", "a 1 1424017700", ""},
		{"\xff\xfe 1 1423931224", "\xff\xfe 1 1423931224", ""},
		{"", "", ""},
		{"\r", "", ""},
		{" \t", "", ""},
		{"a", "", "format"},
		{"a 1 1423931224 x", "", "format"},
		{"a b 1423931224 5", "", "format"},
		{"a x 1423931224", "", "value"},
		{"a 0x10 1423931224", "", "value"},
		{"a 1__0 1423931224", "", "value"},
		{"a _1 1423931224", "", "value"},
		{"a 1.-5 1423931224", "", "value"},
		{"a - 1423931224", "", "value"},
		{"a . 1423931224", "", "value"},
		{"a 1 x", "", "timestamp"},
		{"a 1 nan", "", "timestamp"},
		{"a 1 inf", "", "timestamp"},
		{"a 1 NN", "", "timestamp"},
		{"a nan 1423931224", "", "nan"},
		{"a -NaN 1423931224", "", "nan"},
		{"a inf 1423931224", "", "inf"},
		{"a -Infinity 1423931224", "", "inf"},
		{"a 1e400 1423931224", "", "inf"},
		{"a 1 0", "", "past"},
		{"a 1 0.5", "", "past"},
		{"a 1 -2", "", "past"},
		{"a 1 -1e300", "", "past"},
		{"a 1 1424017701", "", "future"},
		{"a 1 999999999999999999", "", "future"},
		{"a 1 9999999999999999999", "", "future"},
		{"a 1 1e300", "", "future"},
		{"refused 1 1423931224", "", "refused"},
		{strings.Repeat("n", 4096) + " 1 1423931224", strings.Repeat("n", 4096) + " 1 1423931224", ""},
		{strings.Repeat("n", 4097) + " 1 1423931224", "", "name_too_long"},
		{strings.Repeat("n", 5000) + " 1 1423931224", "", "line_too_long"},
		{"n" + strings.Repeat(" ", 5000) + " 1 1423931224", "", "line_too_long"},
	} {
		// A tab elsewhere sends all lines the slow way, which must agree.
		for _, other := range []string{"", "\tother 1 1423931224\n"} {
			p := Parser{Now: testNow}
			to := &list{refuse: "refused"}
			n, err := p.Lines([]byte(tc.line+"\n"+other+"rest 1"), to)
			if err != nil || n != len(tc.line)+1+len(other) {
				t.Errorf("%.40q: %d bytes, %v", tc.line, n, err)
			}
			var want []string
			if tc.want != "" {
				want = append(want, tc.want)
			}
			if other != "" {
				want = append(want, "other 1 1423931224")
			}
			want = slices.Clip(want)
			for i, s := range want {
				f := strings.Fields(s)
				ts, _ := strconv.ParseFloat(f[2], 64)
				want[i] = fmt.Sprintf("%s %s %v", f[0], f[1], ts)
			}
			if !slices.Equal(to.points, want) {
				t.Errorf("%.40q: %.200q, want %.200q", tc.line, to.points, want)
			}
			sample, ok := p.TakeSample()
			if counts := p.TakeCounts(); rejected(counts) != tc.rejected || counts.Points != uint64(len(want)) {
				t.Errorf("%.40q: rejected %q, want %q", tc.line, rejected(counts), tc.rejected)
			}
			if ok != (tc.rejected != "") || ok && sample.Reason.String() != tc.rejected || len(sample.Text) > sampleLength {
				t.Errorf("%.40q: sample %v, %v", tc.line, sample, ok)
			}
		}
	}
}

func TestKeepInfinite(t *testing.T) {
	p := Parser{Now: testNow, KeepInfinite: true}
	to := &list{}
	p.Datagram([]byte("a inf 1423931224\nb nan 1423931224\nc -inf 1423931224"), to)
	if len(to.points) != 2 || rejected(p.TakeCounts()) != "nan" {
		t.Errorf("points %q", to.points)
	}
}

func TestDatagram(t *testing.T) {
	p := Parser{Now: testNow}
	to := &list{}
	p.Datagram([]byte("a 1 1423931224\nbad\n\nb 2 1423931224\r\nc 3 1423931224\x00"), to)
	if len(to.points) != 3 || rejected(p.TakeCounts()) != "format" {
		t.Errorf("points %q", to.points)
	}
	p.Datagram(nil, to)
	p.Datagram([]byte("\n"), to)
	p.Datagram([]byte(strings.Repeat("x", 70_000)), to)
	p.Datagram([]byte(strings.Repeat("x", 70_000)+"\n"), to)
	if got := rejected(p.TakeCounts()); len(to.points) != 3 || got != "line_too_long*2" {
		t.Errorf("points %q, rejected %q", to.points, got)
	}
}

func TestLineTooLong(t *testing.T) {
	p := Parser{Now: testNow, MaxLine: 100}
	to := &list{}
	data := []byte("a 1 1423931224\n" + strings.Repeat("x", 101) + "\nb 1 1423931224\n")
	if n, err := p.Lines(data, to); !errors.Is(err, ErrLineTooLong) || n != 15 || len(to.points) != 1 {
		t.Errorf("%d bytes, %v, points %q", n, err, to.points)
	}
	if err := p.Line(data[15:116], to); !errors.Is(err, ErrLineTooLong) {
		t.Errorf("Line: %v", err)
	}
}

// TestPlainNumbersAreExact compares the fast conversion with strconv's.
func TestPlainNumbersAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tried := 0
	for range 200_000 {
		digits := strconv.FormatUint(r.Uint64()>>r.IntN(64), 10)
		if at := r.IntN(len(digits) + 1); r.IntN(4) > 0 {
			digits = digits[:at] + "." + digits[at:]
		}
		if r.IntN(2) == 0 {
			digits = "-" + digits
		}
		got, ts, ok := plainNumbers([]byte(digits + " 1423931224"))
		if !ok {
			continue
		}
		tried++
		want, err := strconv.ParseFloat(digits, 64)
		if err != nil || math.Float64bits(got) != math.Float64bits(want) || ts != 1423931224 {
			t.Fatalf("%s: %v at %d, want %v", digits, got, ts, want)
		}
	}
	if tried < 100_000 {
		t.Errorf("only %d numbers were plain", tried)
	}
}

func FuzzLines(f *testing.F) {
	for _, s := range []string{"a.b 1.5 1423931224\n", "a\t-1e3 -1\r\nb nan N\n", "x 1_0 1423931224.5\n\n \n", "a 1\nb",
		"a . 1\n"} {
		f.Add([]byte(s), uint16(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		whole := &list{}
		p := Parser{Now: testNow, MaxName: 20, MaxLine: 200}
		n, err := p.Lines(data, whole)
		if err != nil {
			return
		}
		if strings.IndexByte(string(data[n:]), '\n') >= 0 {
			t.Fatalf("%q is left", data[n:])
		}
		counts := p.TakeCounts()
		// Two pieces give the same points, and so does a tab in front, which takes the slow way.
		cut := int(at) % (len(data) + 1)
		split := &list{}
		first, _ := p.Lines(data[:cut], split)
		if _, err := p.Lines(data[first:], split); err != nil {
			t.Fatal(err)
		}
		if got := p.TakeCounts(); !slices.Equal(whole.points, split.points) || got != counts {
			t.Fatalf("in two pieces: %q %v, want %q %v", split.points, got, whole.points, counts)
		}
		slow := &list{}
		if _, err := p.Lines(append([]byte("\t\n"), data...), slow); err != nil {
			t.Fatal(err)
		}
		if got := p.TakeCounts(); !slices.Equal(whole.points, slow.points) || got != counts {
			t.Fatalf("the slow way: %q %v, want %q %v", slow.points, got, whole.points, counts)
		}
	})
}

// none is an Adder that does nothing.
type none struct{}

func (none) Add([]byte, int64, float64) error { return nil }

func benchLines(line func(i int) string) []byte {
	var data []byte
	for i := range 1000 {
		data = append(data, line(i)...)
		data = append(data, '\n')
	}
	return data
}

func BenchmarkParseLines(b *testing.B) {
	for _, bc := range []struct {
		name string
		line func(i int) string
	}{
		{"plain", func(i int) string {
			return fmt.Sprintf("servers.host%03d.cpu.total.idle %.2f 1423931224", i, float64(i)*1.37)
		}},
		{"long", func(i int) string {
			return fmt.Sprintf("servers.host%03d.cpu.total.idle %v 1423931224", i, math.Sqrt(float64(i+2)))
		}},
		{"tabs", func(i int) string {
			return fmt.Sprintf("servers.host%03d.cpu.total.idle\t%.2f\t1423931224", i, float64(i)*1.37)
		}},
		{"crlf", func(i int) string {
			return fmt.Sprintf("servers.host%03d.cpu.total.idle %f 1423931224\r", i, float64(i)*1.37)
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			data := benchLines(bc.line)
			p := Parser{Now: testNow}
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if n, err := p.Lines(data, none{}); n != len(data) || err != nil {
					b.Fatal(n, err)
				}
			}
			if c := p.TakeCounts(); c.Points != uint64(b.N)*1000 {
				b.Fatalf("%d points", c.Points)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/line")
		})
	}
}

func TestParsersAllocateNothing(t *testing.T) {
	lines := benchLines(func(i int) string {
		return fmt.Sprintf("servers.host%03d.cpu\t%v 1423931224", i, math.Sqrt(float64(i)))
	})
	var points []point
	for i := range 500 {
		points = append(points, point{fmt.Sprintf("servers.host%03d.cpu", i), 1423931224, float64(i)})
	}
	pickle, protobuf := asPickle(points...)[4:], asProtobuf(points...)[4:]
	p := Parser{Now: testNow}
	d := new(decoder) // not from the pool, which the collector may empty
	for name, parse := range map[string]func(){
		"lines":    func() { _, _ = p.Lines(lines, none{}) },
		"protobuf": func() { _ = p.Protobuf(protobuf, none{}) },
		"pickle":   func() { _ = p.decoded(d, pickle, none{}) },
	} {
		parse()
		if n := testing.AllocsPerRun(50, parse); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
