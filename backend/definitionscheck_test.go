package backend

import (
	"log/slog"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/cluster"
)

// TestDefinitionsCheck: members with other definitions at the same revision differ, until they have the same ones again.
// A member that lacks some and gets none stands still.
func TestDefinitionsCheck(t *testing.T) {
	c := definitionsCheck{log: slog.New(slog.DiscardHandler)}
	now := time.Now()
	for i, step := range []struct {
		ownRevision, own, revision, theirs uint64
		differ                             bool
		stands                             time.Duration
	}{
		{5, 1, 5, 1, false, 0},
		{6, 2, 5, 1, false, 0},
		{6, 2, 6, 3, true, 0},
		{7, 4, 6, 3, true, 0},
		{7, 4, 6, 3, true, time.Second},
		{8, 5, 7, 6, true, 0},
		{8, 5, 7, 6, true, time.Second},
		{8, 5, 8, 5, false, 0},
		{8, 5, 8, 0, false, 0}, // of an earlier release
		{8, 5, 9, 7, false, 0},
	} {
		found := c.check([]cluster.Member{
			{Beat: cluster.Beat{ID: "a", Info: cluster.Info{Revision: step.ownRevision, DefinitionsDigest: step.own}}, Self: true, Heard: true},
			{Beat: cluster.Beat{ID: "b", Info: cluster.Info{Revision: step.revision, DefinitionsDigest: step.theirs}}, Heard: true},
		}, now)
		if got := found["b"]; got != (definitionsState{step.differ, step.stands}) {
			t.Errorf("step %d: %+v, want %v and %s", i, got, step.differ, step.stands)
		}
		now = now.Add(time.Second)
	}
}
