package resource

// Silenceable is an event as silences see it: whose result it is of what, how its check is defined, and whether it fails.
type Silenceable struct {
	Namespace, Entity, Check string
	Status                   uint32
	Config                   *EntityConfig // nil if the entity is not defined
	Traits                   *Traits
	Sum                      uint64 // of the traits, as PeekTraits gives it; 0 if it is not known
}

// SilenceableOf is what silences see of an event with a check and an entity, whose definition is given if there is one.
func SilenceableOf(ev *Event, cfg *EntityConfig) *Silenceable {
	m := &ev.Entity.Metadata
	return &Silenceable{
		Namespace: m.Namespace, Entity: m.Name, Check: ev.Check.Metadata.Name, Status: ev.Check.Status,
		Config: cfg, Traits: TraitsOfEvent(ev),
	}
}
