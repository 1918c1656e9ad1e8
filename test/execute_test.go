package test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestExecute runs a check on request that is not published: on the agents with its subscription, and on no others.
func TestExecute(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	c := p.client()
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "once", Namespace: "default"}, Command: agent.TestCommand, Interval: 3600, Subscriptions: []string{"linux"},
	}
	if err := client.Put(t.Context(), c, client.Checks, "default", "once", check); err != nil {
		t.Fatal(err)
	}
	for name, subscription := range map[string]string{"web-1": "linux", "web-2": "windows"} {
		a, err := agent.New(agent.Options{Name: name, Subscriptions: []string{subscription}, BackendURLs: []string{"ws://127.0.0.1:" + p.agent}})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Stop() }()
	}
	result := func(entity, check string) *resource.Event {
		ev, err := client.Get(t.Context(), c, client.Events, "default", client.EventName(entity, check))
		if err != nil {
			return nil
		}
		return ev
	}
	eventually(t, 60*time.Second, "both agents are there", func() bool {
		return result("web-1", "keepalive") != nil && result("web-2", "keepalive") != nil
	})
	if result("web-1", "once") != nil {
		t.Fatal("the check ran before it was asked for")
	}
	var asked struct{ Issued int64 }
	if err := c.Do(t.Context(), http.MethodPost, client.Checks.Path("default", "once")+"/execute", struct{}{}, &asked); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "a result", func() bool { return result("web-1", "once") != nil })
	if ev := result("web-1", "once"); ev.Check.Issued != asked.Issued || ev.Check.Status != 0 {
		t.Errorf("the result is of %d with status %d, asked at %d", ev.Check.Issued, ev.Check.Status, asked.Issued)
	}
	if result("web-2", "once") != nil {
		t.Error("an agent without the subscription ran the check")
	}
}
