package resource

import (
	"math"
	"testing"
	"time"
)

func TestSilencedValidate(t *testing.T) {
	for _, tc := range []struct{ subscription, check, name, want string }{
		{"linux", "disk", "linux:disk", ""},
		{"linux", "", "linux:*", ""},
		{"linux", "*", "linux:*", ""},
		{"", "disk", "*:disk", ""},
		{"*", "disk", "*:disk", ""},
		{"entity:web1", "", "entity:web1:*", ""},
		{"entity:web1", "a:b", "entity:web1:a:b", ""},
		{"", "", "*:*", "must provide check or subscription"},
		{"*", "*", "*:*", "must provide check or subscription"},
		{"*", "", "*:*", "must provide check or subscription"},
		{"a b", "", "a b:*", "Subscription cannot contain spaces or special characters"},
		{"a:b:c", "", "a:b:c:*", "Subscription cannot contain spaces or special characters"},
		{"li*", "", "li*:*", "Subscription cannot contain spaces or special characters"},
		{"", "a b", "*:a b", "Check cannot contain spaces or special characters"},
	} {
		s := Silenced{Subscription: tc.subscription, Check: tc.check, Metadata: ObjectMeta{Namespace: "default"}}
		if got := s.DerivedName(); got != tc.name {
			t.Errorf("%q and %q: name %s, want %s", tc.subscription, tc.check, got, tc.name)
		}
		got := ""
		if err := s.Validate(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%q and %q: %q, want %q", tc.subscription, tc.check, got, tc.want)
		}
	}
	if err := (&Silenced{Check: "c"}).Validate(); err == nil {
		t.Error("a silence without namespace is valid")
	}
}

func TestSilencedSchedule(t *testing.T) {
	now := time.Unix(1000, 0)
	type times struct{ begin, expire, expireAt int64 }
	old := &times{900, 3600, 4500}
	for _, tc := range []struct {
		what      string
		sent      times
		old       *times
		begin, at int64
		fails     bool
	}{
		{"nothing", times{}, nil, 1000, 0, false},
		{"for ever", times{0, -1, 0}, nil, 1000, 0, false},
		{"a length", times{0, 60, 0}, nil, 1000, 1060, false},
		{"a length from later on", times{2000, 60, 0}, nil, 2000, 2060, false},
		{"an end", times{0, -1, 5000}, nil, 1000, 5000, false},
		{"a length and an end", times{0, 60, 5000}, nil, 1000, 5000, false},
		{"too long", times{1, math.MaxInt64, 0}, nil, 0, 0, true},
		{"as it was", *old, old, 900, 4500, false},
		{"another length", times{900, 60, 4500}, old, 900, 960, false},
		{"no end any more", times{900, -1, 4500}, old, 900, 0, false},
		{"another beginning", times{950, 3600, 4500}, old, 950, 4550, false},
		{"another end", times{900, 3600, 5000}, old, 900, 5000, false},
		{"anew", times{0, 60, 0}, old, 1000, 1060, false},
		{"for ever, as before", times{0, -1, 0}, &times{900, -1, 0}, 1000, 0, false},
	} {
		var before *Silenced
		if tc.old != nil {
			before = &Silenced{Begin: tc.old.begin, Expire: tc.old.expire, ExpireAt: tc.old.expireAt}
		}
		s := Silenced{Begin: tc.sent.begin, Expire: tc.sent.expire, ExpireAt: tc.sent.expireAt}
		err := s.Schedule(now, before)
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", tc.what, err)
		}
		if err == nil && (s.Begin != tc.begin || s.ExpireAt != tc.at || s.Expire != tc.sent.expire) {
			t.Errorf("%s: from %d to %d, want %d to %d", tc.what, s.Begin, s.ExpireAt, tc.begin, tc.at)
		}
	}
}

func TestSilencedExpired(t *testing.T) {
	now := time.Unix(1000, 0)
	for at, want := range map[int64]bool{0: false, 999: true, 1000: true, 1001: false} {
		if got := (&Silenced{ExpireAt: at}).Expired(now); got != want {
			t.Errorf("ends at %d: expired %v", at, got)
		}
	}
}

func TestAPIKeyValidate(t *testing.T) {
	for want, k := range map[string]APIKey{
		"":                                {Username: "admin"},
		"api key cannot have a namespace": {Username: "admin", Metadata: ObjectMeta{Namespace: "default"}},
		"api key must have a username":    {},
	} {
		got := ""
		if err := k.Validate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", k, got, want)
		}
	}
}
