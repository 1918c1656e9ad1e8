package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// noValue is what text/template writes for a key that a map does not have.
const noValue = "<no value>"

var tokenFuncs = template.FuncMap{
	// default is used as {{ .labels.x | default "y" }}: a key that is missing arrives as nil.
	"default": func(fallback, value any) any {
		if value == nil {
			return fallback
		}
		return value
	},
	// assetPath names the environment variable that holds an asset's directory.
	"assetPath": func(name string) string {
		return strings.ToUpper(notAlphanumeric.ReplaceAllString(name, "_")) + "_PATH"
	},
}

var notAlphanumeric = regexp.MustCompile("[^a-zA-Z0-9]+")

// substitute returns in with the tokens ({{ .labels.rack }}) of all its strings replaced by what entity says. Strings
// are found in the JSON form, so what JSON leaves out is lost on the way; in itself does not change.
func substitute[T any](in *T, entity *resource.Entity) (*T, error) {
	document, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if !bytes.Contains(document, []byte("{{")) {
		same := *in
		return &same, nil
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	data, err := tokenData(entity)
	if err != nil {
		return nil, err
	}
	if tree, err = substituteTree("", tree, data); err != nil {
		return nil, err
	}
	if document, err = json.Marshal(tree); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	out := new(T)
	if err := json.Unmarshal(document, out); err != nil {
		return nil, fmt.Errorf("decode what the tokens made: %w", err)
	}
	return out, nil
}

// substituteTree replaces the tokens below node, which is the value of the given field.
func substituteTree(field string, node any, data map[string]any) (any, error) {
	var err error
	switch node := node.(type) {
	case string:
		return substituteString(field, node, data)
	case []any:
		for i := range node {
			if node[i], err = substituteTree(field, node[i], data); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			if node[key], err = substituteTree(key, node[key], data); err != nil {
				return nil, err
			}
		}
	}
	return node, nil
}

func substituteString(field, text string, data map[string]any) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := template.New(field).Funcs(tokenFuncs).Parse(text)
	if err != nil {
		return "", fmt.Errorf("%s: invalid template: %w", field, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("%s: cannot evaluate template: %w", field, err)
	}
	if strings.Contains(b.String(), noValue) {
		// Being strict from the start would leave nothing for "default" to do; now it names the missing token.
		var strict strings.Builder
		if err := t.Option("missingkey=error").Execute(&strict, data); err != nil {
			return "", fmt.Errorf("%s: unmatched token: %w", field, err)
		}
	}
	return b.String(), nil
}

// tokenData is what tokens refer to: the entity by its JSON names and unredacted, with its metadata on the top level.
func tokenData(e *resource.Entity) (map[string]any, error) {
	system, err := json.Marshal(e.System)
	if err != nil {
		return nil, fmt.Errorf("encode system facts: %w", err)
	}
	facts := map[string]any{}
	if err := json.Unmarshal(system, &facts); err != nil {
		return nil, fmt.Errorf("decode system facts: %w", err)
	}
	return map[string]any{
		"name":                e.Metadata.Name,
		"namespace":           e.Metadata.Namespace,
		"labels":              e.Metadata.Labels,
		"annotations":         e.Metadata.Annotations,
		"created_by":          e.Metadata.CreatedBy,
		"entity_class":        e.EntityClass,
		"user":                e.User,
		"subscriptions":       e.Subscriptions,
		"system":              facts,
		"last_seen":           e.LastSeen,
		"deregister":          e.Deregister,
		"deregistration":      map[string]any{"handler": e.Deregistration.Handler},
		"keepalive_handlers":  e.KeepaliveHandlers,
		"redact":              e.Redact,
		"sensu_agent_version": e.SensuAgentVersion,
	}, nil
}
