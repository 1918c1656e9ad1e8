package resource

import (
	"math"
	"testing"
	"time"
)

func TestPeekRun(t *testing.T) {
	event := func(change func(c *Check)) []byte {
		c := &Check{
			Metadata: ObjectMeta{Name: "disk", Namespace: "default", Annotations: map[string]string{"a": "b", TurnAnnotation: "17 linux", "z": ""}},
			Duration: 1.5, ProcessedBy: "host-1",
		}
		change(c)
		return (&Event{Check: c}).AppendProto(nil)
	}
	for name, c := range map[string]struct {
		change func(c *Check)
		turn   string
		proxy  string
		by     string
		took   time.Duration
	}{
		"a turn":           {func(*Check) {}, "17 linux", "", "host-1", 1500 * time.Millisecond},
		"for an entity":    {func(c *Check) { c.ProxyEntityName = "sw-1" }, "17 linux", "sw-1", "host-1", 1500 * time.Millisecond},
		"no turn":          {func(c *Check) { delete(c.Metadata.Annotations, TurnAnnotation) }, "", "", "host-1", 1500 * time.Millisecond},
		"an absurd time":   {func(c *Check) { c.Duration = math.Inf(1) }, "17 linux", "", "host-1", 0},
		"a time before 0":  {func(c *Check) { c.Duration = -1 }, "17 linux", "", "host-1", 0},
		"a time that is 0": {func(c *Check) { c.Duration, c.ProcessedBy = 0, "" }, "17 linux", "", "", 0},
	} {
		r, err := PeekRun(event(c.change))
		if err != nil || string(r.Turn) != c.turn || string(r.ProxyEntity) != c.proxy || string(r.ProcessedBy) != c.by || r.Duration != c.took {
			t.Errorf("%s: got %q for %q by %q in %v, %v", name, r.Turn, r.ProxyEntity, r.ProcessedBy, r.Duration, err)
		}
	}
	if r, err := PeekRun((&Event{}).AppendProto(nil)); err != nil || r.Turn != nil {
		t.Errorf("an event without a check: %+v, %v", r, err)
	}
	whole := event(func(*Check) {})
	if r, err := PeekRun(whole[:len(whole)-1]); err == nil {
		t.Errorf("a cut event: %+v", r)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = PeekRun(whole) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzPeekRun(f *testing.F) {
	f.Add((&Event{Check: &Check{Metadata: ObjectMeta{Annotations: map[string]string{TurnAnnotation: "17 linux"}}}}).AppendProto(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := PeekRun(b)
		var ev Event
		if err != nil || ev.UnmarshalProto(b) != nil || ev.Check == nil {
			return
		}
		if want := ev.Check.Metadata.Annotations[TurnAnnotation]; string(r.Turn) != want || string(r.ProxyEntity) != ev.Check.ProxyEntityName {
			t.Errorf("got %q for %q, want %q for %q", r.Turn, r.ProxyEntity, want, ev.Check.ProxyEntityName)
		}
	})
}
