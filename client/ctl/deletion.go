package ctl

import (
	"context"
	"fmt"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/client"
)

// deletion is what a deletion of a check leaves or takes along, counted before it.
type deletion struct {
	events, failing, silences int
	uncounted                 bool // the events could not be counted
}

// deletionOf counts what belongs to a check. Counting is no reason to fail: silences that cannot be counted are 0.
func (s *invocation) deletionOf(ctx context.Context, k *kind, name string) (d deletion) {
	if k.Type != client.Checks.Type || s.format != formatTabular {
		return d
	}
	var p client.SilencePreview // a silence of the check would hit its events
	body := map[string]any{"metadata": map[string]any{"namespace": s.namespace}, "check": name}
	if err := s.client.Do(ctx, http.MethodPost, s.ownPath("silenced", "preview"), body, &p); err != nil {
		d.uncounted = true
	} else {
		d.events, d.failing = p.Events, p.Failing
	}
	if list, err := client.List(ctx, s.client, client.Silences, s.namespace, client.ListOptions{Check: name}); err == nil {
		d.silences = len(list)
	}
	return d
}

// taken says what goes along, with the flags of the deletion.
func (d deletion) taken(along *cascade) (parts []string) {
	if d.events > 0 && along.takesEvents() {
		text := "with its " + plural(d.events, "event")
		if along.events == "resolve" && d.failing > 0 {
			text += fmt.Sprintf(", %d resolved first", d.failing)
		}
		parts = append(parts, text)
	}
	if d.silences > 0 && along.silences == "delete" {
		parts = append(parts, "with its "+plural(d.silences, "silence"))
	}
	return parts
}

func (c *cascade) takesEvents() bool { return c.events == "resolve" || c.events == "delete" }

// tellLeft says which events of a check stay, and how to delete them.
func (s *invocation) tellLeft(d deletion, along *cascade, name string) {
	if d.uncounted && !along.takesEvents() {
		fmt.Fprintln(s.errOut, "How many events stay is not known.")
	}
	if d.events == 0 || along.takesEvents() {
		return
	}
	text := "left behind: " + plural(d.events, "event")
	if d.failing > 0 {
		text += fmt.Sprintf(", %d failing", d.failing)
	}
	if along.dryRun {
		fmt.Fprintln(s.errOut, "would be "+text+"; --events delete takes them along, --events resolve resolves failing ones first")
		return
	}
	fmt.Fprintln(s.errOut, text+". To resolve failing ones, or to delete all:")
	selector := "event.check.name == " + selectorWord(name)
	for _, act := range []string{"resolve", "delete"} {
		if act == "delete" || d.failing > 0 {
			fmt.Fprintln(s.errOut, printable("  "+s.commandLine("event", act, "--field-selector", selector)))
		}
	}
}
