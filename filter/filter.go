// Package filter evaluates expressions and JavaScript of users: filters that decide whether an event may go on to a
// handler, mutators, and expressions about entities in proxy requests and assets. Packages pipeline and
// pipeline/workflow ask it about events, schedule and asset about entities.
//
// The built-in filters have reserved names. They read a few facts that are known of every event without decoding it
// (Builtin), so pipeline asks them first. Filters that users define are JavaScript in the environment of Sensu's
// (Engine). A Pool runs them in worker processes with bounds on time and memory: they cannot end or block the backend.
// A filter whose expressions are slow is suspended for the rest of the minute. DESIGN.md describes the workers. Which
// filters apply to an event is up to pipeline/workflow.
package filter

// Facts are the properties of an event that built-in filters read.
type Facts struct {
	// Incident says that the event's check is not OK, Resolution that it is OK and its previous result was not. An
	// event without a check is neither.
	Incident, Resolution bool
	// Silenced says that silences apply to the event's check.
	Silenced bool
	// HasMetrics says that the event has metrics.
	HasMetrics bool
}

// Func reports whether an event with these facts passes.
type Func func(Facts) bool

// Builtin finds a filter by its name.
func Builtin(name string) (Func, bool) {
	switch name {
	case "is_incident":
		return IsIncident, true
	case "not_silenced":
		return NotSilenced, true
	case "has_metrics":
		return HasMetrics, true
	}
	return nil, false
}

// Names are the names of all built-in filters: those of Builtin and of NativeFilter.
var Names = []string{"is_incident", "not_silenced", "has_metrics", "fatigue_check", "allow_list"}

// IsIncident passes incidents and resolutions.
func IsIncident(f Facts) bool { return f.Incident || f.Resolution }

// NotSilenced passes events that no silence applies to. An event without a check cannot be silenced.
func NotSilenced(f Facts) bool { return !f.Silenced }

// HasMetrics passes events with metrics.
func HasMetrics(f Facts) bool { return f.HasMetrics }
