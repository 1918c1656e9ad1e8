package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// note is something that happened between the changes of a check's state: a notification, or a silence.
type note struct {
	at         time.Time
	what, text string
}

func (n *note) row() []string {
	return []string{n.at.Local().Format(time.DateTime), "", n.what, "", "", n.text}
}

// maxNotes is how many notifications a history shows, the newest.
const maxNotes = 1000

// historyNotes returns the notes of a check from begin to end, newest first. What the user may not see, or the server does
// not have, is left out.
func historyNotes(ctx context.Context, s *invocation, entity, check string, begin, end time.Time) ([]note, error) {
	var notes []note
	about := client.NotificationOptions{
		Entity: entity, Check: check, Since: begin.Format(time.RFC3339Nano), Until: end.Format(time.RFC3339Nano),
	}
	for n, err := range s.client.Notifications(ctx, s.namespace, about, maxNotes) {
		if hidden(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		notes = append(notes, notified(n))
	}
	silences, err := silenceNotes(ctx, s, entity, check, begin, end)
	if err != nil {
		return nil, err
	}
	notes = append(notes, silences...)
	slices.SortStableFunc(notes, func(a, b note) int { return b.at.Compare(a.at) })
	return notes, nil
}

// hidden reports whether an error says that the user may not see something, or that it is not there.
func hidden(err error) bool {
	return errors.Is(err, client.ErrDenied) || errors.Is(err, client.ErrNotFound)
}

func notified(n *client.Notification) note {
	text := n.Handler
	if len(n.Recipients) > 0 {
		text += " to " + strings.Join(n.Recipients, ", ")
	}
	text += ": " + n.Result + replayOf(n)
	if n.Attempt > 1 {
		text += fmt.Sprintf(" (attempt %d)", n.Attempt)
	}
	if n.Error != "" {
		text += ", " + oneLine(n.Error)
	}
	if n.Events > 1 {
		text += fmt.Sprintf(", in a group of %d", n.Events)
	}
	if n.Result != "ok" {
		return note{time.UnixMilli(n.At), "failed", text}
	}
	return note{time.UnixMilli(n.At), "notified", text}
}

// silenceNotes returns who silenced or acknowledged a check: what the audit log has of silences with the names of its entity
// and check, of those that its traces name, and what silences it now.
func silenceNotes(ctx context.Context, s *invocation, entity, check string, begin, end time.Time) (notes []note, err error) {
	own := resource.EntitySubscription(entity)
	known := map[string]bool{}
	names := []string{resource.SilencedName(own, check), resource.SilencedName(own, ""), resource.SilencedName("", check)}
	traced, err := tracedSilences(ctx, s, entity, check)
	if err != nil {
		return nil, err
	}
	for _, name := range traced {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		q := url.Values{
			"resource": {"silenced"}, "name": {name}, "limit": {"1000"}, "since": {begin.Format(time.RFC3339Nano)},
			"until": {end.Format(time.RFC3339Nano)},
		}
		var entries []client.AuditEntry
		path := "/api/lapwing/v1/namespaces/" + url.PathEscape(s.namespace) + "/audit?" + q.Encode()
		err := bare(s.client.Do(ctx, http.MethodGet, path, nil, &entries))
		if errors.Is(err, client.ErrDenied) {
			fmt.Fprintln(s.errOut, "silences and acknowledgements of the past are left out: you may not read the audit log")
		}
		if hidden(err) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("list the audit log: %w", err)
		}
		known[name] = known[name] || len(entries) > 0
		notes = append(append(notes, audited(entries)...), expired(entries, name, end)...)
	}
	ev, err := client.Get(ctx, s.client, client.Events, s.namespace, client.EventName(entity, check))
	if err != nil {
		if hidden(err) {
			err = nil
		}
		return notes, err
	}
	for _, name := range eventCheck(ev).Silenced {
		if known[name] {
			continue
		}
		one, err := client.Get(ctx, s.client, client.Silences, s.namespace, name)
		if hidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if at := time.Unix(one.Begin, 0); !at.Before(begin) && at.Before(end) {
			notes = append(notes, silencedBy(at, one, one.Creator, name))
		}
	}
	return notes, nil
}

// tracedSilences returns the names of the silences that muted the traced events of a check, the newest first. A silence by
// selectors is in no other record of the check once it has ended.
func tracedSilences(ctx context.Context, s *invocation, entity, check string) (names []string, err error) {
	told, err := s.client.Explain(ctx, s.namespace, entity, check, client.ExplainOptions{})
	if err != nil {
		if hidden(err) {
			err = nil
		}
		return nil, err
	}
	for i := range told.Silences {
		names = append(names, told.Silences[i].Name)
	}
	return names, nil
}

// expired returns where a silence ended because its time was over, up to the time end or now. The audit log has no entry
// of that, but has when the silence was to end. Entries are newest first.
func expired(entries []client.AuditEntry, name string, end time.Time) (notes []note) {
	if now := time.Now(); now.Before(end) {
		end = now
	}
	var at int64 // when the silence is to end; 0 is never
	ended := func(until time.Time) {
		if t := time.Unix(at, 0); at != 0 && !t.After(until) {
			notes = append(notes, note{t, "unsilenced", "silence " + name + " ended (expired)"})
			at = 0
		}
	}
	for _, e := range slices.Backward(entries) {
		ended(e.Time)
		if e.Action == "delete" {
			at = 0
		}
		for _, c := range e.Changes {
			switch {
			case c.Path == "/expire_at":
				at = 0 // unless it is set
				_ = json.Unmarshal(c.New, &at)
			case c.Path == "" && e.Action != "delete":
				var one resource.Silenced
				_ = json.Unmarshal(c.New, &one)
				at = one.ExpireAt
			}
		}
	}
	ended(end)
	return notes
}

// audited returns what the changes of a silence did. Entries are newest first.
func audited(entries []client.AuditEntry) (notes []note) {
	var one resource.Silenced // as it was after a change, as far as it is shown
	for _, e := range slices.Backward(entries) {
		for _, c := range e.Changes {
			switch { // what cannot be read is not shown
			case c.Path == "" && e.Action == "delete":
				_ = json.Unmarshal(c.Old, &one)
			case c.Path == "":
				one = resource.Silenced{}
				_ = json.Unmarshal(c.New, &one)
			case c.Path == "/reason":
				one.Reason = ""
				_ = json.Unmarshal(c.New, &one.Reason)
			}
		}
		if e.Action != "delete" {
			n := silencedBy(e.Time, &one, e.User, e.Name)
			if e.Action == "update" {
				n.what, n.text = "changed", n.what+" "+n.text
			} else if one.Begin > e.Time.Unix() {
				n.text += " (from " + time.Unix(one.Begin, 0).Local().Format(time.DateTime) + ")"
			}
			notes = append(notes, n)
			continue
		}
		n := note{e.Time, "unsilenced", "by " + cmp.Or(e.User, "lapwing") + ": " + e.Name}
		if one.Acknowledgement {
			n.what, n.text = "unacknowledged", "by "+cmp.Or(e.User, "lapwing")
		}
		notes = append(notes, n)
	}
	return notes
}

func silencedBy(at time.Time, one *resource.Silenced, by, name string) note {
	n := note{at, "silenced", "by " + by + ": " + name}
	if one.Acknowledgement {
		n.what, n.text = "acknowledged", "by "+by
	}
	if one.Reason != "" {
		n.text += ": " + oneLine(one.Reason)
	}
	return n
}
