package ctl

import (
	"bytes"
	"io"
	"slices"
	"unicode/utf8"
)

// safeWriter makes text safe for a terminal, as printable does: a server, and the machines of its agents, could otherwise
// move the cursor or set the clipboard. Of escape sequences it lets through our own styles. All that commands print for
// people goes through it; JSON, YAML and other formats for programs do not.
type safeWriter struct {
	w    io.Writer
	rest []byte // the begin of a character or style whose end is not written yet
}

// styles are what paint writes.
var styles = [][]byte{[]byte(bold), []byte(dim), []byte(red), []byte(green), []byte(yellow), []byte(magenta), []byte(reset)}

func (o *safeWriter) Write(p []byte) (int, error) {
	text := append(o.rest, p...)
	var out []byte
	for len(text) > 0 {
		n, whole := styleAt(text)
		if !whole || n == 0 && !utf8.FullRune(text) {
			break
		}
		if n > 0 {
			out, text = append(out, text[:n]...), text[n:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		if r == '\n' || r == '\t' {
			out = append(out, text[0])
		} else {
			out = append(out, printable(string(r))...)
		}
		text = text[size:]
	}
	o.rest = slices.Clone(text)
	if _, err := o.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// styleAt returns the length of the style at the begin of a text; 0 for none. whole is false if the text may go on with the
// rest of a style.
func styleAt(text []byte) (n int, whole bool) {
	for _, s := range styles {
		if bytes.HasPrefix(text, s) {
			return len(s), true
		}
	}
	return 0, !slices.ContainsFunc(styles, func(s []byte) bool { return bytes.HasPrefix(s, text) })
}

// rawStream returns the stream below a safeWriter: for other programs, and for what is no text.
func rawStream(stream io.Writer) io.Writer {
	if o, ok := stream.(*safeWriter); ok {
		return o.w
	}
	return stream
}
