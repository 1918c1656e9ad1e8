package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// previousFile names the commit of the release before this one. Each release in CHANGELOG.md moves it on.
const previousFile = "testdata/previous-release"

// previousVersion is the version that the binary of the previous release gives itself in these tests.
const previousVersion = "previous"

// previousBuilt is the result of building the previous release: a binary, or why there is none.
type previousBuilt struct{ path, missing string }

// previous builds the release before this one, once, from the history of this repository. LAPWING_PREVIOUS names a
// binary to take instead.
var previous = sync.OnceValues(func() (previousBuilt, error) {
	if path := os.Getenv("LAPWING_PREVIOUS"); path != "" {
		return previousBuilt{path: path}, nil
	}
	text, err := os.ReadFile(previousFile)
	if err != nil {
		return previousBuilt{}, err
	}
	commit := strings.TrimSpace(string(text))
	if out, err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		return previousBuilt{missing: fmt.Sprintf(
			"the previous release, commit %s, is not in this clone (git fetch --unshallow gets it): %v %s", commit, err, out,
		)}, nil
	}
	if _, err := binary(); err != nil { // it makes buildDir
		return previousBuilt{}, err
	}
	source := filepath.Join(buildDir, "previous")
	if err := os.Mkdir(source, 0o700); err != nil {
		return previousBuilt{}, err
	}
	path := filepath.Join(buildDir, "lapwing-previous")
	unpack := exec.Command("sh", "-c", `git -C "$1" archive "$2" | tar -x -C "$3"`, "sh", "..", commit, source)
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version="+previousVersion, "-o", path,
		"./cmd/lapwing")
	build.Dir = source
	for _, cmd := range []*exec.Cmd{unpack, build} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return previousBuilt{}, fmt.Errorf("build the previous release: %w\n%s", err, out)
		}
	}
	return previousBuilt{path: path}, os.RemoveAll(source)
})

// previousBinary returns the binary of the previous release. It skips the test if the clone does not have its source.
func previousBinary(t *testing.T) string {
	t.Helper()
	built, err := previous()
	if err != nil {
		t.Fatal(err)
	}
	if built.missing != "" {
		t.Skip(built.missing)
	}
	return built.path
}

// fleetUnderUpgrade sends events, keepalives, alerts and definitions to the members of a cluster. At the end it compares
// what each of them knows with what was acknowledged.
type fleetUnderUpgrade struct {
	t       *testing.T
	all     members
	clients []*client.Client

	senders []*sender
	hook    *alarm       // gets each alert
	missed  atomic.Int64 // keepalives that failed, though all agents live
	stop    chan struct{}
	sending sync.WaitGroup
	alerts  map[string]int // attempts by output

	mu      sync.Mutex // guards the fields below
	defined []string   // checks that were acknowledged
	acked   time.Time  // when an event was last acknowledged
	gap     time.Duration
}

const (
	upgradeAgents = 6
	upgradeChecks = 4
	// upgradeTimeout is after how many seconds without a keepalive an agent is missing. An agent finds another member in
	// much less.
	upgradeTimeout = 20
)

func newFleetUnderUpgrade(t *testing.T, all members) *fleetUnderUpgrade {
	t.Helper()
	f := &fleetUnderUpgrade{t: t, all: all, hook: newAlarm(t), stop: make(chan struct{}), alerts: map[string]int{}}
	for _, p := range all {
		f.clients = append(f.clients, p.client())
	}
	f.define()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	var urls []string
	for _, p := range all {
		urls = append(urls, "ws://127.0.0.1:"+p.agent)
	}
	for i := range upgradeAgents {
		first := i % len(urls)
		others := slices.Concat(urls[first+1:], urls[:first])
		s := newSender(t, fmt.Sprint("agent-", i), urls[first], upgradeChecks, others...)
		s.onAcked = f.onAcked
		f.senders = append(f.senders, s)
		running.Go(func() { s.transport.Run(ctx) })
		f.sending.Go(func() { s.send(f.stop, 50) })
		f.sending.Go(func() { f.keepAlive(s) })
	}
	f.sending.Go(func() { f.write(ctx) })
	return f
}

// define makes the handlers: each alert goes to a receiver that takes it, and to one that refuses it for good.
func (f *fleetUnderUpgrade) define() {
	f.t.Helper()
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "never", http.StatusBadRequest)
	}))
	missed := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		f.t.Errorf("a keepalive failed although all agents live: %s %v", text, err)
		f.missed.Add(1)
	}))
	f.t.Cleanup(refuse.Close)
	f.t.Cleanup(missed.Close)
	for name, h := range map[string]resource.Handler{
		"alarm":  {Type: "set", Handlers: []string{"hook", "refuse"}},
		"hook":   {Type: "webhook", Webhook: &resource.HandlerWebhook{URL: f.hook.URL}},
		"refuse": {Type: "webhook", Webhook: &resource.HandlerWebhook{URL: refuse.URL}},
		"keepalive": {
			Type: "webhook", Webhook: &resource.HandlerWebhook{URL: missed.URL}, Filters: []string{"is_incident"},
		},
	} {
		h.Metadata = resource.ObjectMeta{Name: name, Namespace: "default"}
		if err := client.Put(f.t.Context(), f.clients[0], client.Handlers, "default", name, &h); err != nil {
			f.t.Fatal(err)
		}
	}
}

// onAcked notes the longest time in which no event of any agent was acknowledged.
func (f *fleetUnderUpgrade) onAcked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.acked.IsZero() {
		f.gap = max(f.gap, now.Sub(f.acked))
	}
	f.acked = now
}

// longestGap returns the longest gap since the last call.
func (f *fleetUnderUpgrade) longestGap() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	gap := max(f.gap, time.Since(f.acked))
	f.gap = 0
	return gap.Round(time.Millisecond)
}

func (f *fleetUnderUpgrade) keepAlive(s *sender) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s.transport.SendKeepalive(&resource.Event{
			Timestamp: time.Now().Unix(), Entity: testbackend.Entity(s.name), ID: resource.NewEventID(),
			Check: &resource.Check{
				Metadata: resource.ObjectMeta{Name: "keepalive", Namespace: "default"}, Interval: 2, Timeout: upgradeTimeout,
			},
		})
		select {
		case <-tick.C:
		case <-f.stop:
			return
		}
	}
}

// write makes checks, each through the member that comes next.
func (f *fleetUnderUpgrade) write(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		name := fmt.Sprint("defined-", n)
		check := resource.CheckConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: "true", Interval: 3600,
			Subscriptions: []string{"none"},
		}
		if client.Put(ctx, f.clients[n%len(f.clients)], client.Checks, "default", name, &check) == nil {
			f.mu.Lock()
			f.defined = append(f.defined, name)
			f.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-f.stop:
			return
		}
	}
}

// alert sends alerts of several hosts through a member.
func (f *fleetUnderUpgrade) alert(through int) {
	f.t.Helper()
	for range 3 {
		output := fmt.Sprint("alert ", len(f.alerts))
		f.alerts[output] = submit(f.t, f.clients[through], fmt.Sprint("host-", len(f.alerts)), 2, output)
	}
}

// arrived waits until each alert has come.
func (f *fleetUnderUpgrade) arrived(when string) {
	f.t.Helper()
	for output, attempts := range f.alerts {
		eventually(f.t, time.Minute, when+": "+output+" arrives", func() bool { n, _ := f.hook.got(output); return n > 0 })
		if n, keys := f.hook.got(output); keys > attempts {
			f.t.Errorf("%s: %s came %d times with %d keys, and was submitted %d times", when, output, n, keys, attempts)
		}
	}
}

// traced asks each member for what became of the newest alert: the member asks all others.
func (f *fleetUnderUpgrade) traced(when string) {
	f.t.Helper()
	path := fmt.Sprintf("/api/lapwing/v1/namespaces/default/events/host-%d/disk/trace?limit=1", len(f.alerts)-1)
	for i, c := range f.clients {
		eventually(f.t, time.Minute, fmt.Sprintf("%s: b%d gets the trace of %s", when, i, path), func() bool {
			var out []client.Outcome
			header, err := c.Exchange(f.t.Context(), http.MethodGet, path, nil, &out)
			return err == nil && len(client.Warnings(header)) == 0 && len(out) == 1 && len(out[0].Deliveries) == 2
		})
	}
}

// status returns how the cluster stands in the eyes of a member.
func (f *fleetUnderUpgrade) status(of int) (*client.ClusterStatus, error) {
	raw, err := f.clients[of].ClusterStatus(f.t.Context())
	if err != nil {
		return nil, err
	}
	st := new(client.ClusterStatus)
	return st, json.Unmarshal(raw, st)
}

// whole waits until all members act and all copies are complete, as an operator does before the next member.
func (f *fleetUnderUpgrade) whole(when string) *client.ClusterStatus {
	f.t.Helper()
	var st *client.ClusterStatus
	eventually(f.t, 3*time.Minute, when+": all members are well", func() bool {
		for i := range f.all {
			var err error
			if st, err = f.status(i); err != nil || len(st.Members) != len(f.all) {
				return false
			}
			for _, m := range st.Members {
				if !m.Up || !m.Ready || !m.Leased || !m.OnRoster {
					return false
				}
			}
			for _, problem := range st.Problems {
				if !strings.Contains(problem, "different versions") && !strings.Contains(problem, " leads all ") {
					return false
				}
			}
		}
		return true
	})
	return st
}

// owners returns how many partitions each member owns.
func owners(st *client.ClusterStatus) map[string]int {
	count := map[string]int{}
	for _, p := range st.Partitions {
		count[p.Owner]++
	}
	return count
}

// replaceAll stops one member after the other with SIGTERM, and starts it with the current binary on its directory.
func (f *fleetUnderUpgrade) replaceAll() {
	f.t.Helper()
	st := f.whole("at first")
	for i := range f.all {
		f.alert(i)
	}
	f.arrived("at first")
	f.t.Logf("longest gap of accepted events at first: %s", f.longestGap())
	owned := owners(st)
	order := []int{0, 1, 2}
	name := func(i int) string { return fmt.Sprint("b", i) }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(owned[name(b)], owned[name(a)]) })
	f.t.Logf("the members own %v partitions", owned)
	programs := map[string]bool{"": true}
	for _, p := range f.all {
		programs[p.program] = true
	}
	mixed := map[string]int{} // partitions by the version of their owners, while the members' versions differ
	for n, i := range order {
		begin := time.Now()
		f.all[i].kill(syscall.SIGTERM)
		stopped := time.Since(begin)
		for j := range f.all {
			if j != i {
				f.alert(j)
			}
		}
		f.all[i].program = ""
		f.all[i].launch()
		f.all[i].ready()
		st := f.whole("after " + name(i))
		if n < len(order)-1 {
			version := map[string]string{}
			for _, m := range st.Members {
				version[m.Name] = m.Version
			}
			for owner, partitions := range owners(st) {
				mixed[version[owner]] += partitions
			}
		}
		for j := range f.all {
			f.alert(j)
		}
		f.arrived("after " + name(i))
		f.traced("after " + name(i))
		f.t.Logf("%s: stopped in %s, replaced in %s, longest gap of accepted events %s", name(i),
			stopped.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), f.longestGap())
	}
	f.t.Logf("owners while the members differed, by version: %v", mixed)
	if len(owned) > 1 && len(mixed) < len(programs) {
		f.t.Errorf("while the members differed, all owners had one version: %v", mixed)
	}
}

// verify stops the sending, and compares what the members know with what was acknowledged.
func (f *fleetUnderUpgrade) verify() {
	f.t.Helper()
	close(f.stop)
	f.sending.Wait()
	eventually(f.t, 2*time.Minute, "all events are acknowledged", func() bool {
		return !slices.ContainsFunc(f.senders, func(s *sender) bool { return s.transport.Buffered() > 0 })
	})
	f.arrived("at the end")
	f.all.agree(f.t, f.clients)
	var total int64
	for i, c := range f.clients {
		total = 0
		for _, s := range f.senders {
			for check := range upgradeChecks {
				got, want := occurrences(f.t, c, s.name, check), s.sentUpTo(s.last.Load(), check)
				if got != want {
					f.t.Errorf("b%d: %s/check-%d has %d results, %d were sent", i, s.name, check, got, want)
				}
				total += got
			}
		}
		f.sameDefinitions(i)
		f.sameLetters(i)
	}
	f.t.Logf("%d events of agents, %d definitions and %d alerts are on each member; %d false keepalives",
		total, len(f.defined), len(f.alerts), f.missed.Load())
}

func (f *fleetUnderUpgrade) sameDefinitions(i int) {
	f.t.Helper()
	checks, err := client.List(f.t.Context(), f.clients[i], client.Checks, "default", client.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	known := map[string]bool{}
	for _, check := range checks {
		known[check.Metadata.Name] = true
	}
	for _, name := range f.defined {
		if !known[name] {
			f.t.Errorf("b%d does not have the check %s, which was acknowledged", i, name)
		}
	}
}

// sameLetters waits until a member has the dead letter of each alert.
func (f *fleetUnderUpgrade) sameLetters(i int) {
	f.t.Helper()
	eventually(f.t, time.Minute, fmt.Sprintf("b%d has the dead letters of all alerts", i), func() bool {
		of := map[string]bool{}
		for letter, err := range f.clients[i].DeadLetters(f.t.Context(), "default", "refuse", "") {
			if err != nil {
				return false
			}
			of[letter.Entity] = true
		}
		return len(of) == len(f.alerts)
	})
}

// TestUpgradeFromPreviousRelease replaces the members of a cluster of the previous release one by one, under load.
func TestUpgradeFromPreviousRelease(t *testing.T) {
	longtest.Only(t)
	path := previousBinary(t)
	all := newMembers(t, 3, "--event-log-partitions", "6")
	for _, p := range all {
		p.program = path
	}
	all.start()
	f := newFleetUnderUpgrade(t, all)
	f.replaceAll()
	f.verify()
}

// TestRollingRestart restarts the members of a cluster one by one, under load.
func TestRollingRestart(t *testing.T) {
	longtest.Only(t)
	all := newMembers(t, 3, "--event-log-partitions", "6")
	all.start()
	f := newFleetUnderUpgrade(t, all)
	f.replaceAll()
	f.verify()
}

// TestUpgradeAlone opens the state directory of a backend of the previous release, with deliveries that could not be
// sent yet, after a stop and after a kill.
func TestUpgradeAlone(t *testing.T) {
	longtest.Only(t)
	path := previousBinary(t)
	for name, sig := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t)
			p.program = path
			p.start()
			hook := newAlarm(t)
			var down atomic.Bool
			down.Store(true)
			gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if down.Load() {
					http.Error(w, "not now", http.StatusServiceUnavailable)
					return
				}
				hook.Config.Handler.ServeHTTP(w, r)
			}))
			t.Cleanup(gate.Close)
			c := p.client()
			handler := resource.Handler{
				Metadata: resource.ObjectMeta{Name: "alarm", Namespace: "default"}, Type: "webhook",
				Webhook: &resource.HandlerWebhook{URL: gate.URL},
				Retry:   &resource.HandlerRetry{MaxAttempts: 1000, Backoff: 1, MaxBackoff: 1},
			}
			if err := client.Put(t.Context(), c, client.Handlers, "default", "alarm", &handler); err != nil {
				t.Fatal(err)
			}
			const alerts = 20
			for n := range alerts {
				submit(t, c, fmt.Sprint("host-", n), 2, fmt.Sprint("alert ", n))
			}
			before, err := outputs(t.Context(), c)
			if err != nil || len(before) != alerts {
				t.Fatalf("%d events, %v", len(before), err)
			}
			p.kill(sig)
			p.program = ""
			p.start()
			after, err := outputs(t.Context(), c)
			if err != nil || !maps.Equal(before, after) {
				t.Errorf("the events were %v and are %v, %v", before, after, err)
			}
			if _, err := client.Get(t.Context(), c, client.Handlers, "default", "alarm"); err != nil {
				t.Errorf("the handler: %v", err)
			}
			down.Store(false)
			for n := range alerts {
				output := fmt.Sprint("alert ", n)
				eventually(t, time.Minute, output+" arrives", func() bool { n, _ := hook.got(output); return n > 0 })
			}
		})
	}
}
