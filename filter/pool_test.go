package filter_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
)

func startPool(t *testing.T, opts filter.PoolOptions) *filter.Pool {
	t.Helper()
	p, err := filter.NewPool(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// until polls for a state that must come.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	process.Kill() //nolint:errcheck // it may have ended
}

// TestWorkersGetNothing checks what a worker inherits from the backend.
func TestWorkersGetNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	t.Setenv("LAPWING_SECRET", "hidden")
	secret, err := os.Create(filepath.Join(t.TempDir(), "secret"))
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(secret.Fd())) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		secret.Close()
		syscall.Close(inherited)
	})
	p := startPool(t, filter.PoolOptions{})
	pids := p.PIDs()
	if len(pids) != 1 {
		t.Fatalf("%d workers were started", len(pids))
	}
	proc := fmt.Sprintf("/proc/%d/", pids[0])
	environ, err := os.ReadFile(proc + "environ")
	ours := strings.HasPrefix(string(environ), filter.WorkerVariable+"=") && strings.Count(string(environ), "=") == 3
	if err != nil || !ours || strings.Contains(string(environ), "hidden") {
		t.Errorf("its environment is %q, %v", environ, err)
	}
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		to, err := os.Readlink(proc + "fd/" + f.Name())
		if err == nil && !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "anon_inode:[event") &&
			!strings.HasPrefix(to, "/sys/fs/cgroup/") { // Go's runtime looks there for a CPU quota
			t.Errorf("it has the file %s", to)
		}
	}
	limits, err := os.ReadFile(proc + "limits")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if strings.HasPrefix(line, "Max data size") && strings.Contains(line, "unlimited") {
			t.Error("its memory has no limit")
		}
	}
}

// TestKilledWorkers kills workers beside innocent filters: each question is answered all the same.
func TestKilledWorkers(t *testing.T) {
	p := startPool(t, filter.PoolOptions{MaxPause: time.Millisecond})
	e := engine(func(o *filter.Options) { o.Pool = p })
	done := make(chan struct{})
	var wg sync.WaitGroup
	var answers [4]atomic.Int64
	for i := range answers {
		def := definition("allow", "event.check.status == 2", fmt.Sprintf("event.check.occurrences != %d", 10+i))
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a := e.Ask(t.Context(), def, incident())
				if !a.Passes || len(a.Asked) != 2 || a.Asked[0].Err != nil || a.Asked[1].Err != nil {
					t.Errorf("%+v", a)
				}
				answers[i].Add(1)
			}
		})
	}
	for range 10 {
		var pids []int
		until(t, "a worker", func() bool { pids = p.PIDs(); return len(pids) > 0 })
		kill(t, pids[0])
		until(t, "another worker", func() bool { return !slices.Contains(p.PIDs(), pids[0]) })
		for i := range answers { // a running question is asked once more, not twice
			before := answers[i].Load()
			until(t, "further answers", func() bool { return answers[i].Load() > before+1 })
		}
	}
	close(done)
	wg.Wait()
	if list := p.SetAside(); len(list) != 0 {
		t.Errorf("set aside: %+v", list)
	}
}

// TestWorkersEndWhenIdle keeps one worker.
func TestWorkersEndWhenIdle(t *testing.T) {
	p := startPool(t, filter.PoolOptions{Idle: 50 * time.Millisecond})
	first := p.PIDs()
	e := engine(func(o *filter.Options) { o.Pool = p })
	if !e.Passes(definition("allow", "event.check.status == 2"), incident()) { // a new filter is asked in the slow lane
		t.Error("no answer")
	}
	until(t, "one worker is left", func() bool { return slices.Equal(p.PIDs(), first) })
}

// TestWithoutWorkers has workers that cannot start.
func TestWithoutWorkers(t *testing.T) {
	t.Setenv(filter.WorkerVariable, "none")
	p := startPool(t, filter.PoolOptions{MaxPause: time.Millisecond, Idle: time.Millisecond})
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "start a worker process") {
		t.Errorf("it says %v", err)
	}
	e := engine(func(o *filter.Options) { o.Pool = p })
	a := e.Ask(t.Context(), definition("allow", "event.check.status == 1"), incident())
	if !a.Passes || a.Asked[0].Err == nil || !strings.Contains(a.Asked[0].Err.Error(), "no workers") {
		t.Errorf("a filter says %+v", a)
	}
	if _, _, err := e.Mutate(t.Context(), mutator("return 'x'"), incident(), []byte("{}")); err == nil {
		t.Error("a mutator runs")
	}
	x, err := filter.CompileEntity(p, filter.Definer{Kind: "check"}, "true")
	if err != nil {
		t.Fatal(err)
	}
	if truth, err := x.Matches(router(), nil); truth || err == nil {
		t.Error("an entity matches")
	}
	os.Unsetenv(filter.WorkerVariable)
	until(t, "it starts one after all", func() bool { return p.Err() == nil })
	if e.Passes(definition("allow", "event.check.status == 1"), incident()) {
		t.Error("a filter has no answer")
	}
	e = engine(func(o *filter.Options) { o.Pool = nil })
	if a := e.Ask(t.Context(), definition("allow", "event.check.status == 1"), incident()); !a.Passes || a.Asked[0].Err == nil {
		t.Errorf("without a pool a filter says %+v", a)
	}
}

// TestWorkersDieWithTheBackend kills a process with workers, which thus cannot end them.
func TestWorkersDieWithTheBackend(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	if os.Getenv("LAPWING_BE_A_BACKEND") != "" {
		p := startPool(t, filter.PoolOptions{})
		e := engine(func(o *filter.Options) { o.Pool, o.Budget = p, time.Minute })
		go e.Passes(definition("allow", "while (true) {}"), incident())
		until(t, "two workers", func() bool { return len(p.PIDs()) == 2 })
		fmt.Println("pids", p.PIDs())
		select {} // until it is killed
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWorkersDieWithTheBackend$")
	cmd.Env = append(os.Environ(), "LAPWING_BE_A_BACKEND=yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var pids []string
	for len(pids) == 0 && lines.Scan() {
		if list, ok := strings.CutPrefix(lines.Text(), "pids ["); ok {
			pids = strings.Fields(strings.TrimSuffix(list, "]"))
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	cmd.Wait() //nolint:errcheck // it was killed
	if len(pids) != 2 {
		t.Fatalf("it had the workers %q", pids)
	}
	for _, pid := range pids {
		until(t, "a worker ends with its backend", func() bool {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n))
			return err != nil || strings.Contains(string(status), "State:\tZ")
		})
	}
}
