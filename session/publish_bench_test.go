package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/schedule"
)

// BenchmarkPublish measures one request to 18,000 agents without the writes: the work of the scheduler's goroutine.
// Agents that have the check in their schedule cost nothing.
//
//	go test ./session -run '^$' -bench Publish -benchmem -benchtime 200x -count 6
func BenchmarkPublish(b *testing.B) {
	const agents = 18_000
	for _, bc := range []struct {
		name          string
		lapwing       bool
		subscriptions []string
	}{
		{"one subscription", false, []string{"linux"}},
		{"two subscriptions", false, []string{"linux", "web"}},
		{"scheduled", true, []string{"linux"}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s := bareServer(time.Second)
			var all []*session
			for i := range agents {
				name := fmt.Sprintf("agent-%05d", i)
				all = append(all, s.member("default", name, bc.lapwing, "linux", "web", "entity:"+name))
			}
			q := newTick("cpu", time.Time{}, bc.subscriptions...)
			q.Assigned = bc.lapwing
			b.ReportAllocs()
			for b.Loop() {
				q.Due = time.Now()
				s.Publish(q)
				b.StopTimer()
				s.pacer.due(nil, time.Now().Add(time.Hour)) // empties the wheel
				s.pacer.current = time.Now().UnixMilli()/slotMillis - 1
				for _, one := range all {
					one.takeRequests()
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkAssign measures one changed check for 40,000 agents. The messages are made but not written.
func BenchmarkAssign(b *testing.B) {
	s := bareServer(time.Second)
	var all []*session
	for i := range 40_000 {
		one := s.member("default", fmt.Sprintf("agent-%05d", i), true, "linux")
		one.plan.stale = false
		all = append(all, one)
	}
	a := []schedule.Assignment{assigned("cpu", "check-cpu.rb -w 75 -c 90", 10, "linux")}
	var out batch
	b.ReportAllocs()
	for b.Loop() {
		s.Assign(a)
		for _, one := range all {
			one.lockPlan(&out)
			one.take(&out, heldNot)
			one.out.turn = 0
			one.mu.Unlock()
		}
		b.StopTimer()
		s.pacer.due(nil, time.Now().Add(time.Hour))
		s.pacer.current = time.Now().UnixMilli()/slotMillis - 1
		b.StartTimer()
	}
}
