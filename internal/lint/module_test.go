package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/lapwing-monitoring/lapwing"

// root is the module's directory, relative to this package's.
const root = "../.."

// pkg is a package as the go command lists it. Our paths are relative to the module's.
type pkg struct {
	path    string
	Imports []string
	// TestImports are those of all its test files.
	TestImports []string
}

var list = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New("go list: " + err.Error() + "\n" + stderr.String())
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := d.Decode(&p); err == io.EOF {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		path := within(p.ImportPath)
		if strings.Contains(path, "node_modules/") {
			continue
		}
		own := pkg{path: path}
		for _, imported := range p.Imports {
			own.Imports = append(own.Imports, within(imported))
		}
		for _, imported := range append(p.TestImports, p.XTestImports...) {
			own.TestImports = append(own.TestImports, within(imported))
		}
		pkgs = append(pkgs, own)
	}
})

func within(path string) string { return strings.TrimPrefix(path, module+"/") }

// packages lists the module's packages.
func packages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) == 0 {
		t.Fatal("go list found no packages")
	}
	return pkgs
}

// source is one Go file of the module.
type source struct {
	path string // with slashes, relative to the module's directory
	text []byte
	ast  *ast.File
}

func (s *source) test() bool  { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) dir() string { return filepath.ToSlash(filepath.Dir(s.path)) }

var fileSet = token.NewFileSet()

func parse(path string, text []byte) (*source, error) {
	f, err := parser.ParseFile(fileSet, path, text, parser.ParseComments)
	return &source{path: path, text: text, ast: f}, err
}

var read = sync.OnceValues(func() (sources []*source, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted since the directory was read
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), text)
		if err != nil {
			return err
		}
		sources = append(sources, s)
		return nil
	})
	return sources, err
})

// files reads the module's Go files, also those for other systems.
func files(t *testing.T) []*source {
	t.Helper()
	sources, err := read()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// fake is a file for trying a rule.
func fake(t *testing.T, path, text string) *source {
	t.Helper()
	s, err := parse(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// document reads a document of the repository, or skips the test if it is not written yet.
func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no " + path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// same compares the problems found with the wanted ones, each of which is the beginning of one.
func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("problems %q, want %q", got, want)
		return
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("problem %q, want %q", got[i], want[i])
		}
	}
}
