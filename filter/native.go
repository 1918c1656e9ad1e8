package filter

import (
	"path"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Native is a built-in filter that reads the whole event. A filter that a user defines under the same name replaces it.
type Native struct {
	// Passes reports whether the event may go on to the named handler.
	Passes func(ev *resource.Event, handler string) bool
	// Saw returns the values that it read.
	Saw func(ev *resource.Event, handler string) []Value
}

// Value is a value that a filter read, as text.
type Value struct{ Name, Value string }

// NativeFilter finds a filter by its name.
func NativeFilter(name string) (Native, bool) {
	switch name {
	case "fatigue_check":
		return Native{Passes: FatigueCheck, Saw: sawFatigue}, true
	case "allow_list":
		return Native{Passes: AllowList, Saw: sawAllowList}, true
	}
	return Native{}, false
}

// fatigue begins the annotations of fatigue_check, which are those of the Sensu asset of that name. An entity's
// annotation precedes a check's.
const fatigue = "fatigue_check/"

// keepaliveCheck is the check of agents' keepalives.
const keepaliveCheck = "keepalive"

type fatigueSettings struct {
	occurrences, interval             int64
	allowResolution, suppressFlapping bool
}

func fatigueOf(ev *resource.Event) fatigueSettings {
	s := fatigueSettings{occurrences: 1, interval: 1800, allowResolution: true, suppressFlapping: true}
	check, entity := ev.Check.Metadata.Annotations, ev.Entity.Metadata.Annotations
	for _, annotations := range [2]map[string]string{check, entity} {
		if len(annotations) == 0 {
			continue
		}
		said(annotations, fatigue+"allow_resolution", &s.allowResolution)
		said(annotations, fatigue+"suppress_flapping", &s.suppressFlapping)
		if ev.Check.Metadata.Name != keepaliveCheck {
			number(annotations, fatigue+"occurrences", &s.occurrences)
			number(annotations, fatigue+"interval", &s.interval)
		}
	}
	if ev.Check.Metadata.Name == keepaliveCheck {
		number(entity, fatigue+"keepalive_occurrences", &s.occurrences)
		number(entity, fatigue+"keepalive_interval", &s.interval)
	}
	return s
}

// said reads an annotation that is true unless it says false.
func said(annotations map[string]string, key string, yes *bool) {
	if text, ok := annotations[key]; ok {
		*yes = !strings.Contains(strings.ToLower(text), "false")
	}
}

func number(annotations map[string]string, key string, n *int64) {
	if text, ok := annotations[key]; ok {
		if read, ok := leadingNumber(text); ok {
			*n = read
		}
	}
}

// leadingNumber reads the number at the start of a text.
func leadingNumber(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || end == 0 && text[end] == '-') {
		end++
	}
	n, err := strconv.ParseInt(text[:end], 10, 64)
	return n, err == nil
}

// FatigueCheck passes an incident at a certain occurrence and then at an interval, and a resolution if the incident
// lasted long enough to pass. It passes nothing that flaps, and all events without a check.
func FatigueCheck(ev *resource.Event, _ string) bool {
	if ev.Check == nil || ev.Entity == nil {
		return true
	}
	s := fatigueOf(ev)
	switch {
	case s.suppressFlapping && ev.Check.State == "flapping":
		return false
	case ev.IsResolution():
		// The asset compares a keepalive with the number for other checks here, and so drops resolutions.
		return s.allowResolution && ev.Check.OccurrencesWatermark >= s.occurrences
	case ev.Check.Occurrences == s.occurrences:
		return true
	case ev.Check.Occurrences < s.occurrences || ev.Check.Interval == 0 || s.interval <= 0:
		return false
	}
	every := (s.interval + int64(ev.Check.Interval) - 1) / int64(ev.Check.Interval)
	return ev.Check.Occurrences%every == 0
}

func sawFatigue(ev *resource.Event, _ string) []Value {
	if ev.Check == nil || ev.Entity == nil {
		return nil
	}
	s := fatigueOf(ev)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []Value{
		{"event.check.occurrences", number(ev.Check.Occurrences)},
		{"event.check.occurrences_watermark", number(ev.Check.OccurrencesWatermark)},
		{"event.check.interval", strconv.FormatUint(uint64(ev.Check.Interval), 10)},
		{"event.check.state", ev.Check.State},
		{fatigue + "occurrences", number(s.occurrences)},
		{fatigue + "interval", number(s.interval)},
		{fatigue + "allow_resolution", strconv.FormatBool(s.allowResolution)},
		{fatigue + "suppress_flapping", strconv.FormatBool(s.suppressFlapping)},
	}
}

// allowList is the annotation with names of handlers.
const allowList = "allow_list/handlers"

// AllowList passes an event to the handlers in its check's and its entity's annotation. Without the annotations it
// passes to all.
func AllowList(ev *resource.Event, handler string) bool {
	if ev.Check != nil {
		if list, ok := ev.Check.Metadata.Annotations[allowList]; ok && !listed(list, handler) {
			return false
		}
	}
	if ev.Entity != nil {
		if list, ok := ev.Entity.Metadata.Annotations[allowList]; ok && !listed(list, handler) {
			return false
		}
	}
	return true
}

func listed(list, handler string) bool {
	for name := range strings.SplitSeq(list, ",") {
		if ok, err := path.Match(strings.TrimSpace(name), handler); ok && err == nil {
			return true
		}
	}
	return false
}

func sawAllowList(ev *resource.Event, handler string) []Value {
	saw := []Value{{"handler", handler}}
	if ev.Check != nil {
		if list, ok := ev.Check.Metadata.Annotations[allowList]; ok {
			saw = append(saw, Value{"event.check.annotations." + allowList, list})
		}
	}
	if ev.Entity != nil {
		if list, ok := ev.Entity.Metadata.Annotations[allowList]; ok {
			saw = append(saw, Value{"event.entity.annotations." + allowList, list})
		}
	}
	return saw
}
