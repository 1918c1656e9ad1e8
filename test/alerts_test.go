package test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestCrashesLoseNoAlert kills the backend with SIGKILL while each of an agent's results is an incident for a webhook.
// Every incident must arrive, in the order of its check the first time, and a repeated one must have the same key.
func TestCrashesLoseNoAlert(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys := map[int64]map[string]int{} // executed -> idempotency keys
	var last int64
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var ev resource.Event
		if err := json.NewDecoder(r.Body).Decode(&ev); err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		n := ev.Check.Executed
		if keys[n] == nil {
			keys[n] = map[string]int{}
			if n < last {
				t.Errorf("result %d came first after %d", n, last)
			}
			last = n
		}
		keys[n][r.Header.Get("Idempotency-Key")]++
	}))
	defer hook.Close()

	p := newProcess(t, "--state-write-delay", "300ms")
	p.start()
	c := p.client()
	h := &resource.Handler{Metadata: resource.ObjectMeta{Name: "hook", Namespace: "default"}, Type: "webhook", Filters: []string{"is_incident"}, Webhook: &resource.HandlerWebhook{URL: hook.URL}}
	if err := client.Put(t.Context(), c, client.Handlers, "default", "hook", h); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	tr, err := agent.NewTransport(agent.TransportOptions{
		Name: "alarming", User: testbackend.AgentUser, Password: testbackend.AgentPassword, BackendURLs: []string{"ws://127.0.0.1:" + p.agent},
		RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond, BatchDelay: time.Second, ConfigTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() { tr.Run(ctx) })
	sent := int64(0)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 4 {
		for range 250 {
			<-tick.C
			sent++
			ev := testbackend.Event("alarming", "c", 1, sent)
			ev.Check.Handlers = []string{"hook"}
			tr.Send(ev)
		}
		p.kill(syscall.SIGKILL)
		p.start()
	}
	eventually(t, 60*time.Second, "every incident has arrived", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return int64(len(keys)) == sent
	})
	mu.Lock()
	defer mu.Unlock()
	repeats := 0
	for n, k := range keys {
		if len(k) != 1 {
			t.Errorf("result %d came with keys %v", n, k)
		}
		for _, times := range k {
			repeats += times - 1
		}
	}
	t.Logf("%d incidents, 4 crashes: all arrived, %d of them again with the same key", sent, repeats)
}
