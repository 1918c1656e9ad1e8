package telemetry

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestHostCPU(t *testing.T) {
	got := hostCPU([]byte("cpu  100 10 200 4000 50 1 2 30 77 7\ncpu0 50 5 100 2000 25 0 1 15 38 3\nintr 1\n"))
	if want := map[string]float64{"busy": 3.13, "idle": 40, "iowait": 0.5, "steal": 0.3}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, text := range []string{"", "cpu 1 2 3\n", "cpu a b c d e f g h\n", "intr 1 2 3 4 5 6 7 8 9\n"} {
		if got := hostCPU([]byte(text)); got != nil {
			t.Errorf("%q gave %v", text, got)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	const total = 8 << 30
	f := func(want uint64, files map[string]string) {
		t.Helper()
		root := t.TempDir()
		for name, text := range files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(root); got != want {
			t.Errorf("memory limit is %d, want %d", got, want)
		}
	}
	meminfo := "MemTotal:        8388608 kB\nMemFree:          100 kB\n"
	f(0, nil)
	f(total, map[string]string{"proc/meminfo": meminfo})
	f(total, map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"})
	f(1<<30, map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"})
	f(1<<20, map[string]string{
		"proc/meminfo": meminfo, "proc/self/cgroup": "12:memory:/old\n0::/a/b\n",
		"sys/fs/cgroup/a/memory.max": "1048576\n", "sys/fs/cgroup/a/b/memory.max": "2097152\n",
	})
	// Version 1: a group, one above it, the mount in a container that sees the host's names, no limit.
	const v1 = "sys/fs/cgroup/memory/"
	f(1<<20, map[string]string{
		"proc/meminfo": meminfo, "proc/self/cgroup": "12:memory:/a/b\n3:cpu,cpuacct:/a\n1:name=systemd:/a/b\n0::/a/b\n",
		v1 + "a/b/memory.limit_in_bytes": "1048576\n", v1 + "a/memory.limit_in_bytes": "2097152\n",
		v1 + "memory.limit_in_bytes": "9223372036854771712\n",
	})
	f(1<<20, map[string]string{
		"proc/meminfo": meminfo, "proc/self/cgroup": "4:hugetlb,memory:/a/b\n",
		v1 + "a/b/memory.limit_in_bytes": "2097152\n", v1 + "a/memory.limit_in_bytes": "1048576\n",
	})
	f(1<<30, map[string]string{
		"proc/meminfo": meminfo, "proc/self/cgroup": "12:memory:/docker/0123\n", v1 + "memory.limit_in_bytes": "1073741824\n",
	})
	f(total, map[string]string{
		"proc/meminfo": meminfo, "proc/self/cgroup": "12:memory:/\n7:memorylike:/a\nnonsense\n",
		v1 + "memory.limit_in_bytes": "9223372036854771712\n", v1 + "a/memory.limit_in_bytes": "5\n",
	})
}
