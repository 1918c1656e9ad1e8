//go:build unix

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// nextKeepalive reads events until there is a keepalive.
func (s *fakeSession) nextKeepalive() *resource.Event {
	s.t.Helper()
	return s.next("keepalive", func(r received) bool { return r.keepalive }).event
}

func TestReload(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	list := writeAllowList(t, `[{"exec": "echo", "args": ["one"]}]`)
	options := func(o *Options) {
		o.Managed, o.AllowList, o.KeepaliveInterval = true, list, time.Hour
		o.KeepaliveWarningTimeout = 2 * time.Hour
	}
	a, s := startAgent(t, b, options)
	s.send(wire.TypeEntityConfig, &resource.EntityConfig{Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default", Labels: map[string]string{"rack": "elsewhere"}}})
	run := func(command string, issued int64) *resource.Event {
		t.Helper()
		return s.request(&resource.CheckRequest{Config: shellCheck("c", command), Issued: issued})
	}
	if ev := run("echo one", 1); ev.Check.Output != "one\n" || ev.Entity.Metadata.Labels["rack"] != "r7" || ev.Entity.Metadata.Labels[managedByLabel] != managedByAgent {
		t.Errorf("before: got %q, entity %+v", ev.Check.Output, ev.Entity.Metadata)
	}
	change := Options{BackendURLs: []string{b.url, "ws://elsewhere"}, Labels: map[string]string{"rack": "r9"}, KeepaliveLabels: map[string]string{"a": "b"}, KeepalivePipelines: []string{"core/v2.Pipeline.p"}}
	options(&change)
	change.MaxOutput = 1 // not one that Reload reports
	if err := os.WriteFile(list, []byte(`[{"exec": "echo", "args": ["two"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	needStart, err := a.Reload(change)
	if err != nil || !slices.Equal(needStart, []string{"backend-url"}) {
		t.Errorf("reload: %v, %v", needStart, err)
	}
	ev := s.nextKeepalive()
	if ev.Sequence != 1 || ev.Metadata.Labels["a"] != "b" || len(ev.Pipelines) != 1 || ev.Entity.Metadata.Labels["rack"] != "r9" || ev.Entity.Metadata.CreatedBy != "agent" {
		t.Errorf("keepalive: %+v, entity %+v", ev, ev.Entity.Metadata)
	}
	if ev := run("echo two", 2); ev.Check.Output != "two\n" {
		t.Errorf("after: got %q", ev.Check.Output)
	}
	if ev := run("echo one", 3); ev.Check.Status != 3 {
		t.Errorf("after: got %+v", ev.Check)
	}
	for want, o := range map[string]Options{
		"KeepaliveInterval": {Managed: true, KeepaliveInterval: -1}, "allow list": {Managed: true, AllowList: "/nowhere"}, "who defines the entity": {},
	} {
		if _, err := a.Reload(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
	if ev := run("echo two", 4); ev.Check.Output != "two\n" {
		t.Errorf("after reloads that failed: got %q", ev.Check.Output)
	}
}

func TestCloudProvider(t *testing.T) {
	t.Parallel()
	for want, files := range map[string]map[string]string{
		"EC2":   {"sys_vendor": "Amazon EC2\n"},
		"GCP":   {"product_name": "Google Compute Engine\n"},
		"Azure": {"sys_vendor": "Microsoft Corporation\n", "chassis_asset_tag": azureTag + "\n"},
		"":      {"sys_vendor": "Microsoft Corporation\n", "chassis_asset_tag": "none\n"},
	} {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := cloudProvider(dir); got != want {
			t.Errorf("%v: got %q, want %q", files, got, want)
		}
	}
}

func TestMaxSession(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, func(o *Options) { o.MaxSession = 50 * time.Millisecond })
	for {
		_ = s.SetReadDeadline(time.Now().Add(patience))
		_, err := s.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the session does not end")
		}
		if err != nil {
			break
		}
	}
	b.accept(t) // another one comes at once
}

// TestAgentRemembers restarts an agent while no backend is there: it knows its checks and its entity, and the events
// from before and after the restart arrive in order.
func TestAgentRemembers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := new(fakeBackend).start(t)
	options := func(o *Options) { o.SpoolDir = dir }
	a, s := startAgent(t, b, options)
	entity := &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default", Labels: map[string]string{"rack": "r8"}}, EntityClass: "agent",
	}
	s.send(wire.TypeEntityConfig, entity)
	secret := every("secret", 1, 0, func(c *resource.CheckConfig) { c.Command = "echo secret" })
	var request resource.CheckRequest
	if err := request.UnmarshalProto(secret.Request); err != nil {
		t.Fatal(err)
	}
	request.Secrets = []string{"KEY=x"}
	secret.Request = request.AppendProto(nil)
	s.schedule(1, true, every("tick", 1, 100, func(c *resource.CheckConfig) { c.Command = "echo {{ .labels.rack }}" }), secret)
	first := s.readCheck("tick")
	known := a.knownFile()
	waitFor(t, "the schedule is kept", func() bool {
		text, err := os.ReadFile(known)
		return err == nil && strings.Contains(string(text), "r8") && strings.Contains(string(text), "phase_ms\":100")
	})
	b.become(func() { b.refuse = 503 })
	s.Close(wire.CloseGoingAway, "bye")
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(known); err != nil || strings.Contains(string(text), `"phase_ms":0`) {
		t.Errorf("a check with a secret is on disk: %s, %v", text, err)
	}

	opts := Options{Name: "web-1", BackendURLs: []string{b.url}, RetryMin: time.Millisecond, RetryMax: time.Millisecond}
	options(&opts)
	again, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	held := again.transport.Buffered()
	if err := again.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })
	waitFor(t, "two runs wait", func() bool { return again.transport.Buffered() >= held+2 })
	b.become(func() { b.refuse = 0 })
	s = b.accept(t)
	s.send(wire.TypeEntityConfig, entity)
	last := first.Check.Issued - 1
	for range held + 2 {
		ev := s.readCheck("tick")
		if ev.Check.Issued <= last || ev.Check.Output != "r8\n" {
			t.Errorf("got %q of %d after %d", ev.Check.Output, ev.Check.Issued, last)
		}
		last = ev.Check.Issued
	}
}
