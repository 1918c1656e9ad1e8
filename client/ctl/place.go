package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// place says where a value of a document is in its file: at the line of its key or, without one, of the value.
type place struct {
	line   int
	fields map[string]*place
	items  []*place
	twice  []repeated
}

// repeated is a key that an object has a second time.
type repeated struct {
	key         string
	line, first int
}

// find returns the place of a field or item, or the nearest place around it if it is not known.
func (p *place) find(steps []any) *place {
	for _, step := range steps {
		var next *place
		switch step := step.(type) {
		case string:
			next = p.fields[step]
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

// eachTwice calls f for all keys that objects have a second time, with the path of each.
func (p *place) eachTwice(path string, f func(path string, twice repeated)) {
	for _, t := range p.twice {
		f(fieldPath(path, t.key), t)
	}
	for _, key := range slices.Sorted(maps.Keys(p.fields)) {
		p.fields[key].eachTwice(fieldPath(path, key), f)
	}
	for i, item := range p.items {
		item.eachTwice(fmt.Sprintf("%s[%d]", path, i), f)
	}
}

func (p *place) add(key string, of *place) {
	if was, again := p.fields[key]; again {
		p.twice = append(p.twice, repeated{key, of.line, was.line})
	}
	if p.fields == nil {
		p.fields = map[string]*place{}
	}
	p.fields[key] = of
}

// yamlPlaces returns the places in a YAML document that begins after the given number of lines. If this reader of YAML
// refuses it, only the first line is known.
func yamlPlaces(text []byte, before int) *place {
	first := before + 1 + bytes.Count(text[:len(text)-len(bytes.TrimLeft(text, " \t\r\n"))], []byte("\n"))
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return &place{line: first}
	}
	return nodePlace(root.Content[0], before)
}

// nodePlace does not follow aliases: what they stand for has a place of its own.
func nodePlace(node *yaml.Node, before int) *place {
	p := &place{line: before + node.Line}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], nodePlace(node.Content[i+1], before)
			if key.Tag == "!!merge" {
				continue
			}
			value.line = before + key.Line
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
func jsonPlaces(text []byte, before int) *place {
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

func (r *jsonReader) value(t json.Token) *place {
	p := &place{line: r.line}
	switch t {
	case json.Delim('{'):
		for r.dec.More() {
			key, ok := r.token().(string)
			if !ok {
				return p
			}
			line := r.line
			value := r.value(r.token())
			value.line = line
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
