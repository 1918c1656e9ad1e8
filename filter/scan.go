package filter

import (
	"errors"
	"fmt"

	"github.com/dop251/goja/parser"
)

const (
	// MaxExpression bounds an expression, maxMutator a mutator and maxLibrary a file of an asset, in bytes.
	MaxExpression, maxMutator, maxLibrary = 8 << 10, 1 << 20, 4 << 20
	// maxNesting bounds the depth of brackets, and maxChain the tokens without an end of a statement or of a list
	// element. The parser and the compiler take a piece of the stack for each.
	maxNesting, maxChain = 256, 20_000
	// maxElse bounds the else branches in one block: each is nested in the one before.
	maxElse = 1000
)

var errNested = fmt.Errorf("it is nested deeper than %d levels", maxNesting)

// CheckSyntax reports why an expression cannot be parsed. It runs nothing: the expression's size and nesting are
// checked before it is parsed.
func CheckSyntax(expression string) error {
	if len(expression) > MaxExpression {
		return fmt.Errorf("it is longer than %d bytes", MaxExpression)
	}
	return checkScript(expression)
}

// CheckMutatorSyntax is CheckSyntax for a mutator's JavaScript, which may return.
func CheckMutatorSyntax(source string) error {
	if len(source) > maxMutator {
		return fmt.Errorf("it is longer than %d bytes", maxMutator)
	}
	return checkScript(asFunction(source))
}

func checkScript(script string) error {
	if err := scan(script); err != nil {
		return err
	}
	_, err := parser.ParseFile(nil, "", script, 0, parser.WithDisableSourceMaps)
	return err
}

// asFunction returns the script that runs a mutator's JavaScript. Its lines keep their numbers.
func asFunction(source string) string { return "(function () {" + source + "\n})()" }

// scan refuses sources that would overflow the parser's stack, which would end the process. It reads the source once
// and keeps a few bytes for each open bracket. It distinguishes a regular expression from a division by the token
// before, as far as that is possible without parsing. A source that deceives it ends only the worker that parses it.
func scan(source string) error {
	s := scanner{source: source, levels: make([]level, 1, 16)}
	for s.at < len(s.source) {
		if err := s.token(); err != nil {
			return err
		}
	}
	return nil
}

// scanner is a position in a source.
type scanner struct {
	source string
	at     int
	levels []level // the open brackets, outermost first; the first is the source itself
	value  bool    // the last token ended a value, so a slash divides
}

type level struct {
	open          byte
	tokens, elses int
}

func (s *scanner) token() error {
	c := s.source[s.at]
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		s.at++
		return nil
	case c == '/' && s.next() == '/':
		for s.at < len(s.source) && s.source[s.at] != '\n' {
			s.at++
		}
		return nil
	case c == '/' && s.next() == '*':
		s.comment()
		return nil
	}
	top := &s.levels[len(s.levels)-1]
	if top.tokens++; top.tokens > maxChain {
		return errors.New("an expression in it has too many parts")
	}
	switch {
	case c == '"' || c == '\'':
		s.quoted(c)
		s.value = true
	case c == '`':
		s.at++
		return s.template()
	case c == '/' && !s.value:
		s.regular()
		s.value = true
	case c == '(' || c == '[' || c == '{':
		s.at++
		return s.open(c)
	case c == ')' || c == ']' || c == '}':
		s.at++
		return s.close(c)
	case c == ',' || c == ';':
		top.tokens = 0
		s.at++
		s.value = false
	case letter(c):
		s.word(top)
		if top.elses > maxElse {
			return errors.New("it has too many branches in one block")
		}
	default:
		s.at++
		s.value = false
	}
	return nil
}

func (s *scanner) next() byte {
	if s.at+1 < len(s.source) {
		return s.source[s.at+1]
	}
	return 0
}

func (s *scanner) comment() {
	for s.at += 2; s.at < len(s.source); s.at++ {
		if s.source[s.at] == '*' && s.next() == '/' {
			s.at += 2
			return
		}
	}
}

func (s *scanner) open(c byte) error {
	if len(s.levels) > maxNesting {
		return errNested
	}
	s.levels = append(s.levels, level{open: c})
	s.value = false
	return nil
}

// close continues a template after a brace that ends an expression in it.
func (s *scanner) close(c byte) error {
	last := s.levels[len(s.levels)-1]
	if len(s.levels) > 1 {
		s.levels = s.levels[:len(s.levels)-1]
	}
	s.value = c != '}'
	if c == '}' && last.open == '`' {
		return s.template()
	}
	return nil
}

func (s *scanner) quoted(quote byte) {
	for s.at++; s.at < len(s.source); s.at++ {
		switch s.source[s.at] {
		case '\\':
			s.at++
		case quote:
			s.at++
			return
		case '\n':
			return
		}
	}
}

// template reads the text of a template up to its end or its next expression.
func (s *scanner) template() error {
	for ; s.at < len(s.source); s.at++ {
		switch s.source[s.at] {
		case '\\':
			s.at++
		case '`':
			s.at++
			s.value = true
			return nil
		case '$':
			if s.next() == '{' {
				s.at += 2
				return s.open('`')
			}
		}
	}
	return nil
}

// regular reads a regular expression. If it does not end on its line, it is none.
func (s *scanner) regular() {
	set := false
	for at := s.at + 1; at < len(s.source); at++ {
		switch s.source[at] {
		case '\\':
			at++
		case '[':
			set = true
		case ']':
			set = false
		case '\n':
			s.at++
			return
		case '/':
			if !set {
				s.at = at + 1
				return
			}
		}
	}
	s.at++
}

func (s *scanner) word(in *level) {
	begin := s.at
	for s.at < len(s.source) && letter(s.source[s.at]) {
		s.at++
	}
	s.value = true
	switch s.source[begin:s.at] {
	case "else":
		in.elses++
		s.value = false
	case "return", "typeof", "case", "do", "in", "instanceof", "new", "void", "delete", "throw":
		s.value = false
	}
}

func letter(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// depthOf returns the depth of brackets in a JSON text.
func depthOf(text string) int {
	depth, most, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			most = max(most, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return most
}
