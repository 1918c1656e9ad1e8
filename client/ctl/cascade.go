package ctl

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// cascade is what is deleted along with an entity, a check or a namespace.
type cascade struct {
	events, silences string
	all              bool
}

// flags adds those that a kind has to the command that deletes it.
func (c *cascade) flags(cmd *cobra.Command, k *kind, name string) {
	f := cmd.Flags()
	switch k.Type {
	case client.Entities.Type, client.Checks.Type:
		initial := "keep"
		if k.Type == client.Entities.Type {
			initial = "delete"
		}
		f.StringVar(&c.events, "events", "", `what becomes of its events: keep, delete, or resolve what fails and delete (default "`+initial+`")`)
		f.StringVar(&c.silences, "silences", "", `what becomes of its silences: keep or delete (default "keep")`)
		cmd.Example += "\n  lapwing " + k.Command + " " + name + " " + k.example + " --events resolve --silences delete"
		choices := func(names ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)
		}
		_ = cmd.RegisterFlagCompletionFunc("events", choices("keep", "delete", "resolve"))
		_ = cmd.RegisterFlagCompletionFunc("silences", choices("keep", "delete"))
	case client.Namespaces.Type:
		f.BoolVar(&c.all, "cascade", false, "delete all that is in it too: definitions, entities, events, silences")
		cmd.Example += "\n  lapwing " + k.Command + " " + name + " " + k.example + " --cascade"
	}
}

// query is empty unless something was asked for, so that a Sensu backend is not sent what it does not know.
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
