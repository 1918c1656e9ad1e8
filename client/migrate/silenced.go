package migrate

import (
	"cmp"
	"context"
	"maps"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/client"
)

var silencedKind = of(client.Silences.Kind, func(k *kind) {
	k.normal = func(tree map[string]any) {
		delete(tree, "creator") // differs between servers: the user who wrote it
		delete(tree, "expire")  // follows from expire_at
		// A name may be derived, and "*" may be written as "".
		delete(sub(tree, "metadata"), "name")
		for _, field := range []string{"check", "subscription"} {
			if tree[field] == "*" {
				delete(tree, field)
			}
		}
	}
	k.adapt = func(m *migration, o *object) {
		if end := endOf(o, m.started.Unix()); end > 0 && integer(o.body, "expire_at") <= 0 {
			o.dated = true
			setNumber(o.body, "expire_at", end)
		}
		if integer(o.body, "begin") == 0 {
			o.dated = true
			setNumber(o.body, "begin", m.started.Unix())
		}
	}
	// The silence keeps the times of the first run: another run is later.
	k.ignore = func(o *object, field string) bool { return o.dated && (field == "begin" || field == "expire_at") }
	k.leave = func(m *migration, o *object) (reason, hint string) {
		if end := endOf(o, m.Now().Unix()); end > 0 && end <= m.Now().Unix() {
			return "it has ended", ""
		}
		return "", ""
	}
	k.foresee = func(m *migration, o *object, _ *summary) {
		if creator := text(o.body, "creator"); creator != "" && creator != m.TargetUser {
			m.rec.remark(Lost, o.kind.Type, "their creator is now the user of this run", "", o.label()+" was created by "+creator)
		}
	}
	k.write = writeSilenced
})

// endOf returns when a silence ends, in Unix seconds; 0 for never. One that was written by hand may have only how long it lasts,
// from its begin or, without one, from now.
func endOf(o *object, now int64) int64 {
	if end := integer(o.body, "expire_at"); end > 0 {
		return end
	}
	if length := integer(o.body, "expire"); length > 0 {
		return cmp.Or(integer(o.body, "begin"), now) + length
	}
	return 0
}

func endsOnResolve(o *object) bool { return o.body["expire_on_resolve"] == true }

// writeSilenced sends a silence with the end that it has in the source, even if only a default of the source sets that
// end.
func writeSilenced(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error) {
	body := maps.Clone(o.body)
	if begin, end := integer(body, "begin"), integer(body, "expire_at"); end > 0 && begin+integer(body, "expire") != end {
		delete(body, "expire") // the server would use it instead of expire_at
	}
	if old == nil {
		return "", "", m.Target.Do(ctx, http.MethodPost, o.kind.Path(o.namespace, ""), body, nil)
	}
	return "", "", m.Target.Do(ctx, http.MethodPut, o.path(), body, nil)
}
