package load

import (
	"encoding/binary"
	"math"
)

// historySize is how many results of a check a backend keeps, including the newest.
const historySize = 21

// Share is how often a check has a status, in relation to the other shares of a mix.
type Share struct {
	Status uint32  `json:"status"`
	Weight float64 `json:"weight"`
}

// outcomes computes the status of every result of a run. A status depends only on the seed, the agent, the check and
// the result's number, so a verifier can compute again what was sent and no process has to remember it.
type outcomes struct {
	seed  uint64
	mix   []Share
	total float64
	hold  uint64 // results until the status is drawn again; 0 for never
}

func newOutcomes(seed uint64, mix []Share, flapRate float64) outcomes {
	o := outcomes{seed: seed, mix: mix}
	for _, s := range mix {
		o.total += s.Weight
	}
	if flapRate > 0 {
		o.hold = max(1, uint64(math.Round(1/flapRate)))
	}
	return o
}

// status returns the status of result number n (from 1) of a check.
func (o *outcomes) status(agent int, check uint64, n uint32) uint32 {
	if len(o.mix) == 0 {
		return 0
	}
	pair := mix64(o.seed ^ mix64(uint64(agent)+1) ^ check)
	segment := uint64(0)
	if o.hold > 0 {
		segment = (uint64(n) + pair%o.hold) / o.hold // not all change at the same time
	}
	at := float64(mix64(pair+segment)>>11) / (1 << 53) * o.total
	for _, s := range o.mix {
		if at < s.Weight {
			return s.Status
		}
		at -= s.Weight
	}
	return o.mix[len(o.mix)-1].Status
}

// expected returns what a backend must store about a check after n results: their number since the status last changed,
// and the last statuses, oldest first.
func (o *outcomes) expected(agent int, check uint64, n uint32) (occurrences int64, history []uint32) {
	last := o.status(agent, check, n)
	for i := n; i > 0 && o.status(agent, check, i) == last; i-- {
		occurrences++
	}
	for i := n - min(n, historySize) + 1; i <= n; i++ {
		history = append(history, o.status(agent, check, i))
	}
	return occurrences, history
}

// eventID is the id of a result, which stays the same when the result is sent again.
func (o *outcomes) eventID(agent int, check uint64, n uint32) (id [16]byte) {
	pair := mix64(o.seed ^ mix64(uint64(agent)+1) ^ check)
	binary.BigEndian.PutUint64(id[:8], mix64(pair^uint64(n)))
	binary.BigEndian.PutUint64(id[8:], mix64(pair+uint64(n)+1))
	id[6] = id[6]&0x0f | 0x40 // as of a random UUID
	id[8] = id[8]&0x3f | 0x80
	return id
}

// mix64 is a bijection whose result looks random: the finalizer of SplitMix64.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func checkHash(name string) uint64 { return stringHash(name) }

// stringHash is FNV-1a. It is the same in all processes, and unlike that of hash/fnv it needs no memory.
func stringHash(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}
