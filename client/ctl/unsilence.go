package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// unsilenceEventsCommand takes "event silence" back.
func unsilenceEventsCommand(k *kind) *cobra.Command {
	var b selection
	cmd := &cobra.Command{
		Use:   "unsilence [ENTITY CHECK]",
		Short: "end the silences of single events",
		Long: `End the silences that hit only one event each: those of this check of this entity, which 'lapwing event silence'
and 'lapwing event ack' make. The events are one by name, or all that a selector selects, after a question with their
number.

Wider silences, for example of a subscription, also hit other events, and later ones. They are not ended: the command
names those that still hit the events, and the command that ends each.`,
		Example: `  lapwing event unsilence srv1 check-cpu
  lapwing event unsilence --field-selector 'event.check.name == disk' --dry-run`,
		Args: func(cmd *cobra.Command, words []string) error {
			switch {
			case b.used() && b.fieldSelector == "" && b.labelSelector == "" && !b.all:
				return hintUsage(cmd, errors.New("set --field-selector, --label-selector or --all"))
			case b.used():
				return args()(cmd, words)
			}
			return args("ENTITY", "CHECK")(cmd, words)
		},
		RunE: run(func(ctx context.Context, s *invocation, words []string) error {
			u := &unsilencing{invocation: s, wide: map[resource.Name]int{}}
			if len(words) == 2 {
				ev, err := client.Get(ctx, s.client, client.Events, s.namespace, client.EventName(words[0], words[1]))
				if err != nil {
					return hintMissing(k, err)
				}
				u.add(ev)
				return u.run(ctx, k, &b, true)
			}
			silent := "event.is_silenced == true"
			if b.fieldSelector != "" {
				silent = "(" + b.fieldSelector + ") && " + silent
			}
			opts := client.ListOptions{ChunkSize: defaultChunkSize, LabelSelector: b.labelSelector, FieldSelector: silent}
			namespace := s.namespace
			if b.everywhere {
				namespace = ""
			}
			for ev, err := range client.All(ctx, s.client, client.Events, namespace, opts) {
				if err != nil {
					return err
				}
				u.add(ev)
			}
			if u.silenced == 0 {
				if err := s.nothing(ctx, k, namespace, false); err != nil {
					return err
				}
				fmt.Fprintln(s.errOut, "no silenced events match")
				return nil
			}
			return u.run(ctx, k, &b, false)
		}),
	}
	b.flags(cmd, k)
	completeNames(cmd, k)
	return cmd
}

// unsilencing has the silences of some events.
type unsilencing struct {
	*invocation
	silenced int                   // silenced events
	own      []resource.Name       // the silences of single events
	wide     map[resource.Name]int // the others, with the number of the events that each hits
}

func (u *unsilencing) add(ev *event) {
	names := eventCheck(ev).Silenced
	if len(names) == 0 {
		return
	}
	u.silenced++
	meta := &eventEntity(ev).Metadata
	own := resource.SilencedName(resource.EntitySubscription(meta.Name), eventCheck(ev).Metadata.Name)
	for _, name := range names {
		id := resource.Name{Namespace: cmp.Or(meta.Namespace, u.namespace), Name: name}
		if name == own {
			u.own = append(u.own, id)
		} else {
			u.wide[id]++
		}
	}
}

// run ends the silences of single events, and names the others.
func (u *unsilencing) run(ctx context.Context, k *kind, b *selection, one bool) error {
	switch {
	case b.dryRun:
		for _, id := range u.own {
			fmt.Fprintln(u.out, "Would end", printable(id.Name))
		}
	case len(u.own) > 0:
		if !one && !b.skipConfirm {
			if err := u.confirm(fmt.Sprintf("End the silences of %s?", k.counted(len(u.own)))); err != nil {
				return err
			}
		}
		ended := 0
		for _, id := range u.own {
			err := client.Delete(ctx, u.client, client.Silences, id.Namespace, id.Name)
			if err != nil && !errors.Is(err, client.ErrNotFound) { // it may have ended by itself
				return fmt.Errorf("after %d of %d: %w", ended, len(u.own), err)
			}
			ended++
		}
		fmt.Fprintln(u.out, "Unsilenced", k.counted(ended))
	default:
		fmt.Fprintln(u.errOut, "no silence hits only one of the events: nothing was done")
	}
	return u.tellWide(ctx, k)
}

// tellWide names the wider silences that still hit the events.
func (u *unsilencing) tellWide(ctx context.Context, k *kind) error {
	byName := func(a, b resource.Name) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	for _, id := range slices.SortedFunc(maps.Keys(u.wide), byName) {
		text := "silence " + id.Name
		one, err := client.Get(ctx, u.client, client.Silences, id.Namespace, id.Name)
		switch {
		case errors.Is(err, client.ErrNotFound):
			continue // it has ended since
		case err == nil:
			text = silenceText(one)
		case !errors.Is(err, client.ErrDenied):
			return err
		}
		at := *u.settings
		at.namespace = id.Namespace
		fmt.Fprintf(u.errOut, "%s still silenced by a wider silence: %s\nTo end it for all its events: %s\n",
			verbFor(u.wide[id], k), printable(text), at.commandLine("silenced", "delete", id.Name))
	}
	return nil
}

// verbFor returns "1 event is" or "3 events are".
func verbFor(n int, k *kind) string {
	if n == 1 {
		return k.counted(n) + " is"
	}
	return k.counted(n) + " are"
}
