// Package flaggroup puts the flags in a command's help under headings. Commands mark the flags that they register with
// Set, and Install lets the help of a whole tree of commands show them so. Flags without a group are the command's own
// and come first. Parsing, defaults and man pages do not change.
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

// group is a part of a command's flags.
type group struct {
	heading string
	number  int
	flags   *pflag.FlagSet
}

// usages returns the part of the help that is about flags.
func usages(cmd *cobra.Command) string {
	groups := []*group{{heading: "Flags", number: -1, flags: pflag.NewFlagSet("", pflag.ContinueOnError)}}
	names, restricted := cmd.Annotations[only]
	add := func(f *pflag.Flag) {
		g := groups[0]
		if a := f.Annotations[key]; a != nil {
			if restricted && !strings.Contains(names, " "+f.Name+" ") {
				return
			}
			i := slices.IndexFunc(groups, func(g *group) bool { return g.heading == a[0] })
			if i < 0 {
				number, _ := strconv.Atoi(a[1])
				i = len(groups)
				groups = append(groups, &group{a[0], number, pflag.NewFlagSet("", pflag.ContinueOnError)})
			}
			g = groups[i]
		}
		g.flags.AddFlag(f)
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(a.number, b.number) })
	var b strings.Builder
	for _, g := range groups {
		if g.flags.HasAvailableFlags() {
			b.WriteString("\n\n" + g.heading + ":\n" + strings.TrimRight(g.flags.FlagUsages(), " \n"))
		}
	}
	if restricted && names != "  " {
		b.WriteString("\n\nIt takes all flags of \"" + cmd.Parent().CommandPath() + "\", as the same settings file is for both.")
	}
	return b.String()
}
