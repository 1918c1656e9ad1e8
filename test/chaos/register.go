//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// result is the outcome of a configuration operation.
type result string

const (
	done    result = "done"
	refused result = "refused" // the register did not have the old value
	unknown result = "unknown" // there was no answer, or an error: it may have been done, or may be done later
)

const initial = "initial"

// configOp is a read of a register, or a write that replaces one value by another.
type configOp struct {
	User, Member int
	Key          string
	Write        bool
	Old          string // of a read, the value that it returned
	New          string // is written once in the whole run
	Call, Return time.Duration
	Result       result
	// given is when a write that turned out to be done was given up without an answer. Until then it was on its way.
	given time.Duration
}

// span is a time in which a member may have been cut off from the others.
type span struct {
	Member     int
	Begin, End time.Duration
}

// registerModel is one register with atomic reads and compare-and-swap.
var registerModel = porcupine.Model{
	Partition: func(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string]int{}
		for _, op := range ops {
			key := op.Input.(configOp).Key
			i, ok := byKey[key]
			if !ok {
				i = len(parts)
				byKey[key] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	},
	Init: func() any { return initial },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(configOp)
		switch has := state.(string) == op.Old; {
		case !op.Write:
			return has, state
		case op.Result == refused:
			return !has, state
		default:
			return has, op.New
		}
	},
	DescribeOperation: func(input, _ any) string {
		op := input.(configOp)
		if !op.Write {
			return fmt.Sprintf("m%d: %s is %s", op.Member, op.Key, op.Old)
		}
		return fmt.Sprintf("m%d: %s from %s to %s: %s", op.Member, op.Key, op.Old, op.New, op.Result)
	},
}

// checkRegisters decides whether the registers behaved as if each operation had happened at one moment between its call
// and its return. Reads and refusals may be older: stale are times in which a member may answer from a copy of its own,
// see widen; and unless strict is set they are regular, see regular. If the registers did not behave, it says which
// operation does not fit, and writes a picture to a file.
func checkRegisters(
	ops []configOp, stale []span, strict bool, limit time.Duration, picture string,
) (problem string, err error) {
	ops = widen(decide(ops), stale)
	if !strict {
		ops = regular(ops) // what a copy had at the begin of a cut may be what it had while a write was on its way
	}
	var history []porcupine.Operation
	for _, op := range ops {
		history = append(history, porcupine.Operation{
			ClientId: op.User, Input: op, Call: int64(op.Call), Return: int64(op.Return),
		})
	}
	verdict, info := porcupine.CheckOperationsVerbose(registerModel, history, limit)
	switch verdict {
	case porcupine.Ok:
		return "", nil
	case porcupine.Unknown:
		return "", fmt.Errorf("the configuration's history is too hard to check in %s", limit)
	}
	err = porcupine.VisualizePath(registerModel, info, picture)
	problem = fmt.Sprintf("configuration: the registers are not linearizable: %s; see %s", misfit(history, &info), picture)
	return problem, err
}

// misfit describes the first operation that does not fit those before it.
func misfit(history []porcupine.Operation, info *porcupine.LinearizationInfo) string {
	fit := map[configOp]bool{}
	for _, partials := range info.PartialLinearizationsOperations() {
		longest := slices.MaxFunc(partials, func(a, b []porcupine.Operation) int { return cmp.Compare(len(a), len(b)) })
		for _, op := range longest {
			fit[op.Input.(configOp)] = true
		}
	}
	var first *porcupine.Operation
	for i := range history {
		if op := &history[i]; !fit[op.Input.(configOp)] && (first == nil || op.Return < first.Return) {
			first = op
		}
	}
	if first == nil {
		return "none fits"
	}
	return registerModel.DescribeOperation(first.Input, nil) + fmt.Sprintf(" at %s", time.Duration(first.Return))
}

// regular lets reads and refusals that overlap a write be as old as its call. A write is answered when all live members
// have it, and until then some have it and some do not: one read may return the new value, and a later one, of another
// member, the old one. After the answer no read may, unless the write has waited for another member in vain.
func regular(ops []configOp) []configOp {
	ops = slices.Clone(ops)
	for i := range ops {
		op := &ops[i]
		if op.Write && op.Result == done {
			continue
		}
		call := op.Call
		for _, w := range ops {
			end := max(w.Return, w.given)
			if w.Return-w.Call >= peerWait {
				end += staleAfter
			}
			if w.Write && w.Result == done && w.Key == op.Key && w.Call <= call && call <= end {
				op.Call = min(op.Call, w.Call)
			}
		}
	}
	return ops
}

// decide finds out what became of writes without an answer. Each value is written once, and the last operations read
// all registers after all writes. So a write whose value no operation ever met was not done, and is left out: if it had
// been done, a later write or a last read would have met its value. A write whose value was met was done before the
// first operation that met it returned.
func decide(ops []configOp) []configOp {
	met := map[string]time.Duration{} // by value, the return of the first operation that proves it
	for changed := true; changed; {
		changed = false
		for _, op := range ops {
			at := op.Return
			if op.Write && op.Result != done {
				next, ok := met[op.Key+op.New]
				if op.Result == refused || !ok { // else it was done, and so it has met what it replaced
					continue
				}
				at = next
			}
			if first, ok := met[op.Key+op.Old]; !ok || at < first {
				met[op.Key+op.Old], changed = at, true
			}
		}
	}
	var decided []configOp
	for _, op := range ops {
		if op.Result == unknown {
			first, ok := met[op.Key+op.New]
			if !ok {
				continue
			}
			op.given, op.Return, op.Result = op.Return, first, done
		}
		decided = append(decided, op)
	}
	return decided
}

// peerWait is how long a backend waits until other members have what it has written.
const peerWait = 3 * time.Second

// staleAfter is how long after the end of a fault a member may still catch up.
const staleAfter = 10 * time.Second

// widen lets reads and refusals by a member that was cut off from the others be as old as the cut. Such a member
// answers from its copy of the configuration, as it must: people look at it to find out what is wrong. Writes are never
// excused.
func widen(ops []configOp, stale []span) []configOp {
	ops = slices.Clone(ops)
	for i := range ops {
		op := &ops[i]
		if op.Write && op.Result == done {
			continue
		}
		for _, s := range stale {
			if s.Member == op.Member && s.Begin < op.Return && op.Call < s.End+staleAfter {
				op.Call = min(op.Call, s.Begin)
			}
		}
	}
	return ops
}

// staleSpans are the times in which the faults of a schedule may cut members off from others. offset is the time of its
// start.
func staleSpans(schedule []Fault, members int, offset time.Duration) (spans []span) {
	if members == 1 {
		return nil
	}
	for _, f := range schedule {
		cutOff := []int{f.Member}
		switch f.Kind {
		case KindLink, KindOneWay:
			cutOff = append(cutOff, f.Other)
		case KindKillAll:
			cutOff = cutOff[:0]
			for i := range members {
				cutOff = append(cutOff, i)
			}
		case KindClock:
			continue
		}
		for _, m := range cutOff {
			spans = append(spans, span{m, offset + f.At, offset + f.End()})
		}
	}
	return merge(spans)
}

// merge joins the spans of a member that catches up when the next fault comes.
func merge(spans []span) (merged []span) {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Begin, b.Begin))
	})
	for _, s := range spans {
		if n := len(merged); n > 0 && merged[n-1].Member == s.Member && s.Begin <= merged[n-1].End+staleAfter {
			merged[n-1].End = max(merged[n-1].End, s.End)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// sortOps orders operations by their call, for the files of a run.
func sortOps(ops []configOp) {
	slices.SortFunc(ops, func(a, b configOp) int { return cmp.Compare(a.Call, b.Call) })
}
