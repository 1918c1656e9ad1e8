package intake

import (
	"hash/maphash"
	"sync"
)

// interner returns one shared string for equal names, so that the events of all sessions share the names of the few
// checks. It is safe for concurrent use.
type interner struct {
	seed   maphash.Seed
	shards [internerShards]internerShard
}

type internerShard struct {
	mu    sync.RWMutex // guards names
	names map[string]string
	_     [32]byte // pads the shard to about one cache line
}

const (
	internerShards = 32
	maxInterned    = 1024 // names in a shard; a full shard starts over, which drops names that are no longer used
)

func newInterner() *interner { return &interner{seed: maphash.MakeSeed()} }

func (n *interner) get(b []byte) string {
	s := &n.shards[maphash.Bytes(n.seed, b)%internerShards]
	s.mu.RLock()
	name, ok := s.names[string(b)]
	s.mu.RUnlock()
	if ok {
		return name
	}
	name = string(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil || len(s.names) >= maxInterned {
		s.names = map[string]string{}
	}
	s.names[name] = name
	return name
}
