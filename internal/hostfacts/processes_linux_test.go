package hostfacts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestProcesses finds a child of the test in the real /proc.
func TestProcesses(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	some, total, err := Processes(t.Context())
	if err != nil || total < len(some) {
		t.Fatalf("%d of %d processes, %v", len(some), total, err)
	}
	byID := map[int32]resource.Process{}
	for i, p := range some {
		byID[p.PID] = p
		if p.Name == "" || p.Status == "" || p.MemoryPercent < 0 || p.MemoryPercent > 1 || p.CPUPercent < 0 || i > 0 && p.PID <= some[i-1].PID {
			t.Errorf("%+v", p)
		}
	}
	me, child := byID[int32(os.Getpid())], byID[int32(cmd.Process.Pid)]
	now := time.Now().Unix()
	if child.Name != "sleep" || int(child.PPID) != os.Getpid() || !child.Running || child.Created > now+60 || child.Created < me.Created-60 {
		t.Errorf("the child is %+v", child)
	}
	if int(me.PPID) != os.Getppid() || me.Name != filepath.Base(os.Args[0]) || !strings.Contains(me.Status, "l") {
		t.Errorf("the test is %+v", me)
	}
}

// stat is a line of /proc/ID/stat.
func stat(pid, ppid, pages int, name string) string {
	return fmt.Sprintf("%d (%s) S %d %d %d 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 1 0 1000 18446744073709551615 %d 18446744073709551615 1 1\n",
		pid, name, ppid, pid, pid, pages)
}

func fakeProc(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"stat": "cpu 1 2 3\nbtime 1700000000\n", "uptime": "1010.00 5.00\n", "meminfo": "MemTotal:  1000 kB\nMemFree: 1 kB\n", "self/stat": "x",
	} {
		files[name] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestProcessesAreBounded: a host with more processes than an entity may have keeps its large ones, and lets the
// kernel's threads go.
func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	const all = resource.MaxProcesses + 300
	files := map[string]string{}
	for pid := 1; pid <= all; pid++ {
		ppid := 1
		if pid <= 100 {
			ppid = kthreadd
		}
		files[strconv.Itoa(pid)+"/stat"] = stat(pid, ppid, pid, "w")
	}
	files[strconv.Itoa(all)+"/stat"] = stat(all, 1, all, strings.Repeat("x", maxComm))
	files[strconv.Itoa(all)+"/cmdline"] = "/opt/" + strings.Repeat("x", 1<<20) + "\x00--flag"
	root := fakeProc(t, files)
	some, total, err := processesIn(t.Context(), root, maxRead)
	if err != nil || total != all || len(some) > resource.MaxProcesses || len(some) < 700 {
		t.Fatalf("%d of %d, %v", len(some), total, err)
	}
	if b := (&resource.System{Processes: some}).AppendProto(nil); len(b) > resource.MaxProcessBytes+10 {
		t.Errorf("%d bytes", len(b))
	}
	if first, last := some[0], some[len(some)-1]; int(first.PID) != all-len(some)+1 || last.PID != all || len(last.Name) > resource.MaxProcessText {
		t.Errorf("from %+v to %+v", first, last)
	}
	if some, total, err = processesIn(t.Context(), root, 10); err != nil || total != all || len(some) != 10 {
		t.Errorf("of ten that may be read: %d of %d, %v", len(some), total, err)
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	h := hostNow{booted: 1_700_000_000, uptime: 1010, memory: 1000 << 10, pageSize: 1024}
	got, err := parseStat([]byte(stat(7, 1, 250, "a) (b c")), h)
	want := resource.Process{Name: "a) (b c", PID: 7, PPID: 1, Status: "Ss", Background: true, Running: true, Created: 1_700_000_010,
		MemoryPercent: 0.25, CPUPercent: 0.002}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	line := "9 (zsh) Z 7 9 7 34816 9 0 1 2 3 4 0 0 7 8 20 -5 2 0 200000 0 0\n"
	got, err = parseStat([]byte(line), h)
	want = resource.Process{Name: "zsh", PID: 9, PPID: 7, Status: "Z<l+", Created: 1_700_002_000}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "7", "7 (a", ")(", "7 (a) S 1 2", strings.Replace(line, "34816", "x", 1), "x" + line} {
		if got, err := parseStat([]byte(bad), h); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(stat(7, 1, 250, "a) (b c")))
	f.Add([]byte("1 (x)"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseStat(b, hostNow{uptime: 1, memory: 1, pageSize: 1}); err == nil && p.Status == "" {
			t.Errorf("%q is %+v", b, p)
		}
	})
}
