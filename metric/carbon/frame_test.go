package carbon

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// fixtures reads a file with a label and a pickle in base64 per line.
func fixtures(t testing.TB, file string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		label, data, _ := strings.Cut(strings.TrimSpace(line), " ")
		if out[label], err = base64.StdEncoding.DecodeString(data); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestPicklesOfPython(t *testing.T) {
	two := []string{"servers.h1.cpu.total.idle 60.2 1.423931224e+09", "servers.h1.x 3 1.423931224e+09"}
	var many []string
	for i := range 1001 {
		many = append(many, fmt.Sprintf("m%d %v %v", i, float64(i)/4, float64(1423931224+i)))
	}
	wants := map[string]struct {
		points   []string
		rejected string
	}{
		"two": {two, ""},
		"pairs": {[]string{"servers.h1.x 1 1.423931224e+09", "servers.h1.x 2.5 1.423931234e+09",
			"servers.h1.x 1 1.423931244e+09"}, ""},
		"shared": {slices.Repeat([]string{"servers.h1.x 1.5 1.423931224e+09"}, 3), ""},
		"names": {[]string{"café.€ 1 1.423931224e+09", "a'b\"c\\d\n 1 1.423931224e+09",
			"\U0001f600 1 1.423931224e+09"}, ""},
		"many": {many, ""},
		"large": {[]string{"m 1.1805916207174113e+21 1.423931224e+09", "m -1.1805916207174113e+21 1.423931224e+09",
			"m -3e+09 1.423931224e+09"}, ""},
		"infinite": {nil, "timestamp nan inf*2"},
	}
	seen := 0
	for _, file := range []string{"testdata/pickles2.txt", "testdata/pickles3.txt"} {
		for label, frame := range fixtures(t, file) {
			kind, _, _ := strings.Cut(label, "-python")
			if strings.HasPrefix(kind, "two") {
				kind = "two"
			}
			want, ok := wants[kind]
			if !ok {
				t.Fatalf("no points for %s", label)
			}
			if strings.HasPrefix(label, "two-other") {
				want.rejected = "value*2 timestamp item*11"
			}
			p := Parser{Now: testNow}
			to := &list{}
			if err := p.Pickle(frame, to); err != nil {
				t.Errorf("%s: %v", label, err)
				continue
			}
			if !slices.Equal(to.points, want.points) {
				t.Errorf("%s: %.500q, want %.500q", label, to.points, want.points)
			}
			if got := rejected(p.TakeCounts()); got != want.rejected {
				t.Errorf("%s: rejected %q, want %q", label, got, want.rejected)
			}
			seen++
		}
	}
	if seen < 90 {
		t.Errorf("only %d pickles", seen)
	}
}

// pickles are written by hand: the vectors of CPython 2 and of Diamond, and statsd's form.
var pickles = map[string]string{
	"cPickle 2": "\x80\x02]q\x01(U\x19servers.h1.cpu.total.idleq\x02JXw\xdfTG@N\x19\x99\x99\x99\x99\x9a\x86q\x03\x86q\x04U\x0c" +
		"servers.h1.xq\x05JXw\xdfTK\x03\x86q\x06\x86q\x07e.",
	"cPickle 0": "(lp1\n(S'servers.h1.cpu.total.idle'\np2\n(I1423931224\nF60.200000000000003\ntp3\ntp4\na(S'servers.h1.x'\np5\n" +
		"(I1423931224\nI3\ntp6\ntp7\na.",
	"statsd": "(l(S'servers.h1.cpu.total.idle'\n(L1423931224L\nS'60.2'\ntta(S'servers.h1.x'\n(L1423931224L\nS'3'\ntta.",
	"double quotes, carriage returns": "(l(S\"servers.h1.cpu.total.idle\"\r\n(L1423931224L\nS'60.2'\r\ntta(S'servers.h1.x'\n" +
		"(L1423931224L\nS'3'\ntta.",
	"more behind it": "(l(S'servers.h1.cpu.total.idle'\n(L1423931224L\nS'60.2'\ntta(S'servers.h1.\\x78'\n(L1423931224L\nS'\\063'\ntta.more",
}

func TestPicklesByHand(t *testing.T) {
	for name, frame := range pickles {
		p := Parser{Now: testNow}
		to := &list{}
		want := []string{"servers.h1.cpu.total.idle 60.2 1.423931224e+09", "servers.h1.x 3 1.423931224e+09"}
		if err := p.Pickle([]byte(frame), to); err != nil || !slices.Equal(to.points, want) ||
			rejected(p.TakeCounts()) != "" {
			t.Errorf("%s: %q, %v", name, to.points, err)
		}
		// Each frame that is cut off is refused as a whole.
		for n := range strings.LastIndexByte(frame, '.') {
			to := &list{}
			if err := p.Pickle([]byte(frame[:n]), to); err == nil || len(to.points) != 0 {
				if !strings.HasSuffix(frame[:n], ".") && err == nil {
					t.Fatalf("%s, %d bytes: %q, %v", name, n, to.points, err)
				}
			}
		}
	}
}

func TestBadPickles(t *testing.T) {
	for _, tc := range []struct{ frame, want string }{
		{"", "no end"},
		{"]", "no end"},
		{".", "the stack is empty"},
		{"N.", "neither a list nor a tuple"},
		{"I1\n.", "neither a list nor a tuple"},
		{"cos\nsystem\n(S'true'\ntR.", "refused: GLOBAL"},
		{"\x80\x04\x8c\x02os\x8c\x06system\x93.", "refused: STACK_GLOBAL"},
		{"]R.", "REDUCE"}, {"]b.", "BUILD"}, {"i", "INST"}, {"o", "OBJ"}, {"\x81", "NEWOBJ"}, {"\x92", "NEWOBJ_EX"}, {"P", "PERSID"},
		{"Q", "BINPERSID"}, {"\x82", "EXT"}, {"\x83", "EXT"}, {"\x84", "EXT"}, {"0", "POP"}, {"1", "POP_MARK"}, {"2", "DUP"},
		{"\x8f", "EMPTY_SET"}, {"\x90", "ADDITEMS"}, {"\x91", "FROZENSET"}, {"\x96", "BYTEARRAY8"}, {"\x97", "NEXT_BUFFER"},
		{"\x98", "READONLY_BUFFER"}, {"\xff", "no opcode"},
		{"\x80\x06].", "protocol 6"},
		{"\x95\xff\x00\x00\x00\x00\x00\x00\x00].", "in the middle"},
		{"X\xff\xff\xff\xff.", "in the middle"},
		{"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "in the middle"},
		{"\x8b\xff\xff\xff\x7f.", "in the middle"},
		{"S'x", "in the middle"},
		{"Sx\n.", "quotation marks"}, {"S'x\"\n.", "quotation marks"}, {"S'\n.", "quotation marks"},
		{"Ix\n.", "an integer"}, {"I\n.", "an integer"}, {"L1_0L\n.", "an integer"}, {"Fx\n.", "a float"}, {"F\n.", "a float"},
		{"L" + strings.Repeat("9", 2000) + "L\n.", "an integer"},
		{"t.", "no mark"}, {"l.", "no mark"}, {"e.", "no mark"}, {"u.", "no mark"}, {"d.", "no mark"},
		{"a.", "empty"}, {"]a.", "empty"}, {"NNa.", "wrong type"}, {"(e.", "empty"}, {"N(e.", "wrong type"}, {"](Na.", "empty"},
		{"}s.", "empty"}, {"\x86.", "empty"}, {"N\x86.", "empty"}, {"N(N\x86.", "empty"}, {"N(.", "empty"},
		{"p0\n.", "empty"}, {"]p-1\n.", "memo index"}, {"]px\n.", "memo index"}, {"]p99999\n.", "memo index"},
		{"]r\xff\xff\xff\xff.", "memo index"}, {"g0\n.", "memo index"}, {"]p5\ng4\n.", "memo index"}, {"h\x00.", "memo index"},
		{"q", "in the middle"}, {"]q", "in the middle"},
		{strings.Repeat("N", 500) + ".", "too many values"},
		{strings.Repeat("(", 500) + ".", "too many values"},
		{strings.Repeat("]", 500) + ".", "too many values"},
	} {
		p := Parser{Now: testNow}
		to := &list{}
		err := p.Pickle([]byte(tc.frame), to)
		if err == nil || !strings.Contains(err.Error(), tc.want) || len(to.points) > 0 {
			t.Errorf("%.60q: %v, want an error with %q", tc.frame, err, tc.want)
		}
		if got := rejected(p.TakeCounts()); got != "frame" {
			t.Errorf("%.60q: rejected %q", tc.frame, got)
		}
	}
}

// TestPickleBombs bounds the memory that frames of 256 KiB need, whatever is in them.
func TestPickleBombs(t *testing.T) {
	const size = 256 << 10
	nested := strings.Repeat("\x85", size)
	for name, frame := range map[string]string{
		"nested tuples": "N" + nested,
		"empty tuples":  strings.Repeat(")", size),
		"none":          strings.Repeat("N", size),
		"marks":         strings.Repeat("(", size),
		"lists":         "]" + strings.Repeat("]a", size/2),
		"puts":          "]" + strings.Repeat("\x94", size),
		"high put":      "]r\x40\x00\x01\x00" + strings.Repeat("N", size/3),
		"gets":          "]\x94" + strings.Repeat("h\x00", size/2),
		"own list":      "]\x94" + strings.Repeat("h\x00a", size/3),
		"shared tuples": "N\x94" + strings.Repeat("h\x00h\x00\x86\x94", size/6),
		"long":          "\x8b\xf0\xff\x03\x00" + strings.Repeat("\xff", size),
		"escapes":       "S'" + strings.Repeat(`\x41`, size/4) + "'\n",
		"latin":         "V" + strings.Repeat("\xe9", size) + "\n",
		"digits":        "L" + strings.Repeat("9", size) + "L\n",
		"dict":          "}" + strings.Repeat("NNs", size/3),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := Parser{Now: testNow}
		_ = p.Pickle([]byte(frame), none{})
		_ = p.Pickle([]byte(frame+"."), none{})
		runtime.ReadMemStats(&after)
		// Slices double, so what is allocated in all is a few times what is held.
		if got := int64(after.TotalAlloc - before.TotalAlloc); got > 2*200*size {
			t.Errorf("%s: %d KiB were allocated", name, got>>10)
		}
	}
}

const protobufVector = "0a190a06706172616d31120f08d8eefda605119a99999999194e40"

func TestProtobuf(t *testing.T) {
	vector, err := hex.DecodeString(protobufVector)
	if err != nil {
		t.Fatal(err)
	}
	point := "\x12\x0f\x08\xd8\xee\xfd\xa6\x05\x11\x00\x00\x00\x00\x00\x00\xf8\x3f" // 1.5 @ 1423931224
	for _, tc := range []struct{ frame, want, rejected, err string }{
		{string(vector), "param1 60.2 1.423931224e+09", "", ""},
		// Fields in another order, and fields that are unknown.
		{"\x0a\x19" + point + "\x0a\x06param1", "param1 1.5 1.423931224e+09", "", ""},
		{"\x10\x05\x0a\x1b" + point + "\x0a\x06param1\x18\x07", "param1 1.5 1.423931224e+09", "", ""},
		{"\x0a\x2a\x0a\x06param1" + point + point, "param1 1.5 1.423931224e+09,param1 1.5 1.423931224e+09", "", ""},
		// A value of 0 is not written.
		{"\x0a\x10\x0a\x06param1\x12\x06\x08\xd8\xee\xfd\xa6\x05", "param1 0 1.423931224e+09", "", ""},
		{"\x0a\x0a\x0a\x06param1\x12\x00", "", "past", ""},
		{"\x0a\x11" + point + string(vector), "param1 60.2 1.423931224e+09", "item", ""},
		{"\x0a\x08\x0a\x06param1" + string(vector), "param1 60.2 1.423931224e+09", "item", ""},
		{"\x0a\x00" + string(vector), "param1 60.2 1.423931224e+09", "item", ""},
		{"", "", "frame", "no metrics"},
		{"\x10\x05", "", "frame", "no metrics"},
		{string(vector) + "\x0a", "", "frame", "EOF"},
		{string(vector) + "\x08\x01", "", "frame", "type"},
		{string(vector) + "\x0a\x02\x08\x01", "", "frame", "type"},
		{string(vector) + "\x0a\x04\x12\x02\x10\x01", "", "frame", "type"},
		{string(vector) + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "", "frame", "overflow"},
	} {
		p := Parser{Now: testNow}
		to := &list{}
		err := p.Protobuf([]byte(tc.frame), to)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: %v, want an error with %q", tc.frame, err, tc.err)
		}
		if got := strings.Join(to.points, ","); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.frame, got, tc.want)
		}
		if got := rejected(p.TakeCounts()); got != tc.rejected {
			t.Errorf("%q: rejected %q, want %q", tc.frame, got, tc.rejected)
		}
	}
	// A frame that is cut off is refused as a whole.
	for n := range len(vector) {
		p := Parser{Now: testNow}
		to := &list{}
		if err := p.Protobuf(vector[:n], to); err == nil || len(to.points) > 0 {
			t.Errorf("%d bytes: %v, %q", n, err, to.points)
		}
	}
}

// various are points with names, times and values of many kinds.
func various() []point {
	points := []point{
		{"servers.h1.cpu.total.idle", 1423931224, 60.2},
		{"disk.used;dc=dc1;host=web01", 1423931224, -1.5e-300},
		{"café.€", 1423931225, math.MaxFloat64},
		{strings.Repeat("long.", 100), 1423931227, 3},
	}
	for i := range 600 {
		points = append(points, point{fmt.Sprintf("m%d", i), 1423931224 + int64(i), float64(i) / 8})
	}
	return points
}

// splitFrames takes frames apart.
func splitFrames(t *testing.T, data []byte) (frames [][]byte) {
	t.Helper()
	for len(data) > 0 {
		n := binary.BigEndian.Uint32(data)
		frames = append(frames, data[4:4+n])
		data = data[4+n:]
	}
	return frames
}

func TestRoundTrip(t *testing.T) {
	points := slices.DeleteFunc(various(), func(p point) bool { return p.seconds > now })
	var want []string
	for _, p := range points {
		want = append(want, fmt.Sprintf("%s %v %v", p.name, p.value, float64(p.seconds)))
	}
	p := Parser{Now: testNow}
	for name, parse := range map[string]func(to Adder) error{
		"lines": func(to Adder) error { _, err := p.Lines(asLines(points), to); return err },
		"pickle": func(to Adder) error {
			for _, f := range splitFrames(t, asPickle(points...)) {
				if err := p.Pickle(f, to); err != nil {
					return err
				}
			}
			return nil
		},
		"protobuf": func(to Adder) error {
			for _, f := range splitFrames(t, asProtobuf(points...)) {
				if err := p.Protobuf(f, to); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		to := &list{}
		if err := parse(to); err != nil || !slices.Equal(to.points, want) {
			t.Errorf("%s: %d points of %d, %v", name, len(to.points), len(want), err)
		}
		if got := p.TakeCounts(); rejected(got) != "" {
			t.Errorf("%s: rejected %s", name, rejected(got))
		}
	}
}

func FuzzPickle(f *testing.F) {
	for _, file := range []string{"testdata/pickles2.txt", "testdata/pickles3.txt"} {
		for label, frame := range fixtures(f, file) {
			if !strings.HasPrefix(label, "many") {
				f.Add(frame)
			}
		}
	}
	for _, frame := range pickles {
		f.Add([]byte(frame))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		p := Parser{Now: testNow}
		to := &list{}
		before := bytes.Clone(frame)
		err := p.Pickle(frame, to)
		if !bytes.Equal(before, frame) {
			t.Fatal("the frame was changed")
		}
		if err != nil && len(to.points) > 0 {
			t.Fatalf("%v, and %d points", err, len(to.points))
		}
		again := &list{}
		if err2 := p.Pickle(frame, again); (err == nil) != (err2 == nil) || !slices.Equal(to.points, again.points) {
			t.Fatalf("%v %q, again %v %q", err, to.points, err2, again.points)
		}
	})
}

func FuzzProtobuf(f *testing.F) {
	vector, _ := hex.DecodeString(protobufVector)
	f.Add(vector)
	f.Add([]byte("\x10\x05" + string(vector) + "\x0a\x08\x0a\x06param1"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		p := Parser{Now: testNow}
		to := &list{}
		if err := p.Protobuf(frame, to); err != nil && len(to.points) > 0 {
			t.Fatalf("%v, and %d points", err, len(to.points))
		}
	})
}

func BenchmarkParseFrames(b *testing.B) {
	var points []point
	for i := range 500 {
		points = append(points, point{fmt.Sprintf("servers.host%03d.cpu.total.idle", i), 1423931224, float64(i) * 1.37})
	}
	p := Parser{Now: testNow}
	python := fixtures(b, "testdata/pickles3.txt")["many-python3-protocol4"]
	for name, bc := range map[string]struct {
		data   []byte
		parse  func([]byte, Adder) error
		points int
	}{
		"pickle":   {asPickle(points...)[4:], p.Pickle, 500},
		"python4":  {python, p.Pickle, 1001},
		"protobuf": {asProtobuf(points...)[4:], p.Protobuf, 500},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bc.data)))
			for b.Loop() {
				if err := bc.parse(bc.data, none{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(bc.points), "ns/point")
		})
	}
}
