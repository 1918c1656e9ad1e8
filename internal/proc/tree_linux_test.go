package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// everything is commands whose children leave the process group in all possible ways. Each prints the numbers of the
// children that stay.
var everything = map[string]string{
	"new session":         "setsid sleep 300 & echo $!; wait",
	"handed over to init": "(setsid sleep 300 >/dev/null 2>&1 & echo $!); sleep 300",
	"empty environment":   "setsid env -i sleep 300 & echo $!; wait",
	"ignores signals":     "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep 300; done' & echo $!; wait",
	"left by a dead one":  "setsid sh -c 'sleep 300 & echo $!; exit 0'; sleep 300",
}

func TestTimeoutKillsWhatLeftTheGroup(t *testing.T) {
	for name, command := range everything {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := run(t, Options{Command: command, Timeout: 2 * time.Second})
			if !res.TimedOut || res.KillErr != nil {
				t.Errorf("got %+v", res)
			}
			for _, pid := range pids(t, res.Output) {
				waitGone(t, pid)
			}
		})
	}
}

// TestKillTakesNoTime has a search that is over at once, as on a machine that stood still: what was killed and has not
// left the system yet is no failure.
func TestKillTakesNoTime(t *testing.T) {
	for name, command := range everything {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := running{
				opts: &Options{Command: command, Env: os.Environ()}, output: capture{limit: 1000},
				read: make(chan struct{}), exited: make(chan struct{}),
			}
			if err := r.start(); err != nil {
				t.Fatal(err)
			}
			defer r.tree.close()
			var output []byte
			for deadline := time.Now().Add(time.Minute); !bytes.HasSuffix(output, []byte("\n")); output, _ = r.output.taken() {
				if time.Now().After(deadline) {
					t.Fatal("the command says nothing")
				}
				time.Sleep(5 * time.Millisecond) // between checks for a state that must come
			}
			if err := r.tree.hunt(time.Now()); err != nil {
				t.Error(err)
			}
			for _, pid := range pids(t, output) {
				waitGone(t, pid)
			}
			<-r.exited
		})
	}
}

// bomb starts two copies of itself repeatedly, each in its own session, up to a depth.
const bomb = `
mark() { : > "$DIR/$$"; }
if [ "$1" -gt 0 ]; then
	setsid sh "$0" $(($1 - 1)) &
	setsid sh "$0" $(($1 - 1)) &
fi
mark
sleep 300
`

// TestForkBomb starts 2^7 - 1 shells, and as many sleeping processes, in sessions of their own: once while they are
// being killed, and once before. A slow machine gets the time that it needs for the latter.
func TestForkBomb(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "bomb.sh")
	if err := os.WriteFile(script, []byte(bomb), 0o700); err != nil {
		t.Fatal(err)
	}
	all := 0
	for timeout := 100 * time.Millisecond; all < 127 && timeout < 5*time.Minute; timeout *= 10 {
		marks := t.TempDir()
		begin := time.Now()
		res := run(t, Options{Command: "sh " + script + " 6", Env: []string{"PATH=" + os.Getenv("PATH"), "DIR=" + marks}, Timeout: timeout})
		if !res.TimedOut || res.KillErr != nil {
			t.Errorf("got %+v", res)
		}
		t.Logf("timeout %v: back after %v", timeout, time.Since(begin))
		alive, err := os.ReadDir(marks)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range alive {
			pid, err := strconv.Atoi(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			waitGone(t, pid)
		}
		if left := withVariable(t, "DIR="+marks); len(left) > 0 {
			t.Errorf("still there: %v", left)
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		all = len(alive)
	}
	if all != 127 {
		t.Errorf("%d shells came to be, want 127", all)
	}
}

// withVariable are the processes that have a variable.
func withVariable(t *testing.T, variable string) (found []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && marked(env, []byte(variable)) {
			found = append(found, pid)
		}
	}
	return found
}

func TestCgroups(t *testing.T) {
	groups, err := OpenCgroups("lapwing-test")
	if err != nil {
		t.Skipf("no control groups here: %v", err)
	}
	t.Cleanup(func() {
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("kill everything", func(t *testing.T) {
		for name, command := range everything {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				res := run(t, Options{Command: command, Timeout: 2 * time.Second, Cgroups: groups})
				if !res.TimedOut || res.KillErr != nil {
					t.Errorf("got %+v", res)
				}
				for _, pid := range pids(t, res.Output) {
					waitGone(t, pid)
				}
			})
		}
	})
	// The usage of children in the background is counted too.
	res := run(t, Options{Command: "(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done) & wait", Cgroups: groups})
	if res.Status != 0 || res.Usage.CPU < 10*time.Millisecond {
		t.Errorf("got %+v", res)
	}
	res = run(t, Options{Command: "setsid sleep 300 >/dev/null 2>&1 & echo $!", Cgroups: groups})
	left := pids(t, res.Output)[0]
	if err := syscall.Kill(left, syscall.SIGKILL); err != nil {
		t.Errorf("a child in the background did not go on: %v", err)
	}
	waitGone(t, left)
	if groups.CanLimit() {
		res := run(t, Options{Command: "tail /dev/zero", Cgroups: groups, Limits: Limits{Memory: 16 << 20}, Timeout: time.Minute})
		if res.TimedOut || res.Status == 0 {
			t.Errorf("a command with 16 MiB took more: %+v", res)
		}
		return
	}
	_, err = Run(t.Context(), Options{Command: "true", Cgroups: groups, Limits: Limits{CPU: 1}})
	if err == nil || !strings.Contains(err.Error(), "cannot be limited") {
		t.Errorf("limits that cannot be set: %v", err)
	}
}
