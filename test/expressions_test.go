package test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// endless kills its worker: it matches repeatedly in one step, which cannot be interrupted.
const endless = `Array(1000).fill(1).map(RegExp.prototype.test.bind(/^(a+)+\1$/, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")).length`

// TestExpressionSetAside has a check whose expression kills the workers that run it. The backend reports that by an
// event, which is resolved when the check changes.
func TestExpressionSetAside(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	put := func(expression string) {
		t.Helper()
		define(t, b.Client, client.Checks, "poll", &resource.CheckConfig{
			Metadata: meta("poll"), Command: "true", Interval: 1, Publish: true, Subscriptions: []string{"linux"},
			ProxyRequests: &resource.ProxyRequests{EntityAttributes: []string{expression}},
		})
	}
	for _, name := range []string{"r1", "r2"} {
		define(t, b.Client, client.Entities, name, &resource.Entity{Metadata: meta(name), EntityClass: "proxy"})
	}
	said := func(status uint32, output string) func() bool {
		return func() bool {
			ev := eventOf(t, b, "lapwing-backend", "check-set-aside-poll")
			return ev != nil && ev.Check.Status == status && strings.Contains(ev.Check.Output, output)
		}
	}
	put(endless)
	eventually(t, 2*time.Minute, "the report", said(1, "worker processes died of it"))
	if err := b.Client.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	put(`entity.name == "r1"`)
	eventually(t, time.Minute, "its end", said(0, "nothing of it"))
}

// TestReadyWithoutWorkers has a backend that cannot start workers: it serves, and reports that it is not complete.
func TestReadyWithoutWorkers(t *testing.T) {
	t.Setenv("LAPWING_EXPRESSION_WORKER", "none")
	b := testbackend.Start(t, nil)
	if err := b.Client.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "expressions of filters and mutators cannot be run") {
		t.Errorf("it is ready: %v", err)
	}
	define(t, b.Client, client.Checks, "c", &resource.CheckConfig{Metadata: meta("c"), Command: "true", Interval: 60}) // it serves
	os.Unsetenv("LAPWING_EXPRESSION_WORKER")
	eventually(t, time.Minute, "a worker", func() bool { return b.Client.Ready(t.Context()) == nil })
}
