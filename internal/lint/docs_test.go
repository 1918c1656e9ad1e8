package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// notMetrics are string literals that look like the name of a metric.
var notMetrics = map[string]bool{"lapwing_data": true}

func TestMetricsAreListed(t *testing.T) {
	for _, problem := range metricProblems(files(t), document(t, "docs/metrics.md")) {
		t.Error(problem)
	}
}

var (
	metricName = regexp.MustCompile(`^lapwing_[a-z0-9_]+$`)
	metricRef  = regexp.MustCompile("`(lapwing_[a-z0-9_]+)[`{]")
)

// metricReaders are packages that name metrics of others: the names must be listed, but do not count as definitions.
var metricReaders = []string{"client/doctor", "client/load/..."}

// TestMetricReadersExist fails when a package of metricReaders has moved, because its metrics would count as definitions.
func TestMetricReadersExist(t *testing.T) {
	for _, reader := range metricReaders {
		if !slices.ContainsFunc(packages(t), func(p pkg) bool { return listed([]string{reader}, p.path) }) {
			t.Errorf("there is no package %s", reader)
		}
	}
}

// metricProblems compares the metrics in the code with those in backticks in the document, perhaps with {labels}.
func metricProblems(sources []*source, doc string) (problems []string) {
	listed := map[string]bool{}
	for _, m := range metricRef.FindAllStringSubmatch(doc, -1) {
		listed[m[1]] = true
	}
	used := map[string]bool{}
	for _, s := range sources {
		if s.test() {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			name, err := strconv.Unquote(lit.Value)
			if err != nil || !metricName.MatchString(name) || notMetrics[name] {
				return true
			}
			if !slices.ContainsFunc(metricReaders, func(p string) bool { return fits(p, s.dir()) }) {
				used[name] = true
			}
			if !listed[name] {
				problems = append(problems, fmt.Sprintf("%s: metric %s is not listed in docs/metrics.md", fileSet.Position(lit.Pos()), name))
			}
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !used[name] && !used[base] {
			problems = append(problems, fmt.Sprintf("docs/metrics.md: metric %s does not exist", name))
		}
	}
	return problems
}

func TestMetricsRule(t *testing.T) {
	same(t, metricProblems([]*source{
		fake(t, "a/a.go", "package a\nvar a, b, c = \"lapwing_a_total\", `lapwing_b_seconds`, \"lapwing_a_total is fine\"\n"),
		fake(t, "a/a_test.go", "package a\nvar d = \"lapwing_d\"\n"),
		fake(t, "client/doctor/a.go", "package doctor\nvar e = \"lapwing_c\"\n"),
	}, "`lapwing_b_seconds`, `lapwing_b_seconds_bucket`, `lapwing_c{kind}`, lapwing_e"),
		"a/a.go:2:15: metric lapwing_a_total is not listed", "docs/metrics.md: metric lapwing_c does not exist")
}

func TestArchitectureNamesExist(t *testing.T) {
	for _, problem := range nameProblems(files(t), document(t, "docs/ARCHITECTURE.md")) {
		t.Error(problem)
	}
}

var (
	// codeRef is `package.Symbol`, `package.Type.Member` or the same with a path; arguments may follow.
	codeRef  = regexp.MustCompile("`\\*?([a-z][a-z0-9/]*)\\.([A-Za-z]\\w*)(?:\\.([A-Za-z]\\w*))?(?:\\([^`]*\\))?`")
	fileEnds = []string{"go", "md", "mod", "sum", "json", "jsonl", "yaml", "yml", "proto", "ts", "tsx", "html", "txt", "sh", "sql", "toml", "com", "org", "io"}
)

// symbols are the names a package declares.
type symbols struct {
	top     map[string]bool            // functions, types, variables, constants
	members map[string]map[string]bool // methods and fields by type
}

// nameProblems finds names in backticks in the document that our packages do not declare. A name from an imported
// package that is not ours is not checked.
func nameProblems(sources []*source, doc string) (problems []string) {
	ours := map[string]symbols{} // by path and by name
	trusted := map[string]bool{}
	for _, s := range sources {
		for _, spec := range s.ast.Imports {
			if p, err := strconv.Unquote(spec.Path.Value); err == nil && !strings.HasPrefix(p, module+"/") {
				trusted[p], trusted[path.Base(p)] = true, true
			}
		}
		if s.test() {
			continue
		}
		for _, name := range []string{s.dir(), path.Base(s.dir())} {
			if _, ok := ours[name]; !ok {
				ours[name] = symbols{top: map[string]bool{}, members: map[string]map[string]bool{}}
			}
			ours[name].add(s.ast)
		}
	}
	for _, m := range codeRef.FindAllStringSubmatch(doc, -1) {
		ref, name, symbol, member := m[0], m[1], m[2], m[3]
		if slices.Contains(fileEnds, symbol) {
			continue
		}
		syms, ok := ours[name]
		switch {
		case !ok && trusted[name]:
		case !ok:
			problems = append(problems, fmt.Sprintf("docs/ARCHITECTURE.md: %s: there is no package %s", ref, name))
		case member == "" && !syms.top[symbol] && !syms.member(symbol):
			problems = append(problems, fmt.Sprintf("docs/ARCHITECTURE.md: %s: package %s declares no %s", ref, name, symbol))
		case member != "" && !syms.members[symbol][member]:
			problems = append(problems, fmt.Sprintf("docs/ARCHITECTURE.md: %s: %s.%s has no %s", ref, name, symbol, member))
		}
	}
	return problems
}

// member reports whether any type has a member of that name: `state.Apply` may be short for a method.
func (s symbols) member(name string) bool {
	for _, members := range s.members {
		if members[name] {
			return true
		}
	}
	return false
}

func (s symbols) addMember(typ, member string) {
	if s.members[typ] == nil {
		s.members[typ] = map[string]bool{}
	}
	s.members[typ][member] = true
}

func (s symbols) add(f *ast.File) {
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				s.top[d.Name.Name] = true
			} else if typ := receiver(d.Recv.List[0].Type); typ != "" {
				s.addMember(typ, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						s.top[name.Name] = true
					}
				case *ast.TypeSpec:
					s.top[spec.Name.Name] = true
					s.addFields(spec)
				}
			}
		}
	}
}

func (s symbols) addFields(spec *ast.TypeSpec) {
	var fields *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			s.addMember(spec.Name.Name, name.Name)
		}
	}
}

// receiver is the name of a method's type, without star and type parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestNamesRule(t *testing.T) {
	sources := []*source{
		fake(t, "session/session.go", "package session\nimport \"log/slog\"\ntype Session struct{ ID int; l *slog.Logger }\nfunc New() {}\nfunc (s *Session) readLoop() {}\n"),
		fake(t, "metric/extract/e.go", "package extract\ntype List[T any] []T\nfunc (List[T]) Add() {}\ntype Sink interface{ Put() }\nconst Max = 1\n"),
		fake(t, "session/session_test.go", "package session\nfunc helper() {}\n"),
	}
	same(t, nameProblems(sources, "`session.New`, `session.readLoop`, `session.Session.ID`, `session.New(ctx)`, `*session.Session`, "+
		"`metric/extract.Max`, `extract.List.Add`, `extract.Sink.Put`, `slog.Logger`, `session.go`, `event.json`, session.Nothing, `a.b.c.d`"))
	same(t, nameProblems(sources, "`session.Gone` `session.Session.Gone` `session.helper` `gone.New` `state.Apply(x)`"),
		"docs/ARCHITECTURE.md: `session.Gone`: package session declares no Gone",
		"docs/ARCHITECTURE.md: `session.Session.Gone`: session.Session has no Gone",
		"docs/ARCHITECTURE.md: `session.helper`: package session declares no helper",
		"docs/ARCHITECTURE.md: `gone.New`: there is no package gone",
		"docs/ARCHITECTURE.md: `state.Apply(x)`: there is no package state")
}
