package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pointSender sends points by plaintext to members of a cluster. A batch is accepted when the member has closed the
// connection in order, and was not killed until then; else it is sent again to the next member.
type pointSender struct {
	t         *testing.T
	addresses []string

	mu       sync.Mutex // guards the fields below, and is held while a member is killed
	down     []bool
	accepted map[string]map[int64]float64 // by series and time
	again    int
}

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

// run sends a batch after the other, with a point of each of 50 series and a second of its own, until stop.
func (s *pointSender) run(id int, begin int64, stop <-chan struct{}) {
	at := id
	for k := int64(0); ; k++ {
		var lines strings.Builder
		for n := range 50 {
			fmt.Fprintf(&lines, "load.m%d.s%d %d %d\n", id, n, k*1000+int64(n), begin+k)
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
				for n := range 50 {
					name := fmt.Sprintf("load.m%d.s%d", id, n)
					if s.accepted[name] == nil {
						s.accepted[name] = map[int64]float64{}
					}
					s.accepted[name][begin+k] = float64(k*1000 + int64(n))
				}
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

// copy returns what has been accepted so far.
func (s *pointSender) copy() (points map[string]map[int64]float64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	points = map[string]map[int64]float64{}
	for name, all := range s.accepted {
		points[name] = map[int64]float64{}
		for at, v := range all {
			points[name][at] = v
		}
		n += len(all)
	}
	return points, n
}

// lost queries a member and returns how many of the points it does not answer, and which members it names as missing.
func lost(t *testing.T, address string, points map[string]map[int64]float64, begin int64) (n int, example, missing string) {
	t.Helper()
	res, err := http.Get(fmt.Sprintf("http://%s/render?format=json&target=load.*.*&from=%d&until=%d", address, begin-10, begin+3000))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var found []struct {
		Target     string        `json:"target"`
		Datapoints [][2]*float64 `json:"datapoints"`
	}
	if err := json.NewDecoder(res.Body).Decode(&found); err != nil || res.StatusCode != http.StatusOK {
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
	for name, all := range points {
		for at, v := range all {
			if have, ok := got[name][at]; !ok || have != v {
				n++
				example = fmt.Sprint(name, " at ", at-begin, ": ", have, " instead of ", v)
			}
		}
	}
	return n, example, res.Header.Get("X-Lapwing-Missing")
}

// TestMetricsOutliveMembers sends points to three members, and kills and restarts one after the other meanwhile. Queries
// are answered throughout, and every accepted point is found at each member.
func TestMetricsOutliveMembers(t *testing.T) {
	schemas := filepath.Join(t.TempDir(), "storage-schemas.conf")
	if err := os.WriteFile(schemas, []byte("[all]\npattern = .*\nretentions = 1s:6h\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := newMembers(t, 3, "--storage-schemas-file", schemas)
	s := &pointSender{t: t, down: make([]bool, 3), accepted: map[string]map[int64]float64{}}
	var queries []string
	for _, p := range all {
		carbon, query := "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t)
		p.extra = append(p.extra, "--carbon-listen-address", carbon, "--graphite-listen-address", query)
		s.addresses, queries = append(s.addresses, carbon), append(queries, query)
	}
	all.start()
	begin := time.Now().Unix() - 3600
	stop := make(chan struct{})
	var under sync.WaitGroup
	for i := range all {
		under.Go(func() { s.run(i, begin, stop) })
	}
	accepted := func(more int) {
		t.Helper()
		_, before := s.copy()
		eventually(t, 30*time.Second, "points are accepted", func() bool { _, n := s.copy(); return n > before+more })
	}
	accepted(2000)
	for i, victim := range all[:2] {
		s.mu.Lock()
		s.down[i] = true
		victim.kill(syscall.SIGKILL)
		s.mu.Unlock()
		accepted(2000)
		points, n := s.copy()
		for j := range all {
			if j == i {
				continue
			}
			var left int
			var example string
			eventually(t, 20*time.Second, "a member answers without the killed one", func() bool {
				var missing string
				left, example, missing = lost(t, queries[j], points, begin)
				if want := fmt.Sprint("b", i); missing != want {
					t.Errorf("b%d says that %q has not answered, and not %s", j, missing, want)
				}
				return left == 0
			})
			t.Logf("without b%d, b%d has %d of %d points %s", i, j, n-left, n, example)
		}
		victim.launch()
		victim.ready()
		s.mu.Lock()
		s.down[i] = false
		s.mu.Unlock()
		accepted(2000)
	}
	close(stop)
	under.Wait()
	points, n := s.copy()
	for i := range all {
		var left int
		var example, missing string
		for end := time.Now().Add(20 * time.Second); ; {
			if left, example, missing = lost(t, queries[i], points, begin); left == 0 || time.Now().After(end) {
				break
			}
		}
		if left > 0 || missing != "" {
			t.Errorf("b%d lacks %d of %d accepted points, for example %s; no answer from %q", i, left, n, example, missing)
		}
	}
	t.Logf("%d points accepted, %d batches offered again", n, s.again)
}
