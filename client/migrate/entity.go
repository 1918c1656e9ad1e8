package migrate

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var entityKind = of(client.Entities.Kind, func(k *kind) {
	k.secrets = true
	k.leave = func(_ *migration, o *object) (reason, hint string) {
		if text(o.body, "entity_class") == resource.EntityBackendClass {
			return "it is a backend of the source", ""
		}
		return "", ""
	}
	k.normal = func(tree map[string]any) {
		// Every server adds the entity's own subscription at some time.
		own := resource.EntitySubscription(text(sub(tree, "metadata"), "name"))
		if subs := texts(tree, "subscriptions"); !slices.Contains(subs, own) {
			list, _ := tree["subscriptions"].([]any)
			tree["subscriptions"] = append(slices.Clip(list), own)
		}
	}
	// The agent reports these fields again with its next keepalive, and a PUT does not change them.
	k.ignore = func(o *object, field string) bool {
		top, _, _ := strings.Cut(field, ".")
		return top == "last_seen" ||
			(top == "system" || top == "sensu_agent_version") && text(o.body, "entity_class") != resource.EntityProxyClass
	}
	k.write = writeEntity
})

// writeEntity makes an entity with POST, because PUT refuses entities that agents manage, or changes it with PUT.
func writeEntity(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error) {
	if old == nil {
		err = m.Target.Do(ctx, http.MethodPost, o.kind.Path(o.namespace, ""), o.body, nil)
	} else {
		err = m.Target.Do(ctx, http.MethodPut, o.path(), o.body, nil)
		if isRefusal(err, http.StatusConflict) {
			return "its agent is connected to lapwing and manages it", "", nil
		}
	}
	return "", "", err
}
