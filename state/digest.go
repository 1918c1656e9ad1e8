package state

import (
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

const (
	// digestEvery is the distance of the messages at which members compare their digests.
	digestEvery = 16
	// digestPoints is how many of these a partition keeps: a member that is further behind is compared later.
	digestPoints = 1024
)

// digestSet is the digest of the folded messages of a partition. A replay begins before the newest folded message, and
// must add to the digest of that place. So recent has the digests from there on. Guarded by partition.mu.
type digestSet struct {
	newest  eventlog.Digest
	stored  eventlog.Digest               // before the message from which a replay begins
	recent  []eventlog.Digest             // behind each message from that one on, oldest first
	storing uint64                        // the last message before a replay, after the commit under way; 0 without one
	points  [digestPoints]eventlog.Digest // at multiples of digestEvery, by their number modulo digestPoints
}

func (s *digestSet) fold(seq uint64, checksum uint32) {
	s.newest.Add(seq, checksum)
	s.recent = append(s.recent, s.newest)
	if seq%digestEvery == 0 {
		*s.point(seq) = s.newest
	}
}

func (s *digestSet) point(seq uint64) *eventlog.Digest {
	return &s.points[seq/digestEvery%digestPoints]
}

// behind returns how many of recent are digests up to a message.
func (s *digestSet) behind(seq uint64) int {
	n, exact := slices.BinarySearchFunc(s.recent, seq, func(d eventlog.Digest, seq uint64) int {
		return int(int64(d.Seq - seq))
	})
	if exact {
		n++
	}
	return n
}

// upTo returns the digest of all messages up to one.
func (s *digestSet) upTo(seq uint64) eventlog.Digest {
	d := s.stored
	if n := s.behind(seq); n > 0 {
		d = s.recent[n-1]
	}
	d.Seq = seq // messages between the two are gone, and that is accepted
	return d
}

// store adds the digest to a batch that makes a replay begin at the message from.
func (s *digestSet) store(batch *pebble.Batch, partition int, from uint64) error {
	s.storing = from - 1
	d := s.upTo(s.storing)
	return batch.Set(digestKey(partition), d.Append(nil), nil)
}

// committed ends the commit that store wrote to.
func (s *digestSet) committed(err error) {
	if err == nil && s.storing > s.stored.Seq {
		s.stored = s.upTo(s.storing)
		s.recent = append(s.recent[:0], s.recent[s.behind(s.storing):]...)
	}
	s.storing = 0
}

// load takes a stored digest, if it is the one before the message from which the replay begins. Otherwise the digest
// begins anew there: the state is of an earlier release, or messages were lost and that was accepted.
func (s *digestSet) load(value []byte, next uint64) error {
	d, err := eventlog.DecodeDigest(value)
	if err != nil {
		return err
	}
	if d.Seq+1 == next {
		s.stored, s.newest = d, d
	}
	return nil
}

// join adds to the digest the messages that it lacks and another member's has, if both are known at one message.
func (s *digestSet) join(theirs eventlog.Digest) {
	own := *s.point(theirs.Seq)
	if own.Seq != theirs.Seq || theirs.From >= own.From {
		return
	}
	lacks := theirs.Sum - own.Sum
	add := func(d *eventlog.Digest) {
		if d.From == own.From {
			d.From, d.Sum = theirs.From, d.Sum+lacks
		}
	}
	if s.stored.From == 0 {
		s.stored.From = own.From
	}
	add(&s.newest)
	add(&s.stored)
	for i := range s.recent {
		add(&s.recent[i])
	}
	for i := range s.points {
		add(&s.points[i])
	}
}

func digestKey(partition int) []byte { return []byte{'g', byte(partition)} }

// Digest returns the newest digest of a partition that other members may have too. It is zero before the first one
// since the start.
func (s *State) Digest(partition int) eventlog.Digest {
	p := s.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.digest.point(p.digest.newest.Seq)
}

// DigestAt returns the digest of a partition at a message that another member's Digest names; false if it is not known
// here: not yet, or not any more.
func (s *State) DigestAt(partition int, seq uint64) (eventlog.Digest, bool) {
	p := s.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	d := *p.digest.point(seq)
	return d, seq > 0 && d.Seq == seq
}

// JoinDigest takes over from another member's Digest the messages from before the own one began, so that both can be
// compared. A digest begins late when the state is of an earlier release.
func (s *State) JoinDigest(partition int, theirs eventlog.Digest) {
	p := s.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.digest.join(theirs)
}
