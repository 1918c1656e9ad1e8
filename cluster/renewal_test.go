package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// openNetwork runs members that do not know their number.
func openNetwork(t *testing.T, members int) *network {
	return (&network{open: true}).run(t, members)
}

// leave has members reach the log no more, or again.
func (n *network) leave(out bool, members ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range members {
		n.out[i] = out
	}
}

// TestOpenClusterOfOne: one member alone acts, and another one joins when it appears.
func TestOpenClusterOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNetwork(t, 2)
		n.nodes[1].kill()
		n.within(10*time.Second, "one member", n.agreed(0))
		if acts := n.nodes[0].Acts(HousekeepingLane); !acts {
			t.Error("a single member does not act")
		}
		n.nodes[1].start()
		n.within(10*time.Second, "two members", n.agreed(0, 1))
		if size := n.nodes[0].Size(); size != 2 {
			t.Errorf("the size is %d", size)
		}
		time.Sleep(time.Minute)
		if number := n.nodes[0].Number(0); number > 5 {
			t.Errorf("at rest there were %d rosters", number)
		}
	})
}

// TestOpenClusterReplacesKilledMembers: the last member goes on alone.
func TestOpenClusterReplacesKilledMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		left := []int{0, 1, 2}
		for _, victim := range []int{2, 0} {
			left = slices.DeleteFunc(left, func(i int) bool { return i == victim })
			n.nodes[victim].kill()
			took := n.within(8*time.Second, "fewer members", n.agreed(left...))
			if took < 4*time.Second {
				t.Errorf("%s was taken off after %s: a short pause would do that too", id(victim), took)
			}
			for lane, count := range n.owners(left...) {
				if count != 1 {
					t.Errorf("%s has %d owners", lane, count)
				}
			}
		}
	})
}

// TestOpenClusterMemberThatLeaves: others act at once.
func TestOpenClusterMemberThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNetwork(t, 2)
		n.within(10*time.Second, "two members", n.agreed(0, 1))
		if err := n.nodes[1].Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.within(time.Second, "one member", n.agreed(0))
	})
}

// TestOpenClusterMemberWithoutTheLog: a member that does not reach the log has no lease before another one acts,
// although all hear its heartbeats.
func TestOpenClusterMemberWithoutTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNetwork(t, 2)
		n.within(10*time.Second, "two members", n.agreed(0, 1))
		n.leave(true, 0)
		n.within(5*time.Second, "the lease ends", func() bool {
			if n.agreed(1)() {
				t.Fatal("the other one acts first")
			}
			return !n.nodes[0].Leased()
		})
		n.within(8*time.Second, "one member", n.agreed(1))
		n.leave(false, 0)
		n.within(10*time.Second, "it comes back", n.agreed(0, 1))
	})
}

// TestOpenClusterWithoutALog: while the log takes nothing no member acts, and afterwards the members are the same.
func TestOpenClusterWithoutALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		before := n.nodes[0].Number(0)
		n.leave(true, 0, 1, 2)
		time.Sleep(time.Minute)
		for i := range 3 {
			if n.nodes[i].Leased() {
				t.Errorf("%s has a lease without the log", id(i))
			}
		}
		n.leave(false, 0, 1, 2)
		n.within(5*time.Second, "all have their leases again", func() bool {
			return n.nodes[0].Leased() && n.nodes[1].Leased() && n.nodes[2].Leased()
		})
		time.Sleep(time.Minute)
		if number := n.nodes[0].Number(0); number != before {
			t.Errorf("the roster is %d, it was %d", number, before)
		}
	})
}

// TestOpenClusterBrokenLinks: members that do not hear each other stay, because the log hears them.
func TestOpenClusterBrokenLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		before := n.nodes[0].Number(0)
		n.sever(true, 0, 1, 2)
		n.sever(true, 1, 0, 2)
		n.sever(true, 2, 0, 1)
		time.Sleep(time.Minute)
		if !n.agreed(0, 1, 2)() || n.nodes[0].Number(0) != before {
			t.Errorf("the roster is %d, it was %d", n.nodes[0].Number(0), before)
		}
	})
}

// TestOpenClusterFrozenMember: it has no lease when it runs again, nor with the first renewal.
func TestOpenClusterFrozenMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNetwork(t, 2)
		n.within(10*time.Second, "two members", n.agreed(0, 1))
		thaw := n.nodes[0].freeze()
		n.within(8*time.Second, "one member", n.agreed(1))
		thaw()
		if n.nodes[0].Leased() || n.nodes[0].MayAct() {
			t.Error("it has a lease when it runs again")
		}
		n.within(10*time.Second, "it comes back", n.agreed(0, 1))
		n.within(5*time.Second, "it has its lease", n.nodes[0].Leased)
	})
}
