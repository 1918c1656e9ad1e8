package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// flaky is a receiver of webhooks that refuses 30% of all requests for now, and some events always: every 400th for
// good, every 401st for now. Once repaired it accepts everything.
type flaky struct {
	t      *testing.T
	mu     sync.Mutex
	mended bool
	tries  int
	taken  map[int64]map[string]int // number of the incident -> key -> how often it was accepted
	keys   map[int64]string         // the key with which each came first, accepted or not
	latest map[string]int64         // by check, the highest that was accepted
}

func doomed(n int64) bool { return n%400 == 0 || n%401 == 0 }

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ev resource.Event
	if err := json.NewDecoder(r.Body).Decode(&ev); err != nil {
		f.t.Error(err)
		return
	}
	n, key := ev.Check.Executed, r.Header.Get("Idempotency-Key")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if was := f.keys[n]; was != "" && was != key {
		f.t.Errorf("incident %d came with the keys %s and %s", n, was, key)
	}
	f.keys[n] = key
	switch {
	case f.mended:
	case n%400 == 0:
		http.Error(w, "not this one", http.StatusBadRequest)
		return
	case n%401 == 0 || rand.IntN(10) < 3:
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	if f.taken[n] == nil {
		f.taken[n] = map[string]int{}
		check := ev.Entity.Metadata.Name + "/" + ev.Check.Metadata.Name
		if last := f.latest[check]; n < last && !f.mended {
			f.t.Errorf("%s: incident %d was taken first after %d", check, n, last)
		}
		f.latest[check] = n
	}
	f.taken[n][key]++
}

func (f *flaky) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.taken)
}

func (f *flaky) repeats() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, keys := range f.taken {
		for _, times := range keys {
			n += times - 1
		}
	}
	return n
}

// TestFailingHandlerLosesNothing sends incidents to a handler that fails 30% of the time, and kills the backend with
// SIGKILL in the meantime. Every incident must arrive or be a dead letter, never both. A repeated one must have the
// same key, and at most 1% of all (or, if that is less, 60 for each crash) may repeat. Then the handler is repaired and
// the dead letters are sent again: they must all arrive, once and with their keys.
//
// It has 3,000 incidents and 3 crashes; LAPWING_INCIDENTS and LAPWING_CRASHES set other numbers.
func TestFailingHandlerLosesNothing(t *testing.T) {
	t.Parallel()
	incidents, crashes := 3000, 3
	if n, err := strconv.Atoi(os.Getenv("LAPWING_INCIDENTS")); err == nil {
		incidents = n
	}
	if n, err := strconv.Atoi(os.Getenv("LAPWING_CRASHES")); err == nil {
		crashes = n
	}
	limit := 2*time.Minute + time.Duration(incidents)*5*time.Millisecond

	receiver := &flaky{t: t, taken: map[int64]map[string]int{}, keys: map[int64]string{}, latest: map[string]int64{}}
	server := httptest.NewServer(receiver)
	defer server.Close()
	p := newProcess(t)
	p.start()
	c := p.client()
	h := &resource.Handler{
		Metadata: resource.ObjectMeta{Name: "hook", Namespace: "default"}, Type: "webhook", Filters: []string{"is_incident"},
		Webhook: &resource.HandlerWebhook{URL: server.URL}, Retry: &resource.HandlerRetry{MaxAttempts: 10, Backoff: 1, MaxBackoff: 1},
	}
	if err := client.Put(t.Context(), c, client.Handlers, "default", "hook", h); err != nil {
		t.Fatal(err)
	}

	const agents, checks = 10, 100
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var senders [agents]*agent.Transport
	for i := range senders {
		tr, err := agent.NewTransport(agent.TransportOptions{
			Name: fmt.Sprintf("agent-%d", i), User: testbackend.AgentUser, Password: testbackend.AgentPassword, BackendURLs: []string{"ws://127.0.0.1:" + p.agent},
			RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond, BatchDelay: time.Second, BufferEvents: 100000,
			ConfigTimeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		senders[i] = tr
		running.Go(func() { tr.Run(ctx) })
	}
	running.Go(func() { // all within the time that most of the crashes take
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 1; n <= incidents; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for range 25 {
				if n > incidents {
					break
				}
				ev := testbackend.Event(fmt.Sprintf("agent-%d", n%agents), fmt.Sprintf("check-%d", n/agents%checks), 2, int64(n))
				ev.Check.Handlers = []string{"hook"}
				senders[n%agents].Send(ev)
				n++
			}
		}
	})

	begin := time.Now()
	wanted := 0
	for n := 1; n <= incidents; n++ {
		if !doomed(int64(n)) {
			wanted++
		}
	}
	for n := range crashes {
		at := wanted * (n + 1) / (crashes + 1)
		eventually(t, limit, fmt.Sprintf("%d incidents have arrived", at), func() bool { return receiver.count() >= at })
		before := receiver.repeats()
		p.kill(syscall.SIGKILL)
		took := p.start()
		t.Logf("crash %d at %d arrived, ready again after %s; %d repeats before it", n+1, at, took.Round(time.Millisecond), before)
	}
	dead := map[int64]string{} // number -> key
	letters := func() {
		clear(dead)
		for letter, err := range c.DeadLetters(t.Context(), "default", "hook", "") {
			if err != nil {
				t.Fatal(err)
			}
			whole, err := c.DeadLetter(t.Context(), "default", letter.ID)
			if err != nil {
				t.Fatal(err)
			}
			dead[whole.Event.Check.Executed] = letter.ID
			if letter.Reason == "" || letter.Attempts == 0 || letter.Handler != "hook" {
				t.Errorf("dead letter %+v", letter)
			}
		}
	}
	eventually(t, limit, "every incident has arrived or is dead", func() bool {
		if receiver.count() < wanted-incidents/1000 {
			return false
		}
		letters()
		return receiver.count()+len(dead) >= incidents
	})
	took := time.Since(begin)
	letters()
	receiver.mu.Lock()
	for n := int64(1); n <= int64(incidents); n++ {
		_, isDead := dead[n]
		if taken := receiver.taken[n] != nil; taken == isDead {
			t.Errorf("incident %d: taken %v, dead %v", n, taken, isDead)
		}
	}
	tries := receiver.tries
	receiver.mended = true
	receiver.mu.Unlock()
	repeats := receiver.repeats()
	// A crash repeats what had ended and the log did not know, 48 deliveries at most, and the 8 that ran.
	if repeats > max(incidents/100, 60*crashes) {
		t.Errorf("%d of %d incidents arrived again", repeats, incidents)
	}

	redriven, err := c.RedriveDeadLetters(t.Context(), "default", client.DeadLetterChoice{Handler: "hook"})
	if err != nil || redriven.Count != len(dead) {
		t.Fatalf("sent %+v dead letters again, want %d: %v", redriven, len(dead), err)
	}
	eventually(t, limit, "the dead letters have arrived", func() bool { return receiver.count() == incidents })
	letters()
	if again := receiver.repeats() - repeats; again != 0 || len(dead) != 0 {
		t.Errorf("after they were sent again: %d repeats, %d dead letters", again, len(dead))
	}
	t.Logf("%d incidents, %d crashes, %d attempts in %s: %d dead, %d (%.2f%%) arrived again with the same key",
		incidents, crashes, tries, took.Round(time.Second), redriven.Count, repeats, 100*float64(repeats)/float64(incidents))
}
