package send

import (
	"maps"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// view is the data of templates: the event with Sensu's names (.Check.Name, .Entity.Labels), and shortcuts. It copies
// all that a template could change, and has neither redacted labels nor secrets of the check.
type view struct {
	Timestamp int64
	ID        []byte
	Sequence  int64
	Namespace string
	Entity    *entityView
	Check     *checkView // nil without one
	Metrics   *resource.Metrics
	Pipelines []resource.ResourceReference

	// Name is "entity/check", or only the entity's name without a check.
	Name string
	// Severity is ok, warning, critical or unknown; State is the same in upper case, or RESOLVED.
	Severity, State      string
	Incident, Resolution bool
	// Output is the check's, without blanks around it.
	Output string
	// Data is the mutator's result.
	Data string
	// Delivery is the same at each attempt.
	Delivery string
	Attempt  int
	// Contact is whom an escalation notifies. Its fields are empty if there is none.
	Contact Contact
}

type entityView struct {
	resource.Entity
	resource.ObjectMeta
}

type checkView struct {
	resource.Check
	resource.ObjectMeta
}

func newView(ev *resource.Event, job Job) *view {
	v := &view{
		Timestamp: ev.Timestamp, ID: ev.ID, Sequence: ev.Sequence, Namespace: ev.Entity.Metadata.Namespace,
		Entity: &entityView{Entity: *ev.Entity, ObjectMeta: ev.Entity.Metadata}, Pipelines: ev.Pipelines,
		Name: ev.Entity.Metadata.Name, Severity: "ok", State: "OK", Incident: ev.IsIncident(), Resolution: ev.IsResolution(),
		Data: string(job.Data), Delivery: job.ID, Attempt: max(1, job.Attempt), Contact: job.Contact,
	}
	if ev.Metrics != nil {
		m := *ev.Metrics
		v.Metrics = &m
	}
	v.Entity.ObjectMeta.Labels = redacted(ev.Entity, v.Entity.ObjectMeta.Labels)
	v.Entity.ObjectMeta.Annotations = redacted(ev.Entity, v.Entity.ObjectMeta.Annotations)
	v.Entity.Metadata = v.Entity.ObjectMeta
	if c := ev.Check; c != nil {
		v.Check = &checkView{Check: *c, ObjectMeta: c.Metadata}
		v.Check.EnvVars = resource.RedactVariables(c.EnvVars)
		v.Name += "/" + c.Metadata.Name
		v.Severity = severity(c.Status)
		v.State = strings.ToUpper(v.Severity)
		v.Output = strings.TrimSpace(strings.ToValidUTF8(c.Output, "\uFFFD"))
		if v.Resolution {
			v.State = "RESOLVED"
		}
	}
	return v
}

func redacted(e *resource.Entity, m map[string]string) map[string]string {
	out := maps.Clone(m)
	for key := range out {
		if e.Redacts(key) {
			out[key] = resource.Redacted
		}
	}
	return out
}
