package telemetry

import (
	"cmp"
	"regexp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// runtimeMetrics are the metrics of the Go runtime that show a shortage of CPU: the wait of runnable goroutines, the
// garbage collector's share, and the wait for locks.
var runtimeMetrics = collectors.GoRuntimeMetricsRule{
	Matcher: regexp.MustCompile(`^/(sched/latencies:seconds|cpu/classes/gc/total:cpu-seconds|sync/mutex/wait/total:seconds)$`),
}

// Registry is RegistryFor a build without a version from the linker.
func Registry() *prometheus.Registry { return RegistryFor("") }

// RegistryFor returns a new registry with the metrics of the Go runtime, of the process, and of the build. The version
// is as in Version.
func RegistryFor(version string) *prometheus.Registry {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lapwing_build_info",
		Help:        "Always 1; the labels tell which build this is.",
		ConstLabels: prometheus.Labels{"version": Version(version), "revision": revision(), "goversion": runtime.Version()},
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

// Version is the name of a build: the version that the linker set, else that of the module, as go install notes it,
// else "dev" with the commit. "" and "dev" count as not set.
func Version(linked string) string {
	bi, _ := debug.ReadBuildInfo()
	return versionOf(linked, bi)
}

func versionOf(linked string, bi *debug.BuildInfo) string {
	if linked != "" && linked != "dev" || bi == nil {
		return cmp.Or(linked, "dev")
	}
	if v := bi.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit := setting(bi, "vcs.revision")
	if commit == "" {
		return "dev"
	}
	v := "dev-" + commit[:min(12, len(commit))]
	if setting(bi, "vcs.modified") == "true" {
		v += "-dirty"
	}
	return v
}

// revision is the commit that the toolchain noted in the binary, or "unknown".
func revision() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(setting(bi, "vcs.revision"), "unknown")
	}
	return "unknown"
}

func setting(bi *debug.BuildInfo, key string) string {
	for _, s := range bi.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
