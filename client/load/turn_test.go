package load

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// definition is a check's definition with the given annotations, encoded.
func definition(annotations map[string]string) []byte {
	return (&resource.CheckConfig{
		Command: "echo " + resource.TurnAnnotation, Interval: 1, Publish: true, RoundRobin: true,
		Subscriptions: []string{"a", "b"}, ProxyEntityName: "switch",
		Metadata: resource.ObjectMeta{
			Name: "lab", Namespace: "default", Annotations: annotations,
			Labels: map[string]string{resource.TurnAnnotation: "a label"},
		},
	}).AppendProto(nil)
}

// TestCutTurn: what is left of a definition is the definition without the annotation, byte for byte.
func TestCutTurn(t *testing.T) {
	for name, others := range map[string]map[string]string{
		"alone":           {},
		"before another":  {"z": "after"},
		"between others":  {"a": "before", "z": "after"},
		"of a definition": {"filling": string(bytes.Repeat([]byte("x"), 900))},
	} {
		t.Run(name, func(t *testing.T) {
			with := maps.Clone(others)
			with[resource.TurnAnnotation] = "1800000000 a 5"
			rest, value, err := cutTurn([]byte("kept"), definition(with))
			if err != nil || string(value) != "1800000000 a 5" {
				t.Fatalf("turn %q, error %v", value, err)
			}
			if want := append([]byte("kept"), definition(others)...); !bytes.Equal(rest, want) {
				t.Errorf("the rest is\n%q, want\n%q", rest, want)
			}
			plain := definition(others)
			if rest, value, err := cutTurn(nil, plain); err != nil || value != nil || !bytes.Equal(rest, plain) {
				t.Errorf("without a turn: turn %q, error %v, the rest is\n%q", value, err, rest)
			}
		})
	}
}

func TestParseTurn(t *testing.T) {
	for text, want := range map[string]struct {
		tick         int64
		subscription string
	}{
		"1800000000 linux 5":        {1_800_000_000, "linux"},
		"1800000000 entity:web-1 5": {1_800_000_000, "entity:web-1"},
		"1800000000! linux 5":       {1_800_000_000, "linux"},
		"1800000000 linux,web 5":    {1_800_000_000, "linux,web"},
		"7 with a blank 5":          {7, "with a blank"},
		"":                          {},
		"1800000000":                {},
		"1800000000 linux":          {},
		"1800000000 ":               {},
		" linux 5":                  {},
		"soon linux 5":              {},
	} {
		got, err := parseTurn([]byte(text))
		if want.subscription == "" {
			if err == nil {
				t.Errorf("%q is taken", text)
			}
			continue
		}
		if err != nil || got.text != text || got.tick != want.tick || got.subscription() != want.subscription {
			t.Errorf("%q is %+v of %q, error %v", text, got, got.subscription(), err)
		}
	}
}

// FuzzRequest: no request makes the tool fail otherwise than with an error. In one that was encoded as backends do it,
// the turn is the annotation that a decoder finds.
func FuzzRequest(f *testing.F) {
	request := func(annotations map[string]string) []byte {
		return protowire.AppendBytes([]byte{0x20, 1, 0x0a}, definition(annotations))
	}
	f.Add(request(nil))
	f.Add(request(map[string]string{resource.TurnAnnotation: "1800000000 a 5", "b": "c"}))
	f.Add(request(map[string]string{resource.TurnAnnotation: ""}))
	fleet := newTestFleet(f, FleetOptions{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, _ = fleet.request(payload)
		var decoded resource.CheckRequest
		if decoded.UnmarshalProto(payload) != nil || decoded.Config == nil {
			return
		}
		want, is := decoded.Config.Metadata.Annotations[resource.TurnAnnotation]
		req, err := fleet.request(decoded.AppendProto(nil))
		if _, invalid := parseTurn([]byte(want)); is && invalid != nil {
			want = ""
			if err == nil {
				t.Errorf("the turn %q is taken", want)
			}
		}
		if req.turn.text != want {
			t.Errorf("turn %q, want %q", req.turn.text, want)
		}
		clear(fleet.checks)
	})
}

// newTestFleet returns a fleet of agents a-1, a-2 and so on that is not started.
func newTestFleet(t testing.TB, opts FleetOptions) *Fleet {
	t.Helper()
	if opts.Backends == nil {
		opts.Backends = []string{"ws://127.0.0.1:1"}
	}
	if opts.Protocol == "" {
		opts.Protocol = ProtocolLapwing
	}
	opts.BaseName, opts.First, opts.KeepaliveInterval = "a", max(1, opts.First), time.Hour
	opts.Count = max(1, opts.Count)
	f, err := NewFleet(opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// turnRequest is the payload of a request for a turn.
func turnRequest(tick int64, subscription string, issued int64) []byte {
	annotations := map[string]string{"own": "x", resource.TurnAnnotation: fmt.Sprintf("%d %s 5", tick, subscription)}
	b := protowire.AppendBytes([]byte{0x0a}, definition(annotations))
	return protowire.AppendVarint(append(b, 0x20), uint64(issued))
}

// TestTurnsShareTheirCheck: however many turns of a check come, its definition is decoded and kept once. Each turn has
// an identity of its own, and is in its result beside the check's own annotations.
func TestTurnsShareTheirCheck(t *testing.T) {
	f := newTestFleet(t, FleetOptions{})
	keys := map[uint64]bool{}
	for tick := range int64(100) {
		for _, subscription := range []string{"a", "longer"} {
			req, err := f.request(turnRequest(tick, subscription, 5000+tick))
			if err != nil {
				t.Fatal(err)
			}
			if req.issued != 5000+tick || req.turn.tick != tick || req.turn.subscription() != subscription {
				t.Fatalf("request %+v", req)
			}
			keys[req.turn.key] = true
			var ev resource.Event
			r := result{check: req.check, n: 1, issued: req.issued, turn: req.turn}
			if err := ev.UnmarshalProto(f.appendEvent(nil, f.agents[0], &r)); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"own": "x", resource.TurnAnnotation: req.turn.text}
			if got := ev.Check.Metadata.Annotations; !reflect.DeepEqual(got, want) {
				t.Fatalf("the result has the annotations %v, want %v", got, want)
			}
			if own := req.check.result.Metadata.Annotations; len(own) != 1 {
				t.Fatalf("the check has the annotations %v", own)
			}
		}
	}
	if len(keys) != 200 || len(f.checks) != 1 || len(f.numbers) != 0 {
		t.Errorf("%d different turns of %d checks, %d of them with numbers", len(keys), len(f.checks), len(f.numbers))
	}
	plain, err := f.request(protowire.AppendBytes([]byte{0x0a}, definition(map[string]string{"own": "x"})))
	if err != nil || plain.turn.text != "" {
		t.Fatalf("turn %q, error %v", plain.turn.text, err)
	}
	var ev resource.Event
	if err := ev.UnmarshalProto(f.appendEvent(nil, f.agents[0], &result{check: plain.check, n: 1})); err != nil {
		t.Fatal(err)
	}
	if got := ev.Check.Metadata.Annotations; !reflect.DeepEqual(got, map[string]string{"own": "x"}) {
		t.Errorf("the result of a request without a turn has the annotations %v", got)
	}
}

// TestTurnKeys: turns differ by check, proxy entity, subscription and tick.
func TestTurnKeys(t *testing.T) {
	f := newTestFleet(t, FleetOptions{})
	keys := map[uint64]bool{}
	for _, check := range []string{"c", "d"} {
		for _, entity := range []string{"", "c", "d"} {
			for _, subscription := range []string{"a", "b"} {
				for tick := range 2 {
					turn := map[string]string{resource.TurnAnnotation: fmt.Sprintf("%d %s 5", tick, subscription)}
					config := resource.CheckConfig{
						ProxyEntityName: entity, Metadata: resource.ObjectMeta{Name: check, Annotations: turn},
					}
					req, err := f.request((&resource.CheckRequest{Config: &config}).AppendProto(nil))
					if err != nil {
						t.Fatal(err)
					}
					keys[req.turn.key] = true
				}
			}
		}
	}
	if len(keys) != 24 {
		t.Errorf("%d keys, want 24", len(keys))
	}
	req, err := f.request(turnRequest(1, "a", 1))
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(0x30e78dbb28b15f9a); req.turn.key != want { // as in other processes
		t.Errorf("key %#x, want %#x", req.turn.key, want)
	}
}

func BenchmarkTurnRequest(b *testing.B) {
	f := newTestFleet(b, FleetOptions{})
	annotations := map[string]string{
		"filling": string(bytes.Repeat([]byte("x"), 850)), resource.TurnAnnotation: "1800000000 queue-lab-1 1800000000000000",
	}
	payload := protowire.AppendBytes([]byte{0x20, 1, 0x0a}, definition(annotations))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.request(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSplitTurns(t *testing.T) {
	r := func(n uint32, text string) result { return result{n: n, turn: turn{text: text}} }
	for name, tc := range map[string]struct{ in, turns, others []result }{
		"nothing":   {},
		"no turns":  {in: []result{r(1, ""), r(2, "")}, others: []result{r(1, ""), r(2, "")}},
		"all turns": {in: []result{r(1, "x"), r(2, "y")}, turns: []result{r(1, "x"), r(2, "y")}},
		"mixed": {
			in:    []result{r(1, "x"), r(2, ""), r(3, "y"), r(4, "")},
			turns: []result{r(1, "x"), r(3, "y")}, others: []result{r(2, ""), r(4, "")},
		},
	} {
		if turns, others := splitTurns(tc.in); !reflect.DeepEqual(turns, tc.turns) || !reflect.DeepEqual(others, tc.others) {
			t.Errorf("%s: turns %v, others %v", name, turns, others)
		}
	}
}
