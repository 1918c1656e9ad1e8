package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/api/client"
)

// defaultChunkSize keeps each answer small enough for --timeout when there are a hundred thousand resources.
const defaultChunkSize = 1000

// manageCommand is the command of a kind, such as "check", with what can be done to it below.
func manageCommand(k *kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:     k.singular + " COMMAND",
		Short:   "manage " + k.Plural,
		Example: fmt.Sprintf("  lapwing %s list", k.singular),
		Args:    cobra.ArbitraryArgs,

		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(listCommand(k), infoCommand(k), deleteCommand(k))
	for _, extra := range k.extra {
		cmd.AddCommand(extra(k))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			return hintUsage(cmd, &subcommandError{text})
		}
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
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
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list " + k.Plural,
		Example: fmt.Sprintf(`  lapwing %[1]s list
  lapwing %[1]s list --format yaml`, k.singular),
		Args: args(),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			namespace := s.namespace
			if all {
				namespace = ""
			}
			if watch {
				if opts.FieldSelector != "" || opts.LabelSelector != "" {
					return errors.New("--watch shows every event: it cannot be combined with selectors")
				}
				return watchEvents(ctx, s, k, namespace)
			}
			list, err := client.List(ctx, s.client, k.Kind, namespace, opts)
			if err != nil {
				return err
			}
			return s.printList(k, list, all)
		}),
	}
	f := cmd.Flags()
	if k.Namespaced {
		f.BoolVar(&all, "all-namespaces", false, "list those of all namespaces")
		cmd.Example += fmt.Sprintf("\n  lapwing %s list --all-namespaces", k.singular)
	}
	if k.Type == client.Events.Type {
		f.BoolVarP(&watch, "watch", "w", false, "go on with a line for every event as it arrives")
		cmd.Example += "\n  lapwing event list --watch\n  lapwing event list --watch --format json | jq .check.status"
		cmd.Long = `List events, in order of entity and check.

With --watch, the list is followed by a line for every event that arrives, until the command is interrupted (exit
code 0). A lost connection is made again, and what was missed meanwhile is shown. In format json each event is
one line, and a deleted one is {"deleted": true, "namespace": …, "entity": …, "check": …}.`
	}
	f.IntVar(&opts.ChunkSize, "chunk-size", defaultChunkSize, "how many to ask for in one request; 0 for all at once")
	f.StringVar(&opts.FieldSelector, "field-selector", "", "only those whose fields match, such as 'linux in check.subscriptions'")
	f.StringVar(&opts.LabelSelector, "label-selector", "", "only those whose labels match, such as 'region == eu'")
	formatFlag(cmd)
	return cmd
}

func infoCommand(k *kind) *cobra.Command {
	arguments := strings.Join(k.args, " ")
	cmd := &cobra.Command{
		Use:     "info " + arguments,
		Short:   "show one " + k.singular,
		Example: fmt.Sprintf("  lapwing %[1]s info %[2]s\n  lapwing %[1]s info %[2]s --format yaml", k.singular, exampleName(k)),
		Args:    args(k.args...),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			raw, err := s.get(ctx, k, strings.Join(args, "/"))
			if err != nil {
				return err
			}
			return s.printOne(k, raw)
		}),
	}
	formatFlag(cmd)
	return cmd
}

// get fetches the named resource of the session's namespace.
func (s *session) get(ctx context.Context, k *kind, name string) (json.RawMessage, error) {
	raw, err := client.Get(ctx, s.client, k.Kind, s.namespace, name)
	if err != nil {
		return nil, hintMissing(k, err)
	}
	return *raw, nil
}

func hintMissing(k *kind, err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return hint(err, "See 'lapwing %s list' for what there is.", k.singular)
	}
	return err
}

func deleteCommand(k *kind) *cobra.Command {
	var skipConfirm bool
	cmd := &cobra.Command{
		Use:     "delete " + strings.Join(k.args, " "),
		Short:   "delete one " + k.singular,
		Example: fmt.Sprintf("  lapwing %[1]s delete %[2]s\n  lapwing %[1]s delete %[2]s --skip-confirm", k.singular, exampleName(k)),
		Args:    args(k.args...),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			name := strings.Join(args, "/")
			if !skipConfirm {
				yes, err := s.confirm(fmt.Sprintf("Are you sure you would like to delete %s resource '%s'?", k.singular, name))
				if err != nil {
					return err
				}
				if !yes {
					fmt.Fprintln(s.out, "Canceled")
					return nil
				}
			}
			if err := client.Delete(ctx, s.client, k.Kind, s.namespace, name); err != nil {
				return hintMissing(k, err)
			}
			fmt.Fprintln(s.out, "Deleted")
			return nil
		}),
	}
	cmd.Flags().BoolVar(&skipConfirm, "skip-confirm", false, "do not ask")
	return cmd
}

// confirm asks a question; anything but yes is no, and so is the end of the input.
func (s *session) confirm(question string) (bool, error) {
	fmt.Fprint(s.errOut, question+" (y/N) ")
	line, err := bufio.NewReader(s.in).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("read answer: %w", err)
	}
	if err == io.EOF {
		fmt.Fprintln(s.errOut)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// newCreateCommand is "create NAME" for a kind. build returns the resource when the flags are known.
func newCreateCommand(k *kind, example string, build func(s *session, name string) any) *cobra.Command {
	return &cobra.Command{
		Use:     "create NAME",
		Short:   "create one " + k.singular,
		Example: example,
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			data, err := json.Marshal(build(s, args[0]))
			if err != nil {
				return fmt.Errorf("encode %s: %w", k.singular, err)
			}
			raw := json.RawMessage(data)
			err = client.Post(ctx, s.client, k.Kind, s.namespace, &raw)
			if errors.Is(err, client.ErrExists) {
				return hint(err, "Replace it with 'lapwing create -f', or delete it first.")
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(s.out, "Created")
			return nil
		}),
	}
}

func exampleName(k *kind) string {
	switch k.Type {
	case client.Events.Type:
		return "srv1 check-cpu"
	case client.Entities.Type:
		return "srv1"
	case client.Namespaces.Type:
		return "staging"
	}
	return "my-" + k.singular
}

// trimmed removes the blanks that people write behind commas.
func trimmed(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.TrimSpace(s))
	}
	return out
}
