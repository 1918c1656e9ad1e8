package audit

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Change is one field that differs. Path is a JSON pointer (RFC 6901), "" for the whole object. Old is missing for an
// added field, New for a removed one.
type Change struct {
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// hidden replaces a secret. A changed secret still shows as a change.
var hidden = json.RawMessage(`"REDACTED"`)

// Diff returns the differences between two JSON objects, nil for a missing one. Objects are compared field by field,
// other values as a whole.
func Diff(old, new []byte) []Change {
	switch {
	case old == nil && new == nil:
		return nil
	case old == nil:
		return []Change{{New: shown(new)}}
	case new == nil:
		return []Change{{Old: shown(old)}}
	}
	before, after := decode(old), decode(new)
	b, isObject := before.(map[string]any)
	a, ok := after.(map[string]any)
	if !isObject || !ok {
		if equal(before, after) {
			return nil
		}
		return []Change{{Old: shown(old), New: shown(new)}}
	}
	return diffObjects(nil, "", b, a)
}

func diffObjects(changes []Change, path string, before, after map[string]any) []Change {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		old, was := before[key]
		new, is := after[key]
		at := path + "/" + pointer.Replace(key)
		if was && is {
			o, isObject := old.(map[string]any)
			if n, ok := new.(map[string]any); ok && isObject {
				changes = diffObjects(changes, at, o, n)
				continue
			}
			if equal(old, new) {
				continue
			}
		}
		c := Change{Path: at}
		if was {
			c.Old = field(key, old)
		}
		if is {
			c.New = field(key, new)
		}
		changes = append(changes, c)
	}
	return changes
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// decode keeps numbers as they were written.
func decode(b []byte) any {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return string(b)
	}
	return v
}

func equal(a, b any) bool { return bytes.Equal(encode(a), encode(b)) }

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

// shown returns a whole value without its secrets.
func shown(b []byte) json.RawMessage { return encode(redacted("", decode(b))) }

// field returns the value of a field without its secrets.
func field(key string, v any) json.RawMessage {
	if s, ok := v.(string); ok && s != "" && secret(key) {
		return hidden
	}
	return encode(redacted(key, v))
}

func redacted(key string, v any) any {
	switch v := v.(type) {
	case string:
		if v != "" && secret(key) {
			return hidden
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = redacted(k, e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = redacted(key, e)
		}
		return out
	}
	return v
}

// secretWords mark a field as a secret when its name contains one of them. They apply to labels and annotations too,
// whose names users choose.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "token", "authorization", "api_key", "apikey", "access_key", "private_key", "credential", "hash", "routing_key", "env_vars"}

// secret reports whether a field of this name holds a secret. Array elements take the name of their field.
func secret(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}
