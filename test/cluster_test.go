package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// spreadPatience bounds how long tests wait until all is well with a cluster. One member may lead all streams after the
// start. It gives them away one by one, a minute apart.
const spreadPatience = 6 * time.Minute

// members are the backends of a cluster, as processes.
type members []*process

// newMembers makes the backends of a cluster on loopback addresses of their own. None of them runs yet.
func newMembers(t testing.TB, n int, extra ...string) members {
	t.Helper()
	var peers []string
	for range n {
		peers = append(peers, "127.0.0.1:"+freePort(t))
	}
	var all members
	for i := range n {
		all = append(all, newProcess(t, append([]string{
			"--name", fmt.Sprint("b", i), "--cluster-listen-address", peers[i], "--peers", strings.Join(peers, ","),
		}, extra...)...))
	}
	return all
}

// start runs all of them and returns when each is ready.
func (all members) start() {
	for _, p := range all {
		p.launch()
	}
	for _, p := range all {
		p.ready()
	}
}

// ready waits until the backend is ready.
func (p *process) ready() {
	p.t.Helper()
	eventually(p.t, time.Minute, "the backend is ready", func() bool {
		resp, err := http.Get("http://" + p.api + "/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// alarm is a receiver of webhooks.
type alarm struct {
	*httptest.Server

	mu    sync.Mutex
	calls map[string]int // by the output of the check
	keys  map[string]map[string]bool
}

func newAlarm(t testing.TB) *alarm {
	a := &alarm{calls: map[string]int{}, keys: map[string]map[string]bool{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var ev resource.Event
		if err := json.NewDecoder(r.Body).Decode(&ev); err != nil || ev.Check == nil {
			t.Errorf("the receiver got no event: %v", err)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls[ev.Check.Output]++
		if a.keys[ev.Check.Output] == nil {
			a.keys[ev.Check.Output] = map[string]bool{}
		}
		a.keys[ev.Check.Output][r.Header.Get("Idempotency-Key")] = true
	}))
	t.Cleanup(a.Close)
	return a
}

// got returns how often an output has come, and with how many keys.
func (a *alarm) got(output string) (calls, keys int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[output], len(a.keys[output])
}

// submit submits an event through a backend until it is taken. It returns how often it had to: each attempt may have
// become an event although it was not acknowledged.
func submit(t testing.TB, c *client.Client, entity string, status uint32, output string) (attempts int) {
	t.Helper()
	meta := func(name string) resource.ObjectMeta { return resource.ObjectMeta{Name: name, Namespace: "default"} }
	ev := &resource.Event{
		Metadata: resource.ObjectMeta{Namespace: "default"},
		Entity:   &resource.Entity{Metadata: meta(entity), EntityClass: resource.EntityProxyClass},
		Check: &resource.Check{
			Metadata: meta("disk"), Status: status, Output: output, Handlers: []string{"alarm"}, Executed: time.Now().Unix(),
		},
	}
	eventually(t, time.Minute, "an event is taken: "+output, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		attempts++
		return client.Put(ctx, c, client.Events, "default", client.EventName(entity, "disk"), ev) == nil
	})
	return attempts
}

// outputs returns the outputs of all events that a backend knows, by entity.
func outputs(ctx context.Context, c *client.Client) (map[string]string, error) {
	events, err := client.List(ctx, c, client.Events, "default", client.ListOptions{})
	all := map[string]string{}
	for _, ev := range events {
		if ev.Check != nil {
			all[ev.Entity.Metadata.Name] = fmt.Sprint(ev.Check.Output, " ", ev.Check.Occurrences)
		}
	}
	return all, err
}

// agree fails the test if the backends do not come to know the same events.
func (all members) agree(t testing.TB, clients []*client.Client) {
	t.Helper()
	var last []map[string]string
	eventually(t, time.Minute, "all backends know the same events", func() bool {
		last = nil
		for _, c := range clients {
			known, err := outputs(t.Context(), c)
			if err != nil {
				return false
			}
			last = append(last, known)
		}
		for _, known := range last[1:] {
			if fmt.Sprint(known) != fmt.Sprint(last[0]) {
				return false
			}
		}
		return true
	})
}

// TestClusterTakesOver kills, stops and restarts each of three backends in turn. Every event that was acknowledged is
// known to all, and every alert is sent, with one key.
func TestClusterTakesOver(t *testing.T) {
	all := newMembers(t, 3)
	all.start()
	hook := newAlarm(t)
	var clients []*client.Client
	for _, p := range all {
		clients = append(clients, p.client())
	}
	handler := resource.Handler{
		Metadata: resource.ObjectMeta{Name: "alarm", Namespace: "default"}, Type: "webhook",
		Webhook: &resource.HandlerWebhook{URL: hook.URL},
	}
	if err := client.Put(t.Context(), clients[0], client.Handlers, "default", "alarm", &handler); err != nil {
		t.Fatal(err)
	}
	number, sent := 0, map[string]int{} // attempts by output
	alert := func(through int) {
		t.Helper()
		number++
		output := fmt.Sprint("alert ", number)
		sent[output] = submit(t, clients[through], fmt.Sprint("host-", number), 2, output)
	}
	arrived := func(when string) {
		t.Helper()
		for output, attempts := range sent {
			eventually(t, time.Minute, when+": "+output+" arrives", func() bool { n, _ := hook.got(output); return n > 0 })
			if n, keys := hook.got(output); keys > attempts {
				t.Errorf("%s: %s came %d times with %d keys, and was submitted %d times", when, output, n, keys, attempts)
			}
		}
	}
	for i := range all {
		alert(i)
	}
	arrived("at first")
	all.agree(t, clients)

	ways := map[string]struct {
		down func(*process)
		up   func(*process)
	}{
		"kill": {func(p *process) { p.kill(syscall.SIGKILL) }, func(p *process) { p.launch() }},
		"term": {func(p *process) { p.kill(syscall.SIGTERM) }, func(p *process) { p.launch() }},
		"stop": {
			func(p *process) { _ = p.cmd.Process.Signal(syscall.SIGSTOP) },
			func(p *process) { _ = p.cmd.Process.Signal(syscall.SIGCONT) },
		},
	}
	for name, way := range ways {
		for i, victim := range all {
			when := fmt.Sprintf("%s of b%d", name, i)
			begin := time.Now()
			way.down(victim)
			for j := range all {
				if j != i {
					alert(j)
				}
			}
			t.Logf("%s: events are taken after %s", when, time.Since(begin).Round(time.Millisecond))
			arrived(when)
			t.Logf("%s: alerts are sent after %s", when, time.Since(begin).Round(time.Millisecond))
			way.up(victim)
			victim.ready()
			alert(i)
			arrived("after the " + when)
			all.agree(t, clients)
		}
	}
}
