package resource

// BackendEntity is the entity of the backend's own events, in each namespace. Only the backend reports for it:
// otherwise agents and most users could resolve its alarms.
const BackendEntity = "lapwing-backend"

// AboutBackend reports whether an event is about BackendEntity.
func (e *Event) AboutBackend() bool {
	return e.Entity != nil && e.Entity.Metadata.Name == BackendEntity || e.Check != nil && e.Check.ProxyEntityName == BackendEntity
}
