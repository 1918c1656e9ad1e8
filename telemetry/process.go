package telemetry

import (
	"bytes"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	writtenDesc     = prometheus.NewDesc("lapwing_process_disk_written_bytes_total", "Bytes that this process had written to disks; Linux only.", nil, nil)
	readDesc        = prometheus.NewDesc("lapwing_process_disk_read_bytes_total", "Bytes that this process had read from disks; Linux only.", nil, nil)
	hostCPUDesc     = prometheus.NewDesc("lapwing_host_cpu_seconds_total", "CPU time of the whole machine, by what became of it: busy, idle, iowait, steal; Linux only.", []string{"mode"}, nil)
	memoryLimitDesc = prometheus.NewDesc("lapwing_process_memory_limit_bytes", "Memory of the machine, or of the process's control group if that is less; Linux only.", nil, nil)
)

// processCollector adds metrics of the process that the Prometheus client's collector lacks. Values that the system
// does not provide are left out.
type processCollector struct{ memoryLimit uint64 }

func (c processCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- writtenDesc
	ch <- readDesc
	ch <- hostCPUDesc
	ch <- memoryLimitDesc
}

func (c processCollector) Collect(ch chan<- prometheus.Metric) {
	if text, err := os.ReadFile("/proc/self/io"); err == nil {
		if n, ok := field(text, "write_bytes:"); ok {
			ch <- prometheus.MustNewConstMetric(writtenDesc, prometheus.CounterValue, float64(n))
		}
		if n, ok := field(text, "read_bytes:"); ok {
			ch <- prometheus.MustNewConstMetric(readDesc, prometheus.CounterValue, float64(n))
		}
	}
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		for mode, seconds := range hostCPU(text) {
			ch <- prometheus.MustNewConstMetric(hostCPUDesc, prometheus.CounterValue, seconds, mode)
		}
	}
	if c.memoryLimit > 0 {
		ch <- prometheus.MustNewConstMetric(memoryLimitDesc, prometheus.GaugeValue, float64(c.memoryLimit))
	}
}

// field returns the number after a name at the beginning of a line.
func field(text []byte, name string) (uint64, bool) {
	for line := range bytes.Lines(text) {
		if f := strings.Fields(string(line)); len(f) > 1 && f[0] == name {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// hostCPU sums up the first line of /proc/stat, in hundredths of a second: user, nice, system, idle, iowait, irq,
// softirq, steal, and two that are parts of the first two.
func hostCPU(text []byte) map[string]float64 {
	line, _, _ := strings.Cut(string(text), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return nil
	}
	modes := map[string]float64{}
	for i, mode := range []string{"busy", "busy", "busy", "idle", "iowait", "busy", "busy", "steal"} {
		n, err := strconv.ParseUint(f[i+1], 10, 64)
		if err != nil {
			return nil
		}
		modes[mode] += float64(n) / 100
	}
	return modes
}

// MemoryLimit is the memory that this process can have, in bytes: that of the machine, or of its control group if that
// is less; 0 if unknown.
func MemoryLimit() uint64 { return memoryLimit("/") }

// memoryLimit is MemoryLimit with root as the root of the system's files.
func memoryLimit(root string) uint64 {
	var limit uint64
	if text, err := os.ReadFile(path.Join(root, "proc/meminfo")); err == nil {
		kilobytes, _ := field(text, "MemTotal:")
		limit = kilobytes << 10
	}
	text, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, group
		switch {
		case len(f) < 3:
		case f[0] == "0" && f[1] == "": // version 2
			limit = min(limit, groupLimit(path.Join(root, "sys/fs/cgroup"), f[2], "memory.max"))
		case slices.Contains(strings.Split(f[1], ","), "memory"): // version 1
			limit = min(limit, groupLimit(path.Join(root, "sys/fs/cgroup/memory"), f[2], "memory.limit_in_bytes"))
		}
	}
	return limit
}

// groupLimit is the smallest number in the files of that name of a control group and of all groups above it, up to the
// mount; math.MaxUint64 if there is none. In a container the group's name may be the host's, and then only the mount
// itself has the file.
func groupLimit(mount, group, name string) uint64 {
	limit := uint64(math.MaxUint64)
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		text, err := os.ReadFile(path.Join(mount, group, name))
		if n, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
			limit = min(limit, n)
		}
		if group == "/" {
			return limit
		}
	}
}
