package backend

import (
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// TestUnread: the copy of a partition begins behind losses that an operator accepted, and has no gap.
func TestUnread(t *testing.T) {
	type gaps []blocks.Range
	for _, tc := range []struct {
		what                 string
		position, last, next uint64 // next is 0 if the backend must read more of the log first
		lost                 gaps
		quiet                uint64
	}{
		{"nothing was read", 0, 20, 1, nil, 0},
		{"all was read", 21, 20, 21, nil, 0},
		{"losses that were read", 11, 20, 11, gaps{{From: 2, To: 10}}, 0},
		{"losses that are next", 11, 40, 31, gaps{{From: 21, To: 30}, {From: 5, To: 20}}, 0},
		{"losses at the end", 11, 20, 21, gaps{{From: 11, To: 20}}, 0},
		{"losses behind messages", 11, 40, 0, gaps{{From: 21, To: 30}}, 0},
		{"losses behind messages, at the end", 11, 40, 0, gaps{{From: 21, To: 40}}, 0},
		{"a replay that sends nothing", 11, 20, 0, nil, 15},
		{"a replay that sent nothing", 16, 20, 16, nil, 15},
	} {
		st := partitionStream(0)
		st.report = &blocks.Report{Last: tc.last}
		s := &Survey{positions: []uint64{tc.position}}
		s.id.Lost = map[string][]blocks.Range{eventlog.Stored(0).Name: tc.lost}
		s.id.Quiet = []uint64{tc.quiet}
		next, err := s.unread(&st)
		if next != tc.next || (err != nil) != (tc.next == 0) {
			t.Errorf("%s: the copy begins at %d, %v; want %d", tc.what, next, err, tc.next)
		}
	}
}

// TestInitRefusesPeers: the members of a new cluster make the administrator themselves.
func TestInitRefusesPeers(t *testing.T) {
	opts := quickOptions(t)
	opts.Cluster = Cluster{Name: "a", ListenAddress: "127.0.0.1:1", Peers: []string{"127.0.0.1:1", "127.0.0.1:2"}}
	if err := Initialize(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "run init without --peers") {
		t.Errorf("init says %v", err)
	}
	if exists((&stateDir{path: opts.StateDir}).identity()) {
		t.Error("it has made something")
	}
}
