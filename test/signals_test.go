package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// logged waits until the backend's log has a text after an offset, and returns the log from there.
func (p *process) logged(offset int, text string) string {
	p.t.Helper()
	var log string
	eventually(p.t, 30*time.Second, "the log has "+text, func() bool {
		all, err := os.ReadFile(p.log.Name())
		if err != nil {
			p.t.Fatal(err)
		}
		log = string(all[min(offset, len(all)):])
		return strings.Contains(log, text)
	})
	return log
}

func (p *process) logSize() int {
	p.t.Helper()
	info, err := p.log.Stat()
	if err != nil {
		p.t.Fatal(err)
	}
	return int(info.Size())
}

// TestHangupReloadsTheSettings changes the settings file of a running backend: limits and the log level take effect,
// the log names the other changes, and a broken file changes nothing.
func TestHangupReloadsTheSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backend.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("api-request-limit: 2000\nlog-level: info\n")
	p := newProcess(t, "--config-file", file)
	p.env = []string{"LAPWING_BACKEND_HANDLER_QEUE=7"}
	p.start()
	if log := p.logged(0, "unknown environment variable has no effect"); !strings.Contains(log, "nearest=LAPWING_BACKEND_HANDLER_QUEUE") {
		t.Errorf("a misspelt variable: %s", log)
	}
	c := p.client()
	put := func() error {
		check := &resource.CheckConfig{Metadata: resource.ObjectMeta{Name: "big", Namespace: "default"},
			Command: strings.Repeat("x", 3000), Interval: 60, Subscriptions: []string{"s"}}
		return client.Put(t.Context(), c, client.Checks, "default", "big", check)
	}
	var refused *client.Error
	if err := put(); !errors.As(err, &refused) {
		t.Fatalf("a body over the limit: %v", err)
	}
	reload := func(text, want string) string {
		t.Helper()
		write(text)
		begin := p.logSize()
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		return p.logged(begin, want)
	}

	log := reload("api-request-limit: 100000\nlog-level: debug\nhandler-workers: 16\ntrace-sample: 7\n", "settings reloaded")
	if !strings.Contains(log, `need_a_new_start="[handler-workers trace-sample]"`) {
		t.Errorf("it does not name what needs a new start:\n%s", log)
	}
	begin := p.logSize()
	if err := put(); err != nil {
		t.Errorf("with the new limit: %v", err)
	}
	p.logged(begin, "level=debug msg=request") // with the new level

	log = reload("api-request-limit: 10\nhandler-wrokers: 1\nnonsense: 1\n", "settings were not reloaded")
	for _, want := range []string{`handler-wrokers`, `handler-workers`, `nonsense`} {
		if !strings.Contains(log, want) {
			t.Errorf("a broken file: the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "HANDLER_QEUE") {
		t.Errorf("what was said at the start is said again:\n%s", log)
	}
	// A setting that the next start would refuse is refused now, even if only a restart would apply it.
	log = reload("api-request-limit: 10\nallowed-handler-types: [pip]\nagent-message-timeout: -5s\n", "settings were not reloaded")
	for _, want := range []string{"flag=--allowed-handler-types", "flag=--agent-message-timeout", "the old value stays in use",
		"key agent-message-timeout of "} {
		if !strings.Contains(log, want) {
			t.Errorf("bad values: the log lacks %s:\n%s", want, log)
		}
	}
	reload("api-request-limit: 10\nevent-log-partitions: 7\n", "the event log was made with ")
	reload("api-request-limit: 10\nphase-hash: crc\n", "--phase-hash")
	reload("api-request-limit: 10\ncert-file: /nonexistent.pem\nkey-file: /nonexistent.pem\n", "TLS cannot be switched on or off")
	if err := put(); err != nil {
		t.Errorf("after files that were refused: %v", err)
	}
	resp, err := http.Get("http://" + p.api + "/ready")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the backend has not survived: %v", err)
	}
}

// TestSecondSignalEndsAtOnce makes the backend wait for a request while it stops; a second signal ends the wait.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := newProcess(t)
	p.start()
	// The backend must have the connection before the signal: it waits for none that it has not accepted.
	http.DefaultClient.CloseIdleConnections()
	connections := func(want string) func() bool {
		return func() bool {
			resp, err := http.Get("http://" + p.api + "/metrics")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && bytes.Contains(body, []byte("\nlapwing_connections{listener=\"api\"} "+want+"\n"))
		}
	}
	eventually(t, time.Minute, "only this connection is left", connections("1"))
	conn, err := net.Dial("tcp", p.api)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "POST /auth/test HTTP/1.1\r\nHost: x\r\n"); err != nil { // and no more
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the other connection is accepted", connections("2"))
	begin := p.logSize()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.logged(begin, "backend is stopping")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.cmd.Wait()
	}()
	// The process may take a moment until it obeys.
	for again := true; again; {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			again = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	p.cmd = nil
	if !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("the second signal was not obeyed: %v", status)
	}
	p.start() // and nothing is lost
}
