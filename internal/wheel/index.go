package wheel

// pageSize ids with the same upper bits share a page of the index.
const pageSize = 512

// index maps an id to the tick under which it is filed; 0 for none. It is paged and not a map, so that it costs only a
// few bytes an id. So ids should be dense, like places in a slab, perhaps with a partition in the upper bits. Scattered
// ids work, at the price of a page each.
type index struct {
	pages map[uint64]*page
	armed int // ids with a tick
}

type page struct {
	ticks *[pageSize]uint32 // a separate allocation, so that it fills its size class
	armed int
}

func newIndex() index { return index{pages: map[uint64]*page{}} }

func (x *index) get(id uint64) uint32 {
	p := x.pages[id/pageSize]
	if p == nil {
		return 0
	}
	return p.ticks[id%pageSize]
}

func (x *index) set(id uint64, tick uint32) {
	p := x.pages[id/pageSize]
	if p == nil {
		p = &page{ticks: new([pageSize]uint32)}
		x.pages[id/pageSize] = p
	}
	old := &p.ticks[id%pageSize]
	if *old == 0 && tick != 0 {
		p.armed++
		x.armed++
	} else if *old != 0 && tick == 0 {
		p.armed--
		x.armed--
	}
	*old = tick
}

// release frees the page of id if nothing in it is filed. set does not, since an id is mostly filed again at once.
func (x *index) release(id uint64) {
	if p := x.pages[id/pageSize]; p != nil && p.armed == 0 {
		delete(x.pages, id/pageSize)
	}
}
