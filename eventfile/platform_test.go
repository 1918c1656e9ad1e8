package eventfile

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestPlatform(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats.log")
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "events_total"}, []string{"by", "empty"})
		strange := prometheus.NewGauge(prometheus.GaugeOpts{Name: "strange"})
		seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{1}})
		registry.MustRegister(events, strange, seconds)
		strange.Set(math.NaN())
		seconds.Observe(0.5)
		events.WithLabelValues("a b,c=d\ne\\", "").Add(2)
		opts := DefaultPlatformOptions()
		opts.Path, opts.Gatherer, opts.Registerer = path, registry, prometheus.NewRegistry()
		p, err := NewPlatform(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(opts.Interval - time.Nanosecond)
		synctest.Wait()
		if got, _ := os.ReadFile(path); len(got) > 0 {
			t.Errorf("before the interval the file has %q", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		sample := `events_total,by=a\ b\,c\=d\ e\\  value=2 %[1]d
seconds_bucket,le=1 value=1 %[1]d
seconds_sum value=0.5 %[1]d
seconds_count value=1 %[1]d
seconds_bucket,le=+Inf value=1 %[1]d
`
		first, _ := os.ReadFile(path)
		want := fmt.Sprintf(sample, time.Now().UnixNano())
		if string(first) != want {
			t.Errorf("file has\n%swant\n%s", first, want)
		}

		// Another program renames the file, as logrotate does before SIGHUP.
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		p.Reopen()
		time.Sleep(opts.Interval)
		synctest.Wait()
		want = fmt.Sprintf(sample, time.Now().UnixNano())
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("after Reopen the file has\n%swant\n%s", got, want)
		}
		if n := testutil.ToFloat64(p.errors); n != 0 {
			t.Errorf("%v errors", n)
		}
		for range 2 {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestPlatformRefuses(t *testing.T) {
	for _, change := range []func(*PlatformOptions){
		func(o *PlatformOptions) { o.Path = "" },
		func(o *PlatformOptions) { o.Gatherer = nil },
		func(o *PlatformOptions) { o.Interval = 0 },
	} {
		opts := DefaultPlatformOptions()
		opts.Path, opts.Gatherer = "x", prometheus.NewRegistry()
		change(&opts)
		if _, err := NewPlatform(opts); err == nil {
			t.Errorf("%+v is accepted", opts)
		}
	}
}
