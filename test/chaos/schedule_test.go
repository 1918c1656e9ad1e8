//go:build linux

package main

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestSameSeedSameSchedule(t *testing.T) {
	for _, members := range []int{1, 3} {
		draw := func(seed uint64) []Fault { return newSchedule(seed, time.Minute, members, kindsFor(members)) }
		if !reflect.DeepEqual(draw(7), draw(7)) {
			t.Errorf("%d members: a seed makes two schedules", members)
		}
		if reflect.DeepEqual(draw(7), draw(8)) {
			t.Errorf("%d members: two seeds make one schedule", members)
		}
	}
}

// TestSchedules200 checks what each schedule must keep, on 200 of them.
func TestSchedules200(t *testing.T) {
	const duration = time.Minute
	for _, members := range []int{1, 3} {
		seen := map[Kind]int{}
		long, faults := 0, 0
		for seed := range uint64(200) {
			schedule := newSchedule(seed, duration, members, kindsFor(members))
			for i, f := range schedule {
				seen[f.Kind]++
				faults++
				if f.For > keepaliveTimeout {
					long++
				}
				if f.At < firstFault || f.For <= 0 || f.End() > duration || f.Member >= members || f.Other >= members {
					t.Errorf("seed %d: %+v", seed, f)
				}
				if slices.Contains([]Kind{KindLink, KindOneWay}, f.Kind) && f.Member == f.Other {
					t.Errorf("seed %d: a member is cut off from itself: %+v", seed, f)
				}
				if !fits(schedule[:i], f, members) {
					t.Errorf("seed %d: %s does not fit the faults before it", seed, f)
				}
			}
		}
		for _, kind := range kindsFor(members) {
			if seen[kind] < 50 {
				t.Errorf("%d members: %s is in 200 schedules %d times", members, kind, seen[kind])
			}
		}
		if faults < 200*5 || long < 100 {
			t.Errorf("%d members: 200 schedules have %d faults, %d longer than the keepalive timeout", members, faults, long)
		}
	}
}

func TestParseKinds(t *testing.T) {
	kinds, err := parseKinds("kill, slow", kindsFor(1))
	if err != nil || !slices.Equal(kinds, []Kind{KindKill, KindSlow}) {
		t.Errorf("%v %v", kinds, err)
	}
	if _, err := parseKinds("isolate", kindsFor(1)); err == nil {
		t.Error("one member can be isolated from others")
	}
}

// TestScript checks that a sender's events can be replayed, and that the history of each pair has room for all of them.
func TestScript(t *testing.T) {
	one, same, other := newScript(1, 5, "api-0", false), newScript(1, 5, "api-0", false), newScript(1, 6, "api-0", false)
	for range 2000 {
		one.next()
		same.next()
		other.next()
	}
	if !reflect.DeepEqual(one.logs, same.logs) {
		t.Error("a seed makes two workloads")
	}
	if reflect.DeepEqual(one.logs, other.logs) {
		t.Error("two senders do the same")
	}
	incidents := 0
	for _, log := range one.logs {
		if len(log.Events) > seriesLength {
			t.Errorf("%s has %d events", log.name(), len(log.Events))
		}
		if log.Alerts {
			incidents++
			if log.Events[0].Status == 0 || len(log.Events) > 2 {
				t.Errorf("%s: %+v", log.name(), log.Events)
			}
		}
	}
	if incidents < 100 {
		t.Errorf("%d incidents in 2000 events", incidents)
	}
}
