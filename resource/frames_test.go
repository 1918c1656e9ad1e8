package resource

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// frame is a message that a Sensu agent or backend sent.
type frame struct {
	name    string // file:line
	typ     string
	payload []byte
	json    json.RawMessage
}

func readFrames(tb testing.TB, encoding string) []frame {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", "frames", encoding+".jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var frames []frame
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Type     string          `json:"type"`
			FrameHex string          `json:"frame_hex"`
			JSON     json.RawMessage `json:"json"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			tb.Fatal(err)
		}
		message, err := hex.DecodeString(line.FrameHex)
		if err != nil {
			tb.Fatal(err)
		}
		typ, payload, _ := bytes.Cut(message, []byte{'\n'})
		frames = append(frames, frame{
			name:    fmt.Sprintf("%s:%d-%s", encoding, len(frames)+1, typ),
			typ:     line.Type,
			payload: payload,
			json:    line.JSON,
		})
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	if len(frames) == 0 {
		tb.Fatalf("no %s frames", encoding)
	}
	return frames
}

type protoMessage interface {
	AppendProto(b []byte) []byte
	UnmarshalProto(b []byte) error
}

func newMessage(tb testing.TB, typ string) protoMessage {
	tb.Helper()
	switch typ {
	case "event", "keepalive":
		return new(Event)
	case "entity_config":
		return new(EntityConfig)
	case "check_request":
		return new(CheckRequest)
	}
	tb.Fatalf("unknown message type %q", typ)
	return nil
}

// requireJSON fails unless v's JSON means the same as want.
func requireJSON(t *testing.T, v any, want []byte) {
	t.Helper()
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var gotValue, wantValue any
	if err := json.Unmarshal(got, &gotValue); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &wantValue); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(gotValue, wantValue) {
		t.Errorf("JSON differs\n got %s\nwant %s", got, want)
	}
}

func TestProtobufFrames(t *testing.T) {
	for _, f := range readFrames(t, "protobuf") {
		t.Run(f.name, func(t *testing.T) {
			m := newMessage(t, f.typ)
			if err := m.UnmarshalProto(f.payload); err != nil {
				t.Fatal(err)
			}
			requireJSON(t, m, f.json)

			encoded := m.AppendProto([]byte("before"))
			encoded, ok := bytes.CutPrefix(encoded, []byte("before"))
			if !ok {
				t.Fatal("AppendProto changed what was there")
			}
			// The order of a map's entries is free, so only lengths can be compared.
			if len(encoded) != len(f.payload) {
				t.Errorf("encoded in %d bytes, Sensu in %d", len(encoded), len(f.payload))
			}
			again := newMessage(t, f.typ)
			if err := again.UnmarshalProto(encoded); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(again, m) {
				t.Errorf("round trip\n got %+v\nwant %+v", again, m)
			}
		})
	}
}

func TestJSONFrames(t *testing.T) {
	for _, f := range readFrames(t, "json") {
		t.Run(f.name, func(t *testing.T) {
			m := newMessage(t, f.typ)
			if err := json.Unmarshal(f.payload, m); err != nil {
				t.Fatal(err)
			}
			requireJSON(t, m, f.json)
			requireJSON(t, m, f.payload)

			encoded := m.AppendProto(nil)
			again := newMessage(t, f.typ)
			if err := again.UnmarshalProto(encoded); err != nil {
				t.Fatal(err)
			}
			// Protobuf has no empty lists, only missing ones. Both encode the same.
			if !bytes.Equal(again.AppendProto(nil), encoded) {
				t.Errorf("protobuf round trip\n got %+v\nwant %+v", again, m)
			}
		})
	}
}

func TestFramesAreValid(t *testing.T) {
	for _, encoding := range []string{"protobuf", "json"} {
		for _, f := range readFrames(t, encoding) {
			if f.typ != "event" && f.typ != "keepalive" {
				continue
			}
			var e Event
			if err := json.Unmarshal(f.json, &e); err != nil {
				t.Fatal(err)
			}
			if err := e.Validate(); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
		}
	}
}
