package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testnats"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
)

// buildDir is where the binary is, once it is built.
var buildDir string

// binary builds bin/lapwing once for the tests that need processes. What `make lint` compiled is used again.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lapwing-test-")
	if err != nil {
		return "", err
	}
	buildDir = dir
	path := filepath.Join(dir, "lapwing")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/lapwing").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	_ = testnats.Remove()
	_ = testpostgres.Remove()
	os.Exit(code)
}

// process is a backend in its own process, which can be killed.
type process struct {
	t     testing.TB
	dir   string
	api   string
	agent string
	extra []string
	env   []string
	cmd   *exec.Cmd
	log   *os.File

	program string // the binary; "" is the current one
}

func newProcess(t testing.TB, extra ...string) *process {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, dir: dir, api: "127.0.0.1:" + freePort(t), agent: freePort(t), extra: extra, log: log}
	t.Cleanup(func() {
		p.kill(syscall.SIGKILL)
		_ = log.Close()
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("backend's log:\n%s", tailOf(text, 4000))
			}
		}
	})
	return p
}

func tailOf(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// start runs the backend and returns how long it took to be ready.
func (p *process) start() time.Duration {
	p.t.Helper()
	begin := p.launch()
	eventually(p.t, 60*time.Second, "the backend is ready", func() bool {
		resp, err := http.Get("http://" + p.api + "/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return time.Since(begin)
}

// launch runs the backend and returns when that was.
func (p *process) launch() time.Time {
	p.t.Helper()
	path := p.program
	if path == "" {
		var err error
		if path, err = binary(); err != nil {
			p.t.Fatal(err)
		}
	}
	args := append([]string{"backend", "--state-dir", filepath.Join(p.dir, "state"), "--api-listen-address", p.api, "--agent-host", "127.0.0.1",
		"--agent-port", p.agent, "--min-free-disk", "1000000", "--config-file", os.DevNull}, p.extra...)
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(append(os.Environ(), "LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD="+testbackend.Password), p.env...)
	begin := time.Now()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return begin
}

// kill ends the process with a signal and waits for it.
func (p *process) kill(sig syscall.Signal) {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	_ = p.cmd.Wait()
	p.cmd = nil
}

func (p *process) client() *client.Client {
	p.t.Helper()
	c, err := client.New(client.Options{URL: "http://" + p.api, Username: testbackend.User, Password: testbackend.Password, Timeout: time.Minute})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	if _, err := c.Login(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// mountSmall mounts a file system of so many bytes at a directory, which it creates if needed. The test is skipped if
// mounting is not allowed.
func mountSmall(t *testing.T, dir string, size int64) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", size))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
		t.Skipf("mount: %v", err)
	}
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}
