package handler

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// startSeconds returns the sum of a handler's observed start latencies.
func (b *bundle) startSeconds(t *testing.T) (sum float64) {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "lapwing_handler_start_seconds" {
			for _, m := range f.GetMetric() {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}

// TestQueueMetrics: one delivery runs, one waits, and one is spilled.
func TestQueueMetrics(t *testing.T) {
	own := pipe("b", "true")
	own.Concurrency = 3
	b := setup(t, Options{QueueSize: 2, Workers: 1}, pipe("a", "true"), own)
	h := b.hold()
	b.start(t)
	now := time.Now().UnixMilli()
	for i, age := range []int64{20_000, 10_000, 5_000} {
		dl := incident("a", i+1, "e")
		dl.Received = now - age
		b.Dispatch(dl)
	}
	b.Dispatch(incident("b", 4, "e")) // its receipt time is unknown
	<-h.begun
	<-h.begun
	within := func(name string, low, high float64) {
		t.Helper()
		if v := b.metric(t, name, "a"); v < low || v > high {
			t.Errorf("%s is %v, want %v to %v", name, v, low, high)
		}
	}
	within("lapwing_handler_dispatched_total", 3, 3)
	within("lapwing_handler_spilled_total", 1, 1)
	within("lapwing_handler_queue_spilled", 1, 1)
	within("lapwing_handler_queue_depth", 2, 2)
	size := float64(len(incident("a", 1, "e").Event))
	within("lapwing_handler_queue_bytes", 2*size, 2*size)
	within("lapwing_handler_queue_age_seconds", 20, 80)
	within("lapwing_handler_running", 1, 1)
	within("lapwing_handler_run_age_seconds", 0, 60)
	within("lapwing_handler_runs_total", 0, 0)
	within("lapwing_handler_start_seconds", 1, 1) // one observation
	if v := b.metric(t, "lapwing_handler_queue_age_seconds", "b"); v != 0 {
		t.Errorf("the unknown age is %v", v)
	}
	if sum := b.startSeconds(t); sum < 20 || sum > 80 {
		t.Errorf("the first started %v s after its event", sum)
	}
	if size, workers := b.metric(t, "lapwing_handler_queue_limit"), b.metric(t, "lapwing_handler_workers"); size != 2 || workers != 1 {
		t.Errorf("limits are %v and %v", size, workers)
	}
	within("lapwing_handler_concurrency", 0, 0)
	if n := b.metric(t, "lapwing_handler_concurrency", "b"); n != 3 {
		t.Errorf("the concurrency of b is %v", n)
	}
	close(h.goOn)
	b.finished.wait(4)
	within("lapwing_handler_start_seconds", 3, 3)
	if sum := b.startSeconds(t); sum < 35 || sum > 200 { // the spilled one's receipt time was stored with it
		t.Errorf("they started %v s after their events", sum)
	}
	within("lapwing_handler_runs_total", 3, 3)
}

// TestStoredWithoutReceipt reads a delivery that was stored before deliveries had a receipt time.
func TestStoredWithoutReceipt(t *testing.T) {
	old := []byte{1}
	for _, s := range []string{"id", "e", "c"} {
		old = binary.AppendUvarint(old, uint64(len(s)))
		old = append(old, s...)
	}
	old = append(old, "data"...)
	dl, err := decodeDelivery(resource.Name{Namespace: "default", Name: "a"}, 1, position{2, 3}, old)
	if err != nil {
		t.Fatal(err)
	}
	if dl.ID != "id" || dl.Entity != "e" || dl.Check != "c" || string(dl.Data) != "data" || dl.Received != 0 {
		t.Errorf("read %+v", dl)
	}
}
