package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// nextStep is a command to go on with, and what it is for.
type nextStep struct{ what, line string }

// nextSteps words what the server proposes as commands. What a newer server proposes beyond that is left out.
func (s *invocation) nextSteps(entity, check string, at time.Time, list []client.Next) (steps []nextStep) {
	pair := entity + "/" + check
	for _, one := range list {
		what, words := "", []string(nil)
		switch one.Kind {
		case "see_filter":
			what, words = "see the filter", []string{"filter", "info", one.Name}
		case "try_drafts":
			what, words = "try other definitions on the event", []string{"pipeline", "simulate", "-f", "draft.yaml", "--event", pair}
		case "see_depends":
			what, words = "see what it depends on", []string{"event", "dependencies", entity, check}
		case "see_handlers":
			what, words = "see the defined handlers", []string{"handler", "list"}
		case "handle_own":
			what, words = "give lapwing's own events a handler", []string{"handler", "create", "lapwing", "--type", "set", "--handlers", "HANDLER"}
		case "handle_alive":
			what, words = "give keepalives a handler", []string{"handler", "create", "keepalive", "--type", "set", "--handlers", "HANDLER"}
		case "give_handlers":
			what, words = "give the check handlers", []string{"check", "set-handlers", check, "HANDLER"}
		case "see_dead":
			what, words = "see what the handler did not take", []string{"deadletter", "list", "--handler", one.Name}
		case "redrive":
			what, words = "send it again when the cause is mended", sendAgain(one.Name)
		case "simulate":
			what, words = "see what would happen now", []string{"pipeline", "simulate", "--event", pair}
		case "see_whether":
			what, words = "see whether it waits for the handler", []string{"handler", "waiting", one.Name}
		case "see_waiting":
			what, words = "see what waits for the handler", []string{"handler", "waiting", one.Name}
		case "see_notified":
			what, words = "see whom handlers told", []string{"notification", "list", "--entity", entity, "--check", check}
		case "delete_event":
			what, words = "delete the event of the deleted check", []string{"event", "delete", entity, check}
		case "see_around":
			around := func(d time.Duration) string { return at.Add(d).Format(time.RFC3339) }
			what, words = "see its states, silences and notifications around then", []string{"event", "history", entity, check,
				"--since", around(-time.Hour), "--until", around(time.Hour)}
		case "see_history":
			what, words = "see the states of the check over days", []string{"event", "history", entity, check}
		case "see_audit":
			what, words = "see who changed the silence", []string{"audit", "list", "--kind", "silenced", "--name", one.Name}
		case "unack":
			what, words = "end the acknowledgement", []string{"event", "unack", entity, check}
		case "unsilence":
			what, words = "end the silence", []string{"event", "unsilence", entity, check}
		case "end_silence":
			what, words = "end the silence for all its events", []string{"silenced", "delete", one.Name}
		default:
			continue
		}
		if step := (nextStep{what, s.commandLine(words...)}); !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// worded joins the parts of an answer of the server. It writes times in local time, and what may be done as a command.
func (s *invocation) worded(list []client.Part, now time.Time) string {
	var b strings.Builder
	for _, one := range list {
		switch {
		case one.Next == nil:
			b.WriteString(localTimes(one.Text, func(millis int64) string { return dayClock(millis, now) }))
		case one.Next.Kind == "redrive":
			b.WriteString(" (to send it again: " + s.commandLine(sendAgain(one.Next.Name)...) + ")")
		}
	}
	return b.String()
}

// printNext writes the next steps.
func printNext(s *invocation, steps []nextStep) {
	fmt.Fprintln(s.out, "\nNext steps:")
	for _, one := range steps {
		fmt.Fprintf(s.out, "  %s: %s\n", one.what, printable(one.line))
	}
}
