package wire

import (
	"strings"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	tests := []struct {
		pace        Pace
		every, want time.Duration
		payload     string
	}{
		{PaceGo, 0, 0, "\x00\x00"},
		{PaceGo, time.Second, 0, "\x00\x00"},
		{PaceSlow, 0, 0, "\x01\x00"},
		{PaceSlow, 2*time.Second + time.Microsecond, 2 * time.Second, "\x01\xd0\x0f"},
		{PaceSlow, -time.Second, 0, "\x01\x00"},
		{PaceSpool, time.Second, 0, "\x02\x00"},
		{PaceLeave, 0, 0, "\x03\x00"},
	}
	for _, tt := range tests {
		typ, payload, err := Split(AppendPace(nil, tt.pace, tt.every))
		if err != nil || typ != TypePace || string(payload) != tt.payload {
			t.Errorf("%v %v: %q %q, %v", tt.pace, tt.every, typ, payload, err)
		}
		if pace, every, err := DecodePace(payload); err != nil || pace != tt.pace || every != tt.want {
			t.Errorf("%v %v: got %v, %v, %v", tt.pace, tt.every, pace, every, err)
		}
	}
}

func TestDecodePaceErrors(t *testing.T) {
	for _, in := range []string{
		"", "\x00", "\x01\x80", "\x04\x00", "\x00\x00\x00",
		"\x01" + strings.Repeat("\xff", 9) + "\x01", // more milliseconds than a time.Duration has
		"\x01" + strings.Repeat("\xff", 11),
	} {
		if p, every, err := DecodePace([]byte(in)); err == nil {
			t.Errorf("%x: %v, %v", in, p, every)
		}
	}
}

func FuzzDecodePace(f *testing.F) {
	for _, p := range []Pace{PaceGo, PaceSlow, PaceSpool, PaceLeave, PaceLeave + 1} {
		f.Add(AppendPace(nil, p, 1500*time.Millisecond)[len(TypePace)+1:])
	}
	f.Add([]byte("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, every, err := DecodePace(b)
		if err != nil {
			return
		}
		if every < 0 || every != 0 && p != PaceSlow {
			t.Errorf("%v, %v", p, every)
		}
		p2, every2, err := DecodePace(AppendPace(nil, p, every)[len(TypePace)+1:])
		if err != nil || p2 != p || every2 != every {
			t.Errorf("got %v, %v, %v, want %v, %v", p2, every2, err, p, every)
		}
	})
}
