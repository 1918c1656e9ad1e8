// Package manpage writes the man pages of a tree of cobra commands, from the definitions that --help shows: texts,
// examples, and flags under the headings of internal/flaggroup. The command `lapwing man` calls it.
//
// Pages depend on the commands alone and have no date, so two builds of one version give the same files. They use only
// macros that groff and mandoc have, and ASCII. Texts are taken literally, not as Markdown: of a text, indented lines
// keep their breaks, and other paragraphs are filled.
package manpage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
)

// Name returns the name of a command's page, without its section: lapwing-event-list.
func Name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Commands returns root and all commands below it that the help shows, each before its subcommands.
func Commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range subcommands(root) {
		all = append(all, Commands(c)...)
	}
	return all
}

func subcommands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

// Write writes the pages of root and of all commands below it into a directory that exists.
func Write(root *cobra.Command, dir string) error {
	for _, cmd := range Commands(root) {
		if err := os.WriteFile(filepath.Join(dir, Name(cmd)+".1"), Page(cmd), 0o644); err != nil {
			return fmt.Errorf("write the man page of %s: %w", cmd.CommandPath(), err)
		}
	}
	return nil
}

// exitStatus is how a paragraph begins that becomes a section of its own.
var exitStatus = regexp.MustCompile(`^Exit (codes|status): `)

// exitCode separates the entries of such a paragraph.
var exitCode = regexp.MustCompile(`(?:^|,\s+)(\d+)\s`)

// Page returns the man page of a command.
func Page(cmd *cobra.Command) []byte {
	p := new(page)
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	product := strings.TrimSpace("lapwing " + cmd.Root().Version)
	p.line(".TH", quoted(strings.ToUpper(Name(cmd))), `1 ""`, quoted(product), `""`) // neither date nor name of a manual
	p.line(".nh")                                                                    // commands and flags are not to be hyphenated
	p.line(".ad l")
	p.line(".SH NAME")
	p.line(escaped(Name(cmd)), `\-`, escaped(cmd.Short))
	p.synopsis(cmd)
	var text, status []string
	for paragraph := range strings.SplitSeq(described(cmd), "\n\n") {
		if _, codes, ok := strings.Cut(paragraph, ": "); ok && exitStatus.MatchString(paragraph) {
			status = append(status, codes)
		} else {
			text = append(text, paragraph)
		}
	}
	p.section("DESCRIPTION", strings.Join(text, "\n\n"))
	if len(cmd.Aliases) > 0 {
		p.line(".PP")
		p.line("Other names:", escaped(strings.Join(cmd.Aliases, ", "))+".")
	}
	p.commands(cmd)
	p.flags(cmd)
	p.statuses(strings.Join(status, "\n\n"))
	p.section("EXAMPLES", cmd.Example)
	if cmd.HasParent() {
		p.line(".SH SEE ALSO")
		p.line(reference(cmd.Parent()))
	}
	return p.Bytes()
}

func described(cmd *cobra.Command) string {
	if strings.TrimSpace(cmd.Long) != "" {
		return cmd.Long
	}
	return strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
}

type page struct{ bytes.Buffer }

func (p *page) line(words ...string) { p.WriteString(strings.Join(words, " ") + "\n") }

func (p *page) synopsis(cmd *cobra.Command) {
	p.line(".SH SYNOPSIS")
	subs := len(subcommands(cmd)) > 0
	if cmd.Runnable() || !subs {
		p.line(`\fB` + escaped(cmd.CommandPath()) + `\fP` + escaped(strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())))
	}
	if subs {
		if cmd.Runnable() {
			p.line(".br")
		}
		p.line(`\fB`+escaped(cmd.CommandPath())+`\fP`, "COMMAND")
	}
}

// section writes a text under a heading, if there is one. Indented lines keep their breaks; others are filled.
func (p *page) section(heading, text string) {
	if text = strings.Trim(text, "\n"); text == "" {
		return
	}
	p.line(".SH", heading)
	literal, parted := false, false
	for l := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(l, " ") || strings.HasPrefix(l, "\t")
		parted = parted || l == "" || indented != literal
		if literal && !indented {
			p.line(".fi\n.RE")
		}
		if indented && !literal {
			p.line(".RS 2\n.PP\n.nf")
			parted = false
		} else if parted && l != "" {
			p.line(".PP")
			parted = false
		}
		if literal = indented; l != "" {
			p.line(escaped(strings.TrimPrefix(strings.TrimPrefix(l, "\t"), "  ")))
		}
	}
	if literal {
		p.line(".fi\n.RE")
	}
}

// statuses writes "0 success, 1 error, 64 unknown subcommand" as a list.
func (p *page) statuses(text string) {
	at := exitCode.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 || at[0][0] > 0 {
		p.section("EXIT STATUS", text)
		return
	}
	p.line(".SH EXIT STATUS")
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		p.line(".TP 6")
		p.line(`\fB` + text[m[2]:m[3]] + `\fP`)
		p.line(escaped(strings.TrimSuffix(text[m[1]:end], ".")))
	}
}

// commands lists the subcommands with their pages.
func (p *page) commands(cmd *cobra.Command) {
	list := func(heading, group string) {
		for _, c := range subcommands(cmd) {
			if c.GroupID == group {
				if heading != "" {
					p.line(heading)
					heading = ""
				}
				p.line(".TP")
				p.line(reference(c))
				p.line(escaped(c.Short))
			}
		}
	}
	list(".SH COMMANDS", "")
	for _, g := range cmd.Groups() {
		list(".SH "+escaped(strings.ToUpper(strings.TrimSuffix(g.Title, ":"))), g.ID)
	}
}

func (p *page) flags(cmd *cobra.Command) {
	groups, others := flaggroup.Groups(cmd)
	if len(groups) > 0 || others != "" {
		p.line(".SH OPTIONS")
	}
	for _, g := range groups {
		if g.Heading != "Flags" {
			p.line(".SS", escaped(g.Heading))
		}
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Deprecated == "" {
				names, value, text := flag(f)
				p.line(".TP")
				p.line(`\fB` + escaped(names) + `\fP` + value)
				p.line(escaped(text))
			}
		})
	}
	if others != "" {
		p.line(".PP")
		p.line(escaped(others))
	}
}

// flag returns what the help shows of a flag, so that defaults are the same: its names, its value in italics, and its
// text.
func flag(f *pflag.Flag) (names, value, text string) {
	one := pflag.NewFlagSet("", pflag.ContinueOnError)
	one.AddFlag(f)
	head, text, _ := strings.Cut(strings.TrimSpace(one.FlagUsages()), "   ")
	end := strings.Index(head, "--"+f.Name) + len("--"+f.Name)
	if end < len(head) {
		value = `\fI` + escaped(head[end:]) + `\fP`
	}
	return head[:end], value, strings.Join(strings.Fields(text), " ")
}

func reference(cmd *cobra.Command) string { return `\fB` + escaped(Name(cmd)) + `\fP(1)` }

func quoted(s string) string { return `"` + escaped(s) + `"` }

var marks = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`,
	"\n.", "\n\\&.")

// escaped makes a text literal: nothing in it is a request, and it can be copied to a shell.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range marks.Replace(s) {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	if strings.HasPrefix(s, ".") {
		return `\&` + b.String()
	}
	return b.String()
}
