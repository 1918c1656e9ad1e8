//go:build !agentonly

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// TestDocs checks the blocks of code of README.md, CONTRIBUTING.md and docs/*.md, each page against a backend of its
// own, in the page's order: client commands run, other commands of lapwing are parsed, resources go through a strict
// dry run. A block that fits no rule is a failure: see note in docblocks_test.go for what a page can say about its blocks. "make docs-test"
// prints what was done with each block.
func TestDocs(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan map[string]int, len(pages)+2)
	for _, path := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		t.Run(strings.TrimPrefix(path, "../../"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			p := &page{t: t, name: strings.TrimPrefix(path, "../../"), counts: map[string]int{}}
			p.check(string(text))
			results <- p.counts
		})
	}
	t.Cleanup(func() { // after all pages
		close(results)
		sum := map[string]int{}
		for counts := range results {
			for what, n := range counts {
				sum[what] += n
			}
		}
		t.Logf("blocks: %d run, %d checked, %d skipped; %d mentions of commands checked", sum["run"], sum["checked"],
			sum["skipped"], sum["mentions"])
		if sum["run"] < 20 || sum["checked"] < 20 || sum["mentions"] < 100 {
			t.Error("this is too little: were blocks overlooked?")
		}
	})
}

// page is a page under test.
type page struct {
	t      *testing.T
	name   string
	dir    string // the home and working directory of its commands; "" before the backend has started
	api    string
	counts map[string]int
}

func (p *page) errorf(line int, format string, args ...any) {
	p.t.Helper()
	p.t.Errorf("%s:%d: %s", p.name, line, fmt.Sprintf(format, args...))
}

func (p *page) done(b *block, what, format string, args ...any) {
	p.counts[what]++
	p.t.Logf("%s:%d: %s: %s", p.name, b.line, what, fmt.Sprintf(format, args...))
}

func (p *page) check(text string) {
	blocks, err := parsePage(text)
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	for _, b := range blocks {
		if name, ok := b.note("file"); ok {
			p.start()
			f, err := os.OpenFile(filepath.Join(p.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				p.t.Fatal(err)
			}
			_, err = f.WriteString("---\n" + b.text)
			if err := errors.Join(err, f.Close()); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	for i := range blocks {
		p.block(&blocks[i])
	}
	p.mentions(text)
}

// setupCommands are what the setup of a page can call beside lapwing.
const setupCommands = `event() { # ENTITY CHECK STATUS
lapwing create <<END
{type: Event, api_version: core/v2, metadata: {namespace: default}, spec: {
  entity: {metadata: {name: "$1", namespace: default}, entity_class: proxy},
  check: {metadata: {name: "$2", namespace: default}, status: $3, interval: 60, issued: 1, executed: 1, output: o, command: c}}}
END
}
`

// elsewhere are the languages of blocks that other tests check.
var elsewhere = map[string]string{
	"hex": "wire's tests compare it", "http": "wire's tests compare it", "sql": "the tests of the copy in PostgreSQL run it",
	"text": "output, or a file of another program",
}

func (p *page) block(b *block) {
	lang := b.lang
	if _, commands := b.note("check"); lang == "" {
		if lang = guess(b.text); lang == "" && commands {
			lang = "sh"
		}
	}
	skip, skipped := b.note("skip")
	_, isText := b.note("text")
	_, synopsis := b.note("synopsis")
	switch {
	case skipped:
		p.done(b, "skipped", "%s", skip)
	case isText:
		p.done(b, "skipped", "%s", elsewhere["text"])
	case synopsis:
		for line := range strings.Lines(b.text) {
			p.synopsis(b.line, line)
		}
		p.done(b, "checked", "a synopsis")
	case b.lang == "setup":
		p.start()
		p.run(b.line, setupCommands+b.text)
	case elsewhere[b.lang] != "":
		p.done(b, "skipped", "%s", elsewhere[b.lang])
	case lang == "yaml" || lang == "json":
		p.data(b)
	case lang == "sh" || lang == "console":
		p.shell(b)
	default:
		p.errorf(b.line, "no rule fits this block: give it a language, or a comment <!-- docs-test: … -->")
	}
}

// programs that begin a line of shell in a block without a language.
var shellWords = strings.Fields("lapwing bin/lapwing make go sudo systemctl install curl echo printf openssl tar mkdir rm mv " +
	"pg_dump btrfs npm")

var assignment = regexp.MustCompile(`^[A-Z_]+=\S*$`)

// guess returns the language of an indented block.
func guess(text string) string {
	first, _, _ := strings.Cut(strings.ReplaceAll(text, "\\\n", " "), "\n")
	words := strings.Fields(first)
	for len(words) > 0 && assignment.MatchString(words[0]) {
		words = words[1:]
	}
	switch {
	case len(words) > 0 && slices.Contains(shellWords, words[0]):
		return "sh"
	case strings.HasPrefix(text, "{"):
		return "json"
	case strings.HasPrefix(text, "type: ") || strings.HasPrefix(text, "- name: "):
		return "yaml"
	}
	return ""
}

// data checks YAML or JSON: resources by a strict dry run, other documents for their syntax.
func (p *page) data(b *block) {
	resources := 0
	for dec := yamlv3.NewDecoder(strings.NewReader(b.text)); ; {
		var doc any
		err := dec.Decode(&doc)
		if err != nil {
			if err.Error() != "EOF" {
				p.errorf(b.line, "%v", err)
			}
			break
		}
		if m, ok := doc.(map[string]any); ok && m["type"] != nil && m["api_version"] != nil {
			resources++
		}
	}
	if resources == 0 {
		p.done(b, "checked", "its syntax")
		return
	}
	p.start()
	file := filepath.Join(p.dir, fmt.Sprintf("line-%d.yaml", b.line))
	if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if reason, ok := b.note("check"); ok { // create reads all files before it connects, and ends with 2 if they are wrong
		if p.run(b.line, "status=0; LAPWING_API_URL=http://127.0.0.1:1 lapwing create -f "+filepath.Base(file)+
			" || status=$?; test $status = 1") {
			p.done(b, "checked", "its resources can be read; more is not possible %s", reason)
		}
	} else if p.run(b.line, "lapwing apply --dry-run -f "+filepath.Base(file)) {
		p.done(b, "run", "a dry run of its resources")
	}
}

// notHere are the client commands that only get parsed, and why.
var notHere = map[string]string{
	"configure": "asks", "login": "asks", "logout": "ends the sign-in", "top": "runs until it is stopped", "edit": "opens an editor",
}

// shell runs the lines of a block that call the client, and parses other calls of lapwing.
func (p *page) shell(b *block) {
	lines, err := shellLines(b.text)
	if err != nil {
		p.errorf(b.line, "%v", err)
		return
	}
	reason, onlyCheck := b.note("check")
	ran, checked, ok := 0, 0, true
	for _, l := range lines {
		run := !onlyCheck
		for _, words := range l.commands {
			cmd, err := parseCommand(words)
			switch {
			case err != nil:
				p.errorf(b.line+l.offset, "%v", err)
				run, ok = false, false
			case cmd == nil: // of another program
				run = false
			default:
				checked++
				top := cmd
				for top.Parent().HasParent() {
					top = top.Parent()
				}
				watch := cmd.Flags().Lookup("watch")
				run = run && top.GroupID == "client" && notHere[top.Name()] == "" && (watch == nil || !watch.Changed)
			}
		}
		if run {
			p.start()
			ran++
			ok = p.run(b.line+l.offset, strings.ReplaceAll(l.text, "bin/lapwing", "lapwing")) && ok
		}
	}
	switch {
	case !ok:
	case ran > 0:
		p.done(b, "run", "%d of %d lines; all %d commands of lapwing are parsed", ran, len(lines), checked)
	case checked > 0:
		p.done(b, "checked", "%d commands of lapwing %s", checked, reason)
	default:
		p.done(b, "skipped", "commands of other programs %s", reason)
	}
}

// start starts the page's backend, signs in and lets the commands find the repository's examples.
func (p *page) start() {
	if p.dir != "" {
		return
	}
	p.dir = p.t.TempDir()
	p.api = "http://" + testbackend.Start(p.t, nil).APIAddr().String()
	for _, name := range []string{"examples", "packaging"} {
		target, err := filepath.Abs(filepath.Join("../..", name))
		if err == nil {
			err = os.Symlink(target, filepath.Join(p.dir, name))
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	if !p.run(1, fmt.Sprintf("lapwing configure -n --url %s --username %s --password '%s'", p.api, testbackend.User,
		testbackend.Password)) {
		p.t.FailNow()
	}
}

// run runs lines of shell and reports whether they succeeded.
func (p *page) run(line int, script string) bool {
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TZ=UTC", "NO_PROXY=*", "GORACE=atexit_sleep_ms=0", "API=" + p.api}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		p.errorf(line, "%s\n%v:\n%s", script, err, &out)
		return false
	}
	return true
}

// newRoot returns the whole program's tree of commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "lapwing"}
	describe(root)
	return root
}

// parseCommand finds the command of lapwing in the words of a line and checks its flags and arguments. It returns nil
// for a command of another program.
func parseCommand(words []string) (*cobra.Command, error) {
	at := slices.IndexFunc(words, func(w string) bool { return !assignment.MatchString(w) })
	root := newRoot()
	for i := max(at, 0); i < len(words); i++ { // behind sudo, in a line of cron and so on
		if filepath.Base(words[i]) != "lapwing" {
			continue
		}
		if i+1 == len(words) || i > at && !hasCommand(root, words[i+1]) {
			continue
		}
		cmd, args, err := root.Find(words[i+1:])
		if err != nil {
			return nil, err
		}
		if isGroup(cmd) {
			return nil, fmt.Errorf("%s needs a subcommand, not %q", cmd.CommandPath(), args)
		}
		cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return err })
		if err := cmd.ParseFlags(args); err != nil {
			return nil, fmt.Errorf("%s: %w", cmd.CommandPath(), err)
		}
		return cmd, errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
	}
	return nil, nil
}

// isGroup reports whether a command does nothing without a subcommand.
func isGroup(c *cobra.Command) bool { return !c.Runnable() || strings.HasSuffix(c.Use, " COMMAND") }

func hasCommand(cmd *cobra.Command, name string) bool {
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) })
}

var (
	mention       = regexp.MustCompile("`(?:bin/)?(lapwing [^`]*)`")
	otherPrograms = regexp.MustCompile(` (# |\| [a-z]).*`)
	flagWord      = regexp.MustCompile(`(^|[\s\[|(])--([a-z][a-z0-9-]*)`)
)

// mentions checks `lapwing …` in the prose.
func (p *page) mentions(text string) {
	line := 1
	fenced := false
	for l := range strings.Lines(text) {
		if fence.MatchString(l) {
			fenced = !fenced
		}
		if !fenced && leading(l) < 4 || listItem.MatchString(l) {
			for _, m := range mention.FindAllStringSubmatch(l, -1) {
				p.counts["mentions"]++
				p.synopsis(line, m[1])
			}
		}
		line++
	}
}

// synopsis checks the names and flags of a command that has placeholders, brackets or alternatives.
func (p *page) synopsis(line int, text string) {
	text = otherPrograms.ReplaceAllString(strings.TrimSpace(text), "")
	words := strings.Fields(text)
	root := newRoot()
	root.InitDefaultCompletionCmd()
	cmds := []*cobra.Command{root}
	for _, w := range words[1:] {
		var next []*cobra.Command
		for name := range strings.SplitSeq(w, "|") {
			for _, c := range cmds {
				if i := slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name || sub.HasAlias(name) }); i >= 0 {
					next = append(next, c.Commands()[i])
				} else if isGroup(c) && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(name) {
					p.errorf(line, "%s: %s has no command %s", text, c.CommandPath(), name)
				}
			}
		}
		if len(next) == 0 {
			break
		}
		cmds = next
	}
	if cmds[0].HasParent() && cmds[0].Name() != "collect" { // the flags of collect are a collector's
		for _, m := range flagWord.FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(cmds, func(c *cobra.Command) bool { return flagOf(c, m[2]) != nil }) {
				p.errorf(line, "%s: %s has no flag --%s", text, cmds[0].CommandPath(), m[2])
			}
		}
	}
}

func flagOf(c *cobra.Command, name string) *pflag.Flag {
	c.InitDefaultHelpFlag()
	if f := c.Flags().Lookup(name); f != nil {
		return f
	}
	return c.InheritedFlags().Lookup(name)
}

// TestDocsParser: blocks, notes and lines of shell.
func TestDocsParser(t *testing.T) {
	page := strings.Join([]string{
		"# T", "", "- item", "", "  more of it", "", "      code 1", "      code 2", "", "text", "<!-- docs-test: skip because no -->", "",
		"    code 3", "", "<!-- docs-test: setup", "event a b 2", "-->", "```yaml x", "a: 1", "", "b: 2", "```",
	}, "\n")
	blocks, err := parsePage(page)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range blocks {
		skip, _ := b.note("skip")
		got = append(got, fmt.Sprintf("%d %q %q %q", b.line, b.lang, b.text, skip))
	}
	want := []string{
		`7 "" "code 1\ncode 2\n" ""`, `13 "" "code 3\n" "because no"`, `15 "setup" "event a b 2" ""`, `19 "yaml" "a: 1\n\nb: 2\n" ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("blocks:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, bad := range []string{
		"<!-- docs-test: skip -->\n\n    x", "<!-- docs-test: check because -->\n\n    x", "<!-- docs-test: what -->\n\n    x",
		"<!-- docs-test: text -->\nprose", "<!-- docs-test: text -->", "<!-- docs-test: setup", "```sh\nx",
		"<!-- docs-test: text now -->\n\n    x", "<!-- docs-test: file -->\n\n    x",
	} {
		if _, err := parsePage(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestDocsShell(t *testing.T) {
	for text, want := range map[string]string{
		"a b # c":                      "0 [[a b]]",
		"A=1 a 'b  c' \"d\"e|f&&g;h":   "0 [[A=1 a b  c de] [f] [g] [h]]",
		"a b \\\n  c > out d\ne <in":   "0 [[a b c d]] 2 [[e]]",
		"a '1\n2'\n# all\nb #c\n\n\nd": "0 [[a 1\n2]] 3 [[b]] 6 [[d]]",
		`a \'b`:                        "0 [[a 'b]]",
	} {
		lines, err := shellLines(text)
		var got []string
		for _, l := range lines {
			got = append(got, fmt.Sprint(l.offset, " ", l.commands))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := shellLines("a 'b"); err == nil {
		t.Error("an open quote is taken")
	}
}

// TestDocsCommands: calls of lapwing that cannot work are found.
func TestDocsCommands(t *testing.T) {
	for line, wrong := range map[string]string{
		"ls -l":                                     "",
		"lapwing event list --failing":              "",
		"sudo -u lapwing lapwing event list":        "",
		"X=1 bin/lapwing backend --state-dir d":     "",
		"lapwing evnt list":                         "evnt",
		"lapwing event":                             "needs a subcommand",
		"lapwing event lst":                         "needs a subcommand",
		"lapwing event list --faling":               "--faling",
		"lapwing check delete":                      "takes",
		"sudo -u lapwing lapwing restore --nothing": "--nothing",
	} {
		lines, err := shellLines(line)
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := parseCommand(lines[0].commands[0])
		if wrong == "" && (err != nil || cmd == nil != (line == "ls -l")) {
			t.Errorf("%s: %v, %v", line, cmd, err)
		}
		if wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v, want %s", line, err, wrong)
		}
	}
}
