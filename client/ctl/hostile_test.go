package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestPlaceOfAStrangePath looks for fields that no document has: a server may name any.
func TestPlaceOfAStrangePath(t *testing.T) {
	documents, bad := splitDocuments("f.yaml", []byte("type: CheckConfig\nspec:\n  subdues:\n  - begin: x\n"))
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	for field, line := range map[string]int{
		"subdues[0].begin": 4, "subdues[-1].begin": 3, "subdues[7]": 3, "subdues[99999999999999999999]": 3, "[": 2, "": 1, "none.[-1]": 2,
	} {
		if got := documents[0].LineOf(field); got != line {
			t.Errorf("%q is at line %d, want %d", field, got, line)
		}
	}
}

func TestReportedErrorsCannotMoveTheTerminal(t *testing.T) {
	var out strings.Builder
	Report(&out, hint(errors.New("there is no event a\x1b[31m/\u202eabc"), "See \x1b]0;x\a\n\tlapwing event list"))
	if want := "Error: there is no event a?[31m/?abc\nSee ?]0;x?\n\tlapwing event list\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestTextCannotMoveTheTerminal: commands write all text through a safeWriter, in pieces of any length.
func TestTextCannotMoveTheTerminal(t *testing.T) {
	text := paint(true, red, "a\x1b]52;c;aGk=\a\u202eb\u009b2J\r\n") + "\x1b[2J\tü…\x1b[" + bold + "\xff" + reset
	want := red + "a?]52;c;aGk=??b?2J\n" + reset + "?[2J\tü…?[" + bold + "?" + reset
	for size := 1; size <= len(text); size++ {
		var out strings.Builder
		w := &safeWriter{w: &out}
		for part := range slices.Chunk([]byte(text), size) {
			if n, err := w.Write(part); err != nil || n != len(part) {
				t.Fatal(n, err)
			}
		}
		if out.String() != want {
			t.Fatalf("in pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}

// TestCommandsOfAHostileServer: the answers of a server cannot move the terminal, with any command.
func TestCommandsOfAHostileServer(t *testing.T) {
	const evil = "x\\u001b]52;c;aGk=\\u0007\\r\\u202e\\u009b2J"
	object := strings.ReplaceAll(`{"metadata":{"name":"N","namespace":"N","annotations":{"N":"N"}},
		"name":"N","namespace":"N","check":"N","entity":"N",
		"text":"N","hint":"N","severity":"warning","kind":"N","problem":"N","time_zone":"N","user":"N","groups":["N"],
		"role":{"type":"N","name":"N"},
		"binding":{"type":"N","name":"N"},"allowed":true,"missing_calendars":["N"],"now":["N"],"agents":0,"subscriptions":[{"name":"N"}],
		"action":"N","resource":"N","request":"N","remote":"N","members":[{"name":"N","level":"N"}],"windows":[{"begin":1,"end":2,"name":"N"}],
		"sensu_backend":"N","members_missing":["N"],"contacts":["N"]}`, `"N"`, `"`+evil+`"`)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 lapwing "x\x1b[2J"`)
		if strings.HasSuffix(r.URL.Path, "s") || strings.HasSuffix(r.URL.Path, "lint") {
			fmt.Fprint(w, "["+object+"]")
			return
		}
		fmt.Fprint(w, object)
	}))
	defer srv.Close()
	root := &cobra.Command{Use: "lapwing"}
	Add(root)
	var leaves []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && cmd.Runnable() {
			leaves = append(leaves, cmd)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	ran := 0
	for _, leaf := range leaves {
		switch leaf.CommandPath() {
		case "lapwing edit", "lapwing login", "lapwing configure", "lapwing top", "lapwing create", "lapwing dump": // interactive, or not text
			continue
		}
		for n := range 4 { // the first number of arguments that the command takes
			if leaf.Args != nil && leaf.Args(leaf, slices.Repeat([]string{"get"}, n)) != nil {
				continue
			}
			root := &cobra.Command{Use: "lapwing", SilenceErrors: true}
			Add(root)
			var out strings.Builder
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetIn(strings.NewReader(""))
			words := append(strings.Fields(leaf.CommandPath())[1:], slices.Repeat([]string{"get"}, n)...)
			root.SetArgs(append(words, "--api-url", srv.URL, "--api-key", "k", "--config-dir", t.TempDir(), "--timeout", "5s"))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			Report(&out, root.ExecuteContext(ctx))
			cancel()
			ran++
			if i := strings.IndexAny(out.String(), "\x1b\a\r\u202e\u009b"); i >= 0 {
				t.Errorf("%s prints %q", leaf.CommandPath(), out.String())
			}
			break
		}
	}
	if ran < 100 {
		t.Errorf("only %d commands ran", ran)
	}
}

// TestDryRunOfManyLetters: a dry run shows a few of many dead letters, and says how many more there are.
func TestDryRunOfManyLetters(t *testing.T) {
	var out strings.Builder
	s := &invocation{settings: &settings{}, out: &out}
	letters := make([]client.DeadLetter, 12)
	for i := range letters {
		letters[i] = client.DeadLetter{ID: fmt.Sprint("letter", i), Handler: "pager"}
	}
	if err := s.showLetters(letters, 300, new(deadLetterFlags)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "letter"); n != 10 || !strings.HasSuffix(out.String(), "\nand 290 more\n") {
		t.Errorf("it shows %d:\n%s", n, out.String())
	}
}

// TestRedriveWithoutNames: a server may tell how many dead letters stay, and not of which handlers.
func TestRedriveWithoutNames(t *testing.T) {
	s := &invocation{settings: &settings{files: &files{}, namespace: "red"}}
	const want = "2 dead letters stay: their handlers are not defined in namespace red"
	if err := s.hintNoHandler(&client.Redriven{NoHandler: 2}, "red"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v", err)
	}
}

func TestLacksSecrets(t *testing.T) {
	for text, want := range map[string]bool{
		`{"url":"REDACTED"}`: true, `{"env_vars":["A=b","TOKEN=REDACTED"]}`: true, `{"command":"echo REDACTED x"}`: false,
	} {
		if got := lacksSecrets([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestDeadLinks: a link to nothing fails only where it has the name of a file that would be read.
func TestDeadLinks(t *testing.T) {
	dir := t.TempDir()
	for name, fails := range map[string]bool{"README": false, "x.yaml": true} {
		if err := os.Symlink("nowhere", filepath.Join(dir, name)); err != nil {
			t.Skip(err) // links need a right on Windows
		}
		if _, err := readFileOrDir(dir, false); (err != nil) != fails {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}
