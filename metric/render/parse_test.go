package render

import (
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a.b.c", "a.b.c"},
		{" a.b ", "a.b"},
		{"a.{b,c.d,{e,f}}.*", "a.{b,c.d,{e,f}}.*"},
		{"f( a.b , 1 , 'x y' )", "f(a.b,1,'x y')"},
		{"f()", "f()"},
		{"f(a,k=1,l='x')", "f(a,k=1,l='x')"},
		{"f(a, k = 1)", "f(a,k=1)"},
		{"a|f(1)|g()", "g(f(a,1))"},
		{"f(a|g(),1)", "f(g(a),1)"},
		{`f("it\"s",'\1')`, `f("it\"s",'\1')`},
		{"f(true,FALSE,None,inf,-1.5e-3)", "f(true,FALSE,None,inf,-1.5e-3)"},
		{`a.b\(c\).d`, `a.b\(c\).d`},
		{"template(f($a,$1),'x',a=5)", "template(f($a,$1),'x',a=5)"},
		{"disk;dc=x;h=y", "disk;dc=x;h=y"},
		{"5xx.count", "5xx.count"},
		{"f(5xx.count,1.2.3)", "f(5xx.count,1.2.3)"},
		{"ä.ö", "ä.ö"},
		{"a-b_c:d#e@f%g", "a-b_c:d#e@f%g"},
		{"template_a.b", "template_a.b"},
	} {
		e, err := Parse(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
		} else if got := e.String(); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		in, token, message string
		pos                int
	}{
		{"", "", "expected a path", 0},
		{"f(", "", "expected a path", 2},
		{"f(a", "", "closing parenthesis of f", 3},
		{"f(a))", ")", "expected the end", 4},
		{"f(a,)", ")", "expected a path", 4},
		{"f(,a)", ",a", "expected a path", 2},
		{"f(a,'x)", "'x", "closing quote", 4},
		{"a.{b", "{b", "not closed", 2},
		{"a.b}", "}", "expected the end", 3},
		{".a", ".a", "empty", 0},
		{"a..b", ".b", "empty", 2},
		{"a.", "", "ends with a dot", 2},
		{"f(a,.5)", ".5", "empty", 4},
		{"f(a,2.)", ")", "ends with a dot", 6},
		{"f(a,x=1,2)", "2", "come first", 8},
		{"f(a,x=1,x=2)", "2", "twice", 10},
		{"a b", "b", "expected the end", 2},
		{"a|b", "b", "function behind the pipe", 2},
		{"'a'", "'a", "path or a function", 0},
		{"5", "5", "path or a function", 0},
		{"a\\", "\\", "backslash", 1},
		{"template()", "template", "needs an expression", 0},
		{"template(a,b)", "b", "string or a number", 11},
		{"a|template(b)", "template", "behind a pipe", 2},
		{"f(a,1e999)", "1e999", "too large", 4},
		{"a\xff", "a", "UTF-8", 0},
		{strings.Repeat("f(", 200) + "a" + strings.Repeat(")", 200), "f", "nested", 202},
		{"a" + strings.Repeat("|f()", 200), "|f", "nested", 401},
		{strings.Repeat("a", maxTargetBytes+1), "aaaaaaaaaaaaaaaaaaaa", "bytes", 0},
		{"f(" + strings.Repeat("a,", maxTargetNodes) + "a)", "f", "parts", 0},
	} {
		_, err := Parse(c.in)
		var p *ParseError
		if !errors.As(err, &p) {
			t.Errorf("%q: %v is no ParseError", shorten(c.in), err)
			continue
		}
		if !strings.Contains(p.Message, c.message) {
			t.Errorf("%q: message %q, want one with %q", shorten(c.in), p.Message, c.message)
		}
		if strings.Contains(c.message, "parts") || len(c.in) > 1000 {
			continue
		}
		if p.Pos != c.pos && c.message != "nested" || p.Token != c.token && c.message != "nested" {
			t.Errorf("%q: %q at %d, want %q at %d", shorten(c.in), p.Token, p.Pos, c.token, c.pos)
		}
	}
}

func TestTemplate(t *testing.T) {
	values := map[string]string{"host": "h9"}
	for _, c := range []struct{ in, want string }{
		{"template(a.$host.b,host='h1')", "a.h9.b"},
		{"template(a.$x.$x1.b,x='p',x1='q')", "a.p.q.b"},
		{"template(a.$1.$2,'p','q')", "a.p.q"},
		{"template(f(a,$n),n=2)", "f(a,2)"},
		{"template(f(a,$n),n='text')", `f(a,"text")`},
		{"template(f(a,'$n'),n='text')", "f(a,'$n')"},
		{"template(f(template(a.$x.$host,x='in')),x='out')", "f(a.in.h9)"},
		{"a.$host", "a.$host"},
	} {
		e, err := Parse(c.in)
		if err != nil {
			t.Fatal(err)
		}
		if got := expand(e, values).String(); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a.b", "f(a,1,'x',k=\"y\")|g()", "template(a.$b,b='c')", `a\.b{c,d}.[0-9]*`,
		"f(-1.5e3,true,none,inf)",
		"sumSeries(a.*.b,seriesByTag('a=b','c!=~d'))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := Parse(s)
		if err != nil {
			var p *ParseError
			if !errors.As(err, &p) || p.Error() == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		text := e.String()
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%q became %q: %v", s, text, err)
		}
		if got := again.String(); got != text {
			t.Fatalf("%q became %q and then %q", s, text, got)
		}
		expand(e, map[string]string{"a": "b"})
	})
}
