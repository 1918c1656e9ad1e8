package resource

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// typicalEvent returns an event of a Sensu agent for a check with 799 bytes of output, like the load generator's.
func typicalEvent(tb testing.TB) *Event {
	tb.Helper()
	for _, f := range readFrames(tb, "protobuf") {
		if f.typ == "event" {
			var e Event
			if err := e.UnmarshalProto(f.payload); err != nil {
				tb.Fatal(err)
			}
			e.Check.Output = strings.Repeat("output ", 115)[:799]
			return &e
		}
	}
	tb.Fatal("no event among the frames")
	return nil
}

// The cost of one event on the event path, in each encoding:
//
//	go test ./resource -run '^$' -bench Event -benchmem -count 6 | tee new.txt && benchstat old.txt new.txt

func BenchmarkEventUnmarshalProto(b *testing.B) {
	encoded := typicalEvent(b).AppendProto(nil)
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		var e Event
		if err := e.UnmarshalProto(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEventAppendProto(b *testing.B) {
	e := typicalEvent(b)
	buf := e.AppendProto(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendProto(buf[:0])
	}
}

func BenchmarkEventPeek(b *testing.B) {
	encoded := typicalEvent(b).AppendProto(nil)
	buf := make([]byte, 0, len(encoded))
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		view, err := PeekEvent(encoded)
		if err != nil {
			b.Fatal(err)
		}
		check, err := PeekCheck(view.Check)
		if err != nil {
			b.Fatal(err)
		}
		entity, err := PeekEntity(view.Entity)
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(view.Validate(), check.Validate(), entity.Validate()); err != nil {
			b.Fatal(err)
		}
		if _, err := AppendEventWithoutEntity(buf, encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEventMarshalJSON(b *testing.B) {
	e := typicalEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEventUnmarshalJSON(b *testing.B) {
	encoded, err := json.Marshal(typicalEvent(b))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		var e Event
		if err := json.Unmarshal(encoded, &e); err != nil {
			b.Fatal(err)
		}
	}
}
