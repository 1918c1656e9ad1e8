package test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	metricsKills     = flag.Int("metrics-kills", 2, "how often TestMetricsOutliveMembers kills a member")
	metricsKillEvery = flag.Duration("metrics-kill-every", 0, "time between two kills of TestMetricsOutliveMembers, at least")
	metricsSeries    = flag.Int("metrics-series", 50, "series of each of the three senders of TestMetricsOutliveMembers, at most 10000")
	metricsRate      = flag.Int("metrics-rate", 0, "points a second of TestMetricsOutliveMembers; 0 for as many as are taken")
)

// pointSender sends points by plaintext to members of a cluster. A batch has one point of each series of a sender, of the
// batch's own second. It is accepted when the member has closed the connection in order, and was not killed until then;
// else it is sent again to the next member.
type pointSender struct {
	addresses []string
	begin     int64 // the second of the first batch
	series    int   // of each sender
	pause     time.Duration

	mu       sync.Mutex // guards the fields below, and is held while a member is killed
	down     []bool
	accepted [][]int64 // numbers of the accepted batches, by sender
	again    int
}

// valueOf is the value of series n in batch k.
func valueOf(k int64, n int) float64 { return float64(k*10_000 + int64(n)) }

// offer sends one batch to a member.
func (s *pointSender) offer(i int, lines string) bool {
	c, err := net.DialTimeout("tcp", s.addresses[i], time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, lines); err != nil {
		return false
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return false
	}
	_, err = c.Read(make([]byte, 1))
	return err == io.EOF
}

// run sends a batch after the other until stop.
func (s *pointSender) run(id int, stop <-chan struct{}) {
	at, next := id, time.Now()
	for k := int64(0); ; k++ {
		var lines strings.Builder
		for n := range s.series {
			fmt.Fprintf(&lines, "load.m%d.s%04d %.0f %d\n", id, n, valueOf(k, n), s.begin+k)
		}
		next = next.Add(s.pause)
		select {
		case <-time.After(time.Until(next)):
		case <-stop:
			return
		}
		for {
			select {
			case <-stop:
				return
			default:
			}
			ok := s.offer(at, lines.String())
			s.mu.Lock()
			if ok = ok && !s.down[at]; ok {
				s.accepted[id] = append(s.accepted[id], k)
			} else {
				s.again++
			}
			s.mu.Unlock()
			if ok {
				break
			}
			at = (at + 1) % len(s.addresses)
		}
		if s.mu.Lock(); !s.down[id] {
			at = id
		}
		s.mu.Unlock()
	}
}

// copy returns the batches that are accepted so far, by sender, and the number of their points.
func (s *pointSender) copy() (batches [][]int64, points int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.accepted {
		batches = append(batches, slices.Clone(b))
		points += len(b) * s.series
	}
	return batches, points
}

// lost queries a member for 100 series of each sender, and returns how many of the points it does not answer, and the
// members that it names as missing.
func (s *pointSender) lost(t *testing.T, address string, batches [][]int64, hundred int) (n int, example, missing string) {
	t.Helper()
	for id, accepted := range batches {
		if len(accepted) == 0 {
			continue
		}
		res, err := http.Get(fmt.Sprintf("http://%s/render?format=json&target=load.m%d.s%02d*&from=%d&until=%d",
			address, id, hundred, s.begin-10, s.begin+accepted[len(accepted)-1]+10))
		if err != nil {
			t.Fatal(err)
		}
		var found []struct {
			Target     string        `json:"target"`
			Datapoints [][2]*float64 `json:"datapoints"`
		}
		err = json.NewDecoder(res.Body).Decode(&found)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("a query is answered with %s: %v", res.Status, err)
		}
		got := map[string]map[int64]float64{}
		for _, f := range found {
			got[f.Target] = map[int64]float64{}
			for _, p := range f.Datapoints {
				if p[0] != nil {
					got[f.Target][int64(*p[1])] = *p[0]
				}
			}
		}
		for series := hundred * 100; series < min(s.series, hundred*100+100); series++ {
			name := fmt.Sprintf("load.m%d.s%04d", id, series)
			for _, k := range accepted {
				if have, ok := got[name][s.begin+k]; !ok || have != valueOf(k, series) {
					n++
					example = fmt.Sprint(name, " in batch ", k, ": ", have, " instead of ", valueOf(k, series))
				}
			}
		}
		missing = cmp.Or(missing, res.Header.Get("X-Lapwing-Missing"))
	}
	return n, example, missing
}

// ask queries one member after the other, and reports each answer that is not in order, of members that are not killed.
func (s *pointSender) ask(t *testing.T, queries []string, stop <-chan struct{}) (answers int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Timeout: time.Minute}
	up := func(i int) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.down[i]
	}
	for i := 0; ; i = (i + 1) % len(queries) {
		select {
		case <-tick.C:
		case <-stop:
			return answers
		}
		if !up(i) {
			continue
		}
		var found []struct{ Target string }
		res, err := client.Get(fmt.Sprintf("http://%s/render?format=json&target=load.m%d.s0000&from=%d&until=%d", queries[i], i, s.begin-10, s.begin+60))
		if err == nil {
			err = json.NewDecoder(res.Body).Decode(&found)
			_ = res.Body.Close()
		}
		switch {
		case !up(i): // it was killed meanwhile
		case err != nil:
			t.Errorf("b%d: %v", i, err)
		case res.StatusCode != http.StatusOK || len(found) != 1:
			t.Errorf("b%d answers with %s and %d series", i, res.Status, len(found))
		default:
			answers++
		}
	}
}

// TestMetricsOutliveMembers sends points to three members, and kills and restarts one after the other meanwhile. Queries
// are answered throughout, without the killed member nothing is missing that it had passed on, and in the end every
// accepted point is found at each member.
func TestMetricsOutliveMembers(t *testing.T) {
	schemas := filepath.Join(t.TempDir(), "storage-schemas.conf")
	if err := os.WriteFile(schemas, []byte("[all]\npattern = .*\nretentions = 1s:6h\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := newMembers(t, 3, "--storage-schemas-file", schemas)
	s := &pointSender{
		begin: time.Now().Unix() - 5*3600, series: *metricsSeries, down: make([]bool, 3), accepted: make([][]int64, 3),
	}
	if *metricsRate > 0 {
		s.pause = time.Second * time.Duration(3*s.series) / time.Duration(*metricsRate)
	}
	var queries []string
	for _, p := range all {
		carbon, query := "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t)
		p.extra = append(p.extra, "--carbon-listen-address", carbon, "--graphite-listen-address", query)
		s.addresses, queries = append(s.addresses, carbon), append(queries, query)
	}
	all.start()
	stop, began := make(chan struct{}), time.Now()
	var under sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); under.Wait() })
	t.Cleanup(end) // before the members end: ask must not report after the test
	for i := range all {
		under.Go(func() { s.run(i, stop) })
	}
	accepted := func() {
		t.Helper()
		_, before := s.copy()
		eventually(t, time.Minute, "points are accepted", func() bool { _, n := s.copy(); return n > before+40*s.series })
	}
	eventually(t, time.Minute, "points of each sender are found", func() bool {
		batches, _ := s.copy()
		for i := range all {
			if left, _, missing := s.lost(t, queries[i], batches, 0); left > 0 || missing != "" || len(batches[i]) == 0 {
				return false
			}
		}
		return true
	})
	answered := 0
	under.Go(func() { answered = s.ask(t, queries, stop) })
	for kill := range *metricsKills {
		next := time.Now().Add(*metricsKillEvery)
		i := kill % len(all)
		victim := all[i]
		batches, n := s.copy()
		eventually(t, time.Minute, "the member has passed its points on", func() bool {
			return metricAt(t, victim.api, "lapwing_metric_member_spill_bytes") == 0
		})
		s.mu.Lock()
		s.down[i] = true
		victim.kill(syscall.SIGKILL)
		s.mu.Unlock()
		accepted()
		for j := range all {
			if j == i {
				continue
			}
			eventually(t, time.Minute, "a member answers without the killed one", func() bool {
				left, example, missing := s.lost(t, queries[j], batches, 0)
				if left > 0 || missing != fmt.Sprint("b", i) {
					t.Logf("without b%d, b%d lacks %d points of %d: %s; it says that %q has not answered", i, j, left, n, example, missing)
					return false
				}
				return true
			})
		}
		victim.launch()
		victim.ready()
		s.mu.Lock()
		s.down[i] = false
		s.mu.Unlock()
		accepted()
		eventually(t, *metricsKillEvery+time.Minute, "the time for the next kill", func() bool { return time.Now().After(next) })
	}
	end()
	batches, n := s.copy()
	t.Logf("%d points accepted in %.0f s, %d batches offered again, %d queries answered", n, time.Since(began).Seconds(), s.again, answered)
	for i := range all {
		for hundred := range (s.series + 99) / 100 {
			var left int
			var example, missing string
			for end := time.Now().Add(time.Minute); ; {
				if left, example, missing = s.lost(t, queries[i], batches, hundred); left == 0 && missing == "" || time.Now().After(end) {
					break
				}
			}
			if left > 0 || missing != "" {
				t.Fatalf("b%d lacks %d accepted points, for example %s; no answer from %q", i, left, example, missing)
			}
		}
	}
}
