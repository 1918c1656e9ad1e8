package member

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Placement says which members own a series, by rendezvous hashing: when a member comes or goes, only the series that
// it gets or had change their owners. It does not change once it is made.
type Placement struct {
	ids    []string
	hashes []uint64
}

// NewPlacement returns the placement on members with these ids, in the order of their bytes.
func NewPlacement(ids []string) *Placement {
	p := &Placement{ids: slices.Compact(slices.Sorted(slices.Values(ids)))}
	for _, id := range p.ids {
		p.hashes = append(p.hashes, xxhash.Sum64String(id))
	}
	return p
}

// IDs returns the members' ids. The caller must not change them.
func (p *Placement) IDs() []string { return p.ids }

// maxOwners bounds how many members own a series.
const maxOwners = 8

// Owners appends the owners of a series to dst, as indexes into IDs, the first one first. There are n of them, or as
// many as there are members.
func (p *Placement) Owners(name string, n int, dst []int) []int {
	var weights [maxOwners]uint64
	n = min(n, len(p.ids), maxOwners)
	h := xxhash.Sum64String(name)
	first := len(dst)
	for i, id := range p.hashes {
		w := mix(h ^ id)
		at := len(dst) - first // of equal weights the smaller id is first
		for at > 0 && weights[at-1] < w {
			at--
		}
		if at >= n {
			continue
		}
		if len(dst)-first < n {
			dst = append(dst, 0)
		}
		own := dst[first:]
		copy(own[at+1:], own[at:])
		copy(weights[at+1:n], weights[at:])
		own[at], weights[at] = i, w
	}
	return dst
}

// mix spreads a hash over all bits.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
