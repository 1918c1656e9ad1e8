package selector

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds parentheses and negations within each other.
const maxDepth = 100

// operators lists in errors what may follow a name.
const operators = "==, !=, in, notin, matches, =~, !~, <, <=, > or >="

type parser struct {
	text   string
	label  bool
	tokens []token
	terms  []*Term
	depth  int
}

// parse parses one selector; it returns nil for an empty one.
func parse(text string, label bool) (*Selector, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("it is longer than %d bytes", maxLength)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("it is not UTF-8")
	}
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	if tokens[0].kind == tokenEnd {
		return nil, nil
	}
	p := &parser{text: text, label: label, tokens: tokens}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokenEnd {
		return nil, p.unexpected(t, `"&&", "||" or the end`)
	}
	return &Selector{root: root, terms: p.terms}, nil
}

func (p *parser) peek() token { return p.tokens[0] }

// next takes a token. The end token stays.
func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != tokenEnd {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) accept(symbol string) bool {
	if !p.peek().is(symbol) {
		return false
	}
	p.next()
	return true
}

func (p *parser) unexpected(t token, want string) error {
	return fmt.Errorf("unexpected %v at character %d: %s expected", t, 1+utf8.RuneCountInString(p.text[:t.at]), want)
}

func (p *parser) or() (*node, error) { return p.chain(opOr, "||", p.and) }

func (p *parser) and() (*node, error) { return p.chain(opAnd, "&&", p.unary) }

// chain reads parts with a symbol between them.
func (p *parser) chain(op nodeOp, symbol string, part func() (*node, error)) (*node, error) {
	first, err := part()
	if err != nil || !p.peek().is(symbol) {
		return first, err
	}
	out := &node{op: op, kids: []*node{first}}
	for p.accept(symbol) {
		kid, err := part()
		if err != nil {
			return nil, err
		}
		out.kids = append(out.kids, kid)
	}
	return out, nil
}

func (p *parser) unary() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("more than %d parentheses and negations within each other", maxDepth)
	}
	defer func() { p.depth-- }()
	if p.accept("!") {
		kid, err := p.unary()
		if err != nil {
			return nil, err
		}
		return &node{op: opNot, kids: []*node{kid}}, nil
	}
	if !p.accept("(") {
		return p.operation()
	}
	inner, err := p.or()
	if err != nil {
		return nil, err
	}
	if !p.accept(")") {
		return nil, p.unexpected(p.peek(), `")", "&&" or "||"`)
	}
	return inner, nil
}

// operation reads a name, an operator and its right side.
func (p *parser) operation() (*node, error) {
	left := p.next()
	if left.kind != tokenWord && left.kind != tokenString {
		return nil, p.unexpected(left, "the name of a label or field")
	}
	t, err := p.term(left.text, p.next())
	if err != nil {
		return nil, err
	}
	t.Label = p.label
	p.terms = append(p.terms, t)
	return &node{term: len(p.terms) - 1}, nil
}

// term reads the right side of an operator.
func (p *parser) term(left string, op token) (*Term, error) {
	t := &Term{Name: left}
	symbol := op.text
	switch op.kind {
	case tokenSymbol:
	case tokenWord:
		symbol = strings.ToLower(symbol)
	default:
		return nil, p.unexpected(op, operators)
	}
	switch symbol {
	case "notin", "!=", "!~":
		t.negated = true
	}
	switch symbol {
	case "in", "notin":
		return t, p.membership(t)
	case "==", "!=", "matches", "=~", "!~", "<", "<=", ">", ">=":
	default:
		return nil, p.unexpected(op, operators)
	}
	right := p.next()
	if right.kind != tokenWord && right.kind != tokenString {
		return nil, p.unexpected(right, "a value")
	}
	t.literals = []literal{newLiteral(right.text)}
	switch symbol {
	case "matches":
		t.op = opMatches
	case "=~", "!~":
		t.op = opRegex
		var err error
		if t.regex, err = regexp.Compile(right.text); err != nil {
			return nil, fmt.Errorf("%q is no regular expression: %w", right.text, err)
		}
	case "<", "<=", ">", ">=":
		t.op = map[string]operator{"<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual}[symbol]
		var ok bool
		if t.limit, ok = parseLimit(right.text); !ok {
			return nil, p.unexpected(right, "a number, a length of time such as 2h, or a time such as 2026-11-21T10:00:00Z or now-2h")
		}
	}
	return t, nil
}

// membership reads the right side of in and notin: a list of values for the name on the left, or the name of a list
// that may hold the value on the left.
func (p *parser) membership(t *Term) error {
	right := p.next()
	switch {
	case right.kind == tokenWord || right.kind == tokenString:
		t.op = opContains
		t.literals = []literal{newLiteral(t.Name)}
		t.Name = right.text
		return nil
	case !right.is("["):
		return p.unexpected(right, `a list such as [a, "b c"] or the name of a list`)
	}
	for !p.accept("]") {
		if len(t.literals) > 0 && !p.accept(",") {
			return p.unexpected(p.peek(), `"," or "]"`)
		}
		item := p.next()
		if item.kind != tokenWord && item.kind != tokenString {
			return p.unexpected(item, "a value")
		}
		t.literals = append(t.literals, newLiteral(item.text))
	}
	return nil
}
