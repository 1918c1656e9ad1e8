package frame

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

type point struct {
	name    string
	seconds int64
	value   float64
}

// message returns one message with the points that the format carries.
func message(f Format, points ...point) []byte {
	out := f.Begin(nil)
	for _, p := range points {
		if f.Carries([]byte(p.name), p.seconds) {
			out = f.Append(out, []byte(p.name), p.seconds, p.value)
		}
	}
	return f.End(out, 0)
}

func TestMessages(t *testing.T) {
	two := []point{{"servers.h1.cpu.total.idle", 1423931224, 60.2}, {"servers.h1.x", 1423931224, 3}}
	for _, tc := range []struct {
		title  string
		format Format
		points []point
		want   string
	}{
		{"pickle", Pickle, two, "\x00\x00\x00\x55\x80\x02](X\x19\x00\x00\x00servers.h1.cpu.total.idle" +
			"JXw\xdfTG@N\x19\x99\x99\x99\x99\x9a\x86\x86X\x0c\x00\x00\x00servers.h1.xJXw\xdfTG@\x08\x00\x00\x00\x00\x00\x00\x86\x86e."},
		{"pickle, late", Pickle, []point{{"a", 1 << 31, 1}}, "\x00\x00\x00\x21\x80\x02](X\x01\x00\x00\x00a" +
			"\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00G\x3f\xf0\x00\x00\x00\x00\x00\x00\x86\x86e."},
		{"protobuf", Protobuf, []point{{"param1", 1423931224, 60.2}}, "\x00\x00\x00\x1b" +
			unhex("0a190a06706172616d31120f08d8eefda605119a99999999194e40")},
		{"protobuf, two", Protobuf, []point{{"a", 1, 1}, {strings.Repeat("b", 200), math.MaxUint32, 1}},
			"\x00\x00\x00\xf1" + unhex("0a100a0161120b080111000000000000f03f") +
				unhex("0adc010ac801"+strings.Repeat("62", 200)+"120f08ffffffff0f11000000000000f03f")},
		{"line", Line, two, "servers.h1.cpu.total.idle 60.2 1423931224\nservers.h1.x 3 1423931224\n"},
	} {
		if got := message(tc.format, tc.points...); string(got) != tc.want {
			t.Errorf("%s: got %q, want %q", tc.title, got, tc.want)
		}
	}
}

func unhex(s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestCarries(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		seconds                int64
		line, pickle, protobuf bool
	}{
		{"a", 1, true, true, true},
		{"", 1, false, false, false},
		{"a", -1, true, true, false},
		{"a", 1 << 32, true, true, false},
		{"a b", 1, false, true, true},
		{"a\nb", 1, false, true, true},
		{"a\u00a0b", 1, false, true, true},
		{"a\xff", 1, false, false, false},
		{"größe;t=ü", 1, true, true, true},
	} {
		for f, want := range map[Format]bool{Line: tc.line, Pickle: tc.pickle, Protobuf: tc.protobuf} {
			if got := f.Carries([]byte(tc.name), tc.seconds); got != want {
				t.Errorf("format %d carries %q at %d: %v", f, tc.name, tc.seconds, got)
			}
		}
	}
}

func TestValues(t *testing.T) {
	for _, tc := range []struct {
		value float64
		want  string
	}{
		{60.2, "60.2"}, {3, "3"}, {100, "100"}, {-0.5, "-0.5"}, {0.30000000000000004, "0.3"}, {1e-11, "0"},
		{1e-9, "0.000000001"}, {1e20, "100000000000000000000"}, {9007199254740993, "9007199254740992"},
		{1.5e10, "15000000000"}, {1234567.125, "1234567.125"}, {math.Inf(1), "inf"}, {math.Inf(-1), "-inf"}, {0, "0"},
	} {
		// Zeros before the value are not those at its end.
		if got := string(appendValue([]byte("0.00"), tc.value)); got != "0.00"+tc.want {
			t.Errorf("%v: got %s, want %s", tc.value, got, tc.want)
		}
	}
}

// pickled are the points that testdata/pickled.txt has.
func pickled() []point {
	points := []point{
		{"servers.h1.cpu.total.idle", 1423931224, 60.2},
		{"disk.used;dc=dc1;host=web01", 1423931224, -1.5e-300},
		{"café.€", 1423931225, math.MaxFloat64},
		{strings.Repeat("long.", 100), 1423931227, 3},
		{"late", 1 << 33, 1},
	}
	for i := range 490 {
		points = append(points, point{fmt.Sprintf("m%d", i), 1423931224 + int64(i), float64(i) / 8})
	}
	return points
}

// TestPickleIsReadByPython compares a pickle with the bytes that Python was given, and the points with what it read.
// LAPWING_REWRITE=1 rewrites the first file; testdata/read.py says how to rewrite the second.
func TestPickleIsReadByPython(t *testing.T) {
	got := base64.StdEncoding.EncodeToString(message(Pickle, pickled()...)) + "\n"
	if os.Getenv("LAPWING_REWRITE") != "" {
		if err := os.WriteFile("testdata/pickled.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/pickled.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("the pickle has other bytes than testdata/pickled.txt; rewrite it and read.txt")
	}
	read, err := os.ReadFile("testdata/read.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(read)), "\n")
	if len(lines) != len(pickled()) {
		t.Fatalf("Python read %d points", len(lines))
	}
	for i, p := range pickled() {
		var name string
		var seconds int64
		var value float64
		if _, err := fmt.Sscan(lines[i], &name, &seconds, &value); err != nil {
			t.Fatal(err)
		}
		if name != p.name || seconds != p.seconds || value != p.value {
			t.Errorf("Python read %q for %q", lines[i], p.name)
		}
	}
}

// FuzzLine checks that a line has three fields: the name, the value with ten decimals, and the time.
func FuzzLine(f *testing.F) {
	f.Add("servers.h1", int64(1), 0.1)
	f.Add("größe;t=ü", int64(-1), 1e300)
	f.Add("a b", int64(1<<40), -1e-11)
	f.Fuzz(func(t *testing.T, name string, seconds int64, value float64) {
		if math.IsNaN(value) || !Line.Carries([]byte(name), seconds) {
			return
		}
		fields := strings.Fields(string(message(Line, point{name, seconds, value})))
		if len(fields) != 3 || fields[0] != name || fields[2] != strconv.FormatInt(seconds, 10) {
			t.Fatalf("line %q", fields)
		}
		if back, err := strconv.ParseFloat(fields[1], 64); err != nil || back != value && math.Abs(back-value) > 1e-10 {
			t.Fatalf("value %v is %s", value, fields[1])
		}
	})
}

func TestAllocations(t *testing.T) {
	name, room := []byte("servers.h2.größe"), make([]byte, 0, 1024)
	for _, f := range []Format{Line, Pickle, Protobuf} {
		if n := testing.AllocsPerRun(100, func() { f.End(f.Append(f.Begin(room), name, 1423931224, 1e20), 0) }); n != 0 {
			t.Errorf("format %d: %v allocations", f, n)
		}
	}
}
