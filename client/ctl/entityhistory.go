package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// mostHistories bounds the checks whose histories are shown together: each takes two requests.
const mostHistories = 100

// entityHistory is the states of all checks of an entity.
type entityHistory struct {
	begin, end time.Time
	checks     []string
	of         []*history
	changes    []checkChange // of all of them, newest first
}

// checkChange is a change of one of several checks.
type checkChange struct {
	Check string `json:"check"`
	client.StateChange
	lasted time.Duration
}

// showEntityHistory shows the states of all checks of an entity that have an event, from begin to end.
func (s *invocation) showEntityHistory(ctx context.Context, entity string, begin, end time.Time) error {
	h := &entityHistory{begin: begin, end: end, changes: []checkChange{}}
	opts := client.ListOptions{ChunkSize: defaultChunkSize, Entity: entity}
	for ev, err := range client.All(ctx, s.client, client.Events, s.namespace, opts) {
		if err != nil {
			return err
		}
		if ev.Check != nil {
			h.checks = append(h.checks, ev.Check.Metadata.Name)
		}
	}
	switch n := len(h.checks); {
	case n == 0:
		return s.noChecks(ctx, entity)
	case n > mostHistories:
		return hint(fmt.Errorf("entity %s has %d checks, too many for one answer", entity, n),
			"Name one: %s; their names: %s", s.commandLine("event", "history", entity)+" CHECK",
			s.commandLine("event", "list", "--entity", entity))
	}
	slices.Sort(h.checks)
	for _, check := range h.checks {
		one := &history{begin: begin, end: end}
		var err error
		if one.changes, one.before, err = s.client.StateHistory(ctx, s.namespace, entity, check, begin, end); err != nil {
			return err
		}
		h.of = append(h.of, one)
		until := end
		for _, c := range one.changes {
			h.changes = append(h.changes, checkChange{check, c, until.Sub(c.Time)})
			until = c.Time
		}
	}
	slices.SortStableFunc(h.changes, func(a, b checkChange) int { return b.Time.Compare(a.Time) })
	raw, err := jsonOf(h.changes)
	if err != nil {
		return err
	}
	return s.printPlain(raw, func(json.RawMessage) (shown, error) { return h, nil })
}

// noChecks says why there is no history of an entity: its name may be misspelled.
func (s *invocation) noChecks(ctx context.Context, entity string) error {
	_, err := client.Get(ctx, s.client, client.Entities, s.namespace, entity)
	if errors.Is(err, client.ErrNotFound) {
		return hint(reworded(err, "there is no entity %s in namespace %s, and no event of one", entity, s.namespace),
			"See 'lapwing entity list' for the existing ones.")
	}
	if err != nil && !errors.Is(err, client.ErrDenied) {
		return err
	}
	return hint(fmt.Errorf("entity %s has no events in namespace %s", entity, s.namespace),
		"The history outlives an event: name its check, as in %s", s.commandLine("event", "history", entity)+" CHECK")
}

// show prints a band for each check, and below them the changes of all.
func (h *entityHistory) show(s *invocation) error {
	for i, one := range h.of {
		states, _ := one.bands()
		fmt.Fprintf(s.out, "%s  %s\n", bandText(states, s.color), printable(h.checks[i]))
	}
	fmt.Fprintf(s.out, "%s\n\n", bandTimes(h.begin, h.end))
	t := &table{columns: []column{
		{title: "Time"}, {title: "Check", keep: true}, {title: "Lasted", right: true}, {title: "State"},
		{title: "Status", keep: true, color: wordColor}, {title: "Silenced"}, {title: "Output", text: true},
	}}
	for i := range h.changes {
		c := &h.changes[i]
		row := changeRow(&c.StateChange, c.Time.Local().Format(time.DateTime), c.lasted)
		t.rows = append(t.rows, slices.Insert(row, 1, c.Check))
	}
	return t.show(s)
}

// bandText returns a band as it is printed.
func bandText(states []byte, color bool) string {
	if !color {
		return string(states)
	}
	var band strings.Builder
	for _, l := range states {
		band.WriteString(paint(true, cmp.Or(letterColors[l], bold), map[bool]string{true: "·", false: "█"}[l == '-']))
	}
	return band.String()
}

// bandTimes returns the line below bands, with the times at which they begin and end.
func bandTimes(begin, end time.Time) string {
	from, to := begin.Local().Format("2006-01-02 15:04"), end.Local().Format("2006-01-02 15:04")
	return fmt.Sprintf("%s%*s", from, bandWidth-len(from), to)
}
