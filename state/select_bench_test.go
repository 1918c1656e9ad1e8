package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// BenchmarkSelect times the first page of 100 events of 400,000: 10 for each of 40,000 entities, in 2 partitions. Half
// of the questions find less than a page, so that all 400,000 must be visited.
//
//	go test -run '^$' -bench Select -benchmem ./state
func BenchmarkSelect(b *testing.B) {
	const entities, checks = 40_000, 10
	fleet := make(map[string]*resource.EntityConfig, entities)
	bn := newBench(b, 2)
	bn.state.opts.Entity = func(_, name string) (*resource.EntityConfig, bool) { c, ok := fleet[name]; return c, ok }
	rec := eventlog.Record{Kind: eventlog.KindEvent, Namespace: "default", Received: time.Now().UnixMilli()}
	for c := range checks {
		for e := range entities {
			name := fmt.Sprintf("web-%05d", e)
			if c == 0 {
				fleet[name] = &resource.EntityConfig{
					Metadata:    resource.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"region": fmt.Sprintf("r%d", e%50)}},
					EntityClass: "agent", Subscriptions: []string{"linux", "entity:" + name},
				}
			}
			ev := resource.Event{Timestamp: int64(1_700_000_000 + e), Check: &resource.Check{
				Metadata: resource.ObjectMeta{Name: fmt.Sprintf("check-%d", c), Namespace: "default"}, Executed: int64(1_700_000_000 + e),
				Subscriptions: []string{"linux", fmt.Sprintf("group-%d", c)}, Handlers: []string{"slack"}, Output: "everything is as it should be\n",
			}}
			if e%100 == c { // 1 in 100 is critical
				ev.Check.Status = 2
			}
			rec.Entity, rec.Check, rec.Status, rec.Executed = name, ev.Check.Metadata.Name, ev.Check.Status, ev.Check.Executed
			rec.Body = ev.AppendProto(rec.Body[:0])
			bn.fold(rec)
		}
	}
	for _, bc := range []struct{ name, label, field string }{
		{"everything", ``, ``},
		{"critical", ``, `event.check.status == 2`},
		{"none", ``, `event.check.status == 3`},
		{"old", ``, `event.check.status != 0 && event.check.last_ok < now-2h && event.is_silenced == false && event.check.name == check-11`},
		{"region-and-critical", `region == r7`, `event.check.status == 2`},
		{"region-none", `region == nowhere`, ``},
		{"regex", ``, `event.entity.name =~ "9.*9$" && event.check.status > 0 && event.check.name =~ "[89]$"`},
		{"subscription", ``, `group-11 in event.check.subscriptions || nope in event.entity.subscriptions`},
		{"or", `region in [r1, r2]`, `(event.check.status == 2 || event.check.state == flapping) && !event.entity.entity_class == agent`},
	} {
		b.Run(bc.name, func(b *testing.B) {
			sel, err := selector.Parse(bc.label, bc.field)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			found := 0
			for b.Loop() {
				page, err := bn.state.Select(b.Context(), Query{Selector: sel, Limit: 100})
				if err != nil {
					b.Fatal(err)
				}
				found = page.Len()
			}
			b.ReportMetric(float64(found), "found")
		})
	}
}
