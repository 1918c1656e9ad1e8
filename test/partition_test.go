package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// network is a network namespace with one wire to us, which can be cut.
type network struct {
	t          *testing.T
	name       string
	here       string // our end of the wire
	us, theirs string // addresses
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need iproute2")
	}
	id := os.Getpid() % 10000
	n := &network{t: t, name: fmt.Sprintf("lapwing%d", id), here: fmt.Sprintf("lw%d", id), us: "198.18.77.1", theirs: "198.18.77.2"}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", n.here).Run()
		n.ip("netns", "del", n.name)
	})
	there := n.here + "p"
	n.ip("link", "add", n.here, "type", "veth", "peer", "name", there)
	n.ip("link", "set", there, "netns", n.name)
	n.ip("addr", "add", n.us+"/30", "dev", n.here)
	n.ip("link", "set", n.here, "up")
	n.ip("-n", n.name, "addr", "add", n.theirs+"/30", "dev", there)
	n.ip("-n", n.name, "link", "set", there, "up")
	n.ip("-n", n.name, "link", "set", "lo", "up")
	return n
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (n *network) cut()  { n.ip("link", "set", n.here, "down") }
func (n *network) mend() { n.ip("link", "set", n.here, "up") }

// runs are the runs of each check that a receiver of events got, in their order.
type runs struct {
	mu     sync.Mutex
	counts map[string][]int
}

func (r *runs) of(check string) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int(nil), r.counts[check]...)
}

// TestPartition cuts an agent off for a while, and kills it with SIGKILL in the middle of that. Its checks continue,
// and in the end the backend has every finished run, once, and in order. LAPWING_PARTITION is how long it is cut off;
// the default keeps the test short.
func TestPartition(t *testing.T) {
	longtest.Only(t)
	t.Parallel()
	length := 24 * time.Second
	if text := os.Getenv("LAPWING_PARTITION"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	const checks, interval = 20, 5
	n := newNetwork(t)
	told := &runs{counts: map[string][]int{}}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var ev resource.Event
		if err := json.Unmarshal(b, &ev); err != nil {
			t.Errorf("receiver got %q: %v", b, err)
			return
		}
		var run int
		if _, err := fmt.Sscanf(ev.Check.Output, "run %d", &run); err != nil {
			t.Errorf("receiver got output %q", ev.Check.Output)
		}
		told.mu.Lock()
		defer told.mu.Unlock()
		told.counts[ev.Check.Metadata.Name] = append(told.counts[ev.Check.Metadata.Name], run)
	}))
	t.Cleanup(receiver.Close)

	p := newProcess(t, "--agent-host", n.us)
	p.start()
	c := p.client()
	ctx := context.Background()
	handler := &resource.Handler{
		Metadata: resource.ObjectMeta{Name: "told", Namespace: "default"}, Type: "webhook", Webhook: &resource.HandlerWebhook{URL: receiver.URL},
	}
	if err := client.Put(ctx, c, client.Handlers, "default", "told", handler); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hold := filepath.Join(dir, "hold")
	name := func(i int) string { return fmt.Sprintf("check-%02d", i) }
	for i := range checks {
		check := &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Name: name(i), Namespace: "default"}, Interval: interval, Publish: true, Subscriptions: []string{"cut"}, Handlers: []string{"told"},
			// A run counts when it has ended. While a file is there it waits at its beginning, and does not outlive its agent.
			Command: fmt.Sprintf(`f=%[1]s/%[2]s; h=%[3]s; [ ! -e $h ] || : >$f.waits
while [ -e $h ] && kill -0 $PPID; do sleep 0.1; done; kill -0 $PPID || exit 1
n=$(cat $f 2>/dev/null || echo 0); n=$((n+1)); echo $n > $f.new; mv $f.new $f; echo "run $n"`, dir, name(i), hold),
		}
		if err := client.Put(ctx, c, client.Checks, "default", name(i), check); err != nil {
			t.Fatal(err)
		}
	}

	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log.Close()
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("agent's log:\n%s", tailOf(text, 4000))
			}
		}
	})
	startAgent := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command("ip", "netns", "exec", n.name, path, "agent", "--name", "island", "--subscriptions", "cut",
			"--backend-url", "ws://"+n.us+":"+p.agent, "--cache-dir", filepath.Join(dir, "cache"), "--config-file", os.DevNull,
			"--keepalive-interval", "2", "--keepalive-warning-timeout", "3600", "--backend-heartbeat-interval", "2", "--backend-heartbeat-timeout", "5",
			"--retry-max", "3s")
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	cmd := startAgent()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	everyCheckRan := func(times int) func() bool {
		return func() bool {
			for i := range checks {
				if len(told.of(name(i))) < times {
					return false
				}
			}
			return true
		}
	}
	eventually(t, 60*time.Second, "every check has run", everyCheckRan(1))
	// ended counts the finished runs of a check, whether they were reported or not.
	ended := func(i int) int {
		text, err := os.ReadFile(filepath.Join(dir, name(i)))
		if err != nil {
			t.Fatal(err)
		}
		count, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	var before [checks]int
	n.cut()
	for i := range checks {
		before[i] = ended(i)
	}
	half := time.Now().Add(length / 2)
	eventually(t, length, "half of it is over", func() bool { return time.Now().After(half) })
	// Each check has one run at a time, so when each has begun one that waits, all results before are stored.
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "a run of each check waits", func() bool {
		for i := range checks {
			if !exists(filepath.Join(dir, name(i)+".waits")) {
				return false
			}
		}
		return true
	})
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	cmd = startAgent()
	whole := time.Now().Add(length / 2)
	least := int(length/time.Second)/interval - 2
	var during [checks]int
	eventually(t, length+time.Minute, fmt.Sprintf("all of it is over, and every check ran %d times", least), func() bool {
		enough := time.Now().After(whole)
		for i := range checks {
			during[i] = ended(i)
			enough = enough && during[i]-before[i] >= least
		}
		return enough
	})
	n.mend()
	eventually(t, 90*time.Second, "the backend has heard of every run", func() bool {
		for i := range checks {
			if all := told.of(name(i)); len(all) == 0 || all[len(all)-1] <= during[i] {
				return false
			}
		}
		return true
	})
	missing, total := 0, 0
	for i := range checks {
		last := 0
		all := told.of(name(i))
		total += len(all)
		for _, run := range all {
			if run <= last {
				t.Errorf("%s: run %d came after run %d", name(i), run, last)
			}
			missing += max(0, run-last-1)
			last = max(last, run)
		}
	}
	if missing > 0 {
		t.Errorf("%d runs are missing", missing)
	}
	t.Logf("%d runs of %d checks in all; cut off for %s; %d missing", total, checks, length, missing)
}
