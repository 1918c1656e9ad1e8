package wire

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestSchedule(t *testing.T) {
	request := (&resource.CheckRequest{Config: &resource.CheckConfig{Command: "true", Interval: 10}}).AppendProto(nil)
	tests := []struct {
		name     string
		revision uint64
		replace  bool
		entries  []ScheduleEntry
	}{
		{"nothing to run", 1, true, nil},
		{"no change", 2, false, nil},
		{"set", 3, false, []ScheduleEntry{{PhaseMillis: 7042, Request: request}}},
		{"remove", 4, false, []ScheduleEntry{{Remove: "disk"}}},
		{"empty request", 5, true, []ScheduleEntry{{Request: []byte{}}}},
		{"several", math.MaxUint64, true, []ScheduleEntry{
			{PhaseMillis: math.MaxUint64, Request: request},
			{Remove: "a"},
			{PhaseMillis: 1, Request: bytes.Repeat([]byte("x"), 300)},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			typ, payload, err := Split(AppendSchedule(nil, tt.revision, tt.replace, tt.entries))
			if err != nil || typ != TypeSchedule {
				t.Fatalf("%q, %v", typ, err)
			}
			revision, replace, entries, err := DecodeSchedule(payload)
			if err != nil {
				t.Fatal(err)
			}
			if revision != tt.revision || replace != tt.replace || !reflect.DeepEqual(entries, tt.entries) {
				t.Errorf("got %d, %v, %v", revision, replace, entries)
			}
		})
	}
}

// The bytes that other implementations must produce.
func TestScheduleEncoding(t *testing.T) {
	got := AppendSchedule(nil, 300, false, []ScheduleEntry{{PhaseMillis: 129, Request: []byte("req")}, {Remove: "cpu"}})
	want := "schedule\n" + "\xac\x02" + "\x01" + "\x00\x05\x81\x01req" + "\x01\x03cpu"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDecodeScheduleErrors(t *testing.T) {
	whole := "\x01\x00" + "\x00\x03\x05ab" + "\x01\x03cpu"
	ends := map[int]bool{2: true, 7: true, len(whole): true} // after the head, and after each entry
	for i := range len(whole) + 1 {
		if _, _, _, err := DecodeSchedule([]byte(whole[:i])); (err == nil) != ends[i] {
			t.Errorf("%d of %d bytes: %v", i, len(whole), err)
		}
	}
	for name, in := range map[string]string{
		"unknown mode":      "\x01\x02",
		"unknown operation": "\x01\x00\x02\x01x",
		"nameless removal":  "\x01\x00\x01\x00",
		"no phase":          "\x01\x00\x00\x00",
		"half a phase":      "\x01\x00\x00\x01\x80",
		"endless revision":  "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00",
		"huge entry":        "\x01\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
	} {
		if _, _, entries, err := DecodeSchedule([]byte(in)); err == nil || entries != nil {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
	}
}

func FuzzDecodeSchedule(f *testing.F) {
	for _, r := range readFrames(f) {
		if r.enc == Protobuf {
			_, payload, _ := Split(r.message)
			entries := []ScheduleEntry{{PhaseMillis: 5999, Request: payload}, {Remove: r.typ}}
			f.Add(AppendSchedule(nil, uint64(len(payload)), r.typ == TypeCheckRequest, entries)[len(TypeSchedule)+1:])
		}
	}
	f.Add([]byte("\x01\x00\x00\x03\x05ab\x01\x03cpu"))
	f.Fuzz(func(t *testing.T, b []byte) {
		revision, replace, entries, err := DecodeSchedule(b)
		if err != nil {
			return
		}
		again := AppendSchedule(nil, revision, replace, entries)[len(TypeSchedule)+1:]
		if len(again) > len(b) { // uvarints of b may be longer than they need to be
			t.Errorf("%d bytes from %d", len(again), len(b))
		}
		revision2, replace2, entries2, err := DecodeSchedule(again)
		if err != nil || revision2 != revision || replace2 != replace || !reflect.DeepEqual(entries2, entries) {
			t.Errorf("got %d, %v, %v, %v, want %d, %v, %v", revision2, replace2, entries2, err, revision, replace, entries)
		}
	})
}
