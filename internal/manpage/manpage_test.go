package manpage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
	"github.com/lapwing-monitoring/lapwing/internal/manpage"
)

// tree is a command with a subcommand whose texts have all that roff would take for its own.
func tree() (root, child *cobra.Command) {
	run := func(*cobra.Command, []string) {}
	root = &cobra.Command{Use: "lapwing", Short: "Watch", Version: "1.2"}
	root.AddGroup(&cobra.Group{ID: "client", Title: "Client commands:"})
	root.AddCommand(&cobra.Command{Use: "secret", Hidden: true, Run: run})
	child = &cobra.Command{
		Use: "list-all NAME", Short: "list all", Aliases: []string{"ls"}, GroupID: "client", Run: run,
		Long: `List 'all', of a C:\new path or "a\fBc".
.so begins this line, and *this* is <no> Markdown.
'sh begins this one: an entity's state…

Lines in columns:
  .one   two
    three
After them.

Exit codes: 0 success, 1 an error, or
.two, 64 unknown.`,
		Example: "  lapwing list-all `x` ^a ~b\n\n  # äöü\n  lapwing list-all 'event.check.name == disk'",
	}
	f := child.Flags()
	f.StringP("namespace", "n", "default", "`NAME` of the namespace")
	flaggroup.Set(f, "Server")
	f.Bool("all", false, "of -all- namespaces")
	f.String("color", "", "when there are colours")
	f.Lookup("color").NoOptDefVal = "always"
	f.Bool("hidden", false, "nothing")
	_ = f.MarkHidden("hidden")
	root.AddCommand(child)
	flaggroup.Install(root)
	return root, child
}

const childPage = `.TH "LAPWING\-LIST\-ALL" 1 "" "lapwing 1.2" ""
.nh
.ad l
.SH NAME
lapwing\-list\-all \- list all
.SH SYNOPSIS
\fBlapwing list\-all\fP NAME [flags]
.SH DESCRIPTION
List \(aqall\(aq, of a C:\enew path or \(dqa\efBc\(dq.
\&.so begins this line, and *this* is <no> Markdown.
\(aqsh begins this one: an entity\(aqs state\[u2026]
.PP
Lines in columns:
.RS 2
.PP
.nf
\&.one   two
  three
.fi
.RE
.PP
After them.
.PP
Other names: ls.
.SH OPTIONS
.TP
\fB\-\-all\fP
of \-all\- namespaces
.TP
\fB\-\-color\fP\fI string[=\(dqalways\(dq]\fP
when there are colours
.TP
\fB\-h, \-\-help\fP
help for list\-all
.SS Server
.TP
\fB\-n, \-\-namespace\fP\fI NAME\fP
NAME of the namespace (default \(dqdefault\(dq)
.SH EXIT STATUS
.TP 6
\fB0\fP
success
.TP 6
\fB1\fP
an error, or
\&.two
.TP 6
\fB64\fP
unknown
.SH EXAMPLES
.RS 2
.PP
.nf
lapwing list\-all \(gax\(ga \(haa \(tib
.fi
.RE
.RS 2
.PP
.nf
# \[u00E4]\[u00F6]\[u00FC]
lapwing list\-all \(aqevent.check.name == disk\(aq
.fi
.RE
.SH SEE ALSO
\fBlapwing\fP(1)
`

func TestPage(t *testing.T) {
	_, child := tree()
	if got := string(manpage.Page(child)); got != childPage {
		t.Errorf("page:\n%s\nwant:\n%s", got, childPage)
	}
}

// TestRead: what a reader sees of the page is the text as it was written.
func TestRead(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	root, child := tree()
	for cmd, want := range map[*cobra.Command][]string{
		root: {"lapwing COMMAND", "CLIENT COMMANDS\n       lapwing-list-all(1)\n              list all"},
		child: {
			`List 'all', of a C:\new path or "a\fBc".`, `.so begins this line, and`, `*this* is <no> Markdown.`, `'sh begins`,
			"\n         .one   two\n           three\n", "lapwing list-all `x` ^a ~b", "# äöü", "-n, --namespace NAME",
		},
	} {
		run := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-P-cbou", "-ww")
		run.Stdin = strings.NewReader(string(manpage.Page(cmd)))
		var warnings strings.Builder
		run.Stderr = &warnings
		text, err := run.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("groff: %v %s", err, warnings.String())
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%q is not in\n%s", w, text)
			}
		}
	}
}

// TestWrite: there is a page for each command that the help shows.
func TestWrite(t *testing.T) {
	root, child := tree()
	dir := t.TempDir()
	if err := manpage.Write(root, dir); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("files: %v %v", files, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "lapwing-list-all.1"))
	if err != nil || string(text) != string(manpage.Page(child)) {
		t.Errorf("the file of a page differs from the page: %v", err)
	}
	err = manpage.Write(root, filepath.Join(dir, "none"))
	if err == nil || !strings.Contains(err.Error(), "page of lapwing:") {
		t.Errorf("write into a directory that does not exist: %v", err)
	}
}
