package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// drainPoll is how often a waiting drain asks for the number of agents left.
const drainPoll = time.Second

func drainCommand() *cobra.Command {
	var over time.Duration
	var wait, undo bool
	var member string
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "send the agents of a backend to the others",
		Long: `Send the agents of a backend to the other backends of their lists, spread over a time. The backend accepts no agents until
--undo or a restart, and its /ready says so to load balancers. Everything else goes on. Without --member it is the backend
at --api-url; all members of a cluster pass the request on to the one that --member names.`,
		Example: "  lapwing cluster drain --api-url http://backend-1:8080 --wait\n  lapwing cluster drain --member b --over 2m\n" +
			"  lapwing cluster drain --member b --undo",
		Args: func(cmd *cobra.Command, given []string) error {
			if undo && (wait || cmd.Flags().Changed("over")) {
				return hintUsage(cmd, errors.New("--undo goes with neither --over nor --wait"))
			}
			return args()(cmd, given)
		},
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			if undo {
				if err := s.client.Undrain(ctx, member); err != nil {
					return err
				}
				fmt.Fprintln(s.out, "The drain has ended: agents are accepted again")
				return nil
			}
			d, err := s.client.Drain(ctx, member, over)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.out, "Draining within %s: %s\n", over, agents(d.Sessions))
			if !wait {
				return nil
			}
			return s.awaitDrain(ctx, member, d)
		}),
	}
	cmd.Flags().Var(duration.New(30*time.Second, &over), "over", "time over which the agents leave, in whole seconds; 0 for all at once")
	cmd.Flags().StringVar(&member, "member", "", "name of the member to drain (default the backend at --api-url)")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until all agents have left")
	cmd.Flags().BoolVar(&undo, "undo", false, "end the drain: accept agents again")
	return cmd
}

// awaitDrain waits until no agent is left, and prints the number of agents after each change.
func (s *invocation) awaitDrain(ctx context.Context, member string, d *resource.Drain) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for d.Sessions > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for agents to leave: %w", ctx.Err())
		case <-tick.C:
		}
		now, err := s.client.Draining(ctx, member)
		if err != nil {
			return err
		}
		if !now.Draining {
			return fmt.Errorf("wait for agents to leave: the drain was undone, %s are connected", agents(now.Sessions))
		}
		if now.Sessions != d.Sessions && now.Sessions > 0 {
			fmt.Fprintf(s.out, "%s left\n", agents(now.Sessions))
		}
		d = now
	}
	fmt.Fprintln(s.out, "Drained")
	return nil
}

func agents(n int) string {
	if n == 1 {
		return "1 agent"
	}
	return fmt.Sprint(n, " agents")
}
