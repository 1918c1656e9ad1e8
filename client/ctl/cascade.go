package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// cascade says what else to delete with an entity, a check or a namespace.
type cascade struct {
	events, silences string
	all, dryRun      bool
}

// flags adds a kind's cascade flags to its delete command.
func (c *cascade) flags(cmd *cobra.Command, k *kind, name string) {
	f := cmd.Flags()
	switch k.Type {
	case client.Entities.Type, client.Checks.Type:
		initial := "keep"
		if k.Type == client.Entities.Type {
			initial = "delete"
		}
		f.StringVar(&c.events, "events", "",
			`events of the deleted object: keep, delete, or resolve (resolve failing events, then delete) (default "`+initial+`")`)
		f.StringVar(&c.silences, "silences", "", `silences of the deleted object: keep or delete (default "keep")`)
		cmd.Example += "\n  lapwing " + k.Command + " " + name + " " + k.example + " --events resolve --silences delete"
		choices := func(names ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)
		}
		_ = cmd.RegisterFlagCompletionFunc("events", choices("keep", "delete", "resolve"))
		_ = cmd.RegisterFlagCompletionFunc("silences", choices("keep", "delete"))
	case client.Namespaces.Type:
		f.BoolVar(&c.all, "cascade", false, "also delete everything in the namespace: definitions, entities, events, silences")
		f.BoolVar(&c.dryRun, "dry-run", false, "show what would be deleted, and delete nothing")
		cmd.Example += "\n  lapwing " + k.Command + " " + name + " " + k.example + " --cascade --dry-run"
		cmd.Example += "\n  lapwing " + k.Command + " " + name + " " + k.example + " --cascade"
	}
}

// query returns the query parameters for the flags that were set. It is empty by default: a Sensu backend does not know
// them.
func (c *cascade) query() url.Values {
	q := url.Values{}
	if c.events != "" {
		q.Set("events", c.events)
	}
	if c.silences != "" {
		q.Set("silences", c.silences)
	}
	if c.all {
		q.Set("cascade", "true")
	}
	return q
}

// mostHeld is how many resources of a kind are counted in a namespace.
const mostHeld = 1000

// holds reports whether a namespace with resources of a kind is deleted only with --cascade.
func holds(k *resource.Kind) bool {
	return k.Namespaced && (k.Clear > 0 || k.Type == client.Events.Type)
}

// goesAlong reports whether resources of a kind are deleted with each deletion of their namespace.
func goesAlong(k *resource.Kind) bool { return k.Namespaced && k.Clear == 0 && k.Prune > 0 }

// heldBy says what a namespace has of some kinds: how many of each, as far as the user may list them. The role and the binding
// that each namespace has are left out.
func (s *invocation) heldBy(ctx context.Context, namespace string, of func(*resource.Kind) bool) (held []string) {
	for _, k := range resource.Kinds {
		if !of(k) {
			continue
		}
		all := client.Kind[json.RawMessage]{Kind: k}
		nameOf := resourceName(&kind{Kind: all})
		n := 0
		for raw, err := range client.All(ctx, s.client, all, namespace, client.ListOptions{ChunkSize: defaultChunkSize}) {
			if err != nil {
				break // what the user may not list is not named
			}
			if goesAlong(k) && nameOf(*raw) == "system:pipeline" {
				continue
			}
			if n++; n == mostHeld {
				break
			}
		}
		text := (&kind{Kind: all}).counted(n)
		switch n {
		case 0:
			continue
		case mostHeld:
			text = "at least " + text
		}
		held = append(held, text)
	}
	return held
}

// warnOfNamespace warns before the deletion of a namespace with all that it holds: nothing resolves its incidents, and
// deliveries that wait are dropped. What the user may not see is not named.
func (s *invocation) warnOfNamespace(ctx context.Context, namespace string) {
	at, in := *s.settings, *s
	at.namespace, in.settings = namespace, &at
	const incidents = "event.is_incident == true"
	of := map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "incidents"}, "field_selector": incidents}
	// To ask which events a silence would hit takes one request; to list them could take hundreds.
	if p, err := in.covered(ctx, of); err == nil && p.Failing > 0 {
		what := plural(p.Failing, "event") + " of namespace " + namespace + " fail"
		if p.Failing == 1 {
			what += "s"
		}
		fmt.Fprintln(s.errOut, printable("Warning: "+what+", and handlers get no resolution: incidents stay open at the receivers. To close them first: "+
			in.commandLine("event", "resolve", "--field-selector", incidents)))
	}
	waiting := 0
	if list, err := s.client.Waiting(ctx, namespace, "", 0); err == nil {
		for i := range list {
			waiting += list[i].Memory.Total + list[i].Disk.Total + list[i].Parked.Total
		}
	}
	if waiting > 0 {
		fmt.Fprintf(s.errOut, "Warning: deliveries wait for handlers of namespace %s: the deletion drops %d\n", printable(namespace), waiting)
	}
	if letters := s.countDeadLetters(ctx, namespace, "", mostLetters); letters > 0 {
		l := loss{letters: letters}
		fmt.Fprintln(s.errOut, printable("Dead letters of namespace "+namespace+" stay: "+l.lettersText()+"; see: "+in.commandLine("deadletter", "list")))
	}
}

// hintCascade says what a namespace holds that cannot be deleted for that, and how to delete all of it.
func (s *invocation) hintCascade(ctx context.Context, namespace string, err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		return err
	}
	return s.hintHeld(namespace, s.heldBy(ctx, namespace, holds), err)
}

func (s *invocation) hintHeld(namespace string, held []string, err error) error {
	if len(held) == 0 {
		return err
	}
	return hint(err, "It holds %s. Delete it with all of this: %s", commaSpace(held),
		s.commandLine("namespace", "delete", namespace, "--cascade"))
}
