// Package offheap keeps many byte strings in memory that the garbage collector neither marks nor counts.
//
// Package state keeps in an Arena the events that wait to be written, hundreds of thousands at full load. On the heap
// they would be there twice: the collector lets a heap grow by its percentage before it collects, garbage or not. An
// Arena takes memory from the system in regions, gives it back when a region is empty, and knows a string by a number,
// so what refers to it has no pointers. An Arena is not safe for use by several goroutines at once. Frees are explicit:
// a Ref that was freed must not be used again.
package offheap

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Ref names a string in an Arena. The zero value names none.
type Ref uint64

const (
	// regionSize is what is taken from the system at a time. A region has blocks of one size.
	regionSize = 256 << 10
	// smallest and largest are the sizes of blocks. Between them a size is an eighth of a power of two above the one
	// before, so a ninth of a block is unused at most. What is longer has a region to itself.
	smallest, largest = 64, 32 << 10
	// header is the length of the string, in front of it.
	header = 4
	// blockBits are those of a Ref that number the block in its region; the others number the region, from 1.
	blockBits = 12

	classes = 8*9 + 1 // from 64 bytes to 32 KiB
	single  = classes // the class of regions with one long string
	maxFree = 16      // empty regions that are kept
)

// mapped is the memory that all arenas have, in bytes.
var mapped atomic.Int64

// Mapped is how much memory all arenas of the process have taken from the system, in bytes.
func Mapped() int64 { return mapped.Load() }

// Arena is a set of byte strings. The zero value is ready.
type Arena struct {
	regions []region
	unused  []uint32        // regions that were given back, index plus one
	open    [classes]uint32 // the first region with room, by class, index plus one
	free    [][]byte        // empty regions, at most maxFree
}

// region is memory with blocks of one size.
type region struct {
	data       []byte
	class      int
	live       int    // blocks in use
	begun      uint32 // blocks that were ever in use
	freed      uint32 // the first free block, plus one; each begins with the number of the next
	prev, next uint32 // in the list of its class, index plus one
}

// classOf returns the class of blocks for so many bytes, at most largest, and their size.
func classOf(n int) (class, size int) {
	if n <= smallest {
		return 0, smallest
	}
	power := bits.Len(uint(n-1)) - 1
	eighths := (n - 1) >> (power - 3) // 8 to 15
	return (power-6)*8 + eighths - 7, (eighths + 1) << (power - 3)
}

// Put copies a string into the arena.
func (a *Arena) Put(b []byte) Ref {
	ref, room := a.take(len(b))
	binary.LittleEndian.PutUint32(room, uint32(len(b)))
	copy(room[header:], b)
	return ref
}

// Get returns a string. It is valid, and must not be changed, until the arena is changed.
func (a *Arena) Get(ref Ref) []byte {
	room := a.block(ref)
	n := int(binary.LittleEndian.Uint32(room))
	return room[header : header+n : header+n]
}

// Replace frees a string, which may be none, and puts another, in the same room if it fits there.
func (a *Arena) Replace(ref Ref, b []byte) Ref {
	if ref == 0 {
		return a.Put(b)
	}
	if n := len(b) + header; n <= largest {
		if class, _ := classOf(n); class == a.regions[ref>>blockBits-1].class {
			room := a.block(ref)
			binary.LittleEndian.PutUint32(room, uint32(len(b)))
			copy(room[header:], b)
			return ref
		}
	}
	a.Free(ref)
	return a.Put(b)
}

// Free forgets a string.
func (a *Arena) Free(ref Ref) {
	index := uint32(ref >> blockBits)
	r := &a.regions[index-1]
	r.live--
	if r.live == 0 {
		if r.class != single && r.hasRoom() {
			a.unlink(index)
		}
		a.giveBack(index)
		return
	}
	full := !r.hasRoom()
	block := uint32(ref & (1<<blockBits - 1))
	binary.LittleEndian.PutUint32(a.block(ref), r.freed)
	r.freed = block + 1
	if full {
		a.link(index)
	}
}

// Trim gives the memory of empty regions back to the system.
func (a *Arena) Trim() {
	for _, data := range a.free {
		drop(data)
	}
	a.free = nil
}

// block is the room of a string, with its length in front.
func (a *Arena) block(ref Ref) []byte {
	r := &a.regions[ref>>blockBits-1]
	if r.class == single {
		return r.data
	}
	size := sizeOf(r.class)
	at := int(ref&(1<<blockBits-1)) * size
	return r.data[at : at+size]
}

// sizeOf is the size of a class's blocks.
func sizeOf(class int) int {
	if class == 0 {
		return smallest
	}
	class--
	return (class%8 + 9) << (class/8 + 3)
}

func (r *region) hasRoom() bool {
	return r.freed != 0 || int(r.begun) < len(r.data)/sizeOf(r.class)
}

// take returns room for a string of n bytes.
func (a *Arena) take(n int) (Ref, []byte) {
	if n+header > largest {
		index := a.add(single, grab(n+header))
		ref := Ref(index) << blockBits
		a.regions[index-1].live = 1
		return ref, a.block(ref)
	}
	class, _ := classOf(n + header)
	index := a.open[class]
	if index == 0 {
		index = a.add(class, a.region())
		a.link(index)
	}
	r := &a.regions[index-1]
	var block uint32
	if r.freed != 0 {
		block = r.freed - 1
		r.freed = binary.LittleEndian.Uint32(a.block(Ref(index)<<blockBits | Ref(block)))
	} else {
		block = r.begun
		r.begun++
	}
	r.live++
	if !r.hasRoom() {
		a.unlink(index)
	}
	ref := Ref(index)<<blockBits | Ref(block)
	return ref, a.block(ref)
}

// region returns the memory of an empty region.
func (a *Arena) region() []byte {
	if n := len(a.free); n > 0 {
		data := a.free[n-1]
		a.free = a.free[:n-1]
		return data
	}
	return grab(regionSize)
}

// add makes a region of memory, and returns its index plus one.
func (a *Arena) add(class int, data []byte) uint32 {
	r := region{data: data, class: class}
	if n := len(a.unused); n > 0 {
		index := a.unused[n-1]
		a.unused = a.unused[:n-1]
		a.regions[index-1] = r
		return index
	}
	a.regions = append(a.regions, r)
	return uint32(len(a.regions))
}

// giveBack ends a region in which nothing is left.
func (a *Arena) giveBack(index uint32) {
	r := &a.regions[index-1]
	if r.class != single && len(a.free) < maxFree {
		a.free = append(a.free, r.data)
	} else {
		drop(r.data)
	}
	*r = region{}
	a.unused = append(a.unused, index)
}

// link puts a region in front of those of its class that have room.
func (a *Arena) link(index uint32) {
	r := &a.regions[index-1]
	r.next = a.open[r.class]
	if r.next != 0 {
		a.regions[r.next-1].prev = index
	}
	a.open[r.class] = index
}

func (a *Arena) unlink(index uint32) {
	r := &a.regions[index-1]
	if r.prev != 0 {
		a.regions[r.prev-1].next = r.next
	} else {
		a.open[r.class] = r.next
	}
	if r.next != 0 {
		a.regions[r.next-1].prev = r.prev
	}
	r.prev, r.next = 0, 0
}

// grab takes n bytes from the system. If it maps no more, as when a process has too many mappings, they come from the
// heap.
func grab(n int) []byte {
	data, err := mapPages(n)
	if err != nil {
		return make([]byte, n)
	}
	mapped.Add(int64(n))
	return data
}

// drop gives back what grab took.
func drop(data []byte) {
	if unmapPages(data) {
		mapped.Add(-int64(len(data)))
	}
}
