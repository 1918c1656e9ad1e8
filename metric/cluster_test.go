package metric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/metric/member"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

type answerer = func(ctx context.Context, payload []byte) ([]byte, error)

// bus connects servers of one process.
type bus struct {
	mu       sync.Mutex // guards the fields below
	handlers map[string]answerer
	members  []member.Info

	rules, schemas string // files; "" for none
	least          int    // for Cluster.Least
}

func (b *bus) ask(ctx context.Context, id, question string, payload []byte) ([]byte, error) {
	b.mu.Lock()
	h := b.handlers[id+"/"+question]
	b.mu.Unlock()
	if h == nil {
		return nil, errors.New("no member listens")
	}
	return h(ctx, slices.Clone(payload))
}

func (b *bus) list() []member.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.members)
}

// away says whether a member is away; one that is away does not answer.
func (b *bus) away(id string, away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.members {
		if b.members[i].ID == id {
			b.members[i].Away = away
		}
	}
	if away {
		for key := range b.handlers {
			if strings.HasPrefix(key, id+"/") {
				delete(b.handlers, key)
			}
		}
	}
}

func (b *bus) start(t *testing.T, id, dir string, factor int) *Server {
	t.Helper()
	o := DefaultOptions()
	o.Dir, o.LineAddress, o.Replication, o.SelfInterval = dir, "127.0.0.1:0", factor, -1
	o.Store.MinFreeBytes = -1
	o.AggregationRulesFile, o.SchemasFile = b.rules, b.schemas
	o.Cluster = &Cluster{Self: id, Members: b.list, Ask: b.ask, Least: b.least, HandoverDelay: 100 * time.Millisecond, HandoverAgain: 300 * time.Millisecond, Handle: func(question string, f answerer) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.handlers[id+"/"+question] = f
		return nil
	}}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestListenersWaitForMembers: a point must not be taken while it can have no copy.
func TestListenersWaitForMembers(t *testing.T) {
	b := &bus{handlers: map[string]answerer{}, least: 2}
	s := b.start(t, "a", t.TempDir(), 2)
	c, err := net.Dial("tcp", s.Addr(carbon.LineTCP).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "early.point 1 %d\n", time.Now().Unix()); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(3 * membersPoll))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the point was taken without a second member: %v", err)
	}
	remoteWrite := func() int {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/write", strings.NewReader("\x00")) // no samples, by snappy
		r.Header.Set("Content-Encoding", "snappy")
		r.Header.Set("Content-Type", "application/x-protobuf")
		w := httptest.NewRecorder()
		s.Prometheus(w, r, View{All: true, Write: true})
		return w.Code
	}
	if got := remoteWrite(); got != http.StatusServiceUnavailable {
		t.Errorf("remote write is answered with %d", got)
	}
	if len(s.problems()) == 0 {
		t.Error("the server seems to be ready")
	}
	b.mu.Lock()
	b.members = append(b.members, member.Info{ID: "b", Away: true})
	b.mu.Unlock()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the connection ended with %v", err)
	}
	if got := remoteWrite(); got != http.StatusNoContent {
		t.Errorf("remote write is answered with %d", got)
	}
}

// sendLines sends plaintext to a server and returns when the server has closed the connection in order.
func sendLines(t *testing.T, s *Server, lines string) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr(carbon.LineTCP).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(lines)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the server has written something")
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// lastOf returns the last known values of the series that match a pattern, by name.
func lastOf(t *testing.T, s *Server, pattern string, at int64) map[string]float64 {
	t.Helper()
	src := s.sourceOf(t.Context(), View{All: true})
	names, err := src.Find(t.Context(), pattern)
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := src.Fetch(t.Context(), names, at-60, at+60, at+60)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, r := range ranges {
		for _, v := range r.Values {
			if !math.IsNaN(v) {
				found[r.Name] = v
			}
		}
	}
	return found
}

func get(t *testing.T, serve func(http.ResponseWriter, *http.Request, View), path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	serve(w, httptest.NewRequest(http.MethodGet, path, nil), View{All: true, Write: true})
	return w
}

// TestCluster: each member answers with the series of all, the factor says how many have each, and with one member away
// nothing is missing.
func TestCluster(t *testing.T) {
	b := &bus{handlers: map[string]answerer{},
		members: []member.Info{{ID: "a", Name: "A"}, {ID: "b", Name: "B"}, {ID: "c", Name: "C"}}}
	var servers []*Server
	dirs := map[string]string{}
	for _, id := range []string{"a", "b", "c"} {
		dirs[id] = t.TempDir()
		servers = append(servers, b.start(t, id, dirs[id], 2))
	}
	const each = 50
	now := time.Now().Unix() / 10 * 10
	for i, s := range servers {
		var lines strings.Builder
		for n := range each {
			fmt.Fprintf(&lines, "load.m%d.s%d %d %d\nload.tagged;m=%d;s=%d %d %d\n", i, n, n, now-20, i, n, n, now-20)
		}
		sendLines(t, s, lines.String())
	}
	for i, s := range servers {
		eventually(t, "all members see all series", func() bool { return len(lastOf(t, s, "load.*.*", now)) == 3*each })
		own := &source{s, View{All: true}}
		names, err := own.Find(t.Context(), "load.*.*")
		if err != nil || len(names) < 3*each*2/3*2/3 || len(names) > 3*each*5/6 {
			t.Errorf("member %d has %d of %d series itself: %v", i, len(names), 3*each, err)
		}
		w := get(t, s.Graphite, "/tags/m")
		body := strings.ReplaceAll(w.Body.String(), " ", "")
		if strings.Count(body, fmt.Sprintf(`"count":%d`, each)) != 3 {
			t.Errorf("values of a tag: %s", w.Body)
		}
		if w.Header().Get(missingHeader) != "" {
			t.Errorf("missing: %v", w.Header())
		}
	}

	if err := servers[2].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.away("c", true)
	eventually(t, "a member is known to be away", func() bool {
		all, _ := servers[0].members.Members()
		return all[2].Away
	})
	sendLines(t, servers[0], fmt.Sprintf("load.m9.s0 7 %d\nload.m9.s1 7 %d\nload.m9.s2 7 %d\nload.m9.s3 7 %d\n", now-20,
		now-20, now-20, now-20))
	for _, s := range servers[:2] {
		eventually(t, "all series are found without a member",
			func() bool { return len(lastOf(t, s, "load.*.*", now)) == 3*each+4 })

		w := get(t, s.Graphite, "/render?format=json&from=-5min&target="+url.QueryEscape("sumSeries(load.m*.s*)"))
		if w.Code != 200 || w.Header().Get(missingHeader) != "C" || w.Header().Get("Warning") != "" {
			t.Errorf("render: %d %v %s", w.Code, w.Header(), w.Body)
		}
		w = get(t, s.Prometheus, "/api/v1/query?time="+fmt.Sprint(now)+"&query="+url.QueryEscape(
			`count(count_over_time({__name__=~"load.*",m=~".+"}[1m]))`))
		if !strings.Contains(w.Body.String(), `"150"`) || w.Header().Get(missingHeader) != "C" ||
			strings.Contains(w.Body.String(), "warnings") {
			t.Errorf("query: %d %v %s", w.Code, w.Header(), w.Body)
		}
		w = get(t, s.Prometheus, "/api/v1/query?time="+fmt.Sprint(now)+"&query="+url.QueryEscape(
			`sum(count_over_time({__name__=~"load.*",m=~".+"}[1m]))`))
		if !strings.Contains(w.Body.String(), `"150"`) {
			t.Errorf("a point counts more than once: %s", w.Body)
		}
	}
	b.away("b", true)
	w := get(t, servers[0].Prometheus, "/api/v1/query?query=load&time="+fmt.Sprint(now))
	if w.Header().Get(missingHeader) != "B,C" || !strings.Contains(w.Header().Get("Warning"), "may be incomplete") ||
		!strings.Contains(w.Body.String(), "may be incomplete") {
		t.Errorf("query: %v %s", w.Header(), w.Body)
	}

	b.away("c", false) // it comes back with what waited for it
	c := b.start(t, "c", dirs["c"], 2)
	owned := 0
	for i := range 4 {
		if here, _ := c.members.Owners(fmt.Sprint("load.m9.s", i)); here {
			owned++
		}
	}
	eventually(t, "what waited has come", func() bool {
		names, err := (&source{c, View{All: true}}).Find(t.Context(), "load.m9.*")
		return err == nil && len(names) == owned
	})
}

func TestMergeRanges(t *testing.T) {
	nan := math.NaN()
	got := mergeRanges([]series.Range{
		{Name: "x", Start: 60, Step: 60, Values: []float64{9, 9, 9}},
		{Name: "x", Start: 100, Step: 10, Values: []float64{1, nan, nan, 4}},
		{Name: "x", Start: 90, Step: 10, Values: []float64{7, 2, 2, 2, nan}},
	})
	if got.Start != 90 || got.Step != 10 || fmt.Sprint(got.Values) != "[7 2 2 2 4]" {
		t.Errorf("%+v", got)
	}
}

func TestMergeSeconds(t *testing.T) {
	a := &listSeries{times: []int64{1000, 3000, 5000}, values: []float64{1, 3, 5}}
	b := &listSeries{times: []int64{1001, 2002, 3900, 7000}, values: []float64{10, 20, 30, 70}}
	got := mergeSeconds(a, b).(*listSeries)
	if fmt.Sprint(got.times, got.values) != "[1001 2002 3900 5000 7000] [10 20 30 5 70]" {
		t.Errorf("%v %v", got.times, got.values)
	}
}

func TestLargeAnswer(t *testing.T) {
	p := &parts{}
	data := make([]byte, 2*partBytes+5)
	id, err := p.keep(data)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(from int) ([]byte, error) {
		return p.part(t.Context(), slices.Concat(le(id), le(uint64(from))))
	}
	if part, err := ask(partBytes); err != nil || len(part) != partBytes {
		t.Errorf("%d bytes: %v", len(part), err)
	}
	if part, err := ask(2 * partBytes); err != nil || len(part) != 5 {
		t.Errorf("%d bytes: %v", len(part), err)
	}
	if _, err := ask(partBytes); err == nil || p.bytes != 0 {
		t.Errorf("a fetched answer is kept: %v", err)
	}
}

func le(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// TestHandover: a member that joins gets the history of the series that it owns, and one that is removed is replaced.
func TestHandover(t *testing.T) {
	b := &bus{handlers: map[string]answerer{}, members: []member.Info{{ID: "a", Name: "A"}, {ID: "b", Name: "B"}}}
	first, second := b.start(t, "a", t.TempDir(), 2), b.start(t, "b", t.TempDir(), 2)
	var lines strings.Builder
	now := time.Now().Unix() / 60 * 60
	const count = 100
	for n := range count {
		for ago := range int64(4) {
			fmt.Fprintf(&lines, "load.s%d %d %d\n", n, int64(n)+ago, now-40*ago)
		}
	}
	sendLines(t, first, lines.String())
	eventually(t, "both have the first members' list", func() bool {
		return slices.Equal(first.placed(), []string{"a", "b"}) && slices.Equal(second.placed(), []string{"a", "b"})
	})

	b.mu.Lock()
	b.members = append(b.members, member.Info{ID: "c", Name: "C"})
	b.mu.Unlock()
	third := b.start(t, "c", t.TempDir(), 2)
	has := func(s *Server, name string) bool {
		r, ok, err := s.store.Fetch(t.Context(), name, now-150, now+20, now+20)
		if err != nil || !ok {
			return false
		}
		known := 0
		for _, v := range r.Values {
			if !math.IsNaN(v) {
				known++
			}
		}
		return known == 4
	}
	owned := func(s *Server) (names []string) {
		for n := range count {
			if here, _ := s.members.Owners(fmt.Sprint("load.s", n)); here {
				names = append(names, fmt.Sprint("load.s", n))
			}
		}
		return names
	}
	complete := func(s *Server) bool {
		return !slices.ContainsFunc(owned(s), func(n string) bool { return !has(s, n) })
	}
	if n := len(owned(third)); n < count/2 || n > count*5/6 {
		t.Fatalf("the new member owns %d series", n)
	}
	eventually(t, "the new member has the history of its series", func() bool { return complete(third) })
	eventually(t, "the handover ends",
		func() bool { return len(first.placed()) == 3 && len(second.placed()) == 3 && len(third.placed()) == 3 })

	if err := second.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.away("b", true)
	eventually(t, "the member is away", func() bool { all, _ := first.members.Members(); return all[1].Away })
	for _, s := range []*Server{first, third} {
		if err := s.Forget("b"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the others have all series", func() bool {
		return len(owned(first)) == count && len(owned(third)) == count && complete(first) && complete(third)
	})
}

// TestClusterAggregates: the inputs of an output meet at one member, however they come.
func TestClusterAggregates(t *testing.T) {
	b := &bus{handlers: map[string]answerer{},
		members: []member.Info{{ID: "a", Name: "A"}, {ID: "b", Name: "B"}, {ID: "c", Name: "C"}}}
	dir := t.TempDir()
	b.rules = filepath.Join(dir, "aggregation-rules.conf")
	b.schemas = filepath.Join(dir, "storage-schemas.conf")
	for path, text := range map[string]string{
		b.rules: "all.<m> (2) = sum from.*.<<m>>\n", b.schemas: "[all]\npattern = .*\nretentions = 1s:1h\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var servers []*Server
	for _, id := range []string{"a", "b", "c"} {
		servers = append(servers, b.start(t, id, t.TempDir(), 2))
	}
	now := time.Now().Unix() / 2 * 2
	want := map[string]float64{}
	for i, s := range servers {
		var lines strings.Builder
		for n := range 20 {
			fmt.Fprintf(&lines, "from.host%d.m%d %d %d\n", i, n, i*100+n, now)
			want[fmt.Sprint("all.m", n)] = float64(300 + 3*n)
		}
		sendLines(t, s, lines.String())
	}
	for _, s := range servers {
		eventually(t, "the sums are complete", func() bool { return maps.Equal(lastOf(t, s, "all.*", now), want) })
	}
}

// TestBadMessages: what another member sends wrongly is an error.
func TestBadMessages(t *testing.T) {
	b := &bus{handlers: map[string]answerer{}, members: []member.Info{{ID: "a", Name: "A"}, {ID: "b", Name: "B"}}}
	s := b.start(t, "a", t.TempDir(), 2)
	future, err := msgpack.Marshal(&question{Version: questionVersion + 1})
	if err != nil {
		t.Fatal(err)
	}
	torn, err := msgpack.Marshal(&historyQuestion{Version: 1,
		Histories: []history{{Name: "x", Step: 10, Points: 8640, Times: []byte{2}, Values: []byte{1}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		question string
		payload  []byte
	}{
		{questionQuery, nil}, {questionQuery, []byte("x")}, {questionQuery, future}, {questionPart, []byte("x")}, {questionPart, make([]byte, 16)},
		{questionHistory, nil}, {questionHistory, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}}, {questionHistory, s2.Encode(nil, torn)},
		{member.PointsQuestion, []byte{9, 0}},
	} {
		if answer, err := b.ask(t.Context(), "a", c.question, c.payload); err == nil {
			t.Errorf("%s is answered with %q to %q", c.question, answer, c.payload)
		}
	}
	for _, body := range [][]byte{nil, {7}, {firstPart, 1}, {wholeAnswer, 0xff},
		slices.Concat([]byte{firstPart}, le(1), le(1<<40))} {
		b.mu.Lock()
		b.handlers["b/"+questionQuery] = func(context.Context, []byte) ([]byte, error) { return body, nil }
		b.mu.Unlock()
		if _, err := s.askMember(t.Context(), "b", nil); err == nil {
			t.Errorf("the answer %q is taken", body)
		}
	}
}
