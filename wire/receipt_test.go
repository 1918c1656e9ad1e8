package wire

import (
	"strings"
	"testing"
)

func TestReceipt(t *testing.T) {
	for _, r := range []Receipt{
		{Check: "disk", Turn: "1700000000 linux", Outcome: OutcomeRunning},
		{Check: "switch", Entity: "sw-1", Turn: "1700000000 linux", Outcome: OutcomeDeclined, Reason: "it runs already"},
		{Outcome: OutcomeDone},
	} {
		typ, payload, err := Split(AppendReceipt(nil, &r))
		if err != nil || typ != TypeReceipt {
			t.Fatalf("type %q, %v", typ, err)
		}
		if got, err := DecodeReceipt(payload); err != nil || got != r {
			t.Errorf("got %+v, %v, want %+v", got, err, r)
		}
		for n := range len(payload) {
			if got, err := DecodeReceipt(payload[:n]); err == nil {
				t.Errorf("the first %d bytes are read as %+v", n, got)
			}
		}
		if got, err := DecodeReceipt(append(payload[:len(payload):len(payload)], 0)); err == nil {
			t.Errorf("with another byte it is read as %+v", got)
		}
	}
	for _, outcome := range []byte{0, 4} {
		if got, err := DecodeReceipt([]byte{outcome, 0, 0, 0, 0}); err == nil {
			t.Errorf("outcome %d is read as %+v", outcome, got)
		}
	}
	long := Receipt{Outcome: OutcomeDeclined, Reason: strings.Repeat("x", 2*maxReason)}
	if got, err := DecodeReceipt(AppendReceipt(nil, &long)[len(TypeReceipt)+1:]); err != nil || len(got.Reason) != maxReason {
		t.Errorf("a long reason has %d bytes, %v", len(got.Reason), err)
	}
}

func FuzzReceipt(f *testing.F) {
	f.Add(AppendReceipt(nil, &Receipt{Check: "disk", Entity: "sw-1", Turn: "1700000000 linux", Outcome: OutcomeDeclined, Reason: "no"})[len(TypeReceipt)+1:])
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := DecodeReceipt(payload)
		if err != nil {
			return
		}
		if again, err := DecodeReceipt(AppendReceipt(nil, &r)[len(TypeReceipt)+1:]); len(r.Reason) <= maxReason && (err != nil || again != r) {
			t.Errorf("%+v is read again as %+v, %v", r, again, err)
		}
	})
}
