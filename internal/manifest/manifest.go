// Package manifest reads texts with resources, in the form that "dump" writes and "create -f" reads. It splits a text into
// its documents, knows the line of each field, and compares fields with a Go type, so that misspelt ones are found.
// The client's commands and the copy of another system use it. It knows nothing of kinds: callers decide what a document
// must have.
package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Document is one resource in a text.
type Document struct {
	Source string // name of the text
	JSON   json.RawMessage

	text   []byte // as it is in the source
	before int    // lines of the source before text
	at     *Place // once it was asked for
}

// OfJSON returns a document in JSON, the first of its source.
func OfJSON(source string, text json.RawMessage) *Document {
	return &Document{Source: source, JSON: text, text: text}
}

// Line returns the document's first line that is neither blank nor a comment.
func (d *Document) Line() int {
	n := d.before + 1
	for line := range bytes.Lines(d.text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return n
		}
		n++
	}
	return d.before + 1
}

// At returns the places of the document's fields.
func (d *Document) At() *Place {
	if d.at == nil {
		if json.Valid(d.text) {
			d.at = jsonPlaces(d.text, d.before)
		} else {
			d.at = yamlPlaces(d.text, d.before)
		}
	}
	return d.at
}

// LineOf returns the line of a field that has a path of the server's, such as subdues[0].begin; without the field, that of
// what it would be in.
func (d *Document) LineOf(field string) int {
	if field == "" {
		return d.Line()
	}
	var steps []any
	if field != "metadata" && !strings.HasPrefix(field, "metadata.") {
		steps = append(steps, "spec")
	}
	for _, part := range strings.Split(field, ".") {
		key, rest, _ := strings.Cut(part, "[")
		steps = append(steps, key)
		if i, err := strconv.Atoi(strings.TrimSuffix(rest, "]")); err == nil {
			steps = append(steps, i)
		}
	}
	return d.At().Find(steps).Line
}

// SyntaxError is a part of a text that cannot be read.
type SyntaxError struct {
	Line int
	Text string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d: it is neither YAML nor JSON: %s", e.Line, e.Text)
}

// Split returns the documents of a text, and what cannot be read. YAML is split at lines of ---; each part may be several
// JSON objects, one after the other.
func Split(source string, text []byte) (documents []*Document, wrong []*SyntaxError) {
	before := 0
	for _, part := range splitYAML(text) {
		objects, err := splitPart(source, part, before)
		if err != nil {
			wrong = append(wrong, err)
		}
		documents = append(documents, objects...)
		before += bytes.Count(part, []byte("\n"))
	}
	return documents, wrong
}

func splitPart(source string, part []byte, before int) ([]*Document, *SyntaxError) {
	if bytes.HasPrefix(bytes.TrimSpace(part), []byte("{")) {
		if objects, err := splitJSON(source, part, before); err == nil {
			return objects, nil
		}
		// It may still be YAML: {type: CheckConfig} is an object too.
	}
	object, err := yaml.YAMLToJSON(part)
	switch {
	case err != nil:
		return nil, syntaxError(before, err)
	case string(object) == "null": // only comments
		return nil, nil
	}
	return []*Document{{Source: source, JSON: object, text: part, before: before}}, nil
}

// yamlLine is how the reader of YAML names the line of an error.
var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?(?:yaml: )?(?:unmarshal errors:\s+)?(?:line (\d+): )?`)

func syntaxError(before int, err error) *SyntaxError {
	text := err.Error()
	found := yamlLine.FindStringSubmatch(text)
	line := 1
	if found[1] != "" {
		line, _ = strconv.Atoi(found[1])
	}
	return &SyntaxError{before + line, text[len(found[0]):]}
}

// splitYAML splits at document markers: lines that begin with ---, alone or before a blank and the document's
// beginning.
func splitYAML(text []byte) (parts [][]byte) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	begin, at := 0, 0
	for line := range bytes.Lines(text) {
		rest, marker := bytes.CutPrefix(line, []byte("---"))
		if marker && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			parts = append(parts, text[begin:at])
			begin = at + len(line) - len(rest)
		}
		at += len(line)
	}
	return append(parts, text[begin:])
}

func splitJSON(source string, text []byte, before int) (out []*Document, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	counted := 0
	for {
		var object json.RawMessage
		switch err := dec.Decode(&object); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		}
		start := int(dec.InputOffset()) - len(object)
		before += bytes.Count(text[counted:start], []byte("\n"))
		counted = start
		out = append(out, &Document{Source: source, JSON: object, text: object, before: before})
	}
}
