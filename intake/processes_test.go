package intake

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// TestProcessesAreStoredNowAndThen: each keepalive of a host has other processes. They do not make it a write, but
// travel with one.
func TestProcessesAreStoredNowAndThen(t *testing.T) {
	var log bytes.Buffer
	i := IntakeOf(t, 1, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	keepalive := func(arch string, processes ...resource.Process) {
		t.Helper()
		meta := resource.ObjectMeta{Namespace: "default", Name: "web1"}
		err := i.Keepalive(t.Context(), &resource.Event{
			Timestamp: time.Now().Unix(), Check: &resource.Check{Metadata: meta},
			Entity: &resource.Entity{EntityClass: resource.EntityAgentClass, Metadata: meta,
				System: resource.System{Arch: arch, Processes: processes}},
		}, Source{Namespace: "default", Agent: "web1"}, false)
		if err != nil {
			t.Fatal(err)
		}
		requireHost(t, i, "web1", "defined, with facts")
	}
	stored := func(want string) {
		t.Helper()
		st, _ := i.opts.State.EntityState("default", "web1")
		got := st.System.Arch
		for _, p := range st.System.Processes {
			got += fmt.Sprint(" ", p.PID)
		}
		if got != want {
			t.Errorf("stored is %q, want %q", got, want)
		}
	}
	one, two := resource.Process{PID: 1}, resource.Process{PID: 2}
	keepalive("a")
	stored("a")
	keepalive("a", one)
	stored("a 1")
	keepalive("a", one, two)
	stored("a 1")
	keepalive("a")
	stored("a 1")
	keepalive("b", two)
	stored("b 2")

	// Lists and events do without them.
	if st, ok := i.opts.State.EntityFacts("default", "web1"); !ok || st.System.Arch != "b" || st.System.Processes != nil {
		t.Errorf("facts: %+v", st)
	}
	ev, err := i.opts.State.Event("default", "web1", state.KeepaliveCheck)
	if err != nil || ev.Entity.System.Arch != "b" || ev.Entity.System.Processes != nil {
		t.Errorf("event: %+v, %v", ev, err)
	}

	if strings.Contains(log.String(), "processes") {
		t.Errorf("log:\n%s", log.String())
	}
	keepalive("c", make([]resource.Process, 30_000)...)
	if st, _ := i.opts.State.EntityState("default", "web1"); st.System.Arch != "c" || len(st.System.Processes) != resource.MaxProcesses {
		t.Errorf("%d processes are stored", len(st.System.Processes))
	}
	if n := len(i.opts.State.EntityStateBytes("default", "web1")); n > maxFacts/2 {
		t.Errorf("%d bytes are stored", n)
	}
	if !strings.Contains(log.String(), "entity=web1 reported=30000 stored=1000") {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestProcessesDue(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	some := []resource.Process{{PID: 1}}
	ago := func(age time.Duration) []byte {
		_, logged := state.SplitFacts(state.AppendFacts(nil, &resource.EntityState{
			LastSeen: now.Add(-age).Unix(), System: resource.System{Processes: some}}))
		return logged
	}
	for name, tc := range map[string]struct {
		now    []resource.Process
		logged []byte
		want   bool
	}{
		"none":                   {nil, nil, false},
		"first":                  {some, nil, true},
		"just now":               {some, ago(20 * time.Second), false},
		"a while ago":            {some, ago(processesPeriod - time.Second), false},
		"long ago":               {some, ago(processesPeriod + processesSpread), true},
		"gone, just now":         {nil, ago(20 * time.Second), false},
		"gone, long ago":         {nil, ago(processesPeriod + processesSpread), true},
		"the clock was set back": {some, ago(-24 * time.Hour), true},
	} {
		if got := processesDue("web1", tc.now, tc.logged, now); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
