package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// silenceAlias also names the commands of silences, which Sensu calls silenced entries.
const silenceAlias = "silence"

// defaultChunkSize keeps each answer small enough for --timeout, even with a hundred thousand resources.
const defaultChunkSize = 1000

// manageCommand returns the command of a kind, for example "check", with its subcommands.
func manageCommand(k *kind) *cobra.Command {
	var commands []*cobra.Command
	for _, c := range []struct {
		can     can
		command func(*kind) *cobra.Command
	}{
		{canList, listCommand}, {canInfo, infoCommand}, {canDelete, deleteCommand}, {canCreate, createCommand}, {canUpdate, updateCommand},
	} {
		if k.can&c.can != 0 {
			commands = append(commands, c.command(k))
		}
	}
	if k.labelled() {
		commands = append(commands, labelCommand(k))
	}
	for _, extra := range k.extra {
		commands = append(commands, extra(k))
	}
	example := "list"
	if k.can&canList == 0 {
		example = "info"
	}
	cmd := groupOf(k.Command, "manage "+k.words(), example, commands...)
	if k.Type == client.Silences.Type {
		cmd.Aliases = []string{silenceAlias}
	}
	return cmd
}

// groupOf returns a command that has only subcommands.
func groupOf(name, short, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name + " COMMAND",
		Short:   short,
		Example: fmt.Sprintf("  lapwing %s %s", name, example),
		Args:    cobra.ArbitraryArgs,

		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(commands...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			var known []string
			for _, sub := range cmd.Commands() {
				known = append(known, sub.Name())
			}
			if near := optionerr.Nearest(args[0], known); near != "" {
				text += fmt.Sprintf(": did you mean %q?", near)
			}
			return hintUsage(cmd, &subcommandError{text})
		}
		var names []string
		for _, sub := range cmd.Commands() {
			name := sub.Name()
			for _, many := range []string{"set-", "remove-"} {
				if strings.HasPrefix(name, many) && len(cmd.Commands()) > 15 {
					name = many + "…"
				}
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		text := fmt.Sprintf("%q needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
		return hintUsage(cmd, &subcommandError{text})
	}
	return cmd
}

func listCommand(k *kind) *cobra.Command {
	var (
		all, watch bool
		opts       client.ListOptions
		events     eventFilters
		labels     labelColumns
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list " + k.words(),
		Example: fmt.Sprintf(`  lapwing %[1]s list
  lapwing %[1]s list --format yaml
  lapwing %[1]s list --label-selector 'region == eu' --chunk-size 500`, k.Command),
		Args: args(),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		namespace := s.namespace
		if all {
			namespace = ""
		}
		opts, selected := opts, opts.FieldSelector+opts.LabelSelector+opts.Check+opts.Subscription != ""
		if k.Type == client.Events.Type {
			if err := events.apply(cmd, &opts, watch); err != nil {
				return err
			}
			selected = selected || events.used(cmd)
		}
		if watch {
			if err := s.knownNamespace(ctx, namespace); err != nil {
				return err
			}
			s.tellLimited(ctx, k, namespace)
			return watchEvents(ctx, s, labels.of(k), namespace, opts)
		}
		if both := opts.Subscription + ":" + opts.Check; opts.Subscription != "" && opts.Check != "" {
			raw, err := s.get(ctx, k, both)
			if err != nil {
				return err
			}
			return s.printList(labels.of(k), []json.RawMessage{raw}, false)
		}
		list, err := client.List(ctx, s.client, k.Kind, namespace, opts)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			if err := s.knownNames(ctx, namespace, events.entities, events.checks); err != nil {
				return err
			}
			if err := s.nothing(ctx, k, namespace, selected); err != nil {
				return err
			}
			s.tellUnknownLabels(ctx, k, namespace, opts.LabelSelector)
		} else {
			s.warnOfNames(ctx, namespace, events.entities, events.checks, func(entity, check string) bool {
				return slices.ContainsFunc(list, func(raw json.RawMessage) bool {
					ev, err := decode[event](raw)
					return err == nil && ev.Entity != nil && (entity == "" || ev.Entity.Metadata.Name == entity) &&
						(check == "" || eventCheck(ev).Metadata.Name == check)
				})
			})
			if s.isTable() {
				s.tellLimited(ctx, k, namespace)
			}
		}
		if err := s.printList(labels.of(s.withColumn(ctx, k, namespace, opts)), list, all); err != nil || !events.failing {
			return err
		}
		s.tellFailing(ctx, namespace)
		return nil
	})
	f := cmd.Flags()
	if k.Namespaced {
		f.BoolVar(&all, "all-namespaces", false, "list the resources of all namespaces")
		cmd.Example += fmt.Sprintf("\n  lapwing %s list --all-namespaces", k.Command)
	}
	if k.Type == client.Events.Type {
		f.BoolVarP(&watch, "watch", "w", false, "keep running: redraw the list in a terminal, print a line for every change elsewhere")
		events.flags(cmd)
		cmd.Example += `
  lapwing event list --failing --no-silenced -n 20
  lapwing event list --state critical,unknown --since 1h --check disk
  lapwing event list --watch
  lapwing event list --watch --field-selector 'event.check.status != "0"'
  lapwing event list --watch --format json | jq .check.status`
		cmd.Long = `List events, in order of entity and check.

With --watch, a terminal shows the events that are now, the worst first, until key q or an interrupt (exit code 0). If
the output is not a terminal, or in another format, the list is followed by a line for every event that arrives. There,
with selectors, an event that no longer matches is shown once more. In the json format each event is one line, and a
deleted event is {"deleted": true, "namespace": …, "entity": …, "check": …}. A lost connection is opened again, and the
missed events are shown.`
	}
	if k.Type == client.Silences.Type {
		f.StringVarP(&opts.Subscription, "subscription", "s", "", "only silences of this subscription")
		f.StringVarP(&opts.Check, "check", "c", "", "only silences of this check")
		cmd.Example += "\n  lapwing silenced list --check disk"
	}
	f.IntVar(&opts.ChunkSize, "chunk-size", defaultChunkSize, "number of resources in one request; 0 for all at once")
	f.StringVar(&opts.FieldSelector, "field-selector", "", "only resources whose fields match, for example 'linux in check.subscriptions'")
	f.StringVar(&opts.LabelSelector, "label-selector", "", "only resources whose labels match, for example 'region == eu'")
	labels.flags(cmd, k)
	formatFlag(cmd)
	return cmd
}

func infoCommand(k *kind) *cobra.Command {
	arguments := strings.Join(k.args, " ")
	cmd := &cobra.Command{
		Use:     "info " + arguments,
		Short:   "show one " + k.word(),
		Example: fmt.Sprintf("  lapwing %[1]s info %[2]s\n  lapwing %[1]s info %[2]s --format yaml", k.Command, k.example),
		Args:    args(k.args...),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			name := strings.Join(args, "/")
			raw, err := s.get(ctx, k, name)
			if err != nil {
				return err
			}
			with := s.withLine(ctx, k, name, raw)
			if k.Type == client.Events.Type && s.format == formatTabular {
				with = s.withSilences(ctx, with, raw)
			}
			if err := s.printOne(with, raw); err != nil || k.Type != client.Events.Type {
				return err
			}
			s.tellFailing(ctx, s.namespace)
			return nil
		}),
	}
	if k.Singleton {
		cmd.Use, cmd.Args = "info", args()
		cmd.Example = fmt.Sprintf("  lapwing %s info", k.Command)
	}
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

// get returns the named resource of the command's namespace.
func (s *invocation) get(ctx context.Context, k *kind, name string) (json.RawMessage, error) {
	raw, err := client.Get(ctx, s.client, k.Kind, s.namespace, name)
	if err != nil {
		return nil, hintMissing(k, err)
	}
	return *raw, nil
}

func hintMissing(k *kind, err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return hint(err, "See 'lapwing %s list' for the existing ones.", k.Command)
	}
	return err
}

// hintUndefined is hintMissing for a deletion. There may be events of a check that is not defined.
func (s *invocation) hintUndefined(of *deletion, err error) error {
	if of.kind.Type == client.Checks.Type && of.events > 0 && errors.Is(err, client.ErrNotFound) {
		what := "1 event is of a check of this name"
		if of.events > 1 {
			what = plural(of.events, "event") + " are of a check of this name"
		}
		if of.failing > 0 {
			what += fmt.Sprintf(", %d failing", of.failing)
		}
		return hint(err, "%s. To delete: %s", what,
			s.commandLine("event", "delete", "--field-selector", "event.check.name == "+selectorWord(of.name)))
	}
	return hintMissing(of.kind, err)
}

func deleteCommand(k *kind) *cobra.Command {
	cmd := removalCommand(k, "delete", "delete one "+k.word())
	if !k.labelled() && k.Type != client.Events.Type {
		return cmd
	}
	return bySelector(cmd, k, action{
		name: "delete", verb: "delete", done: "Deleted", alone: []string{"events", "silences"}, instead: insteadOf(k),
	})
}

// insteadOf says how to do for many objects what flags of a deletion do for one.
func insteadOf(k *kind) map[string]string {
	out := map[string]string{
		"silences": "Silences stay. List them with 'lapwing silenced list', and delete them with 'lapwing silenced delete'.",
	}
	switch k.Type {
	case client.Entities.Type:
		out["events"] = "The events are deleted with their entities. To resolve failing ones first, select them:\n" +
			"  lapwing event resolve --field-selector 'event.entity.labels.region == eu'"
	case client.Checks.Type:
		out["events"] = "The events stay. Delete them afterwards: 'lapwing orphan delete --missing check', with --resolve after a resolution."
	}
	return out
}

// removalCommand returns a command that deletes one resource after a question.
func removalCommand(k *kind, name, short string) *cobra.Command {
	var skipConfirm bool
	var along cascade
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:     name + " " + strings.Join(k.args, " "),
		Short:   short,
		Example: fmt.Sprintf("  lapwing %[1]s %[3]s %[2]s\n  lapwing %[1]s %[3]s %[2]s --skip-confirm", k.Command, k.example, name),
		Args:    args(k.args...),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			along.dryRun, _ = cmd.Flags().GetBool("dry-run") // of bySelector or of the cascade, if the command has it
			return s.remove(ctx, k, strings.Join(args, "/"), skipConfirm, &along)
		}),
	}
	skipConfirmFlag(cmd, &skipConfirm)
	along.flags(cmd, k, name)
	completeNames(cmd, k)
	return cmd
}

// mayDelete returns an error if the server says that the user may not delete something of a resource. It is asked where no dry
// run tells. The namespace is "" for all at once, and for what belongs to none.
func (s *invocation) mayDelete(ctx context.Context, role, namespace, name string) error {
	var answer client.CanIAnswer
	q := url.Values{"verb": {"delete"}, "resource": {role}, "name": {name}, "namespace": {cmp.Or(namespace, "-")}}
	err := s.client.Do(ctx, http.MethodGet, "/api/lapwing/v1/auth/can-i?"+q.Encode(), nil, &answer)
	if err == nil && !answer.Allowed && !answer.Unknown {
		return hint(fmt.Errorf("you lack the right to delete %s", role), "See your rights with 'lapwing auth can-i --list'.")
	}
	return nil // the deletion itself will tell
}

// warnOfIncident warns before the deletion of a failing event: no handler gets a resolution.
func (s *invocation) warnOfIncident(ctx context.Context, name string) {
	ev, err := client.Get(ctx, s.client, client.Events, s.namespace, name)
	if err != nil || eventCheck(ev).Status == 0 {
		return
	}
	entity, check, _ := strings.Cut(name, "/")
	fmt.Fprintln(s.errOut, printable("Warning: it fails, and handlers get no resolution: its incident stays open at the receivers. "+
		"To close it first: "+s.commandLine("event", "resolve", entity, check)))
}

// remove deletes a resource, after a warning of what names it and what goes along, and a question unless that is skipped.
func (s *invocation) remove(ctx context.Context, k *kind, name string, skipConfirm bool, along *cascade) error {
	s.warnOfReferrers(ctx, []*object{{kind: k, namespace: s.namespace, name: name}}, nil)
	belongs := s.deletionOf(ctx, k, name)
	if belongs.failing > 0 && belongs.fate(along) == "resolve" {
		belongs.muted = s.mutedOf(ctx, k, name, along)
	}
	belongs.warn(s, along)
	if k.Type == client.Namespaces.Type {
		if along.all || along.dryRun {
			belongs.held = s.heldBy(ctx, name, holds)
		}
		if along.all {
			s.warnOfNamespace(ctx, name)
		}
		belongs.along = s.heldBy(ctx, name, goesAlong)
	}
	if k.Type == client.Events.Type && s.format == formatTabular {
		s.warnOfIncident(ctx, name)
	}
	if !skipConfirm && !along.dryRun {
		what := fmt.Sprintf("%s resource '%s'", k.Command, name)
		if all := slices.Concat(belongs.held, belongs.along); len(all) > 0 {
			what += " with " + commaSpace(all)
		}
		if err := s.confirm("Are you sure you would like to delete " + what + "?"); err != nil {
			return err
		}
	}
	var before map[string]resource.SubscriptionCount
	if k.Type == client.Entities.Type && !along.dryRun && belongs.loss.connected == 0 {
		before = s.subscribed(ctx, s.namespace)
	}
	if along.dryRun {
		err := client.DeleteWith(client.WithDryRun(ctx), s.client, k.Kind, s.namespace, name, along.query())
		if client.NoDryRun(err) || client.NoDryRunOf(err) {
			if _, err = s.get(ctx, k, name); err == nil {
				namespace := ""
				if k.Namespaced {
					namespace = cmp.Or(s.namespace, "default")
				}
				err = s.mayDelete(ctx, k.Role, namespace, name)
			}
		}
		if err != nil {
			return s.hintUndefined(&belongs, err)
		}
		if len(belongs.held) > 0 && !along.all {
			return s.hintHeld(name, belongs.held, fmt.Errorf("namespace %s is not empty", name))
		}
		s.did("Would delete", k, name, belongs.taken(along)...)
	} else {
		if err := client.DeleteWith(ctx, s.client, k.Kind, s.namespace, name, along.query()); err != nil {
			if k.Type == client.Namespaces.Type && !along.all {
				err = s.hintCascade(ctx, name, err)
			}
			return s.hintUndefined(&belongs, err)
		}
		s.did("Deleted", k, name, belongs.taken(along)...)
	}
	belongs.tellLeft(s, along)
	if before != nil {
		s.tellHostless(ctx, s.namespace, before)
	}
	return nil
}
