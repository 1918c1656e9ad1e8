package pipeline_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/testpool"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// hostile are filters that run for too long or use too much memory.
var hostile = map[string]string{
	"endless": "while (true) {}",
	"greedy":  `var a = []; while (true) a.push("x".repeat(1 << 20) + a.length)`,
	"regular": `/^(a+)+\1$/.test("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")`,
	"throws":  `throw new Error("no")`,
}

// measured has the times, after receipt, at which events of a phase were folded and handled.
type measured struct {
	mu            sync.Mutex
	folded, taken []time.Duration
}

func (m *measured) add(list *[]time.Duration, received int64) {
	took := time.Duration(time.Now().UnixNano() - received)
	m.mu.Lock()
	*list = append(*list, took)
	m.mu.Unlock()
}

// TestHostileFilters sends events through log, fold, router and handlers at a steady rate; one in ten goes to five
// handlers. In the first phase all filters behave, in the second those of four handlers are hostile. It compares the
// time until events are folded, and until they reach the handler whose filter behaves. LAPWING_HOSTILE=RATE,SECONDS
// makes it a measurement:
//
//	LAPWING_HOSTILE=10000,20 go test ./pipeline -run TestHostileFilters -v
func TestHostileFilters(t *testing.T) {
	rate, seconds := 1000, 2
	if text := os.Getenv("LAPWING_HOSTILE"); text != "" {
		if _, err := fmt.Sscanf(text, "%d,%d", &rate, &seconds); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t)
	b.filter("simple", "allow", "event.check.status == 2 && event.check.occurrences >= 1")
	b.handler("good", func(h *resource.Handler) { h.Filters = []string{"is_incident", "simple"} })
	bad, peaceful := []string{"good"}, []string{"good"}
	for name, expression := range hostile {
		b.filter(name, "allow", expression)
		b.handler(name, func(h *resource.Handler) { h.Filters = []string{"is_incident", name} })
		b.handler("peaceful-"+name, func(h *resource.Handler) { h.Filters = []string{"is_incident", "simple"} })
		bad, peaceful = append(bad, name), append(peaceful, "peaceful-"+name)
	}
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}})
	check(t, err)
	var present atomic.Pointer[measured]
	sender, err := send.New(send.Options{Kinds: map[string]send.Kind{
		"pipe": func(_ context.Context, h *resource.Handler, job send.Job) send.Result {
			if h.Metadata.Name == "good" {
				m := present.Load()
				m.add(&m.taken, job.Event.Timestamp)
			}
			return send.Result{}
		},
	}})
	check(t, err)
	workflows := b.newWorkflows(workflow.Options{Expressions: testpool.Pool(t)})
	handlers, err := handler.New(handler.Options{
		DB: db, Log: b.log, Config: b.config.Snapshot, QueueSize: 100_000, Workflows: workflows, Sender: sender,
		Present: func(_, _, _ string) (*resource.Event, error) { return nil, nil }, OnCall: oncall.New(b.config.Snapshot, calendar.New(nil)),
	})
	check(t, err)
	router := b.newRouter(pipeline.Options{Workflows: workflows, Handlers: handlers})
	for p := range b.log.Partitions() {
		check(t, handlers.Own(p, 0))
	}
	check(t, handlers.Start(t.Context()))
	t.Cleanup(func() {
		check(t, handlers.Stop())
		check(t, db.Close())
	})
	b.onRoute = func(a *state.Applied) {
		ev, err := a.Event()
		check(t, err)
		router.Route(a)
		handlers.Routed(a.Partition, a.Seq)
		m := present.Load()
		m.add(&m.folded, ev.Timestamp)
	}
	phase := func(names []string) (folded, taken [3]time.Duration) {
		now := &measured{}
		present.Store(now)
		sent, handled := 0, 0
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		begin := time.Now()
		for sent < rate*seconds {
			for due := int(time.Since(begin).Seconds() * float64(rate)); sent < min(due, rate*seconds); sent++ {
				// The timestamp is the time of receipt, here in nanoseconds.
				name := "c" + strconv.Itoa(sent%200)
				var to []string
				var flags eventlog.Flags
				if sent%10 == 0 {
					to, flags = names, eventlog.FlagHandlers
					handled++
				}
				ev := &resource.Event{Timestamp: time.Now().UnixNano(), Check: &resource.Check{
					Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Status: 2, Interval: 60, Handlers: to, Output: "out",
				}}
				rec := eventlog.Record{
					Kind: eventlog.KindEvent, Flags: flags, Namespace: "default", Entity: "e", Check: name,
					Status: 2, Executed: int64(sent), Body: ev.AppendProto(nil),
				}
				check(t, b.log.Append(&rec, ignore{}, 0))
			}
			<-tick.C // the next batch of a steady rate
		}
		for deadline := time.Now().Add(time.Minute); ; {
			now.mu.Lock()
			done := len(now.taken) >= handled && len(now.folded) >= sent
			now.mu.Unlock()
			if done {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d events reached the handler that behaves", len(now.taken), handled)
			}
			<-tick.C
		}
		now.mu.Lock()
		defer now.mu.Unlock()
		return percentiles(now.folded), percentiles(now.taken)
	}
	phase(peaceful) // warms up
	foldedWithout, takenWithout := phase(peaceful)
	foldedWith, takenWith := phase(bad)
	t.Logf("%d events/s; p50, p99, most", rate)
	t.Logf("folded,  without hostile filters: %v; with: %v", foldedWithout, foldedWith)
	t.Logf("handled, without hostile filters: %v; with: %v", takenWithout, takenWith)
	// A busy machine slows down everything. Hostile filters must not delay the rest for as long as they run.
	if limit := max(10*takenWithout[1], 2*time.Second); takenWith[1] > limit {
		t.Errorf("99%% of the events take up to %v with hostile filters, and %v without", takenWith[1], takenWithout[1])
	}
}

type ignore struct{}

func (ignore) Logged(uint64, int, uint64, error) {}

// percentiles returns the median, the 99th percentile and the maximum.
func percentiles(list []time.Duration) (p [3]time.Duration) {
	if len(list) == 0 {
		return p
	}
	slices.Sort(list)
	for i, at := range []int{len(list) / 2, len(list) * 99 / 100, len(list) - 1} {
		p[i] = list[at].Round(10 * time.Microsecond)
	}
	return p
}
