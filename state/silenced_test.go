package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestSilencesThatEndWithAnIncident: only the fold knows which silences an event ends, because it knows the state
// before.
func TestSilencesThatEndWithAnIncident(t *testing.T) {
	b := newBench(t, 1)
	var routed []string
	_ = b.state.Stop()
	b.route = func(a *Applied) {
		ev, err := a.Event()
		if err != nil {
			t.Error(err)
		}
		routed = append(routed, fmt.Sprintf("%d by %v ends %v, silenced %v %v",
			a.Status, ev.Check.Silenced, a.Ended, a.Silenced, ev.Check.IsSilenced))
	}
	b.open(nil)
	executed := int64(100)
	put := func(status uint32, silenced, onResolve string) {
		t.Helper()
		executed++
		names := strings.Fields(silenced)
		ev := resource.Event{Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: "c"}, Status: status, Executed: executed, Silenced: names, IsSilenced: len(names) > 0,
		}}
		r := eventlog.Record{
			Entity: "e", Check: "c", Status: status, Executed: executed, OnResolve: strings.Fields(onResolve),
			Body: ev.AppendProto(nil),
		}
		if len(names) > 0 {
			r.Flags |= eventlog.FlagSilenced
		}
		if len(r.OnResolve) > 0 {
			r.Flags |= eventlog.FlagOnResolve
		}
		b.put(r)
	}
	put(0, "a:*", "a:*")
	put(2, "a:* b:*", "a:*")
	put(1, "a:* b:*", "a:*")
	put(0, "a:* b:*", "a:*")
	if c := b.get("e", "c"); !slices.Equal(c.Silenced, []string{"b:*"}) || !c.IsSilenced {
		t.Errorf("kept as silenced by %v", c.Silenced)
	}
	put(0, "a:* b:*", "a:*")
	put(2, "a:*", "a:*")
	put(0, "a:*", "a:*")
	if c := b.get("e", "c"); len(c.Silenced) > 0 || c.IsSilenced {
		t.Errorf("kept as silenced by %v", c.Silenced)
	}
	put(2, "", "")
	put(0, "b:*", "")
	want := []string{
		"0 by [a:*] ends [], silenced true true",
		"2 by [a:* b:*] ends [], silenced true true",
		"1 by [a:* b:*] ends [], silenced true true",
		"0 by [b:*] ends [a:*], silenced true true",
		"0 by [a:* b:*] ends [], silenced true true",
		"2 by [a:*] ends [], silenced true true",
		"0 by [] ends [a:*], silenced false false",
		"2 by [] ends [], silenced false false",
		"0 by [b:*] ends [], silenced true true",
	}
	if !slices.Equal(routed, want) {
		t.Errorf("routed\n%s\nwant\n%s", strings.Join(routed, "\n"), strings.Join(want, "\n"))
	}
}
