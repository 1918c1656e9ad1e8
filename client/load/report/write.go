package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"sync"
)

// Names of the files that Write and Compare make.
const (
	JSONFile       = "report.json"
	HTMLFile       = "report.html"
	ComparisonFile = "comparison.html"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// templates are parsed when the first page is written.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(pageCSS) },
		"script": func() template.JS { return template.JS(pageJS) },
	}).Parse(pageHTML))
})

// Write writes report.json and report.html into a directory, which it creates if needed. The page needs no other file.
func Write(dir string, r *Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	// Each file is written even if the other one fails, so that a long run's result is not lost.
	return errors.Join(writeJSON(filepath.Join(dir, JSONFile), r), writePage(filepath.Join(dir, HTMLFile), "run", newPage(r)))
}

// Read reads the report in a directory that Write has written to, or in a file.
func Read(path string) (*Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, JSONFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read report %s: %w", path, err)
	}
	return r, nil
}

func writeJSON(path string, r *Report) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func writePage(path, name string, content any) error {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, content); err != nil {
		return fmt.Errorf("make page %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
