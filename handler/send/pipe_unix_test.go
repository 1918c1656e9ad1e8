//go:build unix

package send

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func pipe(command string) *resource.Handler {
	h := handler("pipe")
	h.Command = command
	return h
}

func TestPipe(t *testing.T) {
	t.Setenv("LAPWING_SECRET", "not for you")
	t.Setenv("LC_TIME", "C")
	t.Setenv("PASSED_ON", "yes")
	s := setup(t, Options{PassEnv: []string{"PASSED_ON", "NOT_THERE"}})
	f := func(h *resource.Handler, kind string, temporary bool, output, err string) {
		t.Helper()
		res := s.Run(t.Context(), h, Job{ID: "1/a", Data: []byte("data"), Attempt: 2})
		want(t, h.Command, res, kind, temporary, err)
		if string(res.Output) != output {
			t.Errorf("%s: output %q, want %q", h.Command, res.Output, output)
		}
	}
	f(pipe("cat"), KindOK, false, "data", "")
	f(pipe("echo out; echo err >&2; exit 3"), KindFailed, false, "out\nerr\n", "status 3")
	f(pipe("true"), KindOK, false, "", "")
	f(pipe("/no/such/thing 2>/dev/null"), KindFailed, false, "", "status 127")
	f(pipe("echo later; exit 75"), KindFailed, true, "later\n", "status 75")
	f(pipe("kill -9 $$"), KindFailed, false, "", "status 137")

	env := pipe("echo $FOO,$PATH,$LAPWING_DELIVERY_ID,$LAPWING_DELIVERY_ATTEMPT,$LAPWING_SECRET,$LC_TIME,$PASSED_ON")
	env.EnvVars = []string{"FOO=bar", "PATH=/extra", "LAPWING_DELIVERY_ID=forged"}
	f(env, KindOK, false, "bar,/extra:"+os.Getenv("PATH")+",1/a,2,,C,yes\n", "")

	slow := pipe("echo begun; sleep 300")
	slow.Timeout = 1
	f(slow, KindTimeout, false, "begun\n", "killed after 1s")
	slow.Retry = &resource.HandlerRetry{}
	f(slow, KindTimeout, true, "begun\n", "killed after 1s")

	secret := pipe("true")
	secret.Secrets = []resource.Secret{{Name: "A", Secret: "b"}}
	f(secret, KindError, false, "", "secrets")
}

// TestPipeEnvironmentIsDocumented compares the variables that a command gets with the table in docs/handlers.md.
func TestPipeEnvironmentIsDocumented(t *testing.T) {
	for _, name := range []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SYSTEMROOT", "LC_TIME",
		"LAPWING_SECRET", "PASSED_ON", "XDG_DATA_HOME",
	} {
		t.Setenv(name, os.Getenv(name)+"x")
	}
	t.Setenv("PATH", strings.TrimSuffix(os.Getenv("PATH"), "x"))
	s := setup(t, Options{PassEnv: []string{"PASSED_ON"}})
	h := pipe("env")
	h.EnvVars = []string{"FOO=bar"}
	res := s.Run(t.Context(), h, Job{ID: "1/a", Data: []byte("data")})
	want(t, "env", res, KindOK, false, "")
	page, err := os.ReadFile("../../docs/handlers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Environment of commands\n")
	table, _, _ = strings.Cut(table, "\n## ")
	known := map[string]bool{"FOO": true, "PASSED_ON": true, "LC_TIME": strings.Contains(table, "`LC_*`")}
	for i, word := range strings.Split(table, "`") {
		if i%2 == 1 {
			known[word] = true
		}
	}
	got := map[string]bool{}
	for line := range strings.Lines(string(res.Output)) {
		name, _, _ := strings.Cut(line, "=")
		got[name] = true
		if !known[name] && !slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_"}, name) { // those are the shell's
			t.Errorf("the command gets %s, which the table does not name", name)
		}
	}
	for _, name := range []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SYSTEMROOT", "LC_TIME", "PASSED_ON", "FOO", "LAPWING_DELIVERY_ID",
		"LAPWING_DELIVERY_ATTEMPT",
	} {
		if !got[name] || !known[name] {
			t.Errorf("%s: the command gets it: %v, the table names it: %v", name, got[name], known[name])
		}
	}
}

func TestPipeGetsTheEvent(t *testing.T) {
	s := setup(t, Options{})
	res := s.Run(t.Context(), pipe("cat"), job(event(2)))
	want(t, "event", res, KindOK, false, "")
	if out := string(res.Output); !strings.Contains(out, `"name":"disk"`) || strings.Contains(out, "s3cret") {
		t.Errorf("got %s", out)
	}
	res = s.Run(t.Context(), pipe("wc -c"), Job{Event: event(2), Mutated: true})
	if got := strings.TrimSpace(string(res.Output)); got != "0" {
		t.Errorf("of empty data the command got %s bytes", got)
	}
	want(t, "nothing", s.Run(t.Context(), pipe("cat"), Job{}), KindError, false, "no event")
}

func TestPipeHasABoundOfItsOwn(t *testing.T) {
	s := setup(t, Options{MaxRun: 100 * time.Millisecond})
	h := pipe("sleep 300")
	h.Timeout = 0
	want(t, "sleep", s.Run(t.Context(), h, job(event(2))), KindTimeout, false, "killed after 100ms")
}

func TestPipeIsKilledWithTheContext(t *testing.T) {
	s := setup(t, Options{})
	ctx, cancel := timeoutContext(t, 50*time.Millisecond)
	defer cancel()
	if res := s.Run(ctx, pipe("sleep 300"), job(event(2))); res.Err == nil || !res.Temporary {
		t.Errorf("got %+v", res)
	}
}

func TestPipeAssets(t *testing.T) {
	fail := errors.New("no such asset")
	s := setup(t, Options{Assets: func(_ context.Context, namespace string, names []string) ([]string, error) {
		if names[0] == "missing" {
			return nil, fail
		}
		return []string{"PATH=/assets/" + namespace + "/" + names[0]}, nil
	}})
	h := pipe("echo $PATH")
	h.RuntimeAssets = []string{"tool"}
	res := s.Run(t.Context(), h, job(event(2)))
	if got, wanted := string(res.Output), "/assets/default/tool:"+os.Getenv("PATH")+"\n"; got != wanted {
		t.Errorf("got %q, want %q", got, wanted)
	}
	h.RuntimeAssets = []string{"missing"}
	want(t, "missing", s.Run(t.Context(), h, job(event(2))), KindError, true, "no such asset")
	want(t, "none", setup(t, Options{}).Run(t.Context(), h, job(event(2))), KindError, true, "wants assets")
}

// TestPipeFlood runs a command that writes as fast as it can, for ever.
func TestPipeFlood(t *testing.T) {
	s := setup(t, Options{})
	h := pipe("yes flood")
	h.Timeout = 1
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res := s.Run(t.Context(), h, job(event(2)))
	runtime.ReadMemStats(&after)
	want(t, "flood", res, KindTimeout, false, "killed")
	if len(res.Output) != maxOutput || !strings.HasPrefix(string(res.Output), "flood\nflood\n") {
		t.Errorf("%d bytes are kept", len(res.Output))
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("it took %d bytes of memory", n)
	}
}

// TestPipeThatWillNotGo runs commands that ignore a polite signal, with children that do too, and checks that none of
// them is left.
func TestPipeThatWillNotGo(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	for name, command := range map[string]string{
		"ignores signals":      `trap "" TERM INT HUP; echo $$ >>PIDS; while :; do sleep 0.05; done`,
		"forks":                `for i in 1 2 3; do (trap "" TERM; echo $$ >>PIDS; while :; do sleep 0.05; done) & done; wait`,
		"leaves its group":     `setsid sh -c 'trap "" TERM; echo $$ >>PIDS; while :; do sleep 0.05; done' & wait`,
		"leaves and disowns":   `(setsid sh -c 'trap "" TERM; echo $$ >>PIDS; while :; do sleep 0.05; done' &) ; sleep 300`,
		"holds its input open": `exec 3<&0; trap "" TERM; echo $$ >>PIDS; while :; do sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			h := pipe(strings.ReplaceAll(command, "PIDS", pids))
			h.Timeout = 1
			begin := time.Now()
			res := s.Run(t.Context(), h, Job{ID: "1/a", Data: make([]byte, 1<<20)})
			want(t, name, res, KindTimeout, false, "killed after 1s")
			if took := time.Since(begin); took > 2*time.Minute {
				t.Errorf("it held the attempt for %v", took)
			}
			text, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			if runtime.GOOS != "linux" && strings.HasPrefix(name, "leaves") {
				return // elsewhere a process that left its group cannot be found
			}
			for _, field := range strings.Fields(string(text)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					t.Fatal(err)
				}
				if alive(pid) {
					t.Errorf("process %d is left", pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

// TestPipeBound starts more commands than may run at a time.
func TestPipeBound(t *testing.T) {
	s := setup(t, Options{MaxProcesses: 2})
	dir := t.TempDir()
	h := pipe(`echo x >` + dir + `/$LAPWING_DELIVERY_ID; ls ` + dir + ` | wc -l; sleep 0.05; rm ` + dir + `/$LAPWING_DELIVERY_ID`)
	var wg sync.WaitGroup
	outputs := make([]string, 12)
	for i := range outputs {
		wg.Go(func() {
			res := s.Run(t.Context(), h, Job{ID: fmt.Sprint(i), Data: []byte{}})
			outputs[i] = strings.TrimSpace(string(res.Output))
			want(t, "run", res, KindOK, false, "")
		})
	}
	wg.Wait()
	if !slices.Contains(outputs, "2") && !slices.Contains(outputs, "1") || slices.Max(outputs) > "2" {
		t.Errorf("at a time there were %q commands", outputs)
	}
	// A command that waits for its turn can be stopped.
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		wg.Go(func() { s.Run(ctx, pipe("sleep 300"), Job{Data: []byte{}}) })
	}
	eventually(t, func() string {
		if len(s.processes) < 2 {
			return "the processes do not run"
		}
		return ""
	})
	wg.Go(func() {
		want(t, "waiting", s.Run(ctx, pipe("true"), Job{Data: []byte{}}), KindError, true, "wait for a free process")
	})
	cancel()
	wg.Wait()
}

// TestCommandsThatPrintTheirVariables: commands print their environment, in success and in failure.
func TestCommandsThatPrintTheirVariables(t *testing.T) {
	s := setup(t, Options{})
	for _, end := range []string{"", "; exit 1", "; sleep 300"} {
		h := pipe("env; echo $TOKEN | base64; echo connect to $DB" + end)
		h.Timeout = 1
		if end == "" {
			h.Timeout = 60
		}
		h.EnvVars = []string{"TOKEN=hush-token", "DB=postgres://u:hush%21@db.example.com/x", "HIDDEN=hush-hush", "LEVEL=info", "PATH=/opt/extra"}
		res := s.Run(t.Context(), h, Job{ID: "1/a", Data: []byte("data")})
		text := string(res.Output)
		for _, secret := range []string{"hush", "aHVzaC10b2tlb"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the output tells %s:\n%s", end, secret, text)
			}
		}
		for _, plain := range []string{"TOKEN=REDACTED\n", "LEVEL=info\n", "PATH=/opt/extra:", "connect to REDACTED\n"} {
			if !strings.Contains(text, plain) {
				t.Errorf("%s: the output lacks %s:\n%s", end, plain, text)
			}
		}
	}
}
