package ctl_test

import (
	"io"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client/ctl"
)

// TestConcurrentChange changes a check through another client between our read and our write: neither change may be
// lost.
func TestConcurrentChange(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	api := newFakeAPI(t, nil)
	check := map[string]any{"command": "x", "interval": 5.0, "metadata": map[string]any{"name": "cpu", "namespace": "default"}}
	api.objects["checks/default/cpu"] = check
	api.meddle = func(check map[string]any) { check["ttl"] = 300.0 }
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetArgs([]string{"check", "set-timeout", "cpu", "9", "--api-url", api.url, "--api-key", "good-key"})
	if code := ctl.ExitCode(root.ExecuteContext(t.Context())); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.meddle != nil {
		t.Fatal("nobody meddled")
	}
	got := api.objects["checks/default/cpu"]
	if timeout, ttl := jsonText(got["timeout"]), jsonText(got["ttl"]); timeout != "9" || ttl != "300" {
		t.Errorf("timeout %s, ttl %s: a change was lost", timeout, ttl)
	}
}
