package state

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// digestOfLog returns the digest of all messages that a partition has.
func (b *bench) digestOfLog(partition int) (d eventlog.Digest) {
	b.t.Helper()
	info, err := b.stream(partition).Info(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		msg, err := b.stream(partition).GetMsg(b.t.Context(), seq)
		if err != nil {
			b.t.Fatal(err)
		}
		d.Add(seq, eventlog.Checksum(msg.Data, true))
	}
	return d
}

// putUntil appends until a message of partition 0 has been folded.
func (b *bench) putUntil(seq uint64) {
	b.t.Helper()
	for {
		folded, _ := b.state.Folded(0)
		if folded >= seq {
			return
		}
		b.put(result(int64(folded) + 1))
	}
}

func (b *bench) wantDigest(when string) {
	b.t.Helper()
	p := b.state.parts[0]
	p.mu.Lock()
	have := p.digest.newest
	p.mu.Unlock()
	if want := b.digestOfLog(0); have != want {
		b.t.Errorf("%s the digest is %+v, and that of the log %+v", when, have, want)
	}
}

// TestDigestSurvives: the digest is that of the whole log after a crash, whatever was stored before, and after a stop.
func TestDigestSurvives(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	hour := func(o *Options) { o.WriteDelay = time.Hour }
	b.open(hour)
	b.put(result(1))
	b.put(result(2))
	b.wantDigest("in the same process")
	b.crash()
	b.open(hour)
	b.wantDigest("after a crash before all commits")
	b.put(result(3))
	if _, err := b.state.parts[0].writeSome(nowMilli() + 1); err != nil {
		t.Fatal(err)
	}
	b.put(result(4))
	b.crash()
	b.open(hour)
	b.wantDigest("after a crash behind a commit")
	b.put(result(5))
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(hour)
	b.put(result(6))
	b.wantDigest("after a stop")
}

// TestDigestPoints: members compare their digests at common messages.
func TestDigestPoints(t *testing.T) {
	b := newBench(t, 1)
	if d := b.state.Digest(0); d.Seq != 0 {
		t.Errorf("without messages the digest is %+v", d)
	}
	b.putUntil(2*digestEvery + 1)
	d := b.state.Digest(0)
	if d.Seq != 2*digestEvery || d.From != 1 {
		t.Errorf("the digest is %+v, want that of message %d", d, 2*digestEvery)
	}
	if at, ok := b.state.DigestAt(0, d.Seq); !ok || at != d {
		t.Errorf("the same digest is %+v, %v", at, ok)
	}
	if first, ok := b.state.DigestAt(0, digestEvery); !ok || first.Sum == d.Sum {
		t.Errorf("the one before is %+v, %v", first, ok)
	}
	for _, seq := range []uint64{0, 1, 3 * digestEvery} {
		if at, ok := b.state.DigestAt(0, seq); ok {
			t.Errorf("message %d has the digest %+v", seq, at)
		}
	}
}

// TestDigestJoins: a state of an earlier release has no digest. It begins late, takes over what it lacks from another
// member, and keeps it.
func TestDigestJoins(t *testing.T) {
	b := newBench(t, 1)
	b.put(result(1))
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.db.Delete(digestKey(0), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	b.putUntil(digestEvery + 1)
	late, ok := b.state.DigestAt(0, digestEvery)
	whole := eventlog.Digest{From: 1, Seq: digestEvery, Sum: late.Sum + 99}
	if !ok || late.From != 2 {
		t.Fatalf("the digest is %+v, %v, want it from message 2 on", late, ok)
	}
	b.state.JoinDigest(0, eventlog.Digest{From: 1, Seq: 2 * digestEvery})
	b.state.JoinDigest(0, eventlog.Digest{From: 3, Seq: digestEvery})
	if at, _ := b.state.DigestAt(0, digestEvery); at != late {
		t.Errorf("a digest that does not fit changed it to %+v", at)
	}
	b.state.JoinDigest(0, whole)
	if at, _ := b.state.DigestAt(0, digestEvery); at != whole {
		t.Errorf("the digest is %+v, and the other member's %+v", at, whole)
	}
	newest := func() eventlog.Digest {
		p := b.state.parts[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.digest.newest
	}
	before := newest()
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	if got := newest(); got != before || got.From != 1 {
		t.Errorf("before the stop it was %+v, now it is %+v", before, got)
	}
}

// TestDigestOfAnotherPlace: a position that was moved because messages are lost begins a new digest.
func TestDigestOfAnotherPlace(t *testing.T) {
	b := newBench(t, 1)
	for i := range int64(4) {
		b.put(result(i + 1))
	}
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := StorePosition(b.db, 0, 3); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	p := b.state.parts[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.digest.newest.From != 3 {
		t.Errorf("the digest is %+v, want it from message 3 on", p.digest.newest)
	}
}
