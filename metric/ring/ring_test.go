package ring

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// testName returns name i of the generators in testdata.
func testName(i int) string {
	x := uint32(i)*2654435761 + 12345
	var tags string
	if i%10 == 7 {
		tags = fmt.Sprintf(";dc=dc%d;host=web%02d", x%3, x%17)
	}
	return fmt.Sprintf("servers.host%d.%s.n%d%s", i%997, [...]string{"cpu", "memory", "disk", "network"}[x%4], x, tags)
}

type placementCase struct {
	Title        string
	Destinations []string
	Replication  int
	Diverse      bool
	Hash         string
	SHA256       string
	First        string
}

// TestCarbon compares the placements of 100,000 names with those of carbon 1.1.10 itself.
func TestCarbon(t *testing.T) {
	methods := map[string]Method{"carbon_ch": CarbonCH, "fnv1a_ch": FNV1aCHCarbon}
	comparePlacements(t, "testdata/placements.json", 100_000, func(hash string) Method { return methods[hash] })
}

// TestRelay compares the placements of 20,000 names with those of testdata/generate_relay.py.
func TestRelay(t *testing.T) {
	comparePlacements(t, "testdata/placements_relay.json", 20_000, func(hash string) Method {
		m, err := ParseMethod(hash)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func comparePlacements(t *testing.T, file string, names int, method func(string) Method) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []placementCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		t.Run(tc.Hash+"/"+tc.Title, func(t *testing.T) {
			t.Parallel()
			r := newRing(t, Options{Method: method(tc.Hash), Diverse: tc.Diverse}, tc.Destinations...)
			first := strings.Split(tc.First, ",")
			sum := sha256.New()
			var nodes []int
			for i := range names {
				nodes = r.Nodes([]byte(testName(i)), tc.Replication, nodes[:0])
				line := strings.Trim(fmt.Sprint(nodes), "[]")
				if i < len(first) && line != first[i] {
					t.Fatalf("name %d, %s: got %s, want %s", i, testName(i), line, first[i])
				}
				if i > 0 {
					sum.Write([]byte("\n"))
				}
				sum.Write([]byte(line))
			}
			if got := hex.EncodeToString(sum.Sum(nil)); got != tc.SHA256 {
				t.Errorf("the %d placements differ after the first %d: sum %s, want %s", names, len(first), got, tc.SHA256)
			}
		})
	}
}

func newRing(t testing.TB, o Options, destinations ...string) *Ring {
	t.Helper()
	all, err := ParseDestinations(strings.Join(destinations, ","))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPositions(t *testing.T) {
	carbon, fnv := &Ring{}, &Ring{opts: Options{Method: FNV1aCH}}
	for _, tc := range []struct {
		ring *Ring
		key  string
		want int
	}{
		{carbon, "('127.0.0.1', 'a'):0", 24043},
		{carbon, "('127.0.0.1', 'a'):1", 7885},
		{carbon, "('127.0.0.1', 'a'):99", 29961},
		{carbon, "('10.0.0.1', None):0", 46982},
		{carbon, "a.b;t=1", 34761},
		{fnv, "0-a", 52678},
		{fnv, "1-a", 2470},
		{fnv, "a.b;t=1", 39128},
	} {
		if got := tc.ring.position([]byte(tc.key)); got != tc.want {
			t.Errorf("position of %s is %d, want %d", tc.key, got, tc.want)
		}
	}
	if got := carbon.key(Destination{"127.0.0.1", 1, "a"}, 99); string(got) != "('127.0.0.1', 'a'):99" {
		t.Errorf("got key %s", got)
	}
	r := newRing(t, Options{}, "127.0.0.1:1:a", "127.0.0.1:2:b", "127.0.0.1:3:c")
	if want := []entry{{330, 2}, {398, 0}, {474, 0}, {784, 2}}; !slices.Equal(r.entries[:4], want) {
		t.Errorf("the ring begins with %v, want %v", r.entries[:4], want)
	}
}

// TestVectors has one name a line, with its order on three destinations by each method.
func TestVectors(t *testing.T) {
	instances := []string{"127.0.0.1:2003:a", "127.0.0.1:2004:b", "127.0.0.1:2005:c"}
	hosts := []string{"10.0.0.1:2003", "10.0.0.2:2003", "10.0.0.3:2003"}
	rings := []*Ring{
		newRing(t, Options{}, instances...), newRing(t, Options{Method: FNV1aCH}, instances...),
		newRing(t, Options{}, hosts...), newRing(t, Options{Method: JumpFNV1aCH}, hosts...),
		newRing(t, Options{Method: CarbonCHRelay}, instances...), newRing(t, Options{Method: FNV1aCHCarbon}, instances...),
	}
	for _, tc := range []struct{ name, want string }{
		{"servers.h1.cpu.total.idle", "201 210 210 120 201 210"},
		{"servers.h2.loadavg.01", "021 021 120 120 021 021"},
		{"carbon.agents.host-a.cpuUsage", "120 120 201 102 120 120"},
		{"a", "021 021 120 201 021 021"},
		{"a.b;t=1", "021 120 102 201 021 120"},
	} {
		var got []string
		for _, r := range rings {
			got = append(got, strings.NewReplacer(" ", "", "[", "", "]", "").Replace(fmt.Sprint(r.Nodes([]byte(tc.name), 3,
				nil))))
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, s, tc.want)
		}
	}
}

func TestNodes(t *testing.T) {
	r := newRing(t, Options{Diverse: true}, "h1:1:a", "h1:2:b", "h2:1:a")
	for _, tc := range []struct{ n, want int }{{-1, 0}, {0, 0}, {1, 1}, {2, 2}, {3, 2}, {1 << 40, 2}} {
		if got := r.Nodes([]byte("x"), tc.n, nil); len(got) != tc.want {
			t.Errorf("n = %d: got %v, want %d", tc.n, got, tc.want)
		}
	}
	if got := r.Nodes([]byte("x"), 1, []int{7, 8}); len(got) != 3 || got[0] != 7 || got[1] != 8 {
		t.Errorf("Nodes changed the list that it appends to: %v", got)
	}
	one := newRing(t, Options{}, "h1:1")
	if got := one.Nodes([]byte("x"), 2, nil); !slices.Equal(got, []int{0}) {
		t.Errorf("one destination: got %v", got)
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("h%d:1", i)
	}
	for _, m := range []Method{CarbonCH, CarbonCHRelay, FNV1aCH, JumpFNV1aCH} {
		got := newRing(t, Options{Method: m}, many...).Nodes([]byte("x"), 40, nil)
		slices.Sort(got)
		if len(slices.Compact(got)) != 40 {
			t.Errorf("%v: 40 copies are on %v", m, got)
		}
	}
}

func TestNodesAllocates(t *testing.T) {
	name := []byte("servers.host.cpu.total.idle")
	for _, m := range []Method{CarbonCH, CarbonCHRelay, FNV1aCH, FNV1aCHCarbon, JumpFNV1aCH} {
		r := newRing(t, Options{Method: m, Diverse: true}, "h1:1:a", "h1:2:b", "h2:1:c", "h3:1:d")
		dst := make([]int, 0, 4)
		if n := testing.AllocsPerRun(100, func() { dst = r.Nodes(name, 3, dst[:0]) }); n != 0 {
			t.Errorf("%v: %v allocations", m, n)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	d := func(texts ...string) (all []Destination) {
		for _, text := range texts {
			one, err := ParseDestination(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		return all
	}
	for _, tc := range []struct {
		dests []Destination
		m     Method
		want  string
	}{
		{nil, CarbonCH, "without destinations"},
		{make([]Destination, MaxDestinations+1), CarbonCH, "the limit is 10000"},
		{d("h:1", "h:2"), CarbonCH, "cannot tell destination h:2 from h:1"},
		{d("h:1", "h:1"), FNV1aCH, "cannot tell"},
		{d("h:1", "h:2"), FNV1aCH, ""},
		{d("h:1:a", "i:1:a"), FNV1aCH, "cannot tell"},
		{d("h:1"), FNV1aCHCarbon, "needs an instance"},
		{d("h:1"), 9, "unknown method 9"},
		{[]Destination{{Host: "h'", Port: 1}}, CarbonCH, "may not contain"},
		{[]Destination{{Host: "h", Port: 0}}, CarbonCH, "port 0"},
	} {
		_, err := New(tc.dests, Options{Method: tc.m})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v of %v: got error %v, want %q", tc.m, tc.dests, err, tc.want)
		}
	}
	if _, err := ParseMethod("mmh3_ch"); err == nil {
		t.Error("mmh3_ch is known")
	}
}

func TestParseDestination(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Destination
		err  string
	}{
		{"h:2004", Destination{"h", 2004, ""}, ""},
		{" h.example.org:2004:a ", Destination{"h.example.org", 2004, "a"}, ""},
		{"[::1]:2004:b", Destination{"::1", 2004, "b"}, ""},
		{"[2001:db8::1]:2004", Destination{"2001:db8::1", 2004, ""}, ""},
		{"h", Destination{}, "write host:port"},
		{"", Destination{}, "write host:port"},
		{"[::1]", Destination{}, "write host:port"},
		{"[h]:1", Destination{}, "only an IPv6 address"},
		{":1", Destination{}, "host is empty"},
		{"h:0", Destination{}, "port 0"},
		{"h:65536", Destination{}, "no number"},
		{"h:x", Destination{}, "no number"},
		{"h:-1", Destination{}, "no number"},
		{"::1:2004", Destination{}, "no number"},
		{"h:1:", Destination{}, "instance is empty"},
		{"h:1:a b", Destination{}, "may not contain"},
		{"h:1:a'", Destination{}, "may not contain"},
		{strings.Repeat("h", 300) + ":1", Destination{}, "limit is 255"},
	} {
		got, err := ParseDestination(tc.text)
		if tc.err == "" && (err != nil || got != tc.want) || tc.err != "" && (err == nil ||
			!strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%q: got %+v, %v; want %+v, %q", tc.text, got, err, tc.want, tc.err)
		}
	}
	if all, err := ParseDestinations("a:1, b:2:x,"); err != nil || len(all) != 2 || all[1].Instance != "x" {
		t.Errorf("list: got %v, %v", all, err)
	}
}

// FuzzParseDestination checks that a text that parses is written as one that parses to the same.
func FuzzParseDestination(f *testing.F) {
	for _, s := range []string{"h:1", "h:1:a", "[::1]:2004:b", "[fe80::1%eth0]:1", "h::", "[:", "]:1", "[::1]:1:a:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDestination(text)
		if err != nil {
			return
		}
		again, err := ParseDestination(d.String())
		if err != nil || again != d {
			t.Errorf("%q is %+v, but its text %q is %+v, %v", text, d, d.String(), again, err)
		}
		for _, m := range []Method{CarbonCH, CarbonCHRelay, FNV1aCH, JumpFNV1aCH} {
			if _, err := New([]Destination{d}, Options{Method: m}); err != nil {
				t.Errorf("%v refuses %+v: %v", m, d, err)
			}
		}
	})
}

func BenchmarkNodes(b *testing.B) {
	dests := make([]string, 8)
	for i := range dests {
		dests[i] = fmt.Sprintf("10.0.0.%d:2004:%d", i, i)
	}
	name := []byte("servers.host.cpu.total.idle")
	for _, m := range []Method{CarbonCH, FNV1aCH, JumpFNV1aCH} {
		b.Run(m.String(), func(b *testing.B) {
			r := newRing(b, Options{Method: m}, dests...)
			dst := make([]int, 0, 2)
			b.ReportAllocs()
			for b.Loop() {
				dst = r.Nodes(name, 2, dst[:0])
			}
		})
	}
}
