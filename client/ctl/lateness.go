package ctl

import (
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

// addition is one more column of lists and one more line of info blocks, about what only lapwing knows. Sensu does not
// have its paths, and the output for Sensu is without it.
type addition struct {
	title string
	// list returns the cells of a list, and one the text for one resource: "" for no line. Both may be nil.
	list func(ctx context.Context, c *client.Client, namespace string, opts client.ListOptions) (cells, error)
	one  func(ctx context.Context, c *client.Client, namespace, name string) (string, error)
	// more returns one more line of the info block, without text for none; it may be nil.
	more func(ctx context.Context, s *invocation, raw json.RawMessage) infoLine
}

// cells returns the text for a resource of a list.
type cells func(raw json.RawMessage) string

// withColumn returns a kind with the addition's column in its tables.
func (s *invocation) withColumn(ctx context.Context, k *kind, namespace string, opts client.ListOptions) *kind {
	if k.addition == nil || k.addition.list == nil || s.format != formatTabular {
		return k
	}
	opts.ChunkSize = 0
	cell, err := k.addition.list(ctx, s.client, namespace, opts)
	if err != nil {
		s.leftOut(k, err)
		return k
	}
	with := *k
	with.columns = append(slices.Clone(k.columns), column{title: k.addition.title})
	with.rows = func(raw json.RawMessage) ([][]string, error) {
		rows, err := k.rows(raw)
		for i := range rows { // behind the other columns, and before the namespace
			rows[i] = slices.Insert(rows[i], len(k.columns), cell(raw))
		}
		return rows, err
	}
	return &with
}

// withLine returns a kind with the addition's lines in the info block of one resource.
func (s *invocation) withLine(ctx context.Context, k *kind, name string, raw json.RawMessage) *kind {
	if k.addition == nil || s.format != formatTabular {
		return k
	}
	text, err := "", error(nil)
	if k.addition.one != nil {
		text, err = k.addition.one(ctx, s.client, s.namespace, name)
	}
	if err != nil {
		s.leftOut(k, err)
	}
	added := []infoLine{{k.addition.title, text}}
	if k.addition.more != nil && err == nil {
		added = append(added, k.addition.more(ctx, s, raw))
	}
	added = slices.DeleteFunc(added, func(l infoLine) bool { return l.text == "" })
	with := *k
	with.info = func(raw json.RawMessage) (shown, error) {
		what, err := k.info(raw)
		if block, ok := what.(*infoBlock); ok {
			block.lines = append(block.lines, added...)
		}
		return what, err
	}
	return &with
}

// leftOut says why the output is without an addition, unless the server does not know it.
func (s *invocation) leftOut(k *kind, err error) {
	if !errors.Is(err, client.ErrNotFound) {
		fmt.Fprintf(s.errOut, "Warning: %q is left out: %v\n", k.addition.title, err)
	}
}

// lastRun is when checks last ran.
var lastRun = &addition{
	title: "Last Run",
	list: func(ctx context.Context, c *client.Client, namespace string, opts client.ListOptions) (cells, error) {
		list, err := c.ChecksLateness(ctx, namespace, opts)
		if err != nil {
			return nil, err
		}
		texts, now := map[resource.Name]string{}, time.Now()
		for i := range list {
			texts[resource.Name{Namespace: list[i].Namespace, Name: list[i].Check}] = lastRunText(&list[i], now)
		}
		return func(raw json.RawMessage) string {
			def, err := decode[check](raw)
			if err != nil {
				return ""
			}
			return texts[resource.NameOf(&def.Metadata)]
		}, nil
	},
	one: func(ctx context.Context, c *client.Client, namespace, name string) (string, error) {
		l, err := c.CheckLateness(ctx, namespace, name)
		if err != nil {
			return "", err
		}
		if l.LastRun == 0 && l.Overdue == 0 {
			if why := neverRan(ctx, c, namespace, name); why != "" {
				return "never ran: " + why, nil
			}
		}
		return lastRunText(l, time.Now()), nil
	},
	more: missingCalendars,
}

// missingCalendars says which calendars of a check count as missing. A check without calendars costs no request.
func missingCalendars(ctx context.Context, s *invocation, raw json.RawMessage) infoLine {
	def, err := decode[check](raw)
	if err != nil || def.Calendars.Empty() {
		return infoLine{}
	}
	var next resource.CheckRuns
	if err := s.client.Do(ctx, http.MethodGet, s.ownPath("checks", def.Metadata.Name, "next")+"?count=1", nil, &next); err != nil {
		return infoLine{} // a server that does not know the question
	}
	return infoLine{"Missing", printable(strings.Join(next.Missing, "; "))}
}

// neverRan says why a check has never run: why it does not run now, or when it will first. It is "" if the server does not tell.
func neverRan(ctx context.Context, c *client.Client, namespace, name string) string {
	path := "/api/lapwing/v1/namespaces/" + url.PathEscape(namespace) + "/checks/" + url.PathEscape(name)
	var targets resource.CheckTargets
	if c.Do(ctx, http.MethodGet, path+"/targets", nil, &targets) != nil {
		return ""
	}
	if len(targets.Now) > 0 {
		return strings.Join(targets.Now, "; ")
	}
	var next resource.CheckRuns
	if c.Do(ctx, http.MethodGet, path+"/next?count=1", nil, &next) != nil || len(next.Runs) == 0 {
		return ""
	}
	if next.Spread {
		return "each lapwing agent runs it at a moment of its own, every " + span(time.Duration(next.Every)*time.Second)
	}
	return "the next run is " + untilOrSince(next.Runs[0])
}

func lastRunText(l *resource.CheckLateness, now time.Time) string {
	var parts []string
	if l.LastRun > 0 {
		parts = append(parts, span(now.Sub(time.Unix(l.LastRun, 0)))+" ago")
	}
	if l.Summary != "" {
		parts = append(parts, l.Summary)
	}
	return strings.Join(parts, ", ")
}

// late says which events should have been followed by others.
var late = &addition{
	title: "Late",
	list: func(ctx context.Context, c *client.Client, namespace string, opts client.ListOptions) (cells, error) {
		list, err := c.EventsLateness(ctx, namespace, opts)
		if err != nil {
			return nil, err
		}
		texts := map[eventKey]string{}
		for _, l := range list {
			texts[eventKey{l.Namespace, l.Entity, l.Check}] = l.Summary
		}
		return func(raw json.RawMessage) string {
			if len(texts) == 0 {
				return ""
			}
			ev, err := decode[event](raw)
			if err != nil {
				return ""
			}
			of := eventEntity(ev).Metadata
			return texts[eventKey{of.Namespace, of.Name, eventCheck(ev).Metadata.Name}]
		}, nil
	},
	one: func(ctx context.Context, c *client.Client, namespace, name string) (string, error) {
		l, err := c.EventLateness(ctx, namespace, name)
		if err != nil {
			return "", err
		}
		return l.Summary, nil
	},
	more: undefinedCheck,
}

// undefinedCheck says that the check of an event was scheduled and is not defined. Its agents send no more results; the event
// may still change, because its time to live ends or another sender updates it.
func undefinedCheck(ctx context.Context, s *invocation, raw json.RawMessage) (line infoLine) {
	ev, err := decode[event](raw)
	if err != nil || !s.checkGone(ctx, ev) {
		return line
	}
	name := eventCheck(ev).Metadata.Name
	return infoLine{"Definition", fmt.Sprintf("check %s is not defined any more; delete its event with: %s", name,
		s.commandLine("event", "delete", eventEntity(ev).Metadata.Name, name))}
}

// checkGone reports whether the check of an event was scheduled and is not defined.
func (s *invocation) checkGone(ctx context.Context, ev *event) bool {
	check := eventCheck(ev)
	if !check.Publish || check.Metadata.Name == "keepalive" {
		return false
	}
	_, err := client.Get(ctx, s.client, client.Checks, s.namespace, check.Metadata.Name)
	return absent(err)
}
