package telemetry

import (
	"regexp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// runtimeMetrics are those of the Go runtime that tell whether the process has too little CPU: how long goroutines that
// could run have to wait, what the garbage collector takes, and how long locks are waited for.
var runtimeMetrics = collectors.GoRuntimeMetricsRule{
	Matcher: regexp.MustCompile(`^/(sched/latencies:seconds|cpu/classes/gc/total:cpu-seconds|sync/mutex/wait/total:seconds)$`),
}

// Registry is a new registry with the metrics of the Go runtime, of the process, and of the build.
func Registry() *prometheus.Registry {
	version, revision := build()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lapwing_build_info",
		Help:        "Always 1; the labels tell which build this is.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})
	info.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(runtimeMetrics)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		processCollector{memoryLimit: memoryLimit("/")},
		info,
	)
	return r
}

// build is the module version and the commit that the toolchain noted in the binary, or "unknown".
func build() (version, revision string) {
	version, revision = "unknown", "unknown"
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision
	}
	if bi.Main.Version != "" {
		version = bi.Main.Version
	}
	for _, s := range bi.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}
