package ctl

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// silenceEventsCommand silences single events; "event unsilence" takes it back.
func silenceEventsCommand(k *kind) *cobra.Command {
	var expire, reason string
	var onResolve bool
	var labels map[string]string
	seconds := func() (int64, error) {
		if expire == "" {
			return 0, nil
		}
		return parseLength("expire", expire)
	}
	cmd := &cobra.Command{
		Use:   "silence ENTITY CHECK",
		Short: "silence one event, or all that a selector selects",
		Long: `Silence an event: this check of this entity. To silence also events that come later, or for other times, use
'lapwing silenced create'. To end the silence, use 'lapwing event unsilence' with the same names or the same selector.`,
		Example: `  lapwing event silence srv1 check-cpu --expire 2h --reason 'moving disks'
  lapwing event silence --field-selector 'event.check.name == disk' --expire 2h --reason 'moving disks'
  lapwing event unsilence --field-selector 'event.check.name == disk'`,
		Args: args("ENTITY", "CHECK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			one := &silenced{
				Subscription: resource.EntitySubscription(args[0]), Check: args[1], Reason: reason, ExpireOnResolve: onResolve,
			}
			one.Metadata.Namespace, one.Metadata.Labels = s.namespace, labels
			var err error
			if one.Expire, err = seconds(); err != nil {
				return err
			}
			name := client.EventName(args[0], args[1])
			if _, err := client.Get(ctx, s.client, client.Events, s.namespace, name); err != nil {
				return missingNamed(k, name, err)
			}
			err = client.Post(ctx, s.client, client.Silences, s.namespace, one)
			if errors.Is(err, client.ErrExists) {
				silence := resource.SilencedName(one.Subscription, one.Check)
				return hint(reworded(err, "event %s already has the silence %s", name, silence), "Show it: %s\nChange it: %s\nEnd it: %s",
					s.commandLine("silenced", "info", silence), s.commandLine("silenced", "update", silence),
					s.commandLine("event", "unsilence", args[0], args[1]))
			}
			if err != nil {
				return lacksLabels(err)
			}
			var ends []string
			if one.Expire > 0 {
				ends = append(ends, "in "+span(time.Duration(one.Expire)*time.Second))
			}
			if onResolve {
				ends = append(ends, "when the event resolves")
			}
			end := "it has no end"
			if len(ends) > 0 {
				end = "it ends " + strings.Join(ends, ", or ")
			}
			s.did("Silenced", k, name, end, s.undo("event", "unsilence", args[0], args[1]))
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&expire, "expire", "e", "", "duration of the silence in seconds, or with a unit like 2h (default no end)")
	f.StringVarP(&reason, "reason", "r", "", "reason, for other people to read")
	f.BoolVarP(&onResolve, "expire-on-resolve", "x", false, "end each silence when its event resolves")
	labelsFlag(cmd, &labels)
	completeNames(cmd, k)
	return bySelector(cmd, k, action{
		name: "silence", verb: "silence", done: "Silenced", alone: []string{"labels"}, undo: "unsilence",
		example: " --expire 2h --reason 'moving disks'",
		fill: func(in *client.BulkRequest) (err error) {
			in.Reason, in.ExpireOnResolve = reason, onResolve
			in.Expire, err = seconds()
			return err
		},
	})
}
