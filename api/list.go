package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"
)

const (
	// sendAt is how much of a long list is encoded before it is sent.
	sendAt = 64 << 10
	// sendTimeout is how long a client may take for that much.
	sendTimeout = 15 * time.Second
)

// array writes a JSON array. All of a list goes out as it is encoded, so that memory does not grow with it; a page is
// held back until it is known whether another follows, which a header tells.
type array struct {
	w    *response
	page bool
	n    int
	buf  bytes.Buffer
	enc  *json.Encoder
}

func newArray(w *response, p page) *array {
	l := &array{w: w, page: p.limit > 0}
	l.enc = json.NewEncoder(&l.buf)
	w.Header().Set("Content-Type", jsonType)
	return l
}

func (l *array) add(v any) error {
	l.buf.WriteByte("[,"[min(l.n, 1)])
	l.n++
	if err := l.enc.Encode(v); err != nil {
		return fmt.Errorf("encode list: %w", err)
	}
	l.buf.Truncate(l.buf.Len() - 1) // the encoder's newline
	if l.page || l.buf.Len() < sendAt {
		return nil
	}
	return l.send()
}

// finish ends the array. next is what the following page begins after, or "".
func (l *array) finish(next string) error {
	if l.n == 0 {
		l.buf.WriteByte('[')
	}
	l.buf.WriteByte(']')
	if next != "" {
		l.w.Header().Set("Sensu-Continue", continueToken(next))
	}
	return l.send()
}

func (l *array) send() error {
	// Without a deadline of its own a long list would have to be read in the time of a short answer. Writers that have
	// none, as in tests, need none.
	_ = http.NewResponseController(l.w).SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err := l.w.Write(l.buf.Bytes())
	l.buf.Reset()
	if err != nil {
		return fmt.Errorf("send list: %w", err)
	}
	return nil
}

// writeList answers with the page of items, each shown by view. key is what a page begins after.
func writeList[T any](w *response, p page, items iter.Seq[T], view func(T) any, key func(T) string) error {
	list := newArray(w, p)
	last := ""
	for item := range items {
		if p.limit > 0 && list.n == p.limit {
			return list.finish(last)
		}
		if err := list.add(view(item)); err != nil {
			return err
		}
		last = key(item)
	}
	return list.finish("")
}
