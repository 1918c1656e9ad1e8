package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// queueCommand has the commands about what round-robin checks owe.
func queueCommand() *cobra.Command {
	cmd := groupOf("queue", "show the turns of round-robin checks", "list", listQueueCommand(), infoQueueCommand())
	cmd.Long = `See who runs round-robin checks. Each subscription of such a check is a group: each tick is the turn of one of its
agents. A turn without a result goes to the next agent, until its deadline. The figures count since the backend that gives
the turns began.`
	return cmd
}

func listQueueCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list the groups of round-robin checks",
		Example: "  lapwing queue list\n  lapwing queue list --all-namespaces --format json",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			namespace := s.namespace
			if all {
				namespace = ""
			}
			groups, err := s.client.Queue(ctx, namespace)
			if err != nil {
				return err
			}
			if len(groups) == 0 && s.format == formatTabular {
				if hidden := s.maybeHidden(ctx, "groups of checks", client.Checks.Plural, namespace, false); hidden != "" {
					fmt.Fprintln(s.errOut, hidden)
				}
			}
			raw, err := jsonOf(groups)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return queueTable(groups, all), nil })
		}),
	}
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "list the resources of all namespaces")
	formatFlag(cmd)
	return cmd
}

func queueTable(groups []client.GroupStatus, all bool) *table {
	t := &table{columns: []column{
		{title: "Check"}, {title: "Subscription"}, {title: "Agents", right: true}, {title: "Open", right: true}, {title: "Oldest", right: true},
		{title: "Given", right: true}, {title: "Again", right: true}, {title: "Expired", right: true}, {title: "Late", right: true},
		{title: "Twice", right: true},
	}}
	if all {
		t.columns = append(t.columns, column{title: "Namespace"})
	}
	for i := range groups {
		g := &groups[i]
		row := []string{
			g.Check, g.Subscription, fmt.Sprint(g.Agents), fmt.Sprint(g.Open), seconds(g.Oldest), fmt.Sprint(g.Given),
			fmt.Sprint(g.Again), fmt.Sprint(g.Expired), fmt.Sprint(g.Late), fmt.Sprint(g.Duplicates),
		}
		if all {
			row = append(row, g.Namespace)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func infoQueueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "info CHECK",
		Short:   "show the groups of a round-robin check, with their open turns",
		Example: "  lapwing queue info ping\n  lapwing queue info ping --format json | jq '.[].turns'",
		Args:    args("CHECK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			groups, err := s.client.QueueGroups(ctx, s.namespace, args[0])
			if err == nil && len(groups) == 0 {
				err = s.noTurns(ctx, args[0])
			}
			if err != nil {
				return err
			}
			raw, err := jsonOf(groups)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return groupBlocks(groups), nil })
		}),
	}
	formatFlag(cmd)
	return cmd
}

// noTurns says why a check has no groups.
func (s *invocation) noTurns(ctx context.Context, name string) error {
	check, err := client.Get(ctx, s.client, client.Checks, s.namespace, name)
	switch {
	case err != nil:
		return err
	case !check.RoundRobin:
		return fmt.Errorf("check %s is not round robin, so it has no turns", name)
	case !check.Publish:
		return fmt.Errorf("check %s is not published, so it has no turns: lapwing check set-publish %s true", name, name)
	}
	return fmt.Errorf("check %s has had no turn yet", name)
}

// groupBlocks are descriptions of groups, one below the other.
type groupBlocks []client.GroupDetail

func (b groupBlocks) show(s *invocation) error {
	for i := range b {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		if err := groupBlock(&b[i]).show(s); err != nil {
			return err
		}
	}
	return nil
}

// seconds is a time for people; "-" for none.
func seconds(s float64) string {
	if s <= 0 {
		return "-"
	}
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// groupBlock describes a group.
func groupBlock(g *client.GroupDetail) *infoBlock {
	b := &infoBlock{title: g.Check + " " + g.Subscription, lines: []infoLine{
		{"Agents", fmt.Sprint(g.Agents)}, {"Last Turn", g.Last},
		{"Given", fmt.Sprintf("%d, and %d times again to a further agent", g.Given, g.Again)},
		{"Answered", fmt.Sprintf("%d, %d of them late", g.Answered, g.Late)},
		{"Declined", fmt.Sprint(g.Declined)}, {"Expired", fmt.Sprint(g.Expired)}, {"Run Twice", fmt.Sprint(g.Duplicates)},
		{"Limits", fmt.Sprintf("an agent has %s to answer, a turn %s", seconds(g.Answer), seconds(g.Deadline))},
	}}
	if g.Agents > 0 {
		b.lines = append(b.lines, infoLine{"Turns of an Agent", fmt.Sprintf(
			"%d to %d, %.1f on average, of all checks with this subscription, since it was connected",
			g.Fairness.Least, g.Fairness.Most, g.Fairness.Mean,
		)})
	}
	most := 1
	for _, bin := range g.Fairness.Bins {
		most = max(most, bin.Agents)
	}
	for _, bin := range g.Fairness.Bins {
		if bin.Agents == 0 {
			continue
		}
		const width = 40
		b.lines = append(b.lines, infoLine{"  " + binName(&bin), strings.Repeat("#", bin.Agents*width/most) + " " + agents(bin.Agents)})
	}
	b.lines = append(b.lines, infoLine{"Open Turns", fmt.Sprintf("%d, %d of them without an agent", g.Open, g.Waiting)})
	for i := range g.Turns {
		b.lines = append(b.lines, infoLine{"  " + turnName(g.Turns[i].Tick, g.Turns[i].Entity), turnState(&g.Turns[i])})
	}
	for _, t := range g.Twice {
		b.lines = append(b.lines, infoLine{"Run Twice", fmt.Sprintf("%s, by %s and then by %s", turnName(t.Tick, t.Entity), t.First, t.Second)})
	}
	return b
}

func binName(b *client.FairnessBin) string {
	if b.From == b.To {
		return fmt.Sprint(b.From)
	}
	return fmt.Sprintf("%d-%d", b.From, b.To)
}

func turnName(tick int64, entity string) string {
	name := time.Unix(tick, 0).UTC().Format(time.DateTime) + "Z"
	if entity != "" {
		name += " " + entity
	}
	return name
}

// turnState says who has a turn.
func turnState(t *client.OpenTurn) string {
	switch {
	case t.Agent == "" && t.Attempt == 0:
		return "waits for an agent"
	case t.Agent == "":
		return fmt.Sprintf("waits for another agent: %s had it without a result", agents(t.Attempt))
	}
	text := fmt.Sprintf("%s has it for %s", t.Agent, seconds(t.Since))
	switch {
	case t.Lost:
		text = fmt.Sprintf("%s got it %s ago and has lost its connection", t.Agent, seconds(t.Since))
	case t.Running:
		text += " and runs it"
	}
	if t.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	if t.Member != "" {
		text += ", at " + t.Member
	}
	return text
}
