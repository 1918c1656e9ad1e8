//go:build !agentonly

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
	"github.com/lapwing-monitoring/lapwing/internal/manpage"
)

// roffLine is a line of a page: a text that no program takes for a request, or one of the macros that pages use.
var roffLine = regexp.MustCompile(
	`^(\\&.*|[^.'].*|\.TH ".+" 1 "" ".+" ""|\.S[HS] .+|\.RS 2|\.TP( 6)?|\.(nh|ad l|PP|RE|nf|fi|br))$`)

// TestManPages: each command has a page with all that its help has, and roff that is sound.
func TestManPages(t *testing.T) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	commands := manpage.Commands(root)
	for _, c := range commands {
		page := string(manpage.Page(c))
		for i, line := range strings.Split(strings.TrimSuffix(page, "\n"), "\n") {
			if !roffLine.MatchString(line) {
				t.Errorf("%s, line %d: %q", manpage.Name(c), i+1, line)
			}
		}
		last := -1
		for _, heading := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"} {
			at := strings.Index(page, "\n.SH "+heading+"\n")
			if at <= last {
				t.Errorf("%s has no section %s, or in a wrong place", manpage.Name(c), heading)
			}
			last = at
		}
		if got := strings.Contains(page, "\n.SH EXAMPLES\n"); got != (c.Example != "") {
			t.Errorf("%s has a section with examples: %v", manpage.Name(c), got)
		}
		page = strings.ReplaceAll(page, `\-`, "-")
		flags := regexp.MustCompile(`(?m)^\\fB(?:-\w, )?--([\w-]+)\\fP`)
		shown := map[string]bool{}
		for _, m := range flags.FindAllStringSubmatch(page, -1) {
			shown[m[1]] = true
		}
		groups, _ := flaggroup.Groups(c)
		count := 0
		for _, g := range groups {
			if g.Heading != "Flags" && !strings.Contains(page, "\n.SS "+g.Heading+"\n") {
				t.Errorf("%s has no flags under %q", manpage.Name(c), g.Heading)
			}
			g.Flags.VisitAll(func(f *pflag.Flag) {
				if f.Hidden || f.Deprecated != "" {
					return
				}
				if count++; !shown[f.Name] {
					t.Errorf("%s lacks --%s", manpage.Name(c), f.Name)
				}
			})
		}
		if count != len(shown) || count == 0 {
			t.Errorf("%s has %d flags and not %d", manpage.Name(c), len(shown), count)
		}
		if parent := c.Parent(); parent != nil && !strings.Contains(string(manpage.Page(parent)),
			"\n.TP\n\\fB"+strings.ReplaceAll(manpage.Name(c), "-", `\-`)+"\\fP(1)\n") {
			t.Errorf("%s is not in the page of its parent", manpage.Name(c))
		}
	}
	if len(commands) < 250 {
		t.Errorf("only %d commands have a page", len(commands))
	}
}

// TestManPagesRender has groff read all pages; groff warns of each request that it does not know.
func TestManPagesRender(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	dir := t.TempDir()
	if err := writePackageFiles(newRoot(), dir); err != nil {
		t.Fatal(err)
	}
	render := func(pages ...string) string {
		cmd := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-Tutf8", "-ww"}, pages...)...)
		var warnings strings.Builder
		cmd.Stderr = &warnings
		if text, err := cmd.Output(); err != nil || len(text) == 0 {
			t.Errorf("groff wrote %d bytes: %v", len(text), err)
		}
		return warnings.String()
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man", "man1", "lapwing*.1"))
	if err != nil || len(pages) < 250 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	if warnings := render(pages...); warnings != "" {
		t.Errorf("groff warns:\n%s", warnings)
	}
	broken := filepath.Join(dir, "broken.1")
	if err := os.WriteFile(broken, []byte(".TH B 1\n.nosuchmacro x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(render(broken), "nosuchmacro") {
		t.Error("groff does not warn of an unknown macro: this test proves nothing")
	}
}
