// Package ring says which destinations a series belongs to. It has the placements of carbon and of carbon-c-relay, so
// that a relay, a cache query or an import finds series where an existing cluster keeps them.
//
// A Ring is immutable and safe for use by several goroutines. Its callers are the relay and the readers of other
// servers' caches. The ring knows nothing about connections: a destination that is down keeps its place.
//
// The hashes mmh3_ch and fast-hashing of carbon are left out: both need MurmurHash3.
package ring

import (
	"crypto/md5"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Method is a way to place names on destinations.
type Method uint8

const (
	// CarbonCH is carbon's default, carbon_ch. Two positions that collide are moved apart, in the order of the
	// configuration. The port is not part of the hash.
	CarbonCH Method = iota
	// CarbonCHRelay is carbon_ch of carbon-c-relay. It differs from CarbonCH at positions that collide.
	CarbonCHRelay
	// FNV1aCH is fnv1a_ch of carbon-c-relay: the instance is hashed or, without one, host and port.
	FNV1aCH
	// FNV1aCHCarbon is fnv1a_ch of carbon. It hashes the instance only, so each destination needs one.
	FNV1aCHCarbon
	// JumpFNV1aCH is jump_fnv1a_ch of carbon-c-relay.
	JumpFNV1aCH
)

var methodNames = [...]string{CarbonCH: "carbon_ch", CarbonCHRelay: "carbon_ch-c-relay", FNV1aCH: "fnv1a_ch",
	FNV1aCHCarbon: "fnv1a_ch-carbon", JumpFNV1aCH: "jump_fnv1a_ch"}

// String returns the name that ParseMethod reads.
func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// ParseMethod reads carbon_ch, carbon_ch-c-relay, fnv1a_ch, fnv1a_ch-carbon or jump_fnv1a_ch.
func ParseMethod(name string) (Method, error) {
	if i := slices.Index(methodNames[:], name); i >= 0 {
		return Method(i), nil
	}
	return 0, fmt.Errorf("%q is no hash ring: use %s", name, strings.Join(methodNames[:], ", "))
}

// MaxDestinations bounds the destinations of a ring.
const MaxDestinations = 10_000

// pointsPerNode is the number of positions that a destination has on the ring. All known programs use 100.
const pointsPerNode = 100

// Options are the settings of a ring.
type Options struct {
	Method Method
	// Diverse asks for copies on different hosts (carbon's DIVERSE_REPLICAS, its default). Without it the copies are on
	// different destinations, which may share a host. It applies to CarbonCH and FNV1aCHCarbon.
	Diverse bool
}

// Ring places names on destinations.
type Ring struct {
	opts  Options
	dests []Destination
	// hosts[i] is the index of the first destination with the host of destination i.
	hosts []int
	// entries are sorted by position. They are empty for JumpFNV1aCH.
	entries []entry
	// order are the destinations in the order of the jump hash.
	order []int
}

type entry struct{ position, node int }

// New returns the ring of destinations. Their order counts, as in the other programs' configuration.
func New(destinations []Destination, o Options) (*Ring, error) {
	if len(destinations) == 0 {
		return nil, fmt.Errorf("hash ring without destinations")
	}
	if len(destinations) > MaxDestinations {
		return nil, fmt.Errorf("hash ring of %d destinations: the limit is %d", len(destinations), MaxDestinations)
	}
	if int(o.Method) >= len(methodNames) {
		return nil, fmt.Errorf("hash ring: unknown %v", o.Method)
	}
	r := &Ring{opts: o, dests: slices.Clone(destinations), hosts: make([]int, len(destinations))}
	if err := r.check(); err != nil {
		return nil, err
	}
	switch o.Method {
	case CarbonCH, FNV1aCHCarbon:
		r.addBumped()
	case CarbonCHRelay, FNV1aCH:
		r.addSorted()
	case JumpFNV1aCH:
		r.addJump()
	}
	return r, nil
}

// check refuses destinations that the method cannot tell apart, and fills hosts.
func (r *Ring) check() error {
	firstOfHost, seen := map[string]int{}, map[Destination]int{}
	for i, d := range r.dests {
		if err := d.check(); err != nil {
			return fmt.Errorf("hash ring: %w", err)
		}
		if r.opts.Method == FNV1aCHCarbon && d.Instance == "" {
			return fmt.Errorf("hash ring: destination %s needs an instance: %v hashes nothing else", d, r.opts.Method)
		}
		if j, ok := seen[r.identity(d)]; ok {
			return fmt.Errorf("hash ring: %v cannot tell destination %s from %s", r.opts.Method, d, r.dests[j])
		}
		seen[r.identity(d)] = i
		if j, ok := firstOfHost[d.Host]; ok {
			r.hosts[i] = j
		} else {
			firstOfHost[d.Host], r.hosts[i] = i, i
		}
	}
	return nil
}

// identity returns the parts of d that the method hashes.
func (r *Ring) identity(d Destination) Destination {
	switch {
	case r.opts.Method == CarbonCH, r.opts.Method == CarbonCHRelay:
		d.Port = 0
	case r.opts.Method == FNV1aCHCarbon, r.opts.Method == FNV1aCH && d.Instance != "":
		d.Host, d.Port = "", 0
	}
	return d
}

// key returns the text that is hashed for position i of d.
func (r *Ring) key(d Destination, i int) []byte {
	switch r.opts.Method {
	case CarbonCH, CarbonCHRelay:
		// Python's text of the pair of host and instance.
		instance := "None"
		if d.Instance != "" {
			instance = "'" + d.Instance + "'"
		}
		return fmt.Appendf(nil, "('%s', %s):%d", d.Host, instance, i)
	}
	if d.Instance != "" {
		return fmt.Appendf(nil, "%d-%s", i, d.Instance)
	}
	return fmt.Appendf(nil, "%d-%s:%d", i, d.Host, d.Port)
}

// position returns the place of a key on the ring, 0 to 65535.
func (r *Ring) position(key []byte) int {
	switch r.opts.Method {
	case CarbonCH, CarbonCHRelay:
		sum := md5.Sum(key)
		return int(sum[0])<<8 | int(sum[1])
	}
	h := uint32(2166136261)
	for _, c := range key {
		h = (h ^ uint32(c)) * 16777619
	}
	return int(h>>16 ^ h&0xffff)
}

// addBumped adds all destinations as carbon does: a taken position moves up to the next free one, even above 65535.
func (r *Ring) addBumped() {
	taken := make(map[int]bool, len(r.dests)*pointsPerNode)
	for node, d := range r.dests {
		for i := range pointsPerNode {
			p := r.position(r.key(d, i))
			for taken[p] {
				p++
			}
			taken[p] = true
			r.entries = append(r.entries, entry{p, node})
		}
	}
	slices.SortFunc(r.entries, func(a, b entry) int { return a.position - b.position })
}

// addSorted adds all destinations as carbon-c-relay does: the first destination, by name, has a position that collides.
func (r *Ring) addSorted() {
	for node, d := range r.dests {
		for i := range pointsPerNode {
			r.entries = append(r.entries, entry{r.position(r.key(d, i)), node})
		}
	}
	slices.SortStableFunc(r.entries, func(a, b entry) int {
		if a.position != b.position {
			return a.position - b.position
		}
		return r.compare(r.dests[a.node], r.dests[b.node])
	})
	r.entries = slices.CompactFunc(r.entries, func(a, b entry) bool { return a.position == b.position })
}

// compare orders destinations at one position of carbon-c-relay's rings.
func (r *Ring) compare(a, b Destination) int {
	if c := strings.Compare(a.Host, b.Host); c != 0 {
		return c
	}
	switch {
	case r.opts.Method == FNV1aCH:
		return int(a.Port) - int(b.Port)
	case a.Instance == b.Instance:
		return 0
	case a.Instance == "":
		return 1
	case b.Instance == "":
		return -1
	}
	return strings.Compare(a.Instance, b.Instance)
}

// addJump orders the destinations for the jump hash: those with an instance by it, then the others.
func (r *Ring) addJump() {
	for i := range r.dests {
		r.order = append(r.order, i)
	}
	slices.SortStableFunc(r.order, func(i, j int) int {
		a, b := r.dests[i].Instance, r.dests[j].Instance
		switch {
		case a == b:
			return 0
		case a == "":
			return 1
		case b == "":
			return -1
		}
		x, errX := strconv.ParseUint(a, 10, 63)
		y, errY := strconv.ParseUint(b, 10, 63)
		if errX == nil && errY == nil {
			return int(min(max(int64(x)-int64(y), -1), 1))
		}
		return strings.Compare(a, b)
	})
}

// Destinations returns the destinations in the order that Nodes counts them. The caller must not change them.
func (r *Ring) Destinations() []Destination { return r.dests }

// Nodes appends to dst the indexes of the destinations of name, the first choice first, and returns dst. There are n of
// them, or fewer if the ring has fewer (with Diverse: fewer hosts). It allocates only if dst is too short, or if a jump
// hash is asked for more than 16.
func (r *Ring) Nodes(name []byte, n int, dst []int) []int {
	n = min(n, len(r.dests))
	if n <= 0 {
		return dst
	}
	if r.opts.Method == JumpFNV1aCH {
		return r.jump(name, n, dst)
	}
	p := r.position(name)
	at, _ := slices.BinarySearchFunc(r.entries, p, func(e entry, p int) int { return e.position - p })
	turn := len(r.entries)
	bumped := r.opts.Method == CarbonCH || r.opts.Method == FNV1aCHCarbon
	if bumped {
		turn-- // carbon never reads the entry just before its start
	}
	diverse, first := bumped && r.opts.Diverse, len(dst)
	for i := range turn {
		node := r.entries[(at+i)%len(r.entries)].node
		if r.has(dst[first:], node, diverse) {
			continue
		}
		if dst = append(dst, node); len(dst) == first+n {
			break
		}
	}
	return dst
}

// has reports whether nodes contain a node or, if hosts count, another one of its host.
func (r *Ring) has(nodes []int, node int, hosts bool) bool {
	for _, other := range nodes {
		if other == node || hosts && r.hosts[other] == r.hosts[node] {
			return true
		}
	}
	return false
}

// jump appends the first n destinations of name by the jump hash. After each choice, the last destination of the list
// takes the place of the chosen one. picks remembers the places, so that the list itself stays as it is.
func (r *Ring) jump(name []byte, n int, dst []int) []int {
	key := uint64(14695981039346656037)
	for _, c := range name {
		key = (key ^ uint64(c)) * 1099511628211
	}
	var room [16]int
	picks := room[:0]
	for left := len(r.order); len(picks) < n; left-- {
		pick := jumpHash(key, left)
		at := pick
		for k := len(picks) - 1; k >= 0; k-- {
			if at == picks[k] {
				at = len(r.order) - k - 1
			}
		}
		dst = append(dst, r.order[at])
		picks = append(picks, pick)
		key ^= key >> 12
		key ^= key << 25
		key ^= key >> 27
		_, key = bits.Mul64(key, 2685821657736338717)
	}
	return dst
}

// jumpHash is the hash of Lamping and Veach: a bucket below n.
func jumpHash(key uint64, n int) int {
	b, j := int64(-1), int64(0)
	for j < int64(n) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64((key>>33)+1)))
	}
	return int(b)
}
