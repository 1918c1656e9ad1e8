package substitute

import (
	"encoding/json"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Data holds the values for tokens, by their names in JSON.
type Data map[string]any

// Entity returns the data of an agent's entity: unredacted, with its metadata on the top level.
func Entity(e *resource.Entity) (Data, error) {
	system, err := json.Marshal(e.System)
	if err != nil {
		return nil, fmt.Errorf("encode system facts: %w", err)
	}
	facts := map[string]any{}
	if err := json.Unmarshal(system, &facts); err != nil {
		return nil, fmt.Errorf("decode system facts: %w", err)
	}
	data := definition(resource.EntityConfigOf(e))
	data["system"] = facts
	data["last_seen"] = e.LastSeen
	data["sensu_agent_version"] = e.SensuAgentVersion
	return data, nil
}

// EntityConfig returns the data of an entity that a check's proxy requests match. Its metadata is on the top level and
// below "metadata" too; it has no facts about a host.
func EntityConfig(c *resource.EntityConfig) Data {
	data := definition(c)
	data["metadata"] = map[string]any{
		"name":        c.Metadata.Name,
		"namespace":   c.Metadata.Namespace,
		"labels":      c.Metadata.Labels,
		"annotations": c.Metadata.Annotations,
		"created_by":  c.Metadata.CreatedBy,
	}
	return data
}

func definition(c *resource.EntityConfig) Data {
	return Data{
		"name":               c.Metadata.Name,
		"namespace":          c.Metadata.Namespace,
		"labels":             c.Metadata.Labels,
		"annotations":        c.Metadata.Annotations,
		"created_by":         c.Metadata.CreatedBy,
		"entity_class":       c.EntityClass,
		"user":               c.User,
		"subscriptions":      c.Subscriptions,
		"deregister":         c.Deregister,
		"deregistration":     map[string]any{"handler": c.Deregistration.Handler},
		"keepalive_handlers": c.KeepaliveHandlers,
		"redact":             c.Redact,
	}
}
