package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// retryCommand has failed deliveries of a handler tried again at once.
func retryCommand(k *kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry NAME",
		Short: "try the deliveries now that wait for their next attempt",
		Long: `Make all deliveries of a handler due that wait for their next attempt because one has failed, on all backends of a cluster:
for example when its receiver is back, and the waits have grown to minutes. Concurrency and rate limit of the handler
still count. An attempt that fails again counts, and the next wait is longer. Deliveries that wait for a group, for the
delay of a resolution or for a step of an escalation keep their times. Dead letters: see 'lapwing deadletter redrive'.`,
		Example: `  lapwing handler waiting pager
  lapwing handler retry pager`,
		Args: args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			defined, err := s.handlersNamed(ctx, s.namespace, args[0])
			if err != nil && !errors.Is(err, client.ErrDenied) {
				return err
			}
			names := args
			for i := range defined {
				if members := s.membersOf(ctx, &defined[i]); len(members) > 0 {
					names = members
				}
			}
			for _, name := range names {
				n, err := s.client.RetryWaiting(ctx, s.namespace, name)
				if err != nil {
					return err
				}
				text := "%d deliveries of handler %s are tried now; see: lapwing handler waiting %[2]s\n"
				switch n {
				case 0:
					text = "%d deliveries of handler %s wait for their next attempt\n"
				case 1:
					text = "%d delivery of handler %s is tried now; see: lapwing handler waiting %[2]s\n"
				}
				fmt.Fprintf(s.out, text, n, name)
			}
			return nil
		}),
	}
	completeNames(cmd, k)
	return cmd
}
