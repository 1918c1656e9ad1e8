package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lapwing-monitoring/lapwing/"

// maxPathFiles is how many files a reader opens to follow an event from the poller to the attempt.
const maxPathFiles = 10

// step is a function on an event's path, named as types.Func.FullName names it, without the module. It calls the next
// step itself: no callback, closure or interface comes in between, so that go-to-definition never stops.
type step struct {
	name string
	// queue is the field by which this step hands the event to another goroutine, in place of a call. The function taker
	// takes it from there; it is the next step, or for the log what writes the log that the next step reads.
	queue, taker string
	// through are calls that the event goes through before the next step: each list begins with what this step calls, and
	// each function in it calls the next.
	through [][]string
	// asks are the same for what does not have the event in hand afterwards; their files do not count.
	asks [][]string
}

// path is the way of an event of an agent, in the order of the first figure in docs/ARCHITECTURE.md.
var path = []step{
	// In: from the agent's socket into the log.
	{name: "(*session.Server).read"},
	{name: "(*session.session).readable"},
	{name: "(*session.session).onMessage"},
	{name: "(*session.session).onEvent"},
	{name: "(*intake.Intake).Event"},
	{name: "(*intake.Intake).appendFrom"},
	{name: "(*eventlog.Log).TryAppend"},
	{name: "(*eventlog.Log).add"},
	{name: "(*eventlog.Log).addTo"},
	{name: "(*eventlog.Log).put", queue: "eventlog.partition.buf", taker: "(*eventlog.Log).write"}, // queue 1, then the log
	// The fold: out of the log, through the state, to the router.
	{name: "(*fold.Fold).run", through: [][]string{
		{"(*eventlog.Reader).Next"},
		{"(*state.Folder).Next", "(*state.partition).applyEvent"},
	}},
	{name: "(*fold.Fold).route"},
	{name: "(*pipeline.Router).Route", asks: [][]string{
		{"(*pipeline.Router).deliveries", "(*pipeline/workflow.Workflows).AskFirst"},
	}},
	{name: "(*handler.Dispatcher).Dispatch"},
	{name: "(*handler.Dispatcher).enqueue"},
	{name: "(*handler.queue).add"},
	{name: "(*handler.queue).put"},
	{name: "(*handler.queue).turn", queue: "handler.queue.ready", taker: "(*handler.queue).work"}, // queue 2
	// Out: a handler's worker.
	{name: "(*handler.queue).work"},
	{name: "(*handler.Dispatcher).run", asks: [][]string{
		{"(*handler.Dispatcher).decide", "(*pipeline/workflow.Workflows).Decide"},
	}},
	{name: "(*handler.Dispatcher).attempt", asks: [][]string{{"(*pipeline/workflow.Workflows).Shape"}}},
	{name: "(*handler/send.Sender).Run"},
}

// TestPathIsPlainCalls walks the path through the sources.
func TestPathIsPlainCalls(t *testing.T) {
	w := loadPath(t, path)
	problems := w.walk(path)
	for _, p := range problems {
		t.Error(p)
	}
	files := slices.Sorted(maps.Keys(w.files))
	if len(files) > maxPathFiles {
		t.Errorf("the path has %d files, want %d at most:\n%s", len(files), maxPathFiles, strings.Join(files, "\n"))
	}
	t.Logf("%d files:\n%s", len(files), strings.Join(files, "\n"))
}

// function is one of the sources, with the types of its package.
type function struct {
	decl *ast.FuncDecl
	info *types.Info
	file string
}

// walker has the functions of the packages on the path, by name.
type walker struct {
	functions map[string]function
	files     map[string]bool // of the steps that walk has met
}

// walk returns what is wrong with a path.
func (w *walker) walk(path []step) (problems []string) {
	w.files = map[string]bool{}
	for i, s := range path {
		problems = append(problems, w.visit(s.name)...)
		for _, chain := range s.through {
			problems = append(problems, w.chain(s.name, chain, true)...)
		}
		for _, chain := range s.asks {
			problems = append(problems, w.chain(s.name, chain, false)...)
		}
		switch {
		case i == len(path)-1:
		case s.queue == "":
			problems = append(problems, w.call(s.name, path[i+1].name)...)
		default:
			for _, name := range []string{s.name, s.taker} {
				if f, ok := w.functions[name]; !ok || !usesField(f, s.queue) {
					problems = append(problems, fmt.Sprintf("%s does not use %s, by which the event is handed over", name, s.queue))
				}
			}
		}
	}
	return problems
}

func (w *walker) chain(from string, chain []string, counted bool) (problems []string) {
	for _, name := range chain {
		if counted {
			problems = append(problems, w.visit(name)...)
		}
		problems = append(problems, w.call(from, name)...)
		from = name
	}
	return problems
}

// visit counts a step's file.
func (w *walker) visit(name string) []string {
	f, ok := w.functions[name]
	if !ok {
		return []string{fmt.Sprintf("there is no function %s: has it another name now?", name)}
	}
	w.files[f.file] = true
	return nil
}

// call checks that a function calls another one itself.
func (w *walker) call(from, to string) []string {
	f, ok := w.functions[from]
	if !ok || !calls(f, to) {
		return []string{fmt.Sprintf("%s does not call %s by its name: go-to-definition stops here", from, to)}
	}
	return nil
}

// calls reports whether a function has a call of another one, outside of function literals. A call through an
// interface, or of a variable, is another object and does not count.
func calls(f function, name string) (found bool) {
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			var id *ast.Ident
			switch fun := ast.Unparen(n.Fun).(type) {
			case *ast.Ident:
				id = fun
			case *ast.SelectorExpr:
				id = fun.Sel
			default:
				return true
			}
			if callee, ok := f.info.Uses[id].(*types.Func); ok && shortName(callee) == name {
				found = true
			}
		}
		return true
	})
	return found
}

// usesField reports whether a function refers to a field, given as package.type.field.
func usesField(f function, field string) (found bool) {
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		selection := f.info.Selections[sel]
		if selection == nil || selection.Kind() != types.FieldVal {
			return true
		}
		of := selection.Recv()
		if p, ok := of.(*types.Pointer); ok {
			of = p.Elem()
		}
		if strings.TrimPrefix(types.TypeString(of, nil), module)+"."+sel.Sel.Name == field {
			found = true
		}
		return true
	})
	return found
}

// shortName is a function's full name without the module.
func shortName(f *types.Func) string { return strings.Replace(f.FullName(), module, "", 1) }

// loadPath type-checks the packages of a path from their sources. What they import comes from the compiler.
func loadPath(t *testing.T, path []step) *walker {
	t.Helper()
	wanted := map[string]bool{}
	for _, s := range path {
		names := []string{s.name}
		for _, chain := range append(slices.Clone(s.through), s.asks...) {
			names = append(names, chain...)
		}
		for _, name := range names {
			name = strings.TrimPrefix(name, "(*")
			wanted["../"+name[:strings.LastIndex(name[:strings.Index(name, ").")], ".")]] = true
		}
	}
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"},
		slices.Sorted(maps.Keys(wanted))...)
	cmd := exec.Command("go", args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &complaints)
	}
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	exports := map[string]string{}
	var ours []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if name, ok := strings.CutPrefix(p.ImportPath, module); ok && wanted["../"+name] {
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	w := &walker{functions: map[string]function{}}
	for _, p := range ours {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		if err := w.add(fset, p.ImportPath, files, imports); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// add type-checks a package and takes its functions.
func (w *walker) add(fset *token.FileSet, path string, files []*ast.File, imports types.Importer) error {
	info := &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	if _, err := (&types.Config{Importer: imports}).Check(path, fset, files, info); err != nil {
		return fmt.Errorf("check types of %s: %w", path, err)
	}
	for _, f := range files {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || decl.Body == nil {
				continue
			}
			name := filepath.Base(fset.Position(decl.Pos()).Filename)
			w.functions[shortName(info.Defs[decl.Name].(*types.Func))] = function{
				decl: decl, info: info, file: strings.TrimPrefix(path, module) + "/" + name,
			}
		}
	}
	return nil
}

// TestWalk tries the rules on steps that must and must not pass.
func TestWalk(t *testing.T) {
	const source = `package p
type caller interface{ next() }
type a struct { b *b; c caller; f func(); queue []int }
type b struct{}
func (b *b) next() {}
func (x *a) plain() { x.b.next() }
func (x *a) throughInterface() { x.c.next() }
func (x *a) throughVariable() { x.f() }
func (x *a) closure() { x.take(func() { x.b.next() }) }
func (x *a) methodValue() { x.take(x.b.next) }
func (x *a) take(f func()) { f() }
func (x *a) fill() { x.queue = append(x.queue, 1) }
func (x *a) drain() { x.queue = nil }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	w := &walker{functions: map[string]function{}}
	if err := w.add(fset, module+"p", []*ast.File{f}, nil); err != nil {
		t.Fatal(err)
	}
	next := step{name: "(*p.b).next"}
	for name, tc := range map[string]struct {
		path []step
		want string
	}{
		"call":         {[]step{{name: "(*p.a).plain"}, next}, ""},
		"interface":    {[]step{{name: "(*p.a).throughInterface"}, next}, "does not call (*p.b).next"},
		"variable":     {[]step{{name: "(*p.a).throughVariable"}, next}, "does not call (*p.b).next"},
		"closure":      {[]step{{name: "(*p.a).closure"}, next}, "does not call (*p.b).next"},
		"method value": {[]step{{name: "(*p.a).methodValue"}, next}, "does not call (*p.b).next"},
		"renamed":      {[]step{{name: "(*p.a).gone"}, next}, "there is no function (*p.a).gone"},
		"queue":        {[]step{{name: "(*p.a).fill", queue: "p.a.queue", taker: "(*p.a).drain"}, next}, ""},
		"no queue": {
			[]step{{name: "(*p.a).fill", queue: "p.a.queue", taker: "(*p.a).plain"}, next},
			"(*p.a).plain does not use p.a.queue",
		},
		"through": {[]step{{name: "(*p.a).plain", through: [][]string{{"(*p.a).fill"}}}, next}, "does not call (*p.a).fill"},
		"asks": {
			[]step{{name: "(*p.a).closure", asks: [][]string{{"(*p.a).take", "(*p.a).fill"}}}},
			"(*p.a).take does not call (*p.a).fill",
		},
	} {
		got := strings.Join(w.walk(tc.path), "\n")
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: problems %q, want %q", name, got, tc.want)
		}
	}
}
