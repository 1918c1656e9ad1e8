package test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func define[T any](t *testing.T, c *client.Client, k client.Kind[T], name string, obj *T) {
	t.Helper()
	if err := client.Put(t.Context(), c, k, "default", name, obj); err != nil {
		t.Fatal(err)
	}
}

func meta(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Name: name, Namespace: "default"}
}

// startAgent runs an agent of the backend; the function ends it.
func startAgent(t *testing.T, b *testbackend.Backend, opts agent.Options) (stop func()) {
	t.Helper()
	opts.BackendURLs = []string{b.URL()}
	a, err := agent.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop() })
	return func() { _ = a.Stop() }
}

func eventOf(t *testing.T, b *testbackend.Backend, entity, check string) *resource.Event {
	ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(entity, check))
	if err != nil {
		return nil
	}
	return ev
}

// TestProxiesAndHooks has an agent run a check for the matching proxy entities, with a hook, also on request.
func TestProxiesAndHooks(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	for _, name := range []string{"sw1", "sw2", "sw3"} {
		m := meta(name)
		m.Labels = map[string]string{"address": "10.0.0." + name[2:], "poll": map[bool]string{true: "yes"}[name != "sw2"]}
		define(t, b.Client, client.Entities, name, &resource.Entity{Metadata: m, EntityClass: "proxy"})
	}
	define(t, b.Client, client.Hooks, "who", &resource.HookConfig{Metadata: meta("who"), Command: "echo {{ .name }}", Timeout: 5})
	check := &resource.CheckConfig{
		Metadata: meta("ping"), Command: "echo {{ .labels.address }}; exit 2", Interval: 1, Publish: true, Subscriptions: []string{"net"},
		CheckHooks:    []resource.HookList{{Type: "critical", Hooks: []string{"who"}}},
		ProxyRequests: &resource.ProxyRequests{EntityAttributes: []string{"entity.labels.poll == 'yes'"}},
	}
	define(t, b.Client, client.Checks, "ping", check)
	byHand := *check
	byHand.Metadata, byHand.Publish, byHand.Interval = meta("by-hand"), false, 3600
	define(t, b.Client, client.Checks, "by-hand", &byHand)
	startAgent(t, b, agent.Options{Name: "poller", Subscriptions: []string{"net"}})
	eventually(t, 60*time.Second, "results of both", func() bool {
		return eventOf(t, b, "sw1", "ping") != nil && eventOf(t, b, "sw3", "ping") != nil
	})
	ev := eventOf(t, b, "sw3", "ping")
	c := ev.Check
	if c.Output != "10.0.0.3\n" || c.Status != 2 || c.ProcessedBy != "poller" || c.ProxyEntityName != "sw3" || len(c.Hooks) != 1 || c.Hooks[0].Output != "poller\n" {
		t.Errorf("the event's check is %+v", c)
	}
	if eventOf(t, b, "sw2", "ping") != nil {
		t.Error("there is a result for an entity that does not match")
	}
	if err := b.Client.Do(t.Context(), http.MethodPost, client.Checks.Path("default", "by-hand")+"/execute", struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "results of the check that was asked for", func() bool {
		return eventOf(t, b, "sw1", "by-hand") != nil && eventOf(t, b, "sw3", "by-hand") != nil
	})
}

// TestDeregister stops an agent that wants its entity removed then: its failures are resolved, and the handler gets the
// event.
func TestDeregister(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	out := filepath.Join(t.TempDir(), "handled")
	define(t, b.Client, client.Handlers, "log", &resource.Handler{Metadata: meta("log"), Type: "pipe", Command: "cat >> " + out, Filters: []string{"is_incident"}})
	define(t, b.Client, client.Handlers, "bye", &resource.Handler{Metadata: meta("bye"), Type: "pipe", Command: "cat >> " + out})
	define(t, b.Client, client.Checks, "fails", &resource.CheckConfig{
		Metadata: meta("fails"), Command: "exit 2", Interval: 1, Publish: true, Subscriptions: []string{"linux"}, Handlers: []string{"log"},
	})
	stop := startAgent(t, b, agent.Options{
		Name: "short-lived", Subscriptions: []string{"linux"}, Deregister: true, DeregistrationHandler: "bye",
		KeepaliveInterval: time.Second, KeepaliveWarningTimeout: 5 * time.Second,
	})
	eventually(t, 60*time.Second, "a failure", func() bool { return eventOf(t, b, "short-lived", "fails") != nil })
	stop()
	eventually(t, 60*time.Second, "the entity is gone", func() bool {
		_, err := client.Get(t.Context(), b.Client, client.Entities, "default", "short-lived")
		return err != nil && eventOf(t, b, "short-lived", "fails") == nil
	})
	var resolved, gone bool
	eventually(t, 60*time.Second, "both handlers heard of it", func() bool {
		data, _ := os.ReadFile(out)
		for d := json.NewDecoder(strings.NewReader(string(data))); ; {
			var ev resource.Event
			if d.Decode(&ev) != nil {
				return resolved && gone
			}
			switch ev.Check.Metadata.Name {
			case "fails":
				resolved = resolved || ev.Check.Status == 0 && ev.Check.Output == "Resolving due to entity deregistering" && len(ev.Entity.Subscriptions) > 0
			case "deregistration":
				gone = ev.Check.Status == 1
			}
		}
	})
}
