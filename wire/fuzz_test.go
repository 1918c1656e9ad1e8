package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gobwas/ws"
)

func FuzzSplit(f *testing.F) {
	for _, r := range readFrames(f) {
		f.Add(r.message)
	}
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		typ, payload, err := Split(b)
		if err != nil {
			if bytes.IndexByte(b, '\n') >= 0 {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		if got := append([]byte(typ+"\n"), payload...); !bytes.Equal(got, b) {
			t.Errorf("%q put together again is %q", b, got)
		}
	})
}

func FuzzReadEvents(f *testing.F) {
	for _, r := range readFrames(f) {
		if r.enc == Protobuf {
			_, payload, _ := Split(r.message)
			items := []Item{{Event: payload, Keepalive: r.typ == TypeKeepalive}, {Event: payload}}
			f.Add(AppendEvents(nil, uint64(len(payload)), items)[len(TypeEvents)+1:])
		}
	}
	f.Add([]byte("\x05\x01\x09x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var items []Item
		var first uint64
		next := uint64(0)
		whole := true // no item was left out
		events := ReadEvents(b)
		for events.Next() {
			if len(items) == 0 {
				first = events.Seq
			} else if events.Seq != next {
				whole = false
			}
			next = events.Seq + 1
			items = append(items, events.Item)
		}
		if events.Err() != nil || len(items) == 0 || !whole {
			return
		}
		var again []Item
		payload := AppendEvents(nil, first, items)[len(TypeEvents)+1:]
		for events = ReadEvents(payload); events.Next(); {
			if want := first + uint64(len(again)); events.Seq != want {
				t.Errorf("number %d, want %d", events.Seq, want)
			}
			again = append(again, events.Item)
		}
		if err := events.Err(); err != nil || len(again) != len(items) {
			t.Fatalf("%d of %d items, %v", len(again), len(items), err)
		}
		for i := range items {
			if again[i].Keepalive != items[i].Keepalive || !bytes.Equal(again[i].Event, items[i].Event) {
				t.Errorf("item %d: %+v, want %+v", i, again[i], items[i])
			}
		}
	})
}

func FuzzConnRead(f *testing.F) {
	const limit = 10_000
	for _, r := range readFrames(f) {
		f.Add(rawFrames(ws.NewBinaryFrame(r.message), ws.NewPingFrame(nil)), true)
		half := len(r.message) / 2
		f.Add(rawFrames(
			ws.NewFrame(ws.OpBinary, false, r.message[:half]),
			ws.NewPingFrame([]byte("x")),
			ws.NewFrame(ws.OpContinuation, true, r.message[half:]),
			ws.NewCloseFrame(ws.NewCloseFrameBody(1001, "bye")),
		), true)
		f.Add(ws.MustCompileFrame(ws.NewTextFrame(r.message)), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, server bool) {
		end := NewClientConn
		if server {
			end = NewServerConn
		}
		c := end(&streamConn{r: bytes.NewReader(b)}, nil, limit)
		total := 0
		for {
			msg, err := c.Read()
			if err != nil {
				var closed *CloseError
				if errors.As(err, &closed) && closed.Code < 1000 {
					t.Errorf("close code %d", closed.Code)
				}
				break
			}
			total += len(msg)
			if len(msg) > limit || total > len(b) {
				t.Fatalf("a message of %d bytes, %d in all, from %d", len(msg), total, len(b))
			}
			// The other end's encoding of it reads the same.
			opposite := NewServerConn
			if server {
				opposite = NewClientConn
			}
			frame := opposite(nil, nil, 0).appendFrame(nil, ws.OpBinary, msg)
			again, err := end(&streamConn{r: bytes.NewReader(frame)}, nil, limit).Read()
			if err != nil || !bytes.Equal(again, msg) {
				t.Fatalf("got %q, %v, want %q", again, err, msg)
			}
		}
	})
}
