package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestPackageDocs(t *testing.T) {
	for _, problem := range docProblems(files(t)) {
		t.Error(problem)
	}
}

// docProblems finds packages without a doc, with two, or with one that begins wrongly.
func docProblems(sources []*source) (problems []string) {
	docs := map[string][]*source{} // by directory
	for _, s := range sources {
		if s.test() {
			continue
		}
		if _, ok := docs[s.dir()]; !ok {
			docs[s.dir()] = nil
		}
		if s.ast.Doc == nil {
			continue
		}
		docs[s.dir()] = append(docs[s.dir()], s)
		name := s.ast.Name.Name
		if text := s.ast.Doc.Text(); name != "main" && !strings.HasPrefix(text, "Package "+name+" ") {
			problems = append(problems, fmt.Sprintf("%s: the package doc should begin with \"Package %s \"", s.path, name))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(docs)) {
		switch with := docs[dir]; len(with) {
		case 1:
		case 0:
			problems = append(problems, fmt.Sprintf("package %s has no doc: say in its main file what it is for, who calls it and what it promises", dir))
		default:
			problems = append(problems, fmt.Sprintf("package %s has a doc in %s and in %s", dir, with[0].path, with[1].path))
		}
	}
	return problems
}

func TestPackageDocsRule(t *testing.T) {
	same(t, docProblems([]*source{
		fake(t, "a/a.go", "// Package a is good.\npackage a"),
		fake(t, "a/b.go", "package a"),
		fake(t, "a/a_test.go", "// Package a_test is not asked.\npackage a_test"),
		fake(t, "b/b.go", "// b is a package.\npackage b"),
		fake(t, "c/c.go", "// A remark.\n\npackage c"),
		fake(t, "d/a.go", "// Package d is one.\npackage d"),
		fake(t, "d/b.go", "// Package d is two.\npackage d"),
		fake(t, "e/e_test.go", "package e"),
		fake(t, "cmd/e/main.go", "// Lapwing watches.\npackage main"),
	}), "b/b.go: the package doc should begin", "package c has no doc", "package d has a doc in d/a.go and in d/b.go")
}

func TestFormatted(t *testing.T) {
	for _, s := range files(t) {
		formatted, err := format.Source(s.text)
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
		} else if !bytes.Equal(formatted, s.text) {
			t.Errorf("%s is not formatted: run gofmt -w on it", s.path)
		}
	}
}

func TestWords(t *testing.T) {
	for _, problem := range wordProblems(files(t)) {
		t.Error(problem)
	}
}

// onePlace matches the two words that lead a search to the event's path, so they may be in one package doc only. A line
// break in a comment does not hide them.
var onePlace = regexp.MustCompile(`(?i)\bhot[\s/*]+path`)

func wordProblems(sources []*source) (problems []string) {
	var place string
	for _, s := range sources {
		if strings.HasPrefix(s.path, "internal/lint/") {
			continue
		}
		found := len(onePlace.FindAllIndex(s.text, -1))
		if found == 0 {
			continue
		}
		inDoc := 0
		if s.ast.Doc != nil && !s.test() {
			begin, end := fileSet.Position(s.ast.Doc.Pos()).Offset, fileSet.Position(s.ast.Doc.End()).Offset
			inDoc = len(onePlace.FindAllIndex(s.text[begin:end], -1))
		}
		switch {
		case found > inDoc:
			problems = append(problems, fmt.Sprintf("%s: the words %q belong in one package doc and nowhere else", s.path, onePlace.Find(s.text)))
		case place != "":
			problems = append(problems, fmt.Sprintf("%s: the words %q stand already in the package doc in %s", s.path, onePlace.Find(s.text), place))
		default:
			place = s.path
		}
	}
	return problems
}

// noSubjects are words that hide which part acts. A comment names the part: "the session", "callers", "agents".
var noSubjects = regexp.MustCompile(`(?i)\b(whoever|nobody|anybody|somebody)\b`)

func TestSubjects(t *testing.T) {
	for _, problem := range subjectProblems(files(t)) {
		t.Error(problem)
	}
}

// subjectProblems finds noSubjects in comments.
func subjectProblems(sources []*source) (problems []string) {
	for _, s := range sources {
		if s.dir() == "internal/lint" {
			continue
		}
		for _, group := range s.ast.Comments {
			for _, comment := range group.List {
				if word := noSubjects.FindString(comment.Text); word != "" {
					line := fileSet.Position(comment.Pos()).Line
					problems = append(problems, fmt.Sprintf("%s:%d: name the part instead of %q", s.path, line, word))
				}
			}
		}
	}
	return problems
}

func TestSubjectsRule(t *testing.T) {
	same(t, subjectProblems([]*source{
		fake(t, "a/a.go", "// Package a asks nobodysHash.\npackage a\n\nvar s = \"nobody\"\n"),
		fake(t, "a/b.go", "package a\n\n// Whoever calls f waits.\nfunc f() {}\n"),
		fake(t, "b/b_test.go", "package b\n\nvar x int // for\n// nobody\n"),
		fake(t, "internal/lint/l.go", "// Package lint is for anybody.\npackage lint"),
	}), "a/b.go:3: name the part", "b/b_test.go:4: name the part")
}

func TestWordsRule(t *testing.T) {
	const words = "hot" + " path"
	same(t, wordProblems([]*source{
		fake(t, "a/a.go", "// Package a is the "+words+".\npackage a"),
		fake(t, "a/b.go", "package a\n\n// This is no hotpath, nor a photo path.\n"),
		fake(t, "b/b.go", "// Package b is the "+words+", too.\npackage b"),
		fake(t, "c/c.go", "package c\n\n// The hot\n// path.\nvar x int"),
		fake(t, "c/c_test.go", "// A "+words+".\npackage c"),
	}), "b/b.go: the words", "c/c.go: the words", "c/c_test.go: the words")
}

func TestNoSleep(t *testing.T) {
	for _, problem := range sleepProblems(files(t)) {
		t.Error(problem)
	}
}

// sleepProblems finds sleeps in tests that have no comment, on their line or the one before, that explains why they
// cannot fail a correct test.
func sleepProblems(sources []*source) (problems []string) {
	for _, s := range sources {
		if !s.test() {
			continue
		}
		commented := map[int]bool{}
		for _, group := range s.ast.Comments {
			for line := fileSet.Position(group.Pos()).Line; line <= fileSet.Position(group.End()).Line; line++ {
				commented[line] = true
			}
		}
		for _, at := range sleeps(s.ast) {
			if line := fileSet.Position(at).Line; !commented[line] && !commented[line-1] {
				problems = append(problems, fmt.Sprintf("%s:%d sleeps in real time: wait for a signal, use testing/synctest, or poll "+
					"for a state that must come, and say in a comment why the sleep cannot fail a test that should pass", s.path, line))
			}
		}
	}
	return problems
}

// sleeps finds real sleeps in a test: time.Sleep, or a receive from time.After outside of a select. A function given to
// synctest.Test has fake time.
func sleeps(f *ast.File) (found []token.Pos) {
	clock, bubble := importName(f, "time"), importName(f, "testing/synctest")
	cases := map[ast.Expr]bool{} // receives of selects
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return !names(n.Fun, bubble, "Test")
		case *ast.CommClause:
			if receive, ok := n.Comm.(*ast.ExprStmt); ok {
				cases[receive.X] = true
			}
		case *ast.UnaryExpr:
			if call, ok := n.X.(*ast.CallExpr); ok && n.Op == token.ARROW && !cases[n] && names(call.Fun, clock, "After") {
				found = append(found, n.Pos())
			}
		case *ast.SelectorExpr:
			if names(n, clock, "Sleep") {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// importName returns the name of an import in a file, or "".
func importName(f *ast.File, path string) string {
	for _, spec := range f.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path[strings.LastIndex(path, "/")+1:]
	}
	return ""
}

// names reports whether an expression is pkg.name.
func names(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

func TestNoSleepRule(t *testing.T) {
	const sleep = "import \"time\"\n\nfunc f() { time.Sleep(1) }\n"
	bubble := func(before, after string) string {
		return "package d\nimport (\"testing/synctest\"; \"time\")\nfunc f() {" + before + "synctest.Test(nil, func(any) { time.Sleep(1) })" + after + "}\n"
	}
	same(t, sleepProblems([]*source{
		fake(t, "a/a.go", "package a\n"+sleep),
		fake(t, "a/a_test.go", "package a\n"+sleep),
		fake(t, "b/b_test.go", "package b\nimport \"time\"\n// It cannot fail.\nfunc f() { time.Sleep(1) }\nfunc g() { time.Sleep(1) } // nor this\n"),
		fake(t, "c/c_test.go", "package c\nimport clock \"time\"\n\nvar x = clock.Sleep\n"),
		fake(t, "d/a_test.go", bubble("", "")),
		fake(t, "d/b_test.go", bubble("", "; time.Sleep(1)")),
		fake(t, "e/a_test.go", "package e\nimport \"time\"\n\nfunc f() { <-time.After(1) }\n"),
		fake(t, "e/b_test.go", "package e\nimport \"time\"\n\nfunc f() {\nselect {\ncase <-time.After(1):\n}\n}\n// time.Sleep\n"),
	}), "a/a_test.go:4 sleeps", "c/c_test.go:4 sleeps", "d/b_test.go:3 sleeps", "e/a_test.go:4 sleeps")
}
