package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// pager is a receiver of webhooks that keeps what it gets.
type pager struct {
	*httptest.Server

	mu      sync.Mutex
	refuses bool // with a status that means again later
	pages   []page
}

// page is a request that a pager got: one event or a group of events of one check.
type page struct {
	at       time.Time
	key      string
	check    string
	entities []string
	taken    bool
}

func newPager(t testing.TB) *pager {
	p := new(pager)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ev resource.Event
		if err := json.NewDecoder(r.Body).Decode(&ev); err != nil || ev.Check == nil {
			t.Errorf("the receiver got no event: %v", err)
			return
		}
		got := page{at: time.Now(), key: r.Header.Get("Idempotency-Key"), check: ev.Check.Metadata.Name}
		if list, merged := ev.Metadata.Annotations[workflow.MergedAnnotation]; merged {
			var of []workflow.MergedMember
			if err := json.Unmarshal([]byte(list), &of); err != nil {
				t.Error(err)
			}
			for _, m := range of {
				got.entities = append(got.entities, m.Entity)
			}
		} else {
			got.entities = []string{ev.Entity.Metadata.Name}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if got.taken = !p.refuses; p.refuses {
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
		p.pages = append(p.pages, got)
	}))
	t.Cleanup(p.Close)
	return p
}

// refuse has the pager refuse everything from now on, or accept it.
func (p *pager) refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = on
}

// of returns the requests about a check.
func (p *pager) of(check string) (pages []page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, got := range p.pages {
		if got.check == check {
			pages = append(pages, got)
		}
	}
	return pages
}

// gauge returns a metric of a handler, or with "" one without labels; 0 if the backend does not answer.
func (p *process) gauge(name, handler string) (v float64) {
	resp, err := http.Get("http://" + p.api + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil || families[name] == nil {
		return 0
	}
	for _, m := range families[name].GetMetric() {
		if len(m.GetLabel()) == 0 && handler == "" {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		for _, l := range m.GetLabel() {
			if l.GetValue() == handler {
				v += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return v
}

// sum adds up a metric of a handler over all members.
func (all members) sum(name, handler string) (sum float64) {
	for _, p := range all {
		sum += p.gauge(name, handler)
	}
	return sum
}

// drained waits until no member has an unfinished delivery to a handler.
func (all members) drained(t testing.TB, handler string) {
	t.Helper()
	eventually(t, time.Minute, "nothing is left for the handler "+handler, func() bool {
		return all.sum("lapwing_handler_parked", handler)+all.sum("lapwing_handler_queue_depth", handler)+
			all.sum("lapwing_handler_queue_spilled", handler) == 0
	})
}

// incidents submits an incident of a check on each of n entities, through all clients at the same time. It returns how many
// of these were submitted again because the first answer was an error: such an event may have been taken twice.
func incidents(t testing.TB, clients []*client.Client, n int, check, handler string) (again int) {
	t.Helper()
	const senders = 12
	errs := make([]error, senders)
	var repeats atomic.Int64
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := s; i < n && errs[s] == nil; i += senders {
				var tries int
				tries, errs[s] = incidentOn(t.Context(), clients[i%len(clients)], fmt.Sprint("host-", i), check, handler)
				repeats.Add(int64(tries - 1))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return int(repeats.Load())
}

// incidentOn submits an event, again and again for a minute while it is not taken, and returns how often it did.
func incidentOn(ctx context.Context, c *client.Client, entity, check, handler string) (tries int, err error) {
	ev := &resource.Event{
		Metadata: resource.ObjectMeta{Namespace: "default"},
		Entity: &resource.Entity{
			Metadata: resource.ObjectMeta{Name: entity, Namespace: "default"}, EntityClass: resource.EntityProxyClass,
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: check, Namespace: "default"}, Status: 2, Output: "down",
			Handlers: []string{handler}, Executed: time.Now().Unix(),
		},
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		tries++
		if err = client.Put(ctx, c, client.Events, "default", client.EventName(entity, check), ev); err == nil {
			break
		}
	}
	return tries, err
}

// put defines a webhook handler that takes incidents.
func (p *pager) put(t testing.TB, c *client.Client, h *resource.Handler) {
	t.Helper()
	h.Metadata.Namespace, h.Type, h.Filters = "default", "webhook", []string{"is_incident"}
	h.Webhook = &resource.HandlerWebhook{URL: p.URL}
	if err := client.Put(t.Context(), c, client.Handlers, "default", h.Metadata.Name, h); err != nil {
		t.Fatal(err)
	}
}

// TestOneMemberGroupsAndLimits: whatever members own the partitions of the entities, a group is sent once with all of
// them, even if the member that has it dies, and a rate limit counts for the cluster.
func TestOneMemberGroupsAndLimits(t *testing.T) {
	all := newMembers(t, 3, "--event-log-partitions", "6")
	all.start()
	hook := newPager(t)
	var clients []*client.Client
	for _, p := range all {
		clients = append(clients, p.client())
	}
	const n = 30
	t.Run("rate", func(t *testing.T) {
		const perSecond = 3
		hook.put(t, clients[0], &resource.Handler{
			Metadata:  resource.ObjectMeta{Name: "limited"},
			RateLimit: &resource.HandlerRate{PerSecond: perSecond, Burst: 1},
		})
		again := incidents(t, clients, n, "load", "limited")
		// An incident that moves to another member on its way may arrive twice, with one key.
		arrived := func() (entities, keys map[string]bool) {
			entities, keys = map[string]bool{}, map[string]bool{}
			for _, got := range hook.of("load") {
				entities[got.entities[0]], keys[got.key] = true, true
			}
			return entities, keys
		}
		eventually(t, time.Minute, "all incidents arrive", func() bool {
			entities, _ := arrived()
			return len(entities) == n
		})
		all.drained(t, "limited")
		entities, keys := arrived()
		if len(entities) != n || len(keys) > n+again {
			t.Errorf("incidents of %d entities arrived with %d keys, %d were submitted twice", len(entities), len(keys), again)
		}
		got := hook.of("load")
		if took := got[len(got)-1].at.Sub(got[0].at); took < (n-1)*time.Second/perSecond-time.Second {
			t.Errorf("%d incidents arrived in %s, with a limit of %d a second", len(got), took, perSecond)
		}
	})

	// grouped submits incidents until all of them wait in one group, and returns their check. A group that was sent
	// before that shows nothing: the next one waits longer.
	wait := uint32(15)
	grouped := func(t *testing.T) (check string) {
		for {
			hook.put(t, clients[1], &resource.Handler{
				Metadata: resource.ObjectMeta{Name: "team"},
				Group:    &resource.HandlerGroup{By: []string{"check.name"}, Wait: wait},
			})
			check = fmt.Sprint("disk-", wait)
			incidents(t, clients, n, check, "team")
			eventually(t, time.Minute, "the incidents wait in their group, or were sent", func() bool {
				return len(hook.of(check)) > 0 || all.sum("lapwing_handler_parked", "team") >= n
			})
			wait *= 2
			if len(hook.of(check)) == 0 {
				return check
			}
			all.drained(t, "team")
		}
	}
	// once checks that a group has arrived, and nothing else of its check.
	once := func(t *testing.T, check string) {
		eventually(t, 10*time.Minute, "the group arrives", func() bool { return len(hook.of(check)) > 0 })
		all.drained(t, "team")
		keys := map[string]bool{}
		for _, got := range hook.of(check) {
			keys[got.key] = true
			if len(got.entities) != n {
				t.Errorf("%s has %d entities: %v", got.key, len(got.entities), got.entities)
			}
		}
		if len(keys) != 1 {
			t.Errorf("groups arrived with the keys %v", keys)
		}
	}
	t.Run("group", func(t *testing.T) {
		check := grouped(t)
		if groups := all.sum("lapwing_handler_groups", "team"); groups > 1 {
			t.Errorf("%v groups wait", groups)
		}
		once(t, check)
		if got := hook.of(check); len(got) != 1 {
			t.Errorf("%d groups were sent", len(got))
		}
	})
	t.Run("takeover", func(t *testing.T) {
		check := grouped(t)
		for i, p := range all {
			if p.gauge("lapwing_handler_groups", "team") > 0 {
				t.Logf("the group waits at b%d, which is killed", i)
				p.kill(syscall.SIGKILL)
				break
			}
		}
		once(t, check)
	})
}

// TestDeliveriesOutliveTheirDisk: deliveries wait because their receiver refuses them. The member that has them dies,
// and its disk is lost. All of them arrive, each with one key. There are 300; LAPWING_INCIDENTS sets another number.
func TestDeliveriesOutliveTheirDisk(t *testing.T) {
	n := 300
	if number, err := strconv.Atoi(os.Getenv("LAPWING_INCIDENTS")); err == nil {
		n = number
	}
	all := newMembers(t, 3, "--event-log-partitions", "1", "--handler-queue", "50")
	all.start()
	hook := newPager(t)
	hook.refuse(true)
	var clients []*client.Client
	for _, p := range all {
		clients = append(clients, p.client())
	}
	hook.put(t, clients[0], &resource.Handler{
		Metadata: resource.ObjectMeta{Name: "oncall"}, Retry: &resource.HandlerRetry{Backoff: 2, MaxBackoff: 4},
	})
	again := incidents(t, clients, n, "disk", "oncall")
	entitiesOf := func(counts func(page) bool) int {
		entities := map[string]bool{}
		for _, got := range hook.of("disk") {
			if counts(got) {
				entities[got.entities[0]] = true
			}
		}
		return len(entities)
	}
	limit := time.Minute + time.Duration(n)*50*time.Millisecond
	eventually(t, limit, "all have been tried", func() bool { return entitiesOf(func(page) bool { return true }) == n })

	var victim *process
	for _, p := range all {
		if victim == nil || p.gauge("lapwing_handler_parked", "oncall") > victim.gauge("lapwing_handler_parked", "oncall") {
			victim = p
		}
	}
	if parked := victim.gauge("lapwing_handler_parked", "oncall"); parked == 0 {
		t.Error("no deliveries wait")
	}
	victim.kill(syscall.SIGKILL)
	if err := os.RemoveAll(filepath.Join(victim.dir, "state")); err != nil {
		t.Fatal(err)
	}
	hook.refuse(false)
	begin := time.Now()
	eventually(t, limit, "all arrive", func() bool { return entitiesOf(func(got page) bool { return got.taken }) == n })
	t.Logf("%d deliveries arrived within %s", n, time.Since(begin).Round(time.Millisecond))
	keys, repeats := map[string]bool{}, -n
	for _, got := range hook.of("disk") {
		keys[got.entities[0]+" "+got.key] = true
		if got.taken {
			repeats++
		}
	}
	if len(keys) > n+again {
		t.Errorf("%d incidents, %d of them submitted twice, came with %d keys", n, again, len(keys))
	}
	t.Logf("%d of them arrived again", repeats)
}
