package render

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a target. They are far above what dashboards send.
const (
	maxTargetBytes = 64 << 10
	maxTargetDepth = 100
	maxTargetNodes = 20_000
)

// Kind says what an Expr is.
type Kind uint8

// The kinds of expressions.
const (
	PathExpr Kind = iota
	CallExpr
	NumberExpr
	StringExpr
	BoolExpr
	NoneExpr
	TemplateExpr
)

// Expr is a parsed target or a part of one.
type Expr struct {
	Kind Kind
	// Pos is the byte at which the expression begins.
	Pos int
	// Text is a path, a string without its quotes, a function's name, or a number as it was written.
	Text    string
	Number  float64
	Integer bool
	Bool    bool
	// Args are the positional arguments of a call; those of a template are its body and then its values.
	Args  []*Expr
	Named []NamedArg

	quote byte
}

// NamedArg is an argument of the form name=value.
type NamedArg struct {
	Name  string
	Value *Expr
}

// ParseError says where a target cannot be read.
type ParseError struct {
	// Pos is the byte in Target, from 0.
	Pos    int
	Target string
	// Token is the text that was found at Pos.
	Token   string
	Message string
}

func (e *ParseError) Error() string {
	if e.Token == "" {
		return fmt.Sprintf("target %q: %s at its end (character %d)", shorten(e.Target), e.Message, e.Pos+1)
	}
	return fmt.Sprintf("target %q: %s at character %d, found %q", shorten(e.Target), e.Message, e.Pos+1, e.Token)
}

func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// String returns the expression in the form in which it would be written, without blanks.
func (e *Expr) String() string {
	var b strings.Builder
	e.write(&b)
	return b.String()
}

func (e *Expr) write(b *strings.Builder) {
	switch e.Kind {
	case PathExpr, NumberExpr, NoneExpr, BoolExpr:
		b.WriteString(e.Text)
	case StringExpr:
		q := e.quote
		if q == 0 {
			q = '"'
		}
		b.WriteByte(q)
		b.WriteString(e.Text)
		b.WriteByte(q)
	case CallExpr, TemplateExpr:
		b.WriteString(e.Text)
		b.WriteByte('(')
		for i, a := range e.Args {
			if i > 0 {
				b.WriteByte(',')
			}
			a.write(b)
		}
		for i, a := range e.Named {
			if i > 0 || len(e.Args) > 0 {
				b.WriteByte(',')
			}
			b.WriteString(a.Name)
			b.WriteByte('=')
			a.Value.write(b)
		}
		b.WriteByte(')')
	}
}

// Parse reads a target.
func Parse(target string) (*Expr, error) {
	p := &parser{text: target}
	if len(target) > maxTargetBytes {
		return nil, p.fail(0, fmt.Sprintf("the target has %d bytes, at most %d are read", len(target), maxTargetBytes))
	}
	if !utf8.ValidString(target) {
		return nil, p.fail(0, "the target is not valid UTF-8")
	}
	p.blanks()
	e, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	p.blanks()
	if p.pos < len(p.text) {
		return nil, p.fail(p.pos, "expected the end of the target or a pipe")
	}
	switch e.Kind {
	case PathExpr, CallExpr, TemplateExpr:
		return e, nil
	}
	return nil, p.fail(e.Pos, "expected a path or a function")
}

type parser struct {
	text  string
	pos   int
	nodes int
}

func (p *parser) fail(pos int, message string) *ParseError {
	return &ParseError{Pos: pos, Target: p.text, Token: p.token(pos), Message: message}
}

// token returns the text at pos up to the end of the word, for an error.
func (p *parser) token(pos int) string {
	rest := p.text[min(pos, len(p.text)):]
	for i, r := range rest {
		if i > 0 && (i >= 20 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_') {
			return strings.ToValidUTF8(rest[:i], "?")
		}
	}
	return strings.ToValidUTF8(rest, "?")
}

func (p *parser) blanks() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *parser) node(e *Expr) (*Expr, error) {
	if p.nodes++; p.nodes > maxTargetNodes {
		return nil, p.fail(e.Pos, fmt.Sprintf("the target has more than %d parts", maxTargetNodes))
	}
	return e, nil
}

// expression reads a term and the calls that it is piped into.
func (p *parser) expression(depth int) (*Expr, error) {
	e, err := p.term(depth)
	if err != nil {
		return nil, err
	}
	for piped := 0; ; piped++ {
		p.blanks()
		if p.peek() != '|' {
			return e, nil
		}
		if depth+piped >= maxTargetDepth {
			return nil, p.fail(p.pos, fmt.Sprintf("more than %d functions are nested", maxTargetDepth))
		}
		p.pos++
		p.blanks()
		start := p.pos
		name := p.identifier()
		p.blanks()
		if name == "" || p.peek() != '(' {
			return nil, p.fail(start, "expected a function behind the pipe")
		}
		call, err := p.call(name, start, depth+1)
		if err != nil {
			return nil, err
		}
		if call.Kind == TemplateExpr {
			return nil, p.fail(start, "template cannot be behind a pipe")
		}
		call.Args = append([]*Expr{e}, call.Args...)
		e = call
	}
}

func (p *parser) term(depth int) (*Expr, error) {
	if depth > maxTargetDepth {
		return nil, p.fail(p.pos, fmt.Sprintf("more than %d functions are nested", maxTargetDepth))
	}
	start := p.pos
	switch c := p.peek(); {
	case c == 0 && p.pos >= len(p.text):
		return nil, p.fail(p.pos, "expected a path, a function or a value")
	case c == '"' || c == '\'':
		return p.quoted(c)
	}
	if name := p.identifier(); name != "" {
		end := p.pos
		p.blanks()
		if p.peek() == '(' {
			return p.call(name, start, depth)
		}
		p.pos = end
	}
	p.pos = start
	return p.path()
}

func (p *parser) identifier() string {
	start := p.pos
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (p.pos == start || c < '0' || c > '9') {
			break
		}
		p.pos++
	}
	return p.text[start:p.pos]
}

// quoted reads a string. A backslash keeps the next character from ending it; both stay in the text.
func (p *parser) quoted(quote byte) (*Expr, error) {
	start := p.pos
	for i := start + 1; i < len(p.text); i++ {
		switch p.text[i] {
		case '\\':
			i++
		case quote:
			p.pos = i + 1
			return p.node(&Expr{Kind: StringExpr, Pos: start, Text: p.text[start+1 : i], quote: quote})
		}
	}
	return nil, p.fail(start, "the string has no closing quote")
}

// call reads the arguments of a function; the parser is at its opening parenthesis.
func (p *parser) call(name string, start, depth int) (*Expr, error) {
	e, err := p.node(&Expr{Kind: CallExpr, Pos: start, Text: name})
	if err != nil {
		return nil, err
	}
	if name == "template" {
		e.Kind = TemplateExpr
	}
	p.pos++
	p.blanks()
	if p.peek() == ')' {
		p.pos++
		return e, p.checkTemplate(e)
	}
	for {
		p.blanks()
		if arg := p.argumentName(); arg != "" {
			at := p.pos
			v, err := p.expression(depth + 1)
			if err != nil {
				return nil, err
			}
			for _, n := range e.Named {
				if n.Name == arg {
					return nil, p.fail(at, fmt.Sprintf("argument %s is given twice", arg))
				}
			}
			e.Named = append(e.Named, NamedArg{Name: arg, Value: v})
		} else {
			if len(e.Named) > 0 {
				return nil, p.fail(p.pos, "expected name=value: arguments without names come first")
			}
			v, err := p.expression(depth + 1)
			if err != nil {
				return nil, err
			}
			e.Args = append(e.Args, v)
		}
		p.blanks()
		switch p.peek() {
		case ',':
			p.pos++
		case ')':
			p.pos++
			return e, p.checkTemplate(e)
		default:
			return nil, p.fail(p.pos, fmt.Sprintf("expected a comma or the closing parenthesis of %s", name))
		}
	}
}

// argumentName reads name= if it is there.
func (p *parser) argumentName() string {
	start := p.pos
	if name := p.identifier(); name != "" {
		p.blanks()
		if p.peek() == '=' {
			p.pos++
			p.blanks()
			return name
		}
	}
	p.pos = start
	return ""
}

// checkTemplate reports a template without a body or with values that are not strings or numbers.
func (p *parser) checkTemplate(e *Expr) error {
	if e.Kind != TemplateExpr {
		return nil
	}
	if len(e.Args) == 0 {
		return p.fail(e.Pos, "template needs an expression")
	}
	values := append([]*Expr(nil), e.Args[1:]...)
	for _, n := range e.Named {
		values = append(values, n.Value)
	}
	for _, v := range values {
		if v.Kind != StringExpr && v.Kind != NumberExpr {
			return p.fail(v.Pos, "a value of template must be a string or a number")
		}
	}
	return nil
}

// path reads a path expression, or a number or word that is written like one.
func (p *parser) path() (*Expr, error) {
	start := p.pos
	braces, openAt, escaped := 0, 0, false
	node := start
scan:
	for p.pos < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[p.pos:])
		switch {
		case r == '\\':
			_, next := utf8.DecodeRuneInString(p.text[p.pos+1:])
			if next == 0 {
				return nil, p.fail(p.pos, "a backslash must be followed by a character")
			}
			size += next
			escaped = true
		case r == '{':
			if braces == 0 {
				openAt = p.pos
			}
			if braces++; braces > maxTargetDepth {
				return nil, p.fail(p.pos, "too many nested braces")
			}
		case r == '}':
			if braces == 0 {
				break scan
			}
			braces--
		case r == '.' && braces == 0:
			if p.pos == node {
				return nil, p.fail(p.pos, "a node of the path is empty")
			}
			node = p.pos + 1
		case r == ',' && braces > 0, r == '.':
		case strings.ContainsRune("(),'\"|", r), unicode.IsSpace(r), !unicode.IsPrint(r):
			break scan
		}
		p.pos += size
	}
	text := p.text[start:p.pos]
	switch {
	case text == "":
		return nil, p.fail(start, "expected a path, a function or a value")
	case braces > 0:
		return nil, p.fail(openAt, "the brace is not closed")
	case strings.HasSuffix(text, ".") && !escaped:
		return nil, p.fail(p.pos, "the path ends with a dot")
	}
	e := &Expr{Kind: PathExpr, Pos: start, Text: text}
	switch strings.ToLower(text) {
	case "true", "false":
		e.Kind, e.Bool = BoolExpr, len(text) == 4
	case "none":
		e.Kind = NoneExpr
	case "inf", "-inf":
		e.Kind, e.Number = NumberExpr, math.Inf(1)
		if text[0] == '-' {
			e.Number = math.Inf(-1)
		}
	default:
		if isNumber(text) {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, p.fail(start, "the number is too large")
			}
			_, notInteger := strconv.ParseInt(text, 10, 64)
			e.Kind, e.Number, e.Integer = NumberExpr, n, notInteger == nil
		}
	}
	return p.node(e)
}

// isNumber reports whether s is an optional minus, digits, optionally a dot and digits, and optionally an exponent.
func isNumber(s string) bool {
	digits := func() bool {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n > 0
	}
	s = strings.TrimPrefix(s, "-")
	if !digits() {
		return false
	}
	if s != "" && s[0] == '.' {
		if s = s[1:]; !digits() {
			return false
		}
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		if s = s[1:]; s != "" && (s[0] == '-' || s[0] == '+') {
			s = s[1:]
		}
		if !digits() {
			return false
		}
	}
	return s == ""
}

// expand returns e with the values of its templates in place. values are the request's; they win over those in e.
func expand(e *Expr, values map[string]string) *Expr { return expandWith(e, nil, values) }

func expandWith(e *Expr, known, request map[string]string) *Expr {
	switch e.Kind {
	case PathExpr:
		return substitute(e, known)
	case CallExpr:
		c := *e
		c.Args = make([]*Expr, len(e.Args))
		for i, a := range e.Args {
			c.Args[i] = expandWith(a, known, request)
		}
		c.Named = make([]NamedArg, len(e.Named))
		for i, a := range e.Named {
			c.Named[i] = NamedArg{Name: a.Name, Value: expandWith(a.Value, known, request)}
		}
		return &c
	case TemplateExpr:
		inner := map[string]string{}
		for i, a := range e.Args[1:] {
			inner[strconv.Itoa(i+1)] = a.Text
		}
		for _, a := range e.Named {
			inner[a.Name] = a.Value.Text
		}
		for name, v := range request {
			inner[name] = v
		}
		return expandWith(e.Args[0], inner, request)
	}
	return e
}

// substitute puts values into a path. A path that is $name alone becomes the value: a number or a string.
func substitute(e *Expr, values map[string]string) *Expr {
	if len(values) == 0 || !strings.Contains(e.Text, "$") {
		return e
	}
	c := *e
	if v, ok := values[e.Text[1:]]; ok && e.Text[0] == '$' {
		c.Text = v
		c.Kind = StringExpr
		if isNumber(v) {
			if n, err := strconv.ParseFloat(v, 64); err == nil {
				_, notInteger := strconv.ParseInt(v, 10, 64)
				c.Kind, c.Number, c.Integer = NumberExpr, n, notInteger == nil
			}
		}
		return &c
	}
	names := make([]string, 0, len(values))
	for n := range values {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool {
		if len(names[i]) != len(names[j]) {
			return len(names[i]) > len(names[j])
		}
		return names[i] < names[j]
	})
	var pairs []string
	for _, n := range names {
		pairs = append(pairs, "$"+n, values[n])
	}
	if grown := len(e.Text); grown > 0 {
		for _, n := range names {
			grown += strings.Count(e.Text, "$"+n) * len(values[n])
		}
		if grown > maxTargetBytes { // no series has such a name
			c.Text = ""
			return &c
		}
	}
	c.Text = strings.NewReplacer(pairs...).Replace(e.Text)
	return &c
}
