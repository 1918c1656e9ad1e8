package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// held lists what an outbox holds, as number:check.
func held(o *outbox) string {
	var out []string
	for _, e := range o.entries {
		out = append(out, fmt.Sprintf("%d:%s", e.seq, e.check))
	}
	return strings.Join(out, " ")
}

func fill(o *outbox, checks ...string) {
	for _, c := range checks {
		o.add(c, wire.Item{Event: make([]byte, 10)})
	}
}

func TestOutboxFull(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		o       *outbox
		in      string
		want    string
		dropped int
	}{
		{"room for all", &outbox{maxEvents: 3, maxBytes: 1000}, "a b c", "1:a 2:b 3:c", 0},
		{"same check", &outbox{maxEvents: 3, maxBytes: 1000}, "a b c b", "1:a 3:c 4:b", 1},
		{"oldest", &outbox{maxEvents: 3, maxBytes: 1000}, "a b c d", "2:b 3:c 4:d", 1},
		{"keepalives", &outbox{maxEvents: 3, maxBytes: 1000}, "a /keepalive b /keepalive", "1:a 3:b 4:/keepalive", 1},
		{"a check called keepalive", &outbox{maxEvents: 2, maxBytes: 1000}, "/keepalive keepalive keepalive", "1:/keepalive 3:keepalive", 1},
		{"bytes", &outbox{maxEvents: 100, maxBytes: 25}, "a b c", "2:b 3:c", 1},
		{"larger than all the room", &outbox{maxEvents: 100, maxBytes: 5}, "a b", "2:b", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dropped := 0
			for i, check := range strings.Fields(tt.in) {
				before := len(tt.o.entries)
				seq, n, more := tt.o.add(check, wire.Item{Event: make([]byte, 10)})
				if seq != uint64(i+1) || more != len(tt.o.entries)-before {
					t.Errorf("event %d got number %d, and there are %d more", i+1, seq, more)
				}
				dropped += n
			}
			if got := held(tt.o); got != tt.want || dropped != tt.dropped || tt.o.bytes != 10*len(tt.o.entries) {
				t.Errorf("holds %q (%d bytes), dropped %d; want %q, %d", got, tt.o.bytes, dropped, tt.want, tt.dropped)
			}
		})
	}
}

// TestOutboxKeepalives: at most one unsent keepalive is held.
func TestOutboxKeepalives(t *testing.T) {
	t.Parallel()
	o := &outbox{maxEvents: 10, maxBytes: 1000}
	keepalive := func(wantMore int) {
		t.Helper()
		if _, dropped, more := o.add(keepaliveCheck, wire.Item{Keepalive: true, Event: make([]byte, 10)}); dropped != 0 || more != wantMore {
			t.Errorf("dropped %d, %d more, want %d", dropped, more, wantMore)
		}
	}
	keepalive(1)
	o.take(new(batch), 10, 1000)
	o.rewind()
	keepalive(1) // the first was sent: a backend may have it
	fill(o, "a")
	keepalive(0)
	if got := held(o); got != "1:/keepalive 3:a 4:/keepalive" || o.bytes != 30 {
		t.Errorf("holds %q, %d bytes", got, o.bytes)
	}
}

func TestOutboxTake(t *testing.T) {
	t.Parallel()
	take := func(o *outbox, maxItems, maxBytes int) string {
		var b batch
		more, _ := o.take(&b, maxItems, maxBytes)
		if len(b.items) != len(b.seqs) {
			t.Errorf("took %d items with %d numbers", len(b.items), len(b.seqs))
		}
		return fmt.Sprint(b.seqs, " ", more)
	}
	o := &outbox{maxEvents: 5, maxBytes: 1000}
	expect := func(want, got string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect("[] false", take(o, 10, 1000))
	fill(o, "a", "b", "c", "d", "e", "c", "a") // leaves 2 4 5 6 7
	expect("2:b 4:d 5:e 6:c 7:a", held(o))
	expect("[2 4] true", take(o, 2, 1000))
	expect("[5] true", take(o, 10, 5)) // at least one
	expect("[6 7] false", take(o, 10, 20))
	expect("[] false", take(o, 10, 1000))

	if n, last := o.ack(4); n != 2 || last != 4 {
		t.Errorf("ack took %d up to %d", n, last)
	}
	fill(o, "f", "g")
	o.rewind()
	expect("[5 6 7 8 9] false", take(o, 10, 1000))
	o.rewind()
	if n, _ := o.ack(3); n != 0 {
		t.Errorf("an old ack took %d", n)
	}
	if n, last := o.ack(8); n != 4 || last != 8 { // for events sent on the last connection
		t.Errorf("ack took %d up to %d", n, last)
	}
	expect("[9] false", take(o, 10, 1000))
	fill(o, "h")
	if n, last := o.ack(1000); n != 1 || last != 9 { // h was never sent
		t.Errorf("ack took %d up to %d", n, last)
	}
	expect("10:h", held(o))
}

func TestOutboxGiveUp(t *testing.T) {
	t.Parallel()
	o := &outbox{maxEvents: 10, maxBytes: 1000}
	fill(o, "a")
	o.add("b", wire.Item{Event: make([]byte, 50)})
	fill(o, "c")
	o.take(new(batch), 10, 1000)
	o.add("never sent", wire.Item{Event: make([]byte, 100)})
	if e, ok := o.giveUpLargest(51); ok {
		t.Errorf("gave up %+v, which is smaller", e)
	}
	if e, ok := o.giveUpLargest(50); !ok || e.check != "b" {
		t.Errorf("gave up %+v", e)
	}
	if _, ok := o.giveUp(2); ok {
		t.Error("gave up what was gone")
	}
	if e, ok := o.giveUp(3); !ok || e.check != "c" {
		t.Errorf("gave up %+v", e)
	}
	if got := held(o); got != "1:a 4:never sent" || o.bytes != 110 {
		t.Errorf("holds %q, %d bytes", got, o.bytes)
	}
}

// TestOutboxModel compares the outbox with a simple list.
func TestOutboxModel(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		o := &outbox{maxEvents: 1 + rng.IntN(20), maxBytes: 1 << 20}
		var model []uint64 // numbers held
		var sent, ever uint64
		for range 200 {
			switch rng.IntN(5) {
			case 0, 1:
				keepalive := rng.IntN(4) == 0
				seq, _, _ := o.add(fmt.Sprint(rng.IntN(5)), wire.Item{Keepalive: keepalive})
				model = append(model, seq)
				if len(model) > o.maxEvents || keepalive { // the choice is tested elsewhere
					model = slices.DeleteFunc(model, func(seq uint64) bool {
						return !slices.ContainsFunc(o.entries, func(e entry) bool { return e.seq == seq })
					})
				}
			case 2:
				var b batch
				o.take(&b, 1+rng.IntN(5), 1000)
				for _, seq := range b.seqs {
					if seq <= sent || !slices.Contains(model, seq) {
						t.Fatalf("took %d after %d from %v", seq, sent, model)
					}
					sent = seq
				}
				ever = max(ever, sent)
			case 3:
				seq := rng.Uint64N(o.last + 2)
				o.ack(seq)
				model = slices.DeleteFunc(model, func(s uint64) bool { return s <= min(seq, ever) })
			case 4:
				o.rewind()
				sent = 0
			}
			if len(model) != len(o.entries) || len(model) > o.maxEvents {
				t.Fatalf("holds %s, want %v", held(o), model)
			}
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for range 100 {
		b := backoff{min: time.Second, max: 120 * time.Second, multiplier: 2}
		low, high := time.Second, time.Second
		for range 12 {
			if got := b.wait(); got < low || got > high {
				t.Fatalf("waits %v, want %v to %v", got, low, high)
			}
			low, high = min(2*low, b.max), min(4*high, b.max)
		}
		if got := b.wait(); got != b.max {
			t.Fatalf("waits %v at last", got)
		}
		b.reset()
		if got := b.wait(); got != b.min {
			t.Fatalf("waits %v after a reset", got)
		}
	}
}
