package index

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// fuzzNames are names with many likenesses, some of which look like patterns.
func fuzzNames() []string {
	r := rand.New(rand.NewPCG(11, 11))
	names := []string{"a", "a.b", "a.b.c", "a..b", "..", ".a", "a.", "{a,b}", "[a]", "*", "**", "a.**.c", `a\`, `\*`,
		"a-b.c", "é.ü", "]"}
	for range 150 {
		names = append(names, randomName(r))
	}
	return names
}

// ambiguous reports whether the model reads p differently where the index's rules are its own: a backslash within a
// class, and a class that a brace cuts.
func ambiguous(p string) bool {
	if !utf8.ValidString(p) {
		return true
	}
	for _, node := range strings.Split(p, ".") {
		if strings.Contains(node, "[") && strings.ContainsAny(node, `\{},`) {
			return true
		}
		if strings.Contains(node, `\`) && strings.ContainsAny(node, "{}") {
			return true
		}
		// Braces that are not closed: the model and the index agree only on which are pairs if all are.
		depth := 0
		for _, c := range node {
			switch c {
			case '{':
				depth++
			case '}':
				depth--
			}
			if depth < 0 {
				return true
			}
		}
		if depth != 0 {
			return true
		}
	}
	return false
}

func FuzzFind(f *testing.F) {
	for _, p := range []string{"a.*", "**", "a.**.c", "{a,b}*", "a{,b{c,d}}", "[!a-c]?", `\*`, `a\`, "[", "{", "}",
		"[]a]", "a..*", "*.*.*.*", "h{0,1}[0-9]*", "é*", "[é-ü]*", "{a,b", "a;b=c",
		"****", "*a*b*c*", "{{a,b},{c,{d,e}}}", "\xff*", "[\xff-\x80]",
		"cpu{0,1}*.{idle,total}", "**.**", "**.a.**"} {
		f.Add(p)
	}
	names := fuzzNames()
	x := newIndex(f, names...)
	m := model{}
	for _, n := range names {
		if x.Has(n) {
			m[n] = true
		}
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		nodes, err := x.Find(t.Context(), pattern, Budget{})
		if err != nil {
			if _, ok := errors.AsType[*PatternError](err); !ok {
				t.Fatal(err)
			}
			return
		}
		if !slices.IsSortedFunc(nodes, func(a, b Node) int { return strings.Compare(a.Path, b.Path) }) {
			t.Fatalf("%v is not sorted", nodes)
		}
		if len(pattern) < 200 && strings.Count(pattern, "**") < 8 && !ambiguous(pattern) {
			compareFind(t, x, m, pattern)
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("a.b", "a..b", "a.b;c=d")
	f.Add("", ".", "..")
	f.Add("a;b=c;name=x", ";", "~;a=b")
	f.Add("\xff.\x01", "a\x00b", "\x00")
	f.Add("a.b", "a.b.c", "a-b")
	f.Add("m;k=v\x01", "m;k=v", "m;kv=v;k=vv")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		x := newIndex(t)
		m := model{}
		for _, n := range []string{a, b, c, a} {
			good := n != "" && len(n) <= 65_535 && !strings.Contains(n, "\x00")
			if got, want := x.Add(n), good && !m[n]; got != want {
				t.Fatalf("Add(%q) = %v, want %v", n, got, want)
			}
			if good {
				m[n] = true
			}
		}
		for _, n := range []string{a, b, c} {
			if x.Has(n) != m[n] {
				t.Fatalf("Has(%q) = %v", n, !m[n])
			}
			if m[n] && isLiteral(n) {
				names, err := x.Leaves(t.Context(), n, Budget{})
				if err != nil || !slices.Equal(names, []string{n}) {
					t.Fatalf("Leaves(%q) = %q, %v", n, names, err)
				}
			}
		}
		var all []string
		err := x.All(t.Context(), func(n string) bool { all = append(all, n); return true })
		if err != nil || len(all) != len(m) {
			t.Fatalf("All gives %q (%v), want %d", all, err, len(m))
		}
		check(t, x)
		for _, n := range []string{a, b, c} {
			if x.Remove(n) != m[n] {
				t.Fatalf("Remove(%q) is wrong", n)
			}
			delete(m, n)
		}
		check(t, x)
		if x.Len() != 0 || x.paths.bytes+x.tags.names.bytes+x.tags.postings.bytes != 0 {
			t.Fatalf("an emptied index has %d names", x.Len())
		}
	})
}

func FuzzExpr(f *testing.F) {
	for _, e := range []string{"a=b", "a!=b", "a=~b", "a!=~b", "a=", "a!=", "=", "!", "a=~(", "a=~(?=b)", `a=~(a)\1`,
		"name=cpu", "a;b=c",
		"a=~[", "a=~*", "host=~^web|db$", "a\x00b=c", "a=~a)(b", "host=~.", "host!=~.*", "name=~", "dc=~~v"} {
		f.Add(e, "name=~.")
	}
	names := fuzzNames()
	x := newIndex(f, names...)
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, exprs := range [][]string{{a}, {a, b}} {
			found, err := x.FindTagged(t.Context(), exprs, Budget{})
			if err != nil {
				if _, ok := errors.AsType[*ExprError](err); !ok {
					t.Fatal(err)
				}
				continue
			}
			// Each series by itself gives the same answer.
			conds, err := parseExprs(exprs, x.opts.MatchTimeout)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, n := range names {
				if tags := splitTags(nil, n); tagged(n) && len(tags) > 0 {
					if ok, err := matchAll(conds, tags); err != nil {
						return // it took too long this time
					} else if ok {
						want = append(want, n)
					}
				}
			}
			slices.Sort(want)
			if want = slices.Compact(want); !slices.Equal(found, want) {
				t.Fatalf("FindTagged(%q) = %q, want %q", exprs, found, want)
			}
		}
		if _, err := x.Tags(t.Context(), a, 10); err != nil {
			if _, ok := errors.AsType[*ExprError](err); !ok {
				t.Fatal(err)
			}
		}
	})
}
