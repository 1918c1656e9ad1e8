//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	KindKill    Kind = "kill"    // kill -9, and a start after a while
	KindPower   Kind = "power"   // kill -9, and what the disk has not synced is lost
	KindRestart Kind = "restart" // SIGTERM, and a start after a while
	KindKillAll Kind = "killall" // kill -9 of all members, and a start of all after a while
	KindStop    Kind = "stop"    // SIGSTOP, and SIGCONT after a while
	KindCut     Kind = "cut"     // the member is off the network
	KindSlow    Kind = "slow"    // the disk stands still again and again
	KindFull    Kind = "full"    // the disk is full
	KindClock   Kind = "clock"   // the clock is wrong
	// The rest needs several members.
	KindIsolate Kind = "isolate" // the member reaches agents and users, but no other member
	KindLink    Kind = "link"    // two members do not reach each other
	KindOneWay  Kind = "oneway"  // what one member sends to another is lost
)

// kindSpec says how long a kind of fault lasts, and what it needs.
type kindSpec struct {
	kind    Kind
	weight  int           // how often it is drawn
	short   time.Duration // most faults last between a tenth of short and short
	long    time.Duration // one of three lasts between short and long
	members int           // it needs at least so many
}

// Long faults outlast keepaliveTimeout, so that missing keepalives would count if the backend did not excuse them.
var kindSpecs = []kindSpec{
	{KindKill, 4, 4 * time.Second, 26 * time.Second, 1},
	{KindPower, 3, 4 * time.Second, 26 * time.Second, 1},
	{KindRestart, 1, 4 * time.Second, 10 * time.Second, 1},
	{KindKillAll, 1, 4 * time.Second, 26 * time.Second, 2},
	{KindStop, 3, 4 * time.Second, 26 * time.Second, 1},
	{KindCut, 3, 6 * time.Second, 26 * time.Second, 1},
	{KindSlow, 2, 8 * time.Second, 20 * time.Second, 1},
	{KindFull, 2, 8 * time.Second, 26 * time.Second, 1},
	{KindClock, 2, 10 * time.Second, 26 * time.Second, 1},
	{KindIsolate, 3, 6 * time.Second, 26 * time.Second, 2},
	{KindLink, 2, 6 * time.Second, 26 * time.Second, 2},
	{KindOneWay, 2, 6 * time.Second, 26 * time.Second, 2},
}

// kindsFor returns the kinds that fit a number of members, and this processor.
func kindsFor(members int) (kinds []Kind) {
	for _, spec := range kindSpecs {
		if spec.members <= members && (spec.kind != KindClock || skewable) {
			kinds = append(kinds, spec.kind)
		}
	}
	return kinds
}

// parseKinds reads a list of kinds, all of which must be among the allowed ones.
func parseKinds(list string, allowed []Kind) (kinds []Kind, err error) {
	for name := range strings.SplitSeq(list, ",") {
		kind := Kind(strings.TrimSpace(name))
		if !slices.Contains(allowed, kind) {
			return nil, fmt.Errorf("fault %q cannot be played here; the choice is %v", kind, allowed)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// Fault is one fault of a schedule.
type Fault struct {
	Kind   Kind
	At     time.Duration // from the start of the schedule
	For    time.Duration
	Member int
	Other  int           // the other member of a link
	Amount time.Duration // how long a slow disk stands still, or how wrong a clock is
}

// End is when the fault is healed.
func (f Fault) End() time.Duration { return f.At + f.For }

func (f Fault) String() string {
	what := fmt.Sprintf("%s %s", f.Kind, memberName(f.Member))
	switch f.Kind {
	case KindKillAll:
		what = string(f.Kind)
	case KindLink:
		what += " - " + memberName(f.Other)
	case KindOneWay:
		what += " > " + memberName(f.Other)
	case KindSlow, KindClock:
		what += " by " + f.Amount.String()
	}
	return fmt.Sprintf("%s at %s for %s", what, f.At, f.For)
}

// uses are the parts that a fault changes. Two faults must not use the same part at the same time.
func (f Fault) uses(members int) (parts []string) {
	switch f.Kind {
	case KindKillAll:
		for i := range members {
			parts = append(parts, fmt.Sprint("process ", i))
		}
		return parts
	case KindKill, KindRestart, KindStop:
		return []string{fmt.Sprint("process ", f.Member)}
	case KindPower:
		return []string{fmt.Sprint("process ", f.Member), fmt.Sprint("disk ", f.Member)}
	case KindSlow, KindFull:
		return []string{fmt.Sprint("disk ", f.Member)}
	case KindClock:
		return []string{fmt.Sprint("clock ", f.Member)}
	}
	return []string{"network"}
}

const (
	minDuration = 15 * time.Second
	firstFault  = 3 * time.Second // before it the workload runs without faults
	meanGap     = 4 * time.Second // between the beginnings of two faults
	maxActive   = 2               // faults at a time
	step        = 10 * time.Millisecond
	maxStall    = 1500 * time.Millisecond
)

// clockOffsets are how wrong clocks are.
var clockOffsets = []time.Duration{
	time.Hour, -time.Hour, 5 * time.Minute, -5 * time.Minute, 20 * time.Second, -20 * time.Second,
}

// newSchedule draws the faults of a schedule. The same arguments make the same schedule. All faults end before the
// schedule does.
func newSchedule(seed uint64, duration time.Duration, members int, kinds []Kind) (schedule []Fault) {
	rng := newRand(seed, 0)
	var specs []kindSpec
	for _, spec := range kindSpecs {
		for range spec.weight {
			if slices.Contains(kinds, spec.kind) {
				specs = append(specs, spec)
			}
		}
	}
	for at := firstFault; at < duration-step; at += between(rng, meanGap/10, 2*meanGap-meanGap/10) {
		f := drawFault(rng, specs[rng.IntN(len(specs))], members)
		f.At = at.Truncate(step)
		f.For = min(f.For, duration-f.At)
		if fits(schedule, f, members) {
			schedule = append(schedule, f)
		}
	}
	return schedule
}

// newRand returns one of a seed's sources of random numbers. A hash separates them: neighbouring seeds must not make
// similar schedules.
func newRand(seed uint64, source int) *rand.Rand {
	return rand.New(rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%d %d", seed, source))))
}

func drawFault(rng *rand.Rand, spec kindSpec, members int) Fault {
	f := Fault{Kind: spec.kind, Member: rng.IntN(members), For: between(rng, spec.short/10, spec.short)}
	if rng.IntN(3) == 0 {
		f.For = between(rng, spec.short, spec.long)
	}
	if spec.members > 1 {
		f.Other = (f.Member + 1 + rng.IntN(members-1)) % members
	}
	switch spec.kind {
	case KindSlow:
		f.Amount = between(rng, maxStall/10, maxStall)
	case KindClock:
		f.Amount = clockOffsets[rng.IntN(len(clockOffsets))]
	}
	return f
}

// between draws a duration.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(rng.Int64N(int64(most-least)))).Truncate(step)
}

// fits reports whether a fault may begin: few others are active, and none of them uses the same part.
func fits(schedule []Fault, f Fault, members int) bool {
	active := 0
	for _, other := range schedule {
		if other.End() <= f.At {
			continue
		}
		active++
		for _, part := range other.uses(members) {
			if slices.Contains(f.uses(members), part) {
				return false
			}
		}
	}
	return active < maxActive
}
