package promname

import (
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// place is the part of a stored name in which a text stands: it decides which bytes need an escape.
type place uint8

const (
	inName place = iota
	inTag
	inValue
)

const (
	exported = "exported_"
	hex      = "0123456789ABCDEF"
	replaced = "\uFFFD"
)

// needsEscape reports whether c cannot stand at position i of a text.
func needsEscape(c byte, i int, p place) bool {
	switch {
	case c <= ' ' || c == 0x7f || c == ';':
		return true
	case c == '~':
		return i == 0 && p != inTag
	case c == '!' || c == '^' || c == '=':
		return p == inTag
	}
	return false
}

// escapeAt reads an escape at text[i], which is "%", any number of "25", and two digits that stand for a byte which
// needs an escape at this position. It returns the number of "25" and that byte.
func escapeAt[T string | []byte](text T, i int, p place) (nested int, c byte, ok bool) {
	j := i + 1
	for {
		if j+2 > len(text) {
			return 0, 0, false
		}
		high, low := strings.IndexByte(hex, text[j]), strings.IndexByte(hex, text[j+1])
		if high < 0 || low < 0 {
			return 0, 0, false
		}
		c = byte(high<<4 | low)
		if needsEscape(c, i, p) {
			return (j - i - 1) / 2, c, true
		}
		if c != '%' {
			return 0, 0, false
		}
		j += 2
	}
}

func appendEscaped(dst, text []byte, p place) []byte {
	plain := true
	for i, c := range text {
		if c == '%' || needsEscape(c, i, p) {
			plain = false
			break
		}
	}
	if plain {
		return append(dst, text...)
	}
	for i, c := range text {
		if needsEscape(c, i, p) {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
			continue
		}
		dst = append(dst, c)
		if c == '%' {
			if _, _, ok := escapeAt(text, i, p); ok {
				dst = append(dst, "25"...)
			}
		}
	}
	return dst
}

func unescape(text string, p place) string {
	if strings.IndexByte(text, '%') < 0 {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' {
			if nested, c, ok := escapeAt(text, i, p); ok {
				if nested > 0 {
					c = '%'
				}
				out = append(out, c)
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return string(out)
}

// isNameTag reports whether a label is "name", or "name" with "exported_" before it any number of times.
func isNameTag(label []byte) bool {
	text := label
	for len(text) > len(exported) && string(text[:len(exported)]) == exported {
		text = text[len(exported):]
	}
	return string(text) == "name"
}

// appendLabels calls add for the labels of a stored name.
func appendLabels(name string, add func(name, value string)) {
	metric, rest, tagged := strings.Cut(name, ";")
	if tagged && !validTags(rest) {
		metric, rest = name, ""
	}
	add(labels.MetricName, strings.ToValidUTF8(unescape(metric, inName), replaced))
	for rest != "" {
		var segment string
		segment, rest, _ = strings.Cut(rest, ";")
		tag, value, _ := strings.Cut(segment, "=")
		tag = unescape(tag, inTag)
		if strings.HasPrefix(tag, exported) && isNameTag([]byte(tag)) {
			tag = tag[len(exported):]
		}
		add(strings.ToValidUTF8(tag, replaced), strings.ToValidUTF8(unescape(value, inValue), replaced))
	}
}

func validTags(rest string) bool {
	if rest == "" {
		return false
	}
	for more := true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, ";")
		tag, value, ok := strings.Cut(segment, "=")
		if !ok || tag == "" || value == "" || tag == labels.MetricName {
			return false
		}
	}
	return true
}
