package resource

// Silenceable has the parts of an event that silences match: the entity and check of the result, the check's
// definition, and whether it fails.
type Silenceable struct {
	Namespace, Entity, Check string
	Status                   uint32
	Config                   *EntityConfig // nil if the entity is not defined
	Traits                   *Traits
	Sum                      uint64 // of the traits, from PeekTraits; 0 if not known
}

// SilenceableOf returns the parts of an event that silences match. The event has a check and an entity; cfg is the
// entity's definition, or nil.
func SilenceableOf(ev *Event, cfg *EntityConfig) *Silenceable {
	m := &ev.Entity.Metadata
	return &Silenceable{
		Namespace: m.Namespace, Entity: m.Name, Check: ev.Check.Metadata.Name, Status: ev.Check.Status,
		Config: cfg, Traits: TraitsOfEvent(ev),
	}
}
