//go:build !agentonly

package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
)

// eachCommand calls f for all commands that the help shows.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			f(c)
			eachCommand(c, f)
		}
	}
}

// TestExamples parses the example of each command, which each has, and runs those that read without naming a resource.
func TestExamples(t *testing.T) {
	p := &page{t: t, name: "examples", counts: map[string]int{}}
	p.start()
	for _, handler := range []string{"mail", "pager"} { // lists of one handler's deliveries name them
		p.run(1, "lapwing handler create "+handler+" --type pipe --command true")
	}
	p.run(1, "lapwing entity create web1 --entity-class proxy")
	p.run(1, "lapwing check create disk --command true --subscriptions linux --interval 60")
	runs := regexp.MustCompile(`^lapwing (\S+ list|env|version|describe-type|config view|auth can-i --list|dump|audit list|cluster health|oncall|` +
		`user hash-password|agent collect|report|check next --help)( |$)`)
	ran := 0
	eachCommand(newRoot(), func(c *cobra.Command) {
		if c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		lines, err := shellLines(c.Example)
		if err != nil {
			t.Errorf("%s: %v", c.CommandPath(), err)
		}
		for _, l := range lines {
			found := false
			if strings.HasPrefix(strings.TrimSpace(l.text), "curl ") { // makes the file of the next line
				continue
			}
			for _, words := range l.commands {
				cmd, err := parseCommand(words)
				if err != nil {
					t.Errorf("%s: example %q: %v", c.CommandPath(), l.text, err)
				}
				found = found || cmd != nil
			}
			if !found {
				t.Errorf("%s: example %q does not run lapwing", c.CommandPath(), l.text)
			}
			text := strings.TrimSpace(l.text)
			others := strings.Contains(text, "--watch") || strings.Contains(text, "--follow") || strings.Contains(text, "--namespace") ||
				len(l.commands) > 1
			if runs.MatchString(text) && !others && c.HasParent() && !strings.HasPrefix(text, "lapwing agent collect ") {
				ran++
				p.run(1, text)
			}
		}
	})
	if ran < 40 {
		t.Errorf("only %d examples were run", ran)
	}
}

// TestEachFlagHasGroup: the programs with many flags have all of them under headings.
func TestEachFlagHasGroup(t *testing.T) {
	for _, name := range []string{"backend", "agent", "carbon"} {
		cmd, _, err := newRoot().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		headings := map[string]int{}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if headings[flaggroup.Of(f)]++; flaggroup.Of(f) == "" {
				t.Errorf("lapwing %s --%s has no group", name, f.Name)
			}
		})
		if len(headings) < 4 {
			t.Errorf("lapwing %s has only the headings %v", name, headings)
		}
	}
}

// leaning are words that need another flag's text to be understood.
var leaning = regexp.MustCompile(`^(its|their|the same|ditto|those)\b|\bof that many\b|\bas above\b`)

// TestFlagTexts: the text of each flag is understood alone.
func TestFlagTexts(t *testing.T) {
	eachCommand(newRoot(), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch text := f.Usage; {
			case len(strings.Fields(text)) < 2 && f.Name != "help":
				t.Errorf("%s --%s: %q says nothing", c.CommandPath(), f.Name, text)
			case strings.HasSuffix(text, "."):
				t.Errorf("%s --%s: %q ends with a full stop", c.CommandPath(), f.Name, text)
			case leaning.MatchString(text) && !strings.Contains(text, "--"):
				t.Errorf("%s --%s: %q cannot be understood alone", c.CommandPath(), f.Name, text)
			}
		})
	})
}

// TestNoUselessFlags: commands that ask no server show no flags for one.
func TestNoUselessFlags(t *testing.T) {
	for _, path := range []string{"describe-type", "user hash-password", "agent collect"} {
		cmd, _, err := newRoot().Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		help := strings.Fields(cmd.UsageString())
		for _, flag := range []string{"--api-url", "--backend-url"} {
			if slices.Contains(help, flag) {
				t.Errorf("lapwing %s shows %s", path, flag)
			}
		}
	}
}
