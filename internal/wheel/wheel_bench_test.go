package wheel

import (
	"testing"
	"time"
)

// BenchmarkArm measures a first keepalive.
func BenchmarkArm(b *testing.B) {
	w, err := New(Options{Due: func(uint64) (int64, bool) { return 0, false }, Fire: func(uint64) {}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range b.N {
		w.Arm(uint64(i), w.base+int64(i%120_000))
	}
}

// BenchmarkTurn turns over 3 million ids whose deadlines move all the time, as those of a healthy fleet do, with 30 s
// TTLs. One turn is one tick; ns/id is the cost of calling Due and filing the id again.
func BenchmarkTurn(b *testing.B) {
	const n = 3_000_000
	var now int64
	w, err := New(Options{
		Now:  func() time.Time { return time.UnixMilli(now) },
		Due:  func(id uint64) (int64, bool) { return now + 15_000 + int64(id%15_000), true },
		Fire: func(uint64) { b.Error("fired") },
	})
	if err != nil {
		b.Fatal(err)
	}
	for id := range uint64(n) {
		w.Arm(id, int64(id%30_000))
	}
	asked := 0
	due := w.opts.Due
	w.opts.Due = func(id uint64) (int64, bool) { asked++; return due(id) }
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		now += w.tick
		w.turn()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(asked), "ns/id")
	b.ReportMetric(float64(asked)/float64(b.N), "ids/op")
}
