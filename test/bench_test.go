package test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// BenchmarkEventPath times an event from an agent's socket to the pipeline's decision, durable, over 50 connections of
// stock (Sensu protocol) agents as fast as the backend takes them. One event in a hundred is not OK and names a handler
// that does not exist, so that the pipeline looks closer at it. Real agents write one frame at a time; with twenty the
// cost of the system calls is shared, and what is left is the path's own. The figures include the sending side, which runs in the
// same process. Run it with
//
//	go test -run '^$' -bench EventPath -benchmem -count 6 ./test
//
// and compare with benchstat.
func BenchmarkEventPath(b *testing.B) {
	for _, perWrite := range []int{1, 20} {
		b.Run(fmt.Sprintf("frames-per-write=%d", perWrite), func(b *testing.B) { benchEventPath(b, perWrite) })
	}
}

func benchEventPath(b *testing.B, perWrite int) {
	const agents = 50
	backend := testbackend.Start(b, func(o *backend.Options) { o.Log.FlushInterval = 20 * time.Millisecond })
	conns := make([]*wire.Conn, agents)
	frames := make([][][]byte, agents)
	for i := range conns {
		name := fmt.Sprintf("agent-%d", i)
		conns[i], _ = backend.DialAgent(b, name, nil)
		readType(b, conns[i])
		write(b, conns[i], testbackend.Keepalive(b, name, wire.Protobuf))
		readType(b, conns[i])
		for c := range 10 {
			frames[i] = append(frames[i], benchFrame(b, name, c, 0), benchFrame(b, name, c, 1))
		}
	}
	before := backend.Counter(b, "lapwing_events_folded_total")
	cpu := cpuTime()
	var mem, memAfter runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.ResetTimer()
	perAgent := b.N/agents + 1
	for i, conn := range conns {
		go func() {
			batch := make([][]byte, 0, perWrite)
			for n := range perAgent {
				f := frames[i][2*(n%10)]
				if n%100 == 99 {
					f = frames[i][2*(n%10)+1]
				}
				if batch = append(batch, f); len(batch) == cap(batch) || n == perAgent-1 {
					if err := conn.WriteBatch(batch); err != nil {
						b.Error(err)
						return
					}
					batch = batch[:0]
				}
			}
		}()
	}
	want := before + float64(perAgent*agents)
	polls := 1
	for ; backend.Counter(b, "lapwing_events_folded_total") < want; polls++ {
		time.Sleep(20 * time.Millisecond) // pause between polls; no result depends on its length
	}
	b.StopTimer()
	runtime.ReadMemStats(&memAfter)
	cpu = cpuTime() - cpu
	polled := float64(polls) * pollMallocs(b, backend)
	n := float64(perAgent * agents)
	b.ReportMetric(n/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(cpu.Microseconds())/n, "cpu-µs/event")
	b.ReportMetric((float64(memAfter.Mallocs-mem.Mallocs)-polled)/n, "mallocs/event")
}

// pollMallocs is the allocations of one read of a counter, which gathers all metrics of the backend.
func pollMallocs(b *testing.B, backend *testbackend.Backend) float64 {
	const polls = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range polls {
		backend.Counter(b, "lapwing_events_folded_total")
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / polls
}

func benchFrame(b *testing.B, agent string, check int, status uint32) []byte {
	ev := testbackend.Event(agent, fmt.Sprintf("check-%d", check), status, 1700000000)
	if status != 0 {
		ev.Check.Handlers = []string{"nobody"}
	}
	ev.Metadata = resource.ObjectMeta{Namespace: "default"}
	frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
	if err != nil {
		b.Fatal(err)
	}
	return frame
}

// cpuTime is the CPU time of this process.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
