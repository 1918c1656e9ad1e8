package selector

import (
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Event shows an event to selectors. Its labels are its own, its check's and its entity's; the first that has a key
// counts.
func Event(ev *resource.Event) Fields {
	return &event{ev: ev, all: Of("event", ev)}
}

type event struct {
	ev  *resource.Event
	all Fields
}

func (e *event) Field(name string) Value {
	switch name {
	case "event.name":
		return Text(e.name())
	case "event.namespace":
		if e.ev.Entity != nil {
			return Text(e.ev.Entity.Metadata.Namespace)
		}
	case "event.is_silenced", "event.check.is_silenced":
		if e.ev.Check != nil {
			return Bool(e.ev.IsSilenced() || e.ev.Check.IsSilenced)
		}
	case "event.check.env_vars":
		if e.ev.Check != nil {
			return List(resource.RedactVariables(e.ev.Check.EnvVars))
		}
	case "event.is_incident":
		return Bool(e.ev.IsIncident())
	}
	if key, ok := strings.CutPrefix(name, "event.labels."); ok {
		return e.Label(key)
	}
	return e.all.Field(name)
}

// name is the event's name in roles.
func (e *event) name() string {
	var entity, check string
	if e.ev.Entity != nil {
		entity = e.ev.Entity.Metadata.Name
	}
	if e.ev.Check != nil {
		check = e.ev.Check.Metadata.Name
	}
	return entity + "/" + check
}

func (e *event) Label(key string) Value {
	if v, ok := e.ev.Metadata.Labels[key]; ok {
		return Text(v)
	}
	if e.ev.Check != nil {
		if v, ok := e.ev.Check.Metadata.Labels[key]; ok {
			return Text(v)
		}
	}
	if e.ev.Entity == nil {
		return Value{}
	}
	return LabelOf(&e.ev.Entity.Metadata, e.ev.Entity, key)
}

// LabelOf returns a label of an entity, as its readers see it.
func LabelOf(m *resource.ObjectMeta, entity interface{ Redacts(key string) bool }, key string) Value {
	v, ok := m.Labels[key]
	switch {
	case !ok:
		return Value{}
	case entity.Redacts(key):
		return Text(resource.Redacted)
	}
	return Text(v)
}
