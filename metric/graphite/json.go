package graphite

import (
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// flushAt is the number of buffered bytes at which a jsonWriter writes them out.
const flushAt = 32 << 10

// jsonWriter writes JSON in the form of Python's json module: ", " and ": " between items, 5.0 for a float that is
// whole, \u for other than ASCII characters if ascii is set, and an indent of two blanks if pretty is set.
type jsonWriter struct {
	w      io.Writer
	buf    []byte
	err    error
	ascii  bool
	pretty bool
	// depth is the number of open lists and objects; filled tells for each of them whether it has an item.
	depth  int
	filled [16]bool
	// keyed is set between a key and its value.
	keyed bool
}

func (j *jsonWriter) flush() {
	if j.err == nil && len(j.buf) > 0 {
		_, j.err = j.w.Write(j.buf)
	}
	j.buf = j.buf[:0]
}

// item writes the separator in front of a value or a key.
func (j *jsonWriter) item() {
	if j.keyed {
		j.keyed = false
		return
	}
	if len(j.buf) >= flushAt {
		j.flush()
	}
	if j.depth == 0 {
		return
	}
	if j.filled[j.depth-1] {
		j.buf = append(j.buf, ',')
		if !j.pretty {
			j.buf = append(j.buf, ' ')
		}
	}
	j.filled[j.depth-1] = true
	j.indent()
}

func (j *jsonWriter) indent() {
	if !j.pretty {
		return
	}
	j.buf = append(j.buf, '\n')
	for range j.depth {
		j.buf = append(j.buf, ' ', ' ')
	}
}

// open begins a list with '[' or an object with '{'. At most 16 may be open.
func (j *jsonWriter) open(c byte) {
	j.item()
	j.buf = append(j.buf, c)
	j.filled[j.depth] = false
	j.depth++
}

func (j *jsonWriter) close(c byte) {
	j.depth--
	if j.filled[j.depth] {
		j.indent()
	}
	j.buf = append(j.buf, c)
}

func (j *jsonWriter) key(name string) {
	j.text(name)
	j.buf = append(j.buf, ':', ' ')
	j.keyed = true
}

func (j *jsonWriter) text(s string) {
	j.item()
	j.buf = appendText(j.buf, s, j.ascii)
}

func (j *jsonWriter) int(n int64) {
	j.item()
	j.buf = strconv.AppendInt(j.buf, n, 10)
}

func (j *jsonWriter) bool(v bool) {
	j.item()
	j.buf = strconv.AppendBool(j.buf, v)
}

func (j *jsonWriter) null() {
	j.item()
	j.buf = append(j.buf, "null"...)
}

// float writes NaN as null and infinity as 1e9999, which a reader of JSON makes infinity of.
func (j *jsonWriter) float(f float64) {
	j.item()
	j.buf = appendJSONFloat(j.buf, f)
}

func (j *jsonWriter) textField(name, value string) { j.key(name); j.text(value) }

func (j *jsonWriter) intField(name string, value int64) { j.key(name); j.int(value) }

// point writes [value, time]. It is the inner loop of large answers.
func (j *jsonWriter) point(value float64, at int64) {
	if j.pretty {
		j.open('[')
		j.float(value)
		j.int(at)
		j.close(']')
		return
	}
	j.item()
	j.buf = append(j.buf, '[')
	j.buf = appendJSONFloat(j.buf, value)
	j.buf = append(j.buf, ',', ' ')
	j.buf = strconv.AppendInt(j.buf, at, 10)
	j.buf = append(j.buf, ']')
}

func appendJSONFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "null"...)
	case math.IsInf(f, 1):
		return append(b, "1e9999"...)
	case math.IsInf(f, -1):
		return append(b, "-1e9999"...)
	}
	return appendFloat(b, f)
}

// appendFloat appends a finite number as Python's repr has it: the fewest digits that read back as f, with an exponent
// below 1e-4 and from 1e16, and .0 behind a whole number.
func appendFloat(b []byte, f float64) []byte {
	size := math.Abs(f)
	if size < 1<<53 && f == math.Trunc(f) && (f != 0 || !math.Signbit(f)) {
		return append(strconv.AppendInt(b, int64(f), 10), '.', '0')
	}
	if size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	at := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[at:] {
		if c == '.' {
			return b
		}
	}
	return append(b, '.', '0')
}

const hexDigits = "0123456789abcdef"

func appendText(b []byte, s string, ascii bool) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || c == 0x7f && !ascii) {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
			if !ascii && (r != utf8.RuneError || size > 1) {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		i += size
		from = i
		b = appendEscaped(b, r, ascii)
	}
	return append(append(b, s[from:]...), '"')
}

func appendEscaped(b []byte, r rune, ascii bool) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	}
	if r == utf8.RuneError && !ascii {
		return utf8.AppendRune(b, r)
	}
	if r > 0xffff {
		r -= 0x10000
		b = appendUnit(b, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	return appendUnit(b, r)
}

// appendUnit appends \u and a UTF-16 unit in hexadecimal digits.
func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
