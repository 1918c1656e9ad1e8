package carbon

import (
	"bytes"
	"math"
	"strconv"
)

// powers are the powers of ten that a float64 holds exactly.
var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
	1e17,
	1e18, 1e19, 1e20, 1e21, 1e22}

// plainNumbers reads the numbers of a line as almost all senders write them: a decimal, one blank, a whole number.
// Other forms are not ok.
func plainNumbers(b []byte) (value float64, ts int64, ok bool) {
	value, n, ok := plainDecimal(b)
	if !ok || n == len(b) || b[n] != ' ' {
		return 0, 0, false
	}
	ts, m, ok := plainInt(b[n+1:])
	end := n + 1 + m
	if !ok || end < len(b) && (b[end] != '\r' || end+1 != len(b)) {
		return 0, 0, false
	}
	return value, ts, true
}

// plainDecimal reads a decimal at the beginning of b, and returns its length.
//
// A whole number below 2^53 and a power of ten up to 10^22 are exact as float64, so their quotient is rounded once, as
// the decimal itself would be. Decimals with more digits are strconv's.
func plainDecimal(b []byte) (value float64, n int, ok bool) {
	i := 0
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		i = 1
	}
	begin := i
	var mantissa uint64
	for i < len(b) && b[i]-'0' <= 9 {
		mantissa = mantissa*10 + uint64(b[i]-'0')
		i++
	}
	digits, decimals := i-begin, 0
	if i < len(b) && b[i] == '.' {
		i++
		begin = i
		for i < len(b) && b[i]-'0' <= 9 {
			mantissa = mantissa*10 + uint64(b[i]-'0')
			i++
		}
		decimals = i - begin
		digits += decimals
	}
	if digits == 0 || i > maxNumber {
		return 0, 0, false
	}
	if digits > 19 || mantissa >= 1<<53 { // 19 digits fit into 64 bits
		value, err := strconv.ParseFloat(string(b[:i]), 64)
		return value, i, err == nil
	}
	value = float64(mantissa) / powers[decimals]
	if negative {
		value = -value
	}
	return value, i, true
}

// plainInt reads a whole number of 18 digits at most at the beginning of b, and returns its length.
func plainInt(b []byte) (v int64, n int, ok bool) {
	for n < len(b) && b[n]-'0' <= 9 {
		v = v*10 + int64(b[n]-'0')
		n++
	}
	return v, n, n > 0 && n <= 18
}

// maxNumber bounds the text of a number, in bytes. A float64 written in full has about 330.
const maxNumber = 1024

// parseFloat reads a number as Python's float does: decimals, exponents, inf and nan in any case, underscores between
// digits. Numbers that are too large are infinite.
func parseFloat(b []byte) (float64, bool) {
	if v, n, ok := plainDecimal(b); ok && n == len(b) {
		return v, true
	}
	if len(b) == 0 || len(b) > maxNumber {
		return 0, false
	}
	underscores := false
	for _, c := range b {
		switch c {
		case 'x', 'X':
			return 0, false // Python has no hexadecimal floats; Go has
		case '_':
			underscores = true
		}
	}
	if underscores {
		var ok bool
		if b, ok = withoutUnderscores(b); !ok {
			return 0, false
		}
	}
	if len(b) == 4 && (b[0] == '-' || b[0] == '+') && bytes.EqualFold(b[1:], []byte("nan")) {
		return math.NaN(), true // as C prints some of them
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}

// withoutUnderscores removes underscores, each of which must be between two digits.
func withoutUnderscores(b []byte) ([]byte, bool) {
	digit := func(i int) bool { return i >= 0 && i < len(b) && b[i]-'0' <= 9 }
	out := make([]byte, 0, len(b))
	for i, c := range b {
		if c != '_' {
			out = append(out, c)
		} else if !digit(i-1) || !digit(i+1) {
			return nil, false
		}
	}
	return out, true
}

// parseTimestamp reads a timestamp in seconds. N means now, and so does -1.
func parseTimestamp(b []byte, now int64) (int64, bool) {
	if len(b) == 1 && b[0] == 'N' {
		return now, true
	}
	if ts, n, ok := plainInt(b); ok && n == len(b) {
		return ts, true
	}
	v, ok := parseFloat(b)
	if !ok {
		return 0, false
	}
	return wholeSeconds(v, now)
}

// wholeSeconds cuts the fraction of a timestamp, as Graphite does. -1 means now.
func wholeSeconds(v float64, now int64) (int64, bool) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, false
	case v > -2 && v <= -1:
		return now, true
	}
	// Beyond the years that int64 can have in milliseconds, only the sign matters.
	return int64(max(-1e15, min(1e15, v))), true
}
