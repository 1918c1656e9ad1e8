package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

const (
	// sendAt is how many bytes of a list are encoded before they are sent.
	sendAt = 64 << 10
	// sendTimeout is how long a client may take to receive that many.
	sendTimeout = 15 * time.Second
)

// array writes a JSON array and sends it as it is encoded, so that memory does not grow with it.
type array struct {
	w   *response
	n   int
	buf bytes.Buffer
	enc *json.Encoder
}

// newArray begins a list. next is the continue token of the following page, or "".
func newArray(w *response, next string) *array {
	l := &array{w: w}
	l.enc = json.NewEncoder(&l.buf)
	w.Header().Set("Content-Type", jsonType)
	if next != "" {
		w.Header().Set("Sensu-Continue", continueToken(next))
	}
	return l
}

func (l *array) add(v any) error {
	l.buf.WriteByte("[,"[min(l.n, 1)])
	l.n++
	if err := l.enc.Encode(resource.Plain(v)); err != nil {
		return fmt.Errorf("encode list: %w", err)
	}
	l.buf.Truncate(l.buf.Len() - 1) // the encoder's newline
	if l.buf.Len() < sendAt {
		return nil
	}
	return l.send()
}

// finish ends the array.
func (l *array) finish() error {
	if l.n == 0 {
		l.buf.WriteByte('[')
	}
	l.buf.WriteByte(']')
	return l.send()
}

func (l *array) send() error {
	// Without a deadline of its own, a long list would have to be read in the time of a short answer. Some writers in
	// tests have no deadline and need none.
	_ = http.NewResponseController(l.w).SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err := l.w.Write(l.buf.Bytes())
	l.buf.Reset()
	if err != nil {
		return fmt.Errorf("send list: %w", err)
	}
	return nil
}

// writeList answers with the page of the selected items, each shown by view. key is an item's continue token.
func writeList[T any](w *response, p page, items iter.Seq[T], view func(T) any, key func(T) string) error {
	if p.err != nil {
		return p.err
	}
	if p.selector != nil {
		items = selected(p.selector, items, view)
	}
	next := ""
	if p.limit > 0 {
		// The header says whether another page follows, so find that out before the first item.
		shown, more := first(items, p.limit)
		if more {
			next = key(shown[len(shown)-1])
		}
		items = slices.Values(shown)
	}
	list := newArray(w, next)
	for item := range items {
		if err := list.add(view(item)); err != nil {
			return err
		}
	}
	return list.finish()
}

// first returns up to n items, and whether there are more.
func first[T any](items iter.Seq[T], n int) (some []T, more bool) {
	for item := range items {
		if len(some) == n {
			return some, true
		}
		some = append(some, item)
	}
	return some, false
}

// selected yields the items that a selector selects by their view for readers.
func selected[T any](s *selector.Selector, items iter.Seq[T], view func(T) any) iter.Seq[T] {
	now := time.Now()
	return func(yield func(T) bool) {
		for item := range items {
			if s.MatchAt(fieldsOf(item, view), now) && !yield(item) {
				return
			}
		}
	}
}

// fieldsOf returns the fields of an item that a selector matches.
func fieldsOf[T any](item T, view func(T) any) selector.Fields {
	if c, ok := any(item).(*resource.EntityConfig); ok {
		return selector.Entity(c, func() any { return view(item) })
	}
	return selector.Resource(view(item))
}
