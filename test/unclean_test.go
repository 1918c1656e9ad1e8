package test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// text is all that a backend has logged.
func (p *process) text() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// defineMany makes checks and results, so that there is something to lose.
func (p *process) defineMany(n int) {
	p.t.Helper()
	c := p.client()
	for i := range n {
		name := fmt.Sprint("check-", i)
		check := &resource.CheckConfig{Metadata: meta(name), Command: "true", Interval: 60, Subscriptions: []string{"linux"}}
		if err := client.Put(p.t.Context(), c, client.Checks, "default", name, check); err != nil {
			p.t.Fatal(err)
		}
		if err := client.Post(p.t.Context(), c, client.Events, "default", testbackend.Event("host", name, 0, time.Now().Unix())); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestUncleanStopIsOneLine kills a backend that holds definitions and events. The next start reports it in one line,
// and logs nothing that looks like a fault.
func TestUncleanStopIsOneLine(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	p.defineMany(20)
	p.kill(syscall.SIGTERM) // leaves indexes behind, which are outdated after the next run
	p.start()
	p.defineMany(30)
	p.kill(syscall.SIGKILL)
	before := len(p.text())
	p.start()
	recovered := 0
	for line := range strings.Lines(p.text()[before:]) {
		switch {
		case strings.Contains(line, "recovered after an unclean stop"):
			recovered++
		case strings.Contains(line, "agents can sign in with the default password"):
		case strings.Contains(line, "level=warn"), strings.Contains(line, "level=error"), strings.Contains(line, "component=broker"):
			t.Errorf("the start says %s", line)
		}
	}
	if recovered != 1 {
		t.Errorf("%d lines say that it recovered", recovered)
	}
}

// TestDamageWaitsForARepair flips a byte in the definitions of a killed backend. The next start is not ready and
// reports why, to operators, clients and the log, and begins no new cluster. It continues by itself when an operator
// has accepted the loss.
func TestDamageWaitsForARepair(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	p.defineMany(40)
	p.kill(syscall.SIGKILL)
	state := filepath.Join(p.dir, "state")
	block := largest(t, state, "broker/jetstream/$G/streams/KV_config/msgs/*.blk")
	if err := flip(func(n int64) int64 { return n / 2 })(block); err != nil {
		t.Fatal(err)
	}
	p.launch()
	get := func(path string) (status int, body string) {
		resp, err := http.Get("http://" + p.api + path)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	eventually(t, 60*time.Second, "readiness names the damage and the way out", func() bool {
		status, body := get("/ready")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "definitions") && strings.Contains(body, "lapwing backend repair")
	})
	if status, body := get("/api/core/v2/namespaces"); status != http.StatusServiceUnavailable || !strings.Contains(body, "damaged") {
		t.Errorf("the API answers %d %s", status, body)
	}
	if !strings.Contains(p.text(), "the backend waits and does not start") {
		t.Error("the log does not say that it waits")
	}
	run := func(command string) (status int, text string) {
		t.Helper()
		path, err := binary()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), path, "backend", command, "--state-dir", state, "--config-file", os.DevNull)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if status, text := run("verify"); status != 2 || !strings.Contains(text, "LOST: definitions: ") {
		t.Errorf("verify ends with %d: %s", status, text)
	}
	if status, _ := get("/ready"); status != http.StatusServiceUnavailable {
		t.Errorf("after looking it is ready: %d", status)
	}
	if status, text := run("repair"); status != 0 || !strings.Contains(text, "LOST: definitions: ") {
		t.Errorf("repair ends with %d: %s", status, text)
	}
	eventually(t, 60*time.Second, "it goes on by itself", func() bool {
		status, _ := get("/ready")
		return status == http.StatusOK
	})
	// with the earlier password
	checks, err := client.List(t.Context(), p.client(), client.Checks, "default", client.ListOptions{})
	if err != nil || len(checks) == 0 || len(checks) >= 40 {
		t.Errorf("%d of 40 checks are left, %v", len(checks), err)
	}
	if n := strings.Count(p.text(), "cluster initialized"); n != 1 {
		t.Errorf("a cluster was begun %d times", n)
	}
	p.kill(syscall.SIGTERM)
	if status, text := run("verify"); status != 0 || !strings.Contains(text, "sound") {
		t.Errorf("after the repair verify ends with %d: %s", status, text)
	}
}
