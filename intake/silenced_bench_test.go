package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
)

// silencing is an intake that can only match silences, for that many entities with a region each.
func silencing(t testing.TB, entities int) (*Intake, []eventlog.Record, [][]byte) {
	t.Helper()
	store := testconfig.Store(t)
	i := &Intake{opts: Options{Config: store, Silences: silence.NewMatcher(nil, nil)}, metrics: newMetrics(nil)}
	var records []eventlog.Record
	var bodies [][]byte
	for n := range entities {
		name := fmt.Sprint("web", n)
		if err := config.Put(t.Context(), store, config.Entities, &resource.EntityConfig{
			Metadata:    resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"region": fmt.Sprint("r", n)}},
			EntityClass: "agent", Subscriptions: []string{"linux", "entity:" + name},
		}); err != nil {
			t.Fatal(err)
		}
		ev := resource.Event{
			Timestamp: 1_700_000_000, ID: resource.NewEventID(), Entity: &resource.Entity{
				Metadata: resource.ObjectMeta{Namespace: "default", Name: name},
			},
			Check: &resource.Check{
				Metadata: resource.ObjectMeta{Namespace: "default", Name: "disk"}, Command: "check-disk", Interval: 10, Handlers: []string{"slack"},
				Subscriptions: []string{"linux"}, Status: 2, Executed: 1_700_000_000, Output: "80 % used of /var/lib",
			},
		}
		records = append(records, eventlog.Record{Kind: eventlog.KindEvent, Namespace: "default", Entity: name, Check: "disk", Status: 2})
		bodies = append(bodies, ev.AppendProto(nil))
	}
	return i, records, bodies
}

// ask does the part of taking one event that is about silences.
func (i *Intake) ask(t testing.TB, rec eventlog.Record, body []byte, now time.Time) []string {
	view, err := resource.PeekEvent(body)
	if err != nil {
		t.Fatal(err)
	}
	names, err := i.silencedEncoded(&rec, body, view.Check, view.Entity, false, now)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestSilencesCostNothing: without silences, an event costs no allocation for them.
func TestSilencesCostNothing(t *testing.T) {
	i, records, bodies := silencing(t, 1)
	view, err := resource.PeekEvent(bodies[0])
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() {
		if names, err := i.silencedEncoded(&records[0], bodies[0], view.Check, view.Entity, false, now); names != nil || err != nil {
			t.Error(names, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkSilenced measures what silences add to taking an event of an agent: with none, with one of another check,
// and with 10 and 100 of regions that the entities do not have. All figures include the decoding of the event's
// outline.
//
//	go test ./intake -run '^$' -bench Silenced -benchmem -count 6
func BenchmarkSilenced(b *testing.B) {
	for _, bc := range []struct {
		name             string
		named, selecting int
	}{{"none", 0, 0}, {"named", 10, 0}, {"10 with selectors", 0, 10}, {"100 with selectors", 0, 100}} {
		b.Run(bc.name, func(b *testing.B) {
			const entities = 200
			i, records, bodies := silencing(b, entities)
			for n := range bc.named + bc.selecting {
				s := &resource.Silenced{
					Metadata:      resource.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", n)},
					LabelSelector: fmt.Sprintf("region == none%d", n),
				}
				if n < bc.named {
					s = &resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("*:c%d", n)}, Check: fmt.Sprint("c", n)}
				}
				if err := config.Put(b.Context(), i.opts.Config, config.Silences, s); err != nil {
					b.Fatal(err)
				}
			}
			now, n := time.Now(), 0
			b.ReportAllocs()
			for b.Loop() {
				if i.ask(b, records[n], bodies[n], now) != nil {
					b.Fatal("silenced")
				}
				n = (n + 1) % entities
			}
		})
	}
}
