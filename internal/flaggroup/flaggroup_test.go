package flaggroup_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
)

func tree() (root, child *cobra.Command) {
	root = &cobra.Command{Use: "root"}
	f := root.PersistentFlags()
	f.Bool("zebra", false, "an animal")
	flaggroup.Set(f, "Animals")
	f.Bool("apple", false, "a fruit")
	f.Bool("hidden", false, "nothing")
	_ = f.MarkHidden("hidden")
	flaggroup.Set(f, "Fruits")
	child = &cobra.Command{Use: "child", Run: func(*cobra.Command, []string) {}}
	child.Flags().Bool("mine", false, "the child's own")
	root.AddCommand(child)
	flaggroup.Install(root)
	return root, child
}

// TestGroups: own flags come first, then the groups in the order in which they were made.
func TestGroups(t *testing.T) {
	_, child := tree()
	want := "Usage:\n  root child [flags]\n\nFlags:\n      --mine   the child's own\n\nAnimals:\n      --zebra   an animal\n\n" +
		"Fruits:\n      --apple   a fruit\n"
	if got := child.UsageString(); got != want {
		t.Errorf("help:\n%s\nwant:\n%s", got, want)
	}
	if got := flaggroup.Of(child.InheritedFlags().Lookup("zebra")); got != "Animals" {
		t.Errorf("zebra is in group %q", got)
	}
}

func TestOnly(t *testing.T) {
	_, child := tree()
	got := flaggroup.Only(child, "apple").UsageString()
	if strings.Contains(got, "zebra") || !strings.Contains(got, "--apple") || !strings.Contains(got, `all flags of "root"`) {
		t.Errorf("help with one flag of the parent:\n%s", got)
	}
	_, child = tree()
	if got := flaggroup.Only(child).UsageString(); strings.Contains(got, "apple") || strings.Contains(got, "takes") {
		t.Errorf("help with no flag of the parent:\n%s", got)
	}
	if err := child.ParseFlags([]string{"--apple"}); err != nil {
		t.Errorf("a flag that the help leaves out: %v", err)
	}
}
