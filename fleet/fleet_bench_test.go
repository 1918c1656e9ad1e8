package fleet

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// defined is definitions that do not change.
type defined struct{ snapshot *config.Snapshot }

func (d *defined) Snapshot() *config.Snapshot                   { return d.snapshot }
func (d *defined) OnChange(func(config.Change)) (cancel func()) { return func() {} }

// BenchmarkFleet times lists of 40,000 entities with 400,000 events.
//
//	go test -run '^$' -bench Fleet -benchtime 10x ./fleet
func BenchmarkFleet(b *testing.B) {
	const entities, checks = 40_000, 9
	d := &defined{config.Empty()}
	for e := range entities {
		d.snapshot = config.With(d.snapshot, config.Entities, entity(fmt.Sprintf("default/web-%05d", e), "agent",
			map[string]string{"region": fmt.Sprintf("r%d", e%50)}, "linux", fmt.Sprintf("group-%d", e%20), fmt.Sprintf("entity:web-%05d", e)))
	}
	bed := newBed(b, Options{Refresh: time.Hour, Delay: 10 * time.Millisecond}, d)
	at := time.Now().Unix()
	var records []eventlog.Record
	put := func() {
		bed.put(records...)
		records = records[:0]
	}
	for e := range entities {
		name := fmt.Sprintf("default/web-%05d", e)
		records = append(records, report(name, "linux", fmt.Sprintf("6.%d.0", e%7)), result(name+"/keepalive", 0, at))
		for c := range checks {
			status := uint32(0)
			if (e+c)%100 == 0 {
				status = 2
			}
			records = append(records, result(fmt.Sprintf("%s/check-%d", name, c), status, at))
		}
		if len(records) > 10_000 {
			put()
		}
	}
	put()
	records = nil
	b.Run("first window after the start", func(b *testing.B) {
		opts := bed.fleet.opts
		opts.Registerer = nil
		for b.Loop() {
			f, err := New(opts)
			bed.check(err)
			bed.check(f.Start(b.Context()))
			r, err := f.Open(query(b, "default", "", "state"))
			bed.check(err)
			bed.check(r.Ready(b.Context()))
			r.Content().Rows(0, 100)
			bed.check(f.Stop())
		}
	})
	b.Run("memory", func(b *testing.B) {
		t, l := newTable(&bed.fleet.opts, 1), newList(query(b, "default", "", "state"))
		before := heap()
		bed.check(t.survey(b.Context()))
		table := heap()
		snapshot := t.snapshot()
		l.at(snapshot, time.Now(), time.Hour)
		list := heap()
		for b.Loop() {
			runtime.KeepAlive(l)
		}
		b.ReportMetric(float64(table-before)/1e6, "table-MB")
		b.ReportMetric(float64(list-table)/1e6, "list-MB")
		runtime.KeepAlive(t)
	})
	r := bed.open(query(b, "default", "", "state"))
	for name, field := range map[string]string{
		"all": "", "name": "entity.name =~ 77", "os": "entity.system.os == linux", "label": "entity.labels.region == r7",
	} {
		b.Run("first window of a new list/"+name, func(b *testing.B) {
			snapshot, _, _ := bed.fleet.standing()
			q := query(b, "default", field, "state")
			for b.Loop() {
				c := newList(q).at(snapshot, time.Now(), time.Hour)
				c.Counts()
				c.Rows(0, 100)
			}
		})
	}
	b.Run("list after 2000 keepalives", func(b *testing.B) {
		snapshot, _, _ := bed.fleet.standing()
		t := newTable(&bed.fleet.opts, 1)
		bed.check(t.survey(b.Context()))
		l := newList(query(b, "default", "", "state"))
		l.at(t.snapshot(), time.Now(), time.Hour)
		pending := map[resource.Name]bool{}
		for _, row := range snapshot.rows[:2000] {
			pending[resource.NameOf(&row.Config.Metadata)] = true
		}
		for b.Loop() {
			b.StopTimer()
			for name := range pending { // as if they had changed
				row := *t.rows[t.slots[name]]
				row.LastSeen--
				t.rows[row.slot] = &row
			}
			b.StartTimer()
			bed.check(t.take(b.Context(), pending))
			l.at(t.snapshot(), time.Now(), time.Hour)
		}
	})
	b.Run("groups and facets", func(b *testing.B) {
		snapshot, _, _ := bed.fleet.standing()
		l := newList(query(b, "default", "", "state"))
		label, _ := ParseGroup("label:region")
		subscription, _ := ParseGroup("subscription")
		for b.Loop() {
			l.content = nil
			c := l.at(snapshot, time.Now(), time.Hour)
			c.Groups(label)
			c.Facet(subscription)
		}
	})
	b.Run("cells", func(b *testing.B) {
		label, _ := ParseGroup("label:region")
		for b.Loop() {
			r.Content().Cells(label)
		}
	})
}

// heap returns the bytes of the heap that are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
