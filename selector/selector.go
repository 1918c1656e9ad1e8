// Package selector decides which resources a list contains. A selector is text in Sensu's grammar, extended by or, not,
// parentheses, regular expressions, and comparison of numbers and times; docs/selectors.md has the grammar.
//
// The API parses a request's selectors (Names.Parse, which refuses fields that a kind does not have) and calls Match for
// each resource, seen through Fields. State evaluates one over hundreds of thousands of events: it computes each term
// (Terms) once per different value in memory, and combines the answers (Decide). Roles that are limited by labels,
// silences and aggregates use selectors too. A Selector never changes and is safe for concurrent use; a nil one selects
// everything. Which resources a reader may see is up to package auth.
package selector

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Verdict says whether something is selected. Unknown is the answer without the field's value.
type Verdict uint8

// The verdicts. Unknown is the zero value, so that a table of answers starts with it.
const (
	Unknown Verdict = iota
	No
	Yes
)

func verdict(yes bool) Verdict {
	if yes {
		return Yes
	}
	return No
}

// Fields is a resource as selectors see it. Both methods return the zero Value for a missing field or label.
type Fields interface {
	// Field is a field by its full name, such as "event.check.status".
	Field(name string) Value
	// Label is a label by its key.
	Label(key string) Value
}

// Selector is a condition on the labels and fields of a resource.
type Selector struct {
	root  *node
	terms []*Term
}

// node is a term or a combination of nodes.
type node struct {
	op   nodeOp
	kids []*node
	term int // index into Selector.terms
}

type nodeOp uint8

const (
	opTerm nodeOp = iota
	opAnd
	opOr
	opNot
)

// maxLength bounds a selector's text, in bytes.
const maxLength = 64 << 10

// Parse parses a label selector and a field selector; both must hold. "" selects everything.
func Parse(label, field string) (*Selector, error) {
	return ParseAll([]string{label}, []string{field})
}

// ParseAll parses any number of label and field selectors, all of which must hold. It returns nil if all are empty. Its
// errors name the selector and its fault, for the user.
func ParseAll(labels, fields []string) (*Selector, error) {
	var all []*Selector
	for _, text := range labels {
		s, err := parse(text, true)
		if err != nil {
			return nil, fmt.Errorf("label selector: %w", err)
		}
		all = append(all, s)
	}
	for _, text := range fields {
		s, err := parse(text, false)
		if err != nil {
			return nil, fmt.Errorf("field selector: %w", err)
		}
		all = append(all, s)
	}
	return All(all...), nil
}

// All selects what each of the given selectors selects.
func All(selectors ...*Selector) *Selector {
	var some []*Selector
	for _, s := range selectors {
		if s != nil {
			some = append(some, s)
		}
	}
	return combine(opAnd, some)
}

// Any selects what at least one of the given selectors selects: everything if one of them is nil, or none is given.
func Any(selectors ...*Selector) *Selector {
	for _, s := range selectors {
		if s == nil {
			return nil
		}
	}
	return combine(opOr, selectors)
}

func combine(op nodeOp, selectors []*Selector) *Selector {
	switch len(selectors) {
	case 0:
		return nil
	case 1:
		return selectors[0]
	}
	out := &Selector{root: &node{op: op}}
	for _, s := range selectors {
		out.root.kids = append(out.root.kids, s.root.moved(len(out.terms)))
		out.terms = append(out.terms, s.terms...)
	}
	return out
}

// moved returns n with its terms' indexes moved.
func (n *node) moved(by int) *node {
	if by == 0 {
		return n
	}
	out := &node{op: n.op, term: n.term + by}
	for _, kid := range n.kids {
		out.kids = append(out.kids, kid.moved(by))
	}
	return out
}

// Match reports whether a resource is selected now.
func (s *Selector) Match(f Fields) bool { return s.MatchAt(f, time.Now()) }

// MatchAt is Match at a given time, for callers with many resources.
func (s *Selector) MatchAt(f Fields, now time.Time) bool {
	if s == nil {
		return true
	}
	seconds := now.Unix()
	return s.Decide(func(i int) Verdict { return verdict(s.terms[i].Match(f, seconds)) }) == Yes
}

// Terms returns the selector's conditions on one label or field each.
func (s *Selector) Terms() []*Term {
	if s == nil {
		return nil
	}
	return s.terms
}

// Decide combines the answers to the terms. answer gets a term's index, and is not called for terms that cannot change
// the verdict any more. The verdict is Unknown if it depends on terms for which answer returned Unknown.
func (s *Selector) Decide(answer func(i int) Verdict) Verdict {
	if s == nil {
		return Yes
	}
	return s.root.decide(answer)
}

// Ordered returns a selector that selects the same, and evaluates cheap terms first where that can save others. cost
// gets a term's index; the terms keep theirs.
func (s *Selector) Ordered(cost func(i int) int) *Selector {
	if s == nil {
		return nil
	}
	root, _ := s.root.ordered(cost)
	return &Selector{root: root, terms: s.terms}
}

// ordered also returns the most that n costs.
func (n *node) ordered(cost func(i int) int) (*node, int) {
	if n.op == opTerm {
		return n, cost(n.term)
	}
	type priced struct {
		*node
		cost int
	}
	kids, most := make([]priced, len(n.kids)), 0
	for i, kid := range n.kids {
		k, c := kid.ordered(cost)
		kids[i] = priced{k, c}
		most = max(most, c)
	}
	slices.SortStableFunc(kids, func(a, b priced) int { return cmp.Compare(a.cost, b.cost) })
	out := &node{op: n.op}
	for _, k := range kids {
		out.kids = append(out.kids, k.node)
	}
	return out, most
}

func (n *node) decide(answer func(i int) Verdict) Verdict {
	switch n.op {
	case opTerm:
		return answer(n.term)
	case opNot:
		switch n.kids[0].decide(answer) {
		case No:
			return Yes
		case Yes:
			return No
		}
		return Unknown
	}
	decisive := No // the verdict of one that decides all
	if n.op == opOr {
		decisive = Yes
	}
	out := No + Yes - decisive
	for _, kid := range n.kids {
		switch kid.decide(answer) {
		case decisive:
			return decisive
		case Unknown:
			out = Unknown
		}
	}
	return out
}
