package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// mostParked is how many parked deliveries of a handler the API lists.
const mostParked = 200

// waitingCommand shows what waits for handlers.
func waitingCommand(k *kind) *cobra.Command {
	var (
		all   bool
		limit int
	)
	cmd := &cobra.Command{
		Use:   "waiting [NAME]",
		Short: "show the deliveries that wait for handlers",
		Long: `Show how many deliveries wait for each handler, on all backends of a cluster. With a name, show the first ones that
are due, or that wait for their next attempt, for another time or for their group. With the name of a set, show its
handlers.

"Fails" says since when nothing has got through, with the failed attempts and dead letters of that time.

Parked deliveries wait for a time, for a group, or behind such a delivery of their check; when they are due, they stay
parked until they have ended. Retrying ones have had an attempt that failed: they wait for the next one, or are due
and wait for a free worker, or run. Deliveries in memory and on disk go out as soon as the handler has taken those
before them. A group counts as one in Running. All of them go out by themselves; none is a dead letter. Shed
ones were given up because too many were on disk; docs/overload.md says which.`,
		Example: `  lapwing handler waiting
  lapwing handler waiting --all-namespaces
  lapwing handler waiting pager
  lapwing handler waiting pager -n 100 --format json`,
		Args: cobra.MaximumNArgs(1),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if limit < 1 || limit > mostParked {
				return fmt.Errorf("--limit must be from 1 to %d", mostParked)
			}
			namespace, name := s.namespace, ""
			if all {
				namespace = ""
			}
			if len(args) > 0 {
				name = args[0]
			}
			w, err := s.waitingFor(ctx, namespace, name, limit)
			gone := errors.Is(err, errNoHandler) || errors.Is(err, client.ErrNotFound)
			if gone && s.countDeadLetters(ctx, namespace, name, 1) > 0 {
				err = nil // it is deleted
			}
			if err == nil && len(w.list) == 0 && name == "" {
				err = s.knownNamespace(ctx, namespace)
			}
			if err != nil {
				return err
			}
			list := w.list
			if list == nil {
				list = []client.Waiting{}
			}
			who := w.who(name)
			if len(list) == 0 && s.format == formatTabular {
				s.nothingWaits(namespace, who)
				s.tellDeadLetters(ctx, namespace, name)
				return nil
			}
			if len(w.members) > 0 && s.format == formatTabular {
				fmt.Fprintf(s.errOut, "what waits for %s:\n", who)
			}
			raw, err := jsonOf(list)
			if err != nil {
				return err
			}
			err = s.printPlain(raw, func(json.RawMessage) (shown, error) {
				if name != "" {
					return &waitingBlocks{list, limit, all}, nil
				}
				return waitingTable(list, all), nil
			})
			if err == nil && s.format == formatTabular {
				s.tellDeadLetters(ctx, namespace, name)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "show the handlers of all namespaces")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20,
		fmt.Sprintf("number of parked deliveries of a handler to show, %d at most", mostParked))
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// nothingWaits says that nothing waits, and where else something may.
func (s *invocation) nothingWaits(namespace, who string) {
	text := "nothing waits for " + who
	if namespace == "" {
		text += " in any namespace"
	} else {
		text += fmt.Sprintf(" in namespace %s; see also: lapwing handler waiting --all-namespaces", namespace)
	}
	fmt.Fprintln(s.errOut, text)
}

func waitingTable(list []client.Waiting, namespaces bool) *table {
	t := &table{columns: []column{
		{title: "Handler"}, {title: "Retrying", right: true, keep: true}, {title: "Parked", right: true, keep: true},
		{title: "Memory", right: true}, {title: "Disk", right: true}, {title: "Running", right: true},
		{title: "Oldest", right: true}, {title: "Next", right: true, keep: true}, {title: "Last Error", text: true, keep: true},
		{title: "Classes"},
	}}
	if namespaces {
		t.columns = append(t.columns, column{title: "Namespace"})
	}
	shed := slices.ContainsFunc(list, func(w client.Waiting) bool { return w.Shed.Total > 0 })
	if shed {
		t.columns = append(t.columns, column{title: "Shed", right: true})
	}
	for i := range list {
		w := &list[i]
		row := []string{
			w.Handler, fmt.Sprint(w.Retrying), fmt.Sprint(w.Parked.Total), fmt.Sprint(w.Memory.Total),
			fmt.Sprint(w.Disk.Total), fmt.Sprint(w.Running), ageOf(w.Oldest / 1000), nextTurn(w.Next, untilOrSince),
			oneLine(w.LastError), classesOf(w),
		}
		if namespaces {
			row = append(row, w.Namespace)
		}
		if shed {
			row = append(row, fmt.Sprint(w.Shed.Total))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// classesOf returns how many deliveries of each class wait in memory, on disk and parked.
func classesOf(w *client.Waiting) string {
	var sum client.ClassCounts
	for _, c := range [...]*client.ClassCounts{&w.Memory, &w.Disk, &w.Parked} {
		sum.Change += c.Change
		sum.Failing += c.Failing
		sum.Unchanged += c.Unchanged
		sum.Metrics += c.Metrics
	}
	return classes(&sum)
}

// classes returns for example "change 4, metrics 1".
func classes(c *client.ClassCounts) string {
	var parts []string
	for _, one := range [...]struct {
		name string
		n    int
	}{{"change", c.Change}, {"failing", c.Failing}, {"unchanged", c.Unchanged}, {"metrics", c.Metrics}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", one.name, one.n))
		}
	}
	return strings.Join(parts, ", ")
}

// waitingBlocks are handlers, each with the first of its parked deliveries.
type waitingBlocks struct {
	list  []client.Waiting
	limit int  // of the parked deliveries that were asked for
	all   bool // of all namespaces
}

func (b *waitingBlocks) show(s *invocation) error {
	for i := range b.list {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		block := waitingBlock(&b.list[i])
		if b.all {
			block.title = b.list[i].Namespace + "/" + block.title
		}
		if err := block.show(s); err != nil {
			return err
		}
		if len(b.list[i].Deliveries) == 0 {
			continue
		}
		fmt.Fprintln(s.out)
		if err := parkedTable(b.list[i].Deliveries).show(s); err != nil {
			return err
		}
		if n := len(b.list[i].Deliveries); n < b.list[i].Parked.Total {
			fmt.Fprintf(s.errOut, "%d of %d parked deliveries are shown: %s\n", n, b.list[i].Parked.Total, notListed(n, b.limit))
		}
	}
	return nil
}

// notListed says why n parked deliveries are listed and others are not.
func notListed(n, limit int) string {
	switch {
	case n < limit:
		return "each of the others runs, or waits behind an earlier one of its check"
	case n < mostParked:
		return fmt.Sprintf("the others wait longer, or behind an earlier one of their check (-n shows up to %d)", mostParked)
	}
	return "the others wait longer, or behind an earlier one of their check"
}

func lastDelivered(w *client.Waiting) string {
	if w.LastDelivered == 0 {
		return "nothing was delivered since the backend started"
	}
	return "the last delivery was " + timeAndAge(w.LastDelivered/1000)
}

func waitingBlock(w *client.Waiting) *infoBlock {
	counted := func(c *client.ClassCounts) string {
		text := fmt.Sprint(c.Total)
		if c.Total > 0 {
			text += " (" + classes(c) + ")"
		}
		return text
	}
	b := &infoBlock{title: w.Handler}
	if w.FailingSince > 0 {
		b.lines = append(b.lines, infoLine{"Fails", fmt.Sprintf("since %s: %s, %s; %s", timeAndAge(w.FailingSince/1000),
			plural(w.Failures, "failed attempt"), plural(w.Died, "dead letter"), lastDelivered(w))})
	}
	b.lines = append(b.lines, []infoLine{
		{"Retrying", fmt.Sprint(w.Retrying)}, {"Parked", counted(&w.Parked)}, {"In Memory", counted(&w.Memory)},
		{"On Disk", counted(&w.Disk)}, {"Running", fmt.Sprint(w.Running)}, {"Oldest Event", timeAndAge(w.Oldest / 1000)},
		{"Next Turn", nextTurn(w.Next, timeAndAge)},
	}...)
	shed := "none since the backend started"
	if w.Shed.Total > 0 {
		shed = counted(&w.Shed) + " since the backend started; see docs/overload.md"
	}
	text := "none since the backend started"
	if w.LastError != "" {
		text = oneLine(w.LastError) + " (" + untilOrSince(w.LastFailed/1000) + ")"
	}
	b.lines = append(b.lines, infoLine{"Shed", shed}, infoLine{"Last Error", text})
	return b
}

func parkedTable(list []client.Parked) *table {
	t := &table{columns: []column{
		{title: "Entity"}, {title: "Check"}, {title: "State", keep: true, color: wordColor}, {title: "Waits For"},
		{title: "Next", right: true, keep: true}, {title: "Attempts", right: true},
		{title: "Last Error", text: true, keep: true}, {title: "Age", right: true},
		{title: "Class", wide: true}, {title: "ID", wide: true},
	}}
	members := false
	for i := range list {
		members = members || list[i].Member != ""
	}
	if members {
		t.columns = append(t.columns, column{title: "Backend"})
	}
	for i := range list {
		p := &list[i]
		row := []string{
			p.Entity, p.Check, stateWord(p.Status), waitsFor(p), nextTurn(p.Next, untilOrSince), fmt.Sprint(p.Attempts),
			oneLine(p.Error), ageOf(p.Received / 1000), p.Class, p.ID,
		}
		if members {
			row = append(row, p.Member)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// waitsFor returns what a delivery waits for.
func waitsFor(p *client.Parked) string {
	switch p.For {
	case "attempt":
		return "next attempt"
	case "resolution":
		return "resolve delay"
	case "escalation":
		return "escalation"
	case "worker":
		return "free worker"
	}
	return "group " + p.Group
}

// nextTurn returns "now" for a time in Unix milliseconds that has come or is less than a second away, and another one by
// format: seconds would show it as one that is over.
func nextTurn(at int64, format func(seconds int64) string) string {
	if at > 0 && time.Until(time.UnixMilli(at)) < time.Second {
		return "now"
	}
	return format(at / 1000)
}

// tellWaiting says, where no dead letters were found, that deliveries wait which are none. A user who may not see them,
// or a backend that does not know, is no reason to fail.
func (s *invocation) tellWaiting(ctx context.Context, namespace string, handlers []string) {
	for _, handler := range orAll(handlers) {
		s.tellWaitingFor(ctx, namespace, handler)
	}
}

func (s *invocation) tellWaitingFor(ctx context.Context, namespace, handler string) {
	w, err := s.waitingFor(ctx, namespace, handler, 1)
	if err != nil {
		return
	}
	waiting, retrying := 0, 0
	for i := range w.list {
		waiting += w.list[i].Memory.Total + w.list[i].Disk.Total + w.list[i].Parked.Total
		retrying += w.list[i].Retrying
	}
	if len(w.members) > 0 {
		fmt.Fprintf(s.errOut, "handler %s is a set: dead letters are those of its handlers: %s\n", handler,
			strings.Join(w.members, ", "))
	}
	if waiting == 0 {
		return
	}
	who, command := w.who(handler), "lapwing handler waiting"
	if handler != "" {
		command += " " + handler
	}
	if namespace == "" {
		command += " --all-namespaces"
	}
	text := "%d deliveries wait for %s (%d after a failed attempt); they are no dead letters: lapwing sends them by itself; see: %s\n"
	if waiting == 1 {
		text = "%d delivery waits for %s (%d after a failed attempt); it is no dead letter: lapwing sends it by itself; see: %s\n"
	}
	fmt.Fprintf(s.errOut, text, waiting, who, retrying, command)
}
