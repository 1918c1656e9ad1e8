//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// expect fails the test unless the findings are those wanted, each by a part of its text.
func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: found %q, want %q", what, got, want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s: found %q, want %q", what, got[i], want[i])
		}
	}
}

// series is a pair with OK events; acked has a letter for each: y if it was acknowledged.
func series(byAgent bool, acked string) *pairLog {
	log := &pairLog{Entity: "e", Check: "c", ByAgent: byAgent}
	for _, letter := range acked {
		log.add(0)
		log.Events[len(log.Events)-1].Acked = letter == 'y'
	}
	return log
}

func folded(numbers ...int64) stored {
	return stored{History: numbers, Statuses: make([]uint32, len(numbers)), Occurrences: int64(len(numbers))}
}

func TestCheckPair(t *testing.T) {
	check := func(what string, log *pairLog, s stored, want ...string) {
		t.Helper()
		var f findings
		f.checkPair("m0", log, s)
		expect(t, what, f.all(), want...)
	}
	check("all is there", series(false, "yyy"), folded(1, 2, 3))
	check("unanswered and lost", series(false, "y-y"), folded(1, 3))
	check("unanswered and there", series(false, "y-y"), folded(1, 2, 3))
	check("unanswered and late", series(false, "y-y"), folded(1, 3, 2))
	check("lost", series(false, "yyy"), folded(1, 3), "event 2 was acknowledged")
	check("all lost", series(false, "y"), stored{}, "event 1 was acknowledged")
	check("twice", series(false, "yyy"), folded(1, 2, 2, 3), "event 2 was folded twice")
	check("unanswered and twice", series(false, "y-y"), folded(1, 2, 3, 2), "event 2 was folded twice")
	check("order", series(false, "yyy"), folded(1, 3, 2), "event 2 was folded after event 3")
	check("invented", series(false, "y"), folded(1, 2), "event 2 with status 0 was never sent")
	check("by an agent", series(true, "---"), folded(1, 2, 3))
	check("lost by an agent", series(true, "---"), folded(1, 3), "event 2 was acknowledged")
	check("order by an agent", series(true, "---"), folded(1, 3, 2), "event 2 was folded after event 3")
	wrong := folded(1, 2)
	wrong.Occurrences = 3
	check("occurrences", series(false, "yy"), wrong, "3 occurrences, but the last 2")
	wrong = folded(1, 2)
	wrong.Statuses[1], wrong.Occurrences = 2, 1
	check("another status", series(false, "yy"), wrong, "event 2 with status 2 was never sent")
}

func TestCheckPairs(t *testing.T) {
	var f findings
	f.checkPairs("m0", []*pairLog{series(false, "y")}, map[string]stored{"e/c": folded(1), "e/other": folded(1)})
	expect(t, "a pair of no sender", f.all(), "e/other has events that were never sent")
}

func incidentLog() *pairLog { return (&pairLog{Entity: "e", Check: "c", Alerts: true}).add(2).add(0) }

func TestCheckAlerts(t *testing.T) {
	both := stored{History: []int64{1, 2}, Statuses: []uint32{2, 0}, Occurrences: 1}
	check := func(what string, log *pairLog, s stored, most int, came []alert, want ...string) {
		t.Helper()
		for i := range came {
			came[i].Handler, came[i].Entity, came[i].Check = pager, "e", "c"
		}
		var f findings
		f.checkAlerts([]*pairLog{log}, map[string]stored{"e/c": s}, came, most)
		expect(t, what, f.all(), want...)
	}
	one, two := alert{N: 1, ID: "x"}, alert{N: 2, ID: "y"}
	check("both came", incidentLog(), both, 0, []alert{one, two})
	check("twice", incidentLog(), both, 1, []alert{one, one, two})
	check("both twice, as after a kill", incidentLog(), both, 2, []alert{one, two, one, two})
	check("too often", incidentLog(), both, 1, []alert{one, one, two, two}, "2 alerts came twice, and 1 may")
	check("incident lost", incidentLog(), both, 0, []alert{two}, "no alert came for event 1")
	check("resolution lost", incidentLog(), both, 0, []alert{one},
		"no alert came for event 2", "the last alert that came is for event 1")
	check("all lost", incidentLog(), both, 0, nil, "no alert came for event 1", "no alert came for event 2")
	check("the old state last", incidentLog(), both, 1, []alert{one, two, one}, "the last alert that came is for event 1")
	check("another id", incidentLog(), both, 1, []alert{one, {N: 1, ID: "z"}, two}, "under the ids x and z")
	// The incident was not answered, and folded after the resolution.
	late := stored{History: []int64{2, 1}, Statuses: []uint32{0, 2}, Occurrences: 1}
	check("late incident", incidentLog(), late, 0, []alert{one})
	check("resolution of nothing", incidentLog(), folded(2), 0, []alert{two}, "an alert for event 2")
	check("no handler", series(false, "y"), folded(1), 0, []alert{one}, "1 alerts, but it names no handler")
	var f findings
	f.checkAlerts(nil, nil, []alert{{Handler: pager, Entity: "e", Check: "other"}}, 0)
	expect(t, "invented", f.all(), "e/other: an alert, but no such event was sent")
}

func TestCheckKeepalives(t *testing.T) {
	check := func(what string, taken []alert, want ...string) {
		t.Helper()
		var f findings
		f.checkKeepalives([]string{"living"}, "dead", taken)
		expect(t, what, f.all(), want...)
	}
	died, lived := alert{Handler: "keepalive", Entity: "dead"}, alert{Handler: "keepalive", Entity: "living"}
	check("noticed", []alert{died, {Handler: pager, Entity: "living"}})
	check("not noticed", nil, "dead died, but no keepalive alert came")
	check("false alarm", []alert{died, lived}, "living lived, but a keepalive alert came")
}

func TestCheckSame(t *testing.T) {
	event := func(check string, executed int64) resource.Event {
		ev := (&pairLog{Entity: "e", Check: check, Events: []sentEvent{{N: executed}}}).event(resource.EntityProxyClass)
		ev.ID, ev.Timestamp = nil, 1
		return *ev
	}
	check := func(what string, a, b []resource.Event, want ...string) {
		t.Helper()
		var f findings
		f.checkSame("m0", "m1", a, b)
		expect(t, what, f.all(), want...)
	}
	a, b := event("a", 1), event("b", 1)
	check("same, in another order", []resource.Event{a, b}, []resource.Event{b, a})
	check("keepalives differ", []resource.Event{event("keepalive", 1)}, nil)
	check("another event", []resource.Event{event("a", 1)}, []resource.Event{event("a", 2)}, "differ in e/a")
	check("missing", []resource.Event{event("a", 1)}, nil, "differ in e/a")
	check("one more", nil, []resource.Event{event("a", 1)}, "differ in e/a")
}

func TestCheckCluster(t *testing.T) {
	check := func(what, answer string, want ...string) {
		t.Helper()
		var status clusterStatus
		if err := json.Unmarshal([]byte(answer), &status); err != nil {
			t.Fatal(err)
		}
		var f findings
		f.checkCluster("m0", status)
		expect(t, what, f.all(), want...)
	}
	const one, other = `{"from": 1, "seq": 32, "sum": "aa"}`, `{"from": 1, "seq": 16, "sum": "bb"}`
	pair := func(a, b, more string) string {
		return fmt.Sprintf(`{"members": [{"name": "m0", "digests": [%s, %s]}, {"name": "m1", "digests": [%s, %s]%s}]}`,
			one, a, one, b, more)
	}
	check("no cluster", `{}`)
	check("equal", pair(other, other, ""))
	check("one differs", pair(one, one, `, "digests_differ": [0, 1]`),
		"m1 has read other messages of the partitions [0 1]")
	check("one is behind", pair(one, other, ""), "m0 and m1 cannot be compared yet in partition 1")
	check("one knows nothing", `{"members": [{"name": "m0", "digests": [{}]}]}`, "m0 has no digest of partition 0 yet")
}

func TestFollowerCompare(t *testing.T) {
	f := newFollower(nil)
	f.newest["e/a"] = 1
	expect(t, "before it is synced", f.compare(nil), "not up to date")
	f.synced = true
	expect(t, "same", f.compare(map[string]int64{"e/a": 1}))
	expect(t, "behind", f.compare(map[string]int64{"e/a": 2}), "e/a is at event 1, but event 2 is stored")
	expect(t, "a gap", f.compare(map[string]int64{"e/a": 1, "e/b": 1}), "e/b is at event 0")
}

func TestMayComeTwice(t *testing.T) {
	at := time.Unix(1000, 0)
	var taken []alert
	for i := range 60 { // 50 in the second before, and 10 after it
		a := alert{Handler: pager, ID: fmt.Sprint(i), At: at.Add(time.Duration(i-49) * unlogged / 50)}
		taken = append(taken, a, a) // one that came twice counts once
	}
	kill, slow := Fault{Kind: KindKill}, Fault{Kind: KindSlow}
	for _, tc := range []struct {
		what    string
		faults  []begun
		members int
		want    int
	}{
		{"a quiet time", []begun{{kill, at.Add(-time.Minute)}, {slow, at.Add(time.Minute)}}, 3, twicePerFault + twicePerSlowFault},
		{"a burst", []begun{{kill, at}}, 1, 49},
		{"a burst, and a lease", []begun{{kill, at}}, 3, 60},
	} {
		if n := mayComeTwice(tc.faults, tc.members, taken); n != tc.want {
			t.Errorf("%s: %d alerts may come twice, want %d", tc.what, n, tc.want)
		}
	}
}
