package ctl

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var tessenKind = newKind(client.Tessen, display[resource.TessenConfig]{
	args:  []string{},
	title: func(*resource.TessenConfig) string { return "Tessen Configuration" },
	fields: []fieldOf[resource.TessenConfig]{
		{label: "Opt-Out", text: func(t *resource.TessenConfig) string { return yesNo(t.OptOut) }},
	},
	can: canInfo,
	extra: []func(*kind) *cobra.Command{
		func(k *kind) *cobra.Command {
			return optCommand(k, "opt-in", "opt in to reports of usage (lapwing sends none)", false)
		},
		func(k *kind) *cobra.Command { return optCommand(k, "opt-out", "opt out of reports of usage", true) },
	},
})

func optCommand(k *kind, name, short string, out bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Example: "  lapwing tessen " + name,
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			if err := s.client.Do(ctx, http.MethodPut, k.Path("", ""), map[string]any{"opt_out": out}, nil); err != nil {
				return err
			}
			if out {
				fmt.Fprintln(s.out, "Opted out")
			} else {
				fmt.Fprintln(s.out, "Opted in")
			}
			return nil
		}),
	}
	if out {
		cmd.Flags().Bool("skip-confirm", false, "no effect; accepted for scripts written for sensuctl")
	}
	return cmd
}
