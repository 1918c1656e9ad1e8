package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestRecordedMessages(t *testing.T) {
	for _, r := range readFrames(t) {
		typ, payload, err := Split(r.message)
		if err != nil {
			t.Fatal(err)
		}
		if typ != r.typ {
			t.Errorf("type %q, want %q", typ, r.typ)
		}
		newMessage := func() Message {
			switch typ {
			case TypeEvent, TypeKeepalive:
				return new(resource.Event)
			case TypeCheckRequest:
				return new(resource.CheckRequest)
			}
			return new(resource.EntityConfig)
		}
		m := newMessage()
		if err := Decode(payload, r.enc, m); err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		again, err := Append([]byte("before"), typ, r.enc, m)
		if err != nil {
			t.Fatal(err)
		}
		head, ok := bytes.CutPrefix(again, []byte("before"+typ+"\n"))
		if !ok {
			t.Fatalf("message begins with %.30q", again)
		}
		got := newMessage()
		if err := Decode(head, r.enc, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.AppendProto(nil), m.AppendProto(nil)) {
			t.Errorf("%s: round trip\n got %+v\nwant %+v", typ, got, m)
		}
	}
}

func TestSplit(t *testing.T) {
	tests := []struct {
		in, typ, payload string
		err              error
	}{
		{"event\nx\ny", "event", "x\ny", nil},
		{"event\n", "event", "", nil},
		{"other\nx", "other", "x", nil},
		{"\nx", "", "x", nil},
		{"event", "", "", ErrNoSeparator},
		{"", "", "", ErrNoSeparator},
	}
	for _, tt := range tests {
		typ, payload, err := Split([]byte(tt.in))
		if typ != tt.typ || string(payload) != tt.payload || !errors.Is(err, tt.err) {
			t.Errorf("%q: %q, %q, %v", tt.in, typ, payload, err)
		}
	}
}

func TestAppendReportsWhatCannotBeEncoded(t *testing.T) {
	e := &resource.Event{Metrics: &resource.Metrics{Points: []resource.MetricPoint{{Value: math.NaN()}}}}
	if _, err := Append(nil, TypeEvent, JSON, e); err == nil || !strings.Contains(err.Error(), "encode event message") {
		t.Errorf("got %v", err)
	}
	if _, err := Append(nil, TypeEvent, Protobuf, e); err != nil {
		t.Errorf("protobuf: %v", err)
	}
}

func TestEvents(t *testing.T) {
	tests := []struct {
		name  string
		first uint64
		items []Item
	}{
		{"none", 0, nil},
		{"one", 1, []Item{{Event: []byte("a")}}},
		{"several", 1 << 40, []Item{{Event: []byte("a")}, {Keepalive: true, Event: []byte{}}, {Event: bytes.Repeat([]byte("x"), 300)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			typ, payload, err := Split(AppendEvents(nil, tt.first, tt.items))
			if err != nil || typ != TypeEvents {
				t.Fatalf("%q, %v", typ, err)
			}
			var got []Item
			events := ReadEvents(payload)
			for events.Next() {
				if want := tt.first + uint64(len(got)); events.Seq != want {
					t.Errorf("number %d, want %d", events.Seq, want)
				}
				got = append(got, events.Item)
			}
			if err := events.Err(); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.items) {
				t.Errorf("got %v, want %v", got, tt.items)
			}
		})
	}
}

func TestReadEventsErrors(t *testing.T) {
	payload := AppendEvents(nil, 7, []Item{{Event: []byte("first")}, {Event: []byte("second")}})[len(TypeEvents)+1:]
	ends := map[int]bool{1: true, 1 + 2 + 5: true, len(payload): true} // after the number, and after each item
	for i := range len(payload) + 1 {
		events := ReadEvents(payload[:i])
		for events.Next() {
		}
		if err := events.Err(); (err == nil) != ends[i] {
			t.Errorf("%d of %d bytes: %v", i, len(payload), err)
		}
		if events.Next() {
			t.Errorf("%d of %d bytes: there is more behind the end", i, len(payload))
		}
	}

	// A newer agent's kinds are skipped, and counted.
	var seqs []uint64
	events := ReadEvents([]byte("\x05\x01\x09x\x01\x00y"))
	for events.Next() {
		seqs = append(seqs, events.Seq)
	}
	if err := events.Err(); err != nil || !reflect.DeepEqual(seqs, []uint64{6}) {
		t.Errorf("got %v, %v", seqs, err)
	}
}

func TestAck(t *testing.T) {
	for _, want := range []uint64{0, 1, 127, 128, math.MaxUint64} {
		typ, payload, err := Split(AppendAck(nil, want))
		if err != nil || typ != TypeAck {
			t.Fatalf("%q, %v", typ, err)
		}
		if got, err := DecodeAck(payload); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	for _, in := range []string{"", "\x80", "\x01\x01", strings.Repeat("\xff", 11)} {
		if _, err := DecodeAck([]byte(in)); err == nil {
			t.Errorf("%x was accepted", in)
		}
	}
}
