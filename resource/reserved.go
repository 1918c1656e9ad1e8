package resource

// BackendEntity is the entity of the backend's events about itself, in each namespace. Only the backend reports for it: agents and
// most users could otherwise resolve its alarms.
const BackendEntity = "lapwing-backend"

// AboutBackend reports whether an event is about BackendEntity.
func (e *Event) AboutBackend() bool {
	return e.Entity != nil && e.Entity.Metadata.Name == BackendEntity || e.Check != nil && e.Check.ProxyEntityName == BackendEntity
}
