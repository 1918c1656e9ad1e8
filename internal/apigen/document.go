package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// document is the part of an OpenAPI document that types are made from.
type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	RequestBody body            `json:"requestBody"`
	Responses   map[string]body `json:"responses"`
}

type body struct {
	Content map[string]struct {
		Schema *schema `json:"schema"`
	} `json:"content"`
}

type schema struct {
	Ref                  string     `json:"$ref"`
	Type                 any        `json:"type"` // a string, or that and "null"
	Format               string     `json:"format"`
	Description          string     `json:"description"`
	Enum                 []string   `json:"enum"`
	Items                *schema    `json:"items"`
	AdditionalProperties *schema    `json:"additionalProperties"`
	AnyOf                []*schema  `json:"anyOf"`
	Properties           properties `json:"properties"`
	Required             []string   `json:"required"`
}

// component is the name of the component that a schema refers to, or "".
func (s *schema) component() string { return strings.TrimPrefix(s.Ref, "#/components/schemas/") }

// typ is the type without null.
func (s *schema) typ() string {
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if name, ok := one.(string); ok && name != "null" {
				return name
			}
		}
	}
	return ""
}

// parts are the schemas that a schema is made of.
func (s *schema) parts() []*schema {
	parts := slices.Clone(s.AnyOf)
	for _, p := range s.Properties {
		parts = append(parts, p.schema)
	}
	for _, one := range []*schema{s.Items, s.AdditionalProperties} {
		if one != nil {
			parts = append(parts, one)
		}
	}
	return parts
}

// properties are in the order of the document.
type properties []property

type property struct {
	name   string
	schema *schema
}

func (p *properties) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil { // the brace
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		one := property{name: fmt.Sprint(name), schema: new(schema)}
		if err := dec.Decode(one.schema); err != nil {
			return fmt.Errorf("property %s: %w", one.name, err)
		}
		*p = append(*p, one)
	}
	return nil
}

// reach is what paths refer to.
type reach struct {
	sent, answered map[string]bool // components in requests, and in successful answers
}

// reachable finds the components that belong to the paths with one of some beginnings.
func (d *document) reachable(beginnings []string) reach {
	r := reach{map[string]bool{}, map[string]bool{}}
	for path, methods := range d.Paths {
		if !slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(path, b) }) {
			continue
		}
		for _, op := range methods {
			d.follow(op.RequestBody, r.sent)
			for status, answer := range op.Responses {
				if strings.HasPrefix(status, "2") {
					d.follow(answer, r.answered)
				}
			}
		}
	}
	return r
}

func (d *document) follow(b body, into map[string]bool) {
	for _, content := range b.Content {
		d.add(content.Schema, into)
	}
}

func (d *document) add(s *schema, into map[string]bool) {
	if name := s.component(); name != "" {
		if into[name] {
			return
		}
		into[name] = true
		if s = d.Components.Schemas[name]; s == nil {
			return // component reports it
		}
	}
	for _, part := range s.parts() {
		d.add(part, into)
	}
}

// names are the components in order.
func (r *reach) names() []string {
	all := maps.Clone(r.sent)
	maps.Copy(all, r.answered)
	return slices.Sorted(maps.Keys(all))
}
