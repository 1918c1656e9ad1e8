package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// hostNames returns n names of hosts with 250 metrics each.
func hostNames(n int) []string {
	groups := []string{"cpu.total", "cpu.cpu0", "cpu.cpu1", "cpu.cpu2", "cpu.cpu3", "memory", "loadavg", "diskspace.root",
		"diskspace._var", "diskspace._home", "iostat.sda", "iostat.sdb", "network.eth0", "network.eth1", "tcp", "udp",
		"sockets", "vmstat", "files", "proc", "iostat.nvme0n1", "cpu.cpu4", "cpu.cpu5", "cpu.cpu6", "cpu.cpu7"}
	metrics := []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"}
	names := make([]string, 0, n)
	for h := 0; len(names) < n; h++ {
		for _, g := range groups {
			for _, m := range metrics {
				names = append(names, fmt.Sprintf("servers.host%04d.%s.%s", h, g, m))
			}
		}
	}
	return names[:n]
}

// containerNames returns n names with a node of 12 random hexadecimal digits, 8 metrics each.
func containerNames(n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 2))
	metrics := []string{"cpu.usage", "cpu.throttled", "memory.rss", "memory.cache", "net.rx_bytes", "net.tx_bytes",
		"blkio.read", "blkio.write"}
	names := make([]string, 0, n)
	for len(names) < n {
		id := fmt.Sprintf("%012x", r.Uint64()>>16)
		for _, m := range metrics {
			names = append(names, "containers."+id+"."+m)
		}
	}
	return names[:n]
}

// taggedNames returns n canonical names of pods with five tags, 8 metrics each.
func taggedNames(n int) []string {
	r := rand.New(rand.NewPCG(7, 3))
	names := make([]string, 0, n)
	for len(names) < n {
		ns, node := r.IntN(30), r.IntN(1000)
		pod := fmt.Sprintf("web-%08x-%05x", r.Uint32(), r.IntN(1<<20))
		for _, m := range strings.Fields("cpu_user cpu_system mem_rss mem_cache net_rx net_tx fs_read fs_write") {
			names = append(names, fmt.Sprintf(
				"container_%s;cluster=prod1;container=web;namespace=team%02d;node=node%04d;pod=%s", m, ns, node, pod))
		}
	}
	return names[:n]
}

// memory returns the bytes that make leaves on the heap.
func memory(fn func() *Index) (x *Index, bytes int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x = fn()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return x, int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

func TestMemory(t *testing.T) {
	shuffled := hostNames(250_000)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	million := 1_000_000
	if testing.Short() {
		million = 100_000
	}
	for _, test := range []struct {
		name  string
		names []string
		most  int64 // bytes a name
	}{
		{"1,000 hosts of 250", hostNames(250_000), 40},
		{"1,000 hosts of 250 in no order", shuffled, 40},
		{"containers", containerNames(million, 1), 40},
		{"tags", taggedNames(100_000), 100},
	} {
		for _, way := range []string{"AddMany", "Add"} {
			if way == "Add" && (len(test.names) > 250_000 || testing.Short()) {
				continue
			}
			t.Run(test.name+" "+way, func(t *testing.T) {
				x, bytes := memory(func() *Index {
					x := newIndex(t)
					if way == "AddMany" {
						x.AddMany(test.names)
						return x
					}
					for _, n := range test.names {
						x.Add(n)
					}
					return x
				})
				n := int64(len(test.names))
				if x.Len() != len(test.names) {
					t.Fatalf("the index has %d names, want %d", x.Len(), n)
				}
				t.Logf("%d names: %.1f bytes each, estimated %.1f", n, float64(bytes)/float64(n), float64(x.Bytes())/float64(n))
				if bytes > test.most*n {
					t.Errorf("%d bytes a name, want at most %d", bytes/n, test.most)
				}
				if e := x.Bytes(); e < bytes*8/10 || e > bytes*12/10 {
					t.Errorf("Bytes is %d, the heap grew by %d", e, bytes)
				}
			})
		}
	}
}

// TestChurn plays one hour in which 10,000 series come each minute and live for five.
func TestChurn(t *testing.T) {
	x := newIndex(t, hostNames(50_000)...)
	x.AddMany(taggedNames(20_000))
	var alive [][]string
	var first, most int64
	for minute := range 60 {
		names := containerNames(9_000, uint64(minute))
		for i := range 1_000 {
			names = append(names, fmt.Sprintf("job;id=%d-%d;dc=dc1;kind=batch", minute, i))
		}
		for _, n := range names {
			if !x.Add(n) {
				t.Fatalf("%q is not new", n)
			}
		}
		alive = append(alive, names)
		if len(alive) > 5 {
			for _, n := range alive[0] {
				if !x.Remove(n) {
					t.Fatalf("%q is not there", n)
				}
			}
			alive = alive[1:]
		}
		switch {
		case minute == 5:
			first = x.Bytes()
		case minute > 5:
			most = max(most, x.Bytes())
		}
	}
	check(t, x)
	if x.Len() != 70_000+50_000 {
		t.Errorf("%d names, want 120,000", x.Len())
	}
	if most > first*105/100 {
		t.Errorf("%d bytes after the sixth minute, %d at most later", first, most)
	}
	t.Logf("%d bytes after the sixth minute, %d at most later, %d numbers of tagged series", first, most, x.tags.next)
	if x.tags.next > 27_000 {
		t.Errorf("%d numbers for 26,000 series with tags", x.tags.next)
	}
}

func TestKeyset(t *testing.T) {
	var s keyset
	r := rand.New(rand.NewPCG(5, 5))
	want := map[string]bool{}
	key := func() []byte { return fmt.Appendf(nil, "%s%05d", strings.Repeat("x", r.IntN(3)*30), r.IntN(60_000)) }
	verify := func() {
		t.Helper()
		checkKeyset(t, &s)
		if s.keys != len(want) {
			t.Fatalf("%d keys, want %d", s.keys, len(want))
		}
		keys := make([]string, 0, len(want))
		for k := range want {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		c := cursor{s: &s}
		c.seek(nil)
		for range 300 {
			target := key()
			at, _ := slices.BinarySearch(keys, string(target))
			c := cursor{s: &s}
			if got := c.seek(target); got != (at < len(keys)) || got && string(c.key) != keys[at] {
				t.Fatalf("seek(%q) = %v, %q", target, got, c.key)
			}
			if c.done {
				continue
			}
			further := key()
			to, _ := slices.BinarySearch(keys, string(further))
			if to < at {
				continue
			}
			d := cursor{s: &s}
			d.seek(further)
			if n := c.distance(&d); n != to-at {
				t.Fatalf("distance from %q to %q is %d, want %d", target, further, n, to-at)
			}
			if got := c.forward(further); got != (to < len(keys)) || got && string(c.key) != keys[to] {
				t.Fatalf("forward(%q) = %v, %q", further, got, c.key)
			}
		}
	}
	for range 60_000 {
		k := key()
		if got := s.insert(k); (got == 1) == want[string(k)] {
			t.Fatalf("insert(%q) = %d", k, got)
		}
		want[string(k)] = true
	}
	if len(s.pages) < 3 {
		t.Errorf("only %d pages", len(s.pages))
	}
	verify()
	for range 400_000 {
		k := key()
		if s.remove(k) != want[string(k)] {
			t.Fatalf("remove(%q) is wrong", k)
		}
		delete(want, string(k))
	}
	verify()
	var many keylist
	for range 30_000 {
		k := key()
		many.add(k)
		want[string(k)] = true
	}
	s.insert(many.sorted()...)
	verify()
	long := strings.Repeat("y", 60_000)
	for i := range 100 {
		k := fmt.Sprintf("%d%s", i, long)
		s.insert([]byte(k))
		want[k] = true
	}
	verify()
	for k := range want {
		s.remove([]byte(k))
	}
	checkKeyset(t, &s)
	if len(s.pages) != 0 || s.bytes != 0 {
		t.Errorf("an emptied set has %d pages, %d bytes", len(s.pages), s.bytes)
	}
}

func TestFind(t *testing.T) {
	x := newIndex(t, "servers.h1.cpu.total.idle", "servers.h1.cpu.cpu0.idle", "servers.h1.cpu.cpu1.idle",
		"servers.h1.cpu.cpu10.idle", "servers.h1.cpu", "servers.h2.cpu.total.idle", "servers.h-2.load", "Servers.x", "a..b",
		".lead", "trail.", "{odd}.[x].*y", "m;k=v", "disk.used;dc=dc1;host=web01", "ü.é", "\xff\xfe.b", "a-b.c", "a.c")
	for pattern, want := range map[string]string{
		"servers":                       "servers/",
		"servers.*":                     "servers.h-2/ servers.h1/ servers.h2/",
		"servers.h1.*":                  "servers.h1.cpu@/",
		"servers.h1.cpu":                "servers.h1.cpu@/",
		"servers.h[!1].*":               "servers.h2.cpu/",
		"servers.h?.cpu.cpu{0,1}*.idle": "servers.h1.cpu.cpu0.idle@ servers.h1.cpu.cpu1.idle@ servers.h1.cpu.cpu10.idle@",
		"servers.h1.cpu.cpu{0,1{,0}}":   "servers.h1.cpu.cpu0/ servers.h1.cpu.cpu1/ servers.h1.cpu.cpu10/",
		"servers.h{2,1}.cpu.total.idle": "servers.h1.cpu.total.idle@ servers.h2.cpu.total.idle@",
		"servers.**.idle": "servers.h1.cpu.cpu0.idle@ servers.h1.cpu.cpu1.idle@ servers.h1.cpu.cpu10.idle@ " +
			"servers.h1.cpu.total.idle@ servers.h2.cpu.total.idle@",
		"servers.h2.**":                   "servers.h2.cpu/ servers.h2.cpu.total/ servers.h2.cpu.total.idle@",
		"servers.h2.**.cpu":               "servers.h2.cpu/",
		"s*":                              "servers/",
		"S*":                              "Servers/",
		"[sS]*.x":                         "Servers.x@",
		"a.*":                             "a./ a.c@",
		"a..b":                            "a..b@",
		"*.*.b":                           "a..b@",
		".*":                              ".lead@",
		"trail.*":                         "trail.@",
		`\{odd\}.\[x\].\*y`:               "{odd}.[x].*y@",
		`\{odd\}.[[]x].?y`:                "{odd}.[x].*y@",
		"{odd.*":                          "",
		"m;k=v":                           "m;k=v@",
		"m;k=*":                           "",
		"m*":                              "",
		"?.?":                             "a.c@ ü.é@",
		"*.b":                             "\xff\xfe.b@",
		"??.b":                            "\xff\xfe.b@",
		"a{-b,}.c":                        "a-b.c@ a.c@",
		"servers.h1.cpu.total.idle.extra": "",
		"servers.h1.cpu.total.idle.*":     "",
		"servers.h1.cpu.[a-z]otal":        "servers.h1.cpu.total/",
		"servers.h1.cpu.[z-a]otal":        "",
		"":                                "/",
		"nothing.*":                       "",
	} {
		nodes, err := x.Find(t.Context(), pattern, Budget{})
		if err != nil {
			t.Errorf("Find(%q): %v", pattern, err)
		}
		var got []string
		for _, n := range nodes {
			s := n.Path
			if n.Leaf {
				s += "@"
			}
			if n.Branch {
				s += "/"
			}
			got = append(got, s)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("Find(%q) = %q, want %q", pattern, s, want)
		}
	}
}

func TestPatternBounds(t *testing.T) {
	x := newIndex(t, "a.b", strings.Repeat("a.", 200)+"b")
	for _, p := range []string{
		strings.Repeat("{a,b}", 20),
		strings.Repeat(strings.Repeat("{a,b,c,d,e,f,g,h,i,j}", 3)+".", 11) + "c",
		strings.Repeat("*.", 100) + "b",
		strings.Repeat("*", 1<<17),
		"{" + strings.Repeat(",", 20_000) + "}*",
		"{" + strings.Repeat(strings.Repeat("x", 5000)+",", 12) + "}" + strings.Repeat("{a,b}", 12),
	} {
		_, err := x.Find(t.Context(), p, Budget{})
		if e, ok := errors.AsType[*PatternError](err); !ok {
			t.Errorf("Find(%.40q) gives %v, want a PatternError", p, err)
		} else if len(e.Error()) > 1500 {
			t.Errorf("an error of %d bytes", len(e.Error()))
		}
	}
	long := strings.Repeat("a.", 200) + "b"
	if names, err := x.Leaves(t.Context(), long, Budget{}); err != nil || !slices.Equal(names, []string{long}) {
		t.Errorf("a long name is not found: %q, %v", names, err)
	}
	if names, err := x.Leaves(t.Context(), "**.b", Budget{}); err != nil || len(names) != 2 {
		t.Errorf("**.b gives %q, %v", names, err)
	}
}

func TestBudget(t *testing.T) {
	reg := prometheus.NewRegistry()
	x, err := New(Options{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	x.AddMany(hostNames(20_000))
	x.AddMany(taggedNames(5_000))
	expired, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx    context.Context
		budget Budget
		reason string
		text   string
	}{
		{t.Context(), Budget{Results: 1000}, ReasonResults, "1000"},
		{t.Context(), Budget{Nodes: 700}, ReasonNodes, "700"},
		{expired, Budget{}, ReasonTime, "context canceled"},
	} {
		_, err1 := x.Find(test.ctx, "*.*.*.*.*", test.budget)
		_, err2 := x.Leaves(test.ctx, "**", test.budget)
		_, err3 := x.FindTagged(test.ctx, []string{"cluster=prod1"}, test.budget)
		_, err4 := x.FindTagged(test.ctx, []string{"pod=~web", "dc="}, test.budget)
		for i, err := range []error{err1, err2, err3, err4} {
			e, ok := errors.AsType[*BudgetError](err)
			if !ok || e.Reason != test.reason {
				t.Errorf("query %d with %+v gives %v, want reason %s", i, test.budget, err, test.reason)
				continue
			}
			query := []string{`"*.*.*.*.*"`, `"**"`, `"cluster=prod1"`, `"pod=~web dc="`}[i]
			for _, part := range []string{test.text, "narrower", query} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if test.reason == ReasonTime && !errors.Is(err, context.Canceled) {
				t.Errorf("%v is not context.Canceled", err)
			}
		}
	}
	if n := testutil.ToFloat64(x.metrics.stopped[ReasonNodes]); n != 4 {
		t.Errorf("%v queries stopped for nodes, want 4", n)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 8 {
		t.Errorf("%d metrics (%v), want 8", n, err)
	}
}

// TestLocks checks that a query gives its lock back while it runs, and sees its context.
func TestLocks(t *testing.T) {
	x := newIndex(t, hostNames(20_000)...)
	lock := &countingLock{RWMutex: &x.mu}
	ctx, cancel := context.WithCancel(t.Context())
	m := &meter{ctx: ctx, query: "q", allowed: Budget{1 << 30, 1 << 30}, lock: lock}
	p, err := parsePattern("*.*.*.*.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.begin(); err != nil {
		t.Fatal(err)
	}
	n := 0
	err = x.walk(m, p, func([]byte, bool, bool) bool {
		if n++; n == 5000 {
			cancel()
		}
		return true
	})
	m.end()
	if !errors.Is(err, context.Canceled) || n > 5000+chunk {
		t.Errorf("the walk ended with %v after %d results", err, n)
	}
	if lock.taken < 5000/chunk || lock.taken != lock.given {
		t.Errorf("the lock was taken %d times and given back %d times", lock.taken, lock.given)
	}
}

type countingLock struct {
	*sync.RWMutex
	taken, given int
}

func (l *countingLock) RLock()   { l.taken++; l.RWMutex.RLock() }
func (l *countingLock) RUnlock() { l.given++; l.RWMutex.RUnlock() }

// TestConcurrent adds, removes and finds at once. Names that stay must be found each time.
func TestConcurrent(t *testing.T) {
	stay := hostNames(5_000)
	stayTagged := taggedNames(2_000)
	x := newIndex(t, stay...)
	x.AddMany(stayTagged)
	done := make(chan struct{})
	var writers, readers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := range 3 {
				names := containerNames(1_000, uint64(10*w+i))
				for j := range names {
					if j%3 == 0 {
						names[j] = fmt.Sprintf("servers.host%04d.new%d.x", j, w)
					}
					if j%3 == 1 {
						names[j] = fmt.Sprintf("container_x;cluster=prod1;pod=p%d-%d", w, j)
					}
				}
				x.AddMany(names[:500])
				for _, n := range names[500:] {
					x.Add(n)
				}
				for _, n := range names {
					x.Remove(n)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-done:
					if round > 0 {
						return
					}
				default:
				}
				names, err := x.Leaves(t.Context(), "servers.*.*.*.*", Budget{})
				if err != nil {
					t.Error(err)
					return
				}
				names2, err := x.Leaves(t.Context(), "servers.*.{memory,tcp,[u-v]*}.*", Budget{})
				if err != nil {
					t.Error(err)
					return
				}
				found := map[string]bool{}
				for _, n := range append(names, names2...) {
					found[n] = true
				}
				for _, n := range stay {
					if strings.Count(n, ".") == 4 && !found[n] {
						t.Errorf("%q is not found", n)
						return
					}
				}
				tagged, err := x.FindTagged(t.Context(), []string{"cluster=prod1", "namespace=~team"}, Budget{})
				if err != nil || !slices.Equal(tagged, slices.Sorted(slices.Values(stayTagged))) {
					t.Errorf("%d tagged series, want %d (%v)", len(tagged), len(stayTagged), err)
					return
				}
				if _, err := x.TagValues(t.Context(), "pod", "", 0); err != nil {
					t.Error(err)
				}
				if _, err := x.AutoCompleteTags(t.Context(), []string{"cluster=prod1"}, "", 0); err != nil {
					t.Error(err)
				}
				x.Len()
				x.Bytes()
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	check(t, x)
	if x.Len() != 7_000 {
		t.Errorf("%d names, want 7,000", x.Len())
	}
}

func TestLimits(t *testing.T) {
	x, err := New(Options{MaxSeries: 5, MaxName: 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"", "a\x00b", strings.Repeat("x", 21)} {
		if x.Add(n) || x.Has(n) || x.Remove(n) {
			t.Errorf("%q is taken", n)
		}
	}
	if n := x.AddMany([]string{"", "b", "a", "b", "c;x=1", "a", "d;y=1", "e", "f", "g", "c;x=1"}); n != 5 {
		t.Errorf("AddMany = %d, want 5", n)
	}
	if x.Add("new") || x.Add("new;a=b") || x.Add("a") || x.Len() != 5 {
		t.Errorf("a full index takes names: %d", x.Len())
	}
	if n := testutil.ToFloat64(x.metrics.refused); n != 8 {
		t.Errorf("%v names refused, want 8", n)
	}
	if !x.Remove("a") || !x.Add("new;a=b") {
		t.Error("an index with room takes no name")
	}
	for _, o := range []Options{{MaxSeries: -1}, {MaxName: -1}, {MaxNodes: -1}, {MaxResults: -1}, {MatchTimeout: -1},
		{MaxSeries: 1 << 40}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) gives no error", o)
		}
	}
}

func TestAll(t *testing.T) {
	names := append(hostNames(3_000), taggedNames(1_000)...)
	x := newIndex(t, names...)
	var got []string
	if err := x.All(t.Context(), func(n string) bool {
		got = append(got, n)
		return len(got) < 3_500
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3_500 {
		t.Fatalf("%d names, want 3,500", len(got))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	cancel()
	if err := x.All(ctx, func(string) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("All gives %v", err)
	}
}
