package explain

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/words"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Silence is a silence that muted an event, as it is or as the audit log has it.
type Silence struct {
	Name string `json:"name"`
	// Text names it, its author, its reason and its end.
	Text string `json:"text"`
	// Ended says how it ended; "" while it is there.
	Ended string `json:"ended,omitempty"`
	// Silence is the whole of it; null if you may not see it.
	Silence *resource.Silenced `json:"silence"`
}

// notSilenced is the built-in filter that denies what is silenced.
const notSilenced = "not_silenced"

// mutedBy returns the names of the silences because of which a delivery ended, and how many more there were: a trace has the
// first ones.
func (a *Account) mutedBy(d *trace.Delivery) (names []string, more string) {
	for _, st := range d.Steps {
		if st.Name != notSilenced || st.Verdict != "deny" {
			continue
		}
		for _, v := range st.Saw {
			var list string
			list, more, _ = strings.Cut(strings.Trim(v.Value, "[]"), " and ") // "and 3 more"
			for name := range strings.SplitSeq(list, ", ") {
				if v.Name == "event.check.silenced" && name != "" {
					names = append(names, name)
				}
			}
		}
	}
	if names == nil && d.Verdict == trace.Silenced && a.Event != nil {
		// The trace of an earlier release has no names.
		names = a.Event.Check.Silenced
	}
	return names, more
}

// mostSilences bounds the silences that are looked up.
const mostSilences = 20

// Muters returns the names of the silences that muted the events, each once, those of the newest first, up to a bound.
func (a *Account) Muters() (names []string) {
	add := func(list []trace.Delivery) {
		for i := range list {
			muted, _ := a.mutedBy(&list[i])
			for _, name := range muted {
				if len(names) < mostSilences && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	add(a.Simulated)
	for i := range a.Outcomes {
		add(a.Outcomes[i].Deliveries)
	}
	return names
}

// silencedReason says in words which silences muted a delivery, and who made them.
func (a *Account) silencedReason(d *trace.Delivery) string {
	var parts []string
	names, more := a.mutedBy(d)
	for _, name := range names {
		one, looked := a.Silences[name]
		switch {
		case looked && one == nil:
			parts = append(parts, "silenced by "+name+" (you may not see it, so its author, reason and end are not shown)")
		case one == nil:
			parts = append(parts, "silenced by "+name)
		case one.Silence.Acknowledgement:
			parts = append(parts, "acknowledged"+words.After(" by ", one.Silence.Creator)+words.After(": ", words.OneLine(one.Silence.Reason))+a.end(one))
		default:
			parts = append(parts, "silenced by "+name+words.After(" of ", one.Silence.Creator)+words.After(": ", words.OneLine(one.Silence.Reason))+a.end(one))
		}
	}
	if parts == nil {
		return cmp.Or(said(d), "it is silenced")
	}
	return "it is " + strings.Join(parts, ", and ") + words.After(", and by ", more)
}

// end says in brackets when a silence ends, or how it has ended.
func (a *Account) end(one *Silence) string {
	if one.Ended != "" {
		return " (" + one.Ended + ")"
	}
	return words.SilenceEnds(one.Silence, a.Now)
}

// text names a silence, its author, its reason and its end.
func (a *Account) text(one *Silence) string {
	return words.SilenceTitle(one.Silence) + words.After(": ", words.OneLine(one.Silence.Reason)) + a.end(one)
}
