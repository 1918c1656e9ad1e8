package cluster

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

// isolate cuts all links between a member and the others, or mends them.
func (n *network) isolate(yes bool, member int) {
	for i := range n.nodes {
		if i != member {
			n.sever(yes, member, i)
			n.sever(yes, i, member)
		}
	}
}

// TestHeartbeatsThatWaited: a member that stood still reads the heartbeats that waited in its sockets first. They are a
// majority's, and it has not folded the roster that took it off.
func TestHeartbeatsThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members with leases", func() bool { return n.agreed(0, 1, 2)() && n.nodes[1].Leased() })
		time.Sleep(time.Second)
		var waited [][]byte
		for _, i := range []int{0, 2} {
			b := n.nodes[i].own()
			body, err := json.Marshal(&b)
			if err != nil {
				t.Fatal(err)
			}
			waited = append(waited, body)
		}
		thaw := n.nodes[1].freeze()
		n.within(6*time.Second, "two members", n.agreed(0, 2))
		for _, body := range waited {
			n.nodes[1].hear(body)
		}
		if n.nodes[1].Leased() || n.nodes[1].MayAct() {
			t.Error("it may act before it knows that it was taken off")
		}
		thaw()
		n.within(10*time.Second, "it comes back", n.agreed(0, 1, 2))
		n.within(time.Second, "it has its lease", n.nodes[1].Leased)
	})
}

// TestOwnerHasLease: a member that has lost its lease and cannot write to the log gets no lease, and is not on the rosters
// although all hear it: lanes that it owned would have no member that acts.
func TestOwnerHasLease(t *testing.T) {
	for name, away := range map[string]time.Duration{"taken off": 10 * time.Second, "not taken off": 2300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, 3)
				n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
				beat := DefaultOptions().Beat
				time.Sleep(time.Until(time.Now().Truncate(beat).Add(beat + beat/5))) // all have just sent a heartbeat
				n.isolate(true, 0)
				time.Sleep(away)
				n.leave(true, 0)
				n.isolate(false, 0)
				n.within(6*time.Second, "two members", n.agreed(1, 2))
				number := n.nodes[1].Number(0)
				time.Sleep(time.Minute)
				if n.nodes[0].Leased() || !n.agreed(1, 2)() || n.nodes[1].Number(0) != number {
					t.Errorf("it has a lease: %v; the rosters went on from %d to %d", n.nodes[0].Leased(), number, n.nodes[1].Number(0))
				}
				n.leave(false, 0)
				n.within(10*time.Second, "it comes back", n.agreed(0, 1, 2))
				if !n.nodes[0].Leased() {
					t.Error("a member has no lease")
				}
			})
		})
	}
}

// TestRemovalThatWaits: while the proposal to take a member off waits for the log, the member renews its lease. It gets
// none before it knows what becomes of the proposal: others may fold that before it does.
func TestRemovalThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		time.Sleep(time.Second)
		thaw := n.nodes[1].freeze()
		n.leave(true, 0, 2)
		n.within(6*time.Second, "a proposal that waits", func() bool { return len(n.nodes[0].own().Removing) > 0 })
		thaw()
		for range 2000 { // 20 s
			time.Sleep(10 * time.Millisecond)
			if n.nodes[1].Leased() {
				t.Fatal("it has a lease, and is about to be taken off")
			}
		}
		n.leave(false, 0, 2)
		n.within(time.Second, "two members", n.agreed(0, 2))
		n.within(10*time.Second, "it comes back", n.agreed(0, 1, 2))
	})
}

// TestRenewalThatOthersHaveNotFolded: a renewal counts when the others that are heard have folded it. One that does not
// get on with the log is waited for, but not until the others give the member up.
func TestRenewalThatOthersHaveNotFolded(t *testing.T) {
	// So long that the others are heard for the last time before the lease ends, and that the member's next heartbeat comes
	// in time if it comes at once.
	const away = 2450 * time.Millisecond
	lost := 0
	for phase := time.Duration(0); phase < 500*time.Millisecond; phase += 30 * time.Millisecond { // of its heartbeats
		for _, slow := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, 3)
				n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
				n.nodes[1].kill()
				time.Sleep(10*time.Second + phase)
				n.nodes[1].start()
				n.within(20*time.Second, "three members again", n.agreed(0, 1, 2))
				folded := func(seqs []uint64) {
					n.nodes[0].mu.Lock()
					n.nodes[0].info.Folded = seqs
					n.nodes[0].mu.Unlock()
				}
				folded(make([]uint64, partitions))
				beat := DefaultOptions().Beat
				time.Sleep(time.Until(time.Now().Truncate(beat).Add(2*beat + beat/5))) // the others have just sent a heartbeat
				number := n.nodes[2].Number(0)
				n.isolate(true, 1)
				time.Sleep(away)
				kept := n.nodes[1].Leased()
				n.isolate(false, 1)
				if kept {
					return // the others were heard just in time
				}
				time.Sleep(1550 * time.Millisecond)
				if n.nodes[2].Number(0) != number {
					return // the others had given it up before it renewed its lease
				}
				lost++
				if n.nodes[1].Leased() {
					t.Error("it has a lease before another one has folded its renewal")
				}
				if !slow {
					folded(nil) // as of a member that does not say
				}
				n.within(time.Second, "its lease", n.nodes[1].Leased)
				for range 500 {
					time.Sleep(10 * time.Millisecond)
					for lane, owners := range n.owners(0, 1, 2) {
						if owners > 1 {
							t.Fatalf("%d members act for %s", owners, lane)
						}
					}
				}
				if now := n.nodes[2].Number(0); now != number {
					t.Errorf("phase %s, slow %v: the roster went on from %d to %d", phase, slow, number, now)
				}
			})
		}
	}
	if t.Logf("the lease was lost %d times", lost); lost == 0 {
		t.Error("the lease was never lost")
	}
}

// TestRenewalsThatComeLate: a log that takes renewals late, as in an election, delays the lease by no more than another
// round.
func TestRenewalsThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		n.isolate(true, 1)
		n.within(10*time.Second, "two members", n.agreed(0, 2))
		n.leave(true, 0, 1, 2)
		n.isolate(false, 1)
		time.Sleep(5 * time.Second)
		n.leave(false, 0, 1, 2)
		n.within(2*time.Second, "its lease", n.nodes[1].Leased)
		n.within(5*time.Second, "three members", n.agreed(0, 1, 2))
	})
}

// TestLeaseWithoutOneMember: a member that died just before another one lost its lease is not waited for long.
func TestLeaseWithoutOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		time.Sleep(time.Second)
		n.nodes[0].kill()
		n.isolate(true, 1)
		time.Sleep(10 * time.Second)
		n.isolate(false, 1)
		n.within(2*time.Second, "their leases", func() bool { return n.nodes[1].Leased() && n.nodes[2].Leased() })
	})
}

// TestWatches: which deadlines a member watches, and since when the agents could be heard.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		start := time.Now()
		time.Sleep(time.Minute)
		if away := n.nodes[0].LastAway(); away.After(start) {
			t.Errorf("a member was away at %s, the start was at %s", away, start)
		}
		for p := range partitions {
			owner := n.nodes[0].Owner(p, PartitionLane(p))
			for i := range 3 {
				for origin := range 3 {
					if watches, since := n.nodes[i].Watches(p, id(origin)); watches != (i == origin) || since.After(start) {
						t.Errorf("%s watches partition %d for %s: %v since %s", id(i), p, id(origin), watches, since)
					}
				}
				watches, since := n.nodes[i].Watches(p, "")
				if later := since.After(start); !watches || later != (owner != id(i)) {
					t.Errorf("%s watches what partition %d has from before the start: %v, later than the owner: %v", id(i), p, watches, later)
				}
			}
		}
		// A loss of the lease that is too short for agents to go elsewhere changes nothing.
		for _, c := range []struct {
			away time.Duration
			anew bool
		}{{2600 * time.Millisecond, false}, {10 * time.Second, true}} {
			n.isolate(true, 0)
			time.Sleep(c.away)
			if watches, _ := n.nodes[0].Watches(0, id(0)); watches {
				t.Error("it watches without its lease")
			}
			back := time.Now()
			n.isolate(false, 0)
			n.within(10*time.Second, "it is back", func() bool { return n.agreed(0, 1, 2)() && n.nodes[0].Leased() })
			if away := n.nodes[0].LastAway(); away.Before(back) == c.anew {
				t.Errorf("after %s it was last away at %s, it was back at %s", c.away, away, back)
			}
			if _, since := n.nodes[0].Watches(0, id(0)); since.Before(back) == c.anew {
				t.Errorf("after %s its agents have been heard since %s, it was back at %s", c.away, since, back)
			}
		}
		left := time.Now()
		n.isolate(true, 2)
		n.within(20*time.Second, "another member is off the rosters", n.agreed(0, 1))
		if away := n.nodes[0].LastAway(); !away.After(left) {
			t.Errorf("another member left after %s, and was last away at %s", left, away)
		}
	})
}
