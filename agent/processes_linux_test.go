package agent

import (
	"os"
	"slices"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestKeepalivesHaveProcesses: keepalives have the processes of the host if that is wanted, in both encodings. Results
// do without.
func TestKeepalivesHaveProcesses(t *testing.T) {
	t.Parallel()
	for _, inJSON := range []bool{false, true} {
		for _, wanted := range []bool{false, true} {
			b := (&fakeBackend{json: inJSON, stock: inJSON}).start(t)
			a, err := New(Options{Name: "web-1", BackendURLs: []string{b.url}, DiscoverProcesses: wanted})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer a.Stop()
			s := b.accept(t)
			s.sendNotFound()
			ev := s.readN(1)[0].event
			me := slices.IndexFunc(ev.Entity.System.Processes, func(p resource.Process) bool {
				return int(p.PID) == os.Getpid() && int(p.PPID) == os.Getppid() && p.Name != "" && p.Created > 0
			})
			if found := me >= 0; found != wanted || !wanted && ev.Entity.System.Processes != nil {
				t.Errorf("JSON %v, wanted %v: %+v", inJSON, wanted, ev.Entity.System.Processes)
			}
			result := s.request(&resource.CheckRequest{Config: shellCheck("c", "true"), Issued: 1})
			if result.Entity.System.Hostname == "" || result.Entity.System.Processes != nil {
				t.Errorf("a result has %+v", result.Entity.System)
			}
		}
	}
}
