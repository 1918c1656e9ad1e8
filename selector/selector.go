// Package selector decides which resources a list has. A selector is text in Sensu's grammar, with more that people ask
// for: or, not, parentheses, regular expressions, and comparison of numbers and times. docs/selectors.md has the grammar.
//
// The API parses what a request says (Parse, ParseAll) and asks Match of each resource, seen through Fields. State answers
// over hundreds of thousands of events: it takes the selector apart (Terms), answers each term from what it has in memory,
// as often as there are different answers, and puts the answers together again (Decide). Roles that are limited by labels
// are selectors too. A Selector never changes and may be used by many goroutines; a nil one selects everything.
package selector

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Verdict is whether something is selected. Unknown is the answer of somebody who does not have the field at hand.
type Verdict uint8

// The verdicts. Unknown is the zero value, so that a table of answers begins without any.
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

// Fields is a resource as selectors see it. Both methods return the zero Value for what it does not have.
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

// Parse reads a label selector and a field selector; both must hold. "" selects everything.
func Parse(label, field string) (*Selector, error) {
	return ParseAll([]string{label}, []string{field})
}

// ParseAll reads any number of label and field selectors, all of which must hold. It returns nil if all are empty. Its errors
// name the selector and what is wrong in it, for the user.
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

// Any selects what one or more of the given selectors select: everything if one of them is nil, or none is given.
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

// moved is n with its terms found that much further on.
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

// Match says whether a resource is selected, now.
func (s *Selector) Match(f Fields) bool { return s.MatchAt(f, time.Now()) }

// MatchAt is Match at a given time, for those who ask it of many resources.
func (s *Selector) MatchAt(f Fields, now time.Time) bool {
	if s == nil {
		return true
	}
	seconds := now.Unix()
	return s.Decide(func(i int) Verdict { return verdict(s.terms[i].Match(f, seconds)) }) == Yes
}

// Terms are the questions that a selector asks of one label or field each.
func (s *Selector) Terms() []*Term {
	if s == nil {
		return nil
	}
	return s.terms
}

// Decide puts the answers to the terms together. answer gets a term's index, and is not asked about terms that make no
// difference any more. The verdict is Unknown if it depends on terms for which answer said so.
func (s *Selector) Decide(answer func(i int) Verdict) Verdict {
	if s == nil {
		return Yes
	}
	return s.root.decide(answer)
}

// Ordered selects the same, and asks the terms that cost less first where that can spare others. cost gets a term's index;
// the terms keep theirs.
func (s *Selector) Ordered(cost func(i int) int) *Selector {
	if s == nil {
		return nil
	}
	root, _ := s.root.ordered(cost)
	return &Selector{root: root, terms: s.terms}
}

// ordered also returns what n costs at most.
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
	decisive := No // the answer of one that is the answer of all
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
