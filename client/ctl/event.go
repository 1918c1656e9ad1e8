package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type event = resource.Event

var eventKind = newKind(client.Events, display[event]{
	args:      []string{"ENTITY", "CHECK"},
	namespace: func(e *event) string { return eventEntity(e).Metadata.Namespace },
	columns: []cellOf[event]{
		{column{title: "Entity"}, func(e *event) string { return eventEntity(e).Metadata.Name }},
		{column{title: "Check", keep: true}, func(e *event) string { return eventCheck(e).Metadata.Name }},
		{column{title: "Output", text: true}, func(e *event) string { return strings.TrimRight(eventCheck(e).Output, "\r\n\t ") }},
		{column{title: "State", keep: true, color: wordColor}, eventState},
		{column{title: "For", right: true, keep: true}, eventFor},
		{column{title: "Silenced", dims: true}, func(e *event) string { return yesNo(eventCheck(e).IsSilenced) }},
		{column{title: "Age", right: true}, func(e *event) string { return ageOf(e.Timestamp) }},
		{column{title: "Status", right: true, wide: true}, func(e *event) string { return number(eventCheck(e).Status) }},
		{column{title: "Timestamp", wide: true}, func(e *event) string { return unixTime(e.Timestamp) }},
		{column{title: "UUID", wide: true}, eventID},
	},
	title: func(e *event) string {
		return eventEntity(e).Metadata.Name + " - " + eventCheck(e).Metadata.Name
	},
	fields: []fieldOf[event]{
		{label: "Entity", text: func(e *event) string { return eventEntity(e).Metadata.Name }},
		{label: "Check", text: func(e *event) string { return eventCheck(e).Metadata.Name }},
		{label: "Output", text: func(e *event) string { return eventCheck(e).Output }},
		{label: "Status", text: func(e *event) string { return stateAndStatus(eventCheck(e).Status) }},
		{label: "History", text: eventHistory},
		{label: "Silenced", text: func(e *event) string { return yesNo(eventCheck(e).IsSilenced) }},
		{label: "Timestamp", text: func(e *event) string { return timeAndAge(e.Timestamp) }},
		{label: "UUID", text: eventID},
	},
	addition: late,
	example:  "srv1 check-cpu",
	can:      canList | canInfo | canDelete,
	extra: []func(*kind) *cobra.Command{
		resolveEventCommand, ackEventCommand, unackEventCommand, dependenciesCommand, traceEventCommand, historyEventCommand,
		silenceEventsCommand, unsilenceEventsCommand,
	},
})

// eventEntity and eventCheck never return nil: an event may have no check, and a broken one no entity.
func eventEntity(e *event) *resource.Entity {
	if e.Entity == nil {
		return new(resource.Entity)
	}
	return e.Entity
}

func eventCheck(e *event) *resource.Check {
	if e.Check == nil {
		return new(resource.Check)
	}
	return e.Check
}

// eventState returns an event's state in words; "" for metrics only.
func eventState(e *event) string {
	if e.Check == nil {
		return ""
	}
	return stateWord(e.Check.Status)
}

// eventFor returns how long a check has failed.
func eventFor(e *event) string {
	if !e.IsIncident() {
		return ""
	}
	return failingOf(e).text(time.Now())
}

func eventHistory(e *event) string {
	var out []string
	for _, h := range eventCheck(e).History {
		out = append(out, number(h.Status))
	}
	return comma(out)
}

func eventID(e *event) string {
	id, err := uuid.FromBytes(e.ID)
	if err != nil {
		return ""
	}
	return id.String()
}

func resolveEventCommand(k *kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resolve ENTITY CHECK",
		Short:   "set an event's status to 0 by hand",
		Example: `  lapwing event resolve srv1 check-cpu`,
		Args:    args("ENTITY", "CHECK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			name := strings.Join(args, "/")
			raw, err := s.get(ctx, k, name)
			if err != nil {
				return err
			}
			resolved, err := resolveEvent(raw, time.Now().Unix())
			if err != nil {
				return fmt.Errorf("resolve event %s: %w", name, err)
			}
			if err := client.Put(ctx, s.client, k.Kind, s.namespace, name, &resolved); err != nil {
				return err
			}
			s.did("Resolved", k, name)
			var ev event
			if err := json.Unmarshal(raw, &ev); err == nil {
				var m muted
				m.add(s.holding(ctx, eventCheck(&ev).Silenced, map[string]held{}))
				m.warn(s)
			}
			return nil
		}),
	}
	return bySelector(cmd, k, action{name: "resolve", verb: "resolve", done: "Resolved"})
}

// resolveEvent returns an event as if its check had just passed.
func resolveEvent(raw json.RawMessage, now int64) (json.RawMessage, error) {
	ev, err := decodeMap(raw)
	if err != nil {
		return nil, err
	}
	check, ok := ev["check"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no check")
	}
	check["status"] = 0
	check["output"] = "Resolved manually by sensuctl" // handlers and filters written for Sensu look for this text
	check["executed"] = now
	ev["timestamp"] = now
	return json.Marshal(ev)
}
