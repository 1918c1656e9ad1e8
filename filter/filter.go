// Package filter decides whether an event may go on to a handler.
//
// The built-in filters have reserved names. They look at a few facts that are known of every event without decoding it, so
// package pipeline can ask them before it does anything that costs. Those that users define are JavaScript, in the
// environment that Sensu gives them. Engine asks them within bounds: an expression that is out of time is interrupted or
// left behind, and a filter whose expressions are slow is suspended for the rest of the minute.
package filter

// Facts is what the filters may know of an event.
type Facts struct {
	// Incident says that the event's check is not OK, Resolution that it is OK and was not at its result before. An
	// event without a check is neither.
	Incident, Resolution bool
	// Silenced says that silences apply to the event's check.
	Silenced bool
	// HasMetrics says that the event brings metrics.
	HasMetrics bool
}

// Func says whether an event with these facts passes.
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

// IsIncident passes incidents and their resolutions.
func IsIncident(f Facts) bool { return f.Incident || f.Resolution }

// NotSilenced passes events that no silence applies to. One without a check cannot be silenced.
func NotSilenced(f Facts) bool { return !f.Silenced }

// HasMetrics passes events with metrics.
func HasMetrics(f Facts) bool { return f.HasMetrics }
