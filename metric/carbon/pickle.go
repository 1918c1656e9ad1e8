package carbon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"unicode/utf8"
)

// The opcodes of pickle that senders of points use. All others are refused, above all those that name or call code.
const (
	opMark            = '('
	opStop            = '.'
	opProto           = 0x80
	opFrame           = 0x95
	opNone            = 'N'
	opTrue            = 0x88
	opFalse           = 0x89
	opInt             = 'I'
	opLong            = 'L'
	opFloat           = 'F'
	opString          = 'S'
	opUnicode         = 'V'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opLong1           = 0x8a
	opLong4           = 0x8b
	opBinFloat        = 'G'
	opShortBinString  = 'U'
	opBinString       = 'T'
	opBinUnicode      = 'X'
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opShortBinBytes   = 'C'
	opBinBytes        = 'B'
	opBinBytes8       = 0x8e
	opEmptyList       = ']'
	opList            = 'l'
	opAppend          = 'a'
	opAppends         = 'e'
	opEmptyTuple      = ')'
	opTuple           = 't'
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opEmptyDict       = '}'
	opDict            = 'd'
	opSetItem         = 's'
	opSetItems        = 'u'
	opPut             = 'p'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opMemoize         = 0x94
	opGet             = 'g'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
)

// refusedName returns the name of an opcode that is refused.
func refusedName(op byte) string {
	switch op {
	case '0':
		return "POP"
	case '1':
		return "POP_MARK"
	case '2':
		return "DUP"
	case 'c':
		return "GLOBAL"
	case 0x93:
		return "STACK_GLOBAL"
	case 'R':
		return "REDUCE"
	case 'b':
		return "BUILD"
	case 'i':
		return "INST"
	case 'o':
		return "OBJ"
	case 0x81:
		return "NEWOBJ"
	case 0x92:
		return "NEWOBJ_EX"
	case 'P':
		return "PERSID"
	case 'Q':
		return "BINPERSID"
	case 0x82, 0x83, 0x84:
		return "EXT"
	case 0x8f:
		return "EMPTY_SET"
	case 0x90:
		return "ADDITEMS"
	case 0x91:
		return "FROZENSET"
	case 0x96:
		return "BYTEARRAY8"
	case 0x97:
		return "NEXT_BUFFER"
	case 0x98:
		return "READONLY_BUFFER"
	}
	return "no opcode of pickle"
}

type kind uint8

const (
	kindMark  kind = iota // the mark of MARK
	kindNone              // None, or a dict, whose content is of no use here
	kindInt               // bits
	kindFloat             // bits
	kindText              // from..from+bits of the frame
	kindOwned             // from..from+bits of decoder.text
	kindTuple             // from..from+bits of decoder.items
	kindList              // decoder.lists[from]
)

// item is a value on the stack of a decoder. It has no pointers: what it refers to is numbered.
type item struct {
	bits uint64
	from uint32
	kind kind
}

// decoder is the stack machine that pickles are written for. Each opcode makes one value at most. The memory is bounded
// by the length of the frame: the stack, the memo and the number of lists have at most one entry per two bytes and a
// few more, and the content of all tuples and lists one entry per byte. maxItems bounds each of them in addition.
type decoder struct {
	frame []byte
	at    int // the next byte of frame
	limit int // of the stack, the memo, the marks and the lists
	moved int // values that were put into tuples and lists

	stack []item
	marks []int // positions in stack behind each mark
	memo  []item
	items []item   // the content of tuples
	lists [][]item // the content of lists
	used  int      // of lists; those behind it are kept for their memory
	text  []byte   // strings that are not in the frame as they are
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// maxItems bounds the values of a frame. One of 64 MiB that is written as Python writes it has as many.
const maxItems = 8 << 20

// keptItems bounds each slice of a decoder that is kept for the next frame.
const keptItems = 16 << 10

// reset makes d ready for a frame.
func (d *decoder) reset(frame []byte) {
	d.frame, d.at, d.limit, d.moved = frame, 0, min(len(frame)/2+64, maxItems), 0
	for i := range d.lists[:d.used] {
		if cap(d.lists[i]) > keptItems {
			d.lists[i] = nil
		}
		d.lists[i] = d.lists[i][:0]
	}
	d.used = 0
	if cap(d.lists) > 64 {
		d.lists = nil
	}
	d.stack, d.memo, d.items = trimmed(d.stack), trimmed(d.memo), trimmed(d.items)
	d.marks, d.text = trimmed(d.marks), trimmed(d.text)
}

func trimmed[T any](s []T) []T {
	if cap(s) > keptItems {
		return nil
	}
	return s[:0]
}

// Pickle reads a frame of pickle, without its length: a list or tuple of (name, (timestamp, value), …). It returns an
// error, and passes nothing on, if the frame cannot be read. An item that is no point is counted, and the others are
// taken.
func (p *Parser) Pickle(frame []byte, to Adder) error {
	d := decoders.Get().(*decoder)
	defer func() {
		d.reset(nil)
		decoders.Put(d)
	}()
	return p.decoded(d, frame, to)
}

// decoded is Pickle with a decoder.
func (p *Parser) decoded(d *decoder, frame []byte, to Adder) error {
	top, err := d.decode(frame)
	var items []item
	if err == nil {
		items, err = d.sequence(top)
	}
	if err != nil {
		p.reject(BadFrame, nil, err)
		return fmt.Errorf("read pickle: %w", err)
	}
	now := p.unixNow()
	// A value that stands in the frame once can be in many places by the memo. Without it a point takes more than 6 bytes.
	room := len(frame)/6 + 1
	for _, it := range items {
		if room = p.pickled(d, it, now, room, to); room < 0 {
			err := fmt.Errorf("read pickle: more points than a frame of %d bytes can have", len(frame))
			p.reject(BadFrame, nil, err)
			return err
		}
	}
	return nil
}

// pickled passes on the points of one item, if there is room for so many, and returns the room that is left.
func (p *Parser) pickled(d *decoder, it item, now int64, room int, to Adder) int {
	parts, err := d.sequence(it)
	if err != nil || len(parts) < 2 {
		p.reject(BadItem, nil, err)
		return room - 1
	}
	name, ok := d.bytes(parts[0])
	if !ok || len(name) == 0 {
		p.reject(BadItem, nil, nil)
		return room - 1
	}
	if room -= len(parts) - 1; room < 0 {
		return room
	}
	for _, part := range parts[1:] {
		pair, err := d.sequence(part)
		if err != nil || len(pair) != 2 {
			p.reject(BadItem, name, err)
			continue
		}
		ts, ok := d.timestamp(pair[0], now)
		if !ok {
			p.reject(BadTimestamp, name, nil)
			continue
		}
		value, ok := d.number(pair[1])
		if !ok {
			p.reject(BadValue, name, nil)
			continue
		}
		p.point(name, ts, value, now, to)
	}
	return room
}

// sequence returns the content of a list or tuple.
func (d *decoder) sequence(it item) ([]item, error) {
	switch it.kind {
	case kindTuple:
		return d.items[it.from : uint64(it.from)+it.bits], nil
	case kindList:
		return d.lists[it.from], nil
	}
	return nil, errors.New("neither a list nor a tuple")
}

// bytes returns a string.
func (d *decoder) bytes(it item) ([]byte, bool) {
	switch it.kind {
	case kindText:
		return d.frame[it.from : uint64(it.from)+it.bits], true
	case kindOwned:
		return d.text[it.from : uint64(it.from)+it.bits], true
	}
	return nil, false
}

// number returns a number, or a string that is one.
func (d *decoder) number(it item) (float64, bool) {
	switch it.kind {
	case kindInt:
		return float64(int64(it.bits)), true
	case kindFloat:
		return math.Float64frombits(it.bits), true
	}
	text, ok := d.bytes(it)
	if !ok {
		return 0, false
	}
	return parseFloat(bytes.TrimSpace(text))
}

func (d *decoder) timestamp(it item, now int64) (int64, bool) {
	if text, ok := d.bytes(it); ok {
		return parseTimestamp(bytes.TrimSpace(text), now)
	}
	v, ok := d.number(it)
	if !ok {
		return 0, false
	}
	return wholeSeconds(v, now)
}

var (
	errShort = errors.New("it ends in the middle of a value")
	errEmpty = errors.New("the stack is empty")
	errMark  = errors.New("there is no mark")
	errKind  = errors.New("an opcode meets a value of the wrong type")
	errDeep  = errors.New("too many values for its length")
	errIndex = errors.New("a memo index is out of range")
	errInt   = errors.New("an integer cannot be read")
	errFloat = errors.New("a float cannot be read")
	errQuote = errors.New("a string has no quotation marks")
)

// decode runs the opcodes of a frame and returns the value that it describes.
func (d *decoder) decode(frame []byte) (item, error) {
	if len(frame) > math.MaxInt32 {
		return item{}, fmt.Errorf("%d bytes are too many", len(frame))
	}
	d.reset(frame)
	for d.at < len(frame) {
		op := frame[d.at]
		d.at++
		if op == opStop {
			it, err := d.pop()
			if err != nil {
				return item{}, fmt.Errorf("opcode %q at byte %d: %w", op, d.at-1, err)
			}
			return it, nil
		}
		begin := d.at - 1
		if err := d.run(op); err != nil {
			return item{}, fmt.Errorf("opcode %q at byte %d: %w", op, begin, err)
		}
	}
	return item{}, errors.New("it has no end")
}

// run runs one opcode.
func (d *decoder) run(op byte) error {
	switch op {
	case opProto:
		version, err := d.uint(1)
		if err == nil && version > 5 {
			return fmt.Errorf("protocol %d is unknown", version)
		}
		return err
	case opFrame:
		length, err := d.uint(8)
		if err == nil && length > uint64(len(d.frame)-d.at) {
			return errShort
		}
		return err
	case opMark:
		if len(d.marks) >= d.limit {
			return errDeep
		}
		d.marks = append(d.marks, len(d.stack))
		return nil
	case opNone, opEmptyDict:
		return d.push(item{kind: kindNone})
	case opTrue:
		return d.push(item{kind: kindInt, bits: 1})
	case opFalse:
		return d.push(item{kind: kindInt})
	case opBinInt:
		v, err := d.uint(4)
		return d.pushIf(item{kind: kindInt, bits: uint64(int32(v))}, err)
	case opBinInt1:
		v, err := d.uint(1)
		return d.pushIf(item{kind: kindInt, bits: v}, err)
	case opBinInt2:
		v, err := d.uint(2)
		return d.pushIf(item{kind: kindInt, bits: v}, err)
	case opBinFloat:
		b, err := d.take(8)
		if err != nil {
			return err
		}
		return d.push(item{kind: kindFloat, bits: binary.BigEndian.Uint64(b)})
	case opInt, opLong, opFloat, opString, opUnicode:
		return d.textValue(op)
	case opLong1:
		return d.binLong(1)
	case opLong4:
		return d.binLong(4)
	case opShortBinString, opShortBinUnicode, opShortBinBytes:
		return d.binText(1)
	case opBinString, opBinUnicode, opBinBytes:
		return d.binText(4)
	case opBinUnicode8, opBinBytes8:
		return d.binText(8)
	case opEmptyTuple:
		return d.push(item{kind: kindTuple})
	case opTuple1, opTuple2, opTuple3:
		return d.tuple(len(d.stack) - int(op-opTuple1) - 1)
	case opTuple:
		from, err := d.mark()
		if err != nil {
			return err
		}
		return d.tuple(from)
	case opEmptyList:
		return d.list(nil)
	case opList:
		from, err := d.mark()
		if err != nil {
			return err
		}
		content := d.stack[from:]
		d.stack = d.stack[:from]
		return d.list(content)
	case opAppend:
		return d.extend(len(d.stack) - 1)
	case opAppends:
		from, err := d.mark()
		if err != nil {
			return err
		}
		return d.extend(from)
	case opDict, opSetItem, opSetItems:
		return d.dict(op)
	case opPut, opBinPut, opLongBinPut, opMemoize:
		return d.put(op)
	case opGet, opBinGet, opLongBinGet:
		return d.get(op)
	}
	return fmt.Errorf("refused: %s", refusedName(op))
}

func (d *decoder) push(it item) error {
	if len(d.stack) >= d.limit {
		return errDeep
	}
	d.stack = append(d.stack, it)
	return nil
}

func (d *decoder) pushIf(it item, err error) error {
	if err != nil {
		return err
	}
	return d.push(it)
}

// floor is the lowest position of the stack that may be taken off: what is below a mark is not reached.
func (d *decoder) floor() int {
	if n := len(d.marks); n > 0 {
		return d.marks[n-1]
	}
	return 0
}

func (d *decoder) pop() (item, error) {
	n := len(d.stack)
	if n <= d.floor() {
		return item{}, errEmpty
	}
	it := d.stack[n-1]
	d.stack = d.stack[:n-1]
	return it, nil
}

// mark takes off the last mark and returns the position behind it.
func (d *decoder) mark() (int, error) {
	n := len(d.marks)
	if n == 0 {
		return 0, errMark
	}
	from := d.marks[n-1]
	d.marks = d.marks[:n-1]
	return from, nil
}

// tuple makes a tuple of the values from a position on.
func (d *decoder) tuple(from int) error {
	if from < d.floor() {
		return errEmpty
	}
	begin := len(d.items)
	n := len(d.stack) - from
	if err := d.move(n); err != nil {
		return err
	}
	d.items = append(d.items, d.stack[from:]...)
	d.stack = d.stack[:from]
	return d.push(item{kind: kindTuple, from: uint32(begin), bits: uint64(n)})
}

// move counts values that leave the stack for a tuple or a list.
func (d *decoder) move(n int) error {
	d.moved += n
	if d.moved > min(2*d.limit, maxItems) {
		return errDeep
	}
	return nil
}

// list makes a list.
func (d *decoder) list(content []item) error {
	if d.used >= d.limit {
		return errDeep
	}
	if err := d.move(len(content)); err != nil {
		return err
	}
	if d.used == len(d.lists) {
		d.lists = append(d.lists, nil)
	}
	d.lists[d.used] = append(d.lists[d.used][:0], content...)
	d.used++
	return d.push(item{kind: kindList, from: uint32(d.used - 1)})
}

// extend appends the values from a position on to the list below them.
func (d *decoder) extend(from int) error {
	if from <= d.floor() {
		return errEmpty
	}
	list := d.stack[from-1]
	if list.kind != kindList {
		return errKind
	}
	if err := d.move(len(d.stack) - from); err != nil {
		return err
	}
	d.lists[list.from] = append(d.lists[list.from], d.stack[from:]...)
	d.stack = d.stack[:from]
	return nil
}

// dict drops keys and values: no point is in a dict, but an item may be one by mistake.
func (d *decoder) dict(op byte) error {
	from := len(d.stack) - 2
	if op != opSetItem {
		var err error
		if from, err = d.mark(); err != nil {
			return err
		}
	}
	if op == opDict {
		d.stack = d.stack[:from]
		return d.push(item{kind: kindNone})
	}
	if from <= d.floor() {
		return errEmpty
	}
	d.stack = d.stack[:from]
	return nil
}

// put remembers the value on top of the stack.
func (d *decoder) put(op byte) error {
	index, err := uint64(len(d.memo)), error(nil)
	switch op {
	case opPut:
		index, err = d.textIndex()
	case opBinPut:
		index, err = d.uint(1)
	case opLongBinPut:
		index, err = d.uint(4)
	}
	if err != nil {
		return err
	}
	if index >= uint64(d.limit)+256 {
		return errIndex
	}
	n := len(d.stack)
	if n <= d.floor() {
		return errEmpty
	}
	for uint64(len(d.memo)) <= index {
		d.memo = append(d.memo, item{}) // a mark, which no value is
	}
	d.memo[index] = d.stack[n-1]
	return nil
}

func (d *decoder) get(op byte) (err error) {
	var index uint64
	switch op {
	case opGet:
		index, err = d.textIndex()
	case opBinGet:
		index, err = d.uint(1)
	case opLongBinGet:
		index, err = d.uint(4)
	}
	if err != nil {
		return err
	}
	if index >= uint64(len(d.memo)) || d.memo[index].kind == kindMark {
		return errIndex
	}
	return d.push(d.memo[index])
}

// take returns the next n bytes.
func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.frame)-d.at {
		return nil, errShort
	}
	b := d.frame[d.at : d.at+n]
	d.at += n
	return b, nil
}

// uint reads n bytes, the lowest first.
func (d *decoder) uint(n int) (uint64, error) {
	b, err := d.take(n)
	if err != nil {
		return 0, err
	}
	var v uint64
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v, nil
}

// line returns the bytes up to the next line feed.
func (d *decoder) line() ([]byte, error) {
	n := bytes.IndexByte(d.frame[d.at:], '\n')
	if n < 0 {
		return nil, errShort
	}
	b := d.frame[d.at : d.at+n]
	d.at += n + 1
	return b, nil
}

func (d *decoder) textIndex() (uint64, error) {
	b, err := d.line()
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil {
		return 0, errIndex
	}
	return v, nil
}

// binText reads a string behind its length of so many bytes.
func (d *decoder) binText(n int) error {
	length, err := d.uint(n)
	if err != nil {
		return err
	}
	if length > uint64(len(d.frame)-d.at) {
		return errShort
	}
	it := item{kind: kindText, from: uint32(d.at), bits: length}
	d.at += int(length)
	return d.push(it)
}

// binLong reads an integer in two's complement behind its length of so many bytes.
func (d *decoder) binLong(n int) error {
	length, err := d.uint(n)
	if err != nil {
		return err
	}
	if length > uint64(len(d.frame)-d.at) {
		return errShort
	}
	b := d.frame[d.at : d.at+int(length)]
	d.at += int(length)
	if len(b) > 8 {
		// As a float: no timestamp is this large, and values are floats in the end.
		var v float64
		scale := 1.0
		for i, c := range b {
			digit := float64(c)
			if i == len(b)-1 {
				digit = float64(int8(c))
			}
			if c != 0 {
				v += digit * scale
			}
			scale *= 256
		}
		return d.push(item{kind: kindFloat, bits: math.Float64bits(v)})
	}
	var v uint64
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	if unused := 64 - 8*len(b); unused < 64 {
		v = uint64(int64(v<<unused) >> unused)
	}
	return d.push(item{kind: kindInt, bits: v})
}

// textValue reads a value of protocol 0, which is written as text on a line.
func (d *decoder) textValue(op byte) error {
	begin := d.at
	b, err := d.line()
	if err != nil {
		return err
	}
	switch op {
	case opInt, opLong:
		if op == opLong {
			b = bytes.TrimSuffix(b, []byte("L"))
		}
		// I00 and I01 are False and True, which are 0 and 1 here.
		v, err := strconv.ParseInt(string(b[:min(len(b), 32)]), 10, 64)
		if err == nil && len(b) <= 32 {
			return d.push(item{kind: kindInt, bits: uint64(v)})
		}
		if !digits(b) {
			return errInt
		}
		f, ok := parseFloat(b)
		if !ok {
			return errInt
		}
		return d.push(item{kind: kindFloat, bits: math.Float64bits(f)})
	case opFloat:
		f, ok := parseFloat(bytes.TrimSpace(b))
		if !ok {
			return errFloat
		}
		return d.push(item{kind: kindFloat, bits: math.Float64bits(f)})
	case opUnicode:
		return d.push(d.rawUnicode(b, begin))
	}
	b = bytes.TrimRight(b, " \r") // carbon's own unpickler strips it too
	if n := len(b); n < 2 || b[0] != b[n-1] || b[0] != '\'' && b[0] != '"' {
		return errQuote
	}
	return d.push(d.unescaped(b[1:len(b)-1], begin+1))
}

// digits reports whether b is a whole number, perhaps with a sign.
func digits(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	for _, c := range b {
		if c-'0' > 9 {
			return false
		}
	}
	return len(b) > 0
}

// unescaped makes a string of the inside of a Python 2 literal that begins at a position of the frame.
func (d *decoder) unescaped(b []byte, at int) item {
	if bytes.IndexByte(b, '\\') < 0 {
		return item{kind: kindText, from: uint32(at), bits: uint64(len(b))}
	}
	begin := len(d.text)
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			d.text = append(d.text, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case '\\', '\'', '"':
			d.text = append(d.text, c)
		case 'n':
			d.text = append(d.text, '\n')
		case 't':
			d.text = append(d.text, '\t')
		case 'r':
			d.text = append(d.text, '\r')
		case 'a':
			d.text = append(d.text, '\a')
		case 'b':
			d.text = append(d.text, '\b')
		case 'f':
			d.text = append(d.text, '\f')
		case 'v':
			d.text = append(d.text, '\v')
		case 'x':
			if v, ok := hexNumber(b[i+1:], 2); ok {
				d.text = append(d.text, byte(v))
				i += 2
			} else {
				d.text = append(d.text, '\\', c)
			}
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v, n := 0, 0
			for n < 3 && i+n < len(b) && b[i+n]-'0' <= 7 {
				v = v*8 + int(b[i+n]-'0')
				n++
			}
			d.text = append(d.text, byte(v))
			i += n - 1
		default:
			d.text = append(d.text, '\\', c)
		}
	}
	return item{kind: kindOwned, from: uint32(begin), bits: uint64(len(d.text) - begin)}
}

// rawUnicode makes a string of text that is ISO 8859-1 with \uXXXX and \UXXXXXXXX for what is not in that.
func (d *decoder) rawUnicode(b []byte, at int) item {
	if ascii(b) && bytes.IndexByte(b, '\\') < 0 {
		return item{kind: kindText, from: uint32(at), bits: uint64(len(b))}
	}
	begin := len(d.text)
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) && (b[i+1] == 'u' || b[i+1] == 'U') {
			width := 4
			if b[i+1] == 'U' {
				width = 8
			}
			if v, ok := hexNumber(b[i+2:], width); ok {
				d.text = utf8.AppendRune(d.text, rune(min(v, utf8.MaxRune+1)))
				i += 1 + width
				continue
			}
		}
		d.text = utf8.AppendRune(d.text, rune(b[i]))
	}
	return item{kind: kindOwned, from: uint32(begin), bits: uint64(len(d.text) - begin)}
}

// hexNumber reads so many hexadecimal digits.
func hexNumber(b []byte, width int) (uint64, bool) {
	if len(b) < width {
		return 0, false
	}
	var v uint64
	for _, c := range b[:width] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint64(c)
	}
	return v, true
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
