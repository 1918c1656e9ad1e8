package ctl

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type entity = resource.Entity

var entityKind = newKind(client.Entities, display[entity]{
	namespace: func(e *entity) string { return e.Metadata.Namespace },
	columns: []cellOf[entity]{
		{column{title: "ID"}, func(e *entity) string { return e.Metadata.Name }},
		{column{title: "Class"}, func(e *entity) string { return e.EntityClass }},
		{column{title: "OS"}, func(e *entity) string { return e.System.OS }},
		{column{title: "Subscriptions", text: true}, func(e *entity) string { return comma(e.Subscriptions) }},
		{column{title: "Seen", right: true, keep: true}, func(e *entity) string { return ageOf(e.LastSeen) }},
		{column{title: "Last Seen", wide: true}, func(e *entity) string { return unixTime(e.LastSeen) }},
	},
	title: func(e *entity) string { return e.Metadata.Name },
	fields: []fieldOf[entity]{
		{label: "Name", text: func(e *entity) string { return e.Metadata.Name }},
		{label: "Entity Class", text: func(e *entity) string { return e.EntityClass }},
		{label: "Subscriptions", text: func(e *entity) string { return commaSpace(e.Subscriptions) }},
		{label: "Labels", text: func(e *entity) string { return pairs(e.Metadata.Labels) },
			unset: func(e *entity) bool { return len(e.Metadata.Labels) == 0 }},
		{label: "Annotations", text: func(e *entity) string { return pairs(e.Metadata.Annotations) },
			unset: func(e *entity) bool { return pairs(e.Metadata.Annotations) == "" }},
		{label: "Last Seen", text: func(e *entity) string { return unixTime(e.LastSeen) }},
		{label: "Hostname", text: func(e *entity) string { return e.System.Hostname }},
		{label: "OS", text: func(e *entity) string { return e.System.OS }},
		{label: "Platform", text: func(e *entity) string { return e.System.Platform }},
		{label: "Platform Family", text: func(e *entity) string { return e.System.PlatformFamily }},
		{label: "Platform Version", text: func(e *entity) string { return e.System.PlatformVersion }},
		{label: "Processes", text: func(e *entity) string { return number(len(e.System.Processes)) },
			unset: func(e *entity) bool { return len(e.System.Processes) == 0 }},
		{label: "Auto-Deregistration", text: func(e *entity) string { return yesNo(e.Deregister) }},
		{label: "TTL", text: func(e *entity) string { return number(e.TTL) }, unset: func(e *entity) bool { return e.TTL == 0 }},
		{label: "Deregistration Handler", text: func(e *entity) string { return e.Deregistration.Handler }},
	},
	addition: agentNow,
	example:  "srv1",
	create: []flagField{
		{flag: "entity-class", short: "c", field: "entity_class", required: true, usage: "class of the entity, for example proxy"},
		{flag: "subscriptions", short: "s", field: "subscriptions", kind: listField, usage: "subscriptions, comma separated"},
	},
	createExamples: `  lapwing entity create router1 --entity-class proxy
  lapwing entity create router2 -c proxy -s network,edge`,
	can: canList | canInfo | canDelete | canCreate | canUpdate,
})

// agentNow is whether the agent of an entity is connected now.
var agentNow = &addition{
	title: "Agent",
	more: func(ctx context.Context, s *invocation, raw json.RawMessage) infoLine {
		e, err := decode[entity](raw)
		if err != nil || e.EntityClass != resource.EntityAgentClass {
			return infoLine{}
		}
		switch connected, known := s.agentConnected(ctx, s.namespace, e.Metadata.Name); {
		case !known:
			return infoLine{}
		case connected:
			return infoLine{"Agent", "connected"}
		}
		return infoLine{"Agent", "not connected"}
	},
}

// pairs returns labels or annotations as key=value, without the record of apply.
func pairs(values map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != resource.LastAppliedAnnotation {
			list = append(list, key+"="+values[key])
		}
	}
	return commaSpace(list)
}

// entityConfigKind is the part of an entity that users define. Files may have it; there is no command for it.
var entityConfigKind = newKind(client.EntityConfigs, display[resource.EntityConfig]{
	title:     func(e *resource.EntityConfig) string { return e.Metadata.Name },
	namespace: func(e *resource.EntityConfig) string { return e.Metadata.Namespace },
})
