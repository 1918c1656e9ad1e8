package test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestProcessesOfAHost: the API shows a process of the agent's host with its entity, and not with lists and events.
func TestProcessesOfAHost(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	b := testbackend.Start(t, nil)
	a, err := agent.New(agent.Options{Name: "worker", BackendURLs: []string{b.URL()}, DiscoverProcesses: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer a.Stop()

	eventually(t, 60*time.Second, "the API shows the process", func() bool {
		e, err := client.Get(t.Context(), b.Client, client.Entities, "default", "worker")
		return err == nil && slices.ContainsFunc(e.System.Processes, func(p resource.Process) bool {
			return int(p.PID) == cmd.Process.Pid && int(p.PPID) == os.Getpid() && p.Name == "sleep" && p.Running && p.Created > 0
		})
	})
	var list []resource.Entity
	if err := b.Client.Do(t.Context(), "GET", "/api/core/v2/namespaces/default/entities", nil, &list); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(list, func(e resource.Entity) bool { return e.Metadata.Name == "worker" }); i < 0 ||
		list[i].System.OS != "linux" || list[i].System.Processes != nil {
		t.Errorf("listed: %+v", list)
	}
	var ev *resource.Event
	eventually(t, 60*time.Second, "the keepalive is there", func() bool {
		ev, err = client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("worker", "keepalive"))
		return err == nil
	})
	if ev.Entity.System.OS != "linux" || ev.Entity.System.Processes != nil {
		t.Errorf("event: %+v", ev.Entity)
	}
}
