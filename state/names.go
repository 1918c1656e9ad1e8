package state

// checkSet has the names of a partition's checks, by an index that takes less room in a pair. The index of a name
// without pairs is reused. Guarded by partition.mu.
type checkSet struct {
	entries []checkName
	id      map[string]uint32 // index into entries
	free    []uint32
}

type checkName struct {
	name  string
	pairs int // pairs with this name
}

func newCheckSet() checkSet { return checkSet{id: map[string]uint32{}} }

func (cs *checkSet) name(id uint32) string { return cs.entries[id].name }

// take returns the index of a name, and counts one more pair of it. another is set if the index meant another name
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

// nameSet returns one shared string for equal bytes, so that the records of the log share the names of the state. When
// half of its names may be unused it is rebuilt with the names of the state.
type nameSet struct {
	names map[string]string
	limit int
	kept  int // names of the state after the newest message; guarded by partition.mu
}

// spareNames is how many names a nameSet may have beyond twice the state's.
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

// keepNames drops the names that the state no longer has. The caller holds mu.
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
