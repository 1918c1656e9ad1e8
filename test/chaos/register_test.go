//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// history makes operations on one register, one after the other: each takes a second.
type history struct{ ops []configOp }

func (h *history) add(op configOp) *history {
	op.Key = "register-0"
	if op.Return == 0 {
		op.Call = time.Duration(len(h.ops)) * 2 * time.Second
		op.Return = op.Call + time.Second
	}
	h.ops = append(h.ops, op)
	return h
}

func (h *history) read(member int, value string) *history {
	return h.add(configOp{Member: member, Old: value, Result: done})
}

func (h *history) write(from, to string, r result) *history {
	return h.add(configOp{User: 1, Write: true, Old: from, New: to, Result: r})
}

func TestRegisters(t *testing.T) {
	strict := true
	check := func(what string, h *history, good bool, stale ...span) {
		t.Helper()
		problem, err := checkRegisters(h.ops, stale, strict, time.Minute, filepath.Join(t.TempDir(), "config.html"))
		if err != nil || (problem == "") != good {
			t.Errorf("%s: %q, %v", what, problem, err)
		}
	}
	fresh := func() *history { return new(history).read(0, initial) }
	check("writes and reads", fresh().write(initial, "a", done).read(1, "a").write("a", "b", done).read(0, "b"), true)
	check("a refused write", fresh().write(initial, "a", done).write(initial, "b", refused).read(0, "a"), true)
	check("a lost write", fresh().write(initial, "a", done).read(0, initial), false)
	check("a fork", fresh().write(initial, "a", done).write(initial, "b", done).read(0, "b"), false)
	check("refused without a reason", fresh().write(initial, "a", refused).read(0, initial), false)
	check("an invented value", fresh().read(0, "x"), false)
	check("unanswered, not done", fresh().write(initial, "a", unknown).read(0, initial), true)
	check("unanswered, done", fresh().write(initial, "a", unknown).read(0, "a"), true)
	check("unanswered, done later", fresh().write(initial, "a", unknown).read(0, initial).read(0, "a"), true)
	check("unanswered, done and undone", fresh().write(initial, "a", unknown).read(0, "a").read(0, initial), false)
	check("two unanswered, both done", fresh().write(initial, "a", unknown).write("a", "b", unknown).read(0, "b"), true)
	check("two unanswered, the second not done", fresh().write(initial, "a", unknown).write("a", "b", unknown).read(0, initial), true)
	check("unanswered, and replaced", fresh().write(initial, "a", unknown).write("a", "b", done).read(0, "b"), true)

	old := func() *history {
		return fresh().write(initial, "a", done).read(2, initial).read(0, "a")
	}
	check("an old read", old(), false)
	check("an old read by a member that is cut off", old(), true, span{2, time.Second, 5 * time.Second})
	check("an old read by a member that catches up", old(), true, span{2, time.Second, 2 * time.Second})
	check("an old read, and another member is cut off", old(), false, span{1, time.Second, 5 * time.Second})
	check("an old read, older than the cut", old(), false, span{2, 4 * time.Second, 5 * time.Second})
	fork := configOp{Member: 2, Write: true, Old: initial, New: "b", Result: done}
	check("a fork by a member that is cut off", fresh().write(initial, "a", done).add(fork).read(0, "b"), false,
		span{2, 0, 9 * time.Second})

	// A write is on its way from 1 s to a time; a read returns its value at 2 s, another one the old value at 3 s.
	slow := func(until time.Duration) *history {
		return new(history).add(configOp{
			User: 3, Write: true, Old: initial, New: "a", Call: 1 * time.Second, Return: until * time.Second, Result: done,
		})
	}
	read := func(h *history, value string, at time.Duration) *history {
		return h.add(configOp{Member: 1, Old: value, Call: at * time.Second, Return: at*time.Second + 1, Result: done})
	}
	inversion := func(until time.Duration) *history { return read(read(slow(until), "a", 2), initial, 3) }
	check("old after new, while the write is on its way", inversion(3), false)
	strict = false
	check("regular: old after new, while the write is on its way", inversion(3), true)
	check("regular: old after the write was answered", read(inversion(3), initial, 4), false)
	check("regular: old after a write that has waited in vain", read(inversion(9), initial, 10), true)
	check("regular: old long after a write that has waited in vain", read(inversion(9), initial, 20), false)
	unanswered := func() *history {
		h := inversion(3)
		h.ops[0].Result = unknown
		return h
	}
	check("regular: old after new, and the write has no answer yet", unanswered(), true)
	check("regular: old after the write was given up, and had been read", read(unanswered(), initial, 4), false)
	check("regular: a fork", fresh().write(initial, "a", done).write(initial, "b", done).read(0, "b"), false)
}

func TestMisfit(t *testing.T) {
	h := new(history).read(0, initial).write(initial, "a", done).read(2, initial).read(0, "a")
	problem, err := checkRegisters(h.ops, nil, true, time.Minute, filepath.Join(t.TempDir(), "config.html"))
	if err != nil || !strings.Contains(problem, "m2: register-0 is initial at 5s") {
		t.Errorf("%q %v", problem, err)
	}
}

func TestRegistersAreSeparate(t *testing.T) {
	ops := []configOp{
		{Key: "register-0", Write: true, Old: initial, New: "a", Return: 1, Result: done},
		{Key: "register-1", Old: initial, Call: 2, Return: 3, Result: done},
		{Key: "register-0", Old: "a", Call: 2, Return: 3, Result: done},
	}
	problem, err := checkRegisters(ops, nil, true, time.Minute, filepath.Join(t.TempDir(), "config.html"))
	if problem != "" || err != nil {
		t.Errorf("%q %v", problem, err)
	}
}

func TestStaleSpans(t *testing.T) {
	const s = time.Second
	schedule := []Fault{
		{Kind: KindCut, Member: 1, At: 10 * s, For: 5 * s},
		{Kind: KindLink, Member: 0, Other: 2, At: 20 * s, For: 5 * s},
		{Kind: KindClock, Member: 1, At: 30 * s, For: 5 * s},
		{Kind: KindStop, Member: 2, At: 30 * s, For: 5 * s},
		{Kind: KindCut, Member: 1, At: 50 * s, For: 5 * s},
	}
	if spans := staleSpans(schedule, 1, s); spans != nil {
		t.Errorf("one member alone is never stale: %v", spans)
	}
	spans := staleSpans(schedule, 3, s)
	if !slices.Equal(spans, []span{{0, 21 * s, 26 * s}, {1, 11 * s, 16 * s}, {1, 51 * s, 56 * s}, {2, 21 * s, 36 * s}}) {
		t.Errorf("%v", spans)
	}
}
