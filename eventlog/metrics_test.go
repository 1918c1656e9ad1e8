package eventlog_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// value returns a metric summed over its labels; for a histogram the number of observations.
func value(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			sum := 0.0
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
			return sum
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestMetricsOfWhatIsDurable(t *testing.T) {
	r := prometheus.NewRegistry()
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 2, Registerer: r})
	var acks tally
	acks.all.Add(10)
	for i := range 10 {
		_ = l.Append(event("e", "c", i), &acks, uint64(i))
	}
	acks.all.Wait()
	p := l.Partition("default", "e")
	newest := l.Newest(p)
	if newest == 0 || value(t, r, "lapwing_eventlog_position") != float64(newest) {
		t.Errorf("newest is %d, the position %v", newest, value(t, r, "lapwing_eventlog_position"))
	}
	if _, ok := l.CommittedAt(p, newest); !ok {
		t.Error("the time of the last commit is not known")
	}
	if _, ok := l.CommittedAt(p, newest+1); ok {
		t.Error("the next message has a time already")
	}
	for _, name := range []string{"lapwing_eventlog_commit_seconds", "lapwing_eventlog_append_seconds", "lapwing_disk_free_bytes"} {
		if value(t, r, name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	for _, name := range []string{
		"lapwing_eventlog_pending_records", "lapwing_eventlog_pending_bytes",
		"lapwing_eventlog_pending_age_seconds", "lapwing_eventlog_blocked_appends",
	} {
		if v := value(t, r, name); v != 0 {
			t.Errorf("%s is %v although all is durable", name, v)
		}
	}
}

func TestMetricsOfALogThatTakesNothing(t *testing.T) {
	r := prometheus.NewRegistry()
	l, stop := start(t, t.TempDir(), eventlog.Options{Partitions: 1, MinFree: 1 << 62, MaxPending: 200, Registerer: r})
	blocked := make(chan error)
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			err = l.Append(event("e", "c", i), nil, 0)
		}
		blocked <- err
	}()
	for value(t, r, "lapwing_eventlog_blocked_appends") == 0 {
		runtime.Gosched() // the append blocks on a condition, which sends no signal
	}
	records, bytes := value(t, r, "lapwing_eventlog_pending_records"), value(t, r, "lapwing_eventlog_pending_bytes")
	// The writer may hold one commit; the buffer behind it is over its limit.
	if records < 2 || bytes <= value(t, r, "lapwing_eventlog_pending_limit_bytes") {
		t.Errorf("%v records, %v bytes are pending", records, bytes)
	}
	if age := value(t, r, "lapwing_eventlog_pending_age_seconds"); age <= 0 || age > 60 {
		t.Errorf("the oldest is %v s old", age)
	}
	if free, reserve := value(t, r, "lapwing_disk_free_bytes"), value(t, r, "lapwing_disk_reserve_bytes"); free >= reserve {
		t.Errorf("%v bytes are free, %v are wanted", free, reserve)
	}
	if err := l.TryAppend(event("e", "c", 1), nil, 0); !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("an append that does not wait ended with %v", err)
	}
	l.StopWaiting()
	if err := <-blocked; !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("append ended with %v", err)
	}
	if err := l.Append(event("e", "c", 1), nil, 0); !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("the next append ended with %v", err)
	}
	stop()
	if err := l.TryAppend(event("e", "c", 1), nil, 0); !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("an append after Stop ended with %v", err)
	}
	if n, s := value(t, r, "lapwing_eventlog_blocked_total"), value(t, r, "lapwing_eventlog_blocked_seconds_total"); n == 0 || s <= 0 {
		t.Errorf("%v appends waited %v s", n, s)
	}
}

// TestKeepalivesDoNotWaitBehindResults: in a partition full of results, results have to wait, a keepalive and a
// deadline have room, and waiting results go on in their order.
func TestKeepalivesDoNotWaitBehindResults(t *testing.T) {
	r := prometheus.NewRegistry()
	l, stop := start(t, t.TempDir(), eventlog.Options{Partitions: 1, MinFree: 1 << 62, MaxPending: 4000, Registerer: r})
	defer stop()
	var err error
	for i := 0; err == nil; i++ {
		err = l.TryAppend(event("e", "c", i), nil, 0)
	}
	for l.Room(0) { // the writer takes the first commit at some time, and no second one
		if err = l.TryAppend(event("e", "c", 0), nil, 0); err != nil {
			runtime.Gosched()
		}
	}
	for _, flag := range []eventlog.Flags{eventlog.FlagKeepalive, eventlog.FlagDeadline} {
		rec := event("e", "keepalive", 1)
		rec.Flags |= flag
		if err := l.TryAppend(rec, nil, 0); err != nil {
			t.Errorf("flags %b: %v", flag, err)
		}
	}
	if err := l.TryAppend(event("e", "c", 1), nil, 0); !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("a result: %v", err)
	}
	l.StopWaiting()
}
