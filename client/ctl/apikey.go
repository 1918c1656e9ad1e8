package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type apiKey = resource.APIKey

var apiKeyKind = newKind(client.APIKeys, display[apiKey]{
	example: "7f63b5bc-41f4-4b3e-b59b-5431afd7e6a2",
	columns: []cellOf[apiKey]{
		{column{title: "Name"}, func(k *apiKey) string { return k.Metadata.Name }},
		{column{title: "Username"}, func(k *apiKey) string { return k.Username }},
		{column{title: "Age", right: true}, func(k *apiKey) string { return ageOf(k.CreatedAt) }},
		{column{title: "Created At", wide: true}, func(k *apiKey) string { return unixTime(k.CreatedAt) }},
	},
	title: func(k *apiKey) string { return k.Metadata.Name },
	fields: []fieldOf[apiKey]{
		{label: "Name", text: func(k *apiKey) string { return k.Metadata.Name }},
		{label: "Username", text: func(k *apiKey) string { return k.Username }},
		{label: "Created At", text: func(k *apiKey) string { return unixTime(k.CreatedAt) }},
	},
	can:   canList | canInfo,
	extra: []func(*kind) *cobra.Command{grantAPIKeyCommand, revokeAPIKeyCommand},
})

func grantAPIKeyCommand(*kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grant USERNAME",
		Short: "make an API key for programs that act as a user",
		Long: `Make an API key for programs that act as a user. The last part of the printed path is the key. Save it: the backend may
not be able to show it again.`,
		Example: "  lapwing api-key grant alice",
		Args:    args("USERNAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			location, err := s.client.GrantAPIKey(ctx, args[0])
			if err != nil {
				return fmt.Errorf("grant API key to %q: %w", args[0], bare(bare(err)))
			}
			fmt.Fprintln(s.out, "Created:", location)
			return nil
		}),
	}
	completeNames(cmd, userKind)
	return cmd
}

func revokeAPIKeyCommand(k *kind) *cobra.Command {
	return removalCommand(k, "revoke", "revoke an API key")
}
