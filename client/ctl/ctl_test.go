package ctl_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/client/ctl"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "lapwing", Short: "lapwing watches fleets", Version: "1.2.3"}
	ctl.Add(root)
	return root
}

// TestMain lets scripts run "lapwing", which is this test's own binary.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"lapwing": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		root := newRoot()
		root.SilenceErrors = true
		os.Exit(ctl.Report(os.Stderr, root.ExecuteContext(ctx)))
	}})
}

type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs testdata/*.txtar, each against an API of its own at $API. After "signin", the commands have a
// profile. The API writes its requests to api.log. $FILES is the URL of a server for the script's own files.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			log, err := os.OpenFile(filepath.Join(env.WorkDir, "api.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				return err
			}
			env.Defer(func() { log.Close() })
			api := newFakeAPI(env.T().(testing.TB), log)
			web := httptest.NewServer(http.FileServer(http.Dir(env.WorkDir)))
			env.Defer(web.Close)
			env.Setenv("API", api.url)
			env.Setenv("FILES", web.URL)
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("TZ", "UTC")
			env.Setenv("NO_PROXY", "*")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command takes a second under -race
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"signin": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(ts.Exec("lapwing", "configure", "-n", "--url", ts.Getenv("API"), "--username", "admin", "--password", "P@ssw0rd!"))
				ts.Check(os.Truncate(ts.MkAbs("api.log"), 0))
			},
			"exits":  exits,
			"plugin": plugin,
		},
	})
}

// exits N CMD... runs a command that must exit with status N.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

// TestHelp checks that every command has complete help and a valid example.
func TestHelp(t *testing.T) {
	root := newRoot()
	count := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		count++
		path := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || cmd.Short[0] < 'a' {
			t.Errorf("%s: short help %q", path, cmd.Short)
		}
		if !strings.Contains(cmd.Long, "Exit codes: 0 success") {
			t.Errorf("%s: no exit codes in help", path)
		}
		if cmd.Example == "" {
			t.Errorf("%s: no example", path)
		}
		for line := range strings.Lines(cmd.Example) {
			checkExample(t, root, cmd, strings.TrimSpace(line))
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, cmd := range root.Commands() {
		if cmd.GroupID == "client" {
			walk(cmd)
		}
	}
	if count < 25 {
		t.Errorf("only %d commands", count)
	}
}

// TestDays: each flag that takes a time understands days and weeks.
func TestDays(t *testing.T) {
	count := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			count++
			if err := f.Value.Set("1d12h"); err != nil || f.Value.String() != "36h0m0s" {
				t.Errorf("%s --%s=1d12h: %s, %v", cmd.CommandPath(), f.Name, f.Value, err)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	if count < 5 {
		t.Errorf("only %d flags take a time", count)
	}
}

// checkExample parses an example: its command, flags and arguments must exist.
func checkExample(t *testing.T, root, from *cobra.Command, line string) {
	t.Helper()
	if _, rest, ok := strings.Cut(line, "lapwing "); !strings.HasPrefix(line, "lapwing ") && ok {
		line = "lapwing " + rest // after environment variables
	}
	line, _, _ = strings.Cut(line, " | ")
	words := splitWords(line)
	if len(words) == 0 || words[0] != "lapwing" {
		t.Errorf("%s: example %q does not run lapwing", from.CommandPath(), line)
		return
	}
	fresh := newRoot()
	cmd, args, err := fresh.Find(words[1:])
	if err != nil {
		t.Errorf("example %q: %v", line, err)
		return
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Errorf("example %q: %v", line, err)
		return
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("example %q: %v", line, err)
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		t.Errorf("example %q: %v", line, err)
	}
}

// splitWords splits at blanks that are not in single quotes.
func splitWords(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
