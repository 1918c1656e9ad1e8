package state

import (
	"fmt"
	"testing"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// BenchmarkFold times the fold of one event of an agent, without the log before it and the pipeline behind it:
//
//	go test ./state -run xxx -bench 'Fold|Start' -benchmem -count 6
func BenchmarkFold(b *testing.B) {
	bn := newBench(b, 1)
	p := bn.state.parts[0]
	const entities, checks = 500, 20
	records := make([]eventlog.Record, 0, entities*checks)
	for e := range entities {
		for c := range checks {
			check := fmt.Sprint("check-", c)
			ev := resource.Event{Timestamp: 1, Check: &resource.Check{
				Metadata: resource.ObjectMeta{Name: check, Namespace: "default"}, Command: "true", Interval: 10, Output: "all is well",
			}}
			records = append(records, eventlog.Record{
				Kind: eventlog.KindEvent, Namespace: "default", Entity: fmt.Sprint("host-", e), Check: check, Flags: eventlog.FlagFromAgent,
				Epoch: uint64(e + 1), Body: ev.AppendProto(nil),
			})
		}
	}
	next := uint64(1 << 30)
	fold := func() {
		next++
		r := records[next%uint64(len(records))]
		r.Sequence, r.Executed = next, int64(next>>10)
		p.applyEvent(next<<subBits, &r, 0, false)
	}
	for range records {
		fold()
	}
	b.ReportAllocs()
	for b.Loop() {
		fold()
	}
}

// BenchmarkStart times a start that replays 100,000 events in four partitions.
func BenchmarkStart(b *testing.B) {
	bn := newBench(b, 4)
	_ = bn.state.Stop()
	bn.open(func(o *Options) { o.WriteDelay = 1 << 50 })
	const events, batch = 100_000, 1000
	done := make(ack, batch)
	for i := range events {
		check := fmt.Sprint("check-", i%20)
		ev := resource.Event{Timestamp: 1, Check: &resource.Check{Metadata: resource.ObjectMeta{Name: check}, Executed: int64(i),
			Output: "all is well"}}
		r := eventlog.Record{
			Kind: eventlog.KindEvent, Namespace: "default", Entity: fmt.Sprint("host-", i/20%1000), Check: check, Executed: int64(i),
			Body: ev.AppendProto(nil),
		}
		if err := bn.log.Append(&r, done, 0); err != nil {
			b.Fatal(err)
		}
		if i%batch == batch-1 {
			for range batch {
				<-done
			}
		}
	}
	for b.Loop() {
		bn.crash()
		bn.open(func(o *Options) { o.WriteDelay = 1 << 50 })
	}
}
