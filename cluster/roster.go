package cluster

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

// Roster is a numbered list of members. Each partition of the event log has rosters of its own: a record of the log
// proposes one, and it counts behind its message if its number follows that of the newest one. So the order of the log
// decides between two proposals, and all members agree on the roster at each position.
type Roster struct {
	// Number counts the rosters of a partition. 0 means that there is none yet.
	Number uint64
	// Members are the ids of the members, sorted.
	Members []string
}

// rosterVersion begins an encoded roster.
const rosterVersion = 1

func (r Roster) encode() []byte {
	b := []byte{rosterVersion}
	b = binary.AppendUvarint(b, r.Number)
	for _, id := range r.Members {
		b = fields.AppendBytes(b, id)
	}
	return b
}

func decodeRoster(body []byte) (Roster, error) {
	r := fields.NewReader(body)
	if err := fields.CheckVersion("a roster", r.Byte(), rosterVersion); err != nil {
		return Roster{}, err
	}
	roster := Roster{Number: r.Uint()}
	for len(r.Rest) > 0 && r.Err() == nil {
		roster.Members = append(roster.Members, r.Text())
	}
	return roster, r.Err()
}

// Has reports whether a backend is a member.
func (r Roster) Has(id string) bool { return slices.Contains(r.Members, id) }

// owner returns the member that acts for a lane, "" if there are no members. When a member comes or goes, only the lanes
// that it gets or had change their owner (rendezvous hashing).
func (r Roster) owner(lane string) (owner string) {
	var best uint64
	for _, id := range r.Members {
		h := fnv.New64a()
		_, _ = h.Write([]byte(lane))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(id))
		if weight := mix(h.Sum64()); owner == "" || weight > best {
			owner, best = id, weight
		}
	}
	return owner
}

// mix spreads a hash over all bits: names that differ in their last letter only have FNV hashes that differ little.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// history has the newest rosters of a partition with the positions from which they count, oldest first. A replay judges
// a record by the roster of its position.
type history []counted

type counted struct {
	from uint64 // the message with the roster's record: it counts for the messages behind it
	Roster
}

// maxHistory is how many rosters a partition keeps. A replay that begins before the oldest one takes that one.
const maxHistory = 64

func (h history) newest() Roster {
	if len(h) == 0 {
		return Roster{}
	}
	return h[len(h)-1].Roster
}

// at returns the roster that counts for a message.
func (h history) at(seq uint64) Roster {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].from < seq || i == 0 && len(h) == maxHistory {
			return h[i].Roster
		}
	}
	return Roster{}
}

func (h history) add(seq uint64, r Roster) history {
	h = append(h, counted{seq, r})
	return h[max(0, len(h)-maxHistory):]
}

func (h history) encode() []byte {
	b := []byte{rosterVersion}
	for _, c := range h {
		b = binary.AppendUvarint(b, c.from)
		b = fields.AppendBytes(b, c.Roster.encode())
	}
	return b
}

func decodeHistory(value []byte) (history, error) {
	r := fields.NewReader(value)
	if err := fields.CheckVersion("the stored rosters", r.Byte(), rosterVersion); err != nil {
		return nil, err
	}
	var h history
	for len(r.Rest) > 0 && r.Err() == nil {
		from, body := r.Uint(), r.Bytes()
		if r.Err() != nil {
			break
		}
		roster, err := decodeRoster(body)
		if err != nil {
			return nil, err
		}
		h = append(h, counted{from, roster})
	}
	return h, r.Err()
}
