package index

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// Bounds of tag expressions.
const (
	maxExprs   = 64
	maxExprLen = 16 << 10
)

// ExprError is the error of a tag expression, or a filter, that is not right.
type ExprError struct {
	Expr string
	Text string
	Err  error
}

func (e *ExprError) Error() string {
	s := query("tag expression", e.Expr) + ": " + e.Text
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the error of the regular expression.
func (e *ExprError) Unwrap() error { return e.Err }

// cond is one tag expression.
type cond struct {
	tag, value string
	negated    bool
	re         matcher // nil for = and !=
	empty      bool    // selects an empty value, hence series that lack the tag
	slow       bool    // re backtracks
	meter      *meter
	// The answer for the last value: the next series often has the same.
	last   string
	lastOK bool
	asked  bool
}

// matcher is a regular expression that matches from the start of a value.
type matcher interface {
	MatchString(s string) (bool, error)
}

// exact reports whether c selects one value, which is not empty.
func (c *cond) exact() bool { return c.re == nil && !c.negated && c.value != "" }

// match reports whether c selects value.
func (c *cond) match(value string) (bool, error) {
	if c.re == nil {
		return (value == c.value) != c.negated, nil
	}
	if c.asked && c.last == value {
		return c.lastOK, nil
	}
	if c.meter != nil {
		c.meter.work += len(value) * len(c.value) / 4096
		if c.slow {
			c.meter.work += chunk // it may take all its time: the lock must be free after each
		}
	}
	ok, err := c.re.MatchString(value)
	if err != nil {
		return false, &ExprError{Expr: c.String(), Text: "cannot match value " + query("", value), Err: err}
	}
	c.asked, c.last, c.lastOK = true, value, ok != c.negated
	return c.lastOK, nil
}

func (c *cond) String() string {
	op := "="
	if c.negated {
		op = "!="
	}
	if c.re != nil {
		op += "~"
	}
	return c.tag + op + c.value
}

// parseExprs reads expressions; at least one must not select an empty value.
func parseExprs(exprs []string, timeout time.Duration) ([]*cond, error) {
	if len(exprs) == 0 {
		return nil, &ExprError{Text: "no expression is given"}
	}
	if len(exprs) > maxExprs {
		return nil, &ExprError{Expr: exprs[maxExprs], Text: fmt.Sprintf("more than %d expressions", maxExprs)}
	}
	conds := make([]*cond, len(exprs))
	filters := true
	for i, e := range exprs {
		c, err := parseExpr(e, timeout)
		if err != nil {
			return nil, err
		}
		conds[i] = c
		filters = filters && c.empty
	}
	if filters {
		return nil, &ExprError{Expr: strings.Join(exprs, " "), Text: "every expression also selects series without its " +
			"tag: add one that does not, for example name=~."}
	}
	return conds, nil
}

func parseExpr(e string, timeout time.Duration) (*cond, error) {
	if len(e) > maxExprLen {
		return nil, &ExprError{Expr: e, Text: fmt.Sprintf("longer than %d bytes", maxExprLen)}
	}
	n := strings.IndexAny(e, ";!=")
	if n <= 0 || strings.IndexByte(e, 0) >= 0 {
		return nil, &ExprError{Expr: e, Text: "write tag=value, tag!=value, tag=~regexp or tag!=~regexp"}
	}
	c := &cond{tag: e[:n]}
	rest := e[n:]
	if rest[0] == '!' {
		c.negated = true
		rest = rest[1:]
	}
	value, ok := strings.CutPrefix(rest, "=")
	if !ok || strings.IndexByte(value, ';') >= 0 {
		return nil, &ExprError{Expr: e, Text: "write tag=value, tag!=value, tag=~regexp or tag!=~regexp, without a ';'"}
	}
	c.value = value
	if value, ok = strings.CutPrefix(value, "~"); ok {
		c.value = value
		var err error
		if c.re, c.slow, err = compile(e, value, timeout); err != nil {
			return nil, err
		}
	}
	var err error
	c.empty, err = c.match("")
	return c, err
}

// compile reads a regular expression of Python. Those without look-around and back-references match in linear time;
// the others backtrack, for at most timeout a match.
func compile(expr, text string, timeout time.Duration) (re matcher, slow bool, err error) {
	anchored := "^(?:" + text + ")"
	// Alone first: the group around it would make an expression such as a)(b correct.
	if _, err := regexp.Compile(text); err == nil {
		if re, err := regexp.Compile(anchored); err == nil {
			return linearMatcher{re}, false, nil
		}
	}
	if _, err := regexp2.Compile(text); err != nil {
		return nil, false, &ExprError{Expr: expr, Text: "its regular expression is not right", Err: err}
	}
	back, err := regexp2.Compile(anchored)
	if err != nil {
		return nil, false, &ExprError{Expr: expr, Text: "its regular expression is not right", Err: err}
	}
	back.MatchTimeout = timeout
	return back, true, nil
}

type linearMatcher struct{ re *regexp.Regexp }

func (m linearMatcher) MatchString(s string) (bool, error) { return m.re.MatchString(s), nil }

// parseFilter reads a filter of tags or values. An empty one matches all.
func parseFilter(filter string, timeout time.Duration) (*cond, error) {
	if len(filter) > maxExprLen {
		return nil, &ExprError{Expr: filter, Text: fmt.Sprintf("longer than %d bytes", maxExprLen)}
	}
	re, slow, err := compile(filter, filter, timeout)
	if err != nil {
		return nil, err
	}
	return &cond{tag: "filter", value: filter, re: re, slow: slow}, nil
}
