package resource

import "slices"

// Redacts reports whether JSON shows Redacted instead of the value of a label or annotation with this key.
func (e *Entity) Redacts(key string) bool { return redacts(e.Redact, key) }

// Redacts is Entity.Redacts for the entity with this configuration.
func (c *EntityConfig) Redacts(key string) bool { return redacts(c.Redact, key) }

// Redacted returns c as all readers may see it. The JSON of definitions hides nothing; that of whole entities does.
func (c *EntityConfig) Redacted() *EntityConfig {
	out, keys := *c, redactedKeys(c.Redact)
	out.Metadata.Labels, out.Metadata.Annotations = redact(c.Metadata.Labels, keys), redact(c.Metadata.Annotations, keys)
	return &out
}

func redacts(own []string, key string) bool {
	key = redactKey(key)
	if len(own) == 0 {
		return slices.Contains(defaultRedact, key)
	}
	return slices.ContainsFunc(own, func(k string) bool { return redactKey(k) == key })
}
