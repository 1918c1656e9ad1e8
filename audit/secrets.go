package audit

import (
	"encoding/json"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// hideSecrets shows the values as readers of the API see them: URLs, headers and bodies of handlers and assets hold
// secrets under names that do not reveal it.
func hideSecrets(changes []Change, kind string, old, new []byte) {
	if len(changes) == 0 {
		return
	}
	before, secretive := readable(kind, old)
	after, _ := readable(kind, new)
	if !secretive {
		return
	}
	for i := range changes {
		c := &changes[i]
		if c.Old != nil {
			c.Old = valueAt(before, c.Path)
		}
		if c.New != nil {
			c.New = valueAt(after, c.Path)
		}
	}
}

// readable is a definition as readers of the API see it, and false for a kind without secrets of its own.
func readable(kind string, text []byte) (v any, secretive bool) {
	switch kind {
	case config.Handlers.String():
		return readableAs(text, (*resource.Handler).Redacted), true
	case config.Checks.String():
		return readableAs(text, (*resource.CheckConfig).Redacted), true
	case config.Mutators.String():
		return readableAs(text, (*resource.Mutator).Redacted), true
	case config.Assets.String():
		return readableAs(text, (*resource.Asset).Redacted), true
	case config.PostgresConfigs.String():
		return readableAs(text, (*resource.PostgresConfig).Redacted), true
	}
	return nil, false
}

// readableAs returns nil for text that is not such a definition: all of it is hidden then.
func readableAs[T any](text []byte, redacted func(*T) *T) any {
	obj := new(T)
	if text == nil || json.Unmarshal(text, obj) != nil {
		return nil
	}
	shown, err := json.Marshal(redacted(obj))
	if err != nil {
		return nil
	}
	return decode(shown)
}

// valueAt is the value at a JSON pointer, without fields whose names mark them as secret. A missing value is hidden.
func valueAt(v any, path string) json.RawMessage {
	if path == "" && v != nil {
		return encode(redacted("", v))
	}
	key := ""
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		key = unpointer.Replace(part)
		object, ok := v.(map[string]any)
		if !ok {
			return hidden
		}
		if v, ok = object[key]; !ok {
			return hidden
		}
	}
	return field(key, v)
}

var unpointer = strings.NewReplacer("~1", "/", "~0", "~")
