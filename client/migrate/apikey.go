package migrate

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/client"
)

var apiKeyKind = of(client.APIKeys.Kind, func(k *kind) {
	k.hidden = true
	k.normal = func(tree map[string]any) {
		delete(tree, "created_at")
		delete(tree, "hash")
	}
	k.find = findAPIKey
	k.write = writeAPIKey
})

// findAPIKey looks for a key in the target by its secret, which is its name in the source. lapwing stores no secrets,
// and lists keys under names that it derives from them.
func findAPIKey(ctx context.Context, m *migration, o *object) (*summary, error) {
	var body json.RawMessage
	err := m.Target.Do(ctx, http.MethodGet, o.path(), nil, &body)
	if isRefusal(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tree, err := decode(body)
	if err != nil {
		return nil, err
	}
	return o.kind.summarize(&object{kind: o.kind, name: o.name, body: tree}), nil
}

// writeAPIKey sends the key itself, so that programs can go on using it.
func writeAPIKey(ctx context.Context, m *migration, o *object, _ *summary) (reason, hint string, err error) {
	err = m.Target.Do(ctx, http.MethodPut, o.path(), o.body, nil)
	if isRefusal(err, http.StatusMethodNotAllowed) {
		return "this lapwing generates keys itself", "Grant new ones with lapwing api-key grant USER.", nil
	}
	return "", "", err
}

// maskedKey returns enough of a key to recognise it, and too little to use it.
func maskedKey(name string) string {
	if len(name) <= 8 {
		return "****"
	}
	return name[:4] + "…"
}
