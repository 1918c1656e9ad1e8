package ctl

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestKindsHaveCommands fails for a row of resource.Kinds that files cannot hold, or that has no command.
func TestKindsHaveCommands(t *testing.T) {
	root := &cobra.Command{Use: "lapwing"}
	Add(root)
	for _, row := range resource.Kinds {
		if row.Internal() {
			continue
		}
		types := row.Types
		if types == nil {
			types = []string{row.Type}
		}
		for _, typ := range types {
			if _, ok := kindByType(row.Group, typ); !ok {
				t.Errorf("%s.%s is missing in kinds", row.Group, typ)
			}
		}
		if row.Command == "" && (row == entityConfigKind.Kind.Kind || row == postgresKind.Kind.Kind) {
			continue // the commands of entities change the one, and files the other
		}
		has := func(cmd *cobra.Command) bool { return cmd.Name() == row.Command }
		if !slices.ContainsFunc(root.Commands(), has) {
			t.Errorf("%s has no command %q", row.FullName(), row.Command)
		}
	}
}
