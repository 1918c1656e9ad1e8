//go:build unix

package store

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

func benchStore(tb testing.TB, o Options) (*Store, *clock) {
	tb.Helper()
	c := newClock(start0)
	o.Dir = tb.TempDir()
	o.Now = c.now
	o.MinFreeBytes = -1
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s, c
}

func openMany(tb testing.TB, s *Store, n int) [][]Sample {
	tb.Helper()
	shards := make([][]Sample, s.Shards())
	for i := range n {
		se, err := s.Open(fmt.Sprintf("servers.host%05d.cpu.total.metric%03d", i/250, i%250))
		if err != nil {
			tb.Fatal(err)
		}
		shards[se.Shard()] = append(shards[se.Shard()], Sample{Series: se})
	}
	return shards
}

func putRound(tb testing.TB, s *Store, shards [][]Sample, sec int64) {
	for id, samples := range shards {
		for i := range samples {
			samples[i].Time = sec * 1000
			samples[i].Value = float64((sec + int64(i)) % 100)
		}
		for rest := samples; len(rest) > 0; {
			n := min(500, len(rest))
			if err := s.Put(context.Background(), id, rest[:n]); err != nil {
				tb.Fatal(err)
			}
			rest = rest[n:]
		}
	}
}

// How long a point takes from Put to a committed append, with one and with three archives: one op is a point.
//
//	go test -run - -bench Put -benchtime 2500000x -benchmem ./metric/store/
func BenchmarkPut(b *testing.B) {
	for _, archives := range [][]series.Archive{
		{{Step: 10, Points: 2160}},
		{{Step: 10, Points: 2160}, {Step: 60, Points: 10080}, {Step: 3600, Points: 8760}},
	} {
		for _, compress := range []bool{false, true} {
			b.Run(fmt.Sprintf("archives=%d/snappy=%v", len(archives), compress), func(b *testing.B) {
				const count = 250_000
				s, c := benchStore(b, Options{Policy: fixed(policy(series.Average, 0.5, archives...)), Compress: compress})
				shards := openMany(b, s, count)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				sec := int64(start0)
				for range 7 { // create all series in all tiers but the coarsest
					putRound(b, s, shards, sec)
					sec += 10
					c.t.Store(sec)
				}
				flushBench(b, s)
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportAllocs()
				b.ResetTimer()
				begin := cpuTime(b)
				n := 0
				for ; n < b.N; n += count {
					putRound(b, s, shards, sec)
					sec += 10
					c.t.Store(sec)
				}
				flushBench(b, s)
				b.StopTimer()
				b.ReportMetric(float64((cpuTime(b)-begin).Nanoseconds())/float64(n), "cpu-ns/point")
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "B/series")
				if st := s.Stats(); st.Points != int64(7*count+n) {
					b.Fatalf("%+v", st)
				}
			})
		}
	}
}

// cpuTime is the time that all of the process's threads have run, so that other processes do not count.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How much memory a series needs with one, two and three archives, of which all have values.
//
//	go test -run - -bench Memory -benchtime 1x ./metric/store/
func BenchmarkMemory(b *testing.B) {
	archives := []series.Archive{{Step: 10, Points: 2160}, {Step: 20, Points: 2160}, {Step: 40, Points: 2160}}
	for n := 1; n <= len(archives); n++ {
		b.Run(fmt.Sprintf("archives=%d", n), func(b *testing.B) {
			for b.Loop() {
				const count = 100_000
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				s, c := benchStore(b, Options{Policy: fixed(policy(series.Average, 0.5, archives[:n]...))})
				shards := openMany(b, s, count)
				for sec := int64(start0); sec < start0+200; sec += 10 {
					c.t.Store(sec)
					putRound(b, s, shards, sec)
				}
				flushBench(b, s)
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "B/series")
				b.ReportMetric(float64(s.memory())/count, "estimate-B/series")
				runtime.KeepAlive(shards)
			}
		})
	}
}

func flushBench(b *testing.B, s *Store) {
	if err := s.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// How long reading 6 h of values every 10 s takes: one op is one FetchMany.
func BenchmarkFetch(b *testing.B) {
	s, c := benchStore(b, Options{Policy: fixed(policy(series.Average, 0.5, series.Archive{Step: 10, Points: 4320},
		series.Archive{Step: 60, Points: 10080}))})
	shards := openMany(b, s, 1000)
	sec := int64(start0)
	for range 8 * 360 {
		c.t.Store(sec)
		putRound(b, s, shards, sec)
		sec += 10
	}
	flushBench(b, s)
	var names []string
	for _, samples := range shards {
		for _, sm := range samples {
			names = append(names, sm.Series.Name())
		}
	}
	now := c.t.Load()
	for _, count := range []int{1, 10, 100, 1000} {
		for _, back := range []int64{6 * 3600, 24 * 3600} {
			b.Run(fmt.Sprintf("series=%d/hours=%d", count, back/3600), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					rs, err := s.FetchMany(context.Background(), names[:count], now-back, now, now)
					if err != nil || len(rs) != count {
						b.Fatal(len(rs), err)
					}
				}
			})
		}
	}
}

// How long a late point takes that makes two coarse slots wrong: one op is a point of a second that had none. The
// corrector waits meanwhile.
//
//	go test -run - -bench PutLate -benchtime 500000x ./metric/store/
func BenchmarkPutLate(b *testing.B) {
	const count = 5000
	s, c := benchStore(b, Options{Policy: fixed(policy(series.Average, 0.5, series.Archive{Step: 10, Points: 8640},
		series.Archive{Step: 60, Points: 10080}, series.Archive{Step: 3600, Points: 8760}))})
	shards := openMany(b, s, count)
	now := int64(start0 + 86400)
	c.t.Store(now)
	putRound(b, s, shards, now)
	flushBench(b, s)
	s.correctMu.Lock()
	sec := now - 20*3600
	b.ResetTimer()
	begin := cpuTime(b)
	n := 0
	for ; n < b.N; n += count {
		putRound(b, s, shards, sec)
		sec += 60
	}
	for _, sh := range s.shards {
		if err := sh.drain(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-begin).Nanoseconds())/float64(n), "cpu-ns/point")
	s.correctMu.Unlock()
}
