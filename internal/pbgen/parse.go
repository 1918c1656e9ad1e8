package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A kind says how a field is encoded.
type kind int

const (
	kindString     kind = iota // string
	kindBytes                  // []byte
	kindBool                   // bool
	kindVarint                 // int32, int64, uint32
	kindDouble                 // float64
	kindMessage                // T
	kindPointer                // *T
	kindStrings                // []string
	kindMessages               // []T
	kindPointers               // []*T
	kindStringMap              // map[string]string
	kindMessageMap             // map[string]T
)

type field struct {
	name   string
	num    int
	kind   kind
	typ    string // the scalar's or message's Go type
	always bool   // a message that is written even when empty
}

type message struct {
	name   string
	fields []field // by number
}

type pkg struct {
	name     string
	messages []message // in file and source order
}

// parse collects the tagged structs of the package in dir. It skips tests and generated files.
func parse(dir string) (*pkg, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	p := new(pkg)
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".gen.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		p.name = f.Name.Name
		for _, decl := range f.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				ts := spec.(*ast.TypeSpec)
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				m, err := parseStruct(ts.Name.Name, st)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", fset.Position(ts.Pos()), err)
				}
				if len(m.fields) > 0 {
					p.messages = append(p.messages, m)
				}
			}
		}
	}
	if len(p.messages) == 0 {
		return nil, fmt.Errorf("no pb tags in %s", dir)
	}
	return p, p.check()
}

func parseStruct(name string, st *ast.StructType) (message, error) {
	m := message{name: name}
	for _, f := range st.Fields.List {
		if f.Tag == nil {
			continue
		}
		text, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return m, fmt.Errorf("%s: tag %s: %w", name, f.Tag.Value, err)
		}
		tag, ok := reflect.StructTag(text).Lookup("pb")
		if !ok {
			continue
		}
		num, option, _ := strings.Cut(tag, ",")
		n, err := strconv.Atoi(num)
		if err != nil || n < 1 || option != "" && option != "always" {
			return m, fmt.Errorf("%s: bad tag pb:%q", name, tag)
		}
		kind, typ, err := kindOf(f.Type)
		if err != nil {
			return m, fmt.Errorf("%s field %d: %w", name, n, err)
		}
		// A message that is not a pointer cannot be absent.
		if (option == "always") != (kind == kindMessage) {
			return m, fmt.Errorf("%s field %d: always is for messages held by value, and they need it", name, n)
		}
		names := f.Names
		if names == nil { // embedded: the field is named after its type
			names = []*ast.Ident{{Name: typ}}
		}
		if len(names) != 1 {
			return m, fmt.Errorf("%s field %d: several fields share a tag", name, n)
		}
		m.fields = append(m.fields, field{name: names[0].Name, num: n, kind: kind, typ: typ, always: option == "always"})
	}
	slices.SortFunc(m.fields, func(a, b field) int { return cmp.Compare(a.num, b.num) })
	for i := 1; i < len(m.fields); i++ {
		if m.fields[i].num == m.fields[i-1].num {
			return m, fmt.Errorf("%s: two fields have number %d", name, m.fields[i].num)
		}
	}
	return m, nil
}

// kindOf returns the encoding of a field's type, and the name of its scalar or message type.
func kindOf(e ast.Expr) (kind, string, error) {
	switch t := e.(type) {
	case *ast.Ident:
		switch t.Name {
		case "string":
			return kindString, t.Name, nil
		case "bool":
			return kindBool, t.Name, nil
		case "int32", "int64", "uint32":
			return kindVarint, t.Name, nil
		case "float64":
			return kindDouble, t.Name, nil
		}
		if ast.IsExported(t.Name) {
			return kindMessage, t.Name, nil
		}
	case *ast.StarExpr:
		if id, ok := t.X.(*ast.Ident); ok && ast.IsExported(id.Name) {
			return kindPointer, id.Name, nil
		}
	case *ast.ArrayType:
		if id, ok := t.Elt.(*ast.Ident); ok && t.Len == nil && id.Name == "byte" {
			return kindBytes, "[]byte", nil
		}
		if k, typ, err := kindOf(t.Elt); err == nil && t.Len == nil {
			switch k {
			case kindString:
				return kindStrings, typ, nil
			case kindMessage:
				return kindMessages, typ, nil
			case kindPointer:
				return kindPointers, typ, nil
			}
		}
	case *ast.MapType:
		if key, ok := t.Key.(*ast.Ident); ok && key.Name == "string" {
			if k, typ, err := kindOf(t.Value); err == nil {
				switch k {
				case kindString:
					return kindStringMap, typ, nil
				case kindMessage:
					return kindMessageMap, typ, nil
				}
			}
		}
	}
	return 0, "", fmt.Errorf("a field of type %T has no protobuf form here", e)
}

// check reports messages that a field needs and that are missing.
func (p *pkg) check() error {
	known := make(map[string]bool)
	for _, m := range p.messages {
		known[m.name] = true
	}
	for _, m := range p.messages {
		for _, f := range m.fields {
			switch f.kind {
			case kindMessage, kindPointer, kindMessages, kindPointers, kindMessageMap:
				if !known[f.typ] {
					return fmt.Errorf("%s.%s: %s has no pb tags", m.name, f.name, f.typ)
				}
			}
		}
	}
	return nil
}
