//go:build attack

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	password = "P@ssw0rd!"
	// attackTime bounds one attack.
	attackTime = 60 * time.Second
	// memoryLimit is the backend's --memory-limit, in bytes. It is soft, and the worker processes of expressions are
	// not part of it.
	memoryLimit = 1 << 30
	// mostStale bounds the age of the healthy agent's newest result: it sends one each second, and each 5 s while the
	// backend is overloaded.
	mostStale = 10 * time.Second
	// recovery is how long the backend may take, after an attack, until it serves again and has the agent's events.
	recovery = 30 * time.Second
)

// bed is a backend process with a healthy agent process, and their observers.
type bed struct {
	t      *testing.T
	binary string
	dir    string

	api, agents, local, statsd string // addresses
	backend, agent             *exec.Cmd
	backendEnded               chan struct{}
	token                      string
}

// row is the result of one attack.
type row struct {
	name     string
	outcome  string // what the attacker got
	wanted   int    // the least number of results of the healthy agent's check
	arrived  int
	stale    time.Duration // the greatest age of its newest result; it is at least 1 s and the time of a request
	p50, p99 time.Duration // of the API, for another user
	failed   int           // requests of another user that failed
	before   int64         // RSS, bytes
	peak     int64
	after    int64
	logged   int64 // bytes of log
	died     bool
	wrong    []string
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, dir: t.TempDir(), binary: os.Getenv("LAPWING_ATTACK_BINARY")}
	if b.binary == "" {
		b.binary = filepath.Join(b.dir, "lapwing")
		if out, err := exec.Command("go", "build", "-trimpath", "-o", b.binary, "../../cmd/lapwing").CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	b.api, b.agents, b.local, b.statsd = b.freeAddress(), b.freeAddress(), b.freeAddress(), b.freeAddress()
	b.startBackend()
	t.Cleanup(func() { b.kill(b.agent); b.kill(b.backend) })
	b.put("/api/core/v2/namespaces/default/checks/healthy", `{"metadata":{"name":"healthy","namespace":"default"},"command":"true","interval":1,
		"subscriptions":["healthy"],"publish":true,"handlers":[]}`)
	b.startAgent()
	b.until("the agent's check runs", func() bool { return b.results() > 1 })
	return b
}

func (b *bed) freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (b *bed) logFile(name string) *os.File {
	f, err := os.OpenFile(filepath.Join(b.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

func (b *bed) startBackend() {
	_, port, _ := net.SplitHostPort(b.agents)
	cmd := exec.Command(b.binary, "backend", "--state-dir", filepath.Join(b.dir, "state"), "--api-listen-address", b.api,
		"--agent-host", "127.0.0.1", "--agent-port", port, "--min-free-disk", "1000000", "--config-file", os.DevNull)
	cmd.Env = append(os.Environ(), "LAPWING_BACKEND_MEMORY_LIMIT="+strconv.Itoa(memoryLimit), "LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD="+password)
	log := b.logFile("backend.log")
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.backend = cmd
	ended := make(chan struct{})
	b.backendEnded = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	b.until("the backend is ready", func() bool {
		resp, err := http.Get("http://" + b.api + "/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	b.token = b.signIn("admin", password)
	if b.token == "" {
		b.t.Fatal("the administrator cannot sign in")
	}
}

func (b *bed) startAgent() {
	host, port, _ := net.SplitHostPort(b.local)
	_, statsdPort, _ := net.SplitHostPort(b.statsd)
	cmd := exec.Command(b.binary, "agent", "--name", "healthy", "--backend-url", "ws://"+b.agents, "--subscriptions", "healthy",
		"--api-host", host, "--api-port", port, "--statsd-metrics-host", "127.0.0.1", "--statsd-metrics-port", statsdPort, "--disable-sockets",
		"--cache-dir", filepath.Join(b.dir, "agent"), "--config-file", os.DevNull)
	log := b.logFile("agent.log")
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.agent = cmd
}

func (b *bed) kill(cmd *exec.Cmd) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	if cmd == b.backend {
		<-b.backendEnded
		return
	}
	_ = cmd.Wait()
}

func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) { // pause between polls
		if time.Now().After(deadline) {
			b.t.Fatalf("waited for a minute: %s", what)
		}
	}
}

// answer is the API's answer.
type answer struct {
	status int
	body   []byte
	header http.Header
	err    error
}

func (a answer) String() string {
	if a.err != nil {
		return "no answer"
	}
	return strconv.Itoa(a.status)
}

var plain = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// call requests the API with a token, or without for "".
func (b *bed) call(token, method, path string, body io.Reader) answer {
	req, err := http.NewRequest(method, "http://"+b.api+path, body)
	if err != nil {
		return answer{err: err}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return send(req)
}

func send(req *http.Request) answer {
	resp, err := plain.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, text, resp.Header, err}
}

// signIn returns an access token, "" if there is none.
func (b *bed) signIn(user, secret string) string {
	req, err := http.NewRequest("GET", "http://"+b.api+"/auth", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.SetBasicAuth(user, secret)
	var tokens struct {
		Access string `json:"access_token"`
	}
	a := send(req)
	if a.err == nil && a.status == 200 {
		_ = json.Unmarshal(a.body, &tokens)
	}
	return tokens.Access
}

// newUser signs in a user who was just made. The guesses of other attacks may still slow down sign-ins from this
// address.
func (b *bed) newUser(name string, wrong func(string, ...any)) (token string) {
	if !b.eventually(func() bool { token = b.signIn(name, password); return token != "" }) {
		wrong("%s cannot sign in", name)
	}
	return token
}

// put defines something as the administrator.
func (b *bed) put(path, body string) answer {
	return b.call(b.token, "PUT", path, strings.NewReader(body))
}

func (b *bed) post(path, body string) answer {
	return b.call(b.token, "POST", path, strings.NewReader(body))
}

// results returns how many results of the healthy agent's check were folded. All are OK, so it is the check's
// occurrences.
func (b *bed) results() int {
	n, _ := b.newest()
	return n
}

// newest returns how many results of the healthy agent's check were folded, and when the newest was executed.
func (b *bed) newest() (results int, executed time.Time) {
	a := b.call(b.token, "GET", "/api/core/v2/namespaces/default/events/healthy/healthy", nil)
	if a.status == http.StatusUnauthorized {
		b.token = b.signIn("admin", password)
	}
	var ev struct {
		Check struct {
			Occurrences int   `json:"occurrences"`
			Executed    int64 `json:"executed"`
		} `json:"check"`
	}
	if a.status != 200 || json.Unmarshal(a.body, &ev) != nil {
		return -1, executed
	}
	return ev.Check.Occurrences, time.Unix(ev.Check.Executed, 0)
}

// has reports whether the backend has an event.
func (b *bed) has(entity, check string) bool {
	return b.call(b.token, "GET", "/api/core/v2/namespaces/default/events/"+entity+"/"+check, nil).status == http.StatusOK
}

// follows sends one more event through a session and waits for it. A session handles its messages in order, so the
// earlier ones are handled then.
func (b *bed) follows(conn *wire.Conn, entity string) bool {
	return conn.Write(eventFrame(entity, "follows", nil)) == nil && b.eventually(func() bool { return b.has(entity, "follows") })
}

// metric returns the sum of the backend's metrics of a name, of those with a label's value if that is not empty.
func (b *bed) metric(name, value string) (sum float64) {
	for line := range strings.Lines(string(b.call(b.token, "GET", "/metrics", nil).body)) {
		series, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || series != name && !strings.HasPrefix(series, name+"{") || !strings.Contains(series, value) {
			continue
		}
		n, _ := strconv.ParseFloat(number, 64)
		sum += n
	}
	return sum
}

// handled waits until a handler has finished at least n deliveries since the backend's start and has no others.
func (b *bed) handled(handler string, n float64) bool {
	label := `"` + handler + `"`
	return b.eventually(func() bool {
		return b.metric("lapwing_handler_dispatched_total", label) >= n &&
			b.metric("lapwing_handler_queue_depth", label)+b.metric("lapwing_handler_running", label) == 0
	})
}

// memory returns the resident memory of a process and of its children, in bytes.
func memory(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("\nVmRSS:"))
	line, _, _ := bytes.Cut(rest, []byte("kB"))
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	sum := n << 10
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(children)) {
		if id, err := strconv.Atoi(child); err == nil {
			sum += memory(id)
		}
	}
	return sum
}

func (b *bed) logSize() int64 {
	info, err := os.Stat(filepath.Join(b.dir, "backend.log"))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (b *bed) alive() bool {
	select {
	case <-b.backendEnded:
		return false
	default:
		return true
	}
}

// watch samples the API as another user, and the backend's memory, until stop is closed.
func (b *bed) watch(r *row, stop <-chan struct{}) {
	var took []time.Duration
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	defer func() {
		slices.Sort(took)
		if n := len(took); n > 0 {
			r.p50, r.p99 = took[n/2], took[min(n-1, n*99/100)]
		}
	}()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		r.peak = max(r.peak, memory(b.backend.Process.Pid))
		begin := time.Now()
		n, executed := b.newest()
		if n < 0 {
			r.failed++
			continue
		}
		took = append(took, time.Since(begin))
		r.stale = max(r.stale, time.Since(executed))
	}
}

// attack is one attack: run does it and returns what the attacker got, and calls wrong for what must not happen.
type attack struct {
	name string
	run  func(ctx context.Context, b *bed, wrong func(format string, args ...any)) string
}

// play runs an attack and measures its effect on the backend.
func (b *bed) play(a attack) *row {
	r := &row{name: a.name, before: memory(b.backend.Process.Pid)}
	wrong := func(format string, args ...any) { r.wrong = append(r.wrong, fmt.Sprintf(format, args...)) }
	logged, have, begin := b.logSize(), b.results(), time.Now()
	ctx, cancel := context.WithTimeout(b.t.Context(), attackTime)
	defer cancel()
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { b.watch(r, stop) })
	r.outcome = a.run(ctx, b, wrong)
	time.Sleep(max(0, shortest-time.Since(begin))) // a longer time measures more; the expected results grow with it
	close(stop)
	watching.Wait()
	r.logged = b.logSize() - logged
	if r.stale > mostStale {
		wrong("the newest result of the healthy agent was %s old", r.stale.Round(time.Second))
	}
	if !b.alive() {
		r.died = true
		wrong("the backend died")
		b.startBackend()
	}
	served := b.eventually(func() bool {
		return b.put("/api/core/v2/namespaces/default/checks/after", `{"metadata":{"name":"after","namespace":"default"},"command":"true","interval":3600,
			"subscriptions":["none"]}`).status < 300 &&
			b.post("/api/core/v2/namespaces/default/events", `{"entity":{"metadata":{"name":"after","namespace":"default"},"entity_class":"proxy"},
			"check":{"metadata":{"name":"after","namespace":"default"},"output":"x"}}`).status < 300
	})
	if !served {
		wrong("the backend takes no definitions or events after %s: it is started again", recovery)
		b.kill(b.backend)
		b.startBackend()
	}
	// Two intervals may be on their way.
	r.wanted = max(1, int(time.Since(begin)/time.Second)-2)
	if !b.eventually(func() bool { r.arrived = b.results() - have; return r.arrived >= r.wanted }) {
		wrong("results of the healthy agent are missing")
	}
	r.after = memory(b.backend.Process.Pid)
	return r
}

// shortest is the least time for which the agent and the API are observed.
const shortest = 6 * time.Second

func (b *bed) eventually(ok func() bool) bool {
	// pause between polls
	for deadline := time.Now().Add(recovery); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

func table(rows []*row) string {
	var b strings.Builder
	b.WriteString("| attack | what it got | agent's results, oldest | API p50 / p99, failed | RSS before → peak → after | log | verdict |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		verdict := "held"
		if len(r.wrong) > 0 {
			verdict = "**" + strings.Join(r.wrong, "; ") + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %d of %d, %.1f s | %s / %s, %d | %d → %d → %d MiB | %d KiB | %s |\n",
			r.name, r.outcome, min(r.arrived, r.wanted), r.wanted, r.stale.Seconds(),
			r.p50.Round(100*time.Microsecond), r.p99.Round(100*time.Microsecond), r.failed,
			r.before>>20, r.peak>>20, r.after>>20, r.logged>>10, verdict)
	}
	return b.String()
}

// TestAttacks runs all attacks in turn against one backend.
func TestAttacks(t *testing.T) {
	b := newBed(t)
	only := os.Getenv("LAPWING_ATTACK")
	var rows []*row
	for _, a := range attacks {
		if only != "" && !strings.Contains(a.name, only) {
			continue
		}
		r := b.play(a)
		rows = append(rows, r)
		t.Logf("%s: %s %v", r.name, r.outcome, r.wrong)
		for _, w := range r.wrong {
			t.Errorf("%s: %s", r.name, w)
		}
	}
	t.Logf("\n%s", table(rows))
	if path := os.Getenv("LAPWING_ATTACK_TABLE"); path != "" {
		if err := os.WriteFile(path, []byte(table(rows)), 0o600); err != nil {
			t.Error(err)
		}
	}
	if log, err := os.ReadFile(filepath.Join(b.dir, "backend.log")); err == nil && (t.Failed() || os.Getenv("LAPWING_ATTACK_LOG") != "") {
		t.Logf("end of the backend's log:\n%s", log[max(0, len(log)-6000):])
	}
}

var errNoConnection = errors.New("no connection")
