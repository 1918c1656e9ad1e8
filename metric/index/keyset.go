package index

import (
	"bytes"
	"slices"
	"sort"
)

// Sizes of a keyset. A block is decoded from its start, so it must stay short. A page is moved when a block is put into
// it, so it must not hold too many.
const (
	blockKeys  = 64   // a block with more keys is cut
	blockFill  = 48   // blocks that come of a cut, or of a merge, hold at most this many
	blockBytes = 4096 // a block with more bytes is cut, if it has two keys
	pageBlocks = 256  // a page with more blocks is cut
)

// keyset is an ordered set of byte strings in little memory. Its keys lie in blocks in the order of their bytes, and of
// each key but a block's first only the part is kept that differs from the key before it: for names of series that is
// a few bytes. Every block is one string, so that the garbage collector has one pointer for dozens of names and takes
// back what removals free.
//
// A keyset has no lock: its owner does. An iterator is valid until the next write.
type keyset struct {
	pages []*page
	keys  int
	bytes int64 // estimated, see Bytes
	// moved, if set, is called with each key that a write puts into another block, and may be with others of that block.
	moved func(key []byte, b *block)
	// scratch of writes
	old, merged keylist
	out, key    []byte
}

type page struct {
	blocks []*block
	keys   int
}

type block struct {
	data string
	keys int
}

// blockCost is what a block costs beside its data: itself, its pointer in the page, and the spare room of the page.
const blockCost = 24 + 12

func (b *block) cost() int64 { return int64(len(b.data)+len(b.data)/16) + blockCost }

// first returns b's first key.
func (b *block) first() string {
	_, at := uvarint(b.data, 0) // the length shared with the key before: 0
	n, at := uvarint(b.data, at)
	return b.data[at : at+n]
}

// keylist is a list of byte strings in one buffer.
type keylist struct {
	buf  []byte
	ends []int
}

func (l *keylist) reset()   { l.buf, l.ends = l.buf[:0], l.ends[:0] }
func (l *keylist) len() int { return len(l.ends) }

func (l *keylist) at(i int) []byte {
	if i == 0 {
		return l.buf[:l.ends[0]]
	}
	return l.buf[l.ends[i-1]:l.ends[i]]
}

func (l *keylist) add(key []byte) {
	l.buf = append(l.buf, key...)
	l.ends = append(l.ends, len(l.buf))
}

// trim gives back the buffers that one long name or one large load made.
func (l *keylist) trim() {
	if cap(l.buf) > 1<<16 {
		l.buf = nil
	}
	if cap(l.ends) > 1<<13 {
		l.ends = nil
	}
}

// decode sets l to b's keys.
func (b *block) decode(l *keylist) {
	l.reset()
	for at, i, start := 0, 0, 0; i < b.keys; i++ {
		n, from := uvarint(b.data, at)
		length, from := uvarint(b.data, from)
		end := len(l.buf)
		l.buf = append(l.buf, l.buf[start:start+n]...)
		l.buf = append(l.buf, b.data[from:from+length]...)
		l.ends = append(l.ends, len(l.buf))
		start, at = end, from+length
	}
}

func uvarint(s string, at int) (value, next int) {
	if c := s[at]; c < 0x80 {
		return int(c), at + 1
	}
	var shift uint
	for {
		c := s[at]
		at++
		value |= int(c&0x7f) << shift
		if c < 0x80 {
			return value, at
		}
		shift += 7
	}
}

func appendUvarint(dst []byte, v int) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

// shared returns how many bytes a and b have in common at their start.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// locate returns the page and the block in which key is or would be: the last block whose first key is not above key,
// or the first block. The set must not be empty.
func (s *keyset) locate(key []byte) (pi, bi int) {
	pi = search(len(s.pages), func(i int) bool { return s.pages[i].blocks[0].first() > string(key) })
	blocks := s.pages[pi].blocks
	bi = search(len(blocks), func(i int) bool { return blocks[i].first() > string(key) })
	return pi, bi
}

// search returns the number of the last of n things for which above is not true, or 0.
func search(n int, above func(int) bool) int { return max(0, sort.Search(n, above)-1) }

// after returns the first key of the block behind bi of page pi.
func (s *keyset) after(pi, bi int) (string, bool) {
	switch {
	case bi+1 < len(s.pages[pi].blocks):
		return s.pages[pi].blocks[bi+1].first(), true
	case pi+1 < len(s.pages):
		return s.pages[pi+1].blocks[0].first(), true
	}
	return "", false
}

// insert adds keys, which are in order, and returns how many were new.
func (s *keyset) insert(keys ...[]byte) (added int) {
	for len(keys) > 0 {
		if len(s.pages) == 0 {
			s.pages = []*page{{blocks: []*block{{data: "\x00\x00"}}}}
			s.bytes += s.pages[0].blocks[0].cost()
		}
		pi, bi := s.locate(keys[0])
		n := len(keys)
		if upper, ok := s.after(pi, bi); ok {
			n = 1
			for n < len(keys) && string(keys[n]) < upper {
				n++
			}
		}
		n = min(n, 1024)
		b := s.pages[pi].blocks[bi]
		if n <= 4 && b.keys > 0 && b.keys < blockKeys && len(b.data)+len(keys[0]) < blockBytes {
			n = 1
			added += s.splice(s.pages[pi], b, keys[0])
		} else {
			added += s.merge(pi, bi, keys[:n])
		}
		keys = keys[n:]
	}
	s.trim()
	return added
}

// trim gives back the buffers that one long key or one large load made.
func (s *keyset) trim() {
	s.old.trim()
	s.merged.trim()
	if cap(s.out) > 1<<16 {
		s.out = nil
	}
	if cap(s.key) > 1<<16 {
		s.key = nil
	}
}

// place is where a key is, or would be, in a block.
type place struct {
	start, end int  // of the first entry that is not below the key; both are the end if there is none
	match      int  // what the key has in common with the key before
	exact      bool // the entry is the key's own
}

// find returns the place of key. The key of the entry there is in s.key.
func (s *keyset) find(b *block, key []byte) (p place) {
	s.key = s.key[:0]
	for at, i := 0, 0; i < b.keys; i++ {
		p.start = at
		n, from := uvarint(b.data, at)
		length, from := uvarint(b.data, from)
		at = from + length
		p.end = at
		s.key = append(s.key[:n], b.data[from:at]...)
		switch { // see cursor.scan
		case n > p.match:
		case n < p.match:
			return p
		default:
			match := n + shared(s.key[n:], key[n:])
			switch {
			case match == len(key):
				p.exact = len(s.key) == len(key)
				return p
			case match < len(s.key) && s.key[match] > key[match]:
				return p
			}
			p.match = match
		}
	}
	p.start = len(b.data)
	s.key = s.key[:0]
	return p
}

// splice adds one key to a block that has room. It writes only the entries of the key and of the one behind it anew.
func (s *keyset) splice(p *page, b *block, key []byte) (added int) {
	at := s.find(b, key)
	if at.exact {
		return 0
	}
	out := append(s.out[:0], b.data[:at.start]...)
	out = appendEntry(out, at.match, key[at.match:])
	if at.start < len(b.data) {
		n := shared(key, s.key)
		out = appendEntry(out, n, s.key[n:])
	}
	s.out = append(out, b.data[at.end:]...)
	s.bytes -= b.cost()
	b.data, b.keys = string(s.out), b.keys+1
	s.bytes += b.cost()
	s.keys++
	p.keys++
	if s.moved != nil {
		s.moved(key, b)
	}
	return 1
}

// appendEntry appends a key that has its first n bytes in common with the key before it, and then rest.
func appendEntry(dst []byte, n int, rest []byte) []byte {
	dst = appendUvarint(dst, n)
	dst = appendUvarint(dst, len(rest))
	return append(dst, rest...)
}

// merge adds keys, which belong into one block, to it, and cuts the block if need be.
func (s *keyset) merge(pi, bi int, keys [][]byte) (added int) {
	p := s.pages[pi]
	b := p.blocks[bi]
	b.decode(&s.old)
	s.merged.reset()
	i := 0
	for _, k := range keys {
		for i < s.old.len() && bytes.Compare(s.old.at(i), k) < 0 {
			s.merged.add(s.old.at(i))
			i++
		}
		if i < s.old.len() && bytes.Equal(s.old.at(i), k) {
			continue
		}
		if n := s.merged.len(); n > 0 && bytes.Equal(s.merged.at(n-1), k) {
			continue // twice in keys
		}
		s.merged.add(k)
		added++
	}
	for ; i < s.old.len(); i++ {
		s.merged.add(s.old.at(i))
	}
	if added == 0 {
		return 0
	}
	s.keys += added
	p.keys += added
	s.rebuild(pi, bi)
	return added
}

// rebuild writes s.merged into block bi of page pi and, if it is too long for one, into new blocks behind it.
func (s *keyset) rebuild(pi, bi int) {
	p := s.pages[pi]
	b := p.blocks[bi]
	s.bytes -= b.cost()
	size := blockKeys
	if n := s.merged.len(); n > blockKeys {
		parts := (n + blockFill - 1) / blockFill
		size = (n + parts - 1) / parts
	}
	from := s.fill(b, 0, size)
	s.tell(b, 0, from) // also the keys that were there: it is not known here which are new
	s.bytes += b.cost()
	var more []*block
	for from < s.merged.len() {
		nb := new(block)
		to := s.fill(nb, from, size)
		s.tell(nb, from, to)
		s.bytes += nb.cost()
		more = append(more, nb)
		from = to
	}
	if len(more) == 0 {
		return
	}
	p.blocks = slices.Insert(p.blocks, bi+1, more...)
	if len(p.blocks) <= pageBlocks {
		return
	}
	var pages []*page
	for rest := p.blocks; len(rest) > 0; {
		n := len(rest)
		if n > pageBlocks {
			n = max(pageBlocks/2, min(n/2, pageBlocks*3/4))
		}
		q := &page{blocks: slices.Clone(rest[:n])}
		for _, b := range q.blocks {
			q.keys += b.keys
		}
		pages = append(pages, q)
		rest = rest[n:]
	}
	s.pages = slices.Replace(s.pages, pi, pi+1, pages...)
}

// tell calls moved with some of the keys in merged.
func (s *keyset) tell(b *block, from, to int) {
	if s.moved == nil {
		return
	}
	for i := from; i < to; i++ {
		s.moved(s.merged.at(i), b)
	}
}

// fill writes keys of s.merged into b, at most size of them, the first being number from. It returns the number of the
// next.
func (s *keyset) fill(b *block, from, size int) (to int) {
	s.out = s.out[:0]
	var last []byte
	for to = from; to < s.merged.len() && to-from < size; to++ {
		k := s.merged.at(to)
		if to > from && len(s.out)+len(k) > blockBytes {
			break
		}
		n := shared(last, k)
		s.out = appendEntry(s.out, n, k[n:])
		last = k
	}
	b.data, b.keys = string(s.out), to-from
	return to
}

// remove takes key out and reports whether it was there.
func (s *keyset) remove(key []byte) bool {
	if s.keys == 0 {
		return false
	}
	pi, bi := s.locate(key)
	p := s.pages[pi]
	b := p.blocks[bi]
	at := s.find(b, key)
	if !at.exact {
		return false
	}
	s.keys--
	p.keys--
	if b.keys == 1 {
		s.drop(pi, bi)
		return true
	}
	out := append(s.out[:0], b.data[:at.start]...)
	if at.end < len(b.data) {
		// The entry behind the key now follows the one before it, with which it shares the less of two lengths.
		n, from := uvarint(b.data, at.end)
		length, from := uvarint(b.data, from)
		less := min(n, at.match)
		out = appendUvarint(out, less)
		out = appendUvarint(out, n-less+length)
		out = append(out, key[less:n]...)
		out = append(out, b.data[from:]...)
	}
	s.bytes -= b.cost()
	s.out, b.data, b.keys = out, string(out), b.keys-1
	s.bytes += b.cost()
	s.join(pi, bi)
	s.trim()
	return true
}

// join merges block bi with a neighbour if both are short, so that removals leave no trail of short blocks.
func (s *keyset) join(pi, bi int) {
	p := s.pages[pi]
	short := func(i int) bool {
		if i < 0 || i+1 >= len(p.blocks) {
			return false
		}
		a, b := p.blocks[i], p.blocks[i+1]
		return a.keys+b.keys <= blockFill && len(a.data)+len(b.data) < blockBytes/2
	}
	switch {
	case short(bi):
	case short(bi - 1):
		bi--
	default:
		return
	}
	a, b := p.blocks[bi], p.blocks[bi+1]
	a.decode(&s.merged)
	b.decode(&s.old)
	from := s.merged.len()
	for i := range s.old.len() {
		s.merged.add(s.old.at(i))
	}
	if s.fill(&block{}, 0, blockKeys) < s.merged.len() {
		return // its keys share so little that they need two blocks
	}
	s.bytes -= a.cost()
	s.fill(a, 0, blockKeys)
	s.bytes += a.cost()
	s.tell(a, from, s.merged.len())
	s.drop(pi, bi+1)
}

// drop takes out block bi of page pi, whose keys are counted elsewhere already, and joins short pages.
func (s *keyset) drop(pi, bi int) {
	p := s.pages[pi]
	s.bytes -= p.blocks[bi].cost()
	p.blocks = slices.Delete(p.blocks, bi, bi+1)
	switch {
	case len(p.blocks) == 0:
		s.pages = slices.Delete(s.pages, pi, pi+1)
	case pi+1 < len(s.pages) && len(p.blocks)+len(s.pages[pi+1].blocks) <= pageBlocks/2:
		q := s.pages[pi+1]
		p.blocks = append(p.blocks, q.blocks...)
		p.keys += q.keys
		s.pages = slices.Delete(s.pages, pi+1, pi+2)
	case cap(p.blocks) > 64 && cap(p.blocks) > 4*len(p.blocks):
		p.blocks = slices.Clone(p.blocks)
	}
}

// cursor walks over a keyset's keys in order. It is valid until the next write of its set.
type cursor struct {
	s      *keyset
	pi, bi int
	b      *block
	i, at  int // the number of the next key in b, and its place
	key    []byte
	done   bool
}

// seek moves c to the first key that is not below target and reports whether there is one.
func (c *cursor) seek(target []byte) bool {
	if c.s.keys == 0 {
		c.done = true
		return false
	}
	pi, bi := c.s.locate(target)
	c.open(pi, bi)
	return c.scan(target, 0)
}

func (c *cursor) open(pi, bi int) {
	c.pi, c.bi, c.b = pi, bi, c.s.pages[pi].blocks[bi]
	c.i, c.at, c.key, c.done = 0, 0, c.key[:0], false
}

// forward is seek for a target that is above all keys that c has passed. It is fast for one close by.
func (c *cursor) forward(target []byte) bool {
	if c.done {
		return false
	}
	if bytes.Compare(c.key, target) >= 0 {
		return true
	}
	if upper, ok := c.s.after(c.pi, c.bi); ok && upper <= string(target) {
		return c.seek(target)
	}
	return c.scan(target, shared(c.key, target))
}

// next moves c to the next key.
func (c *cursor) next() bool {
	if c.done || !c.step() {
		return false
	}
	n, at := uvarint(c.b.data, c.at)
	length, at := uvarint(c.b.data, at)
	c.key = append(c.key[:n], c.b.data[at:at+length]...)
	c.i, c.at = c.i+1, at+length
	return true
}

// step opens the next block if the current one is at its end.
func (c *cursor) step() bool {
	if c.i < c.b.keys {
		return true
	}
	switch {
	case c.bi+1 < len(c.s.pages[c.pi].blocks):
		c.open(c.pi, c.bi+1)
	case c.pi+1 < len(c.s.pages):
		c.open(c.pi+1, 0)
	default:
		c.done = true
		return false
	}
	return true
}

// scan moves on to the first key that is not below target. The current key is below it and has its first match bytes
// in common with it. A key that shares more than that with the key before it is below target too, and one that shares
// less is above it: most keys need no comparison.
func (c *cursor) scan(target []byte, match int) bool {
	for {
		if c.i == c.b.keys {
			if !c.step() {
				return false
			}
			match = 0
		}
		n, at := uvarint(c.b.data, c.at)
		length, at := uvarint(c.b.data, at)
		c.key = append(c.key[:n], c.b.data[at:at+length]...)
		c.i, c.at = c.i+1, at+length
		switch {
		case n > match:
		case n < match:
			return true
		default:
			more := shared(c.key[n:], target[n:])
			switch match = n + more; {
			case match == len(target):
				return true
			case match < len(c.key) && c.key[match] > target[match]:
				return true
			}
		}
	}
}

// distance returns how many keys there are from c's to d's, which is behind it; d may be at the end.
func (c *cursor) distance(d *cursor) int {
	if !d.done && c.b == d.b {
		return d.i - c.i
	}
	n := c.b.keys - (c.i - 1) // c's own and those behind it in its block
	pi, bi := c.pi, c.bi
	for {
		bi++
		if bi == len(c.s.pages[pi].blocks) {
			pi, bi = pi+1, 0
			// whole pages
			for pi < len(c.s.pages) && (d.done || pi < d.pi) {
				n += c.s.pages[pi].keys
				pi++
			}
			if pi == len(c.s.pages) {
				return n
			}
		}
		if !d.done && pi == d.pi && bi == d.bi {
			return n + d.i - 1
		}
		n += c.s.pages[pi].blocks[bi].keys
	}
}

// has reports whether key is in the set.
func (s *keyset) has(key []byte) bool {
	c := cursor{s: s}
	return c.seek(key) && bytes.Equal(c.key, key)
}

// size returns an estimate of the set's memory.
func (s *keyset) size() int64 {
	scratch := cap(s.old.buf) + cap(s.merged.buf) + cap(s.out) + cap(s.key) + 8*(cap(s.old.ends)+cap(s.merged.ends))
	return s.bytes + int64(len(s.pages))*(32+8+pageBlocks) + int64(scratch)
}
