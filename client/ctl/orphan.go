package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// orphanKind is the events whose entity or check is gone. They are events, so resource.Kinds has no row for them.
var orphanKind = newKind(client.Kind[resource.Orphan]{Kind: &resource.Kind{
	Type: "Orphan", Group: resource.CoreV2, Plural: "orphans", Command: "orphan", Namespaced: true,
}}, display[resource.Orphan]{
	namespace: func(o *resource.Orphan) string { return o.Namespace },
	columns: []cellOf[resource.Orphan]{
		{column{title: "Entity"}, func(o *resource.Orphan) string { return o.Entity }},
		{column{title: "Check"}, func(o *resource.Orphan) string { return o.Check }},
		{column{title: "Missing"}, func(o *resource.Orphan) string { return o.Missing }},
		{column{title: "Age", right: true}, func(o *resource.Orphan) string { return ageOf(o.Received) }},
		{column{title: "Last Event", wide: true}, func(o *resource.Orphan) string { return unixTime(o.Received) }},
	},
})

// orphanFlags select orphans.
type orphanFlags struct {
	client.OrphanOptions
	all bool
}

func (f *orphanFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.all, "all-namespaces", false, "orphans of all namespaces")
	cmd.Flags().StringVar(&f.Missing, "missing", "", "only orphans without this definition: entity or check")
	cmd.Flags().Var(duration.New(time.Minute, &f.OlderThan), "older-than", "only orphans that have not changed for this time")
}

func (f *orphanFlags) namespace(s *invocation) string {
	if f.all {
		return ""
	}
	return s.namespace
}

// knownIfNone is knownNamespace of the namespace of an answer that lists nothing.
func (s *invocation) knownIfNone(ctx context.Context, raw json.RawMessage) error {
	if !slices.Contains([]string{"[]", "null", `{"escalations":[]}`}, strings.TrimSpace(string(raw))) {
		return nil
	}
	return s.knownNamespace(ctx, s.namespace)
}

func orphanCommand() *cobra.Command {
	return groupOf("orphan", "show and delete events whose entity or check is gone", "list", listOrphansCommand(), deleteOrphansCommand())
}

func listOrphansCommand() *cobra.Command {
	var which orphanFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list events whose entity or check is gone",
		Example: "  lapwing orphan list\n  lapwing orphan list --missing check --older-than 24h\n  lapwing orphan list --all-namespaces --format json",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			found, err := s.client.Orphans(ctx, which.namespace(s), which.OrphanOptions)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				if err := s.knownNamespace(ctx, which.namespace(s)); err != nil {
					return err
				}
			}
			if len(found) == 0 && s.format == formatTabular {
				s.noItems(ctx, client.Events.Plural, "orphans", "orphan list", which.namespace(s), which.Missing != "")
				if which.OlderThan > 0 {
					fmt.Fprintf(s.errOut, "events that changed in the last %s are left out; to see them: --older-than 0s\n", span(which.OlderThan))
				}
			}
			list := make([]json.RawMessage, len(found))
			for i := range found {
				if list[i], err = json.Marshal(&found[i]); err != nil {
					return fmt.Errorf("encode orphan: %w", err)
				}
			}
			return s.printList(orphanKind, list, which.all)
		}),
	}
	which.add(cmd)
	formatFlag(cmd)
	return cmd
}

func deleteOrphansCommand() *cobra.Command {
	var which orphanFlags
	var resolve, skipConfirm bool
	cmd := &cobra.Command{
		Use:     "delete",
		Short:   "delete events whose entity or check is gone",
		Example: "  lapwing orphan delete\n  lapwing orphan delete --missing check --older-than 24h --resolve --skip-confirm",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			if !skipConfirm {
				found, err := s.client.Orphans(ctx, which.namespace(s), which.OrphanOptions)
				if err != nil {
					return err
				}
				if err := s.confirm(fmt.Sprintf("Are you sure you would like to delete %d orphaned events?", len(found))); err != nil {
					return err
				}
			}
			n, err := s.client.DeleteOrphans(ctx, which.namespace(s), which.OrphanOptions, resolve)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.out, "%d deleted\n", n)
			return nil
		}),
	}
	which.add(cmd)
	cmd.Flags().BoolVar(&resolve, "resolve", false, "resolve failing events first, so that their handlers get the resolution")
	skipConfirmFlag(cmd, &skipConfirm)
	return cmd
}
