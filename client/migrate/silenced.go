package migrate

import (
	"context"
	"maps"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/client"
)

var silencedKind = of(client.Silences.Kind, func(k *kind) {
	k.normal = func(tree map[string]any) {
		delete(tree, "creator") // who wrote it, for every server
		delete(tree, "expire")  // expire_at says it
		// A name may be derived, and "*" be written as nothing.
		delete(sub(tree, "metadata"), "name")
		for _, field := range []string{"check", "subscription"} {
			if tree[field] == "*" {
				delete(tree, field)
			}
		}
	}
	k.leave = func(m *migration, o *object) (reason, hint string) {
		if end := integer(o.body, "expire_at"); end > 0 && end <= m.Now().Unix() {
			return "it has ended", ""
		}
		return "", ""
	}
	k.foresee = func(m *migration, o *object, _ *summary) {
		if creator := text(o.body, "creator"); creator != "" && creator != m.TargetUser {
			m.rec.remark(Lost, o.kind.Type, "their creator is now who ran this", "", o.label()+" was created by "+creator)
		}
	}
	k.write = writeSilenced
})

func endsOnResolve(o *object) bool { return o.body["expire_on_resolve"] == true }

// writeSilenced sends a silence that ends when that of the source does, also if only a default of the source says when.
func writeSilenced(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error) {
	body := maps.Clone(o.body)
	if begin, end := integer(body, "begin"), integer(body, "expire_at"); begin+integer(body, "expire") != end {
		delete(body, "expire") // it would count for more than expire_at
	}
	if old == nil {
		return "", "", m.Target.Do(ctx, http.MethodPost, o.kind.Path(o.namespace, ""), body, nil)
	}
	return "", "", m.Target.Do(ctx, http.MethodPut, o.path(), body, nil)
}
