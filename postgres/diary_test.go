package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const showTimes = `SELECT kind, name, object #>> '{metadata,labels,v}', extract(epoch FROM since - '2026-11-01')::int,
	extract(epoch FROM until - '2026-11-01')::int FROM lapwing_data.definition ORDER BY kind, name, since`

// TestRealDefinitionsOfAnOutage has silences and an entity change while nothing can be written. PostgreSQL gets each
// version with its times, also if another member writes them, and only once.
func TestRealDefinitionsOfAnOutage(t *testing.T) {
	dsn := testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN()
	a, b := newDefiner(t, dsn), newDefiner(t, dsn)
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	silence := func(expire int) *resource.Silenced {
		s := &resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "default", Name: "linux:*"}, Subscription: "linux"}
		if expire > 0 {
			s.ExpireAt = at(expire).Unix()
		}
		return s
	}
	both := func(second int, sn *config.Snapshot) {
		for _, w := range []*definer{a, b} {
			w.p.diary.look(func() *config.Snapshot { return sn }, at(second))
			w.now = sn
		}
	}
	both(0, snapshot(entity("web1", "v", "1")))
	a.look()
	execute(t, dsn, `UPDATE lapwing_data.definition SET since = '2026-11-01';
		UPDATE lapwing_data.definition_position SET written = '2026-11-01'`)
	a.definitions = definitions{} // the connection breaks
	both(10, config.With(a.now, config.Silences, silence(0)))
	both(20, snapshot(entity("web1", "v", "2")))
	both(30, config.With(a.now, config.Silences, silence(35)))
	both(40, snapshot(entity("web1", "v", "2"), entity("web2", "v", "1"))) // it removes an expired silence late
	both(50, snapshot(entity("web1", "v", "1")))
	const versions = `Entity web1 1 0 20
Entity web1 2 20 50
Entity web1 1 50 <nil>
Entity web2 1 40 50
Silenced linux:* <nil> 10 20
Silenced linux:* <nil> 30 35`
	b.look()
	b.want(showTimes, versions)
	a.look() // has the same changes
	a.want(showTimes, versions)
	both(60, snapshot(entity("web1", "v", "3")))
	a.look()
	a.want(showTimes+" DESC LIMIT 3", `Entity web1 3 60 <nil>
Entity web1 1 50 60
Entity web1 2 20 50`)

	// The clock of the member that wrote before was ahead: what comes now is newer all the same.
	execute(t, dsn, "UPDATE lapwing_data.definition SET since = '2026-11-01 00:01:10' WHERE until IS NULL AND name = 'web1'")
	a.definitions = definitions{}
	a.look()
	both(65, snapshot(entity("web1", "v", "4")))
	a.look()
	a.want(`SELECT object #>> '{metadata,labels,v}', extract(epoch FROM since - '2026-11-01')::int
		FROM lapwing_data.definition WHERE until IS NULL AND name = 'web1'`, "4 70")
}

func TestDiaryIsBounded(t *testing.T) {
	var d diary
	sn := config.Empty()
	look := func(now *config.Snapshot, second int64) {
		d.look(func() *config.Snapshot { return now }, time.Unix(second, 0))
	}
	look(sn, 0)
	for i := range maxDiary {
		sn = config.With(sn, config.Entities, entity(fmt.Sprint(i)))
	}
	look(sn, 1)
	if all, next, ok := d.from(0); len(all) != maxDiary || next != maxDiary || !ok {
		t.Fatalf("%d changes, next %d, %v", len(all), next, ok)
	}
	look(config.With(sn, config.Entities, entity("x")), 2)
	if all, next := d.since(time.Unix(0, 0)); len(all) != maxDiary/2 || next != maxDiary+1 || all[len(all)-1].name != "x" {
		t.Errorf("%d changes, next %d", len(all), next)
	}
	look(sn, 1) // by a clock that was read earlier
	if all, _ := d.since(time.Unix(2, 0)); len(all) != 1 || all[0].object != nil {
		t.Errorf("after the second 2: %+v, want the end of x", all)
	}
	if _, _, ok := d.from(maxDiary / 2); ok {
		t.Error("a change that is forgotten is said to be there")
	}
	d.forget(time.Unix(2, 0))
	if all, next, ok := d.from(maxDiary); len(all) != 2 || next != maxDiary+2 || !ok {
		t.Errorf("%d changes after forgetting, next %d, %v", len(all), next, ok)
	}
	d.close()
	look(config.Empty(), 3)
	if all, next, ok := d.from(maxDiary + 2); len(all) != 0 || next != maxDiary+2 || !ok {
		t.Errorf("%d changes after closing, next %d, %v", len(all), next, ok)
	}
}
