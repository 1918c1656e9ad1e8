package resource

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzEventProto(f *testing.F) {
	for _, frame := range readFrames(f, "protobuf") {
		if frame.typ == "event" || frame.typ == "keepalive" {
			f.Add(frame.payload)
		}
	}
	f.Add([]byte("\x12\x02\x72\x00\x12\x02\x72\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Event
		if err := e.UnmarshalProto(b); err != nil {
			_, _ = PeekEvent(b)
			_, _ = AppendEventWithoutEntity(nil, b)
			return
		}
		encoded := e.AppendProto(nil)
		requireSameVerdict(t, encoded, &e)
		var again Event
		if err := again.UnmarshalProto(encoded); err != nil {
			t.Fatalf("our own encoding: %v", err)
		}
		if !bytes.Equal(again.AppendProto(nil), encoded) {
			t.Fatalf("round trip\n got %+v\nwant %+v", again, e)
		}
		requirePeek(t, encoded, &e)

		// A view and the decoder must read the same from any bytes, unless the view refuses them.
		view, err := PeekEvent(b)
		if err != nil {
			return
		}
		if view.Entity != nil {
			if _, err := PeekEntity(view.Entity); err != nil {
				return
			}
		}
		if view.Check != nil {
			if _, err := PeekCheck(view.Check); err != nil {
				return
			}
		}
		requirePeek(t, b, &e)
		requireSameVerdict(t, b, &e)
	})
}

// requireSameVerdict fails unless the rules for encoded and decoded events agree.
func requireSameVerdict(t *testing.T, b []byte, e *Event) {
	t.Helper()
	want, got := e.Validate(), encoded(b).Validate()
	if (want == nil) != (got == nil) {
		t.Errorf("encoded: %v, decoded: %v\n%+v", got, want, e.Check)
	}
}

func FuzzEventJSON(f *testing.F) {
	for _, frame := range readFrames(f, "json") {
		if frame.typ == "event" || frame.typ == "keepalive" {
			f.Add([]byte(frame.payload))
		}
	}
	f.Add([]byte(`{"id":"","check":{"check_hooks":[{}],"hooks":[{"status":-1}]},"Entity":{"METADATA":{"labels":{"API-key":"x"}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Event
		if err := json.Unmarshal(b, &e); err != nil {
			return
		}
		_ = e.Validate()
		first, err := json.Marshal(&e)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		var again Event
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatalf("our own encoding: %v\n%s", err, first)
		}
		second, err := json.Marshal(&again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Fatalf("round trip\n got %s\nwant %s", second, first)
		}
	})
}
