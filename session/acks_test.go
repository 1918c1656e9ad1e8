package session

import "testing"

func TestAcks(t *testing.T) {
	var a acks
	expect := func(seqs ...uint64) {
		for _, s := range seqs {
			a.expect(s)
		}
	}
	done := func(seq uint64, wantTell bool, want uint64) {
		t.Helper()
		if tell := a.done(seq); tell != wantTell {
			t.Fatalf("done(%d) says %v", seq, tell)
		}
		got, ok := a.take()
		if ok != wantTell || ok && got != want {
			t.Fatalf("after done(%d): take gives %d %v, want %d %v", seq, got, ok, want, wantTell)
		}
	}
	expect(5, 6, 7, 9, 10) // 8 was dropped by the agent
	done(6, false, 0)
	done(5, true, 6)
	done(4, false, 0) // of an earlier session
	done(9, false, 0)
	done(7, true, 9)
	done(10, true, 10)
	done(10, false, 0)
	expect(11)
	done(11, true, 11)
	if len(a.sent) != 0 {
		t.Fatalf("%d left", len(a.sent))
	}
}
