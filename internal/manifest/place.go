package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Place says where a value of a document is in its file: at the line of its key or, without one, of the value.
type Place struct {
	Line   int
	Fields map[string]*Place
	items  []*Place
	twice  []Repeated
}

// Repeated is a key that an object has a second time.
type Repeated struct {
	Key         string
	Line, First int
}

// Find returns the place of a field or item, or the nearest place around it if it is not known.
func (p *Place) Find(steps []any) *Place {
	for _, step := range steps {
		var next *Place
		switch step := step.(type) {
		case string:
			next = p.Fields[step]
		case int:
			if step >= 0 && step < len(p.items) { // a server may have named it
				next = p.items[step]
			}
		}
		if next == nil {
			return p
		}
		p = next
	}
	return p
}

// EachTwice calls f for all keys that objects have a second time, with the path of each.
func (p *Place) EachTwice(path string, f func(path string, twice Repeated)) {
	for _, t := range p.twice {
		f(FieldPath(path, t.Key), t)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Fields)) {
		p.Fields[key].EachTwice(FieldPath(path, key), f)
	}
	for i, item := range p.items {
		item.EachTwice(fmt.Sprintf("%s[%d]", path, i), f)
	}
}

func (p *Place) add(key string, of *Place) {
	if was, again := p.Fields[key]; again {
		p.twice = append(p.twice, Repeated{key, of.Line, was.Line})
	}
	if p.Fields == nil {
		p.Fields = map[string]*Place{}
	}
	p.Fields[key] = of
}

// yamlPlaces returns the places in a YAML document that begins after the given number of lines. If this reader of YAML
// refuses it, only the first line is known.
func yamlPlaces(text []byte, before int) *Place {
	first := before + 1 + bytes.Count(text[:len(text)-len(bytes.TrimLeft(text, " \t\r\n"))], []byte("\n"))
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return &Place{Line: first}
	}
	return nodePlace(root.Content[0], before)
}

// nodePlace does not follow aliases: what they stand for has a place of its own.
func nodePlace(node *yaml.Node, before int) *Place {
	p := &Place{Line: before + node.Line}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], nodePlace(node.Content[i+1], before)
			if key.Tag == "!!merge" {
				continue
			}
			value.Line = before + key.Line
			p.add(key.Value, value)
		}
	case yaml.SequenceNode:
		for _, item := range node.Content {
			p.items = append(p.items, nodePlace(item, before))
		}
	}
	return p
}

// jsonPlaces returns the places in a JSON value that begins after the given number of lines. The value must be valid.
func jsonPlaces(text []byte, before int) *Place {
	r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(text)), text: text, line: before + 1}
	r.dec.UseNumber()
	return r.value(r.token())
}

// jsonReader reads the tokens of a text and counts its lines.
type jsonReader struct {
	dec  *json.Decoder
	text []byte
	read int // bytes whose lines are counted
	line int
}

func (r *jsonReader) token() json.Token {
	t, err := r.dec.Token()
	if err != nil {
		return nil
	}
	end := int(r.dec.InputOffset())
	r.line += bytes.Count(r.text[r.read:end], []byte("\n"))
	r.read = end
	return t
}

func (r *jsonReader) value(t json.Token) *Place {
	p := &Place{Line: r.line}
	switch t {
	case json.Delim('{'):
		for r.dec.More() {
			key, ok := r.token().(string)
			if !ok {
				return p
			}
			line := r.line
			value := r.value(r.token())
			value.Line = line
			p.add(key, value)
		}
		r.token()
	case json.Delim('['):
		for r.dec.More() {
			p.items = append(p.items, r.value(r.token()))
		}
		r.token()
	}
	return p
}

// FieldPath appends a key to a path. It quotes a key that looks like a path.
func FieldPath(path, key string) string {
	if key == "" || strings.ContainsAny(key, `.[]" `) {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
