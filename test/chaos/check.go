//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// findings are the broken promises that a check has found.
type findings struct {
	// Wrong will stay wrong: a duplicate, a wrong order, a false alarm.
	Wrong []string
	// Missing may still come, so the check is repeated for a while.
	Missing []string
}

func (f *findings) wrong(format string, args ...any) {
	f.Wrong = append(f.Wrong, fmt.Sprintf(format, args...))
}
func (f *findings) missing(format string, args ...any) {
	f.Missing = append(f.Missing, fmt.Sprintf(format, args...))
}

// all are the findings, the worst first.
func (f *findings) all() []string { return append(slices.Clone(f.Wrong), f.Missing...) }

// stored is what a member has of one pair: the numbers of its events, in the order of the fold.
type stored struct {
	History     []int64
	Statuses    []uint32
	Occurrences int64
}

// storedPairs arranges a member's events by pair.
func storedPairs(events []resource.Event) map[string]stored {
	pairs := map[string]stored{}
	for _, ev := range events {
		if ev.Check == nil || ev.Entity == nil || ev.Check.Metadata.Name == "keepalive" {
			continue
		}
		s := stored{Occurrences: ev.Check.Occurrences}
		for _, h := range ev.Check.History {
			s.History, s.Statuses = append(s.History, h.Executed), append(s.Statuses, h.Status)
		}
		pairs[ev.Entity.Metadata.Name+"/"+ev.Check.Metadata.Name] = s
	}
	return pairs
}

// checkPairs compares what was sent with what a member has.
func (f *findings) checkPairs(member string, sent []*pairLog, have map[string]stored) {
	known := map[string]bool{}
	for _, log := range sent {
		known[log.name()] = true
		f.checkPair(member, log, have[log.name()])
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !known[name] {
			f.wrong("%s: %s has events that were never sent", member, name)
		}
	}
}

func (f *findings) checkPair(member string, log *pairLog, s stored) {
	events := map[int64]sentEvent{}
	for _, ev := range log.Events {
		events[ev.N] = ev
		if (log.ByAgent || ev.Acked) && !slices.Contains(s.History, ev.N) {
			f.missing("%s: %s: event %d was acknowledged, but the history is %v", member, log.name(), ev.N, s.History)
		}
	}
	newest := int64(0)
	seen := map[int64]bool{}
	for i, n := range s.History {
		ev, ok := events[n]
		switch {
		case !ok || ev.Status != s.Statuses[i]:
			f.wrong("%s: %s: event %d with status %d was never sent", member, log.name(), n, s.Statuses[i])
		case seen[n]:
			f.wrong("%s: %s: event %d was folded twice: %v", member, log.name(), n, s.History)
		case n < newest && (log.ByAgent || ev.Acked):
			f.wrong("%s: %s: event %d was folded after event %d: %v", member, log.name(), n, newest, s.History)
		}
		seen[n] = true
		newest = max(newest, n)
	}
	if row := lastRow(s.Statuses); s.Occurrences != row {
		f.wrong("%s: %s: %d occurrences, but the last %d results have the same status",
			member, log.name(), s.Occurrences, row)
	}
}

// lastRow is the number of equal statuses at the end.
func lastRow(statuses []uint32) (n int64) {
	for i := len(statuses) - 1; i >= 0 && statuses[i] == statuses[len(statuses)-1]; i-- {
		n++
	}
	return n
}

// checkSame compares the events of two members, whole.
func (f *findings) checkSame(one, other string, a, b []resource.Event) {
	left, right := contents(a), contents(b)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if left[name] != right[name] {
			f.missing("%s and %s differ in %s:\n    %s\n    %s", one, other, name, left[name], cmp.Or(right[name], "nothing"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(right)) {
		if left[name] == "" {
			f.missing("%s and %s differ in %s:\n    nothing\n    %s", one, other, name, right[name])
		}
	}
}

// contents are events by pair, as JSON. Keepalives keep coming, so they are left out.
func contents(events []resource.Event) map[string]string {
	texts := map[string]string{}
	for i := range events {
		ev := &events[i]
		if ev.Check == nil || ev.Entity == nil || ev.Check.Metadata.Name == "keepalive" {
			continue
		}
		// The entity shows when its agent was last seen, which keepalives move.
		entity := *ev.Entity
		entity.LastSeen = 0
		whole := *ev
		whole.Entity = &entity
		text, err := json.Marshal(&whole)
		if err != nil {
			text = []byte(err.Error())
		}
		texts[ev.Entity.Metadata.Name+"/"+ev.Check.Metadata.Name] = string(text)
	}
	return texts
}

// checkCluster checks that all members have read the same messages of the event log, as a member knows them. Digests
// are compared once in a while, so a member must have one of each partition.
func (f *findings) checkCluster(member string, status clusterStatus) {
	for _, m := range status.Members {
		if len(m.Digests) == 0 || len(m.Digests) != len(status.Members[0].Digests) {
			f.missing("%s: %s has digests of %d partitions", member, m.Name, len(m.Digests))
		}
		if len(m.DigestsDiffer) > 0 {
			f.wrong("%s: %s has read other messages of the partitions %v", member, m.Name, m.DigestsDiffer)
		}
		if m.Definitions {
			f.wrong("%s: %s has other definitions", member, m.Name)
		}
		for p, d := range m.Digests {
			switch first := status.Members[0].Digests; {
			case p >= len(first) || d != first[p]:
				f.missing("%s: %s and %s cannot be compared yet in partition %d: %v and %v", member, status.Members[0].Name,
					m.Name, p, first, m.Digests)
			case d.Seq == 0:
				f.missing("%s: %s has no digest of partition %d yet", member, m.Name, p)
			}
		}
	}
}

// wanted are the alerts of a pair, by event number: each incident, and the end of each.
func wanted(s stored) (numbers []int64) {
	for i, n := range s.History {
		if s.Statuses[i] != 0 || i > 0 && s.Statuses[i-1] != 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// alertCounts are figures of a run's alerts.
type alertCounts struct{ Wanted, Taken, Twice int }

// checkAlerts compares the alerts of all pairs with what the receiver took. Each must have come, under one delivery id,
// and the last that came of a pair must be the newest. most bounds the repetitions.
func (f *findings) checkAlerts(sent []*pairLog, have map[string]stored, taken []alert, most int) (counts alertCounts) {
	byPair := map[string][]alert{}
	for _, a := range taken {
		if a.Handler == pager {
			byPair[a.name()] = append(byPair[a.name()], a)
		}
	}
	for _, log := range sent {
		came := byPair[log.name()]
		delete(byPair, log.name())
		if !log.Alerts {
			if len(came) > 0 {
				f.wrong("%s: %d alerts, but it names no handler", log.name(), len(came))
			}
			continue
		}
		want := wanted(have[log.name()])
		counts.Wanted, counts.Taken = counts.Wanted+len(want), counts.Taken+len(came)
		counts.Twice += f.checkPairAlerts(log.name(), want, came)
	}
	for _, name := range slices.Sorted(maps.Keys(byPair)) {
		f.wrong("%s: an alert, but no such event was sent", name)
	}
	if counts.Twice > most {
		f.wrong("%d alerts came twice, and %d may", counts.Twice, most)
	}
	return counts
}

func (f *findings) checkPairAlerts(name string, want []int64, came []alert) (twice int) {
	ids := map[int64]string{}
	for _, a := range came {
		id, again := ids[a.N]
		switch {
		case !slices.Contains(want, a.N):
			f.wrong("%s: an alert for event %d, and the alerts must be %v", name, a.N, want)
		case again && id != a.ID:
			f.wrong("%s: the alert for event %d came under the ids %s and %s", name, a.N, id, a.ID)
		case again:
			twice++
		}
		ids[a.N] = a.ID
	}
	for _, n := range want {
		if _, ok := ids[n]; !ok {
			f.missing("%s: no alert came for event %d", name, n)
		}
	}
	if len(want) > 0 && len(came) > 0 {
		if last, newest := came[len(came)-1].N, want[len(want)-1]; last != newest {
			f.missing("%s: the last alert that came is for event %d, and the newest event with one is %d", name, last, newest)
		}
	}
	return twice
}

// checkKeepalives checks the alerts about agents: none for one that lived, and one for the dead one.
func (f *findings) checkKeepalives(living []string, dead string, taken []alert) {
	noticed := false
	for _, a := range taken {
		if a.Handler != "keepalive" {
			continue
		}
		if slices.Contains(living, a.Entity) {
			f.wrong("%s lived, but a keepalive alert came at %s", a.Entity, a.At.Format("15:04:05.000"))
		}
		noticed = noticed || a.Entity == dead
	}
	if !noticed {
		f.missing("%s died, but no keepalive alert came", dead)
	}
}

// list shows a few findings.
func list(texts []string, most int) string {
	if len(texts) > most {
		texts = append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", len(texts)-most))
	}
	return "  " + strings.Join(texts, "\n  ")
}
