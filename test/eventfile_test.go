package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// withEventFile has a process write its events to a file, and returns its name.
func (p *process) withEventFile() string {
	path := filepath.Join(p.dir, "events.log")
	p.extra = append(p.extra, "--event-log-file", path)
	return path
}

// report submits an event about an entity of its own.
func (p *process) report(entity string) {
	p.t.Helper()
	err := p.client().Do(p.t.Context(), "PUT", "/api/core/v2/namespaces/default/events/"+entity+"/disk", resource.Event{
		Check: &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: "disk"}, Interval: 60},
	}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
}

// readEventFile adds how often each entity is in a file of events, and returns how many lines are torn.
func readEventFile(t *testing.T, path string, times map[string]int) (torn int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var ev resource.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			torn++
			continue
		}
		times[ev.Entity.Metadata.Name]++
	}
	return torn
}

// TestEventFilesOfACluster: the files of all members together have each event once, whichever member got it and owned
// its partition, also when the owners change because a member leaves.
func TestEventFilesOfACluster(t *testing.T) {
	all := newMembers(t, 3, "--event-log-partitions", "3")
	var files []string
	for _, p := range all {
		files = append(files, p.withEventFile())
	}
	all.start()
	var want []string
	report := func(members members, n int) {
		t.Helper()
		for i := range n {
			name := fmt.Sprint("host-", len(want))
			members[i%len(members)].report(name)
			want = append(want, name)
		}
	}
	report(all, 12)
	all[0].kill(syscall.SIGTERM)
	report(all[1:], 8)
	var stopping sync.WaitGroup
	for _, p := range all[1:] {
		stopping.Go(func() { p.kill(syscall.SIGTERM) })
	}
	stopping.Wait()
	times := map[string]int{}
	for i, file := range files {
		before := len(times)
		if torn := readEventFile(t, file, times); torn != 0 || len(times) == before {
			t.Errorf("the file of member %d has %d torn lines and %d new entities", i, torn, len(times)-before)
		}
	}
	for _, name := range want {
		if times[name] != 1 {
			t.Errorf("the event of %s is in the files %d times", name, times[name])
		}
	}
}

// TestEventFileAfterAKill: after kill -9 the file has each event at least once, and a torn line spoils no other.
func TestEventFileAfterAKill(t *testing.T) {
	p := newProcess(t)
	file := p.withEventFile()
	p.start()
	const n = 20
	for i := range n {
		p.report(fmt.Sprint("host-", i))
	}
	p.kill(syscall.SIGKILL)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"check":{"metadata":{"na`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.report(fmt.Sprint("host-", n))
	p.kill(syscall.SIGTERM)
	times := map[string]int{}
	if torn := readEventFile(t, file, times); torn != 1 {
		t.Errorf("%d lines are torn, want the one of the test", torn)
	}
	for i := range n + 1 {
		if name := fmt.Sprint("host-", i); times[name] == 0 {
			t.Errorf("the event of %s is not in the file", name)
		}
	}
}
