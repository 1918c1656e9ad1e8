package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// nextRunsCommand shows when a check runs next.
func nextRunsCommand(k *kind) *cobra.Command {
	var count int
	var from, entity string
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "show when a check runs next",
		Long: `Show the next runs of a check, and the pauses between them that its subdues and calendars make, in the time zone of this
computer. A check with an interval runs on each lapwing agent at a moment of its own within the interval: --entity shows those
of one entity's agent. If only one agent runs the check, its moments are shown. If no agent would run the check now, a warning
says why. The exit status is 2 if the entity would not run the check.`,
		Example: "  lapwing check next check-disk\n  lapwing check next check-disk --entity srv1\n" +
			"  lapwing check next nightly-report --from 2026-12-24 -n 20",
		Args: args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			var raw json.RawMessage
			path := fmt.Sprintf("%s?count=%d", s.ownPath("checks", args[0], "next"), count)
			if from != "" {
				at, err := dayOrTime(from)
				if err != nil {
					return fmt.Errorf("--from: %w", err)
				}
				path += fmt.Sprint("&since=", at.Unix())
			}
			if entity != "" {
				path += "&entity=" + url.QueryEscape(entity)
			}
			if err := s.client.Do(ctx, http.MethodGet, path, nil, &raw); err != nil {
				return s.missingTarget(ctx, k, args[0], entity, err)
			}
			r, err := decode[resource.CheckRuns](raw)
			if err != nil {
				return err
			}
			if err := s.printPlain(raw, func(json.RawMessage) (shown, error) { return s.nextRunLines(r), nil }); err != nil {
				return err
			}
			if r.Entity != nil && !r.Entity.Runs {
				return errNo
			}
			return nil
		}),
	}
	cmd.Flags().IntVarP(&count, "count", "n", 5, "number of runs to show, 100 at most")
	cmd.Flags().StringVar(&entity, "entity", "", "show when the agent of this entity runs the check, or why it does not")
	cmd.Flags().StringVar(&from, "from", "", "day, or time as 2026-12-24T08:00, from which on to show runs (default now)")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// lines is text for people.
type lines []string

func (l lines) show(s *invocation) error {
	w := bufio.NewWriter(s.out)
	for _, line := range l {
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// missingTarget explains the error of a question about a check and an entity, whose path is about the check.
func (s *invocation) missingTarget(ctx context.Context, k *kind, check, entity string, err error) error {
	if errors.Is(err, client.ErrNotFound) && strings.Contains(err.Error(), "there is no entity") {
		_, err = client.Get(ctx, s.client, client.Entities, s.namespace, entity) // its path is about the entity
		return hint(reworded(err, "there is no entity %s", entity), "List the entities with: lapwing entity list")
	}
	return missingNamed(k, check, err)
}

func (s *invocation) nextRunLines(r *resource.CheckRuns) lines {
	out := warnings(r.Missing)
	if r.Entity != nil && !r.Entity.Runs {
		return append(out, entityLines(r.Check, r.Entity)...)
	}
	if r.Problem != "" {
		return append(out, "never: "+printable(r.Problem))
	}
	for _, why := range r.Now {
		out = append(out, "warning: it does not run now: "+printable(why)+"; see: "+s.commandLine("check", "targets", r.Check))
	}
	if text := rhythm(r); text != "" {
		out = append(out, text)
	}
	if r.Entity != nil {
		for _, why := range r.Entity.Why {
			out = append(out, "  "+printable(why))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.TimeZones)) {
		if line := zoneLine("calendar", name, r.TimeZones[name]); line != "" {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	pauses := r.Pauses
	for _, at := range r.Runs {
		for ; len(pauses) > 0 && pauses[0].From < at; pauses = pauses[1:] {
			out = append(out, pauseLine(&pauses[0]))
		}
		day := shiftTimeOfDay(at)
		if r.Millis > 0 {
			day = time.Unix(at, r.Millis*int64(time.Millisecond)).Format("Mon 2006-01-02 15:04:05.000 MST")
		}
		out = append(out, fmt.Sprintf("  %s   %s", day, untilOrSince(at)))
	}
	for i := range pauses {
		out = append(out, pauseLine(&pauses[i]))
	}
	if r.Searched > 0 {
		out = append(out, "  no further run up to "+shiftTimeOfDay(r.Searched))
	}
	if r.Spread && r.Entity == nil {
		out = append(out, "times of one host: "+s.commandLine("check", "next", r.Check, "--entity", "NAME"))
	}
	return out
}

// rhythm says how often a check runs, and whose times follow.
func rhythm(r *resource.CheckRuns) string {
	var parts []string
	if r.Every > 0 {
		parts = append(parts, "every "+span(time.Duration(r.Every)*time.Second))
	}
	switch {
	case r.Agent != "":
		parts = append(parts, "the agent "+printable(r.Agent)+" runs it by its own clock, at these times:")
	case r.Entity != nil:
		parts = append(parts, "the backend asks for the runs at these times:")
	case r.Spread:
		parts = append(parts, "each lapwing agent at a moment of its own within it, other agents at these times:")
	}
	return strings.Join(parts, "; ")
}

// warnings returns what a server warns of, one in each line.
func warnings(missing []string) (out lines) {
	for _, one := range missing {
		out = append(out, "warning: "+printable(one))
	}
	return out
}

func pauseLine(p *resource.RunPause) string {
	if p.Until == 0 {
		return fmt.Sprintf("  %s   %s: no run from then on was found", shiftTimeOfDay(p.From), p.Why)
	}
	return fmt.Sprintf("  %s   %s, until %s", shiftTimeOfDay(p.From), p.Why, shiftTimeOfDay(p.Until))
}

// pausedAt returns why a check with an interval does not run at a time, in Unix seconds; "" if it runs or is not defined.
func (s *invocation) pausedAt(ctx context.Context, check string, at int64) string {
	var r resource.CheckRuns
	path := fmt.Sprintf("%s?count=1&since=%d", s.ownPath("checks", check, "next"), at)
	if s.client.Do(ctx, http.MethodGet, path, nil, &r) != nil || len(r.Pauses) == 0 {
		return ""
	}
	p := &r.Pauses[0]
	if p.From > at+r.Every {
		return ""
	}
	if p.Until == 0 {
		return p.Why
	}
	return p.Why + ", until " + shiftTimeOfDay(p.Until)
}

func shiftTimeOfDay(unix int64) string {
	return time.Unix(unix, 0).Format("Mon 2006-01-02 15:04:05 MST")
}

// targetsCommand shows which agents would run a check now.
func targetsCommand(k *kind) *cobra.Command {
	var entity string
	cmd := &cobra.Command{
		Use:   "targets NAME",
		Short: "show which agents would run a check now, and why one would not",
		Long: `Show which agents would run a check now: each that is connected to any backend and has one of its subscriptions. Entities
with one of them whose agents are not connected are named, too. With --entity, say whether the agent of one entity would run
it, and why not. The exit status is 2 if it would not, or if no agent would.`,
		Example: "  lapwing check targets check-disk\n  lapwing check targets check-disk --entity srv1",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			path := s.ownPath("checks", args[0], "targets")
			if entity != "" {
				path += "?entity=" + url.QueryEscape(entity)
			}
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, path, nil, &raw); err != nil {
				return s.missingTarget(ctx, k, args[0], entity, err)
			}
			t, err := decode[resource.CheckTargets](raw)
			if err != nil {
				return err
			}
			if err := s.printPlain(raw, func(json.RawMessage) (shown, error) { return targetLines(t), nil }); err != nil {
				return err
			}
			if t.Entity != nil && !t.Entity.Runs || t.Entity == nil && len(t.Now) > 0 {
				return errNo
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&entity, "entity", "", "say whether the agent of this entity would run the check, and why not")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// shownAgents is how many names of agents are shown.
const shownAgents = 20

// entityLines says whether a check runs at an entity, and why not. more are further reasons.
func entityLines(check string, e *resource.CheckTarget, more ...string) (out lines) {
	word := "does not run"
	if e.Runs {
		word = "runs"
	}
	out = append(out, fmt.Sprintf("check %s %s at %s", check, word, e.Name))
	for _, why := range slices.Concat(e.Why, more) {
		out = append(out, "  "+why)
	}
	if !e.Runs {
		out = append(out, "see also: lapwing check info "+check+"; lapwing entity info "+e.Name)
	}
	return out
}

func targetLines(t *resource.CheckTargets) lines {
	out := warnings(t.Missing)
	if e := t.Entity; e != nil {
		return append(out, entityLines(t.Check, e, t.Now...)...)
	}
	switch {
	case len(t.Now) > 0:
		out = append(out, fmt.Sprintf("check %s does not run now", t.Check))
		for _, why := range t.Now {
			out = append(out, "  "+why)
		}
	case t.RoundRobin:
		out = append(out, fmt.Sprintf("check %s runs at one of %d agents at a time, round robin", t.Check, t.Agents))
	default:
		out = append(out, fmt.Sprintf("check %s runs at %s", t.Check, plural(t.Agents, "agent")))
	}
	if t.Proxies != nil {
		out = append(out, fmt.Sprintf("  for each of %s that its proxy requests match", plural(*t.Proxies, "entity")))
	}
	for _, sub := range t.Subscriptions {
		out = append(out, fmt.Sprintf("  subscription %s: %s connected, %s", printable(sub.Name),
			plural(sub.Agents, "agent"), plural(sub.Entities, "entity")))
	}
	for i, name := range t.Names {
		if i == shownAgents {
			out = append(out, fmt.Sprintf("  … and %d more; -o json has the first %d", t.Agents-i, resource.MaxSubscriptionNames))
			break
		}
		out = append(out, "  "+name)
	}
	if away := t.NotConnectedNames[:min(len(t.NotConnectedNames), shownAgents)]; len(away) > 0 {
		text := "  not connected: " + printable(commaSpace(away))
		if n := t.NotConnected - len(away); n > 0 {
			text += fmt.Sprintf(" and %d more; -o json has the first %d", n, resource.MaxSubscriptionNames)
		}
		out = append(out, text)
	} else if t.NotConnected > 0 {
		out = append(out, "  not connected: "+plural(t.NotConnected, "entity"))
	}
	if t.Agents+t.NotConnected > 0 && len(t.Names)+len(t.NotConnectedNames) == 0 {
		out = append(out, "  they are not named, since you may not list all entities")
	}
	return out
}

// subscriptionCommand has the commands about subscriptions.
func subscriptionCommand() *cobra.Command {
	return groupOf("subscription", "show subscriptions: their checks and agents", "list", listSubscriptionsCommand(), infoSubscriptionCommand())
}

func listSubscriptionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list subscriptions with the number of their checks, entities and connected agents",
		Long: `List the subscriptions of a namespace with the number of checks that name them, of entities that have them, and of agents
that are connected to any backend. A subscription of one entity alone is listed if a check names it.`,
		Example: "  lapwing subscription list\n  lapwing subscription list -o json",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, s.ownPath("subscriptions"), nil, &raw); err != nil {
				return err
			}
			return s.printPlain(raw, func(raw json.RawMessage) (shown, error) {
				list, err := decode[[]resource.SubscriptionCount](raw)
				if err != nil {
					return nil, err
				}
				t := &table{columns: []column{{title: "Subscription"}, {title: "Checks", right: true}, {title: "Agents", right: true},
					{title: "Entities", right: true}}}
				for _, one := range *list {
					t.rows = append(t.rows, []string{one.Name, fmt.Sprint(one.Checks), fmt.Sprint(one.Agents), fmt.Sprint(one.Entities)})
				}
				return t, nil
			})
		}),
	}
	formatFlag(cmd)
	return cmd
}

func infoSubscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info NAME",
		Short: "show the checks and agents of a subscription",
		Long: `Show the checks that name a subscription, the agents that have it and are connected, and the entities that have it and whose
agents are not connected, 1000 of each at most.`,
		Example: "  lapwing subscription info linux",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, s.ownPath("subscriptions", args[0]), nil, &raw); err != nil {
				if errors.Is(err, client.ErrNotFound) {
					return hint(fmt.Errorf("no check, entity or agent has the subscription %s", args[0]), "List them with: lapwing subscription list")
				}
				return err
			}
			return s.printPlain(raw, func(raw json.RawMessage) (shown, error) {
				one, err := decode[resource.Subscription](raw)
				if err != nil {
					return nil, err
				}
				return &infoBlock{title: one.Name, lines: []infoLine{
					{"Checks", fmt.Sprintf("%d: %s", one.Checks, commaSpace(one.CheckNames))},
					{"Agents", fmt.Sprintf("%d connected: %s", one.Agents, commaSpace(one.AgentNames))},
					{"Not Connected", fmt.Sprintf("%d: %s", len(one.EntityNames), commaSpace(one.EntityNames))},
				}}, nil
			})
		}),
	}
	formatFlag(cmd)
	return cmd
}
