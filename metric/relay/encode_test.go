package relay

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
)

type testPoint struct {
	name    string
	seconds int64
	value   float64
}

func pack(points ...testPoint) (b []byte) {
	for _, p := range points {
		b = appendPoint(b, []byte(p.name), p.seconds, p.value)
	}
	return b
}

func TestEncode(t *testing.T) {
	two := []testPoint{{"servers.h1.cpu.total.idle", 1423931224, 60.2}, {"servers.h1.x", 1423931224, 3}}
	for _, tc := range []struct {
		title    string
		protocol Protocol
		points   []testPoint
		want     string
		unusable int
	}{
		{"pickle", Pickle, two,
			"\x00\x00\x00\x55\x80\x02](X\x19\x00\x00\x00servers.h1.cpu.total.idleJXw\xdfTG@N\x19\x99\x99\x99\x99\x9a\x86\x86" +
				"X\x0c\x00\x00\x00servers.h1.xJXw\xdfTG@\x08\x00\x00\x00\x00\x00\x00\x86\x86e.", 0},
		{"pickle, late", Pickle, []testPoint{{"a", 1 << 31, 1}},
			"\x00\x00\x00\x21\x80\x02](X\x01\x00\x00\x00a\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00G\x3f\xf0\x00\x00\x00\x00\x00\x00\x86\x86e.", 0},
		{"pickle, not UTF-8", Pickle, []testPoint{{"a\xff", 1, 1}}, "", 1},
		{"pickle, spaces", Pickle, []testPoint{{"a b", 1, 1}},
			"\x00\x00\x00\x1e\x80\x02](X\x03\x00\x00\x00a bJ\x01\x00\x00\x00G\x3f\xf0\x00\x00\x00\x00\x00\x00\x86\x86e.", 0},
		{"protobuf", Protobuf, []testPoint{{"param1", 1423931224, 60.2}},
			"\x00\x00\x00\x1b" + unhex("0a190a06706172616d31120f08d8eefda605119a99999999194e40"), 0},
		{"protobuf, times", Protobuf, []testPoint{{"a", -1, 1}, {"a", 1 << 32, 1}}, "", 2},
		{"line", Line, two, "servers.h1.cpu.total.idle 60.2 1423931224\nservers.h1.x 3 1423931224\n", 0},
		{"line, names", Line, []testPoint{{"a b", 1, 1}, {"a\nb", 1, 1}, {"a\xff", 1, 1}, {"a\u00a0b", 1, 1},
			{"größe;t=ü", 1, 1}},
			"größe;t=ü 1 1\n", 4},
		{"gzip", Gzip, two, "servers.h1.cpu.total.idle 60.2 1423931224\nservers.h1.x 3 1423931224\n", 0},
		{"udp", UDP, two, "servers.h1.cpu.total.idle 60.2 1423931224\nservers.h1.x 3 1423931224\n", 0},
		{"nothing", Pickle, nil, "", 0},
	} {
		e := encoder{protocol: tc.protocol}
		out, n := e.encode(pack(tc.points...))
		if string(out) != tc.want || n != len(tc.points)-tc.unusable || e.unusable != tc.unusable {
			t.Errorf("%s: got %q, %d points, %d unusable; want %q", tc.title, out, n, e.unusable, tc.want)
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

// TestEncodeSplits: no message has more than 500 points, no datagram more than 1400 bytes.
func TestEncodeSplits(t *testing.T) {
	var points []testPoint
	for i := range 1201 {
		points = append(points, testPoint{fmt.Sprintf("n%d", i), 1, 1})
	}
	e := encoder{protocol: Pickle}
	out, n := e.encode(pack(points...))
	var sizes []int
	for len(out) > 0 {
		length := int(out[0])<<24 | int(out[1])<<16 | int(out[2])<<8 | int(out[3])
		sizes = append(sizes, bytes.Count(out[4:4+length], []byte("\x86\x86")))
		out = out[4+length:]
	}
	if fmt.Sprint(sizes) != "[500 500 201]" || n != 1201 {
		t.Errorf("messages of %v points", sizes)
	}
	e = encoder{protocol: UDP}
	points = append(points, testPoint{strings.Repeat("x", 3000), 1, 1}, testPoint{"y", 1, 1})
	out, _ = e.encode(pack(points...))
	start := 0
	for i, end := range e.ends {
		part := out[start:end]
		if part[len(part)-1] != '\n' || len(part) > maxDatagram && bytes.Count(part, []byte("\n")) > 1 {
			t.Errorf("datagram %d of %d bytes", i, len(part))
		}
		start = end
	}
	if start != len(out) || len(e.ends) < 8 {
		t.Errorf("%d datagrams, %d of %d bytes", len(e.ends), start, len(out))
	}
}

func TestEncodeAllocates(t *testing.T) {
	batch := pack(testPoint{"servers.h1.cpu", 1423931224, 60.2}, testPoint{"servers.h2.größe", 1423931224, 1e20})
	for p := range protocolNames {
		e := encoder{protocol: Protocol(p)}
		e.encode(batch)
		if n := testing.AllocsPerRun(100, func() { e.encode(batch) }); n != 0 {
			t.Errorf("%v: %v allocations", Protocol(p), n)
		}
	}
}

// FuzzPoint: any bytes are a batch, and points come back as they were.
func FuzzPoint(f *testing.F) {
	f.Add([]byte("servers.h1"), int64(1), uint64(0), []byte{})
	f.Add([]byte("a b"), int64(-1), uint64(0x7ff0000000000000), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 1})
	f.Add([]byte(""), int64(1<<40), uint64(1), []byte{1, 'a'})
	f.Fuzz(func(t *testing.T, name []byte, seconds int64, bits uint64, junk []byte) {
		countPoints(junk)
		if len(name) > maxName {
			return
		}
		b := appendPoint(nil, name, seconds, math.Float64frombits(bits))
		got, s, v, rest, ok := takePoint(append(b, junk...))
		if !ok || !bytes.Equal(got, name) || s != seconds || math.Float64bits(v) != bits || !bytes.Equal(rest, junk) {
			t.Fatalf("%q %d %x came back as %q %d %x, %v", name, seconds, bits, got, s, math.Float64bits(v), ok)
		}
		for p := range protocolNames {
			e := encoder{protocol: Protocol(p)}
			e.encode(append(b, junk...))
		}
	})
}

func TestParseProtocol(t *testing.T) {
	for p, name := range protocolNames {
		if got, err := ParseProtocol(name); err != nil || got != Protocol(p) || got.String() != name {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ParseProtocol("amqp"); err == nil {
		t.Error("amqp is known")
	}
}

func BenchmarkEncode(b *testing.B) {
	var batch []byte
	for i := range 500 {
		batch = appendPoint(batch, fmt.Appendf(nil, "servers.host%d.cpu.total.idle", i), 1423931224, 60.2)
	}
	for p, name := range protocolNames {
		b.Run(name, func(b *testing.B) {
			e := encoder{protocol: Protocol(p)}
			b.ReportAllocs()
			for b.Loop() {
				e.encode(batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/point")
		})
	}
}
