package store

import (
	"fmt"
	"testing"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// A clean stop while the slots from before a crash are still being found: the next start must go on with that.
func TestStopDuringRecover(t *testing.T) {
	b := newBackfill(t, Options{Policy: fixed(policy(series.Sum, 0, threeArchives...))})
	now := b.clock.t.Load()
	for i := range int64(24) {
		b.clock.t.Store(now + i*10)
		for n := range 500 {
			b.put(fmt.Sprint("s", n), now+i*10, 1)
		}
		b.drain()
	}
	c := b.killed()
	if err := c.s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	d := c.reopen(c.o.Dir)
	for i := range int64(360) {
		d.clock.t.Store(now + 240 + i*10)
		for n := range 500 {
			d.put(fmt.Sprint("s", n), now+240+i*10, 1)
		}
		if i%20 == 0 {
			d.drain()
		}
	}
	d.drain()
	for n := range 500 {
		name := fmt.Sprint("s", n)
		d.compare(name, d.ms[name], now-4*86400, now+3900)
	}
}
