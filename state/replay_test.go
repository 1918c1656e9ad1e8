package state

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// TestPartitionsReplayTogether starts on a log with an event in each of two partitions. Neither replay goes on before
// the other has begun.
func TestPartitionsReplayTogether(t *testing.T) {
	b := newBench(t, 2)
	entities := map[int]string{}
	for i := 0; len(entities) < 2; i++ {
		name := fmt.Sprint("host-", i)
		entities[b.log.Partition("default", name)] = name
	}
	for _, name := range entities {
		b.put(eventlog.Record{Entity: name, Check: "c", Status: 2})
	}
	b.crash()
	var begun sync.WaitGroup
	begun.Add(len(entities))
	all := make(chan struct{})
	go func() {
		begun.Wait()
		close(all)
	}()
	b.route = func(a *Applied) {
		begun.Done()
		select {
		case <-all:
		case <-time.After(time.Minute):
			t.Errorf("partition %d was replayed before the other one began", a.Partition)
		}
	}
	b.open(nil)
}
