package session

import (
	"math/rand/v2"
	"testing"
)

func TestAcks(t *testing.T) {
	var a acks
	expect := func(seqs ...uint64) {
		for _, s := range seqs {
			a.expect(s, 100)
		}
	}
	done := func(seq uint64, wantTell bool, want uint64, left int) {
		t.Helper()
		if tell := a.done(seq); tell != wantTell {
			t.Fatalf("done(%d) says %v", seq, tell)
		}
		got, ok := a.take()
		if ok != wantTell || ok && got != want {
			t.Fatalf("after done(%d): take gives %d %v, want %d %v", seq, got, ok, want, wantTell)
		}
		if events, bytes := a.outstanding(); events != left || bytes != 100*left {
			t.Fatalf("after done(%d): %d events with %d bytes left, want %d", seq, events, bytes, left)
		}
	}
	expect(5, 6, 7, 9, 10) // 8 was dropped by the agent
	done(6, false, 0, 5)
	done(5, true, 6, 3)
	done(4, false, 0, 3) // of an earlier session
	done(9, false, 0, 3)
	done(7, true, 9, 1)
	done(10, true, 10, 0)
	done(10, false, 0, 0)
	expect(11)
	expect(11, 3) // against the protocol
	done(11, true, 11, 0)
}

// TestAcksInAnyOrder: in any order of commits, an event is acknowledged only when all events up to it are durable, and
// in the end all are.
func TestAcksInAnyOrder(t *testing.T) {
	const events = 2000
	var a acks
	durable := [events + 1]bool{0: true}
	var told uint64
	next := uint64(1)
	waiting := []uint64{}
	for told < events {
		if next <= events && (len(waiting) == 0 || rand.IntN(2) == 0) {
			a.expect(next, 1)
			waiting = append(waiting, next)
			next++
			continue
		}
		if len(waiting) == 0 {
			t.Fatalf("told of %d only", told)
		}
		i := rand.IntN(min(len(waiting), 200))
		seq := waiting[i]
		waiting = append(waiting[:i], waiting[i+1:]...)
		durable[seq] = true
		a.done(seq)
		if events, _ := a.outstanding(); uint64(events) != next-1-told {
			t.Fatalf("%d outstanding, want %d", events, next-1-told)
		}
		if seq, ok := a.take(); ok {
			for ; told < seq; told++ {
				if !durable[told+1] {
					t.Fatalf("told of %d before %d was durable", seq, told+1)
				}
			}
		} else if durable[told+1] {
			t.Fatalf("not told of %d", told+1)
		}
	}
}

func TestAcksKeepNoRoomForABurst(t *testing.T) {
	var a acks
	for seq := range uint64(1000) {
		a.expect(seq+1, 10)
	}
	for seq := range uint64(1000) {
		a.done(seq + 1)
	}
	if cap(a.arrived) > maxKeptEvents {
		t.Errorf("room for %d events is kept", cap(a.arrived))
	}
}
