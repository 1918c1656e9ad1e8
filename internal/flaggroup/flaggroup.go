// Package flaggroup puts the flags in a command's help under headings. Commands mark the flags that they register with
// Set, and Install lets the help of a whole tree of commands show them so. Flags without a group are the command's own
// and come first; internal/manpage gets the same from Groups. Parsing and defaults do not change.
package flaggroup

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	key  = "lapwing group" // of a flag: its heading, and the heading's number
	only = "lapwing flags" // of a command: the flags with a group that it uses
)

// Set puts the named flags of a set, or all that have no group yet, under a heading. It comes after those of earlier
// calls.
func Set(f *pflag.FlagSet, heading string, names ...string) {
	number, known := 0, false
	f.VisitAll(func(flag *pflag.Flag) {
		if g := flag.Annotations[key]; g != nil {
			if n, _ := strconv.Atoi(g[1]); g[0] == heading {
				number = n
				known = true
			} else if !known {
				number = max(number, n+1)
			}
		}
	})
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations[key] == nil && (len(names) == 0 || slices.Contains(names, flag.Name)) {
			_ = f.SetAnnotation(flag.Name, key, []string{heading, strconv.Itoa(number)}) // the flag exists
		}
	})
}

// Of returns the heading of a flag, or "".
func Of(f *pflag.Flag) string {
	if g := f.Annotations[key]; g != nil {
		return g[0]
	}
	return ""
}

// Only makes the help of a command leave out all flags with a group but the named ones: it takes the others for the
// sake of its settings, and they change nothing.
func Only(cmd *cobra.Command, names ...string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[only] = " " + strings.Join(names, " ") + " "
	return cmd
}

var template = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagGroups", usages) })

// Install makes the help of root and of all commands below it show flags in groups.
func Install(root *cobra.Command) {
	template()
	before, after, _ := strings.Cut(root.UsageTemplate(), "{{if .HasAvailableLocalFlags}}")
	_, after, _ = strings.Cut(after, "{{end}}{{if .HasHelpSubCommands}}")
	root.SetUsageTemplate(before + "{{flagGroups .}}{{if .HasHelpSubCommands}}" + after)
}

// Group is a part of a command's flags.
type Group struct {
	Heading string
	Flags   *pflag.FlagSet
	number  int
}

// Groups returns the flags that the help of a command shows, own ones first, and what is to be said of those that the
// command takes besides, or "". Flags may be hidden; no group is without a visible one.
func Groups(cmd *cobra.Command) (groups []Group, others string) {
	groups = []Group{{"Flags", pflag.NewFlagSet("", pflag.ContinueOnError), -1}}
	names, restricted := cmd.Annotations[only]
	add := func(f *pflag.Flag) {
		i := 0
		if a := f.Annotations[key]; a != nil {
			if restricted && !strings.Contains(names, " "+f.Name+" ") {
				return
			}
			if i = slices.IndexFunc(groups, func(g Group) bool { return g.Heading == a[0] }); i < 0 {
				number, _ := strconv.Atoi(a[1])
				i = len(groups)
				groups = append(groups, Group{a[0], pflag.NewFlagSet("", pflag.ContinueOnError), number})
			}
		}
		groups[i].Flags.AddFlag(f)
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	if restricted && names != "  " {
		others = "It takes all flags of \"" + cmd.Parent().CommandPath() + "\", as the same settings file is for both."
	}
	groups = slices.DeleteFunc(groups, func(g Group) bool { return !g.Flags.HasAvailableFlags() })
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(a.number, b.number) })
	return groups, others
}

// usages returns the part of the help that is about flags.
func usages(cmd *cobra.Command) string {
	var b strings.Builder
	groups, others := Groups(cmd)
	for _, g := range groups {
		b.WriteString("\n\n" + g.Heading + ":\n" + strings.TrimRight(g.Flags.FlagUsages(), " \n"))
	}
	if others != "" {
		b.WriteString("\n\n" + others)
	}
	return b.String()
}
