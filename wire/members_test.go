package wire

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestMembers(t *testing.T) {
	two := []string{"ws://a", "wss://b"}
	tests := []struct {
		in      Members
		payload string
	}{
		{Members{}, "\x00\x00"},
		{Members{URLs: two}, "\x00\x00\x06ws://a\x07wss://b"},
		{Members{URLs: two, Self: two[0]}, "\x00\x01\x06ws://a\x07wss://b"},
		{Members{URLs: two, Self: two[0], Next: two[1]}, "\x02\x01\x06ws://a\x07wss://b"},
	}
	for _, tt := range tests {
		typ, payload, err := Split(AppendMembers(nil, tt.in))
		if err != nil || typ != TypeMembers || string(payload) != tt.payload {
			t.Errorf("%+v: %q %q, %v", tt.in, typ, payload, err)
		}
		if got, err := DecodeMembers(payload); err != nil || !reflect.DeepEqual(got, tt.in) {
			t.Errorf("got %+v, %v, want %+v", got, err, tt.in)
		}
	}
}

// TestDecodeMembersBounds: an agent keeps no more and no longer URLs than it may, whatever a backend sends.
func TestDecodeMembersBounds(t *testing.T) {
	var many Members
	for i := range 1000 {
		many.URLs = append(many.URLs, fmt.Sprint("ws://", i))
	}
	many.Self, many.Next = many.URLs[1], many.URLs[MaxMembers]
	got, err := DecodeMembers(AppendMembers(nil, many)[len(TypeMembers)+1:])
	if err != nil || !reflect.DeepEqual(got, Members{URLs: many.URLs[:MaxMembers], Self: many.URLs[1]}) {
		t.Errorf("of many: %+v, %v", got, err)
	}
	long := Members{URLs: []string{"ws://" + strings.Repeat("x", maxMemberURL), "", "ws://short"}}
	long.Self, long.Next = long.URLs[0], long.URLs[2]
	got, err = DecodeMembers(AppendMembers(nil, long)[len(TypeMembers)+1:])
	if err != nil || !reflect.DeepEqual(got, Members{URLs: long.URLs[2:], Next: long.URLs[2]}) {
		t.Errorf("of long ones: %+v, %v", got, err)
	}
	for _, in := range []string{"", "\x00", "\x80", "\x00\x80", "\x00\x00\x01", "\x00\x00\x80", "\x01\x00\x05ws"} {
		if got, err := DecodeMembers([]byte(in)); err == nil {
			t.Errorf("%x: %+v", in, got)
		}
	}
}

func FuzzDecodeMembers(f *testing.F) {
	two := Members{URLs: []string{"ws://a:8081", "wss://b:8081"}, Self: "ws://a:8081"}
	f.Add(AppendMembers(nil, two)[len(TypeMembers)+1:])
	f.Add([]byte("\x02\x01\x00\x06ws://a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMembers(b)
		if err != nil {
			return
		}
		again, err := DecodeMembers(AppendMembers(nil, m)[len(TypeMembers)+1:])
		if err != nil || !reflect.DeepEqual(again.URLs, m.URLs) || again.Self != m.Self || again.Next != m.Next {
			t.Errorf("got %+v, %v, want %+v", again, err, m)
		}
	})
}
