package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
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

// docProblems finds packages without a doc, with two, or with one that does not begin as docs do.
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

// onePlace matches the two words that lead a search to the event's path, so they stand in one package doc only. A line
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

// sleepers are the test files that may sleep in real time, and why.
var sleepers = map[string]string{
	"agent/backend_test.go":           "polls what agents do by themselves, which sends no signal",
	"agent/command_unix_test.go":      "polls for the end of another process, which sends no signal",
	"agent/transport_bench_test.go":   "a benchmark that waits for room; nothing depends on how long",
	"ctl/trace_test.go":               "polls a backend for what its handlers did, which sends no signal to clients",
	"eventlog/eventlog_test.go":       "nothing signals a commit that is not made; too short a sleep can hide a fault and not make one",
	"handler/crash_test.go":           "polls what a model of a crash did, which sends no signal",
	"handler/queue_test.go":           "polls for the end of a worker, which sends no signal",
	"internal/proc/proc_unix_test.go": "polls for the end of another process, which sends no signal",
	"test/attack/attacks_test.go":     "an attack lasts a while; what it did is asked of another process, which sends no signal",
	"test/attack/harness_test.go":     "polls another process, which sends no signal",
	"filter/suspects_test.go":         "polls for the end of another process, which sends no signal",
	"wire/poller_linux_test.go":       "polls for what the system does with a closed connection, which sends no signal",
	"test/bench_test.go":              "a benchmark's poll of a counter; nothing depends on how long it waits",
}

func TestNoSleep(t *testing.T) {
	for _, problem := range sleepProblems(files(t), sleepers) {
		t.Error(problem)
	}
}

// sleepProblems finds tests that sleep for luck. A file that uses testing/synctest sleeps in time that is not real.
func sleepProblems(sources []*source, allowed map[string]string) (problems []string) {
	seen := map[string]bool{}
	for _, s := range sources {
		sleeps := false
		if s.test() && importName(s.ast, "testing/synctest") == "" {
			if name := importName(s.ast, "time"); name != "" {
				sleeps = mentions(s.ast, name, "Sleep")
			}
		}
		if !sleeps {
			continue
		}
		seen[s.path] = true
		if allowed[s.path] == "" {
			problems = append(problems, fmt.Sprintf("%s calls time.Sleep: wait for a signal or use testing/synctest, or else tell sleepers in internal/lint why neither will do", s.path))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(allowed)) {
		if !seen[path] {
			problems = append(problems, fmt.Sprintf("%s does not sleep: take it out of sleepers in internal/lint", path))
		}
	}
	return problems
}

// importName is the name under which a file uses an import, or "".
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

// mentions says whether name.selector occurs in a file.
func mentions(f *ast.File, name, selector string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == selector {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == name {
				found = true
			}
		}
		return !found
	})
	return found
}

func TestNoSleepRule(t *testing.T) {
	const sleep = "import \"time\"\n\nfunc f() { time.Sleep(1) }\n"
	same(t, sleepProblems([]*source{
		fake(t, "a/a.go", "package a\n"+sleep),
		fake(t, "a/a_test.go", "package a\n"+sleep),
		fake(t, "b/b_test.go", "package b\n"+sleep),
		fake(t, "c/c_test.go", "package c\nimport _ \"testing/synctest\"\n"+sleep),
		fake(t, "d/d_test.go", "package d\nimport clock \"time\"\nvar x = clock.Sleep\n"),
		fake(t, "e/e_test.go", "package e\nimport \"time\"\n// time.Sleep\nvar x = time.Second\n"),
	}, map[string]string{"b/b_test.go": "a reason", "e/e_test.go": "another"}),
		"a/a_test.go calls time.Sleep", "d/d_test.go calls time.Sleep", "e/e_test.go does not sleep")
}
