package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// silencer is a silence that muted an event, as it is or as the audit log has it.
type silencer struct {
	*silenced
	ended string // how it ended; "" while it is there
}

// text names the silence, its author, its reason and its end.
func (o *silencer) text() string {
	if o.ended == "" {
		return silenceText(o.silenced)
	}
	return silenceTitle(o.silenced) + after(": ", oneLine(o.Reason)) + " (" + o.ended + ")"
}

// notSilenced is the built-in filter that denies what is silenced.
const notSilenced = "not_silenced"

// mutedBy returns the names of the silences because of which a delivery ended, and how many more there were: a trace has the
// first ones.
func (a *account) mutedBy(d *client.Delivery) (names []string, more string) {
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
	if names == nil && d.Verdict == client.VerdictSilenced && a.event != nil {
		// The trace of an earlier release has no names.
		names = eventCheck(a.event).Silenced
	}
	return names, more
}

// mostSilencers bounds the silences that are looked up.
const mostSilencers = 20

// findSilencers looks up the silences that muted the events, each once, those of the newest first. What the user may not see
// stays a name.
func (a *account) findSilencers(ctx context.Context, s *invocation) error {
	a.silencers = map[string]*silencer{}
	all := slices.Clone(a.simulated)
	for i := range a.outcomes {
		all = append(all, a.outcomes[i].Deliveries...)
	}
	for i := range all {
		names, _ := a.mutedBy(&all[i])
		for _, name := range names {
			if _, known := a.silencers[name]; known || len(a.silencers) == mostSilencers {
				continue
			}
			one, err := s.silencer(ctx, name)
			if err != nil {
				return err
			}
			a.silencers[name] = one
		}
	}
	return nil
}

// silencer looks up a silence: the present one or, if it has ended, what the audit log says. It returns nil if the user
// may see neither.
func (s *invocation) silencer(ctx context.Context, name string) (*silencer, error) {
	one, err := client.Get(ctx, s.client, client.Silences, s.namespace, name)
	switch {
	case err == nil:
		return &silencer{silenced: one}, nil
	case errors.Is(err, client.ErrDenied):
		return nil, nil
	case !errors.Is(err, client.ErrNotFound):
		return nil, err
	case s.labelLimits(ctx, "get", client.Silences.Plural, s.namespace) != nil: // it may be there
		return nil, nil
	}
	gone := &silencer{ended: "it is deleted or has expired", silenced: &silenced{}}
	gone.Metadata.Name = name
	q := url.Values{"resource": {"silenced"}, "name": {name}, "limit": {"20"}}
	entries, err := auditEntries(ctx, s, s.ownPath("audit"), q)
	if err != nil {
		if hidden(err) {
			err = nil
		}
		return gone, err
	}
	for i, e := range entries {
		if i == 0 && e.Action == "delete" {
			gone.ended = "deleted by " + cmp.Or(e.User, "lapwing") + " at " + e.Time.Local().Format(time.DateTime)
		}
		for _, c := range e.Changes {
			was := c.New
			if e.Action == "delete" {
				was = c.Old
			}
			if c.Path == "" && json.Unmarshal(was, gone.silenced) == nil {
				return gone, nil
			}
		}
	}
	return gone, nil
}

// withSilences returns a kind with the silences of an event in its info block, each on a line behind Silenced.
// What cannot be looked up stays a name.
func (s *invocation) withSilences(ctx context.Context, k *kind, raw json.RawMessage) *kind {
	ev, err := decode[event](raw)
	if err != nil || len(eventCheck(ev).Silenced) == 0 {
		return k // printing it reports the error
	}
	var lines []infoLine
	for i, name := range eventCheck(ev).Silenced {
		text := "silence " + name
		if err == nil && i < mostSilencers {
			var one *silencer
			if one, err = s.silencer(ctx, name); err != nil {
				fmt.Fprintf(s.errOut, "Warning: silences are shown by their names only: %v\n", err)
			}
			if err == nil && one != nil {
				text = one.text()
			}
		}
		lines = append(lines, infoLine{"Silenced By", text})
	}
	with := *k
	with.info = func(raw json.RawMessage) (shown, error) {
		what, err := k.info(raw)
		if block, ok := what.(*infoBlock); ok {
			at := slices.IndexFunc(block.lines, func(l infoLine) bool { return l.label == "Silenced" })
			block.lines = slices.Insert(block.lines, at+1, lines...)
		}
		return what, err
	}
	return &with
}

// silencedReason says in words which silences muted a delivery, and who made them.
func (a *account) silencedReason(d *client.Delivery) string {
	var parts []string
	names, more := a.mutedBy(d)
	for _, name := range names {
		one, looked := a.silencers[name]
		switch {
		case one == nil && looked:
			parts = append(parts, "silenced by "+name+" (you may not see it, so its author, reason and end are not shown)")
		case one == nil:
			parts = append(parts, "silenced by "+name)
		case one.Acknowledgement:
			parts = append(parts, "acknowledged"+after(" by ", one.Creator)+after(": ", oneLine(one.Reason))+one.endText())
		default:
			parts = append(parts, "silenced by "+name+after(" of ", one.Creator)+after(": ", oneLine(one.Reason))+one.endText())
		}
	}
	if parts == nil {
		return cmp.Or(d.Reason, "it is silenced")
	}
	return "it is " + strings.Join(parts, ", and ") + after(", and by ", more)
}

func (o *silencer) endText() string {
	if o.ended != "" {
		return " (" + o.ended + ")"
	}
	return endText(o.silenced)
}

// nextStep is a command to go on with, and what it is for.
type nextStep struct{ what, line string }

// next returns what an operator may do about the fate of the present event.
func (a *account) next(s *invocation) (steps []nextStep) {
	add := func(what string, words ...string) {
		one := nextStep{what, s.commandLine(words...)}
		if !slices.Contains(steps, one) {
			steps = append(steps, one)
		}
	}
	pair := a.entity + "/" + a.check
	deliveries, simulated := a.simulated, true
	if a.traced() || a.event == nil {
		deliveries, simulated = nil, false
		if len(a.outcomes) > 0 && a.outcomes[0].Status == 0 {
			deliveries = slices.Clone(a.outcomes[0].Deliveries)
		}
		for _, f := range fates(a.incident()) {
			deliveries = append(deliveries, f.alert)
			if f.newest != nil {
				deliveries = append(deliveries, *f.newest)
			}
		}
	}
	for i := range deliveries {
		d := &deliveries[i]
		switch d.Verdict {
		case client.VerdictSilenced:
			a.nextOfSilenced(d, add)
		case client.VerdictFiltered:
			for _, st := range d.Steps {
				if st.Kind == "filter" && st.Verdict == "deny" && st.Expression != "" {
					add("see the filter", "filter", "info", st.Name)
				}
			}
			add("try other definitions on the event", "pipeline", "simulate", "-f", "draft.yaml", "--event", pair)
		case client.VerdictInhibited:
			add("see what it depends on", "event", "dependencies", a.entity, a.check)
		case client.VerdictNoHandler:
			add("see the defined handlers", "handler", "list")
			switch { // lapwing's own events and keepalives are of no check that is defined
			case a.entity == resource.BackendEntity:
				add("give lapwing's own events a handler", "handler", "create", "lapwing", "--type", "set", "--handlers", "HANDLER")
			case a.check == "keepalive":
				add("give keepalives a handler", "handler", "create", "keepalive", "--type", "set", "--handlers", "HANDLER")
			default:
				add("give the check handlers", "check", "set-handlers", a.check, "HANDLER")
			}
		case client.VerdictDead:
			add("see what the handler did not take", "deadletter", "list", "--handler", d.Handler)
			add("send it again when the cause is mended", sendAgain(d.Handler)...)
		case client.VerdictDropped, client.VerdictFailed:
			add("see what would happen now", "pipeline", "simulate", "--event", pair)
		default:
			switch {
			case d.Handler == "":
			case simulated: // its delivery may wait at a backend that did not answer
				add("see whether it waits for the handler", "handler", "waiting", d.Handler)
			case d.Verdict == client.VerdictWaiting:
				add("see what waits for the handler", "handler", "waiting", d.Handler)
			}
			add("see whom handlers told", "notification", "list", "--entity", a.entity, "--check", a.check)
		}
	}
	if a.orphaned {
		add("delete the event of the deleted check", "event", "delete", a.entity, a.check)
	}
	if !a.at.IsZero() {
		around := func(d time.Duration) string { return a.at.Add(d).Format(time.RFC3339) }
		add("see its states, silences and notifications around then", "event", "history", a.entity, a.check,
			"--since", around(-time.Hour), "--until", around(time.Hour))
	}
	if len(steps) == 0 {
		add("see the states of the check over days", "event", "history", a.entity, a.check)
	}
	return steps
}

func (a *account) nextOfSilenced(d *client.Delivery, add func(what string, words ...string)) {
	own := resource.SilencedName(resource.EntitySubscription(a.entity), a.check)
	names, _ := a.mutedBy(d)
	for _, name := range names {
		one := a.silencers[name]
		switch {
		case one != nil && one.ended != "":
			add("see who changed the silence", "audit", "list", "--kind", "silenced", "--name", name)
		case one != nil && one.Acknowledgement:
			add("end the acknowledgement", "event", "unack", a.entity, a.check)
		case name == own:
			add("end the silence", "event", "unsilence", a.entity, a.check)
		default:
			add("end the silence for all its events", "silenced", "delete", name)
		}
	}
}

// printNext writes the next steps.
func printNext(s *invocation, steps []nextStep) {
	fmt.Fprintln(s.out, "\nNext steps:")
	for _, one := range steps {
		fmt.Fprintf(s.out, "  %s: %s\n", one.what, printable(one.line))
	}
}
