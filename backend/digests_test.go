package backend

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// knownDigests are digests of partition 0, by message.
type knownDigests map[uint64]eventlog.Digest

func (k knownDigests) DigestAt(_ int, seq uint64) (eventlog.Digest, bool) {
	d, ok := k[seq]
	return d, ok
}

func (k knownDigests) JoinDigest(_ int, theirs eventlog.Digest) { k[theirs.Seq] = theirs }

// TestDigestCheck: a member with other messages is found, and stays found until it is well.
func TestDigestCheck(t *testing.T) {
	var log bytes.Buffer
	own := knownDigests{16: {From: 1, Seq: 16, Sum: 5}, 32: {From: 1, Seq: 32, Sum: 9}}
	c := &digestCheck{own: own, log: slog.New(slog.NewTextHandler(&log, nil))}
	self := cluster.Member{Self: true}
	for _, step := range []struct {
		what   string
		theirs eventlog.Digest
		want   bool
		logged int // in all
	}{
		{"nothing is known of it", eventlog.Digest{}, false, 0},
		{"it is equal", eventlog.Digest{From: 1, Seq: 16, Sum: 5}, false, 0},
		{"it is ahead", eventlog.Digest{From: 1, Seq: 48, Sum: 7}, false, 0},
		{"it began later, and will join", eventlog.Digest{From: 9, Seq: 32, Sum: 7}, false, 0},
		{"it differs", eventlog.Digest{From: 1, Seq: 32, Sum: 7}, true, 1},
		{"it is ahead again", eventlog.Digest{From: 1, Seq: 48, Sum: 7}, true, 1},
		{"it still differs", eventlog.Digest{From: 1, Seq: 16, Sum: 6}, true, 1},
		{"it was replaced", eventlog.Digest{From: 1, Seq: 32, Sum: 9}, false, 1},
	} {
		m := cluster.Member{}
		m.ID, m.Name, m.Digests = "id-b", "b", []eventlog.Digest{step.theirs}
		got := c.check([]cluster.Member{self, m})
		if want := map[string][]int{"id-b": {0}}; step.want != maps.EqualFunc(got, want, slices.Equal[[]int]) {
			t.Errorf("%s: it differs in %v", step.what, got)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != step.logged {
			t.Errorf("%s: %d errors are logged, want %d", step.what, n, step.logged)
		}
	}
	// The own digest begins later, because the state is of an earlier release.
	own[64] = eventlog.Digest{From: 40, Seq: 64, Sum: 1}
	m := cluster.Member{}
	m.Digests = []eventlog.Digest{{From: 1, Seq: 64, Sum: 8}}
	for range 2 {
		if got := c.check([]cluster.Member{m}); len(got) > 0 {
			t.Errorf("it differs in %v", got)
		}
	}
	if own[64] != m.Digests[0] {
		t.Errorf("the digest did not join that of the other member: %+v", own[64])
	}
}
