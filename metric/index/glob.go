package index

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a pattern.
const (
	maxPattern      = 64 << 10
	maxPatternNodes = 63
	maxAlternatives = 10_000
	maxExpanded     = 4 << 20 // bytes of all alternatives
)

// PatternError is the error of a pattern that is beyond the bounds.
type PatternError struct {
	Pattern string
	Text    string
}

func (e *PatternError) Error() string {
	p := e.Pattern
	if len(p) > 256 {
		p = strings.ToValidUTF8(p[:256], "") + "…"
	}
	return fmt.Sprintf("pattern %q: %s", p, e.Text)
}

// pattern is a glob, ready to walk the index with. It reads names in the index's own order of bytes, see order.
type pattern struct {
	nodes []nodePattern
	work  int    // of a step, beside its share of globs that are tried
	text  []byte // scratch
}

// nodePattern is the pattern of one node: alternatives, of which the plain ones are in order.
type nodePattern struct {
	any   bool // a lone **: any number of levels
	plain []string
	globs []glob
}

// glob is one alternative with wildcards.
type glob struct {
	prefix string // of the node, in the index's order of bytes: what all matches begin with
	tokens []token
}

type token struct {
	kind    tokenKind
	char    rune
	raw     bool // char is a byte that is no UTF-8
	negated bool
	ranges  []rune // pairs, both ends included
}

type tokenKind uint8

const (
	tokenChar tokenKind = iota
	tokenOne
	tokenMany
	tokenClass
)

// parsePattern reads a glob. A [ or { that is not closed is an ordinary character.
func parsePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, &PatternError{text, fmt.Sprintf("longer than %d bytes", maxPattern)}
	}
	parts := strings.Split(text, ".")
	if last := len(parts) - 1; parts[last] == "**" {
		parts = append(parts, "*") // ** may be no level at all; at the end it is one or more
	}
	if len(parts) > maxPatternNodes {
		return nil, &PatternError{text, fmt.Sprintf("wildcards in a name of more than %d nodes", maxPatternNodes)}
	}
	p := &pattern{nodes: make([]nodePattern, len(parts)), work: 1}
	alternatives, size := 0, 0
	for i, part := range parts {
		n := &p.nodes[i]
		if part == "**" {
			n.any = true
			continue
		}
		all, err := expandBraces(part)
		if err != nil {
			return nil, &PatternError{text, err.Error()}
		}
		alternatives += len(all)
		for _, a := range all {
			size += len(a)
			tokens := tokenize(a)
			prefix, rest := literalPrefix(tokens)
			if len(rest) == 0 {
				n.plain = append(n.plain, order(prefix))
			} else {
				n.globs = append(n.globs, glob{prefix: order(prefix), tokens: tokens})
			}
		}
		slices.Sort(n.plain)
		n.plain = slices.Compact(n.plain)
		p.work += len(n.globs) / 16
		if alternatives > maxAlternatives || size > maxExpanded {
			return nil, &PatternError{text, fmt.Sprintf("its braces make more than %d alternatives or %d bytes",
				maxAlternatives, maxExpanded)}
		}
	}
	return p, nil
}

// isLiteral reports whether a pattern can only match itself.
func isLiteral(text string) bool { return !strings.ContainsAny(text, `*?[{\`) }

// expandBraces returns the alternatives of a node's pattern, the innermost braces first. Escapes stay in the result.
func expandBraces(text string) ([]string, error) {
	work, size := []string{text}, len(text)
	var done []string
	seen := map[string]bool{}
	for len(work) > 0 {
		t := work[len(work)-1]
		work = work[:len(work)-1]
		size -= len(t)
		from, to, commas := innermost(t)
		if from < 0 {
			if !seen[t] {
				seen[t] = true
				done = append(done, t)
				size += len(t)
			}
			if len(done) > maxAlternatives || size > maxExpanded {
				return nil, fmt.Errorf("its braces make more than %d alternatives or %d bytes", maxAlternatives,
					maxExpanded)
			}
			continue
		}
		start := from + 1
		for _, c := range append(commas, to) {
			next := t[:from] + t[start:c] + t[to+1:]
			work = append(work, next)
			size += len(next)
			start = c + 1
			if len(work)+len(done) > maxAlternatives || size > maxExpanded {
				return nil, fmt.Errorf("its braces make more than %d alternatives or %d bytes", maxAlternatives,
					maxExpanded)
			}
		}
	}
	return done, nil
}

// innermost finds the first closed pair of braces without a pair in it, and its commas.
func innermost(t string) (from, to int, commas []int) {
	from = -1
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case '\\':
			i++
		case '{':
			from, commas = i, commas[:0]
		case ',':
			if from >= 0 {
				commas = append(commas, i)
			}
		case '}':
			if from >= 0 {
				return from, i, commas
			}
		}
	}
	return -1, -1, nil
}

// tokenize reads a pattern without braces as fnmatch does, but for the backslash: it makes the next character ordinary,
// in a class too. One at the end is ordinary itself.
func tokenize(t string) []token {
	var tokens []token
	for i := 0; i < len(t); {
		switch t[i] {
		case '*':
			if n := len(tokens); n == 0 || tokens[n-1].kind != tokenMany {
				tokens = append(tokens, token{kind: tokenMany})
			}
			i++
			continue
		case '?':
			tokens = append(tokens, token{kind: tokenOne})
			i++
			continue
		case '[':
			if class, n := readClass(t[i:]); n > 0 {
				tokens = append(tokens, class)
				i += n
				continue
			}
		case '\\':
			if i+1 < len(t) {
				i++
			}
		}
		r, n := utf8.DecodeRuneInString(t[i:])
		if r == utf8.RuneError && n == 1 {
			tokens = append(tokens, token{char: rune(t[i]), raw: true})
		} else {
			tokens = append(tokens, token{char: r})
		}
		i += n
	}
	return tokens
}

// readClass reads a class such as [a-z] or [!0-9] and returns its length, or 0 if it is not closed. A ] right behind
// the [ or the ! is in the class.
func readClass(t string) (token, int) {
	c := token{kind: tokenClass}
	i := 1
	if i < len(t) && t[i] == '!' {
		c.negated = true
		i++
	}
	char := func() (rune, bool) {
		if t[i] == '\\' && i+1 < len(t) {
			i++
		}
		if i >= len(t) {
			return 0, false
		}
		r, n := decode([]byte(t[i:min(len(t), i+utf8.UTFMax)]))
		i += n
		return r, true
	}
	for first := true; i < len(t); first = false {
		if t[i] == ']' && !first {
			return c, i + 1
		}
		low, ok := char()
		if !ok {
			break
		}
		high := low
		if i+1 < len(t) && t[i] == '-' && t[i+1] != ']' {
			i++
			if high, ok = char(); !ok {
				break
			}
		}
		if low <= high { // a range that runs backwards is empty
			c.ranges = append(c.ranges, low, high)
		}
	}
	return token{}, 0
}

// rawBase is added to a byte that is no UTF-8, so that it differs from the character of the same number.
const rawBase = 0x200000

// decode reads one character; a byte that is no UTF-8 is one too.
func decode(t []byte) (rune, int) {
	r, n := utf8.DecodeRune(t)
	if r == utf8.RuneError && n == 1 {
		return rawBase + rune(t[0]), 1
	}
	return r, n
}

func literalPrefix(tokens []token) (prefix []byte, rest []token) {
	for i, t := range tokens {
		switch {
		case t.kind != tokenChar:
			return prefix, tokens[i:]
		case t.raw:
			prefix = append(prefix, byte(t.char))
		default:
			prefix = utf8.AppendRune(prefix, t.char)
		}
	}
	return prefix, nil
}

// match reports whether g matches all of a node's text.
func (g *glob) match(text []byte) bool {
	tokens := g.tokens
	at, i := 0, 0
	star, resume := -1, 0 // the last * and the text from which on it is tried
	for {
		if i < len(tokens) && tokens[i].kind == tokenMany {
			if i++; i == len(tokens) {
				return true
			}
			star, resume = i, at
			continue
		}
		if at == len(text) {
			return i == len(tokens) // if not, a * that eats more leaves even less
		}
		r, n := decode(text[at:])
		if i < len(tokens) && tokens[i].matches(r) {
			at += n
			i++
			continue
		}
		if star < 0 {
			return false
		}
		_, n = decode(text[resume:])
		resume += n
		at, i = resume, star
	}
}

func (t *token) matches(r rune) bool {
	switch t.kind {
	case tokenOne:
		return true
	case tokenClass:
		for i := 0; i < len(t.ranges); i += 2 {
			if t.ranges[i] <= r && r <= t.ranges[i+1] {
				return !t.negated
			}
		}
		return t.negated
	}
	if t.raw {
		return r == rawBase+t.char
	}
	return r == t.char
}

// states is a set of places in a pattern, by number. The number behind the last node is the end.
type states uint64

// closure adds the places behind each ** in s, which may be no level at all.
func (p *pattern) closure(s states) states {
	for i := range p.nodes {
		if p.nodes[i].any && s&(1<<i) != 0 {
			s |= 1 << (i + 1)
		}
	}
	return s
}

func (p *pattern) end() states { return 1 << len(p.nodes) }

// step returns the places after one more node, and the work that it took. node is the node's part of a key.
func (p *pattern) step(s states, node []byte) (next states, work int) {
	for i := range p.nodes {
		if s&(1<<i) == 0 {
			continue
		}
		if p.nodes[i].any {
			next |= 1 << i
			continue
		}
		ok, w := p.match(&p.nodes[i], node)
		work += w
		if ok {
			next |= 1 << (i + 1)
		}
	}
	return p.closure(next), work
}

func (p *pattern) match(n *nodePattern, node []byte) (ok bool, work int) {
	if _, ok := slices.BinarySearchFunc(n.plain, node, compare); ok {
		return true, 0
	}
	read := false
	for i := range n.globs {
		g := &n.globs[i]
		if len(node) < len(g.prefix) || string(node[:len(g.prefix)]) != g.prefix {
			continue
		}
		if !read {
			p.text = appendPath(p.text[:0], node)
			read = true
		}
		// A few tokens over a short text are well below one step. * after * can cost the product of both.
		work += len(g.tokens) * len(node) / 256
		if g.match(p.text) {
			return true, work
		}
	}
	return false, work
}

func compare(a string, key []byte) int {
	switch {
	case a < string(key):
		return -1
	case a > string(key):
		return 1
	}
	return 0
}

// candidate appends the least part of a key that a node may begin with to match from s, behind the node after (unless
// first is set: then any). Nodes between it and after cannot match.
func (p *pattern) candidate(dst []byte, s states, after []byte, first bool) (_ []byte, ok bool) {
	best, found, from := "", false, -1
	sibling := false // the node right behind after
	for i := range p.nodes {
		if s&(1<<i) == 0 {
			continue
		}
		n := &p.nodes[i]
		if n.any {
			sibling = true
			break
		}
		at := 0
		if !first {
			var exact bool
			if at, exact = slices.BinarySearchFunc(n.plain, after, compare); exact {
				at++
			}
		}
		if at < len(n.plain) && (!found || n.plain[at] < best) {
			best, found, from = n.plain[at], true, i
		}
		for j := range n.globs {
			g := n.globs[j].prefix
			switch {
			case first || g > string(after):
				if !found || g < best {
					best, found, from = g, true, -1
				}
			case len(after) >= len(g) && string(after[:len(g)]) == g:
				sibling = true
			}
		}
	}
	if sibling {
		if first {
			return dst, true
		}
		// In the order of keys 0 is the dot: after, its own nodes below it, and then what begins with after and 1.
		dst = append(dst, after...)
		return append(dst, 1), true
	}
	if !found {
		return dst, false
	}
	dst = append(dst, best...)
	// If only one node can come next, and it only from here, all matches are behind the names of both.
	for i := from; i >= 0 && s == 1<<i && len(p.nodes[i].plain) == 1 && len(p.nodes[i].globs) == 0; {
		i++
		if s = 1 << i; i >= len(p.nodes) || p.nodes[i].any || len(p.nodes[i].plain) != 1 || len(p.nodes[i].globs) > 0 {
			break
		}
		dst = append(append(dst, 0), p.nodes[i].plain[0]...)
	}
	return dst, true
}
