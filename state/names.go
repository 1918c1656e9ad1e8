package state

// checkSet is the names of the checks that a partition's pairs have, by an index that takes less room in a pair. The index
// of a name that no pair has any more is given to another one. Guarded by partition.mu.
type checkSet struct {
	entries []checkName
	id      map[string]uint32 // index into entries
	free    []uint32
}

type checkName struct {
	name  string
	pairs int // that have it
}

func newCheckSet() checkSet { return checkSet{id: map[string]uint32{}} }

func (cs *checkSet) name(id uint32) string { return cs.entries[id].name }

// take returns the index of a name, and counts one more pair that has it. another says that the index meant another name
// before.
func (cs *checkSet) take(name string) (id uint32, another bool) {
	if id, ok := cs.id[name]; ok {
		cs.entries[id].pairs++
		return id, false
	}
	if n := len(cs.free); n > 0 {
		id, cs.free, another = cs.free[n-1], cs.free[:n-1], true
	} else {
		id = uint32(len(cs.entries))
		cs.entries = append(cs.entries, checkName{})
	}
	cs.entries[id] = checkName{name: name, pairs: 1}
	cs.id[name] = id
	return id, another
}

// drop counts one pair less.
func (cs *checkSet) drop(id uint32) {
	c := &cs.entries[id]
	if c.pairs--; c.pairs == 0 {
		delete(cs.id, c.name)
		*c = checkName{}
		cs.free = append(cs.free, id)
	}
}

// nameSet makes the same string of the same bytes each time, so that the records of the log share the names of the state.
// It is made anew with the names that the state still has when half of its names may be gone.
type nameSet struct {
	names map[string]string
	limit int
	kept  int // of the names after the newest message; guarded by partition.mu
}

// spareNames is how many names a nameSet may have beyond twice what the state has.
const spareNames = 256

func newNameSet() nameSet { return nameSet{names: map[string]string{}, limit: spareNames} }

func (ns *nameSet) get(b []byte) string {
	if s, ok := ns.names[string(b)]; ok {
		return s
	}
	return ns.add(string(b))
}

func (ns *nameSet) add(s string) string {
	ns.names[s] = s
	return s
}

func (ns *nameSet) full() bool { return len(ns.names) >= ns.limit }

// keepNames forgets the names that the state no longer has. The caller holds mu.
func (p *partition) keepNames() {
	p.names = newNameSet()
	for i := range p.entities {
		if e := &p.entities[i]; e.used {
			p.names.add(e.namespace)
			p.names.add(e.name)
		}
	}
	for name := range p.checks.id {
		p.names.add(name)
	}
	p.names.limit = 2*len(p.names.names) + spareNames
}
