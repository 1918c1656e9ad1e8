package test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// TestRefusedEventsLeaveTheSpool has an agent keep an event on disk that the backend refuses for good. It is refused
// once; neither the connection nor the agent's next start sends it again, and the events around it arrive.
func TestRefusedEventsLeaveTheSpool(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	spool := t.TempDir()
	run := func(use func(*agent.Transport)) {
		t.Helper()
		tr, err := agent.NewTransport(agent.TransportOptions{
			Name: "host", BackendURLs: []string{b.URL()}, User: testbackend.AgentUser, Password: testbackend.AgentPassword, SpoolDir: spool,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		use(tr)
		running.Go(func() { tr.Run(ctx) })
		eventually(t, 60*time.Second, "nothing waits for the backend", func() bool { return tr.Buffered() == 0 })
		cancel()
		running.Wait()
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	now := time.Now().Unix()
	run(func(tr *agent.Transport) {
		tr.Send(testbackend.Event("host", "before", 0, now))
		tr.Send(testbackend.Event(strings.Repeat("n", 5000), "bomb", 0, now))
		tr.Send(testbackend.Event("host", "after", 0, now))
	})
	run(func(tr *agent.Transport) {
		if n := tr.Buffered(); n != 0 {
			t.Errorf("%d events were kept", n)
		}
		tr.Send(testbackend.Event("host", "later", 0, now))
	})
	for _, check := range []string{"before", "after", "later"} {
		eventually(t, 60*time.Second, check+" is there", func() bool {
			_, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("host", check))
			return err == nil
		})
	}
	if n := b.Counter(t, "lapwing_events_rejected_total"); n != 1 {
		t.Errorf("%v events were refused, want one, once", n)
	}
}
